package activities

import (
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// gates sets the sync policy of the Release.
func (w *world) gates(final *v1alpha1.FinalGate, waves ...v1alpha1.WavePolicy) *world {
	w.rel.Spec.SyncPolicy.Waves, w.rel.Spec.SyncPolicy.FinalGate = waves, final
	return w
}

func expression(current, failed string) *v1alpha1.WaveHealth {
	return &v1alpha1.WaveHealth{Strategy: v1alpha1.HealthExpression, Current: current, Failed: failed}
}

// D24: an expression with a mistake ends the sync before the first request, and says where it is. The attempt is recorded.
func TestPrepareSync_D24_finds_a_mistake_in_an_expression(t *testing.T) {
	for path, w := range map[string]*world{
		"spec.syncPolicy.waves[wave 7].health.current, column 1: undeclared reference to 'stat'": newWorld(t, cm("a", 0)).gates(nil, v1alpha1.WavePolicy{Wave: 7, Health: expression("stat.a", "")}),
		"spec.syncPolicy.waves[wave 1].health.failed, column 1: undeclared reference to 'x'":     newWorld(t, cm("a", 0)).gates(nil, v1alpha1.WavePolicy{Wave: 1, Health: expression("true", "x")}),
		"spec.syncPolicy.finalGate.health.current, column 1: the expression gives":               newWorld(t, cm("a", 0)).gates(&v1alpha1.FinalGate{Health: expression("status.a", "")}),
	} {
		message := w.fails(w.a.PrepareSync, shop, "RenderFailed")
		require.True(t, strings.HasPrefix(message, path), message)
		require.Contains(t, message, "correct it in the Release. Nothing was applied")
		require.Equal(t, "status", strings.Join(w.calls, ", "), "nobody asked the cluster")
	}
}

// S17 D24: the plan holds what each gate waits for.
func TestPrepareSync_D24_plans_the_gates(t *testing.T) {
	w := newWorld(t, cm("a", 0), cm("b", 1), cm("c", 2))
	day := &metav1.Duration{Duration: 24 * time.Hour}
	w.gates(&v1alpha1.FinalGate{Health: expression("data.done == 'yes'", ""), Approval: &v1alpha1.Approval{Required: true}},
		v1alpha1.WavePolicy{Wave: 1, Health: expression("true", "false"), Approval: &v1alpha1.Approval{Required: true, Expires: day}},
		v1alpha1.WavePolicy{Wave: 2, Approval: &v1alpha1.Approval{Required: false, Expires: day}})
	var plan Prepared
	w.succeeds(w.a.PrepareSync, shop, &plan)
	require.Equal(t, []PlannedWave{
		{Number: 0, Objects: 1},
		{Number: 1, Objects: 1, Strategy: v1alpha1.HealthExpression, Current: "true", Failed: "false", Approval: &PlannedApproval{Expires: 24 * time.Hour}},
		{Number: 2, Objects: 1},
	}, plan.Waves)
	require.Equal(t, &PlannedWave{
		Number: 2, After: 2, Final: true, Strategy: v1alpha1.HealthExpression, Current: "data.done == 'yes'", Approval: &PlannedApproval{},
	}, plan.FinalGate)
}

// An approval of the same render of the same Release holds: the next sync asks nobody, and status keeps it. It ends with
// a changed Release.
func TestPrepareSync_keeps_an_approval_of_the_same_render(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.ReleaseSpec){
		"same Release":      func(*v1alpha1.ReleaseSpec) {},
		"suspended between": func(spec *v1alpha1.ReleaseSpec) { spec.Interval = &metav1.Duration{Duration: time.Hour} },
		"changed Release":   func(spec *v1alpha1.ReleaseSpec) { spec.SyncPolicy.Prune.AllowEmpty = true },
	} {
		w := newWorld(t, cm("a", 0), cm("b", 1)).gates(nil, v1alpha1.WavePolicy{Wave: 1, Approval: &v1alpha1.Approval{Required: true}})
		approved := &v1alpha1.ApprovalStatus{Decision: v1alpha1.Approved, By: "alice", Digest: w.sync().Digest, Spec: release.SpecSum(w.rel.Spec)}
		w.rel.Status.Conditions = release.Conditions(nil, release.Outcome{Reason: release.DeployFailed, Generation: 3}, w.now)
		w.rel.Status.Waves = []v1alpha1.WaveStatus{{Wave: 0, Phase: v1alpha1.WaveApplied}, {Wave: 1, Phase: v1alpha1.WaveFailed, Approval: approved}}
		w.rel.Generation = 4
		change(&w.rel.Spec)
		var plan Prepared
		for range 2 { // a second attempt finds the same
			w.succeeds(w.a.PrepareSync, shop, &plan)
			if name != "changed Release" {
				require.Equal(t, approved, plan.Waves[1].Approval.Held, name)
				require.Equal(t, approved, w.rel.Status.Waves[0].Approval, name)
				require.Len(t, w.rel.Status.Waves, 1)
			} else {
				require.Nil(t, plan.Waves[1].Approval.Held, name)
				require.Empty(t, w.rel.Status.Waves, name)
			}
		}
	}
}

// S17 D24: one look by expressions: current, in progress, failed, and an object that is absent. Who opts out is not read.
func TestAwaitWave_D24_judges_by_expressions(t *testing.T) {
	w := newWorld(t, cm("a", 0), cm("b", 0), cm("free", 0, "convoy.dev/wait: disabled"), cm("c", 1))
	phase := func(text string) map[string]any {
		return map[string]any{"data": map[string]any{"phase": text}}
	}
	in := WaveInput{Sync: w.sync(), Wave: 0, Blocks: 1, Current: "data.phase == 'done'", Failed: "data.phase == 'broken'"}
	w.looked = map[string]map[string]any{"a": phase("done")}
	message := w.fails(w.a.AwaitWave, in, Waiting)
	require.Equal(t, "wave 1 waits for wave 0: ConfigMap team-a/b: not found, since 2026-01-01T12:00:00Z", message)
	require.Equal(t, "inspect a, inspect b", w.changes("inspect", "health"))
	w.looked["b"] = phase("begun")
	require.Contains(t, w.fails(w.a.AwaitWave, in, Waiting), "ConfigMap team-a/b: not true yet: data.phase == 'done'")
	require.Equal(t, "ConfigMap team-a/b", w.rel.Status.Waves[1].BlockedBy[0].Object)
	w.looked["b"] = phase("broken")
	require.Contains(t, w.fails(w.a.AwaitWave, in, "DeployFailed"), "wave 1 cannot begin: ConfigMap team-a/b of wave 0 has failed: its failed expression is true")
	w.looked["b"] = phase("done")
	w.succeeds(w.a.AwaitWave, in, nil)
}

// atFinalGate is the input of the final gate behind wave 1.
func (w *world) atFinalGate() WaveInput {
	return WaveInput{Sync: w.sync(), Wave: 1, Blocks: 1, Final: true}
}

// S31 D33: what the final gate waits for stands on the last wave, which stays applied. Once it is passed nothing of it is
// left.
func TestAwaitWave_the_final_gate_stands_on_the_last_wave(t *testing.T) {
	w := newWorld(t, cm("a", 0), cm("b", 1))
	began := metav1.NewTime(w.now.Add(-time.Hour)) // long before the gate
	w.rel.Status.Waves = []v1alpha1.WaveStatus{{Wave: 0, Phase: v1alpha1.WaveApplied}, {Wave: 1, Phase: v1alpha1.WaveApplied, StartedAt: &began}}
	w.health.Blockers = []release.Unhealthy{{Ref: cmRef("b"), Message: "not yet"}}
	require.Equal(t, "the final gate waits for wave 1: ConfigMap team-a/b: not yet, since 2026-01-01T12:00:00Z", w.fails(w.a.AwaitWave, w.atFinalGate(), Waiting))
	wave := w.rel.Status.Waves[1]
	require.Equal(t, v1alpha1.WaveApplied, wave.Phase)
	require.Equal(t, "ConfigMap team-a/b", wave.BlockedBy[0].Object)
	require.Equal(t, "WaitingForWave", meta.FindStatusCondition(w.rel.Status.Conditions, "Applied").Reason)
	require.Empty(t, w.changes("event"), "it has not waited for an hour")
	w.now = w.now.Add(time.Hour)
	w.fails(w.a.AwaitWave, w.atFinalGate(), Waiting)
	require.Equal(t, "event Stuck", w.changes("event"))
	w.health.Blockers[0].Failed = true
	require.Contains(t, w.fails(w.a.AwaitWave, w.atFinalGate(), "DeployFailed"), "the final gate stays shut: ConfigMap team-a/b of wave 1 has failed")

	w.succeeds(w.a.LeaveGate, w.atFinalGate(), nil)
	require.Empty(t, w.rel.Status.Waves[1].BlockedBy)
	require.Equal(t, "Progressing", meta.FindStatusCondition(w.rel.Status.Conditions, "Applied").Reason)
	w.calls = nil
	w.succeeds(w.a.LeaveGate, w.atFinalGate(), nil)
	require.Empty(t, w.calls)
}

// D33: a gate that waits for a person says how to approve; what became of it is recorded with an event.
func TestApproval_D33_is_shown_and_recorded(t *testing.T) {
	w := newWorld(t, cm("a", 0), cm("b", 1))
	in := ApprovalInput{WaveInput: WaveInput{Sync: w.sync(), Wave: 0, Blocks: 1}}
	until := metav1.NewTime(w.now.Add(24 * time.Hour))
	in.Approval = v1alpha1.ApprovalStatus{Digest: in.Sync.Digest, ExpiresAt: &until}
	w.succeeds(w.a.AnnounceApproval, in, nil)
	wave := w.rel.Status.Waves[1]
	require.Equal(t, v1alpha1.WaveWaiting, wave.Phase)
	how := "convoy approve team-a/shop --wave 1 --digest " + in.Sync.Digest + " (or convoy reject), until 2026-01-02T12:00:00Z"
	require.Equal(t, []v1alpha1.Blocker{{Object: "approval", Message: how, Since: metav1.NewTime(w.now)}}, wave.BlockedBy)
	require.Equal(t, in.Sync.Digest, wave.Approval.Digest)
	require.Empty(t, wave.Approval.Decision)
	applied := meta.FindStatusCondition(w.rel.Status.Conditions, "Applied")
	require.Equal(t, "WaitingForWave", applied.Reason)
	require.Equal(t, "wave 1 waits for an approval of render "+release.ShortDigest(in.Sync.Digest)+": "+how, applied.Message)
	require.Equal(t, "event ApprovalRequired", w.changes("event"))
	w.now = w.now.Add(time.Hour)
	w.succeeds(w.a.AnnounceApproval, in, nil)
	require.Equal(t, wave.BlockedBy[0].Since.UTC(), w.rel.Status.Waves[1].BlockedBy[0].Since.UTC())

	for decision, event := range map[v1alpha1.ApprovalDecision]string{
		v1alpha1.Approved: "Approved", v1alpha1.Rejected: "Rejected", v1alpha1.Expired: "ApprovalExpired",
	} {
		w.calls, w.events = nil, nil
		in.Approval.Decision, in.Approval.By, in.Approval.Reason = decision, "alice", "because"
		w.succeeds(w.a.RecordApproval, in, nil)
		require.Equal(t, decision, w.rel.Status.Waves[1].Approval.Decision)
		require.Equal(t, "event "+event, w.changes("event"))
		require.Contains(t, w.events[0], "at wave 1")
	}
}

// The approval of the final gate stands beside that of the last wave; a render without objects has a wave for it.
func TestApproval_of_the_final_gate(t *testing.T) {
	w := newWorld(t, cm("a", 0), cm("b", 1))
	in := ApprovalInput{WaveInput: w.atFinalGate(), Approval: v1alpha1.ApprovalStatus{Digest: w.sync().Digest}}
	w.rel.Status.Waves = []v1alpha1.WaveStatus{{Wave: 1, Phase: v1alpha1.WaveApplied, Approval: &v1alpha1.ApprovalStatus{Decision: v1alpha1.Approved}}}
	w.succeeds(w.a.AnnounceApproval, in, nil)
	wave := w.rel.Status.Waves[1]
	require.Equal(t, v1alpha1.WaveApplied, wave.Phase)
	require.Equal(t, v1alpha1.Approved, wave.Approval.Decision)
	require.Equal(t, in.Sync.Digest, wave.FinalApproval.Digest)
	require.Contains(t, wave.BlockedBy[0].Message, "convoy approve team-a/shop --final --digest")

	w = newWorld(t, "# nothing\n")
	in.WaveInput = WaveInput{Sync: w.sync(), Final: true}
	in.Approval.Decision, in.Approval.By, in.Approval.Digest = v1alpha1.Rejected, "alice", in.Sync.Digest
	w.succeeds(w.a.RecordApproval, in, nil)
	require.Len(t, w.rel.Status.Waves, 1)
	require.Equal(t, "alice", w.rel.Status.Waves[0].FinalApproval.By)
}

// D33: after a rejection nothing is due, and the status says who rejected and what lifts it; so it stays with each look,
// and ends with a request.
func TestRecordSync_D33_a_rejection_rests(t *testing.T) {
	w := newWorld(t, cm("a", 0), cm("b", 1))
	rejected := &v1alpha1.ApprovalStatus{Decision: v1alpha1.Rejected, By: "alice", Digest: w.sync().Digest}
	w.rel.Status.Waves = []v1alpha1.WaveStatus{{Wave: 0, Phase: v1alpha1.WaveApplied, BlockedBy: []v1alpha1.Blocker{{}}}, {Wave: 1, Phase: v1alpha1.WaveWaiting, Approval: rejected}}
	w.succeeds(w.a.RecordSync, Outcome{
		Sync: w.sync(), Reason: "Superseded", Message: "rejected by alice at wave 1", Rejected: true, Loop: &LoopRef{},
	}, nil)
	rests := func() {
		t.Helper()
		require.Equal(t, "False Superseded", w.condition("Applied"))
		require.Equal(t, "False Superseded", w.condition("Ready"))
		require.Equal(t, "False Rejected", w.condition("Reconciling"))
		require.Equal(t, "False Superseded", w.condition("Stalled"))
		require.Equal(t, "rejected by alice at wave 1; no sync of this render starts by itself: another render, a change of the Release, or `convoy sync team-a/shop` starts one",
			meta.FindStatusCondition(w.rel.Status.Conditions, "Reconciling").Message)
		require.Equal(t, rejected, w.rel.Status.Waves[1].Approval)
	}
	rests()
	require.Equal(t, v1alpha1.WavePending, w.rel.Status.Waves[1].Phase)
	require.Empty(t, w.rel.Status.Waves[0].BlockedBy)

	seen, _ := w.observes(w.glance())
	require.Equal(t, release.ActNothing, seen.Action)
	require.Equal(t, "rejected by alice at wave 1", seen.Cause)
	rests()
	w.rel.Spec.Suspend = true
	_, _ = w.observes(w.glance())
	require.Equal(t, "False Suspended", w.condition("Reconciling"))
	w.rel.Spec.Suspend = false
	_, _ = w.observes(w.glance())
	rests()

	asked := w.glance()
	asked.Requests = []string{"r1"}
	seen, _ = w.observes(asked)
	require.Equal(t, release.ActSync, seen.Action)
	w.rendersAnew()
	seen, _ = w.observes(w.glance())
	require.Equal(t, release.ActSync, seen.Action)
}
