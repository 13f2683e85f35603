package activities

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"convoy.dev/convoy/api/v1alpha1"

	"go.temporal.io/sdk/activity"
)

// shares bounds how many activities of this worker work on one target cluster at a time: a cluster that answers nothing
// holds every activity that touches it for its whole patience, and must not hold all slots of the worker. Once it is
// known to be silent it gets a fifth of its share: syncs that fail soon and are tried again cost the others more than
// syncs that wait. Nor may several that have just died hold all slots together: a cluster gets no more than is left free
// beside it, so the more of them hold much, the less each gets, and some slots are always free.
type shares struct {
	limit, slots int

	mu    sync.Mutex
	used  map[string]int
	total int
}

func newShares(limit, slots int) *shares {
	return &shares{limit: limit, slots: slots, used: map[string]int{}}
}

// of is the share of a cluster.
func (s *shares) of(target Target) int {
	if target.Silent() {
		return max(1, s.limit/5)
	}
	return s.limit
}

// take takes one of so many shares of a cluster; false when all are taken.
func (s *shares) take(cluster string, limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if mine := s.used[cluster]; mine > 0 && mine >= min(limit, s.slots-s.total) {
		return false
	}
	s.used[cluster]++
	s.total++
	return true
}

func (s *shares) give(cluster string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.used[cluster]--; s.used[cluster] == 0 {
		delete(s.used, cluster)
	}
}

// held is the share that one activity holds; it is given back at the activity's end.
type held struct {
	mu      sync.Mutex
	cluster string
}

type heldKey struct{}

// withShare returns a context in which enter may take a share, and the function that gives it back.
func (a *Activities) withShare(ctx context.Context) (context.Context, func()) {
	h := &held{}
	return context.WithValue(ctx, heldKey{}, h), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.cluster != "" {
			a.shares.give(h.cluster)
		}
	}
}

// The pause of an activity that found no share free: it doubles with every attempt, because many that wait for a dead
// cluster would otherwise keep the worker and Temporal busy with asking. At a silent one it is the longest at once.
const shareAgain, shareAgainMost = time.Second, 30 * time.Second

// shareAfter is the pause after an attempt, shortened by up to a third so that those that wait do not come together.
func shareAfter(attempt int32, silent bool) time.Duration {
	pause := shareAgainMost
	if !silent {
		pause = min(shareAgain<<min(attempt-1, 10), shareAgainMost)
	}
	return pause - rand.N(pause/3)
}

// enter takes a share of the Release's target cluster for the rest of this activity. Where none is free the activity
// gives its slot back and asks to be run again. Clusters are told apart by their address: several Cluster resources may
// lead to one.
func (a *Activities) enter(ctx context.Context, rel *v1alpha1.Release, target Target) error {
	h, ok := ctx.Value(heldKey{}).(*held)
	if !ok {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cluster != "" {
		return nil
	}
	cluster := target.Address()
	if !a.shares.take(cluster, a.shares.of(target)) {
		name := "the control cluster"
		if rel.Spec.ClusterRef != nil {
			name = "Cluster " + rel.Spec.ClusterRef.Name
		}
		return &waitError{
			message: fmt.Sprintf("as many activities of this worker as may work on %s do so already: waiting for one of them", name),
			after:   shareAfter(activity.GetInfo(ctx).Attempt, target.Silent()),
		}
	}
	h.cluster = cluster
	return nil
}
