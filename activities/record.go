package activities

import (
	"context"
	"errors"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

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
	fresh := rel.Status.LastSuccessful == nil || rel.Status.LastSuccessful.Digest != in.Sync.Digest
	rel, err = a.writeStatus(ctx, rel, in.Sync, func(status *v1alpha1.ReleaseStatus) { a.finish(status, rel, in) })
	if errors.Is(err, errFenced) {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case in.Reason != string(release.Succeeded):
		a.event(ctx, rel, in.Sync, "Warning", in.Reason, "%s", in.Message)
	case fresh:
		a.event(ctx, rel, in.Sync, "Normal", in.Reason, "applied render %s (%s)", release.ShortDigest(in.Sync.Digest), in.Sync.Revision)
	}
	if in.Exact && in.Orphaned.Total > 0 {
		a.event(ctx, rel, in.Sync, "Normal", "Orphaned", "%d objects left the inventory and stay on the cluster: %v", in.Orphaned.Total, in.Orphaned.Objects)
	}
	return nil
}

// finish is the status after the sync.
func (a *Activities) finish(status *v1alpha1.ReleaseStatus, rel *v1alpha1.Release, in Outcome) {
	now := a.timestamp()
	reason := release.Reason(in.Reason)
	status.Conditions = release.Conditions(status.Conditions, release.Outcome{
		Reason: reason, Message: in.Message, Generation: in.Sync.Generation, RetryDue: reason == release.Superseded,
	}, a.now())
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

// leaveWaves shows that nobody works on a wave any more, nor waits for one.
func leaveWaves(status *v1alpha1.ReleaseStatus, reason release.Reason, now *metav1.Time) {
	for i := range status.Waves {
		wave := &status.Waves[i]
		switch {
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
