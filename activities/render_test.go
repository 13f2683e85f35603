package activities

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/require"
)

// unreachable is a source that answers nothing, until it does.
type unreachable struct{ until time.Time }

func (u unreachable) Fetch(context.Context, v1alpha1.Source) (files []release.File, revision string, err error) {
	if time.Now().Before(u.until) {
		return nil, "", errors.New("out of reach")
	}
	return nil, "r1", nil
}

// D1 D22: an unreachable source is tried for 40s inside the step. The last pause that does not fit is 5s long.
func TestFetch_D22_a_source_is_tried_for_40s(t *testing.T) {
	for name, c := range map[string]struct {
		downFor time.Duration
		fails   bool
	}{
		"it comes back in time": {36 * time.Second, false},
		"it stays away":         {time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				a := New(Options{Source: unreachable{began.Add(c.downFor)}})
				_, _, err := a.fetch(t.Context(), v1alpha1.Source{})
				require.Equal(t, c.fails, err != nil)
				require.Greater(t, time.Since(began), 35*time.Second)
				require.LessOrEqual(t, time.Since(began), 40*time.Second)
			})
		})
	}
}
