package main

import (
	"sync"
	"time"

	"convoy.dev/convoy/workflows"

	"k8s.io/apimachinery/pkg/types"
)

// toldMap is what the loops were told of their Releases, and when they were last known to be there.
type toldMap struct {
	mu      sync.Mutex
	entries map[types.NamespacedName]told
}

type told struct {
	what workflows.Changed
	at   time.Time
}

func (m *toldMap) get(key types.NamespacedName) (workflows.Changed, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	entry, known := m.entries[key]
	return entry.what, known
}

func (m *toldMap) put(key types.NamespacedName, what workflows.Changed, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries == nil {
		m.entries = map[types.NamespacedName]told{}
	}
	m.entries[key] = told{what, now}
}

func (m *toldMap) drop(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, key)
}

// sweep reports whether it is time to look whether the loop is still there.
func (m *toldMap) sweep(key types.NamespacedName, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return now.Sub(m.entries[key].at) >= sweepEvery/2
}
