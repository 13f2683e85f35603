package activities

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type silentTarget struct {
	Target
	silent bool
}

func (s silentTarget) Silent() bool { return s.silent }

// A cluster holds no more than its share of the worker, and a fifth of it while it is silent; others keep theirs.
func TestShares_bound_what_one_cluster_holds(t *testing.T) {
	s := newShares(10, 100)
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
	require.Equal(t, 1, newShares(1, 100).of(silentTarget{silent: true}))
}

// Several clusters that have just died hold much, and never all: one that is healthy always gets a slot.
func TestShares_leave_slots_free_whatever_dies(t *testing.T) {
	for _, dead := range []int{1, 4, 10, 40} {
		s := newShares(25, 100)
		for i := range dead * 25 {
			s.take(fmt.Sprintf("dead-%d", i%dead), 25)
		}
		free := 100 - s.total
		require.GreaterOrEqual(t, free, 2, "%d dead clusters", dead)
		require.True(t, s.take("alive", 25))
		require.True(t, s.take("alive too", 25))
		for cluster, used := range s.used {
			require.LessOrEqual(t, used, 25, cluster)
		}
	}
}

// Those that wait for a share ask ever less often, and rarely where the cluster is silent.
func TestShares_waiting_grows(t *testing.T) {
	for attempt, most := range map[int32]time.Duration{1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 99: shareAgainMost} {
		pause := shareAfter(attempt, false)
		require.LessOrEqual(t, pause, most)
		require.Greater(t, pause, most/2)
	}
	require.Greater(t, shareAfter(1, true), shareAgainMost/2)
}
