package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"k8s.io/apimachinery/pkg/runtime"
)

// hookWorker serves the workflow Smoke on a task queue of its own: it ends as play says, after it has waited for the
// signal "end" where it is told to.
type hookWorker struct {
	queue string

	mu    sync.Mutex
	calls []hookCall
	ended []string // the workflow ids, with how they ended
	waits bool
	fails bool
}

func (w *world) hookWorker() *hookWorker {
	w.Helper()
	h := &hookWorker{queue: "hooks-" + w.ns}
	served := sdkworker.New(w.temporal, h.queue, sdkworker.Options{})
	served.RegisterWorkflowWithOptions(h.smoke, workflow.RegisterOptions{Name: "Smoke"})
	require.NoError(w, served.Start())
	w.Cleanup(served.Stop)
	return h
}

func (h *hookWorker) smoke(ctx workflow.Context, call hookCall) (string, error) {
	var err error
	h.mu.Lock()
	if !workflow.IsReplaying(ctx) {
		h.calls = append(h.calls, call)
	}
	waits, fails := h.waits, h.fails
	h.mu.Unlock()
	if waits {
		selector := workflow.NewSelector(ctx)
		selector.AddReceive(workflow.GetSignalChannel(ctx, "end"), func(c workflow.ReceiveChannel, _ bool) { c.Receive(ctx, nil) })
		selector.AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) {
			err = ctx.Err()
			detached, cancel := workflow.NewDisconnectedContext(ctx)
			defer cancel()
			_ = workflow.Sleep(detached, 2*time.Second) // it tidies up
		})
		selector.Select(ctx)
	}
	if fails && err == nil {
		err = errors.New("the shop is closed")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = append(h.ended, fmt.Sprint(workflow.GetInfo(ctx).WorkflowExecution.ID, " ", err))
	return sentinel, err
}

// take returns the calls since the last time.
func (h *hookWorker) take() []hookCall {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := h.calls
	h.calls = nil
	return taken
}

func (h *hookWorker) set(waits, fails bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waits, h.fails = waits, fails
}

func (h *hookWorker) ends() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended
}

// hook is a hook that runs Smoke.
func (h *hookWorker) hook(name string, change ...func(*v1alpha1.Hook)) v1alpha1.Hook {
	hook := v1alpha1.Hook{Name: name, Workflow: &v1alpha1.WorkflowHook{
		Type: "Smoke", TaskQueue: h.queue, Input: &runtime.RawExtension{Raw: []byte(`{"url":"https://shop","depth":{"n":3}}`)},
	}}
	for _, c := range change {
		c(&hook)
	}
	return hook
}

// theChild waits until the hook of a running sync runs its workflow, and returns its id and run.
func (w *world) theChild(id, runID string) (childID, childRun string) {
	w.Helper()
	w.eventually("the workflow of the hook runs", func() error {
		answer, err := w.temporal.DescribeWorkflowExecution(w.Context(), id, runID)
		if err != nil {
			return err
		}
		if children := answer.GetPendingChildren(); len(children) == 1 {
			childID, childRun = children[0].GetWorkflowId(), children[0].GetRunId()
			return nil
		}
		return fmt.Errorf("no child in %v", answer)
	})
	return childID, childRun
}

// Case 70, S1 S2 D25: a workflow hook runs once for a render and its own definition, and again for a person; a retry of
// a sync whose apply failed does not run it again. It gets its input, and what convoy says of the sync.
func TestWorkflowHooks_run_again_for_a_new_render_or_a_person_only(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy()
	w.workerAt(p, nil)
	h := w.hookWorker()
	const name = "70-hook-job-runs-again-for-a-new-render"
	w.release("shop", w.caseRender(name, "render1.yaml"), preSync(h.hook("pre")))
	result := w.succeeds("shop")
	calls := h.take()
	require.Len(t, calls, 1)
	run := w.get("shop").Status.LastAttempted.RunID
	require.Equal(t, []string{w.ns, "shop", "preSync", "pre", result.Digest, run},
		[]string{calls[0].Release.Namespace, calls[0].Release.Name, calls[0].Phase, calls[0].Hook, calls[0].Digest, calls[0].RunID})
	require.Equal(t, map[string]any{"url": "https://shop", "depth": map[string]any{"n": 3.0}}, calls[0].Input)
	done := w.hook("shop", "preSync", "pre")
	require.Equal(t, []string{"Succeeded", "workflow", result.Digest}, []string{done.Result, done.Type, done.Digest})
	require.NotNil(t, done.StartedAt)
	require.Equal(t, []string{fmt.Sprintf("hook:%s:shop:preSync:pre:%s:1 <nil>", w.ns, run)}, h.ends())

	w.succeeds("shop")
	require.Empty(t, h.take(), "the same render")
	w.render("shop", w.caseRender(name, "render2.yaml"))
	w.succeeds("shop")
	require.Len(t, h.take(), 1, "a new render")
	w.succeeds("shop", func(in *workflows.SyncInput) { in.RequestedBy = "ada" })
	calls = h.take()
	require.Len(t, calls, 1, "a person asked")
	require.Equal(t, "ada", calls[0].RequestedBy)

	w.render("shop", strings.Replace(w.caseRender(name, "render2.yaml"), `"2"`, `"3"`, 1))
	p.around(func(call *apiCall) bool {
		if isApply(call) {
			call.refuse = "not now"
		}
		return true
	}, nil)
	w.fails("shop", "DeployFailed")
	p.around(nil, nil)
	w.succeeds("shop")
	require.Len(t, h.take(), 1, "the hook had succeeded for this render before its apply failed")
	require.Equal(t, []string{w.cm("app")}, w.inventory("shop"))

	w.update("shop", preSync(h.hook("pre", func(hook *v1alpha1.Hook) { hook.Workflow.Input = nil })))
	w.succeeds("shop")
	calls = h.take()
	require.Len(t, calls, 1, "another definition, the same render")
	require.Equal(t, map[string]any{}, calls[0].Input)
}

// Case 72, S2 S3 S21 S30 D25: a workflow that fails, is cancelled or terminated fails its hook: a preSync one ends the
// sync, a postSync one changes nothing in the result. Its result is shown nowhere but in Temporal.
func TestWorkflowHooks_that_fail(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.hookWorker()
	h.set(false, true)
	w.release("pre", manifest(w.ns, "a", 0, "1"), preSync(h.hook("smoke", func(hook *v1alpha1.Hook) { hook.Retries = 1 })))
	message := w.fails("pre", "HookFailed")
	run := w.get("pre").Status.LastAttempted.RunID
	require.Equal(t, fmt.Sprintf(`preSync hook "smoke": its workflow Smoke (hook:%s:pre:preSync:smoke:%s:2) failed: the shop is closed`, w.ns, run), message)
	require.Len(t, h.take(), 2, "one try and one retry")
	require.Equal(t, "Failed", w.hook("pre", "preSync", "smoke").Result)
	require.Nil(t, w.configMap("a"))

	w.release("post", w.caseRender("72-failing-postsync-hook-keeps-the-result", "render1.yaml"), onRequest(postSync(h.hook("smoke"))))
	printed := w.convoy("sync", w.ns+"/post", "--wait")
	require.Contains(t, printed, "failed: the shop is closed")
	require.Equal(t, "True/Succeeded", w.applied("post"))
	require.Contains(t, w.message("post"), `postSync hook "smoke": its workflow Smoke`)
	require.Equal(t, "Failed", w.hook("post", "postSync", "smoke").Result)
	require.Equal(t, []string{w.cm("app")}, w.inventory("post"))
	require.Contains(t, strings.Join(w.events("post"), "\n"), `PostSyncHookFailed: postSync hook "smoke" failed, which changes nothing in the result: its workflow Smoke`)

	h.set(true, false)
	w.update("post", func(rel *v1alpha1.Release) { rel.Spec.Hooks = v1alpha1.Hooks{}; preSync(h.hook("smoke"))(rel) })
	for says, end := range map[string]func(id, run string) error{
		"was cancelled":  func(id, run string) error { return w.temporal.CancelWorkflow(t.Context(), id, run) },
		"was terminated": func(id, run string) error { return w.temporal.TerminateWorkflow(t.Context(), id, run, "a test") },
	} {
		sync := w.start(syncOf("post"))
		require.NoError(t, end(w.theChild(sync.GetID(), sync.GetRunID())))
		_, reason := w.await(sync)
		require.Equal(t, "HookFailed", reason)
		require.Contains(t, w.message("post"), says)
	}
	h.set(false, false)
	w.succeeds("post")
	require.Equal(t, "Succeeded", w.hook("post", "preSync", "smoke").Result)
	for _, name := range []string{"pre", "post"} {
		w.keepsQuiet(w.everythingSaid(name)) // of the result
	}
}

// D25: the workflow of a hook runs on while no worker of convoy does, is seen to have ended, and has run once.
func TestWorkflowHooks_survive_the_death_of_the_worker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.worker()
	h := w.hookWorker()
	h.set(true, false)
	w.release("shop", manifest(w.ns, "a", 0, "1"), preSync(h.hook("smoke")))
	run := w.start(syncOf("shop"))
	id, child := w.theChild(run.GetID(), run.GetRunID())
	first.kill()
	require.NoError(t, w.temporal.SignalWorkflow(t.Context(), id, child, "end", nil))
	require.NoError(t, w.temporal.GetWorkflow(t.Context(), id, child).Get(t.Context(), nil))
	require.Nil(t, w.configMap("a"))
	w.worker()
	_, reason := w.await(run)
	require.Equal(t, "Succeeded", reason, w.message("shop"))
	require.Len(t, h.take(), 1)
	require.NotNil(t, w.configMap("a"))
	require.Equal(t, "Succeeded", w.hook("shop", "preSync", "smoke").Result)
}

// D33: a sync that is cancelled cancels the workflow of its hook and waits for its end; one that is terminated cancels it.
func TestWorkflowHooks_end_with_their_sync(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.hookWorker()
	h.set(true, false)
	w.release("shop", manifest(w.ns, "a", 0, "1"), preSync(h.hook("smoke")))
	run := w.start(syncOf("shop"))
	id, child := w.theChild(run.GetID(), run.GetRunID())
	require.NoError(t, w.temporal.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
	_, reason := w.await(run)
	require.Equal(t, "Canceled", reason)
	require.Equal(t, []string{id + " canceled"}, h.ends(), "it had tidied up when the sync ended")
	require.Equal(t, "False/Superseded", w.applied("shop"))
	require.Empty(t, w.get("shop").Status.Hooks)
	answer, err := w.temporal.DescribeWorkflowExecution(t.Context(), id, child)
	require.NoError(t, err)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, answer.GetWorkflowExecutionInfo().GetStatus())
	require.Equal(t, run.GetRunID(), answer.GetWorkflowExecutionInfo().GetParentExecution().GetRunId())

	run = w.start(syncOf("shop"))
	id, child = w.theChild(run.GetID(), run.GetRunID())
	require.NoError(t, w.temporal.TerminateWorkflow(t.Context(), run.GetID(), run.GetRunID(), "a test"))
	w.eventually("the workflow of the hook is cancelled", func() error {
		answer, err := w.temporal.DescribeWorkflowExecution(t.Context(), id, child)
		if err == nil && answer.GetWorkflowExecutionInfo().GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED {
			err = fmt.Errorf("it is %s", answer.GetWorkflowExecutionInfo().GetStatus())
		}
		return err
	})
	h.set(false, false)
	w.succeeds("shop")
}

// D25: a workflow that no worker serves ends by the timeout of its hook, and the message says what may be missing.
func TestWorkflowHooks_unserved_task_queue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hook := v1alpha1.Hook{Name: "smoke", Workflow: &v1alpha1.WorkflowHook{Type: "Nobody", TaskQueue: "unserved-" + w.ns}}
	lasting(2 * time.Second)(&hook)
	w.release("shop", manifest(w.ns, "a", 0, "1"), preSync(hook))
	message := w.fails("shop", "HookFailed")
	require.Contains(t, message, "its workflow Nobody (hook:"+w.ns+":shop:preSync:smoke:")
	require.Contains(t, message, "did not end within its timeout of 2s; if it has not even begun, no worker that knows it may be polling task queue \"unserved-"+w.ns+"\"")
	require.Equal(t, "Failed", w.hook("shop", "preSync", "smoke").Result)
}

// The example worker serves the hook of the example Release: S1, D25.
func TestWorkflowHooks_example(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceiver(t, func(n int, w http.ResponseWriter) {
		if n < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	logs := &logBuffer{}
	smoke := exec.Command(binaries.smoke, "smoke-"+w.ns)
	smoke.Env = append(os.Environ(), "TEMPORAL_ADDRESS="+w.info.TemporalAddress)
	smoke.Stdout, smoke.Stderr = logs, logs
	smoke.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, smoke.Start())
	t.Cleanup(func() {
		_ = smoke.Process.Signal(syscall.SIGTERM)
		_ = smoke.Wait()
	})
	written, err := os.ReadFile("../examples/hook-workflow/release.yaml")
	require.NoError(t, err)
	w.kubectl(strings.NewReplacer("namespace: default", "namespace: "+w.ns, "smoke-tests", "smoke-"+w.ns,
		"http://shop.default.svc/healthz", r.url, "name: shop\n", "name: shop\n        namespace: "+w.ns+"\n").Replace(string(written)), "apply", "-f", "-")
	w.succeeds("smoked")
	require.Equal(t, "Succeeded", w.hook("smoked", "postSync", "smoke").Result, logs.String())
	require.Len(t, r.take(), 3)
}
