package k8s

import (
	"context"
	"fmt"
	"time"

	"convoy.dev/convoy/internal/release"
)

// limit bounds the requests to one cluster that are under way.
type limit chan struct{}

// take waits for a place, for as long as a request may take, and returns the function that gives it back. A limit that is
// nil bounds nothing. Where no place comes that is an accident, so that a step at a cluster that answers nothing ends in
// time (D22).
func (l *limit) take(ctx context.Context) (give func(), err error) {
	if l == nil {
		return func() {}, nil
	}
	patience := time.NewTimer(limitOf(ctx))
	defer patience.Stop()
	select {
	case *l <- struct{}{}:
		return func() { <-*l }, nil
	case <-patience.C:
		return nil, &release.Failure{Class: release.Accident, Message: fmt.Sprintf(
			"no request was sent to the target cluster: %d were under way for %s, as many as its Cluster allows", cap(*l), limitOf(ctx).Round(time.Second))}
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for one of %d requests to the target cluster to end: %w", cap(*l), context.Cause(ctx))
	}
}

// Limit bounds how many requests to a cluster this process has under way, all identities together; 0: no bound. Requests
// beyond it wait, and their waiting is no time of theirs. Another number counts from the next request on: those under
// way then end beside it.
func (p *Pool) Limit(cluster *Cluster, requests int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if requests <= 0 {
		cluster.limit.Store(nil)
		return
	}
	shared := p.limits[cluster.address]
	if shared == nil || cap(*shared) != requests {
		fresh := make(limit, requests)
		shared = &fresh
		p.limits[cluster.address] = shared
	}
	cluster.limit.Store(shared)
}
