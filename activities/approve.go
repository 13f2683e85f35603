package activities

import (
	"context"
	"fmt"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"go.temporal.io/sdk/activity"
)

// ApprovalInput is an approval at a gate: one that is waited for, or what became of it.
type ApprovalInput struct {
	WaveInput
	Approval v1alpha1.ApprovalStatus `json:"approval"`
}

// AnnounceApproval shows in status that a gate waits for a person, and how to approve, and records an event (D33). The
// waiting is the workflow's.
//
// Idempotent: it writes the same status, and the event once.
// Fails with: DeployFailed when the control cluster is out of reach.
// Heartbeat: the wave.
func (a *Activities) AnnounceApproval(ctx context.Context, in ApprovalInput) error {
	return a.atGate(ctx, "approval", in.WaveInput, func(st *step) error {
		message := in.howTo()
		blocker := v1alpha1.Blocker{Object: "approval", Message: message}
		message = fmt.Sprintf("%s waits for an approval of render %s: %s", in.gate(), release.ShortDigest(in.Approval.Digest), message)
		err := a.showWaiting(ctx, st, in.WaveInput, waiting{message: message, blockers: []v1alpha1.Blocker{blocker}, total: 1, approval: &in.Approval})
		if err == nil {
			a.gateEvent(ctx, st, in.WaveInput, "Normal", "ApprovalRequired", message)
		}
		return err
	})
}

// howTo says how to approve, and until when.
func (in ApprovalInput) howTo() string {
	gate := fmt.Sprintf("--wave %d", in.Blocks)
	if in.Final {
		gate = "--final"
	}
	text := fmt.Sprintf("convoy approve %s/%s %s --digest %s (or convoy reject)", in.Sync.Namespace, in.Sync.Name, gate, in.Approval.Digest)
	if until := in.Approval.ExpiresAt; until != nil {
		text += ", until " + until.UTC().Format(time.RFC3339)
	}
	return text
}

// RecordApproval records in status what became of an approval, and an event.
//
// Idempotent: it writes the same status, and the event once.
// Fails with: DeployFailed when the control cluster is out of reach.
// Heartbeat: the wave.
func (a *Activities) RecordApproval(ctx context.Context, in ApprovalInput) error {
	return a.atGate(ctx, "approval", in.WaveInput, func(st *step) error {
		_, err := a.writeStatus(ctx, st.rel, in.Sync, func(status *v1alpha1.ReleaseStatus) {
			showWaves(status, st.plan, in.Blocks)
			setGate(status, in.WaveInput, func(wave *v1alpha1.WaveStatus) { *release.ApprovalAt(wave, in.Final) = &in.Approval })
		})
		if err == nil {
			a.decisionEvent(ctx, st, in)
		}
		return err
	})
}

func (a *Activities) decisionEvent(ctx context.Context, st *step, in ApprovalInput) {
	render := release.ShortDigest(in.Approval.Digest)
	switch in.Approval.Decision {
	case v1alpha1.Approved:
		text := fmt.Sprintf("render %s was approved by %s at %s", render, in.Approval.By, in.gate())
		if in.Approval.Reason != "" {
			text += ": " + in.Approval.Reason
		}
		a.gateEvent(ctx, st, in.WaveInput, "Normal", string(v1alpha1.Approved), text)
	case v1alpha1.Rejected:
		a.gateEvent(ctx, st, in.WaveInput, "Warning", string(v1alpha1.Rejected), fmt.Sprintf("render %s was %s", render, release.RejectedBy(in.Approval, in.gate())))
	case v1alpha1.Expired:
		a.gateEvent(ctx, st, in.WaveInput, "Warning", "ApprovalExpired", fmt.Sprintf("nobody approved render %s at %s in time", render, in.gate()))
	}
}

// gateEvent records an event once for each gate of a sync.
func (a *Activities) gateEvent(ctx context.Context, st *step, in WaveInput, eventType, reason, message string) {
	run := activity.GetInfo(ctx).WorkflowExecution.RunID
	a.event(ctx, st.rel, SyncRef{Digest: run + "/" + in.gate()}, eventType, reason, "%s", message)
}

// LeaveGate shows that the final gate was passed: the sync goes on to its prune.
//
// Idempotent: it writes nothing where that is shown.
// Fails with: DeployFailed when the control cluster is out of reach.
// Heartbeat: the wave.
func (a *Activities) LeaveGate(ctx context.Context, in WaveInput) error {
	return a.atGate(ctx, "final gate", in, func(st *step) error {
		if !waits(st.rel) {
			return nil
		}
		_, err := a.writeStatus(ctx, st.rel, in.Sync, func(status *v1alpha1.ReleaseStatus) {
			setGate(status, in, func(wave *v1alpha1.WaveStatus) { wave.BlockedBy, wave.BlockedByTotal = nil, 0 })
			status.Conditions = release.Conditions(status.Conditions, release.Outcome{
				Reason: release.Progressing, Generation: in.Sync.Generation, NewRender: true,
				Message: "every wave of render " + release.ShortDigest(in.Sync.Digest) + " is applied, and the final gate was passed",
			}, a.now())
		})
		return err
	})
}

// atGate performs a step that writes the status of a gate.
func (a *Activities) atGate(ctx context.Context, step string, in WaveInput, do func(*step) error) error {
	_, err := perform(ctx, a, step, release.DeployFailed, func(ctx context.Context, l *lease) (struct{}, error) {
		l.record(func(p *Progress) { p.Wave = &in.Wave })
		st, err := a.open(ctx, in.Sync)
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, do(st)
	})
	return err
}
