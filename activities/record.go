package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"go.temporal.io/sdk/activity"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RecordSync writes the end of a sync to status, whatever the end was, and acknowledges the fence (S1 step 8, S29,
// S30, D33). Once another sync has begun it writes nothing (D35).
//
// Idempotent: a second write finds the same attempt finished.
// Fails with: Waiting while the control cluster is out of reach: an end that is not recorded would leave the Release
// running in the eyes of everybody.
// Heartbeat: the step's name.
func (a *Activities) RecordSync(ctx context.Context, in Outcome) error {
	_, err := perform(ctx, a, "record", release.DeployFailed, func(ctx context.Context, _ *lease) (struct{}, error) {
		err := a.recordSync(ctx, in)
		if err != nil && ctx.Err() == nil {
			err = &waitError{message: "the end of the sync is not recorded yet: " + shorten(err.Error()), after: recordAgain}
		}
		return struct{}{}, err
	})
	return err
}

// tellLoop wakes the loop of the Release, where Temporal itself does not: after its continue-as-new, and when a person
// started the sync.
func (a *Activities) tellLoop(ctx context.Context, in Outcome) error {
	run := activity.GetInfo(ctx).WorkflowExecution.RunID
	return a.runs.Ended(ctx, release.ReleaseWorkflowID(in.Sync.Namespace, in.Sync.Name), in.ParentRunID, run)
}

// recordAgain is the pause before a record that failed is tried again.
const recordAgain = 5 * time.Second

func (a *Activities) recordSync(ctx context.Context, in Outcome) error {
	rel, err := a.fenced(ctx, in.Sync)
	var gone *release.Problem
	if errors.Is(err, errFenced) || errors.As(err, &gone) {
		return nil
	}
	if err != nil {
		return err
	}
	stuckBefore := release.IsStuck(rel.Status.Conditions)
	fresh := rel.Status.LastSuccessful == nil || rel.Status.LastSuccessful.Digest != in.Sync.Digest
	answers := a.answers(ctx, in)
	for _, early := range answers[:len(answers)-1] { // no status holds them all, and each is to be seen (D26, D35)
		if rel, err = a.writeStatus(ctx, rel, in.Sync, func(status *v1alpha1.ReleaseStatus) { answer(status, early, annotationID(rel)) }); err != nil {
			break
		}
	}
	if err == nil {
		rel, err = a.writeStatus(ctx, rel, in.Sync, func(status *v1alpha1.ReleaseStatus) {
			a.finish(status, rel, in)
			answer(status, answers[len(answers)-1], annotationID(rel))
		})
	}
	if errors.Is(err, errFenced) {
		return nil
	}
	if err != nil {
		return err
	}
	if release.IsStuck(rel.Status.Conditions) && !stuckBefore {
		each := in.Sync
		each.Digest += "/" + activity.GetInfo(ctx).WorkflowExecution.RunID
		a.event(ctx, rel, each, "Warning", release.Stuck, "syncs of this render have failed %d times in a row or more: %s", release.StuckFailures, in.Message)
	}
	a.log.InfoContext(ctx, "sync ended", "release", key(rel).String(), "reason", in.Reason, "render", release.ShortDigest(in.Sync.Digest),
		"runID", activity.GetInfo(ctx).WorkflowExecution.RunID)
	switch {
	case in.Reason != string(release.Succeeded):
		a.event(ctx, rel, in.Sync, "Warning", in.Reason, "%s", in.Message)
	case fresh:
		a.event(ctx, rel, in.Sync, "Normal", in.Reason, "applied render %s (%s)", release.ShortDigest(in.Sync.Digest), in.Sync.Revision)
	}
	if in.Exact && in.Orphaned.Total > 0 {
		a.event(ctx, rel, in.Sync, "Normal", "Orphaned", "%s", in.Orphaned.leaves())
	}
	return a.tellLoop(ctx, in)
}

// leaves says which objects left the inventory (D21, S25).
func (n Named) leaves() string {
	return fmt.Sprintf("%s left the inventory and %s on the cluster: %s",
		release.Count(n.Total, "object"), release.Verb(n.Total, "stays", "stay"), strings.Join(n.Objects, "; "))
}

func annotationID(rel *v1alpha1.Release) string {
	return release.RequestID(rel.Annotations[v1alpha1.AnnotationSyncRequested])
}

// answers are the answers to the requests that this sync served, in portions that status can hold; at least one portion.
func (a *Activities) answers(ctx context.Context, in Outcome) [][]v1alpha1.HandledRequest {
	if in.Loop == nil || len(in.Loop.Requests) == 0 {
		return [][]v1alpha1.HandledRequest{nil}
	}
	var all []v1alpha1.HandledRequest
	for _, id := range in.Loop.Requests {
		all = append(all, v1alpha1.HandledRequest{
			ID: id, Result: string(resultOf(release.Reason(in.Reason))), Reason: in.Reason, Message: in.Message,
			Digest: in.Sync.Digest, RunID: activity.GetInfo(ctx).WorkflowExecution.RunID,
		})
		if handled := &all[len(all)-1]; len(handled.Message) > answerLimit {
			handled.Message = strings.ToValidUTF8(handled.Message[:answerLimit], "") + "…"
		}
	}
	return slices.Collect(slices.Chunk(all, listLimit))
}

// answerLimit bounds the message of an answered request, in bytes: the whole message is in the condition.
const answerLimit = 300

// finish is the status after the sync.
func (a *Activities) finish(status *v1alpha1.ReleaseStatus, rel *v1alpha1.Release, in Outcome) {
	now := a.timestamp()
	reason := release.Reason(in.Reason)
	doing, failures := a.schedule(status, rel, in)
	status.Conditions = release.Conditions(status.Conditions, release.Outcome{
		Reason: reason, Message: in.Message, Generation: in.Sync.Generation, Doing: doing,
		RetryDue: reason == release.Superseded && !in.Rejected || in.Sync.Unreachable, Stuck: failures >= release.StuckFailures,
	}, a.now())
	if in.Rejected {
		status.Conditions = release.Rest(status.Conditions, release.Idle{
			Reason: release.Denied, Message: in.Message + "; " + release.LiftRejection(rel.Namespace, rel.Name), Generation: in.Sync.Generation,
		}, a.now())
	}
	status.Fence.Acknowledged = true
	attempt := status.LastAttempted
	if attempt == nil {
		attempt = &v1alpha1.Attempt{StartedAt: *now}
		status.LastAttempted = attempt
	}
	attempt.FinishedAt, attempt.Reason, attempt.Message = now, in.Reason, in.Message
	attempt.Digest, attempt.Revision = in.Sync.Digest, in.Sync.Revision
	attempt.Result = resultOf(reason)
	if in.DryRan {
		status.Unverified, status.UnverifiedTotal = in.Unverified.Objects, int32(in.Unverified.Total)
	}
	if in.Exact {
		status.Orphaned, status.OrphanedTotal = in.Orphaned.Objects, int32(in.Orphaned.Total)
		status.Terminating, status.TerminatingTotal = in.Terminating.Objects, int32(in.Terminating.Total)
	}
	for _, decision := range in.Decisions {
		keepDecision(status, decision)
	}
	if in.FailedWave != nil {
		setWave(status, *in.FailedWave, func(wave *v1alpha1.WaveStatus) {
			wave.Phase, wave.FinishedAt = v1alpha1.WaveFailed, now
		})
	}
	if reason == release.Succeeded {
		succeed(status, rel, in, attempt)
		return
	}
	leaveWaves(status, reason, now)
}

// keepDecision writes a decision to status, for the next sync of the same render.
func keepDecision(status *v1alpha1.ReleaseStatus, in ApprovalInput) {
	if !slices.ContainsFunc(status.Waves, func(w v1alpha1.WaveStatus) bool { return w.Wave == in.Blocks }) && len(status.Waves) < release.MaxWaveStatus {
		status.Waves = append(status.Waves, v1alpha1.WaveStatus{Wave: in.Blocks, Phase: v1alpha1.WavePending})
	}
	setGate(status, in.WaveInput, func(wave *v1alpha1.WaveStatus) { *release.ApprovalAt(wave, in.Final) = &in.Approval })
}

// schedule writes when the loop looks at the Release again, and says so where that is a retry (D22). failures is how many
// syncs in a row have failed in a way that is retried.
func (a *Activities) schedule(status *v1alpha1.ReleaseStatus, rel *v1alpha1.Release, in Outcome) (doing string, failures int) {
	if in.Loop == nil {
		return "", 0
	}
	if release.Retries(release.Reason(in.Reason), in.Sync.Unreachable) {
		failures = in.Loop.Failures + 1
	}
	next := metav1.NewTime(release.CadenceOf(rel.Spec).Next(string(rel.UID), a.now(), failures).Truncate(time.Second))
	status.NextReconcileAt = &next
	if failures > 0 {
		doing = fmt.Sprintf("failed %s in a row; to be synced again at about %s", release.Count(failures, "time"), next.UTC().Format(time.RFC3339))
	}
	return doing, failures
}

// leaveWaves shows that nobody works on a wave any more, nor waits for one.
func leaveWaves(status *v1alpha1.ReleaseStatus, reason release.Reason, now *metav1.Time) {
	for i := range status.Waves {
		wave := &status.Waves[i]
		switch {
		case wave.Phase == v1alpha1.WaveApplied && reason == release.Superseded: // the final gate stood there
			wave.BlockedBy, wave.BlockedByTotal = nil, 0
		case wave.Phase != v1alpha1.WaveWaiting && wave.Phase != v1alpha1.WaveApplying:
		case reason == release.Superseded:
			wave.Phase, wave.BlockedBy, wave.BlockedByTotal = v1alpha1.WavePending, nil, 0
		default:
			wave.Phase, wave.FinishedAt = v1alpha1.WaveFailed, now
		}
	}
}

// succeed records the render in the history and as the last successful one.
func succeed(status *v1alpha1.ReleaseStatus, rel *v1alpha1.Release, in Outcome, attempt *v1alpha1.Attempt) {
	finished := *attempt.FinishedAt
	status.LastSuccessful = &v1alpha1.Success{Digest: in.Sync.Digest, Revision: in.Sync.Revision, FinishedAt: finished}
	limit := 10
	if rel.Spec.RevisionHistoryLimit != nil {
		limit = int(*rel.Spec.RevisionHistoryLimit)
	}
	status.History = release.RecordSuccess(status.History, v1alpha1.HistoryEntry{
		Digest: in.Sync.Digest, Revision: in.Sync.Revision, FirstAppliedAt: finished, LastAppliedAt: finished,
		Result: v1alpha1.ResultSucceeded, RequestedBy: attempt.RequestedBy, WorkflowID: attempt.WorkflowID, RunID: attempt.RunID,
	}, limit)
}

func resultOf(reason release.Reason) v1alpha1.AttemptResult {
	switch reason {
	case release.Succeeded:
		return v1alpha1.ResultSucceeded
	case release.Superseded:
		return v1alpha1.ResultSuperseded
	}
	return v1alpha1.ResultFailed
}
