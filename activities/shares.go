package activities

import (
	"context"
	"fmt"
	"sync"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
)

// shares bounds how many activities of this worker work on one target cluster at a time: a cluster that answers nothing
// holds every activity that touches it for its whole patience, and must not hold all slots of the worker.
type shares struct {
	limit int

	mu   sync.Mutex
	used map[string]int
}

func newShares(limit int) *shares { return &shares{limit: limit, used: map[string]int{}} }

// take takes a share of a cluster; false when all are taken.
func (s *shares) take(cluster string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[cluster] >= s.limit {
		return false
	}
	s.used[cluster]++
	return true
}

func (s *shares) give(cluster string) {
	s.mu.Lock()
	defer s.mu.Unlock()
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

// shareAgain is the pause of an activity that found no share free.
const shareAgain = time.Second

// enter takes a share of the Release's target cluster for the rest of this activity. Where none is free the activity
// gives its slot back and asks to be run again.
func (a *Activities) enter(ctx context.Context, rel *v1alpha1.Release) error {
	h, ok := ctx.Value(heldKey{}).(*held)
	if !ok {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cluster != "" {
		return nil
	}
	cluster := "/"
	if rel.Spec.ClusterRef != nil {
		cluster = rel.Namespace + "/" + rel.Spec.ClusterRef.Name
	}
	if !a.shares.take(cluster) {
		return &waitError{
			message: fmt.Sprintf("%d activities of this worker work on Cluster %s already: waiting for one of them", a.shares.limit, cluster),
			after:   shareAgain,
		}
	}
	h.cluster = cluster
	return nil
}
