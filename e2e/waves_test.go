package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// app is a Deployment; the tag of its image chooses what becomes of it: "bad" is never Ready.
func app(ns, name string, wave int, tag string) string {
	return fmt.Sprintf(`---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[2]s, namespace: %[1]s, annotations: {convoy.dev/sync-wave: "%[3]d"}}
spec:
  selector: {matchLabels: {app: %[2]s}}
  template:
    metadata: {labels: {app: %[2]s}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: "registry.example/app:%[4]s"}]}
`, ns, name, wave, tag)
}

// stuckPod is a Pod that is not Ready until becomesReady says so.
func stuckPod(ns, name string, wave int) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, annotations: {convoy.dev/sync-wave: "%d"}}
spec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: "registry.example/app:bad"}]}
`, name, ns, wave)
}

func (w *world) becomesReady(pod string) {
	w.Helper()
	w.kubectl("", "patch", "pod", "-n", w.ns, pod, "--subresource=status", "--type=merge", "-p",
		`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
}

// gatedBy puts a gate in front of a wave.
func gatedBy(wave int32, health v1alpha1.WaveHealth) func(*v1alpha1.Release) {
	return func(rel *v1alpha1.Release) {
		rel.Spec.SyncPolicy.Waves = append(rel.Spec.SyncPolicy.Waves, v1alpha1.WavePolicy{Wave: wave, Health: &health})
	}
}

// ready waits for the wave before to be Ready, for as long as timeout says, without end when it is zero.
func ready(timeout time.Duration) v1alpha1.WaveHealth {
	health := v1alpha1.WaveHealth{Strategy: v1alpha1.HealthReady}
	if timeout > 0 {
		health.Timeout = &metav1.Duration{Duration: timeout}
	}
	return health
}

func delay(seconds int32) v1alpha1.WaveHealth {
	return v1alpha1.WaveHealth{Strategy: v1alpha1.HealthDelay, Seconds: &seconds}
}

// waits waits until a sync has looked at a gate that often, and requires that it holds no worker between the looks.
func (w *world) waits(run client.WorkflowRun, wave int, looks int32) {
	w.Helper()
	found := w.pendingActivity(run, fmt.Sprintf("wave %d waits", wave), func(activity *workflowpb.PendingActivityInfo) bool {
		return activity.GetActivityId() == fmt.Sprintf("await-wave-%d", wave) && activity.GetAttempt() > looks &&
			activity.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED
	})
	require.Equal(w, "Waiting", found.GetLastFailure().GetApplicationFailureInfo().GetType())
}

// wave is the status of a wave.
func (w *world) wave(name string, number int32) v1alpha1.WaveStatus {
	w.Helper()
	for _, wave := range w.get(name).Status.Waves {
		if wave.Wave == number {
			return wave
		}
	}
	require.Fail(w, "no such wave in status", "%d", number)
	return v1alpha1.WaveStatus{}
}

// query asks a sync for its status.
func (w *world) query(run client.WorkflowRun) workflows.SyncStatus {
	w.Helper()
	var status workflows.SyncStatus
	answer, err := w.temporal.QueryWorkflow(w.Context(), run.GetID(), run.GetRunID(), "status")
	require.NoError(w, err)
	require.NoError(w, answer.Get(&status))
	return status
}

// cancel asks a sync to end and requires that it does.
func (w *world) cancel(run client.WorkflowRun) {
	w.Helper()
	require.NoError(w, w.temporal.CancelWorkflow(w.Context(), run.GetID(), run.GetRunID()))
	_, reason := w.await(run)
	require.Equal(w, "Canceled", reason)
}

// Case 67, S17 S20 S23 S31 D23 D24 D33: a Deployment changes from a good image to a bad one. Its status goes on saying
// Available, first about the old generation and then about the old Pods; the next wave is not begun for that.
func TestWaves_gate_does_not_trust_an_old_status(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gated := func(v string) string { return manifest(w.ns, "gated", 1, v) }
	w.release("shop", app(w.ns, "front", 0, "good")+gated("1")+manifest(w.ns, "old", 1, "1"), gatedBy(1, ready(0)))
	good := w.succeeds("shop")

	since := w.mark()
	w.render("shop", app(w.ns, "front", 0, "bad")+manifest(w.ns, "extra", 0, "1")+gated("2"))
	run := w.start(workflows.SyncInput{Name: "shop"})
	w.waits(run, 1, 1)
	first := w.wave("shop", 1)
	w.waits(run, 1, 3)

	require.Equal(t, "True", w.available("front"), "the old status is the trap")
	require.Equal(t, "False/WaitingForWave", w.applied("shop"))
	require.Contains(t, w.message("shop"), "Deployment "+w.ns+"/front")
	require.Equal(t, "True/WaitingForWave", w.condition("shop", v1alpha1.ConditionReconciling))
	require.Equal(t, v1alpha1.WaveApplied, w.wave("shop", 0).Phase)
	wave := w.wave("shop", 1)
	require.Equal(t, v1alpha1.WaveWaiting, wave.Phase)
	require.Zero(t, wave.Applied)
	require.Len(t, wave.BlockedBy, 1)
	require.Equal(t, "Deployment "+w.ns+"/front", strings.Replace(wave.BlockedBy[0].Object, "apps/", "", 1))
	require.NotEmpty(t, wave.BlockedBy[0].Message)
	require.False(t, wave.BlockedBy[0].Since.IsZero())
	require.Equal(t, first.BlockedBy[0].Since, wave.BlockedBy[0].Since, "since when it blocks does not change with each look")
	require.Equal(t, first.StartedAt, wave.StartedAt)

	require.Equal(t, "1", w.configMap("gated").Data["v"])
	require.Empty(t, said(filter(changes(w.requests(since)), about("configmaps", w.ns, "gated")))) // not for a moment
	require.NotNil(t, w.configMap("old"))
	front := "apps/Deployment/" + w.ns + "/front"
	union := []string{w.cm("extra"), w.cm("gated"), w.cm("old"), front}
	objects, pending := w.listed("shop")
	require.Equal(t, union, objects)
	require.Empty(t, pending)
	require.Equal(t, good.Digest, w.get("shop").Status.LastSuccessful.Digest)
	status := w.query(run)
	require.Equal(t, "apply", status.Step)
	require.Contains(t, status.WaitingFor, "wave 1: wait for wave 0")
	require.Equal(t, []v1alpha1.WavePhase{v1alpha1.WaveApplied, v1alpha1.WaveWaiting},
		[]v1alpha1.WavePhase{status.Waves[0].Phase, status.Waves[1].Phase})

	w.cancel(run)
	require.Equal(t, "False/Superseded", w.applied("shop"))
	require.Equal(t, v1alpha1.ResultSuperseded, w.get("shop").Status.LastAttempted.Result)
	require.Equal(t, good.Digest, w.get("shop").Status.LastSuccessful.Digest)
	require.Equal(t, v1alpha1.WavePending, w.wave("shop", 1).Phase, "nobody waits any more")
	require.Empty(t, w.wave("shop", 1).BlockedBy)
	require.Equal(t, union, w.inventory("shop"))
	require.Equal(t, "1", w.configMap("gated").Data["v"])

	w.render("shop", app(w.ns, "front", 0, "good2")+gated("3"))
	w.succeeds("shop")
	require.Equal(t, "3", w.configMap("gated").Data["v"])
	require.Nil(t, w.configMap("old"))
	require.Equal(t, []string{w.cm("gated"), front}, w.inventory("shop"))
}

// available is the status of a Deployment's condition Available.
func (w *world) available(name string) string {
	w.Helper()
	for _, condition := range w.list(w.deployment(name), "status", "conditions") {
		if condition["type"] == "Available" {
			return fmt.Sprint(condition["status"])
		}
	}
	return ""
}

// S17 S23 D23 D33: a wait with a timeout ends as WaveTimeout, and says still for what it waited. A mended render
// succeeds.
func TestWaves_wait_ends_with_its_timeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", manifest(w.ns, "old", 0, "1"), gatedBy(1, ready(2*time.Second)))
	w.succeeds("shop")
	w.render("shop", app(w.ns, "front", 0, "bad")+manifest(w.ns, "after", 1, "1"))
	message := w.fails("shop", "WaveTimeout")
	require.Contains(t, message, "2s")
	require.Equal(t, "True/WaveTimeout", w.condition("shop", v1alpha1.ConditionStalled))
	require.Equal(t, v1alpha1.WaveApplied, w.wave("shop", 0).Phase)
	failed := w.wave("shop", 1)
	require.Equal(t, v1alpha1.WaveFailed, failed.Phase)
	require.Len(t, failed.BlockedBy, 1)
	require.Contains(t, failed.BlockedBy[0].Object, "front")
	require.Nil(t, w.configMap("after"))
	require.NotNil(t, w.configMap("old"))
	front := "apps/Deployment/" + w.ns + "/front"
	require.Equal(t, []string{w.cm("old"), front}, w.inventory("shop"))

	w.update("shop", func(rel *v1alpha1.Release) {
		render := app(w.ns, "front", 0, "good") + manifest(w.ns, "after", 1, "1")
		rel.Spec.Source.Inline = &render
		rel.Spec.SyncPolicy.Waves[0].Health.Timeout = nil
	})
	w.succeeds("shop")
	require.Equal(t, []string{w.cm("after"), front}, w.inventory("shop"))
	require.Equal(t, v1alpha1.WaveApplied, w.wave("shop", 1).Phase)
	require.Empty(t, w.wave("shop", 1).BlockedBy)
}

// D24: an object that has failed for good ends the wait at once, although the gate has no timeout.
func TestWaves_failed_object_ends_the_wait_at_once(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	job := fmt.Sprintf(`---
apiVersion: batch/v1
kind: Job
metadata: {name: setup, namespace: %s}
spec:
  backoffLimit: 0
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: "registry.example/app:fail"}]}}
`, w.ns)
	// The Pod keeps the gate shut, so that the sync looks until it sees the Job fail.
	w.release("shop", job+stuckPod(w.ns, "front", 0)+manifest(w.ns, "after", 1, "1"), gatedBy(1, ready(0)))
	message := w.fails("shop", "DeployFailed")
	require.Contains(t, message, "Job "+w.ns+"/setup")
	require.Contains(t, message, "wave 1 cannot begin")
	require.Equal(t, v1alpha1.WaveApplied, w.wave("shop", 0).Phase)
	require.Equal(t, v1alpha1.WaveFailed, w.wave("shop", 1).Phase)
	require.Nil(t, w.configMap("after"))
	require.Equal(t, []string{"/Pod/" + w.ns + "/front", "batch/Job/" + w.ns + "/setup"}, w.inventory("shop"))
}

// D24: Delay waits so long after the wave before was applied, and says so.
func TestWaves_delay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", manifest(w.ns, "a", 0, "1")+manifest(w.ns, "b", 7, "1"), gatedBy(7, delay(4)))
	run := w.start(workflows.SyncInput{Name: "shop"})
	w.eventually("the delay is announced", func() error {
		if applied := w.applied("shop"); applied != "False/WaitingForWave" {
			return fmt.Errorf("Applied is %s", applied)
		}
		return nil
	})
	require.Contains(t, w.message("shop"), "wave 7 waits for wave 0")
	require.Equal(t, v1alpha1.WaveWaiting, w.wave("shop", 7).Phase)
	require.Contains(t, w.query(run).WaitingFor, "wave 7 waits 4s after wave 0")
	require.Nil(t, w.configMap("b"))
	_, reason := w.await(run)
	require.Equal(t, "Succeeded", reason)
	between := w.configMap("b").CreationTimestamp.Sub(w.configMap("a").CreationTimestamp.Time)
	require.GreaterOrEqual(t, between, 4*time.Second)
	require.Empty(t, w.wave("shop", 7).BlockedBy)

	w.update("shop", func(rel *v1alpha1.Release) {
		rel.Spec.SyncPolicy.Waves[0].Health = &v1alpha1.WaveHealth{
			Strategy: v1alpha1.HealthDelay, Seconds: new(int32(3600)), Timeout: &metav1.Duration{Duration: time.Second},
		}
	})
	w.fails("shop", "WaveTimeout")
	require.Equal(t, []string{w.cm("a"), w.cm("b")}, w.inventory("shop"))
}

// D24: nothing comes before the lowest wave that has objects, whatever its number: its strategy is satisfied at once.
func TestWaves_strategy_of_the_lowest_wave_is_satisfied_at_once(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("ready", app(w.ns, "front", -2, "bad"), gatedBy(-2, ready(time.Second)))
	w.succeeds("ready")
	w.release("delay", manifest(w.ns, "a", 5, "1"), gatedBy(5, delay(3600)))
	w.succeeds("delay")
}

// D24: an object with convoy.dev/wait: disabled blocks nothing; the others do.
func TestWaves_wait_disabled_opts_an_object_out(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	optional := strings.Replace(app(w.ns, "optional", 0, "bad"), "annotations: {", "annotations: {convoy.dev/wait: disabled, ", 1)
	w.release("shop", optional+app(w.ns, "front", 0, "good")+manifest(w.ns, "after", 1, "1"), gatedBy(1, ready(0)))
	w.succeeds("shop")
	require.NotNil(t, w.configMap("after"))

	w.update("shop", func(rel *v1alpha1.Release) {
		render := optional + app(w.ns, "front", 0, "bad") + manifest(w.ns, "after", 1, "2")
		rel.Spec.Source.Inline = &render
		rel.Spec.SyncPolicy.Waves[0].Health.Timeout = &metav1.Duration{Duration: time.Second}
	})
	w.fails("shop", "WaveTimeout")
	require.Len(t, w.wave("shop", 1).BlockedBy, 1)
	require.Contains(t, w.wave("shop", 1).BlockedBy[0].Object, "front")
	require.Equal(t, "1", w.configMap("after").Data["v"])
}

// D23: a wait survives the worker's death, and goes on with another worker where it was.
func TestWaves_wait_survives_the_worker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.worker()
	w.release("shop", stuckPod(w.ns, "front", 0)+manifest(w.ns, "after", 1, "1"), gatedBy(1, ready(0)))
	run := w.start(workflows.SyncInput{Name: "shop"})
	w.waits(run, 1, 1)
	since := w.wave("shop", 1).BlockedBy[0].Since
	first.kill()

	w.worker()
	looked := w.pendingActivity(run, "the wait", func(*workflowpb.PendingActivityInfo) bool { return true }).GetAttempt()
	w.waits(run, 1, looked+1)
	require.Equal(t, since, w.wave("shop", 1).BlockedBy[0].Since)
	require.Contains(t, w.query(run).WaitingFor, "wave 0 to be healthy")
	require.Nil(t, w.configMap("after"))

	w.becomesReady("front")
	_, reason := w.await(run)
	require.Equal(t, "Succeeded", reason, w.message("shop"))
	require.NotNil(t, w.configMap("after"))
}
