package workflows

import (
	"errors"
	"fmt"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// outcome is what a sync came to, in the eyes of the loop.
type outcome struct {
	reason  string // a release.Reason, activities.Refused, or lost
	message string
	digest  string
	// unreachable: the render failed because the source could not be read.
	unreachable bool
	// unsure: a request of it may still be in flight (D16).
	unsure bool
	// recorded: status has it, and the answers to its requests.
	recorded bool
}

// lost is the outcome of a sync that ended without a word: terminated, or its record failed.
const lost = "Lost"

// SyncFailure is the detail of the application error of a failed sync.
type SyncFailure struct {
	Digest      string `json:"digest,omitempty"`
	Unreachable bool   `json:"unreachable,omitempty"`
	// Recorded: the Release's status has this end.
	Recorded bool `json:"recorded,omitempty"`
}

// childEnded takes the end of the child that this run has started.
func (l *loop) childEnded(ctx workflow.Context) {
	var result SyncResult
	err := l.child.Get(ctx, &result)
	l.child = nil
	l.ended(ctx, readOutcome(result, err))
}

func readOutcome(result SyncResult, err error) outcome {
	var failure *temporal.ApplicationError
	var cancelled *temporal.CanceledError
	switch {
	case err == nil:
		return outcome{reason: string(release.Succeeded), digest: result.Digest, unsure: result.Unsure, recorded: true}
	case errors.As(err, &failure):
		var detail SyncFailure
		if failure.HasDetails() && failure.Details(&detail) != nil {
			detail = SyncFailure{}
		}
		return outcome{
			reason: failure.Type(), message: failure.Message(), digest: detail.Digest,
			unreachable: detail.Unreachable, recorded: detail.Recorded,
		}
	case errors.As(err, &cancelled):
		out := outcome{reason: string(release.Superseded), message: "the sync was cancelled"}
		var detail SyncFailure
		if cancelled.HasDetails() && cancelled.Details(&out.message, &detail) == nil {
			out.digest, out.recorded = detail.Digest, detail.Recorded
		}
		return out
	}
	return outcome{reason: lost, message: "the sync ended without a word: " + err.Error()}
}

// outcomeOf reads the end of a sync out of the Release's status.
func outcomeOf(running *Running, last *activities.Ended) outcome {
	if last == nil || last.RunID != running.RunID || last.Result == string(v1alpha1.ResultRunning) {
		return outcome{reason: lost, message: "the sync ended without a word"}
	}
	return outcome{reason: last.Reason, message: last.Message, digest: last.Digest, unreachable: last.Unreachable, recorded: true}
}

// ended draws the consequences of a sync's end: who is answered, and when the next pass is due (S7, D22).
func (l *loop) ended(ctx workflow.Context, out outcome) {
	running := l.mem.Running
	l.mem.Running = nil
	if out.reason == activities.Refused || out.reason == activities.Fenced {
		l.notBegun(ctx, running)
		return
	}
	l.answer(running, out)
	if out.unsure {
		l.mem.UnsureUntil = workflow.Now(ctx).Add(inFlightFor)
	}
	l.mem.Whole = workflow.Now(ctx).Before(l.mem.UnsureUntil)
	failures := 0
	switch {
	case running.Superseded, running.Cancelled, out.reason == lost:
		l.due = true
		switch out.reason {
		case lost:
			l.keepRetry(running, out)
		case string(release.Succeeded): // before it heard
			l.mem.Retry = nil
		}
	case release.Retries(release.Reason(out.reason), out.unreachable):
		failures = l.mem.Failures + 1
		l.keepRetry(running, out)
	default:
		l.mem.Retry = nil
	}
	if running.Deletion && out.reason == string(release.Succeeded) {
		l.due = true
	}
	if running.Generation != 0 && running.Generation != l.mem.Generation { // a change that waited, such as a suspension
		l.woken = true
	}
	l.mem.Failures = failures
	l.mem.NextDue = l.mem.Cadence.Next(l.mem.UID, workflow.Now(ctx), failures)
}

// inFlightFor is how long after a sync that lost an attempt a request of that attempt is reckoned with: until then each
// pass is a whole sync (D16). A write that lands later shows in the metadata of its object; one that lands in the same
// second as the apply of the next sync does not.
const inFlightFor = time.Minute

// keepRetry remembers the request that the retries belong to.
func (l *loop) keepRetry(running *Running, out outcome) {
	if running.Request != nil {
		l.mem.Retry = running.Request
	}
	l.mem.RetryOf = out.digest
}

// notBegun puts the request of a sync that was refused back to those that wait.
func (l *loop) notBegun(ctx workflow.Context, running *Running) {
	if running.Request != nil {
		l.mem.Waiting = running.Request.Join(deref(l.mem.Waiting))
	}
	l.mem.SyncedSpec = ""
	l.clashUntil = workflow.Now(ctx).Add(pauseAfterClash)
	l.mem.NextDue = l.clashUntil
}

// answer answers the requests of a sync (D26).
func (l *loop) answer(running *Running, out outcome) {
	if running.Request == nil {
		return
	}
	result := v1alpha1.ResultFailed
	switch out.reason {
	case string(release.Succeeded):
		result = v1alpha1.ResultSucceeded
	case string(release.Superseded):
		result = v1alpha1.ResultSuperseded
	}
	var answers []v1alpha1.HandledRequest
	for _, id := range running.Request.IDs {
		answers = append(answers, v1alpha1.HandledRequest{
			ID: id, Result: string(result), Reason: out.reason, Message: fmt.Sprintf("%.300s", out.message), Digest: out.digest, RunID: running.RunID,
		})
	}
	l.remember(answers)
	if !out.recorded {
		l.mem.Unwritten = append(l.mem.Unwritten, answers...)
		l.woken = true
	}
}

// supersede tells a sync that something newer is to be synced. It ends at its wait, or goes on to its end (D23).
func (l *loop) supersede(ctx workflow.Context, by string) error {
	l.mem.Running.Superseded = true
	id := release.SyncWorkflowID(l.in.Namespace, l.in.Name)
	err := workflow.SignalExternalWorkflow(ctx, id, l.mem.Running.RunID, SignalSupersede, Supersede{By: by}).Get(ctx, nil)
	if err != nil && ctx.Err() == nil {
		workflow.GetLogger(ctx).Info("the sync could not be told that it is superseded: it has ended", "error", err)
	}
	return ctx.Err()
}

// cancelRunning stops a sync between two objects, because its Release is being deleted (D23).
func (l *loop) cancelRunning(ctx workflow.Context) error {
	if l.mem.Running.Cancelled {
		return nil
	}
	l.mem.Running.Cancelled = true
	id := release.SyncWorkflowID(l.in.Namespace, l.in.Name)
	err := workflow.RequestCancelExternalWorkflow(ctx, id, l.mem.Running.RunID).Get(ctx, nil)
	if err != nil && ctx.Err() == nil {
		workflow.GetLogger(ctx).Info("the sync could not be cancelled: it has ended", "error", err)
	}
	return ctx.Err()
}

// waitForChild waits for the end of a child that was told to end.
func (l *loop) waitForChild(ctx workflow.Context) {
	if l.child != nil {
		_ = l.child.Get(ctx, nil)
		l.child = nil
	}
}
