package workflows

import (
	"errors"
	"fmt"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"go.temporal.io/sdk/workflow"
)

// ReleaseInput starts a ReleaseWorkflow (SPEC 4). People type namespace and name:
//
//	temporal workflow start --type ReleaseWorkflow --task-queue convoy --workflow-id release:team-a:shop \
//	  --input '{"namespace":"team-a","name":"shop"}'
type ReleaseInput struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Memory is what one run of the loop hands to the next.
	Memory *Memory `json:"memory,omitempty"`
}

// ReleaseWorkflow is the loop of one Release, and lives as long as it: it keeps the cadence of the reconcile, takes
// requests, starts SyncWorkflows one at a time, retries, supersedes a waiting one (D23), and continues as new when its
// history has grown. It owns time and requests only. What is to be done is decided by Observe, and what became of a
// sync is data to the loop: it never fails.
func (w *Workflows) ReleaseWorkflow(ctx workflow.Context, in ReleaseInput) error {
	l, err := w.beginLoop(ctx, in)
	if err != nil {
		return err
	}
	for {
		l.drain(ctx)
		switch {
		case l.full(ctx):
			return l.continueAsNew(ctx)
		case !l.awake(ctx):
			if err := l.rest(ctx); err != nil {
				return l.leave(ctx, err)
			}
			continue
		}
		seen, err := l.observe(ctx)
		switch {
		case errors.Is(err, errNoLook):
			continue
		case err != nil:
			return l.leave(ctx, err)
		}
		switch seen.Action {
		case release.ActGone:
			if over, err := l.gone(ctx, seen); over || err != nil {
				return err
			}
		case release.ActDelete:
			err = l.remove(ctx, seen)
		case release.ActSync:
			err = l.start(ctx, seen, aSync)
		case release.ActBusy:
			err = l.lookAfter(ctx, seen)
		default: // nothing, out of sync, suspended
			l.settle(ctx, seen)
		}
		if err != nil {
			return l.leave(ctx, err)
		}
	}
}

// observe looks at the Release, and takes what it says into memory.
func (l *loop) observe(ctx workflow.Context) (activities.Observation, error) {
	in := l.question(ctx)
	l.woken = false
	l.doing = "looking at the Release"
	seen, err := call(ctx, l.observeOption(in), act.Observe, in)
	if err != nil {
		return seen, l.noLook(ctx, err)
	}
	l.take(in, seen)
	return seen, nil
}

// errNoLook says that a look failed for good, and is to be made again.
var errNoLook = errors.New("the look failed")

// noLook pauses after a look that failed for good. None should: only a worker of another version or a hand in Temporal
// makes it so, and the loop outlives both.
func (l *loop) noLook(ctx workflow.Context, err error) error {
	l.woken, l.doing = true, "a look failed and is made again: "+messageOf(err)
	err = workflow.NewTimerWithOptions(ctx, lookAgain, workflow.TimerOptions{Summary: "a look failed: looking again"}).Get(ctx, nil)
	if err == nil {
		return errNoLook
	}
	return err
}

// start starts a sync, or the deletion, as a child under the one id that excludes all others (D16). The loop does not
// wait here: the end of the child wakes it.
func (l *loop) start(ctx workflow.Context, seen activities.Observation, kind child) error {
	request := l.claim(seen, kind)
	future := l.execute(ctx, seen, kind, request)
	var run workflow.Execution
	if err := future.GetChildWorkflowExecution().Get(ctx, &run); err != nil {
		return l.notStarted(ctx, request, err)
	}
	l.child = future
	l.mem.Running = &Running{
		RunID: run.RunID, Generation: seen.Generation, Spec: seen.Spec, Digest: seen.Digest, Request: request, Deletion: kind == deletion, StartedAt: workflow.Now(ctx),
	}
	l.mem.NextDue = seen.Cadence.Next(seen.UID, workflow.Now(ctx), 0)
	return nil
}

// remove starts the deletion of a Release's objects, once the sync that may run has stopped between two objects (D23).
func (l *loop) remove(ctx workflow.Context, seen activities.Observation) error {
	l.refuseUpdates(l.isDeleted())
	if l.mem.Running == nil && seen.OtherRun != "" {
		l.mem.Running = &Running{RunID: seen.OtherRun, StartedAt: workflow.Now(ctx)}
	}
	switch {
	case l.mem.Running == nil:
		return l.start(ctx, seen, deletion)
	case !l.mem.Running.Deletion && !seen.RunEnded:
		if err := l.cancelRunning(ctx); err != nil {
			return err
		}
	}
	return l.lookAfter(ctx, seen)
}

// lookAfter deals with a sync that runs: the loop's own, one of a run before, or one that a person started.
func (l *loop) lookAfter(ctx workflow.Context, seen activities.Observation) error {
	now := workflow.Now(ctx)
	l.mem.NextDue = seen.Cadence.Next(seen.UID, now, 0)
	switch {
	case l.mem.Running == nil:
		l.mem.Running = &Running{RunID: seen.OtherRun, StartedAt: now}
	case seen.RunEnded:
		l.ended(ctx, outcomeOf(l.mem.Running, seen.Last))
		return nil
	case seen.Supersede != "" && !l.mem.Running.Superseded && !l.mem.Running.foreign():
		return l.supersede(ctx, seen.Supersede)
	}
	switch {
	case l.child != nil:
	case l.mem.Running.Ending: // its record is written, and it closes with its next task
		l.mem.NextDue = earlier(l.mem.NextDue, now.Add(time.Second))
	default:
		l.mem.NextDue = earlier(l.mem.NextDue, now.Add(lookAgain))
	}
	return nil
}

// lookAgain is how often a sync is looked at whose end Temporal does not tell the loop by itself.
const lookAgain = 20 * time.Second

// settle ends a pass that starts nothing.
func (l *loop) settle(ctx workflow.Context, seen activities.Observation) {
	l.mem.NextDue = seen.NextAt
	if seen.Action == release.ActSuspended {
		// A slow look all the same: it moves a suspended loop to a new version of the worker one day.
		l.mem.NextDue = workflow.Now(ctx).Add(time.Hour)
		l.refuseUpdates("Release " + l.id() + " is suspended: lift spec.suspend first (convoy resume " + l.id() + ")")
		return
	}
	failed := l.mem.Failures > 0 && seen.Last != nil && seen.Last.Result != string(v1alpha1.ResultSucceeded)
	if failed && seen.Action == release.ActNothing && (!seen.Manual || l.mem.Retry != nil) {
		return // the retry is still to come
	}
	l.mem.Failures = 0
	if seen.Manual {
		l.mem.Retry = nil
	}
}

// gone ends the loop: there is no such Release any more, or nothing keeps it. Where another one has come under the same
// name meanwhile, the loop begins anew with it: the watch has told of it and will not again.
func (l *loop) gone(ctx workflow.Context, seen activities.Observation) (over bool, err error) {
	if l.mem.Running != nil {
		if err := l.cancelRunning(ctx); err != nil {
			return false, l.leave(ctx, err)
		}
		l.waitForChild(ctx)
	}
	l.closed = fmt.Sprintf("Release %s is gone", l.id())
	l.refuseUpdates(l.closed)
	if err := workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) }); err != nil {
		return false, l.leave(ctx, err)
	}
	l.drain(ctx)
	if !seen.Reborn && !l.reborn {
		return true, nil
	}
	l.begin(Memory{MaxEvents: l.mem.MaxEvents, Signals: l.mem.Signals, Waiting: l.mem.Waiting})
	return false, nil
}
