package release

import (
	"fmt"
	"slices"

	"convoy.dev/convoy/api/v1alpha1"
)

// ApprovalAt is where status keeps the approval of a gate: that in front of a wave, or the final one, which stands on the
// last wave.
func ApprovalAt(wave *v1alpha1.WaveStatus, final bool) **v1alpha1.ApprovalStatus {
	if final {
		return &wave.FinalApproval
	}
	return &wave.Approval
}

// Approved reports whether an approval was given for a render.
func Approved(approval *v1alpha1.ApprovalStatus, digest string) bool {
	return approval != nil && approval.Decision == v1alpha1.Approved && approval.Digest == digest
}

// KeepApprovals is what a sync that begins leaves in status.waves: the waves whose approval was given for its own render
// of the same Release, so that a retry, or a sync that puts drift right, asks nobody twice. Where what a sync depends on
// was changed since (spec, a SpecSum), nothing is kept: the Release may lead elsewhere. A suspension changes nothing there.
func KeepApprovals(status v1alpha1.ReleaseStatus, digest, spec string) []v1alpha1.WaveStatus {
	var kept []v1alpha1.WaveStatus
	for _, wave := range status.Waves {
		fresh := v1alpha1.WaveStatus{Wave: wave.Wave, Objects: wave.Objects, Phase: v1alpha1.WavePending}
		for _, final := range []bool{false, true} {
			if approval := *ApprovalAt(&wave, final); Approved(approval, digest) && approval.Spec == spec {
				*ApprovalAt(&fresh, final) = approval
			}
		}
		if fresh.Approval != nil || fresh.FinalApproval != nil {
			kept = append(kept, fresh)
		}
	}
	return kept
}

// HeldApproval is the approval of a gate that status keeps for a render, nil when there is none.
func HeldApproval(status v1alpha1.ReleaseStatus, wave int32, final bool, digest string) *v1alpha1.ApprovalStatus {
	i := slices.IndexFunc(status.Waves, func(w v1alpha1.WaveStatus) bool { return w.Wave == wave })
	if i < 0 {
		return nil
	}
	if approval := *ApprovalAt(&status.Waves[i], final); Approved(approval, digest) {
		return approval.DeepCopy()
	}
	return nil
}

// Veto says who rejected the render of the last sync, and where; empty when nobody did.
func Veto(status v1alpha1.ReleaseStatus) string {
	last := status.LastAttempted
	if last == nil || last.Result == v1alpha1.ResultRunning || last.Result == v1alpha1.ResultSucceeded {
		return ""
	}
	for i := range status.Waves {
		for _, final := range []bool{false, true} {
			approval := *ApprovalAt(&status.Waves[i], final)
			if approval != nil && approval.Decision == v1alpha1.Rejected && approval.Digest == last.Digest {
				return RejectedBy(*approval, GateName(status.Waves[i].Wave, final))
			}
		}
	}
	return ""
}

// RejectedBy is a rejection in a sentence: "rejected by alice at wave 1: too late in the day".
func RejectedBy(approval v1alpha1.ApprovalStatus, gate string) string {
	text := fmt.Sprintf("rejected by %s at %s", approval.By, gate)
	if approval.Reason != "" {
		text += ": " + approval.Reason
	}
	return text
}

// LiftRejection says what makes a render that was rejected be synced after all.
func LiftRejection(namespace, name string) string {
	return fmt.Sprintf("no sync of this render starts by itself: another render, a change of the Release, or `convoy sync %s/%s` starts one", namespace, name)
}

// GateName names a gate in a sentence.
func GateName(wave int32, final bool) string {
	if final {
		return "the final gate"
	}
	return fmt.Sprintf("wave %d", wave)
}
