package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"k8s.io/apimachinery/pkg/api/meta"
)

// asks sends a sync request to the loop of a Release.
func (w *world) asks(name string, request workflows.SyncRequest) {
	w.Helper()
	require.NoError(w, w.temporal.SignalWorkflow(w.Context(), "release:"+w.ns+":"+name, "", workflows.SignalSync, request))
}

// answered waits for the answer to a request in status.
func (w *world) answered(name, id string) v1alpha1.HandledRequest {
	w.Helper()
	var answer v1alpha1.HandledRequest
	w.eventually("request "+id+" is answered", func() error {
		handled := w.get(name).Status.LastHandledRequests
		i := slices.IndexFunc(handled, func(r v1alpha1.HandledRequest) bool { return r.ID == id })
		if i < 0 {
			return fmt.Errorf("answered are %v", handled)
		}
		answer = handled[i]
		return nil
	})
	return answer
}

// S4: in manual mode only a request starts a sync; a new render is reported as out of sync, with both digests.
func TestLoop_S4_manual_mode_syncs_on_request_only(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", oneConfigMap(w.ns, "web", "1"), func(rel *v1alpha1.Release) { manual(rel); every(time.Second)(rel) })
	w.loop("shop")
	w.eventually("it says that it was never synced", func() error {
		if got := w.condition("shop", v1alpha1.ConditionReady); got != "False/OutOfSync" {
			return fmt.Errorf("Ready is %q", got)
		}
		return nil
	})
	require.Nil(t, w.configMap("web"))
	require.Nil(t, w.get("shop").Status.LastAttempted)

	w.asks("shop", workflows.SyncRequest{ID: "one", RequestedBy: "ada"})
	require.Equal(t, "Succeeded", w.answered("shop", "one").Result)
	before := w.get("shop").Status
	require.Equal(t, "ada", before.LastAttempted.RequestedBy)
	require.Equal(t, "True/Succeeded", w.condition("shop", v1alpha1.ConditionReady))

	w.render("shop", oneConfigMap(w.ns, "web", "2"))
	w.eventually("it is out of sync", func() error {
		ready := meta.FindStatusCondition(w.get("shop").Status.Conditions, v1alpha1.ConditionReady)
		if ready.Reason != "OutOfSync" || !strings.Contains(ready.Message, before.LastSuccessful.Digest) || strings.Count(ready.Message, "sha256:") != 2 {
			return fmt.Errorf("Ready is %v", ready)
		}
		return nil
	})
	after := w.get("shop").Status
	require.Equal(t, before.LastSuccessful, after.LastSuccessful)
	require.Equal(t, before.LastAttempted, after.LastAttempted)
	require.Equal(t, "True/Succeeded", w.applied("shop"))
	require.Equal(t, "1", w.configMap("web").Data["v"])
	w.asks("shop", workflows.SyncRequest{})
	w.eventually("the request is served", func() error {
		if v := w.configMap("web").Data["v"]; v != "2" {
			return fmt.Errorf("it is %s", v)
		}
		return nil
	})
	w.eventually("it is in sync again", func() error {
		if got := w.condition("shop", v1alpha1.ConditionReady); got != "True/Succeeded" {
			return fmt.Errorf("Ready is %q", got)
		}
		return nil
	})
}

// The update returns when that sync has ended, with its result; a suspended Release refuses it.
func TestLoop_the_update_returns_the_result_of_its_sync(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", oneConfigMap(w.ns, "web", "1"), manual)
	w.loop("shop")
	update := func(id string) (workflows.SyncAnswer, error) {
		var answer workflows.SyncAnswer
		handle, err := w.temporal.UpdateWorkflow(w.Context(), client.UpdateWorkflowOptions{
			WorkflowID: "release:" + w.ns + ":shop", UpdateName: workflows.UpdateSync, WaitForStage: client.WorkflowUpdateStageCompleted,
			Args: []any{workflows.SyncRequest{ID: id, RequestedBy: "ada"}},
		})
		if err != nil {
			return answer, err
		}
		return answer, handle.Get(w.Context(), &answer)
	}
	answer, err := update("u1")
	require.NoError(t, err)
	require.Equal(t, "u1", answer.ID)
	require.Equal(t, "Succeeded", answer.Result)
	require.Equal(t, w.get("shop").Status.LastSuccessful.Digest, answer.Digest)
	require.Equal(t, w.get("shop").Status.LastAttempted.RunID, answer.RunID)
	again, err := update("u1")
	require.NoError(t, err)
	require.Equal(t, answer.RunID, again.RunID, "the same id asks for nothing new")
	require.Equal(t, answer.RunID, w.get("shop").Status.LastAttempted.RunID)

	w.update("shop", func(rel *v1alpha1.Release) {
		rel.Spec.Source.Inline = new(string)
		*rel.Spec.Source.Inline = "{kind: broken"
	})
	answer, err = update("u2")
	require.NoError(t, err)
	require.Equal(t, "Failed", answer.Result)
	require.Equal(t, "RenderFailed", answer.Reason)

	w.update("shop", func(rel *v1alpha1.Release) { rel.Spec.Suspend = true })
	require.NoError(t, w.temporal.SignalWorkflow(w.Context(), "release:"+w.ns+":shop", "", workflows.SignalReconcile, nil))
	w.eventually("it is suspended", func() error {
		if got := w.condition("shop", v1alpha1.ConditionReconciling); got != "False/Suspended" {
			return fmt.Errorf("Reconciling is %q", got)
		}
		return nil
	})
	_, err = update("u3")
	require.ErrorContains(t, err, "suspended")
}

// Case 74, S4 D26: no request is lost over many runs of the loop, and many requests become few syncs.
func TestCase_74_burst_of_sync_requests_over_continue_as_new(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.taskQueue = "convoy-" + w.ns
	w.release("shop", w.caseRender("74-burst-of-sync-requests-over-continue-as-new", "render1.yaml"), manual)
	id := "release:" + w.ns + ":shop"
	options := client.StartWorkflowOptions{ID: id, TaskQueue: w.taskQueue, WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING}
	in := workflows.ReleaseInput{Namespace: w.ns, Name: "shop", Memory: &workflows.Memory{MaxEvents: 60}}
	first, err := w.temporal.ExecuteWorkflow(w.Context(), options, "ReleaseWorkflow", in)
	require.NoError(t, err)
	w.Cleanup(func() { _ = w.temporal.TerminateWorkflow(context.Background(), id, "", "test is over") })

	seen, stop := map[string]bool{}, make(chan struct{})
	var mu sync.Mutex
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			rel := w.get("shop")
			mu.Lock()
			for _, handled := range rel.Status.LastHandledRequests {
				seen[handled.ID] = true
			}
			mu.Unlock()
		}
	})
	ask := func(n int) {
		w.asks("shop", workflows.SyncRequest{ID: fmt.Sprintf("r%02d", n), Force: n%3 == 0})
	}
	for n := 1; n <= 40; n++ {
		ask(n)
	}
	w.worker("--loop-history-events", "60")
	for n := 41; n <= 240; n++ {
		ask(n)
		<-time.After(20 * time.Millisecond) // the case's pace is slower still; faster is harder
	}
	w.eventually("every request is answered", func() error {
		if total := w.get("shop").Status.HandledRequestsTotal; total != 240 {
			return fmt.Errorf("%d of 240", total)
		}
		return nil
	})
	close(stop)
	watching.Wait()
	require.LessOrEqual(t, len(w.get("shop").Status.LastHandledRequests), 20)

	asked := map[string]bool{}
	syncs := w.runs("sync:" + w.ns + ":shop")
	for _, run := range syncs {
		for _, request := range w.syncInput(run).Loop.Requests {
			require.False(t, asked[request], "%s was served twice", request)
			asked[request] = true
		}
	}
	require.Len(t, asked, 240, "every request has its sync in the history")
	require.Less(t, len(syncs), 80)
	mu.Lock()
	defer mu.Unlock()
	require.Greater(t, len(seen), 100, "status shows the answers as they come")
	loops := w.runs(id)
	require.Greater(t, len(loops), 3, "the loop continued as new")
	for _, run := range loops {
		require.NotContains(t, []enumspb.WorkflowExecutionStatus{
			enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, enumspb.WORKFLOW_EXECUTION_STATUS_FAILED, enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED,
		}, run.status, run.runID)
	}
	_ = first
}

// Case 77, D26: the same id asks once, over bursts, continue-as-new, a restart of the worker, and signal and update.
func TestCase_77_same_request_id_twice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", w.caseRender("77-same-request-id-twice", "render1.yaml"), manual)
	worker := w.worker("--loop-history-events", "50")
	w.loop("shop", 50)
	for range 11 {
		w.asks("shop", workflows.SyncRequest{ID: "k1"})
	}
	first := w.answered("shop", "k1")
	worker.kill()
	w.worker("--loop-history-events", "50")
	for i := range 8 { // more runs of the loop
		w.asks("shop", workflows.SyncRequest{ID: fmt.Sprintf("other-%d", i)})
		w.answered("shop", fmt.Sprintf("other-%d", i))
	}
	require.Greater(t, len(w.runs("release:"+w.ns+":shop")), 1)
	syncs := len(w.runs("sync:" + w.ns + ":shop"))
	w.asks("shop", workflows.SyncRequest{ID: "k1"})
	var answer workflows.SyncAnswer
	handle, err := w.temporal.UpdateWorkflow(w.Context(), client.UpdateWorkflowOptions{
		WorkflowID: "release:" + w.ns + ":shop", UpdateName: workflows.UpdateSync, WaitForStage: client.WorkflowUpdateStageCompleted,
		Args: []any{workflows.SyncRequest{ID: "k1"}},
	})
	require.NoError(t, err)
	require.NoError(t, handle.Get(w.Context(), &answer))
	require.Equal(t, first.RunID, answer.RunID)
	require.Len(t, w.runs("sync:"+w.ns+":shop"), syncs, "no further sync")
}

// The request annotation asks once for each new value, with force beside it.
func TestLoop_the_annotation_asks_for_a_sync(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", oneConfigMap(w.ns, "web", "1"), manual)
	w.loop("shop")
	annotate := func(id string) {
		w.update("shop", func(rel *v1alpha1.Release) {
			rel.Annotations = map[string]string{v1alpha1.AnnotationSyncRequested: id, v1alpha1.AnnotationSyncForce: "true"}
		})
		rel := w.get("shop")
		require.NoError(t, w.temporal.SignalWorkflow(w.Context(), "release:"+w.ns+":shop", "", workflows.SignalChanged,
			workflows.Changed{UID: string(rel.UID), Generation: rel.Generation, AnnotationID: id}))
	}
	annotate("token-1")
	require.Equal(t, "Succeeded", w.answered("shop", "token-1").Result)
	require.True(t, w.get("shop").Status.LastAttempted.Force)
	for i := range 25 { // the list forgets, and the annotation is still there
		w.asks("shop", workflows.SyncRequest{ID: fmt.Sprintf("r%d", i)})
		w.answered("shop", fmt.Sprintf("r%d", i))
	}
	require.NoError(t, w.temporal.TerminateWorkflow(w.Context(), "release:"+w.ns+":shop", "", "a loop without memory"))
	w.loop("shop")
	w.eventually("the new loop has looked", func() error {
		if w.loopStatus("shop").NextAt.IsZero() {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	require.Equal(t, int64(26), w.get("shop").Status.HandledRequestsTotal)
	annotate("token-2")
	w.answered("shop", "token-2")
}

// The commands that people type.
func TestLoop_with_temporals_command_line(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", oneConfigMap(w.ns, "web", "1"), manual)
	temporal := func(args ...string) string {
		command := exec.CommandContext(w.Context(), w.info.Temporal, append(args, "--address", w.info.TemporalAddress)...)
		out, err := command.CombinedOutput()
		require.NoError(w, err, "temporal %v\n%s", args, out)
		return string(out)
	}
	id := "release:" + w.ns + ":shop"
	temporal("workflow", "start", "--type", "ReleaseWorkflow", "--task-queue", w.taskQueue, "--workflow-id", id,
		"--input", fmt.Sprintf(`{"namespace":%q,"name":"shop"}`, w.ns))
	w.Cleanup(func() { _ = w.temporal.TerminateWorkflow(context.Background(), id, "", "test is over") })
	temporal("workflow", "signal", "--workflow-id", id, "--name", "sync")
	w.eventually("the signal without input is served", func() error {
		if w.configMap("web") == nil {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	temporal("workflow", "signal", "--workflow-id", id, "--name", "sync", "--input", `{"force":true,"id":"by-hand","requestedBy":"ada"}`)
	require.Equal(t, "Succeeded", w.answered("shop", "by-hand").Result)
	require.True(t, w.get("shop").Status.LastAttempted.Force)
	out := temporal("workflow", "update", "execute", "--workflow-id", id, "--name", "sync", "--input", `{"id":"u1"}`)
	require.Contains(t, out, "Succeeded")
	temporal("workflow", "signal", "--workflow-id", id, "--name", "reconcile")
	out = temporal("workflow", "query", "--workflow-id", id, "--type", "status")
	require.Contains(t, out, "doing")
	require.Contains(t, temporal("workflow", "describe", "--workflow-id", id), "ReleaseWorkflow")
	temporal("workflow", "signal", "--workflow-id", id, "--name", "sync", "--input", `"what is this?"`)
	w.eventually("a payload that is no request still syncs", func() error {
		if total := w.get("shop").Status.HandledRequestsTotal; total != 4 {
			return fmt.Errorf("%d", total)
		}
		return nil
	})
}
