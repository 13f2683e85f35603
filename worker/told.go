package main

import (
	"sync"

	"convoy.dev/convoy/workflows"

	"k8s.io/apimachinery/pkg/types"
)

// toldMap is what the loops were told of their Releases, and which of them are to be looked for by the sweep.
type toldMap struct {
	mu      sync.Mutex
	entries map[types.NamespacedName]told
}

type told struct {
	what workflows.Changed
	due  bool
}

func (m *toldMap) get(key types.NamespacedName) (workflows.Changed, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	entry, known := m.entries[key]
	return entry.what, known
}

func (m *toldMap) put(key types.NamespacedName, what workflows.Changed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries == nil {
		m.entries = map[types.NamespacedName]told{}
	}
	m.entries[key] = told{what: what}
}

func (m *toldMap) drop(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, key)
}

// sweep notes that it is time to look whether a loop is still there, and due tells it.
func (m *toldMap) sweep(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if entry, known := m.entries[key]; known {
		entry.due = true
		m.entries[key] = entry
	}
}

func (m *toldMap) due(key types.NamespacedName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entries[key].due
}
