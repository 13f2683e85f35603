package release

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"convoy.dev/convoy/api/v1alpha1"
)

// rejects makes the last sync one whose render a person rejected at its second wave.
func rejects(s *scene) {
	s.ended(Superseded)
	s.Status.Waves = []v1alpha1.WaveStatus{{Wave: 0}, {Wave: 1, Approval: &v1alpha1.ApprovalStatus{
		Decision: v1alpha1.Rejected, By: "alice", Reason: "too late", Digest: "sha256:abc",
	}}}
}

// D23 D33: a render that a person rejected is not synced by itself, whatever time it is. Another render, a changed
// Release and a request lift that.
func TestDecide_D23_leaves_a_rejected_render_alone(t *testing.T) {
	and := func(change func(*scene)) func(*scene) {
		return func(s *scene) { rejects(s); change(s) }
	}
	const why = "rejected by alice at wave 1: too late"
	decides(t, map[string]verdict{
		"the time has come":          {rejects, ActNothing, why, "render"},
		"it has not":                 {and(func(s *scene) { s.Due = false }), ActNothing, why, "render"},
		"resyncInterval has passed":  {and(func(s *scene) { s.ResyncInterval = time.Second }), ActNothing, why, "render"},
		"a request may be in flight": {and(func(s *scene) { s.Whole = true }), ActNothing, why, "render"},
		"the source is out of reach": {and(func(s *scene) { s.broken = errors.New("no route") }), ActNothing, why, "render"},
		"another render":             {and(func(s *scene) { s.digest = "sha256:def" }), ActSync, "a new render, def", "render"},
		"a bad render":               {and(func(s *scene) { s.broken = Problemf(RenderFailed, "bad") }), ActSync, "the source gives no render", "render"},
		"the Release was changed":    {and(func(s *scene) { s.Spec = "t" }), ActSync, "the Release was changed", ""},
		"changed, the loop is new":   {and(func(s *scene) { s.SyncedSpec, s.Generation = "", 4 }), ActSync, "the Release was changed", ""},
		"the loop is new":            {and(func(s *scene) { s.SyncedSpec = "" }), ActNothing, why, "render"},
		"a request":                  {and(func(s *scene) { s.Requested = true }), ActSync, "a sync was requested", ""},
		"manual":                     {and(func(s *scene) { s.Manual = true }), ActNothing, why, "render"},
		"manual, another render":     {and(func(s *scene) { s.Manual, s.digest = true, "sha256:def" }), ActOutOfSync, "a new render, def", "render"},
		"that sync ended otherwise":  {and(func(s *scene) { s.ended(DeployFailed) }), ActNothing, why, "render"},
		"of another render":          {and(func(s *scene) { s.Status.LastAttempted.Digest = "sha256:def" }), ActSync, "the sync before ended as Superseded", ""},
		"approved":                   {and(func(s *scene) { s.Status.Waves[1].Approval.Decision = v1alpha1.Approved }), ActSync, "the sync before ended as Superseded", ""},
	})
	s := newScene()
	rejects(s)
	s.Status.Waves[1].Approval, s.Status.Waves[1].FinalApproval = nil, s.Status.Waves[1].Approval
	d, err := s.decide()
	require.NoError(t, err)
	require.True(t, d.Rejected)
	require.Equal(t, "rejected by alice at the final gate: too late", d.Cause)
}

// An approval holds for the same render of the same Release: a sync that begins keeps those and nothing else.
func TestKeepApprovals(t *testing.T) {
	approved := &v1alpha1.ApprovalStatus{Decision: v1alpha1.Approved, By: "alice", Digest: "sha256:abc", Spec: "s"}
	other := &v1alpha1.ApprovalStatus{Decision: v1alpha1.Approved, By: "alice", Digest: "sha256:def", Spec: "s"}
	rejected := &v1alpha1.ApprovalStatus{Decision: v1alpha1.Rejected, By: "alice", Digest: "sha256:abc"}
	status := *newScene().Status
	status.Waves = []v1alpha1.WaveStatus{
		{Wave: 0, Phase: v1alpha1.WaveApplied, Objects: 2, Applied: 2},
		{Wave: 1, Phase: v1alpha1.WaveFailed, Objects: 3, Applied: 1, Approval: approved, BlockedBy: []v1alpha1.Blocker{{}}},
		{Wave: 2, Approval: other}, {Wave: 3, Approval: rejected}, {Wave: 4, Approval: rejected, FinalApproval: approved},
	}
	kept := KeepApprovals(status, "sha256:abc", "s")
	require.Equal(t, []v1alpha1.WaveStatus{
		{Wave: 1, Phase: v1alpha1.WavePending, Objects: 3, Approval: approved}, {Wave: 4, Phase: v1alpha1.WavePending, FinalApproval: approved},
	}, kept)
	require.Empty(t, KeepApprovals(status, "sha256:xyz", "s"))
	require.Empty(t, KeepApprovals(status, "sha256:abc", "t"), "the Release was changed since")
	require.Empty(t, KeepApprovals(v1alpha1.ReleaseStatus{}, "sha256:abc", "s"))

	require.Equal(t, approved, HeldApproval(status, 1, false, "sha256:abc"))
	require.Equal(t, approved, HeldApproval(status, 4, true, "sha256:abc"))
	for _, wave := range []int32{2, 3, 4, 9} {
		require.Nil(t, HeldApproval(status, wave, false, "sha256:abc"), "wave %d", wave)
	}
}
