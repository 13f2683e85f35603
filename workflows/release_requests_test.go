package workflows

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// idle is a loop whose Release was synced before, so that only requests start a sync.
func idle(t *testing.T) *life {
	t.Helper()
	l := newLife(t)
	l.last = &activities.Ended{Result: "Succeeded"}
	return l
}

// D26: requests that come while a sync runs become one further sync, forced if one of them was; an id that waits, is
// being served or was answered asks for nothing new.
func TestReleaseWorkflow_D26_requests_during_a_sync_become_one(t *testing.T) {
	l := idle(t)
	l.until = 5 * time.Hour
	l.syncing = takes(time.Hour)
	l.asks(time.Minute, SyncRequest{ID: "a", RequestedBy: "ann"})
	l.asks(10*time.Minute, SyncRequest{ID: "b", Force: true, RequestedBy: "bob"})
	l.asks(20*time.Minute, SyncRequest{ID: "c", RequestedBy: "cy"})
	l.asks(30*time.Minute, SyncRequest{ID: "b", RequestedBy: "bob"})
	l.asks(40*time.Minute, SyncRequest{ID: "a", Force: true})
	l.asks(90*time.Minute, SyncRequest{ID: "c"})
	l.asks(200*time.Minute, SyncRequest{ID: "a"})
	l.at(50*time.Minute, func() {
		status := l.query()
		require.Equal(t, []string{"b", "c"}, status.Waiting)
		require.NotEmpty(t, status.SyncRunID)
		require.Contains(t, status.Doing, "a sync runs")
	})
	l.lives()
	require.Equal(t, "1m0s 1h1m0s", l.started())
	require.Equal(t, "a | b,c!", l.requested())
	require.Equal(t, "ann", l.syncs[0].in.RequestedBy)
	require.Equal(t, "bob, cy", l.syncs[1].in.RequestedBy)
}

// D26: a signal without an id gets one, and each is answered; a payload that is no request still asks for a sync.
func TestReleaseWorkflow_D26_a_signal_needs_no_input(t *testing.T) {
	l := idle(t)
	l.until = time.Hour
	for i, payload := range []any{nil, "no request", 7, map[string]any{"force": "yes"}, SyncRequest{ID: strings.Repeat("x", 1000)}} {
		l.at(time.Duration(i+1)*time.Minute, func() { l.SignalWorkflow(SignalSync, payload) })
	}
	l.at(50*time.Minute, func() { require.Len(t, l.query().Answered, 5) })
	l.lives()
	require.Len(t, l.syncs, 5)
	seen := map[string]bool{}
	for _, s := range l.syncs {
		require.Len(t, s.in.Loop.Requests, 1)
		require.LessOrEqual(t, len(s.in.Loop.Requests[0]), 128)
		require.False(t, s.in.Force)
		seen[s.in.Loop.Requests[0]] = true
	}
	require.Len(t, seen, 5, "each has an id of its own")
}

// D26: a flood that no sync takes, while the Release is suspended, keeps its force and grows no payload beyond its bound.
func TestLoop_D26_a_flood_of_ids_is_bounded(t *testing.T) {
	l := &loop{in: ReleaseInput{Namespace: "team-a", Name: "shop"}, mem: Memory{Waiting: &release.Request{}}}
	for i := range maxWaiting {
		l.mem.Waiting.IDs = append(l.mem.Waiting.IDs, fmt.Sprintf("r%d", i))
	}
	l.ask(nil, "signal", SyncRequest{ID: "one more", Force: true, RequestedBy: "ann"})
	require.Len(t, l.mem.Waiting.IDs, maxWaiting)
	require.True(t, l.mem.Waiting.Force)
	require.Equal(t, "ann", l.mem.Waiting.RequestedBy)
	require.ErrorContains(t, l.mayRequest(SyncRequest{ID: "an update"}), "ask again")

	l.mem.Waiting, _ = l.mem.Waiting.Split(maxServed)
	l.ask(nil, "signal", SyncRequest{ID: "later"})
	require.Contains(t, l.mem.Waiting.IDs, "later")
	require.NoError(t, l.mayRequest(SyncRequest{ID: "an update"}))
}

// D26: requests that come at once are served by one sync, or by a few where they are a flood: no payload grows with it.
func TestReleaseWorkflow_D26_a_burst_is_few_syncs(t *testing.T) {
	l := idle(t)
	l.until = time.Hour
	l.at(time.Minute, func() {
		for i := range 500 {
			l.SignalWorkflow(SignalSync, SyncRequest{ID: fmt.Sprintf("r%d", i%250)})
		}
	})
	l.lives()
	require.LessOrEqual(t, len(l.syncs), 3)
	served := map[string]int{}
	for _, s := range l.syncs {
		require.LessOrEqual(t, len(s.in.Loop.Requests), maxServed)
		for _, id := range s.in.Loop.Requests {
			served[id]++
		}
	}
	require.Len(t, served, 250)
	for id, times := range served {
		require.Equal(t, 1, times, id)
	}
}

// D26: the annotation's request is served once, and one that status has answered is not served again.
func TestReleaseWorkflow_D26_the_annotation_asks_once(t *testing.T) {
	l := idle(t)
	l.until = time.Hour
	l.status = []v1alpha1.HandledRequest{{ID: "old", Result: "Succeeded"}}
	l.sees = func(in activities.ObserveInput, seen *activities.Observation) {
		seen.AnnotationID = "t1"
		if in.AnnotationID != "t1" {
			seen.Request = &release.Request{IDs: []string{"t1"}, Force: true, RequestedBy: "annotation"}
			seen.Action = release.ActSync
		}
	}
	l.asks(time.Minute, SyncRequest{ID: "old"})
	l.asks(2*time.Minute, SyncRequest{ID: "t1"})
	l.lives()
	require.Equal(t, "0s", l.started())
	require.Equal(t, "t1!", l.requested())
}

// The update returns when its own sync has ended, with its result. One that finds a sync running waits for the next.
func TestReleaseWorkflow_the_update_returns_the_result_of_its_sync(t *testing.T) {
	l := idle(t)
	l.until = 5 * time.Hour
	l.syncing = func(ctx workflow.Context, n int, in SyncInput) (SyncResult, error) {
		if n == 2 {
			return ends("Unappliable", SyncFailure{Digest: "sha256:def", Recorded: true})(ctx, n, in)
		}
		return takes(10*time.Minute)(ctx, n, in)
	}
	l.sees = func(in activities.ObserveInput, seen *activities.Observation) {
		if seen.Action == release.ActSync && len(in.Requests) == 0 {
			seen.Action = release.ActNothing
		}
	}
	first := l.update(time.Minute, SyncRequest{ID: "a"})
	second := l.update(5*time.Minute, SyncRequest{ID: "b", Force: true, RequestedBy: "bob"})
	third := l.update(6*time.Minute, SyncRequest{ID: "b"})
	again := l.update(time.Hour, SyncRequest{ID: "a"})
	nameless := l.update(2*time.Hour, SyncRequest{})
	l.lives()
	require.Equal(t, "a | b! | "+nameless.answer.ID, l.requested())
	require.Equal(t, 11*time.Minute, first.at.Round(time.Second))
	require.NotEmpty(t, first.answer.RunID)
	require.Equal(t, SyncAnswer{ID: "a", Result: "Succeeded", Reason: "Succeeded", Digest: "sha256:abc", RunID: first.answer.RunID}, *first.answer)
	require.Equal(t, SyncAnswer{ID: "b", Result: "Failed", Reason: "Unappliable", Message: "it went wrong", Digest: "sha256:def", RunID: second.answer.RunID}, *second.answer)
	require.Equal(t, second.answer, third.answer)
	require.Equal(t, 11*time.Minute+oneSync, second.at.Round(time.Second))
	require.Equal(t, first.answer, again.answer, "it was answered already")
	require.Equal(t, time.Hour, again.at.Round(time.Second))
	require.Regexp(t, `^update-`, nameless.answer.ID)
}

// D22: the update returns at the first end, also when that is tried again.
func TestReleaseWorkflow_the_update_does_not_wait_for_retries(t *testing.T) {
	l := idle(t)
	l.until = 10 * time.Minute
	l.syncing = thereafter(ends("DeployFailed", SyncFailure{Recorded: true}), takes(time.Second))
	u := l.update(time.Minute, SyncRequest{ID: "a", Force: true, RequestedBy: "ann"})
	l.lives()
	require.Equal(t, "Failed", u.answer.Result)
	require.Equal(t, "DeployFailed", u.answer.Reason)
	require.Equal(t, time.Minute+oneSync, u.at.Round(time.Second))
	require.Len(t, l.syncs, 2)
	require.True(t, l.syncs[1].in.Force, "D26: force belongs to the retries too")
	require.True(t, l.syncs[1].in.Loop.Retry)
	require.Empty(t, l.syncs[1].in.Loop.Requests, "it was answered")
	require.Empty(t, l.status, "the sync has written the answer")
}

// D26: force and the name of who asked end with a new render, with another request, and with a success.
func TestReleaseWorkflow_D26_force_ends_with_a_new_render(t *testing.T) {
	failing := ends("DeployFailed", SyncFailure{Digest: "sha256:abc"})
	t.Run("a new render", func(t *testing.T) {
		l := idle(t)
		l.until = 2 * time.Minute
		l.syncing = thereafter(failing, takes(time.Second))
		l.asks(time.Minute, SyncRequest{ID: "a", Force: true, RequestedBy: "ann"})
		l.at(time.Minute+5*time.Second, func() { l.digest = "sha256:def" })
		l.lives()
		require.Equal(t, "a! | ", l.requested())
		require.Equal(t, SyncInput{Namespace: "team-a", Name: "shop", Loop: &activities.LoopRef{}}, l.syncs[1].in)
	})
	t.Run("another request", func(t *testing.T) {
		l := idle(t)
		l.until = 2 * time.Minute
		l.syncing = thereafter(failing, takes(time.Second))
		l.asks(time.Minute, SyncRequest{ID: "a", Force: true})
		l.asks(time.Minute+5*time.Second, SyncRequest{ID: "b"})
		l.lives()
		require.Equal(t, "a! | b", l.requested())
		require.Zero(t, l.syncs[1].in.Loop.Failures)
	})
	t.Run("a success", func(t *testing.T) {
		l := idle(t)
		l.until = 10 * time.Minute
		l.syncing = thereafter(failing, takes(time.Second))
		l.asks(time.Minute, SyncRequest{ID: "a", Force: true})
		l.at(5*time.Minute, func() { l.changed = true; l.SignalWorkflow(SignalReconcile, nil) })
		l.lives()
		require.Equal(t, "a! | ! | ", l.requested())
	})
	t.Run("a success that came before the word that something newer is there", func(t *testing.T) {
		l := idle(t)
		l.until = 10 * time.Minute
		l.syncing = func(ctx workflow.Context, n int, in SyncInput) (SyncResult, error) {
			if n == 1 {
				return failing(ctx, n, in)
			}
			return takes(time.Minute)(ctx, n, in)
		}
		l.sees = func(in activities.ObserveInput, seen *activities.Observation) {
			if in.Running != nil && len(l.syncs) == 2 {
				seen.Supersede = "generation 2 of the Release"
			}
			if in.Running == nil && len(l.syncs) == 2 && in.Due {
				seen.Action = release.ActSync
			}
		}
		l.asks(time.Minute, SyncRequest{ID: "a", Force: true})
		l.at(time.Minute+20*time.Second, func() { l.SignalWorkflow(SignalReconcile, nil) })
		l.lives()
		require.Equal(t, "a! | ! | ", l.requested())
	})
}

// A suspended Release starts nothing and refuses updates with a word on what to do; signals wait until it is resumed,
// and then the same id is served.
func TestReleaseWorkflow_suspended(t *testing.T) {
	l := idle(t)
	l.until = 5 * time.Hour
	suspended := false
	l.sees = func(_ activities.ObserveInput, seen *activities.Observation) {
		if suspended && seen.Action != release.ActGone {
			seen.Action = release.ActSuspended
		}
	}
	l.at(time.Minute, func() { suspended = true })
	caught := l.update(time.Minute, SyncRequest{ID: "caught"})
	late := l.update(10*time.Minute, SyncRequest{ID: "late"})
	l.asks(20*time.Minute, SyncRequest{ID: "signal"})
	l.at(30*time.Minute, func() {
		require.True(t, l.query().Suspended)
		require.Equal(t, "suspended", l.query().Doing)
		require.Equal(t, []string{"signal"}, l.query().Waiting)
	})
	l.at(40*time.Minute, func() { suspended = false; l.SignalWorkflow(SignalChanged, Changed{UID: "u", Generation: 2}) })
	again := l.update(50*time.Minute, SyncRequest{ID: "caught"})
	l.lives()
	for _, err := range []error{caught.failed, late.rejected} {
		var refused *temporal.ApplicationError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, activities.Refused, refused.Type())
		require.Equal(t, "Release team-a/shop is suspended: lift spec.suspend first (convoy resume team-a/shop)", refused.Message())
	}
	require.Equal(t, "40m0s 50m0s", l.started())
	require.Equal(t, "signal | caught", l.requested())
	require.NoError(t, again.failed)
	require.Equal(t, "Succeeded", again.answer.Result, "it was refused while the Release was suspended")
	require.Zero(t, l.looked(5*time.Minute, 40*time.Minute), "its interval does not matter")
}

// A suspended Release is looked at once an hour, and starts nothing, whatever waits.
func TestReleaseWorkflow_suspended_for_long(t *testing.T) {
	l := idle(t)
	l.until = 10*time.Hour + time.Minute
	l.sees = func(_ activities.ObserveInput, seen *activities.Observation) {
		if seen.Action != release.ActGone {
			seen.Action = release.ActSuspended
		}
	}
	l.asks(time.Minute, SyncRequest{ID: "a"})
	l.lives()
	require.Empty(t, l.syncs)
	require.Len(t, l.looks, 12)
}

// What cannot be an id is refused before it is in the history.
func TestReleaseWorkflow_the_update_refuses_a_long_id(t *testing.T) {
	l := idle(t)
	l.until = 10 * time.Minute
	u := l.update(time.Minute, SyncRequest{ID: strings.Repeat("x", 129)})
	ok := l.update(2*time.Minute, SyncRequest{ID: strings.Repeat("x", 128)})
	l.lives()
	require.ErrorContains(t, u.rejected, "the id has 129 bytes, and at most 128 are allowed")
	require.Equal(t, "Succeeded", ok.answer.Result)
}

// Updates that wait when the Release goes, or when the loop is cancelled, end with the reason.
func TestReleaseWorkflow_an_update_ends_with_the_loop(t *testing.T) {
	t.Run("the Release goes", func(t *testing.T) {
		l := idle(t)
		l.until = time.Minute
		u := l.update(2*time.Minute, SyncRequest{ID: "a"})
		l.lives()
		require.ErrorContains(t, u.failed, "Release team-a/shop is gone")
	})
	t.Run("the loop is cancelled", func(t *testing.T) {
		l := idle(t)
		l.syncing = takes(time.Hour)
		u := l.update(time.Minute, SyncRequest{ID: "a"})
		l.at(2*time.Minute, l.CancelWorkflow)
		l.runs(nil)
		require.True(t, temporal.IsCanceledError(l.GetWorkflowError()))
		require.ErrorContains(t, u.failed, "the loop of Release team-a/shop was cancelled")
		require.Equal(t, 2*time.Minute, l.passed().Round(time.Second), "at once")
	})
	t.Run("it is cancelled at rest", func(t *testing.T) {
		l := idle(t)
		l.at(2*time.Minute, l.CancelWorkflow)
		l.runs(nil)
		require.True(t, temporal.IsCanceledError(l.GetWorkflowError()))
	})
}

// A loop of no Release is refused with a word on why.
func TestReleaseWorkflow_refuses_what_is_no_name(t *testing.T) {
	l := newLife(t)
	l.ExecuteWorkflow("ReleaseWorkflow", ReleaseInput{Namespace: "team-a", Name: "no:name"})
	var refused *temporal.ApplicationError
	require.ErrorAs(t, l.GetWorkflowError(), &refused)
	require.Equal(t, activities.Refused, refused.Type())
	require.Empty(t, l.looks)
}

// D26: the loop remembers the answers, newest first, and so does one that begins anew with those of status.
func TestReleaseWorkflow_D26_tells_the_last_answers(t *testing.T) {
	l := idle(t)
	l.until = time.Hour
	l.status = []v1alpha1.HandledRequest{{ID: "old2"}, {ID: "old1"}}
	l.asks(time.Minute, SyncRequest{ID: "a"})
	l.asks(2*time.Minute, SyncRequest{ID: "b"})
	l.at(30*time.Minute, func() {
		var ids []string
		for _, a := range l.query().Answered {
			ids = append(ids, a.ID)
		}
		require.Equal(t, []string{"b", "a", "old2", "old1"}, ids)
		require.Equal(t, "next reconcile", l.query().Doing)
		require.True(t, l.query().NextAt.After(l.Now()))
	})
	l.lives()
}

// D26: what no status has is written with the next look, once; a look that fails to be a look at all ends nothing.
func TestReleaseWorkflow_D26_writes_the_answer_that_a_sync_could_not(t *testing.T) {
	l := idle(t)
	l.until = time.Hour
	l.syncing = thereafter(ends("DeployFailed", SyncFailure{}), takes(time.Second))
	l.asks(time.Minute, SyncRequest{ID: "a"})
	l.lives()
	require.Len(t, l.status, 1)
	require.Equal(t, "a", l.status[0].ID)
	require.Equal(t, "Failed", l.status[0].Result)
	require.Equal(t, "it went wrong", l.status[0].Message)
	require.Equal(t, 1, l.looked(time.Minute+oneSync, time.Minute+oneSync+time.Second), "at once")
}

// D23: a request that meets a sync which takes its time makes the loop look at the source beside it, so that what was
// mended meanwhile takes the waiting sync's place; where nothing is new the sync waits on, and the request with it. A sync
// that has just begun is left alone for a moment: as a rule it ends by itself.
func TestReleaseWorkflow_D23_a_request_looks_beside_the_sync_that_runs(t *testing.T) {
	for name, c := range map[string]struct {
		asked  time.Duration
		mended bool
		look   time.Duration
	}{
		"mended":           {10 * time.Minute, true, 10 * time.Minute},
		"nothing new":      {10 * time.Minute, false, 10 * time.Minute},
		"just begun":       {time.Minute + time.Second, false, time.Minute + 5*time.Second},
		"begun and mended": {time.Minute + time.Second, true, time.Minute + 5*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			l := idle(t)
			l.cadence.Interval, l.until = 5*time.Hour, 30*time.Minute
			heard := 0
			l.syncing = thereafter(waiting(&heard, true), takes(time.Second))
			l.sees = func(in activities.ObserveInput, seen *activities.Observation) {
				if in.Running != nil && c.mended {
					seen.Supersede = "render new"
				}
			}
			l.asks(time.Minute, SyncRequest{ID: "a"})
			l.asks(c.asked, SyncRequest{ID: "b"})
			l.lives()
			looks := l.looked(c.look-500*time.Millisecond, c.look+500*time.Millisecond)
			if c.mended {
				require.Equal(t, 2, looks, "beside the sync, and for the next one")
				require.Equal(t, 1, heard)
				require.Equal(t, "a | b", l.requested())
				return
			}
			require.Equal(t, 1, looks)
			require.Zero(t, heard)
			require.Equal(t, "a", l.requested(), "it waits for the sync")
		})
	}
}
