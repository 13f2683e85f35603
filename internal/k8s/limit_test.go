package k8s

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"convoy.dev/convoy/internal/release"
)

// A Cluster's bound holds for all its identities together, and another number takes its place at once.
func TestLimit_bounds_the_requests_of_all_identities(t *testing.T) {
	var now, most atomic.Int32
	arrived, answer := make(chan struct{}, 64), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		count := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); count > old && !most.CompareAndSwap(old, count); old = most.Load() {
		}
		arrived <- struct{}{}
		<-answer
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	pool := NewPool()
	connect := func(token string, requests int) *Cluster {
		cluster, err := pool.Connect(&rest.Config{Host: server.URL, BearerToken: token})
		require.NoError(t, err)
		pool.Limit(cluster, requests)
		return cluster
	}
	one, two := connect("one", 2), connect("two", 2)
	var all sync.WaitGroup
	for i := range 6 {
		cluster := []*Cluster{one, two}[i%2]
		all.Go(func() {
			_, err := cluster.send(t.Context(), request{method: http.MethodGet, path: "/version", accept: acceptJSON})
			require.NoError(t, err)
		})
	}
	<-arrived
	<-arrived
	require.EqualValues(t, 2, now.Load())
	close(answer)
	all.Wait()
	require.EqualValues(t, 2, most.Load())

	require.Equal(t, 3, cap(*connect("one", 3).limit.Load()))
	require.Nil(t, connect("one", 0).limit.Load())
}

// D22: where no place comes free that is an accident, and no request counts as sent; a caller that ends says so.
func TestLimit_no_place_is_an_accident(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := make(limit, 1)
		_, err := (&full).take(t.Context())
		require.NoError(t, err)
		began := time.Now()
		_, err = (&full).take(withLimit(t.Context(), 7*time.Second))
		var failure *release.Failure
		require.ErrorAs(t, err, &failure)
		require.Equal(t, release.Accident, failure.Class)
		require.False(t, failure.Uncertain)
		require.Equal(t, 7*time.Second, time.Since(began))

		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the step is over"))
		_, err = (&full).take(ctx)
		require.ErrorContains(t, err, "the step is over")
	})
}
