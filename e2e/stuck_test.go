package e2e

import (
	"errors"
	"fmt"
	"strconv"
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

// byTemporal runs the temporal command line and requires that it succeeds.
func (w *world) byTemporal(args ...string) string {
	w.Helper()
	out, err := w.temporalCLI(args...)
	require.NoError(w, err, out)
	return out
}

// stuckAtWave1 starts a sync that waits for a Pod, and returns once it has looked twice.
func (w *world) stuckAtWave1(name string) client.WorkflowRun {
	w.Helper()
	w.release(name, stuckPod(w.ns, "front", 0)+manifest(w.ns, "after", 1, "1"), gatedBy(1, ready(0)))
	run := w.start(workflows.SyncInput{Name: name})
	w.waits(run, 1, 1)
	return run
}

// A wave that waits beyond the bound of the worker is stuck: Stalled is True and an event says so, and the wait goes on.
func TestStuck_a_long_wait_is_marked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.worker("--stuck-after", "2s")
	run := w.stuckAtWave1("shop")
	w.kubectl("", "wait", "-n", w.ns, "rel/shop", "--for=condition=Stalled", "--timeout=60s")
	require.Contains(t, w.kubectl("", "describe", "-n", w.ns, "rel/shop"), "wave 1 has waited for")
	require.Equal(t, "False/WaitingForWave", w.applied("shop"))
	w.becomesReady("front")
	_, reason := w.await(run)
	require.Equal(t, "Succeeded", reason)
	w.kubectl("", "wait", "-n", w.ns, "rel/shop", "--for=condition=Stalled=False", "--timeout=5s")
}

// The way of docs/stuck.md to pause a wait: nothing looks any more, and what has come meanwhile is seen after the pause.
func TestStuck_paused_and_resumed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	run := w.stuckAtWave1("shop")
	gate := []string{"--workflow-id", run.GetID(), "--activity-id", "await-wave-1"}
	w.byTemporal(append([]string{"activity", "pause"}, gate...)...)
	paused := w.pendingActivity(run, "paused", func(a *workflowpb.PendingActivityInfo) bool {
		return a.GetPaused() && a.GetState() == enumspb.PENDING_ACTIVITY_STATE_PAUSED
	})
	w.becomesReady("front")
	w.byTemporal(append([]string{"activity", "unpause"}, gate...)...)
	_, reason := w.await(run)
	require.Equal(t, "Succeeded", reason)
	require.Positive(t, paused.GetAttempt())
}

// The way to look again at once: the pause between the looks is left out.
func TestStuck_retried_now(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	run := w.stuckAtWave1("shop")
	w.waits(run, 1, 4)
	w.becomesReady("front")
	w.byTemporal("activity", "reset", "--workflow-id", run.GetID(), "--activity-id", "await-wave-1")
	_, reason := w.await(run)
	require.Equal(t, "Succeeded", reason)
}

// The way to skip a gate for health: its look is completed by hand, and the wave begins.
func TestStuck_gate_skipped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	run := w.stuckAtWave1("shop")
	w.byTemporal("activity", "complete", "--workflow-id", run.GetID(), "--activity-id", "await-wave-1", "--result", "null",
		"--identity", "ann: the front is known to be slow")
	_, reason := w.await(run)
	require.Equal(t, "Succeeded", reason)
	require.NotNil(t, w.configMap("after"))
	require.Empty(t, w.wave("shop", 1).BlockedBy)
}

// The way to restart a sync from an earlier step: reset to the step before, here the whole apply once more. The run that
// was reset ends, the new one holds the same fence, and its end is recorded under its own run id.
func TestStuck_restarted_from_an_earlier_step(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", stuckPod(w.ns, "front", 0)+manifest(w.ns, "after", 1, "1"), gatedBy(1, ready(0)))
	w.loop("shop")
	var run client.WorkflowRun
	w.eventually("the sync waits", func() error {
		if got := w.applied("shop"); got != "False/WaitingForWave" {
			return errors.New(got)
		}
		run = w.temporal.GetWorkflow(w.Context(), "sync:"+w.ns+":shop", w.get("shop").Status.LastAttempted.RunID)
		return nil
	})
	w.kubectl("", "delete", "pod", "-n", w.ns, "front", "--wait=false")
	w.eventually("the Pod has gone", func() error {
		if w.object("v1", "Pod", w.ns, "front") != nil {
			return errors.New("it is there")
		}
		return nil
	})
	event := w.completedBefore(run, "apply-wave-0")
	out := w.byTemporal("workflow", "reset", "--workflow-id", run.GetID(), "--run-id", run.GetRunID(),
		"--event-id", strconv.FormatInt(event, 10), "--reason", "apply again", "--output", "json")
	w.eventually("the Pod is applied again", func() error {
		if w.object("v1", "Pod", w.ns, "front") == nil {
			return errors.New("it is away; " + out)
		}
		return nil
	})
	w.becomesReady("front")
	w.becomes("shop", "True/Succeeded")
	last := w.get("shop").Status.LastAttempted
	require.NotEqual(t, run.GetRunID(), last.RunID, "status leads to the run that ended so")
	require.Equal(t, v1alpha1.ResultSucceeded, last.Result)
	require.Equal(t, []string{w.cm("after"), "/Pod/" + w.ns + "/front"}, w.inventory("shop"))

	w.asks("shop", workflows.SyncRequest{ID: "after-the-reset"})
	w.answered("shop", "after-the-reset")
}

// completedBefore is the event of the workflow task before an activity was scheduled: where a reset begins again.
func (w *world) completedBefore(run client.WorkflowRun, activityID string) int64 {
	w.Helper()
	events := w.temporal.GetWorkflowHistory(w.Context(), run.GetID(), run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	var completed int64
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(w, err)
		if event.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			completed = event.GetEventId()
		}
		if event.GetActivityTaskScheduledEventAttributes().GetActivityId() == activityID {
			return completed
		}
	}
	require.Fail(w, "no such activity", activityID)
	return 0
}

// D22: a Release that fails again and again is stuck, while its retries go on.
func TestStuck_failures_in_a_row_are_marked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	render := strings.ReplaceAll(oneConfigMap(w.ns, "web", "1"), "namespace: "+w.ns, "namespace: not-there-"+w.ns)
	w.release("shop", render, func(rel *v1alpha1.Release) {
		second := &metav1.Duration{Duration: time.Second}
		rel.Spec.SyncPolicy.Retry = v1alpha1.RetryPolicy{InitialInterval: second, MaxInterval: second}
	})
	w.loop("shop")
	w.asks("shop", workflows.SyncRequest{Force: true})
	w.is("it is stuck", func() bool { return w.condition("shop", v1alpha1.ConditionStalled) == "True/Stuck" })
	require.Equal(t, "True", strings.TrimSpace(w.kubectl("", "get", "-n", w.ns, "rel/shop", "-o",
		fmt.Sprintf("jsonpath={.status.conditions[?(@.type==%q)].status}", "Reconciling"))))
}
