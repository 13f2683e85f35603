package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"go.temporal.io/sdk/activity"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func key(rel *v1alpha1.Release) types.NamespacedName {
	return types.NamespacedName{Namespace: rel.Namespace, Name: rel.Name}
}

// fenced reads the Release and makes sure that this sync may still write (D16).
func (a *Activities) fenced(ctx context.Context, ref SyncRef) (*v1alpha1.Release, error) {
	rel, err := a.control.Release(ctx, ref.Namespace, ref.Name)
	if errors.Is(err, release.ErrNotFound) {
		return nil, release.Problemf(release.Superseded, "Release %s/%s was deleted while its sync ran", ref.Namespace, ref.Name)
	}
	if err != nil {
		return nil, err
	}
	if err := checkFence(rel, ref); err != nil {
		return nil, err
	}
	return a.adopt(ctx, rel, ref)
}

// adopt makes a run that somebody reset in Temporal the holder of the fence that the run before it had taken, once no
// request of that one can be on its way any more (D16). From then on status leads to the run that goes on.
func (a *Activities) adopt(ctx context.Context, rel *v1alpha1.Release, ref SyncRef) (*v1alpha1.Release, error) {
	fence, info := rel.Status.Fence, activity.GetInfo(ctx)
	if fence.RunID == info.WorkflowExecution.RunID || fence.WorkflowID != info.WorkflowExecution.ID {
		return rel, nil
	}
	_, closedAt, err := a.runs.Running(ctx, fence.WorkflowID, fence.RunID)
	if err != nil {
		return nil, fmt.Errorf("look at the run that was reset (%s, run %s): %w", fence.WorkflowID, fence.RunID, err)
	}
	if left := closedAt.Add(info.HeartbeatTimeout).Sub(a.now()); left > 0 && !fence.Acknowledged {
		return nil, &waitError{
			message: fmt.Sprintf("run %s was reset: waiting %s, until no request of it can be on its way", fence.RunID, left.Round(time.Second)),
			after:   left,
		}
	}
	return a.writeStatus(ctx, rel, ref, func(status *v1alpha1.ReleaseStatus) {
		status.Fence.RunID, status.Fence.Acknowledged = info.WorkflowExecution.RunID, false
		if attempt := status.LastAttempted; attempt != nil {
			attempt.RunID, attempt.Result, attempt.FinishedAt = info.WorkflowExecution.RunID, v1alpha1.ResultRunning, nil
		}
	})
}

func checkFence(rel *v1alpha1.Release, ref SyncRef) error {
	if string(rel.UID) != ref.UID {
		return release.Problemf(release.Superseded, "Release %s/%s was deleted and made anew while its sync ran", ref.Namespace, ref.Name)
	}
	if rel.Status.Fence == nil || rel.Status.Fence.Number != ref.Fence {
		return errFenced
	}
	return nil
}

// writeStatus changes the status while the fence is this sync's (D35). It reads the Release again when somebody else
// wrote it in between.
func (a *Activities) writeStatus(ctx context.Context, rel *v1alpha1.Release, ref SyncRef, mutate func(*v1alpha1.ReleaseStatus)) (*v1alpha1.Release, error) {
	for {
		if err := checkFence(rel, ref); err != nil {
			return nil, err
		}
		err := a.control.PatchStatus(ctx, rel, mutate)
		if err == nil {
			return rel, nil
		}
		if !errors.Is(err, release.ErrConflict) {
			return nil, err
		}
		if rel, err = a.control.Release(ctx, ref.Namespace, ref.Name); err != nil {
			return nil, err
		}
	}
}

// setWave changes the status of one wave, if the window of waves in status holds it.
func setWave(status *v1alpha1.ReleaseStatus, wave int32, change func(*v1alpha1.WaveStatus)) {
	for i := range status.Waves {
		if status.Waves[i].Wave == wave {
			change(&status.Waves[i])
		}
	}
}

// event records an event once for a render and a reason, however often it is synced; a failure to record it is logged
// and fails nothing.
func (a *Activities) event(ctx context.Context, rel *v1alpha1.Release, ref SyncRef, eventType, reason, format string, args ...any) {
	if err := a.control.Event(ctx, rel, ref.Digest, eventType, reason, fmt.Sprintf(format, args...), a.now()); err != nil {
		a.log.WarnContext(ctx, "event not recorded", "release", key(rel).String(), "reason", reason, "error", err)
	}
}

func (a *Activities) timestamp() *metav1.Time {
	now := metav1.NewTime(a.now()).Rfc3339Copy()
	return &now
}
