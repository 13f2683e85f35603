package activities

import (
	"testing"

	"github.com/stretchr/testify/require"
)

type silentTarget struct {
	Target
	silent bool
}

func (s silentTarget) Silent() bool { return s.silent }

// A cluster holds no more than its share of the worker, and a fifth of it while it is silent; others keep theirs.
func TestShares_bound_what_one_cluster_holds(t *testing.T) {
	s := newShares(10)
	limit := s.of(silentTarget{})
	require.Equal(t, 10, limit)
	for range limit {
		require.True(t, s.take("dead", limit))
	}
	require.False(t, s.take("dead", limit))
	require.True(t, s.take("alive", limit))

	limit = s.of(silentTarget{silent: true})
	require.Equal(t, 2, limit)
	for range 8 {
		s.give("dead")
		require.False(t, s.take("dead", limit))
	}
	s.give("dead")
	require.True(t, s.take("dead", limit))
	require.Equal(t, 1, newShares(1).of(silentTarget{silent: true}))
}
