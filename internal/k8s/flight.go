package k8s

import (
	"context"
	"fmt"
	"sync"
	"time"

	"convoy.dev/convoy/internal/release"
)

// flight is a question to the cluster that callers at the same time share. They share its failure too: where the
// cluster answers nothing, each of them would otherwise wait for all that stand before it.
type flight[T any] struct {
	mu      sync.Mutex
	current *asking[T]
}

// asking is one question; value and err are read after done.
type asking[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// join asks, or waits for the answer to the question that is under way, as long as one request may take (withLimit).
// Where the one who asks was stopped by its own context or guard, the next one asks.
func (f *flight[T]) join(ctx context.Context, what string, ask func() (T, error)) (T, error) {
	limit := time.NewTimer(limitOf(ctx))
	defer limit.Stop()
	var none T
	for {
		question, mine := f.begin()
		if mine {
			value, err := ask()
			f.end(question, value, err)
			return value, err
		}
		select {
		case <-question.done:
		case <-ctx.Done():
			return none, fmt.Errorf("%s of the target cluster: %w", what, context.Cause(ctx))
		case <-limit.C:
			return none, &release.Failure{
				Class: release.Accident, Uncertain: true,
				Message: fmt.Sprintf("the target cluster gave no answer to %s: nothing came within %s", what, limitOf(ctx).Round(time.Second)),
			}
		}
		if question.err == nil {
			return question.value, nil
		}
		if failure := asFailure(question.err); failure != nil {
			own := *failure
			return none, &own
		}
	}
}

func (f *flight[T]) begin() (question *asking[T], mine bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current != nil {
		return f.current, false
	}
	f.current = &asking[T]{done: make(chan struct{})}
	return f.current, true
}

// end hands the answer over. Whoever asked goes on to change its failure, so the others get a copy.
func (f *flight[T]) end(question *asking[T], value T, err error) {
	question.value, question.err = value, err
	if failure := asFailure(err); failure != nil {
		shared := *failure
		question.err = &shared
	}
	f.mu.Lock()
	f.current = nil
	f.mu.Unlock()
	close(question.done)
}
