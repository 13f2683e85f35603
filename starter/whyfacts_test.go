package main

import (
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	sdkclient "go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"k8s.io/apimachinery/pkg/types"
)

// open starts a workflow under the id of a Release's syncs, on a task queue of the test's own.
func (s *stack) open(c *temporal, name, workflowType string) (runID string) {
	s.t.Helper()
	run, err := c.ExecuteWorkflow(s.t.Context(), sdkclient.StartWorkflowOptions{
		ID: release.SyncWorkflowID(s.namespace, name), TaskQueue: s.namespace,
	}, workflowType, workflows.SyncInput{RequestedBy: "wait"})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = c.TerminateWorkflow(s.t.Context(), run.GetID(), run.GetRunID(), "test") })
	return run.GetRunID()
}

func (s *stack) why(arg string) string {
	s.t.Helper()
	got := s.run("why", arg)
	require.Equal(s.t, exitDone, got.code, got.stderr)
	require.Empty(s.t, got.stderr)
	return got.stdout
}

// SPEC 4: the answer needs no worker, and no Temporal.
func TestWhyOnTheCluster(t *testing.T) {
	s := newStack(t)
	arg := s.release("shop", configMap("a", ""), pruning)
	s.env = append(s.env, "CONVOY_TASK_QUEUE="+s.namespace)
	got := s.why(arg)
	require.Contains(t, got, arg+" was never synced")
	require.Contains(t, got, "No worker polls task queue "+s.namespace)

	c := s.temporalClient("")
	runID := s.open(c, "shop", "SyncWorkflow")
	require.Contains(t, s.why(arg), "No worker polls task queue "+s.namespace)
	s.status("shop", func(status *v1alpha1.ReleaseStatus) { status.LastAttempted.RunID = runID })
	got = s.why(arg)
	require.Contains(t, got, "wave 1 waits for Deployment shop/web (1/3[31m available) and 22 more objects")
	require.Contains(t, got, "No worker polls task queue "+s.namespace)
	require.Contains(t, got, "--workflow-id "+release.SyncWorkflowID(s.namespace, "shop")+" --activity-id await-wave-1")

	got = s.run("why", arg, "--temporal-address", "127.0.0.1:1").stdout
	require.Contains(t, got, "wave 1 waits for Deployment shop/web")
	require.Contains(t, got, "Temporal was not asked")

	require.NoError(t, c.TerminateWorkflow(t.Context(), release.SyncWorkflowID(s.namespace, "shop"), "", "test"))
	require.Contains(t, s.why(arg), "(run "+runID+") has ended in Temporal without saying so")
	require.Equal(t, exitNotFound, s.run("why", s.namespace+"/nope").code)
}

// Temporal believes for minutes in a worker that has gone.
func TestWhyNoticesAWorkerThatHasGone(t *testing.T) {
	s := newStack(t)
	c := s.temporalClient("")
	w := worker.New(c.Client, s.namespace, worker.Options{})
	w.RegisterWorkflowWithOptions(standIn, workflow.RegisterOptions{Name: "SyncWorkflow"})
	require.NoError(t, w.Start())
	arg := s.release("shop", configMap("a", ""), pruning)
	s.open(c, "shop", "SyncWorkflow")
	require.Contains(t, s.why(arg), ", at: apply.")
	w.Stop()
	require.Regexp(t, "No worker (answered within 2s|polls task queue "+s.namespace+")", s.why(arg))
}

// With a worker there it is the sync itself that says where it is.
func TestWhyAsksTheSyncItself(t *testing.T) {
	s := newStack(t)
	c := s.serve()
	arg := s.release("shop", configMap("a", ""), pruning)
	s.open(c, "shop", "SyncWorkflow")
	require.Contains(t, s.why(arg), "a sync runs, for ")
	require.Contains(t, s.why(arg), ", at: apply.")
}

// A step that fails names its failure, and one that is paused how it goes on.
func TestWhySeesAStepThatFailsAndOneThatIsPaused(t *testing.T) {
	s := newStack(t)
	c := s.temporalClient("")
	failed := make(chan struct{}, 100)
	w := worker.New(c.Client, s.namespace, worker.Options{})
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context, _ workflows.SyncInput) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			ActivityID: "dry-run", StartToCloseTimeout: time.Minute, RetryPolicy: &sdk.RetryPolicy{InitialInterval: time.Minute},
		})
		return workflow.ExecuteActivity(ctx, "fail").Get(ctx, nil)
	}, workflow.RegisterOptions{Name: "SyncWorkflow"})
	w.RegisterActivityWithOptions(func() error {
		failed <- struct{}{}
		return sdk.NewApplicationError("the cluster gives no answer", "Waiting")
	}, activity.RegisterOptions{Name: "fail"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	arg := s.release("shop", configMap("a", ""), pruning)
	s.open(c, "shop", "SyncWorkflow")
	<-failed
	key := types.NamespacedName{Namespace: s.namespace, Name: "shop"}
	require.Eventually(t, func() bool {
		open, _, err := c.openSync(t.Context(), key)
		return err == nil && open.step != nil && open.step.lastFailure != ""
	}, 20*time.Second, 100*time.Millisecond)
	require.Contains(t, s.why(arg), "Try 1 of the step dry-run failed: the cluster gives no answer.")
	require.Contains(t, s.why(arg), "`temporal activity reset --workflow-id "+release.SyncWorkflowID(s.namespace, "shop")+" --activity-id dry-run`")

	_, err := c.WorkflowService().PauseActivity(t.Context(), &workflowservice.PauseActivityRequest{
		Namespace: c.namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: release.SyncWorkflowID(s.namespace, "shop")},
		Activity: &workflowservice.PauseActivityRequest_Id{Id: "dry-run"}, Identity: "tester", Reason: "maintenance",
	})
	require.NoError(t, err)
	got := s.why(arg)
	require.Contains(t, got, "its step dry-run is paused in Temporal by tester, for ")
	require.Contains(t, got, "The reason given: maintenance.")
	require.Contains(t, got, "`temporal activity unpause --workflow-id")
}
