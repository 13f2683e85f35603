package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// approvedAt makes a wave wait for a person; without expires it waits on.
func approvedAt(wave int32, expires time.Duration) func(*v1alpha1.Release) {
	return func(rel *v1alpha1.Release) {
		rel.Spec.SyncPolicy.Waves = append(rel.Spec.SyncPolicy.Waves, v1alpha1.WavePolicy{Wave: wave, Approval: approvalFor(expires)})
	}
}

func approvalFor(expires time.Duration) *v1alpha1.Approval {
	approval := &v1alpha1.Approval{Required: true}
	if expires > 0 {
		approval.Expires = &metav1.Duration{Duration: expires}
	}
	return approval
}

// expression judges the wave before by CEL.
func expression(current, failed string) v1alpha1.WaveHealth {
	return v1alpha1.WaveHealth{Strategy: v1alpha1.HealthExpression, Current: current, Failed: failed}
}

// asksFor waits until a wave's status says that it waits for an approval of another render than before, and returns the
// digest.
func (w *world) asksFor(name string, wave int32, before string) (digest string) {
	w.Helper()
	w.eventually("an approval is asked for", func() error {
		status := w.get(name).Status
		for _, one := range status.Waves {
			for _, approval := range []*v1alpha1.ApprovalStatus{one.Approval, one.FinalApproval} {
				if one.Wave == wave && approval != nil && approval.Decision == "" && approval.Digest != before && status.LastAttempted.Result == v1alpha1.ResultRunning {
					digest = approval.Digest
					return nil
				}
			}
		}
		return fmt.Errorf("it is %s: %s", w.applied(name), w.message(name))
	})
	return digest
}

// looked waits until the done key of the front blocks wave 1 with these words.
func (w *world) blockedBy(name, object, words string) {
	w.Helper()
	w.eventually("wave 1 is blocked", func() error {
		for _, wave := range w.get(name).Status.Waves {
			for _, blocker := range wave.BlockedBy {
				if strings.Contains(blocker.Object, object) && strings.Contains(blocker.Message, words) {
					return nil
				}
			}
		}
		return errors.New(w.message(name))
	})
}

// sets writes a key into a ConfigMap, as somebody else's program does.
func (w *world) sets(configMap, key, value string) {
	w.Helper()
	w.kubectl("", "patch", "configmap", "-n", w.ns, configMap, "--type=merge", "-p", fmt.Sprintf(`{"data":{%q:%q}}`, key, value))
}

// D24: a gate by CEL has three outcomes. What the object does not have yet makes the wave wait, and says so.
func TestGates_expression(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	render := manifest(w.ns, "front", 0, "1") + manifest(w.ns, "after", 1, "1")
	w.release("shop", render, gatedBy(1, expression("data.done == 'yes'", "has(data.done) && data.done == 'no'")))
	run := w.start(syncOf("shop"))
	w.blockedBy("shop", "ConfigMap "+w.ns+"/front", "current: no such key: done")
	require.Equal(t, "False/WaitingForWave", w.applied("shop"))
	require.Contains(t, w.query(run).WaitingFor, "wave 1: wait for wave 0 to be healthy")
	w.sets("front", "done", "nearly")
	w.blockedBy("shop", "front", "not true yet: data.done == 'yes'")
	require.Nil(t, w.configMap("after"))
	w.sets("front", "done", "yes")
	_, reason := w.await(run)
	require.Equal(t, "Succeeded", reason)
	require.NotNil(t, w.configMap("after"))

	w.sets("front", "done", "no")
	message := w.fails("shop", "DeployFailed")
	require.Contains(t, message, "wave 1 cannot begin: ConfigMap "+w.ns+"/front of wave 0 has failed: its failed expression is true")

	w.update("shop", func(rel *v1alpha1.Release) { rel.Spec.SyncPolicy.Waves[0].Health.Current = "data.dnoe == yes" })
	message = w.fails("shop", "RenderFailed")
	require.Contains(t, message, "spec.syncPolicy.waves[wave 1].health.current, column 14: undeclared reference to 'yes'")
	require.Equal(t, "True/RenderFailed", w.condition("shop", v1alpha1.ConditionStalled))
}

// The API server refuses gates that mean nothing, with the remedy.
func TestGates_that_mean_nothing_are_refused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for says, policy := range map[string]v1alpha1.WavePolicy{
		"current belongs to the strategy Expression": {Wave: 1, Health: &v1alpha1.WaveHealth{Strategy: v1alpha1.HealthExpression}},
		"current belongs to":                         {Wave: 1, Health: &v1alpha1.WaveHealth{Strategy: v1alpha1.HealthReady, Current: "true"}},
		"failed belongs to the strategy Expression":  {Wave: 1, Health: &v1alpha1.WaveHealth{Strategy: v1alpha1.HealthReady, Failed: "true"}},
		"seconds belongs to the strategy Delay":      {Wave: 1, Health: &v1alpha1.WaveHealth{Strategy: v1alpha1.HealthExpression, Current: "true", Seconds: new(int32(1))}},
		"may not be more than 2048":                  {Wave: 1, Health: &v1alpha1.WaveHealth{Strategy: v1alpha1.HealthExpression, Current: strings.Repeat("x", 3000)}},
		"expires is at least 1s":                     {Wave: 1, Approval: approvalFor(time.Millisecond)},
	} {
		render := oneConfigMap(w.ns, "a", "1")
		rel := &v1alpha1.Release{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "shop"}}
		rel.Spec.Source.Inline = &render
		rel.Spec.SyncPolicy.Waves = []v1alpha1.WavePolicy{policy}
		require.ErrorContains(t, w.kube.Create(w.Context(), rel), says)
		rel.Spec.SyncPolicy.Waves, rel.Spec.SyncPolicy.FinalGate = nil, &v1alpha1.FinalGate{Health: policy.Health, Approval: policy.Approval}
		require.ErrorContains(t, w.kube.Create(w.Context(), rel), says)
	}
}

// D23 D33: a wave waits for a person, who decides with convoy. A word for another render is refused, a second one changes
// nothing, and the same render is not asked for again.
func TestGates_approval_by_convoy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", manifest(w.ns, "a", 0, "1")+manifest(w.ns, "b", 1, "1"), approvedAt(1, time.Hour))
	arg := w.ns + "/shop"
	run := w.start(syncOf("shop"))
	digest := w.asksFor("shop", 1, "")
	require.Equal(t, "False/WaitingForWave", w.applied("shop"))
	require.Contains(t, w.message("shop"), "convoy approve "+arg+" --wave 1 --digest "+digest)
	require.Nil(t, w.configMap("b"))

	code, out := w.commandLine("approve", arg)
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "wave 1 waits for an approval of\n")
	require.Contains(t, out, "--digest "+digest)
	other := "sha256:" + strings.Repeat("0", 64)
	code, out = w.commandLine("approve", arg, "--digest", other)
	require.Equal(t, 17, code, out)
	require.Contains(t, out, "the word is for render "+other+", and this sync is of "+digest)
	code, out = w.commandLine("approve", arg, "--wave", "7", "--digest", digest)
	require.Equal(t, 17, code, out)
	require.Contains(t, out, "one is at: wave 1")

	code, out = w.commandLine("approve", arg, "--yes", "--by", "alice", "--reason", "the figures look right")
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "is approved by alice")
	_, reason := w.await(run)
	require.Equal(t, "Succeeded", reason)
	approval := w.wave("shop", 1).Approval
	require.Equal(t, v1alpha1.Approved, approval.Decision)
	require.Equal(t, "alice: the figures look right", approval.By+": "+approval.Reason)
	require.Empty(t, w.wave("shop", 1).BlockedBy)
	events := w.kubectl("", "get", "events", "-n", w.ns, "-o", "jsonpath={.items[*].reason}")
	require.Contains(t, events, "ApprovalRequired")
	require.Contains(t, events, "Approved")
	require.Contains(t, w.convoy("status", arg), "wave 1: approved by alice")

	code, out = w.commandLine("approve", arg, "--yes")
	require.Equal(t, 17, code, out)
	require.Contains(t, out, "its last sync ended as Succeeded")
	code, out = w.commandLine("approve", arg, "--digest", digest)
	require.Equal(t, 17, code, out)
	require.Contains(t, out, "no sync of Release "+arg+" runs, so nothing waits for an approval: the last one")

	w.succeeds("shop") // the same render: nobody is asked again
	require.Equal(t, approval, w.wave("shop", 1).Approval)
}

// The way of docs/waves.md without convoy: Temporal's own command line sends the updates.
func TestGates_approval_by_temporal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", manifest(w.ns, "a", 0, "1")+manifest(w.ns, "b", 1, "1"), approvedAt(1, 0))
	run := w.start(syncOf("shop"))
	digest := w.asksFor("shop", 1, "")
	update := func(input string) (string, error) {
		return w.temporalCLI("workflow", "update", "execute", "--workflow-id", run.GetID(), "--name", "approve", "--input", input)
	}
	out, err := update(`{"digest":"sha256:0","by":"alice"}`)
	require.Error(t, err)
	require.Contains(t, out, "this sync is of "+digest)
	out, err = update(fmt.Sprintf(`{"digest":%q}`, digest))
	require.Error(t, err)
	require.Contains(t, out, "by is empty")
	out, err = update(fmt.Sprintf(`{"digest":%q,"wave":1,"by":"alice","reason":"the figures look right"}`, digest))
	require.NoError(t, err, out)
	require.Contains(t, out, "Approved")
	_, reason := w.await(run)
	require.Equal(t, "Succeeded", reason)
	require.Equal(t, "alice", w.wave("shop", 1).Approval.By)
}

// D23: another render supersedes a wait for a person at once, and the word for the old one counts no more.
func TestGates_approval_of_a_superseded_render(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", manifest(w.ns, "a", 0, "1")+manifest(w.ns, "b", 1, "1"), approvedAt(1, 0))
	arg := w.ns + "/shop"
	w.loop("shop")
	first := w.asksFor("shop", 1, "")
	w.render("shop", manifest(w.ns, "a", 0, "1")+manifest(w.ns, "b", 1, "2"))
	require.NoError(t, w.temporal.SignalWorkflow(w.Context(), "release:"+w.ns+":shop", "", workflows.SignalReconcile, nil))
	second := w.asksFor("shop", 1, first)
	require.Nil(t, w.configMap("b"))

	code, out := w.commandLine("approve", arg, "--wave", "1", "--digest", first, "--by", "alice")
	require.Equal(t, 17, code, out)
	require.Contains(t, out, "the word is for render "+first+", and this sync is of "+second)
	code, out = w.commandLine("approve", arg, "--wave", "1", "--digest", second, "--by", "alice")
	require.Equal(t, 0, code, out)
	w.becomes("shop", "True/Succeeded")
	require.Equal(t, "2", w.configMap("b").Data["v"])
}

// D23 D33: a rejected render rests: the loop looks, and starts nothing, until somebody asks for a sync.
func TestGates_approval_rejected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", manifest(w.ns, "a", 0, "1")+manifest(w.ns, "b", 1, "1"), func(rel *v1alpha1.Release) {
		approvedAt(1, 0)(rel)
		every(2 * time.Second)(rel)
	})
	arg := w.ns + "/shop"
	w.loop("shop")
	w.asksFor("shop", 1, "")
	code, out := w.commandLine("reject", arg, "--yes", "--by", "alice", "--reason", "not on a Friday")
	require.Equal(t, 0, code, out)
	w.becomes("shop", "False/Superseded")
	require.Equal(t, "rejected by alice at wave 1: not on a Friday", w.message("shop"))
	status := w.get("shop").Status
	for range 2 { // looks
		next := w.get("shop").Status.NextReconcileAt
		w.eventually("the loop has looked", func() error {
			if got := w.get("shop").Status.NextReconcileAt; got == nil || !got.After(next.Time) {
				return fmt.Errorf("the next look is at %v", got)
			}
			return nil
		})
	}
	require.Equal(t, status.LastAttempted.RunID, w.get("shop").Status.LastAttempted.RunID, "no sync has begun")
	require.Equal(t, "False/Rejected", w.condition("shop", v1alpha1.ConditionReconciling))
	require.Equal(t, v1alpha1.Rejected, w.wave("shop", 1).Approval.Decision)
	require.Equal(t, []string{w.cm("a")}, w.inventory("shop"))

	code, out = w.commandLine("sync", arg)
	require.Equal(t, 0, code, out)
	w.asksFor("shop", 1, "")
	code, out = w.commandLine("approve", arg, "--yes", "--by", "bob")
	require.Equal(t, 0, code, out)
	w.becomes("shop", "True/Succeeded")
}

// D24: the final gate stands between the last wave and the prune; an approval that nobody gives expires.
func TestGates_final_gate_before_the_prune(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", manifest(w.ns, "a", 0, "1")+manifest(w.ns, "old", 0, "1"), nil)
	arg := w.ns + "/shop"
	w.succeeds("shop")
	w.update("shop", func(rel *v1alpha1.Release) {
		render := manifest(w.ns, "a", 0, "2")
		health := expression("data.v == '2'", "")
		rel.Spec.Source.Inline = &render
		rel.Spec.SyncPolicy.FinalGate = &v1alpha1.FinalGate{Health: &health, Approval: approvalFor(time.Second)}
	})
	message := w.fails("shop", "WaveTimeout")
	require.Contains(t, message, "at the final gate within 1s; the next sync asks again")
	require.NotNil(t, w.configMap("old"))
	require.Equal(t, "2", w.configMap("a").Data["v"])
	require.Equal(t, v1alpha1.Expired, w.wave("shop", 0).FinalApproval.Decision)
	require.Equal(t, v1alpha1.WaveApplied, w.wave("shop", 0).Phase)

	w.update("shop", func(rel *v1alpha1.Release) { rel.Spec.SyncPolicy.FinalGate.Approval = approvalFor(0) })
	run := w.start(syncOf("shop"))
	digest := w.asksFor("shop", 0, "")
	require.Equal(t, "False/WaitingForWave", w.applied("shop"))
	require.Contains(t, w.message("shop"), "the final gate waits for an approval")
	require.Equal(t, v1alpha1.WaveApplied, w.wave("shop", 0).Phase)
	require.NotNil(t, w.configMap("old"))
	code, out := w.commandLine("approve", arg, "--final", "--digest", digest, "--by", "alice")
	require.Equal(t, 0, code, out)
	_, reason := w.await(run)
	require.Equal(t, "Succeeded", reason)
	require.Nil(t, w.configMap("old"))
	require.Empty(t, w.wave("shop", 0).BlockedBy)
	require.Equal(t, []string{w.cm("a")}, w.inventory("shop"))
}

// D23: a wait for a person needs no worker, survives its death, and a word that finds none is taken by the next.
func TestGates_approval_survives_the_worker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.worker()
	w.release("shop", manifest(w.ns, "a", 0, "1")+manifest(w.ns, "b", 1, "1"), approvedAt(1, 0))
	run := w.start(syncOf("shop"))
	digest := w.asksFor("shop", 1, "")
	first.kill()
	require.Empty(t, w.pending(run), "no activity waits")

	w.worker()
	code, out := w.commandLine("approve", w.ns+"/shop", "--wave", "1", "--digest", digest, "--by", "alice")
	require.Equal(t, 0, code, out)
	_, reason := w.await(run)
	require.Equal(t, "Succeeded", reason)
}

// pending are the ids of the activities of a run that have not ended.
func (w *world) pending(run client.WorkflowRun) []string {
	w.Helper()
	described, err := w.temporal.DescribeWorkflowExecution(w.Context(), run.GetID(), run.GetRunID())
	require.NoError(w, err)
	var ids []string
	for _, activity := range described.GetPendingActivities() {
		ids = append(ids, activity.GetActivityId())
	}
	return ids
}

// S17 D24: a flapping object and a slow one. Each is healthy for a time, and the wave begins only when both are at one
// look.
func TestGates_flapping_and_slow_objects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", stuckPod(w.ns, "flapping", 0)+stuckPod(w.ns, "slow", 0)+manifest(w.ns, "after", 1, "1"), gatedBy(1, ready(0)))
	run := w.start(syncOf("shop"))
	w.blockedBy("shop", "Pod "+w.ns+"/flapping", "")
	blocked := func(want string) {
		w.eventually("blocked by "+want, func() error {
			var names []string
			for _, blocker := range w.wave("shop", 1).BlockedBy {
				names = append(names, strings.TrimPrefix(blocker.Object, "Pod "+w.ns+"/"))
			}
			if got := strings.Join(names, " "); got != want {
				return errors.New(got)
			}
			return nil
		})
	}
	w.becomesReady("flapping")
	blocked("slow")
	w.kubectl("", "patch", "pod", "-n", w.ns, "flapping", "--subresource=status", "--type=merge", "-p",
		`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
	blocked("flapping slow")
	w.becomesReady("slow")
	blocked("flapping")
	require.Nil(t, w.configMap("after"))
	w.becomesReady("flapping")
	_, reason := w.await(run)
	require.Equal(t, "Succeeded", reason)
}
