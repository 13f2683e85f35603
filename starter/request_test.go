package main

import (
	"bytes"
	"context"
	"regexp"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// D26: what is shown of a request that came while a sync ran: that sync, the wait, and the sync that serves it.
func TestWatchingARequestShowsEverySyncUntilItsAnswer(t *testing.T) {
	last := func(run string) *v1alpha1.Attempt {
		return &v1alpha1.Attempt{RunID: run, Result: v1alpha1.ResultFailed, Reason: "DeployFailed", FinishedAt: beforeP(0)}
	}
	before, after := waitingLook(), applyingLook()
	before.loop = &loopLook{id: "r-1", loop: &workflows.LoopStatus{SyncRunID: "run-1", Waiting: []string{"r-0", "r-1"}}}
	between := look{loop: &loopLook{id: "r-1", loop: &workflows.LoopStatus{Doing: "looking at the Release", Waiting: []string{"r-1"}}, last: last("run-1")}}
	after.loop = &loopLook{id: "r-1", loop: &workflows.LoopStatus{SyncRunID: "run-2"}, last: last("run-1")}
	ended := applyingLook()
	ended.loop = &loopLook{id: "r-1", last: last("run-2"), answer: &v1alpha1.HandledRequest{ID: "r-1", RunID: "run-2"}}
	out, err := watchFake(t, &fakeRun{looks: []look{before, between, after, ended}, workers: 1}, asLines, 0)
	require.NoError(t, err)
	require.Equal(t, `    0s  sync run run-1
    0s  render bbbbbbbbbbbb
    0s  step apply: wave 1: wait for wave 0 to be healthy
    0s  wave 0 applied (12/12 objects applied)
    0s  wave 1 waiting (0/4 objects applied)
    0s  wave 1 is blocked by Deployment shop/web: 1/3[31m available
    0s  this sync began before your request, which the next one serves
    1s  sync run run-1 ended: Failed (DeployFailed)
    1s  step waiting for a sync that serves request r-1: looking at the Release
    2s  sync run run-2
    2s  render bbbbbbbbbbbb
    2s  step apply
    2s  wave 0 applied (12/12 objects applied)
    2s  wave 1 applying (2/4 objects applied)
`, out)
}

func TestAnAnswerThatIsNoSuccessHasTheCodeOfItsReason(t *testing.T) {
	rel := &v1alpha1.Release{}
	rel.Status.LastAttempted = &v1alpha1.Attempt{RunID: "run-1", Message: "the whole message"}
	rel.Status.Conditions = waitingRelease().Status.Conditions
	rel.Status.Conditions[1].Reason, rel.Status.Conditions[1].Message = "DeployFailed", "to be synced again"
	for _, tc := range []struct {
		answer v1alpha1.HandledRequest
		code   int
		says   string
	}{
		{v1alpha1.HandledRequest{Result: "Failed", Reason: "DeployFailed", Message: "the who…", RunID: "run-1"}, exitDeployFailed,
			"DeployFailed: the whole message (to be synced again)"},
		{v1alpha1.HandledRequest{Result: "Failed", Reason: "PruneFailed", Message: "short", RunID: "run-0"}, exitPruneFailed, "PruneFailed: short"},
		{v1alpha1.HandledRequest{Result: "Superseded", Reason: "Superseded", Message: "by a new render"}, exitSuperseded, "Superseded: by a new render"},
		{v1alpha1.HandledRequest{Result: "Refused", Message: "no"}, exitRefused, "Refused: no"},
		{v1alpha1.HandledRequest{Result: "Failed", Message: "odd"}, exitFailed, "Failed: odd"},
	} {
		require.Equal(t, failf(tc.code, "%s", tc.says), failureOf(&tc.answer, rel))
	}
}

func TestWhatARequestWaitsFor(t *testing.T) {
	running := &v1alpha1.Attempt{RunID: "run-1", Result: v1alpha1.ResultRunning}
	require.Equal(t, "run-1", (&loopLook{last: running}).syncRun(), "no worker answers")
	require.Empty(t, (&loopLook{last: &v1alpha1.Attempt{RunID: "run-1", Result: v1alpha1.ResultFailed}}).syncRun())
	require.Contains(t, (&loopLook{suspended: true}).waitsFor(), "convoy resume")
	require.Contains(t, (&loopLook{}).waitsFor(), "to take it")
}

// SPEC 4: sync and reconcile are signals that start the loop where it is missing.
func TestRequestsWaitForAWorkerInTheLoop(t *testing.T) {
	s := newStack(t)
	s.env = append(s.env, "CONVOY_TASK_QUEUE="+s.namespace)
	arg := s.release("shop", configMap("a", ""), pruning)
	id := release.ReleaseWorkflowID(s.namespace, "shop")
	got := s.run("sync", arg, "--force", "--requested-by", "alice", "--id", "r-1")
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Contains(t, got.stdout, "sync of Release "+arg+" asked for, request r-1\n  workflow  "+id+"\n")
	require.Contains(t, got.stdout, "convoy status "+arg)
	require.Contains(t, got.stderr, "no worker polls task queue "+s.namespace)
	got = s.run("sync", arg)
	require.Regexp(t, `request req-[0-9a-f]{12}\n`, got.stdout)
	got = s.run("reconcile", arg, "--task-queue", "another")
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Contains(t, got.stderr, "no worker polls task queue "+s.namespace, "the loop keeps its queue")

	c := s.temporalClient("")
	var signals []string
	history := c.GetWorkflowHistory(t.Context(), id, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		require.NoError(t, err)
		signal := event.GetWorkflowExecutionSignaledEventAttributes()
		if signal.GetSignalName() == workflows.SignalSync && len(signals) == 0 {
			var request workflows.SyncRequest
			require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(signal.Input, &request))
			require.Equal(t, workflows.SyncRequest{ID: "r-1", Force: true, RequestedBy: "alice"}, request)
		}
		if signal != nil {
			signals = append(signals, signal.SignalName)
		}
	}
	require.Equal(t, []string{"sync", "sync", "reconcile"}, signals)

	ctx, cancel := context.WithCancel(t.Context())
	out := &signallingWriter{on: "no worker polls", do: cancel}
	var stderr bytes.Buffer
	require.Equal(t, exitInterrupted, runWith(ctx, s, out, &stderr, "sync", arg, "--wait", "--id", "r-2"))
	require.Contains(t, out.String(), "waiting for a sync that serves request r-2")
	require.Contains(t, stderr.String(), "convoy sync "+arg+" --id r-2 --wait")
	got = s.run("status", arg, "--task-queue", "another")
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Contains(t, got.stdout, "Loop        does not answer (")
	require.Contains(t, got.stdout, "no worker polls task queue "+s.namespace+": start one with `worker --task-queue "+s.namespace+"`\n")
	require.Contains(t, got.stdout, "to move it: `temporal workflow terminate --workflow-id "+id+"`, then `convoy reconcile "+arg+" --task-queue QUEUE`\n")
	require.NoError(t, c.TerminateWorkflow(t.Context(), id, "", "test"))
}

// A loop that has ended would answer a query with what it did when it ended.
func TestStatusSaysThatTheLoopIsNotRunning(t *testing.T) {
	s := newStack(t)
	s.env = append(s.env, "CONVOY_TASK_QUEUE="+s.namespace)
	arg := s.release("shop", configMap("a", ""), pruning)
	rel := s.get("shop")
	next := metav1.NewTime(time.Now().Add(time.Hour))
	rel.Status.NextReconcileAt = &next
	require.NoError(t, s.client.Status().Update(t.Context(), rel))
	again := ": the worker starts it again within ten minutes, or now with `convoy reconcile " + arg + "`\n" +
		"            no worker polls task queue " + s.namespace
	got := s.run("status", arg)
	require.Contains(t, got.stdout, "Loop        not running (not found)"+again)
	require.NotContains(t, got.stdout, "Next look")

	require.Equal(t, exitDone, s.run("reconcile", arg).code)
	require.Contains(t, s.run("status", arg).stdout, "Next look")
	id := release.ReleaseWorkflowID(s.namespace, "shop")
	require.NoError(t, s.temporalClient("").TerminateWorkflow(t.Context(), id, "", "test"))
	got = s.run("status", arg)
	require.Regexp(t, `Loop        not running \(terminated \d+s ago\)`+regexp.QuoteMeta(again), got.stdout)
	require.NotContains(t, got.stdout, "Next look")

	require.Equal(t, exitDone, s.run("suspend", arg).code)
	require.Contains(t, s.run("status", arg).stdout, "within ten minutes\n", "a reconcile would be refused")
}

func TestTheEndsOfALoopHaveWords(t *testing.T) {
	for _, tc := range []struct {
		state loopState
		says  string
	}{
		{loopState{end: "not found"}, "not found"},
		{loopState{end: "terminated", endedAt: noon.Add(-3 * time.Minute)}, "terminated 3m ago"},
	} {
		require.Equal(t, tc.says, tc.state.howLong(noon))
	}
}

func TestARequestThatWasAnsweredIsNotAskedForAgain(t *testing.T) {
	s := newStack(t)
	arg := s.release("shop", configMap("a", ""), pruning)
	rel := s.get("shop")
	rel.Status.LastHandledRequests = []v1alpha1.HandledRequest{
		{ID: "good", Result: "Succeeded", Digest: digestA}, {ID: "bad", Result: "Failed", Reason: "PruneFailed", Message: "held"},
	}
	require.NoError(t, s.client.Status().Update(t.Context(), rel))
	got := s.run("sync", arg, "--id", "bad")
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Contains(t, got.stdout, "request bad was answered already: Failed")
	got = s.run("sync", arg, "--id", "bad", "--wait")
	require.Equal(t, exitPruneFailed, got.code, got.stdout)
	require.Contains(t, got.stderr, "PruneFailed: held")
	got = s.run("sync", arg, "--id", "good", "--wait")
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Contains(t, got.stdout, "Succeeded: applied render aaaaaaaaaaaa")
	_, err := s.temporalClient("").DescribeWorkflowExecution(t.Context(), release.ReleaseWorkflowID(s.namespace, "shop"), "")
	require.Error(t, err, "no loop was started for it")
}

func (s *stack) get(name string) *v1alpha1.Release {
	s.t.Helper()
	rel := &v1alpha1.Release{}
	require.NoError(s.t, s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, rel))
	return rel
}

func TestSuspendAndResumeCanBeRepeated(t *testing.T) {
	s := newStack(t)
	arg := s.release("shop", configMap("a", ""), pruning)
	for _, step := range []struct {
		command, says string
		suspended     bool
	}{
		{"resume", "is not suspended", false},
		{"suspend", "is suspended: no sync starts before `convoy resume " + arg + "`; requests that wait are kept", true},
		{"suspend", "is suspended already", true},
		{"resume", "is resumed: it is looked at, and requests that waited are served, as soon as a worker takes it", false},
	} {
		got := s.run(step.command, arg)
		require.Equal(t, exitDone, got.code, got.stderr)
		require.Contains(t, got.stdout, "Release "+arg+" "+step.says)
		require.Equal(t, step.suspended, s.get("shop").Spec.Suspend)
	}
	require.NotNil(t, s.get("shop").Spec.Source.Inline, "nothing else changed")

	rel := s.get("shop")
	rel.Status.LastAttempted = &v1alpha1.Attempt{StartedAt: before(0), Result: v1alpha1.ResultRunning, RunID: "run-1", WorkflowID: "sync:x:shop"}
	require.NoError(t, s.client.Status().Update(t.Context(), rel))
	require.Contains(t, s.run("suspend", arg).stdout, "a sync runs and is left to its end (run run-1); stop it with `temporal workflow cancel")
}

func TestRequestsForASuspendedOrDyingReleaseAreRefused(t *testing.T) {
	s := newStack(t)
	arg := s.release("shop", configMap("a", ""), pruning)
	require.Equal(t, exitDone, s.run("suspend", arg).code)
	for _, command := range []string{"sync", "reconcile"} {
		got := s.run(command, arg)
		require.Equal(t, exitRefused, got.code)
		require.Contains(t, got.stderr, "is suspended: no sync starts before `convoy resume "+arg+"`")
		require.Empty(t, got.stdout)
	}
	rel := s.get("shop")
	rel.Finalizers = []string{"example.com/hold"}
	require.NoError(t, s.client.Update(t.Context(), rel))
	require.NoError(t, s.client.Delete(t.Context(), rel))
	defer func() {
		rel := s.get("shop")
		rel.Finalizers = nil
		require.NoError(t, s.client.Update(t.Context(), rel))
	}()
	got := s.run("sync", arg, "--wait")
	require.Equal(t, exitRefused, got.code)
	require.Contains(t, got.stderr, "is being deleted")
	require.Contains(t, s.run("status", arg).stdout, "Deleting ")
}
