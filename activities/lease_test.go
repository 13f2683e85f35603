package activities

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// D16: a worker starts no request once half a heartbeat timeout has gone by since the last beat that the server
// confirmed, and none at all once the server has said that another attempt runs.
func TestLease_D16_guards_every_request(t *testing.T) {
	for name, c := range map[string]struct {
		passes time.Duration
		beat   error
		stops  bool
	}{
		"a moment":                       {heartbeat/2 - time.Millisecond, errors.New("unreachable"), false},
		"half a heartbeat timeout":       {heartbeat / 2, errors.New("unreachable"), true},
		"the clock is set back":          {-time.Hour, errors.New("unreachable"), false},
		"the server has another attempt": {0, ErrLeaseLost, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			l := &lease{runs: w, valid: heartbeat / 2, now: func() time.Time { return w.now }}
			require.NoError(t, l.confirm(t.Context(), func(*Progress) {}))
			require.NoError(t, l.guard())
			w.now = w.now.Add(c.passes)
			w.beat = func() error { return c.beat }
			require.ErrorIs(t, l.confirm(t.Context(), func(*Progress) {}), ErrLeaseLost)
			require.Equal(t, c.stops, l.guard() != nil)
		})
	}
}

// D16: a beat is dated by when it was sent, not by when its answer came.
func TestLease_D16_counts_from_when_the_beat_was_sent(t *testing.T) {
	w := newWorld(t)
	l := &lease{runs: w, valid: heartbeat / 2, now: func() time.Time { return w.now }}
	w.beat = func() error {
		w.now = w.now.Add(heartbeat / 2)
		return nil
	}
	require.NoError(t, l.confirm(t.Context(), func(*Progress) {}))
	require.ErrorIs(t, l.guard(), ErrLeaseLost)
}

// D16: a step whose lease is lost in the middle ends as Interrupted, applies nothing more and leaves no trace.
func TestApplyWave_D16_stops_when_its_lease_is_lost(t *testing.T) {
	w := newWorld(t, cm("a", 0), cm("b", 0), cm("c", 0))
	w.onApply = func(name string) {
		if name == "b" {
			w.now = w.now.Add(heartbeat)
			w.beat = func() error { return errors.New("unreachable") }
		}
	}
	w.fails(w.a.ApplyWave, WaveInput{Sync: w.sync()}, Interrupted)
	require.Equal(t, "apply a", w.changes("apply"))
}

// A step does not begin without a confirmed beat.
func TestStep_D16_does_not_begin_without_a_confirmed_beat(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	w.beat = func() error { return errors.New("unreachable") }
	w.fails(w.a.ApplyWave, WaveInput{Sync: w.sync()}, Interrupted)
	require.Empty(t, w.calls)
}
