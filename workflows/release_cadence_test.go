package workflows

import (
	"testing"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"
)

// D30: the first pass syncs; then the loop looks at the cadence of the Release, for months, and starts nothing.
func TestReleaseWorkflow_D30_looks_at_its_cadence(t *testing.T) {
	l := newLife(t)
	l.cadence.Interval, l.until = 2*time.Hour, 90*24*time.Hour
	l.lives()
	require.Equal(t, "0s", l.started())
	require.Equal(t, &activities.LoopRef{}, l.syncs[0].in.Loop)
	require.True(t, l.looks[0].in.First)
	require.Greater(t, len(l.looks), 1080)
	for i, look := range l.looks {
		require.True(t, look.in.Due)
		require.Equal(t, i == 0, look.in.First)
		if i > 0 {
			require.Equal(t, "s1", look.in.SyncedSpec)
			require.Equal(t, "u", look.in.UID)
			want := oneSync + time.Duration(i)*tick(2*time.Hour)
			require.InDelta(t, want.Seconds(), look.at.Seconds(), 1+float64(i)/1000, "look %d", i)
		}
	}
}

// D30: a reconcile signal is a pass at once, as if the time had come; a change that the watch saw is a look; what is no
// news is none.
func TestReleaseWorkflow_D30_what_wakes_the_loop(t *testing.T) {
	for name, c := range map[string]struct {
		send func(*life)
		look bool
		due  bool
	}{
		"reconcile":            {func(l *life) { l.SignalWorkflow(SignalReconcile, nil) }, true, true},
		"no news":              {func(l *life) { l.SignalWorkflow(SignalChanged, Changed{UID: "u", Generation: 1}) }, false, false},
		"a known annotation":   {func(l *life) { l.SignalWorkflow(SignalChanged, Changed{UID: "u", Generation: 1, AnnotationID: "t1"}) }, false, false},
		"a new annotation":     {func(l *life) { l.SignalWorkflow(SignalChanged, Changed{UID: "u", Generation: 1, AnnotationID: "t2"}) }, true, false},
		"another generation":   {func(l *life) { l.SignalWorkflow(SignalChanged, Changed{UID: "u", Generation: 2}) }, true, false},
		"another uid":          {func(l *life) { l.SignalWorkflow(SignalChanged, Changed{UID: "v", Generation: 1}) }, true, false},
		"its deletion":         {func(l *life) { l.SignalWorkflow(SignalChanged, Changed{UID: "u", Generation: 1, Deleted: true}) }, true, false},
		"nothing that is read": {func(l *life) { l.SignalWorkflow(SignalChanged, "?") }, false, false},
		"the end of no sync":   {func(l *life) { l.SignalWorkflow(SignalSyncEnded, SyncEnded{RunID: "other"}) }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t)
			l.cadence.Interval, l.until = time.Hour, 30*time.Minute
			l.sees = func(_ activities.ObserveInput, seen *activities.Observation) { seen.AnnotationID = "t1" }
			l.at(time.Minute, func() { c.send(l) })
			l.lives()
			require.Equal(t, "0s", l.started())
			if !c.look {
				require.Zero(t, l.looked(2*time.Second, 50*time.Minute))
				return
			}
			require.Equal(t, 1, l.looked(2*time.Second, 50*time.Minute))
			require.Equal(t, time.Minute, l.looks[1].at.Round(time.Second))
			require.Equal(t, c.due, l.looks[1].in.Due)
		})
	}
}

// D23, D30: a change that was seen while a sync ran, and superseded nothing, such as a suspension, is looked at when that
// sync has ended.
func TestReleaseWorkflow_D23_a_change_during_a_sync_is_looked_at_after_it(t *testing.T) {
	for name, generation := range map[string]int64{"changed": 2, "unchanged": 1} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t)
			l.cadence.Interval, l.until = time.Hour, 30*time.Minute
			l.sees = func(_ activities.ObserveInput, seen *activities.Observation) {
				if l.passed() > 0 {
					seen.Generation = generation
				}
			}
			l.at(500*time.Millisecond, func() { l.SignalWorkflow(SignalChanged, Changed{UID: "u", Generation: generation}) })
			l.lives()
			require.Equal(t, 2*int(generation-1), l.looked(400*time.Millisecond, 2*time.Second))
			if generation == 2 {
				require.NotNil(t, l.looks[1].in.Running)
				require.Nil(t, l.looks[2].in.Running)
				require.False(t, l.looks[2].in.Due)
			}
		})
	}
}

// D22: DeployFailed, PruneFailed, HookFailed and an unreachable source are retried with backoff, as new syncs that know
// how many failed before.
func TestReleaseWorkflow_D22_retries_with_backoff(t *testing.T) {
	for reason, detail := range map[release.Reason]SyncFailure{
		release.DeployFailed: {}, release.PruneFailed: {}, release.HookFailed: {}, release.RenderFailed: {Unreachable: true},
	} {
		t.Run(string(reason), func(t *testing.T) {
			l := newLife(t)
			l.until = 12 * time.Minute
			l.syncing = ends(string(reason), detail)
			l.lives()
			due := time.Duration(0)
			for i, s := range l.syncs {
				require.InDelta(t, due.Seconds(), s.at.Seconds(), 0.1, "sync %d", i)
				require.Equal(t, i, s.in.Loop.Failures)
				require.False(t, s.in.Loop.Retry, "nobody asked for it")
				due += oneSync + tick(min(10*time.Second<<i, 5*time.Minute))
			}
			require.Len(t, l.syncs, 7)
		})
	}
}

// S7 D1 D23: what a retry does not help waits for the next periodic reconcile.
func TestReleaseWorkflow_S7_what_is_not_retried_waits_for_the_interval(t *testing.T) {
	for _, reason := range []release.Reason{release.Unappliable, release.RenderFailed, release.WaveTimeout, release.Superseded} {
		t.Run(string(reason), func(t *testing.T) {
			l := newLife(t)
			l.until = 9 * time.Minute
			l.syncing = ends(string(reason), SyncFailure{})
			l.lives()
			require.Len(t, l.syncs, 2)
			require.InDelta(t, (oneSync + tick(5*time.Minute)).Seconds(), l.syncs[1].at.Seconds(), 0.1)
			require.Zero(t, l.syncs[1].in.Loop.Failures)
		})
	}
}

// D22: a success ends the backoff, and the next failure begins it anew.
func TestReleaseWorkflow_D22_a_success_ends_the_backoff(t *testing.T) {
	l := newLife(t)
	l.until = 4 * time.Minute
	l.syncing = func(ctx workflow.Context, n int, in SyncInput) (SyncResult, error) {
		if n == 3 {
			return takes(time.Second)(ctx, n, in)
		}
		return ends("DeployFailed", SyncFailure{})(ctx, n, in)
	}
	l.at(2*time.Minute, func() { l.changed = true; l.SignalWorkflow(SignalReconcile, nil) })
	l.lives()
	require.GreaterOrEqual(t, len(l.syncs), 5)
	require.Equal(t, 2, l.syncs[2].in.Loop.Failures)
	require.Equal(t, 0, l.syncs[3].in.Loop.Failures)
	require.Equal(t, 1, l.syncs[4].in.Loop.Failures)
	require.InDelta(t, (oneSync + tick(10*time.Second)).Seconds(), (l.syncs[4].at - l.syncs[3].at).Seconds(), 0.1)
}

// D22: a look between a failure and its retry, for whatever the watch saw, changes neither its time nor its number.
func TestReleaseWorkflow_D22_a_look_does_not_put_a_retry_off(t *testing.T) {
	l := newLife(t)
	l.until = 2 * time.Minute
	l.syncing = ends("DeployFailed", SyncFailure{})
	l.at(20*time.Second, func() { l.SignalWorkflow(SignalChanged, Changed{UID: "u", Generation: 2}) })
	l.lives()
	second := oneSync + tick(10*time.Second)
	third := second + oneSync + tick(20*time.Second)
	require.Equal(t, 1, l.looked(second+2*time.Second, third-time.Second))
	require.InDelta(t, third.Seconds(), l.syncs[2].at.Seconds(), 0.1)
	require.Equal(t, 2, l.syncs[2].in.Loop.Failures)
}

// D22: in manual mode too a look between a failure and its retry leaves the retry to its request.
func TestReleaseWorkflow_D22_a_look_does_not_end_a_retry_in_manual_mode(t *testing.T) {
	l := newLife(t)
	l.until = 2 * time.Minute
	l.last = &activities.Ended{Result: "Succeeded"}
	l.sees = func(in activities.ObserveInput, seen *activities.Observation) {
		seen.Manual = true
		if seen.Action == release.ActSync && len(in.Requests) == 0 && !in.Retry {
			seen.Action = release.ActOutOfSync
		}
	}
	l.syncing = thereafter(ends("DeployFailed", SyncFailure{Digest: "sha256:abc"}), takes(time.Second))
	l.asks(time.Minute, SyncRequest{ID: "a", Force: true, RequestedBy: "ann"})
	l.at(time.Minute+4*time.Second, func() { l.SignalWorkflow(SignalChanged, Changed{UID: "u", Generation: 2}) })
	l.lives()
	require.Equal(t, "1m0s 1m11s", l.started())
	require.Equal(t, SyncInput{Namespace: "team-a", Name: "shop", Force: true, RequestedBy: "ann", Loop: &activities.LoopRef{Failures: 1, Retry: true}}, l.syncs[1].in)
}

// S4 D22: a Release that becomes a manual one after a failure that nobody asked for is not retried.
func TestReleaseWorkflow_S4_a_retry_ends_in_manual_mode(t *testing.T) {
	l := newLife(t)
	l.until = 20 * time.Minute
	l.syncing = ends("DeployFailed", SyncFailure{})
	l.sees = func(_ activities.ObserveInput, seen *activities.Observation) {
		if len(l.looks) > 2 && seen.Action == release.ActSync {
			seen.Action, seen.Manual = release.ActNothing, true
		}
	}
	l.at(10*time.Minute, func() { require.Equal(t, "next reconcile", l.query().Doing) })
	l.lives()
	require.Len(t, l.syncs, 2)
}

// D16: after a sync that may have left a request in flight the next pass is a whole sync, also after a look in between.
func TestReleaseWorkflow_D16_remembers_that_the_next_pass_is_a_whole_sync(t *testing.T) {
	l := newLife(t)
	l.until = 11 * time.Minute
	l.syncing = func(_ workflow.Context, n int, _ SyncInput) (SyncResult, error) {
		return SyncResult{Unsure: n == 1}, nil
	}
	l.sees = func(in activities.ObserveInput, seen *activities.Observation) {
		if in.Whole && in.Due {
			seen.Action = release.ActSync
		}
	}
	l.at(time.Minute, func() { l.SignalWorkflow(SignalChanged, Changed{UID: "u", Generation: 2}) })
	l.lives()
	require.True(t, l.looks[1].in.Whole)
	require.False(t, l.looks[1].in.Due)
	require.Len(t, l.syncs, 2)
	require.False(t, l.looks[len(l.looks)-1].in.Whole)
}

// D16 D26: a sync that was refused, fenced off, or not started at all has served nobody: its request waits again beside
// those that have come since, and the loop looks again after a pause, not at once and not only at the interval.
func TestReleaseWorkflow_D16_what_did_not_begin_puts_its_request_back(t *testing.T) {
	for name, fail := range map[string]func(workflow.Context, int, SyncInput) (SyncResult, error){
		"refused": ends(activities.Refused, SyncFailure{}),
		"fenced":  ends(activities.Fenced, SyncFailure{}),
		"not started": func(workflow.Context, int, SyncInput) (SyncResult, error) {
			return SyncResult{}, testsuite.ErrMockStartChildWorkflowFailed
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t)
			l.cadence.Interval, l.until = time.Hour, 10*time.Minute
			l.last = &activities.Ended{Result: "Succeeded"}
			l.syncing = func(ctx workflow.Context, n int, in SyncInput) (SyncResult, error) {
				if n < 4 {
					return fail(ctx, n, in)
				}
				return SyncResult{}, nil
			}
			if name == "not started" {
				l.OnWorkflow("SyncWorkflow", mock.Anything, mock.Anything).Return(func(ctx workflow.Context, in SyncInput) (SyncResult, error) {
					return l.sync(ctx, in, false)
				})
			}
			l.asks(time.Minute, SyncRequest{ID: "a", Force: true})
			l.asks(time.Minute+500*time.Millisecond, SyncRequest{ID: "b"})
			l.lives()
			require.Len(t, l.syncs, 4, "once it begins, it is served")
			for i := 1; i < 4; i++ {
				require.GreaterOrEqual(t, l.syncs[i].at-l.syncs[i-1].at, pauseAfterClash)
				require.Less(t, l.syncs[i].at-l.syncs[i-1].at, 2*pauseAfterClash)
				require.Equal(t, []string{"a", "b"}, l.syncs[i].in.Loop.Requests)
				require.True(t, l.syncs[i].in.Force)
				require.Zero(t, l.syncs[i].in.Loop.Failures, "it is no failure")
			}
		})
	}
}

// D26: an update that comes while a sync fails to start is served with the request of that sync.
func TestReleaseWorkflow_D26_an_update_while_a_sync_does_not_start(t *testing.T) {
	l := newLife(t)
	l.until = 10 * time.Minute
	l.last = &activities.Ended{Result: "Succeeded"}
	l.syncing = func(_ workflow.Context, n int, _ SyncInput) (SyncResult, error) {
		if n == 1 {
			return SyncResult{}, testsuite.ErrMockStartChildWorkflowFailed
		}
		return SyncResult{}, nil
	}
	l.OnWorkflow("SyncWorkflow", mock.Anything, mock.Anything).After(10 * time.Second).Return(func(ctx workflow.Context, in SyncInput) (SyncResult, error) {
		return l.sync(ctx, in, false)
	})
	l.asks(time.Minute, SyncRequest{ID: "a"})
	u := l.update(time.Minute+5*time.Second, SyncRequest{ID: "b"})
	l.lives()
	require.Equal(t, "a | a,b", l.requested())
	require.Equal(t, "Succeeded", u.answer.Result)
}

// D16: a sync that ended without a word is repaired at once, whatever kept it from speaking; the loop lives on.
func TestReleaseWorkflow_D16_a_sync_that_ended_without_a_word(t *testing.T) {
	for name, err := range map[string]error{
		"terminated": &temporal.TerminatedError{},
		"timed out":  temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_START_TO_CLOSE, nil),
	} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t)
			l.until = 10 * time.Minute
			l.last = &activities.Ended{Result: "Succeeded"}
			l.syncing = func(ctx workflow.Context, n int, in SyncInput) (SyncResult, error) {
				if n == 1 {
					return SyncResult{}, err
				}
				return takes(time.Second)(ctx, n, in)
			}
			l.asks(time.Minute, SyncRequest{ID: "a", Force: true, RequestedBy: "ann"})
			l.lives()
			require.Len(t, l.syncs, 2)
			require.InDelta(t, 60, l.syncs[1].at.Seconds(), 1)
			require.Equal(t, SyncInput{Namespace: "team-a", Name: "shop", Force: true, RequestedBy: "ann", Loop: &activities.LoopRef{Retry: true}}, l.syncs[1].in)
			require.Equal(t, "a", l.status[0].ID, "the loop gives the answer to status, since no sync did")
			require.Equal(t, lost, l.status[0].Reason)
			require.Len(t, l.status, 1)
		})
	}
}

// The loop does not fail, whatever a sync comes to.
func TestReleaseWorkflow_no_end_of_a_sync_ends_the_loop(t *testing.T) {
	for name, err := range map[string]error{
		"a reason of another version": temporal.NewNonRetryableApplicationError("?", "SomethingNew", nil),
		"details of another version":  temporal.NewNonRetryableApplicationError("?", "DeployFailed", nil, "not a SyncFailure"),
		"a panic":                     temporal.NewApplicationError("?", "PanicError"),
		"a cancellation":              temporal.NewCanceledError(),
		"with odd details":            temporal.NewCanceledError("only a message"),
	} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t)
			l.until = 12 * time.Minute
			l.syncing = func(ctx workflow.Context, n int, in SyncInput) (SyncResult, error) {
				if n == 1 {
					return SyncResult{}, err
				}
				return takes(time.Second)(ctx, n, in)
			}
			l.lives()
			require.Len(t, l.syncs, 2)
		})
	}
}

// A look that fails for good, which none should, is made again; so is one that Temporal tries again by itself.
func TestReleaseWorkflow_a_look_that_fails_ends_nothing(t *testing.T) {
	l := newLife(t)
	l.until = 8 * time.Minute
	l.noLook = map[int]error{
		1: temporal.NewNonRetryableApplicationError("?", "SomethingNew", nil),
		2: temporal.NewApplicationError("no route", activities.Waiting),
		4: temporal.NewNonRetryableApplicationError("?", "SomethingNew", nil),
	}
	l.at(2*time.Minute, func() { l.SignalWorkflow(SignalReconcile, nil) })
	l.asks(2*time.Minute, SyncRequest{ID: "a"})
	l.lives()
	require.Equal(t, "21s 2m20s", l.started())
	require.Equal(t, " | a", l.requested())
	require.True(t, l.looks[2].in.First)
	require.True(t, l.looks[4].in.Due, "the reconcile is not forgotten")
}

// D16: for a while after a lost attempt each pass is a whole sync, also behind a sync that was sure of itself: a request
// that lands in the same second as an apply leaves no other trace.
func TestReleaseWorkflow_D16_reckons_with_a_late_request_for_a_while(t *testing.T) {
	l := newLife(t)
	l.cadence.Interval, l.until, l.last = 20*time.Second, 5*time.Minute, &activities.Ended{Result: "Succeeded"}
	l.syncing = func(_ workflow.Context, n int, _ SyncInput) (SyncResult, error) {
		return SyncResult{Unsure: n == 1}, nil
	}
	l.sees = func(in activities.ObserveInput, seen *activities.Observation) {
		if in.Whole && in.Due {
			seen.Action = release.ActSync
		}
	}
	l.asks(time.Second, SyncRequest{ID: "a"})
	l.lives()
	require.InDelta(t, 4, len(l.syncs), 1, "each twenty seconds of a minute")
	require.False(t, l.looks[len(l.looks)-1].in.Whole)
}
