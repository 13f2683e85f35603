package activities

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
)

// S29 S30 D33: every end is recorded; lastSuccessful and the history move only when the render was applied.
func TestRecordSync_S30_lastSuccessful_moves_only_with_a_success(t *testing.T) {
	for reason, result := range map[release.Reason]v1alpha1.AttemptResult{
		release.Succeeded: v1alpha1.ResultSucceeded, release.Superseded: v1alpha1.ResultSuperseded,
		release.Unappliable: v1alpha1.ResultFailed, release.RenderFailed: v1alpha1.ResultFailed, release.DeployFailed: v1alpha1.ResultFailed,
		release.PruneFailed: v1alpha1.ResultFailed, release.HookFailed: v1alpha1.ResultFailed, release.WaveTimeout: v1alpha1.ResultFailed,
	} {
		t.Run(string(reason), func(t *testing.T) {
			w := newWorld(t, cm("a", 0))
			before := &v1alpha1.Success{Digest: "sha256:before"}
			w.rel.Status.LastSuccessful = before
			w.succeeds(w.a.RecordSync, Outcome{Sync: w.sync(), Reason: string(reason), Message: "so it ended"}, nil)
			last := w.rel.Status.LastAttempted
			require.Equal(t, result, last.Result)
			require.Equal(t, string(reason), last.Reason)
			require.Equal(t, "so it ended", last.Message)
			require.NotNil(t, last.FinishedAt)
			require.True(t, w.rel.Status.Fence.Acknowledged)
			if reason == release.Succeeded {
				require.Equal(t, w.sync().Digest, w.rel.Status.LastSuccessful.Digest)
				require.Len(t, w.rel.Status.History, 1)
				return
			}
			require.Equal(t, before, w.rel.Status.LastSuccessful)
			require.Empty(t, w.rel.Status.History)
		})
	}
}

// D35: once another sync has begun nothing is written.
func TestRecordSync_D35_writes_nothing_once_another_sync_has_begun(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	in := Outcome{Sync: w.sync(), Reason: string(release.Succeeded)}
	w.rel.Status.Fence.Number++
	w.succeeds(w.a.RecordSync, in, nil)
	require.Empty(t, w.calls)
	require.Nil(t, w.rel.Status.LastSuccessful)
}

// S31 D33: nobody works on a wave any more, nor waits for one.
func TestRecordSync_S31_leaves_no_wave_at_work(t *testing.T) {
	for reason, phase := range map[release.Reason]v1alpha1.WavePhase{release.WaveTimeout: v1alpha1.WaveFailed, release.Superseded: v1alpha1.WavePending} {
		w := newWorld(t, cm("a", 0))
		w.rel.Status.Waves = []v1alpha1.WaveStatus{{Wave: 0, Phase: v1alpha1.WaveApplied}, {Wave: 1, Phase: v1alpha1.WaveWaiting}, {Wave: 2, Phase: v1alpha1.WavePending}}
		w.succeeds(w.a.RecordSync, Outcome{Sync: w.sync(), Reason: string(reason)}, nil)
		require.Equal(t, v1alpha1.WaveApplied, w.rel.Status.Waves[0].Phase)
		require.Equal(t, phase, w.rel.Status.Waves[1].Phase)
		require.Equal(t, v1alpha1.WavePending, w.rel.Status.Waves[2].Phase)
	}
}

// recorded is the end of a sync that the loop has started.
func (w *world) recorded(reason release.Reason, loop LoopRef) Outcome {
	w.t.Helper()
	w.calls = nil
	in := Outcome{Sync: w.sync(), Reason: string(reason), Message: "so it ended", Loop: &loop, ParentRunID: "the loop's run"}
	w.succeeds(w.a.RecordSync, in, nil)
	return in
}

// D26: every request that a sync served is answered with its end.
func TestRecordSync_D26_answers_the_requests(t *testing.T) {
	for reason, result := range map[release.Reason]string{release.Succeeded: "Succeeded", release.Superseded: "Superseded", release.PruneFailed: "Failed"} {
		w := newWorld(t, cm("a", 0))
		in := w.recorded(reason, LoopRef{Requests: []string{"r1", "r2"}})
		want := v1alpha1.HandledRequest{ID: "r2", Result: result, Reason: string(reason), Message: "so it ended", Digest: in.Sync.Digest, RunID: "default-test-run-id"}
		require.Equal(t, want, w.rel.Status.LastHandledRequests[0], "newest first")
		require.Equal(t, "r1", w.rel.Status.LastHandledRequests[1].ID)
		require.EqualValues(t, 2, w.rel.Status.HandledRequestsTotal)
		require.Equal(t, "status", w.changes("status"), "in the write of the end")
		w.succeeds(w.a.RecordSync, in, nil)
		require.EqualValues(t, 2, w.rel.Status.HandledRequestsTotal, "a second attempt answers nothing again")
	}
}

// D26 D35: status holds 20 answers; of more each is to be seen, so they come in portions, and the annotation's stays.
func TestRecordSync_D26_answers_many_requests_in_portions(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	w.rel.Annotations = map[string]string{v1alpha1.AnnotationSyncRequested: "r0"}
	in := w.recorded(release.Succeeded, LoopRef{Requests: numbered("r", 45)})
	require.Equal(t, "status, status, status", w.changes("status"))
	require.Len(t, w.rel.Status.LastHandledRequests, 20)
	require.Equal(t, "r44", w.rel.Status.LastHandledRequests[0].ID)
	require.True(t, release.Handled(w.rel.Status.LastHandledRequests, "r0"))
	require.EqualValues(t, 45, w.rel.Status.HandledRequestsTotal)
	require.Equal(t, v1alpha1.ResultSucceeded, w.rel.Status.LastAttempted.Result)

	w.rel.Status.Fence.Number++
	w.calls = nil
	in.Loop.Requests = numbered("s", 45)
	w.succeeds(w.a.RecordSync, in, nil)
	require.Empty(t, w.calls, "D35: another sync has begun")
}

// D10 D35: the message of an answer is cut at a character.
func TestRecordSync_D35_cuts_the_message_of_an_answer(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	message := strings.Repeat("ü", 1000)
	w.succeeds(w.a.RecordSync, Outcome{Sync: w.sync(), Reason: "DeployFailed", Message: message, Loop: &LoopRef{Requests: []string{"r1"}}}, nil)
	require.Equal(t, strings.Repeat("ü", 150)+"…", w.rel.Status.LastHandledRequests[0].Message)
	require.Equal(t, message, w.rel.Status.LastAttempted.Message)
}

// D22 D33: status says when the loop looks again, and where that is a retry, that it is one.
func TestRecordSync_D22_says_when_the_retry_is_due(t *testing.T) {
	for name, c := range map[string]struct {
		reason      release.Reason
		unreachable bool
		failures    int
		retry       int
		reconciling string
	}{
		"succeeded":             {release.Succeeded, false, 4, 0, "False Succeeded"},
		"unappliable":           {release.Unappliable, false, 4, 0, "False Unappliable"},
		"timeout":               {release.WaveTimeout, false, 4, 0, "False WaveTimeout"},
		"bad render":            {release.RenderFailed, false, 4, 0, "False RenderFailed"},
		"source out of reach":   {release.RenderFailed, true, 0, 1, "True RenderFailed"},
		"first failure":         {release.DeployFailed, false, 0, 1, "True DeployFailed"},
		"fourth failure":        {release.PruneFailed, false, 3, 4, "True PruneFailed"},
		"hook":                  {release.HookFailed, false, 1, 2, "True HookFailed"},
		"superseded by another": {release.Superseded, false, 4, 0, "True Superseded"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cm("a", 0))
			in := Outcome{Sync: w.sync(), Reason: string(c.reason), Message: "x", Loop: &LoopRef{Failures: c.failures}}
			in.Sync.Unreachable = c.unreachable
			w.succeeds(w.a.RecordSync, in, nil)
			next := release.CadenceOf(w.rel.Spec).Next("u", w.now, c.retry)
			require.True(t, w.rel.Status.NextReconcileAt.Time.Equal(next.Truncate(time.Second)))
			require.Equal(t, c.reconciling, w.condition("Reconciling"))
			doing := meta.FindStatusCondition(w.rel.Status.Conditions, "Reconciling").Message
			require.Equal(t, c.retry > 0, strings.HasPrefix(doing, fmt.Sprintf("failed %s in a row; to be synced again at about ", release.Count(c.retry, "time"))), doing)
		})
	}
	w := newWorld(t, cm("a", 0))
	w.succeeds(w.a.RecordSync, Outcome{Sync: w.sync(), Reason: "DeployFailed"}, nil)
	require.Nil(t, w.rel.Status.NextReconcileAt, "a sync without a loop has no next one")
}

// The loop is told of the end once it is recorded; a Release that is gone has none.
func TestRecordSync_tells_the_loop(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	in := w.recorded(release.DeployFailed, LoopRef{})
	require.Equal(t, []string{"status", "event DeployFailed", "tell release:team-a:shop the loop's run"}, w.calls)
	w.fail["tell release:team-a:shop the loop's run"] = errors.New("Temporal is out of reach")
	require.Contains(t, w.fails(w.a.RecordSync, in, Waiting), "Temporal is out of reach")
	w.rel, w.calls = nil, nil
	w.succeeds(w.a.RecordSync, in, nil)
	require.Empty(t, w.calls)
}

// D21: the event about what left the inventory is a sentence, of one object as of more.
func TestRecordSync_D21_names_what_left_the_inventory(t *testing.T) {
	for _, c := range []struct {
		left Named
		says string
	}{
		{Named{Objects: []string{"ConfigMap team-a/a"}, Total: 1}, "1 object left the inventory and stays on the cluster: ConfigMap team-a/a"},
		{Named{Objects: []string{"ConfigMap team-a/a", "Namespace b"}, Total: 22}, "22 objects left the inventory and stay on the cluster: ConfigMap team-a/a; Namespace b"},
	} {
		w := newWorld(t, cm("a", 0))
		w.succeeds(w.a.RecordSync, Outcome{Sync: w.sync(), Reason: string(release.Succeeded), Exact: true, Orphaned: c.left}, nil)
		require.Contains(t, w.events, c.says)
	}
}

// The sentence about a deletion, of one object as of more.
func TestFinishInput_says(t *testing.T) {
	one, two := Named{Objects: []string{"a"}, Total: 1}, Named{Objects: []string{"b", "c"}, Total: 2}
	require.Equal(t, "the Release goes, and 1 of its objects is deleted; 1 stays: a; 2 are held by finalizers: b, c",
		FinishInput{Deleted: 1, Kept: one, Terminating: two}.says())
	require.Equal(t, "the Release goes, and 0 of its objects are deleted; 2 stay: b, c; 1 is held by finalizers: a",
		FinishInput{Kept: two, Terminating: one}.says())
}

// D22 D33: a Release whose syncs fail again and again is stuck: Stalled beside Reconciling, since the retries go on.
func TestRecordSync_D22_failures_in_a_row_are_stuck(t *testing.T) {
	for failures, want := range map[int]string{3: "False DeployFailed", 4: "True Stuck"} {
		w := newWorld(t, cm("a", 0))
		w.succeeds(w.a.RecordSync, Outcome{Sync: w.sync(), Reason: "DeployFailed", Message: "no", Loop: &LoopRef{Failures: failures}}, nil)
		stalled := meta.FindStatusCondition(w.rel.Status.Conditions, "Stalled")
		require.Equal(t, want, string(stalled.Status)+" "+stalled.Reason)
		require.Equal(t, failures == 4, strings.Contains(w.changes("event"), "event Stuck"))
		require.True(t, meta.IsStatusConditionTrue(w.rel.Status.Conditions, "Reconciling"))
	}
}

// D16: a run that was reset in Temporal goes on under its fence, once nothing of the run before can be on its way; status
// leads to it from then on.
func TestSync_D16_a_reset_run_takes_its_fence_over(t *testing.T) {
	w := newWorld(t, cm("a", 0), cm("b", 1))
	in := WaveInput{Sync: w.sync(), Wave: 0, Blocks: 1}
	w.rel.Status.Fence.RunID, w.rel.Status.Fence.Acknowledged = "before the reset", false
	w.rel.Status.LastAttempted = &v1alpha1.Attempt{RunID: "before the reset"}
	w.health = release.Health{Healthy: true}
	w.closedAt = w.now.Add(time.Second - heartbeat)
	require.Contains(t, w.fails(w.a.AwaitWave, in, Waiting), "was reset: waiting 1s")
	require.Empty(t, w.calls)
	w.closedAt = w.now.Add(-heartbeat)
	w.succeeds(w.a.AwaitWave, in, nil)
	require.Equal(t, testRun, w.rel.Status.Fence.RunID)
	require.Equal(t, in.Sync.Fence, w.rel.Status.Fence.Number)
	require.Equal(t, testRun, w.rel.Status.LastAttempted.RunID)
	require.Equal(t, v1alpha1.ResultRunning, w.rel.Status.LastAttempted.Result)
	w.calls = nil
	w.succeeds(w.a.AwaitWave, in, nil)
	require.Equal(t, "health a", strings.Join(w.calls, ", "), "it costs one write")
}

// D23: a decision that came early is kept by the end of the sync, whatever that was.
func TestRecordSync_keeps_early_decisions(t *testing.T) {
	w := newWorld(t, cm("a", 0), cm("b", 2))
	sync := w.sync()
	given := v1alpha1.ApprovalStatus{Decision: v1alpha1.Approved, By: "ann", Digest: sync.Digest}
	w.succeeds(w.a.RecordSync, Outcome{Sync: sync, Reason: "WaveTimeout", Decisions: []ApprovalInput{
		{WaveInput: WaveInput{Sync: sync, Blocks: 2}, Approval: given}, {WaveInput: WaveInput{Sync: sync, Blocks: 2, Final: true}, Approval: given},
	}}, nil)
	require.Equal(t, &given, release.HeldApproval(w.rel.Status, 2, false, sync.Digest))
	require.Equal(t, &given, release.HeldApproval(w.rel.Status, 2, true, sync.Digest))
	require.Nil(t, release.HeldApproval(w.rel.Status, 0, false, sync.Digest))
}
