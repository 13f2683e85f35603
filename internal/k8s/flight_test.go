package k8s

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"convoy.dev/convoy/internal/release"
)

// D22: callers at the same time share one question, and its failure: a cluster that answers nothing is waited for once,
// not by one after the other.
func TestFlight_D22_a_failure_is_shared(t *testing.T) {
	var f flight[int]
	asked, answer := make(chan struct{}, 10), make(chan error)
	ask := func() (int, error) {
		asked <- struct{}{}
		return 7, <-answer
	}
	var all sync.WaitGroup
	errs := make(chan error, 2)
	all.Go(func() {
		_, err := f.join(t.Context(), "discovery", ask)
		errs <- err
	})
	<-asked
	all.Go(func() {
		_, err := f.join(t.Context(), "discovery", func() (int, error) { return 0, errors.New("asked twice") })
		errs <- err
	})
	_, err := f.join(withLimit(t.Context(), time.Millisecond), "discovery", ask)
	require.ErrorContains(t, err, "nothing came within")
	answer <- &release.Failure{Class: release.Accident, Message: "no answer"}
	all.Wait()
	first, second := asFailure(<-errs), asFailure(<-errs)
	require.Equal(t, first, second)
	require.NotSame(t, first, second, "each caller goes on with its own")
}

// Who was stopped by its own guard or context has no answer for the others: the next one asks.
func TestFlight_D16_a_stopped_caller_stops_nobody_else(t *testing.T) {
	var f flight[int]
	asked, stop := make(chan struct{}), make(chan struct{})
	go func() {
		_, _ = f.join(t.Context(), "discovery", func() (int, error) {
			close(asked)
			<-stop
			return 0, errors.New("the lease is lost")
		})
	}()
	<-asked
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.join(gone, "discovery", nil)
	require.ErrorIs(t, err, context.Canceled)
	close(stop)
	value, err := f.join(t.Context(), "discovery", func() (int, error) { return 7, nil })
	require.NoError(t, err)
	require.Equal(t, 7, value)
}
