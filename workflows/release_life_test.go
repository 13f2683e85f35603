package workflows

import (
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// waiting is a sync that waits at a wave for an hour and hears orders; obeys says whether it ends for them.
func waiting(heard *int, obeys bool) func(workflow.Context, int, SyncInput) (SyncResult, error) {
	return func(ctx workflow.Context, _ int, _ SyncInput) (SyncResult, error) {
		var order Supersede
		orders := workflow.GetSignalChannel(ctx, SignalSupersede)
		end := workflow.Now(ctx).Add(time.Hour)
		for workflow.Now(ctx).Before(end) {
			got, _ := orders.ReceiveWithTimeout(ctx, end.Sub(workflow.Now(ctx)), &order)
			if got {
				*heard++
			}
			if ctx.Err() != nil {
				return SyncResult{}, temporal.NewCanceledError("the sync was cancelled while it was at: apply", SyncFailure{Digest: "sha256:abc", Recorded: true})
			}
			if got && obeys {
				return SyncResult{}, temporal.NewCanceledError("superseded by "+order.By, SyncFailure{Digest: "sha256:abc", Recorded: true})
			}
		}
		return SyncResult{Digest: "sha256:abc"}, nil
	}
}

// D23: a sync that is out of date is told so, and when it gives way the next one starts at once.
func TestReleaseWorkflow_D23_supersedes_a_sync_that_is_out_of_date(t *testing.T) {
	l := idle(t)
	l.until = 30 * time.Minute
	heard := 0
	l.syncing = thereafter(waiting(&heard, true), takes(time.Second))
	l.sees = func(in activities.ObserveInput, seen *activities.Observation) {
		switch {
		case in.Running != nil && l.spec == "s2" && in.Running.Spec == "s1":
			seen.Supersede = "generation 2 of the Release"
		case in.Running == nil && in.SyncedSpec == "s1" && l.spec == "s2":
			seen.Action = release.ActSync
		}
	}
	u := l.update(time.Minute, SyncRequest{ID: "a", Force: true})
	l.at(10*time.Minute, func() { l.spec = "s2"; l.SignalWorkflow(SignalChanged, Changed{UID: "u", Generation: 2}) })
	l.lives()
	require.Equal(t, 1, heard)
	require.Equal(t, "1m0s 10m0s", l.started())
	require.Equal(t, "Superseded", u.answer.Result)
	require.Equal(t, "superseded by generation 2 of the Release", u.answer.Message)
	require.Equal(t, &activities.LoopRef{}, l.syncs[1].in.Loop)
	require.False(t, l.syncs[1].in.Force)
	require.Empty(t, l.status, "the sync has written its answer")
}

// D23: a sync that goes on to its end is told once, and the next one starts after it, at once.
func TestReleaseWorkflow_D23_tells_a_sync_once(t *testing.T) {
	l := idle(t)
	l.until = 3 * time.Hour
	heard := 0
	l.syncing = thereafter(waiting(&heard, false), takes(time.Second))
	l.sees = func(in activities.ObserveInput, seen *activities.Observation) {
		if in.Running != nil && len(l.syncs) == 1 {
			seen.Supersede = "render def"
		}
		if in.Running == nil && len(l.syncs) == 1 && in.Due {
			seen.Action = release.ActSync
		}
	}
	l.asks(time.Minute, SyncRequest{ID: "a"})
	l.lives()
	require.Equal(t, 1, heard)
	require.Equal(t, "1m0s 1h1m0s", l.started())
	require.Greater(t, l.looked(time.Minute, time.Hour), 10, "it is looked after at the interval")
}

// D16: a sync that a person started is waited for, and not told anything; its end is looked up, or heard of at once.
func TestReleaseWorkflow_D16_waits_for_a_sync_that_a_person_started(t *testing.T) {
	l := idle(t)
	l.until = time.Hour
	running := true
	l.sees = func(in activities.ObserveInput, seen *activities.Observation) {
		switch {
		case seen.Action == release.ActGone:
		case running:
			seen.Action, seen.OtherRun, seen.Supersede = release.ActBusy, "theirs", "render def"
		case in.Running != nil:
			seen.RunEnded, seen.Last = true, &activities.Ended{RunID: "theirs", Result: "Failed", Reason: "DeployFailed"}
			l.last = seen.Last
		}
	}
	l.asks(time.Minute, SyncRequest{ID: "a"})
	l.at(10*time.Minute, func() { running = false; l.SignalWorkflow(SignalSyncEnded, SyncEnded{RunID: "theirs"}) })
	l.lives()
	require.Equal(t, &activities.RunningSync{RunID: "theirs"}, l.looks[1].in.Running)
	require.InDelta(t, 30, l.looked(0, 10*time.Minute), 2, "every 20 s")
	require.Equal(t, "10m0s", l.started(), "the request is served after it, at once")
	require.Equal(t, "a", l.requested())
}

// D22: what a person's sync failed with is retried like the loop's own.
func TestReleaseWorkflow_D22_retries_what_a_person_started(t *testing.T) {
	l := newLife(t)
	l.until = 5 * time.Minute
	l.sees = func(in activities.ObserveInput, seen *activities.Observation) {
		switch {
		case len(l.looks) == 1:
			seen.Action, seen.OtherRun = release.ActBusy, "theirs"
		case in.Running != nil && in.Running.RunID == "theirs":
			seen.RunEnded, l.last = true, &activities.Ended{RunID: "theirs", Result: "Failed", Reason: "DeployFailed"}
			seen.Last = l.last
		}
	}
	l.lives()
	require.Len(t, l.syncs, 1)
	require.InDelta(t, (lookAgain + tick(10*time.Second)).Seconds(), l.syncs[0].at.Seconds(), 1)
	require.Equal(t, 1, l.syncs[0].in.Loop.Failures)
}

// D1 D22: so is what a run before has started, also where only status knows that the source was out of reach.
func TestReleaseWorkflow_D1_retries_what_a_run_before_has_started(t *testing.T) {
	for _, unreachable := range []bool{true, false} {
		l := newLife(t)
		l.until = 10 * time.Minute
		l.sees = func(in activities.ObserveInput, seen *activities.Observation) {
			if in.Running != nil && in.Running.RunID == "before" {
				l.last = &activities.Ended{RunID: "before", Result: "Failed", Reason: "RenderFailed", Unreachable: unreachable}
				seen.RunEnded, seen.Last = true, l.last
			}
		}
		l.runs(&Memory{UID: "u", SyncedSpec: "s1", Cadence: l.cadence, Running: &Running{RunID: "before", Spec: "s1", Request: &release.Request{IDs: []string{"a"}, Force: true}}})
		require.NoError(t, l.GetWorkflowError())
		wait := tick(5 * time.Minute)
		if unreachable {
			wait = tick(10 * time.Second)
		}
		require.InDelta(t, wait.Seconds(), l.syncs[0].at.Seconds(), 1)
		require.Equal(t, unreachable, l.syncs[0].in.Force)
		require.Empty(t, l.status, "its end is in status already")
	}
}

// deleting makes the Release one that is being deleted, with its objects, until its deletion has succeeded.
func (l *life) deleting(after time.Duration) {
	l.sees = func(in activities.ObserveInput, seen *activities.Observation) {
		done := in.Running == nil && len(l.syncs) > 0 && l.syncs[len(l.syncs)-1].deletion && l.last.Result == "Succeeded"
		switch {
		case l.passed() < after:
		case done:
			seen.Action = release.ActGone
		case seen.Action != release.ActGone:
			seen.Action = release.ActDelete
		}
	}
	l.at(after, func() { l.SignalWorkflow(SignalChanged, Changed{UID: "u", Generation: 2, Deleted: true}) })
}

// D23 S27: a deletion stops the sync that runs, waits for its end, prunes, tries again with backoff, and ends the loop.
func TestReleaseWorkflow_D23_deletion(t *testing.T) {
	l := idle(t)
	heard := 0
	l.deleting(10 * time.Minute)
	l.syncing = func(ctx workflow.Context, n int, in SyncInput) (SyncResult, error) {
		switch n {
		case 1:
			return waiting(&heard, false)(ctx, n, in)
		case 2, 3:
			return ends("PruneFailed", SyncFailure{Recorded: true})(ctx, n, in)
		}
		return takes(time.Second)(ctx, n, in)
	}
	u := l.update(time.Minute, SyncRequest{ID: "a", Force: true, RequestedBy: "ann"})
	l.lives()
	require.Equal(t, "Superseded", u.answer.Result)
	require.Equal(t, "1m0s 10m0s", strings.Join(strings.Fields(l.started())[:2], " "))
	require.Len(t, l.syncs, 4)
	for i, s := range l.syncs[1:] {
		require.True(t, s.deletion)
		require.Equal(t, SyncInput{Namespace: "team-a", Name: "shop", Loop: &activities.LoopRef{Failures: i}}, s.in)
		if i > 0 {
			require.InDelta(t, (oneSync + tick(10*time.Second*time.Duration(i))).Seconds(), (s.at - l.syncs[i].at).Seconds(), 0.1)
		}
	}
	require.Equal(t, l.syncs[3].at+oneSync, l.passed(), "the loop ends with its Release")
}

// D22 D26: requests do not hurry a deletion that fails; nobody can serve them any more, and an update is told so.
func TestReleaseWorkflow_D22_requests_do_not_hurry_a_deletion(t *testing.T) {
	l := idle(t)
	l.deleting(10 * time.Minute)
	l.syncing = func(ctx workflow.Context, n int, in SyncInput) (SyncResult, error) {
		if n < 4 {
			return ends("PruneFailed", SyncFailure{Recorded: true})(ctx, n, in)
		}
		return takes(time.Second)(ctx, n, in)
	}
	l.asks(10*time.Minute, SyncRequest{ID: "a"})
	caught := l.update(10*time.Minute, SyncRequest{ID: "b"})
	l.asks(10*time.Minute+5*time.Second, SyncRequest{ID: "c"})
	late := l.update(10*time.Minute+5*time.Second, SyncRequest{ID: "d"})
	l.lives()
	require.Len(t, l.syncs, 4)
	for i := 1; i < 4; i++ {
		require.InDelta(t, (oneSync + tick(5*time.Second<<i)).Seconds(), (l.syncs[i].at - l.syncs[i-1].at).Seconds(), 0.1)
	}
	require.ErrorContains(t, caught.failed, "Release team-a/shop is being deleted")
	require.ErrorContains(t, late.rejected, "Release team-a/shop is being deleted")
}

// D23: a sync that a person started is stopped as well.
func TestReleaseWorkflow_D23_deletion_beside_a_sync_that_a_person_started(t *testing.T) {
	l := idle(t)
	l.deleting(10 * time.Minute)
	cancelled := 0
	l.OnRequestCancelExternalWorkflow(mock.Anything, "sync:team-a:shop", "theirs").Return(func(string, string, string) error {
		cancelled++
		return nil
	})
	deleting := l.sees
	l.sees = func(in activities.ObserveInput, seen *activities.Observation) {
		deleting(in, seen)
		if seen.Action == release.ActDelete && cancelled == 0 {
			seen.OtherRun = "theirs"
		}
		seen.RunEnded = in.Running != nil && l.passed() > 11*time.Minute
	}
	l.lives()
	require.Equal(t, 1, cancelled)
	require.Len(t, l.syncs, 1)
	require.True(t, l.syncs[0].deletion)
	require.InDelta(t, 11*60, l.syncs[0].at.Seconds(), 21)
}

// D23: a Release that goes at once, as with the policy Orphan, takes its sync with it.
func TestReleaseWorkflow_D23_stops_the_sync_of_a_Release_that_is_gone(t *testing.T) {
	l := idle(t)
	l.until = 10 * time.Minute
	heard := 0
	l.syncing = waiting(&heard, false)
	l.asks(time.Minute, SyncRequest{ID: "a"})
	l.lives()
	require.Len(t, l.syncs, 1)
	require.InDelta(t, 11*60, l.passed().Seconds(), 61)
	require.Equal(t, "Failed", l.last.Result)
}

// handedOver runs a loop until it continues as new, and returns its memory.
func (l *life) handedOver() Memory {
	l.t.Helper()
	l.runs(nil)
	var next *workflow.ContinueAsNewError
	require.ErrorAs(l.t, l.GetWorkflowError(), &next)
	require.Equal(l.t, "ReleaseWorkflow", next.WorkflowType.Name)
	var in ReleaseInput
	require.NoError(l.t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &in))
	require.Equal(l.t, "team-a", in.Namespace)
	require.Equal(l.t, "shop", in.Name)
	return *in.Memory
}

// grows makes the history of the loop as long.
func (l *life) grows(when time.Duration, length int) {
	l.at(when, func() { l.SetCurrentHistoryLength(length) })
}

// The next run gets everything that this one knows: what runs, what waits, also what has come in the last moment, what
// was answered, and when the next pass is due.
func TestReleaseWorkflow_hands_everything_over(t *testing.T) {
	l := idle(t)
	heard := 0
	l.syncing = thereafter(takes(time.Second), waiting(&heard, false))
	l.asks(time.Minute, SyncRequest{ID: "a"})
	l.asks(2*time.Minute, SyncRequest{ID: "b", Force: true, RequestedBy: "bob"})
	l.asks(3*time.Minute, SyncRequest{ID: "c"})
	l.grows(10*time.Minute, 2000)
	l.at(10*time.Minute, func() {
		l.SignalWorkflow(SignalSync, SyncRequest{ID: "d", Force: true})
		l.SignalWorkflow(SignalSync, SyncRequest{ID: "a"})
	})
	m := l.handedOver()
	require.Zero(t, l.looked(10*time.Minute, 2*time.Hour), "it does so at once")
	require.Equal(t, &release.Request{IDs: []string{"c", "d"}, Force: true}, m.Waiting)
	require.Equal(t, []string{"b"}, m.Running.Request.IDs)
	require.Equal(t, "s1", m.Running.Spec)
	require.NotEmpty(t, m.Running.RunID)
	require.Equal(t, "a", m.Recent[0].ID)
	require.Equal(t, "u", m.UID)
	require.Equal(t, "s1", m.SyncedSpec)
	require.Equal(t, 2000, m.MaxEvents)
	require.Equal(t, l.cadence, m.Cadence)
	require.WithinDuration(t, l.began.Add(10*time.Minute), m.NextDue, time.Second, "the request that has just come wants a look beside the sync")

	next := newLife(t)
	next.until, next.last = 4*time.Hour, &activities.Ended{Result: "Succeeded"}
	ended := false
	next.sees = func(in activities.ObserveInput, seen *activities.Observation) {
		if in.Running != nil && ended {
			seen.RunEnded, seen.Last = true, &activities.Ended{RunID: m.Running.RunID, Result: "Succeeded", Reason: "Succeeded", Digest: "sha256:abc"}
		}
	}
	m.NextDue = next.began.Add(time.Minute)
	next.at(30*time.Minute, func() { ended = true; next.SignalWorkflow(SignalSyncEnded, SyncEnded{RunID: m.Running.RunID}) })
	next.asks(40*time.Minute, SyncRequest{ID: "b"})
	next.runs(&m)
	require.NoError(t, next.GetWorkflowError())
	require.Equal(t, pauseAfterClash, next.looks[0].at, "its end may have fallen between the two runs")
	require.False(t, next.looks[0].in.First)
	require.Equal(t, &activities.RunningSync{RunID: m.Running.RunID, Spec: "s1", Digest: "sha256:abc"}, next.looks[0].in.Running)
	require.Equal(t, "30m0s", next.started(), "the end is heard of at once")
	require.Equal(t, "c,d!", next.requested())
}

// A look that is due when the run ends is made at once by the next one.
func TestReleaseWorkflow_hands_a_look_over(t *testing.T) {
	l := idle(t)
	l.grows(time.Minute, 2000)
	l.at(time.Minute, func() { l.SignalWorkflow(SignalReconcile, nil) })
	m := l.handedOver()
	require.True(t, m.Due)
	l = idle(t)
	l.at(time.Minute, func() { l.SetContinueAsNewSuggested(true) })
	m = l.handedOver()
	require.True(t, m.NextDue.After(l.began.Add(4*time.Minute)), "the server's word counts too")
}

// The bound of a run is the memory's, so that a replay does not depend on flags; the worker's is that of the next.
func TestReleaseWorkflow_bounds_its_history(t *testing.T) {
	l := newLife(t)
	l.last = &activities.Ended{Result: "Succeeded"}
	l.grows(time.Minute, 99)
	l.grows(11*time.Minute, 100)
	l.runs(&Memory{UID: "u", MaxEvents: 100})
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, l.GetWorkflowError(), &next)
	require.Greater(t, l.passed(), 11*time.Minute)
}

// An update that waits keeps the run open until twice the bound, and takes its answer.
func TestReleaseWorkflow_an_update_keeps_the_run_open(t *testing.T) {
	l := idle(t)
	l.syncing = takes(time.Hour)
	u := l.update(time.Minute, SyncRequest{ID: "a"})
	l.grows(10*time.Minute, 3999)
	m := l.handedOver()
	require.Equal(t, "Succeeded", u.answer.Result)
	require.Equal(t, time.Hour+time.Minute, u.at.Round(time.Second))
	require.Less(t, l.passed(), 67*time.Minute, "and then it is time")
	require.Nil(t, m.Running)
	require.Nil(t, m.Waiting)
}

// At twice the bound it ends with the word that its request is kept, and it is: served and waiting ones alike.
func TestReleaseWorkflow_an_update_is_evicted_at_twice_the_bound(t *testing.T) {
	l := idle(t)
	l.syncing = takes(time.Hour)
	served := l.update(time.Minute, SyncRequest{ID: "a"})
	waits := l.update(2*time.Minute, SyncRequest{ID: "b", Force: true})
	l.grows(10*time.Minute, 4000)
	m := l.handedOver()
	for _, u := range []*updated{served, waits} {
		require.Less(t, u.at, 16*time.Minute)
		require.ErrorContains(t, u.failed, "its request is kept, and status.lastHandledRequests will have its answer")
	}
	require.Equal(t, []string{"a"}, m.Running.Request.IDs)
	require.Equal(t, &release.Request{IDs: []string{"b"}, Force: true}, m.Waiting)
}

// A Release that was deleted and made anew under the same name is begun anew.
func TestReleaseWorkflow_a_Release_that_was_made_anew(t *testing.T) {
	l := newLife(t)
	l.until = time.Hour
	l.last = &activities.Ended{Result: "Succeeded"}
	l.sees = func(in activities.ObserveInput, seen *activities.Observation) {
		if seen.Action != release.ActGone && l.passed() > 10*time.Minute {
			seen.UID = "v"
		}
		seen.AnnotationID = "t1"
		if in.AnnotationID != "t1" {
			seen.Request = &release.Request{IDs: []string{"t1"}}
		}
	}
	m := Memory{UID: "u", SyncedSpec: "s1", Failures: 7, Whole: true, Retry: &release.Request{Force: true}, AnnotationID: "t1", NextDue: l.began.Add(11 * time.Minute)}
	l.runs(&m)
	require.NoError(t, l.GetWorkflowError())
	require.Equal(t, "u", l.looks[0].in.UID)
	require.Equal(t, "v", l.looks[1].in.UID)
	require.Empty(t, l.looks[1].in.SyncedSpec)
	require.False(t, l.looks[1].in.Retry)
	require.False(t, l.looks[1].in.Whole)
}

// D35: what the loop hands to Temporal stays within its bounds, whatever people call their clusters.
func TestReleaseWorkflow_texts_stay_within_their_bounds(t *testing.T) {
	long := strings.Repeat("c", 253)
	require.LessOrEqual(t, len(priority(long, false).FairnessKey), 64)
	require.Equal(t, temporal.Priority{PriorityKey: 4, FairnessKey: "cluster:eu"}, priority("eu", false))
	require.Equal(t, 2, priority("eu", true).PriorityKey, "what a person asked for comes first")
	require.Equal(t, "team-a/shop -> eu: drift", summary("team-a/shop", activities.Observation{Cluster: "eu", Cause: "drift"}))
	require.Equal(t, "team-a/shop -> control cluster: drift", summary("team-a/shop", activities.Observation{Cause: "drift"}))
	require.LessOrEqual(t, len(summary(long, activities.Observation{Cause: strings.Repeat("ü", 400)})), 400)
	l := loop{}
	for range 300 {
		l.remember([]v1alpha1.HandledRequest{{ID: strings.Repeat("x", len(l.mem.Recent)+1)}})
	}
	require.Len(t, l.mem.Recent, maxRecent)
}

// D23: a Release that is made anew under the same name while the old one's sync is being stopped keeps the loop: the watch
// has told of it already. It is looked at like a new one.
func TestReleaseWorkflow_a_release_made_anew_has_a_loop(t *testing.T) {
	for name, tell := range map[string]bool{"seen by the look": false, "told by the watch": true} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t)
			l.until = time.Hour
			heard := 0
			l.syncing = thereafter(waiting(&heard, false), takes(time.Second))
			anew := false
			l.sees = func(in activities.ObserveInput, seen *activities.Observation) {
				if !anew {
					return
				}
				if in.Running != nil {
					*seen = activities.Observation{Action: release.ActGone, Reborn: !tell}
					return
				}
				seen.UID = "v"
			}
			l.at(10*time.Minute, func() {
				anew = true
				l.SignalWorkflow(SignalChanged, Changed{UID: "v", Generation: 1, Deleted: !tell})
			})
			l.lives()
			require.Len(t, l.syncs, 2)
			last := l.looks[len(l.looks)-1]
			require.Equal(t, "v", last.in.UID)
		})
	}
}

// D26: what was asked of a Release that is gone, and what was answered for it, means nothing to one that was made anew.
func TestReleaseWorkflow_D26_answers_do_not_outlive_the_Release(t *testing.T) {
	l := idle(t)
	l.cadence.Interval, l.until = time.Minute, 10*time.Minute
	anew := false
	l.sees = func(_ activities.ObserveInput, seen *activities.Observation) {
		if anew {
			seen.UID = "v"
		}
	}
	l.asks(time.Second, SyncRequest{ID: "a"})
	l.at(4*time.Minute, func() { anew = true })
	l.asks(6*time.Minute, SyncRequest{ID: "a"})
	l.lives()
	require.Equal(t, "a a", strings.ReplaceAll(l.requested(), " | ", " "))
}

// A sync that says its end a moment before it closes is looked at again soon.
func TestReleaseWorkflow_looks_again_soon_at_a_sync_that_ends(t *testing.T) {
	l := newLife(t)
	l.until, l.last = time.Hour, &activities.Ended{Result: "Succeeded"}
	l.cadence.Interval = 5 * time.Hour
	closed := false
	l.sees = func(in activities.ObserveInput, seen *activities.Observation) {
		seen.RunEnded = in.Running != nil && closed
	}
	m := Memory{UID: "u", Running: &Running{RunID: "r", Spec: "s1"}, NextDue: l.began.Add(time.Hour), Cadence: l.cadence}
	l.at(10*time.Minute+5*time.Second, func() { l.SignalWorkflow(SignalSyncEnded, SyncEnded{RunID: "r"}) })
	l.at(10*time.Minute+6*time.Second, func() { closed = true })
	l.asks(10*time.Minute, SyncRequest{ID: "a"})
	l.runs(&m)
	require.NoError(t, l.GetWorkflowError())
	require.NotEmpty(t, l.syncs)
	require.Less(t, l.syncs[0].at, 10*time.Minute+9*time.Second)
}

// D16: what status says of another sync is no word of the one that the loop waits for.
func TestReleaseWorkflow_D16_a_sync_of_a_run_before_that_ended_without_a_word(t *testing.T) {
	l := newLife(t)
	l.until = 10 * time.Minute
	l.last = &activities.Ended{RunID: "another", Result: "Succeeded", Reason: "Succeeded"}
	l.sees = func(in activities.ObserveInput, seen *activities.Observation) {
		switch {
		case in.Running != nil && in.Running.RunID == "before":
			seen.RunEnded = true
		case in.Retry && in.Due:
			seen.Action = release.ActSync
		}
	}
	l.runs(&Memory{UID: "u", SyncedSpec: "s1", Cadence: l.cadence, Running: &Running{RunID: "before", Spec: "s1", Request: &release.Request{IDs: []string{"a"}, Force: true}}})
	require.NoError(t, l.GetWorkflowError())
	require.Equal(t, "0s", l.started(), "it is repaired at once")
	require.True(t, l.syncs[0].in.Force)
	require.Equal(t, lost, l.status[0].Reason)
}

// D26: a request that only status knows to be answered is not served again, and an update gets the answer.
func TestReleaseWorkflow_D26_what_only_status_knows(t *testing.T) {
	l := newLife(t)
	l.until = 10 * time.Minute
	l.last = &activities.Ended{Result: "Succeeded"}
	l.status = []v1alpha1.HandledRequest{{ID: "old", Result: "Failed", Reason: "DeployFailed"}, {ID: "older", Result: "Succeeded"}}
	l.asks(time.Minute, SyncRequest{ID: "older"})
	u := l.update(2*time.Minute, SyncRequest{ID: "old"})
	l.at(3*time.Minute, func() { require.Empty(t, l.query().Waiting) })
	l.runs(&Memory{UID: "u", SyncedSpec: "s1", Cadence: l.cadence, NextDue: l.began.Add(time.Hour)})
	require.NoError(t, l.GetWorkflowError())
	require.Empty(t, l.syncs)
	require.Equal(t, "DeployFailed", u.answer.Reason)
	require.Equal(t, 2*time.Minute, u.at.Round(time.Second))
}

// D23: a deletion that takes long is looked after, and left to its end.
func TestReleaseWorkflow_D23_does_not_stop_a_deletion(t *testing.T) {
	l := idle(t)
	l.deleting(10 * time.Minute)
	l.syncing = func(ctx workflow.Context, _ int, _ SyncInput) (SyncResult, error) {
		return SyncResult{}, workflow.Sleep(ctx, 30*time.Minute)
	}
	l.lives()
	require.Len(t, l.syncs, 1)
	require.Equal(t, "Succeeded", l.last.Result)
	require.Greater(t, l.looked(11*time.Minute, 40*time.Minute), 3)
}

// D23: the loop of a Release that is gone ends after its sync.
func TestReleaseWorkflow_D23_waits_for_the_sync_of_a_Release_that_is_gone(t *testing.T) {
	l := idle(t)
	l.until = 10 * time.Minute
	l.syncing = func(ctx workflow.Context, _ int, _ SyncInput) (SyncResult, error) {
		stopped := workflow.Sleep(ctx, time.Hour)
		detached, stop := workflow.NewDisconnectedContext(ctx)
		defer stop()
		require.NoError(t, workflow.Sleep(detached, 2*time.Minute))
		return SyncResult{}, stopped
	}
	l.asks(time.Minute, SyncRequest{ID: "a"})
	u := l.update(2*time.Minute, SyncRequest{ID: "b"})
	l.lives()
	gone := l.looks[len(l.looks)-1].at
	require.InDelta(t, (gone + 2*time.Minute).Seconds(), u.at.Seconds(), 1)
}

// S4 D26: in manual mode a new render ends the retries of a request for good, also when it is taken back.
func TestReleaseWorkflow_S4_a_new_render_ends_a_retry_in_manual_mode(t *testing.T) {
	l := idle(t)
	l.until = 30 * time.Minute
	l.syncing = ends("DeployFailed", SyncFailure{Digest: "sha256:abc", Recorded: true})
	l.sees = func(in activities.ObserveInput, seen *activities.Observation) {
		if seen.Action == release.ActSync && len(in.Requests) == 0 {
			seen.Action = release.ActOutOfSync
		}
		seen.Manual = true
	}
	l.asks(time.Minute, SyncRequest{ID: "a", Force: true})
	l.lives()
	require.Len(t, l.syncs, 1)
	require.True(t, l.looks[2].in.Retry)
	require.False(t, l.looks[3].in.Retry)
}
