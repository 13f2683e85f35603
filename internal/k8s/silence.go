package k8s

import (
	"sync"
	"time"
)

const (
	// silentFor is how long a cluster counts as silent once a step has got no answer for all its patience.
	silentFor = 2 * time.Minute
	// impatience is the budget of a step that begins while the cluster is silent.
	impatience = 3 * time.Second
)

// silence remembers that a cluster answers nothing, so that not every step waits for it for 40 s (D22) and holds a
// place in the worker meanwhile. Any answer, of whatever code, ends it; and now and then a step is patient again,
// because a cluster that is merely slow would never be heard otherwise.
type silence struct {
	mu    sync.Mutex
	until time.Time
}

// began notes that a step has ended without an answer.
func (s *silence) began() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Now().Add(silentFor)
}

// ended notes an answer.
func (s *silence) ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Time{}
}

func (s *silence) lasts() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.until)
}
