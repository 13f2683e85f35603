package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// standIn is a SyncWorkflow whose end the test chooses: requestedBy is the reason, and "wait" waits for the signal
// "end". What the real one does is for its own tests to say.
func standIn(ctx workflow.Context, in workflows.SyncInput) (workflows.SyncResult, error) {
	status := workflows.SyncStatus{
		Step: "apply", Digest: digestA, Waves: []workflows.WaveStatus{{Wave: 3, Objects: 7, Phase: v1alpha1.WaveApplying}},
	}
	if err := workflow.SetQueryHandler(ctx, "status", func() (workflows.SyncStatus, error) { return status, nil }); err != nil {
		return workflows.SyncResult{}, err
	}
	switch in.RequestedBy {
	case "wait":
		workflow.GetSignalChannel(ctx, "end").Receive(ctx, nil)
	case "Succeeded":
	default:
		return workflows.SyncResult{}, sdk.NewNonRetryableApplicationError("the message", in.RequestedBy, nil)
	}
	return workflows.SyncResult{Digest: digestA, Objects: 7, Changed: 2, Pruned: 1}, nil
}

// serve runs a worker with the stand-in on a task queue of the test's own.
func (s *stack) serve() *temporal {
	s.t.Helper()
	c := s.temporalClient("")
	w := worker.New(c.Client, s.namespace, worker.Options{})
	w.RegisterWorkflowWithOptions(standIn, workflow.RegisterOptions{Name: "SyncWorkflow"})
	require.NoError(s.t, w.Start())
	s.t.Cleanup(w.Stop)
	s.env = append(s.env, "CONVOY_TASK_QUEUE="+s.namespace)
	return c
}

func TestSyncStartsAWorkflowThatTemporalFinds(t *testing.T) {
	s := newStack(t)
	c := s.serve()
	arg := s.release("shop", configMap("a", ""), pruning)
	got := s.run("sync", arg, "--digest", digestA, "--force", "--requested-by", "wait")
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Contains(t, got.stdout, "sync of Release "+arg+" started")
	require.Empty(t, got.stderr)

	id := release.SyncWorkflowID(s.namespace, "shop")
	described, err := c.DescribeWorkflowExecution(t.Context(), id, "")
	require.NoError(t, err)
	run := described.WorkflowExecutionInfo.Execution.RunId
	require.Contains(t, got.stdout, "workflow  "+id+"\n  run       "+run)
	require.Contains(t, got.stdout, "convoy status "+arg)
	var summary, of string
	convert := converter.GetDefaultDataConverter()
	require.NoError(t, convert.FromPayload(described.ExecutionConfig.UserMetadata.Summary, &summary))
	require.Equal(t, arg+" -> control cluster (manual, force, render aaaaaaaaaaaa)", summary)
	require.NoError(t, convert.FromPayload(described.WorkflowExecutionInfo.SearchAttributes.IndexedFields[release.AttributeRelease], &of))
	require.Equal(t, arg, of)

	t.Run("a second one is refused", func(t *testing.T) {
		got := s.run("sync", arg, "--digest", digestA)
		require.Equal(t, exitRefused, got.code)
		require.Contains(t, got.stderr, "runs already (run "+run+"), and yours was not started")
	})
	t.Run("with --wait the running one is followed", func(t *testing.T) {
		out := &signallingWriter{on: "wave 3 applying", do: func() {
			require.NoError(t, c.SignalWorkflow(t.Context(), id, "", "end", nil))
		}}
		var stderr bytes.Buffer
		code := runWith(t.Context(), s, out, &stderr, "sync", arg, "--digest", digestA, "--wait")
		require.Equal(t, exitRefused, code, stderr.String())
		require.Contains(t, out.String(), "following that one, yours was not started")
		require.Contains(t, out.String(), "Succeeded: applied 7 objects of render aaaaaaaaaaaa, 2 changed, 1 pruned\n")
		require.Contains(t, stderr.String(), "run the command again")
	})
}

func TestSyncWithWaitEndsWithTheCodeOfItsReason(t *testing.T) {
	s := newStack(t)
	s.serve()
	arg := s.release("shop", configMap("a", ""), pruning)
	got := s.run("sync", arg, "--digest", digestA, "--wait", "--requested-by", "Succeeded")
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Contains(t, got.stdout, "Succeeded: applied 7 objects")
	for reason, code := range map[string]int{"Unappliable": 10, "WaveTimeout": 15, "Refused": 17} {
		got := s.run("sync", arg, "--digest", digestA, "--wait", "--requested-by", reason)
		require.Equal(t, code, got.code, got.stdout)
		require.Contains(t, got.stderr, reason+": the message\n")
	}
}

func TestCtrlCEndsTheWatchingAndNotTheSync(t *testing.T) {
	s := newStack(t)
	c := s.serve()
	arg := s.release("shop", configMap("a", ""), pruning)
	ctx, cancel := context.WithCancel(t.Context())
	out := &signallingWriter{on: "wave 3 applying", do: cancel}
	var stderr bytes.Buffer
	code := runWith(ctx, s, out, &stderr, "sync", arg, "--digest", digestA, "--wait", "--requested-by", "wait")
	require.Equal(t, exitInterrupted, code)
	require.Contains(t, stderr.String(), "the sync goes on")
	id := release.SyncWorkflowID(s.namespace, "shop")
	require.NoError(t, c.SignalWorkflow(t.Context(), id, "", "end", nil), "it still runs")

	t.Run("and a cancelled sync is Superseded", func(t *testing.T) {
		require.NoError(t, c.GetWorkflow(t.Context(), id, "").Get(t.Context(), nil))
		out := &signallingWriter{on: "wave 3 applying", do: func() { require.NoError(t, c.TerminateWorkflow(t.Context(), id, "", "test")) }}
		require.Equal(t, exitSuperseded, runWith(t.Context(), s, out, &stderr, "sync", arg, "--digest", digestA, "--wait", "--requested-by", "wait"))
		require.Contains(t, stderr.String(), "terminated in Temporal")
	})
}

func TestSyncSaysThatNoWorkerPollsTheTaskQueue(t *testing.T) {
	s := newStack(t)
	arg := s.release("shop", configMap("a", ""), pruning)
	got := s.run("sync", arg, "--digest", digestA, "--task-queue", s.namespace)
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Contains(t, got.stderr, "no worker polls task queue "+s.namespace)
	require.Contains(t, got.stderr, "`worker --task-queue "+s.namespace+"`")

	out := &signallingWriter{on: "no worker polls", do: func() {
		require.NoError(t, s.temporalClient("").TerminateWorkflow(t.Context(), release.SyncWorkflowID(s.namespace, "shop"), "", "test"))
	}}
	var stderr bytes.Buffer
	require.Equal(t, exitRefused, runWith(t.Context(), s, out, &stderr, "sync", arg, "--digest", digestA, "--wait", "--task-queue", s.namespace))
}

func TestSyncWorksWithoutSearchAttributesAndSaysSo(t *testing.T) {
	s := newStack(t)
	namespace := s.temporalNamespace()
	arg := s.release("shop", configMap("a", ""), pruning)
	got := s.run("sync", arg, "--digest", digestA, "--temporal-namespace", namespace)
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Contains(t, got.stderr, "`convoy install` registers them")
}

func TestSyncWithoutTemporalSaysWhere(t *testing.T) {
	s := newStack(t)
	got := s.run("sync", s.release("shop", configMap("a", ""), pruning), "--temporal-address", "127.0.0.1:1")
	require.Equal(t, exitUnreachable, got.code)
	require.Contains(t, got.stderr, "Temporal at 127.0.0.1:1 cannot be reached")
}

// runWith is stack.run with a writer and a context of the test's own.
func runWith(ctx context.Context, s *stack, stdout *signallingWriter, stderr *bytes.Buffer, args ...string) int {
	return run(ctx, args, strings.NewReader(""), stdout, stderr, s.env)
}

// signallingWriter does something once when a text was written.
type signallingWriter struct {
	mu   sync.Mutex
	text strings.Builder
	on   string
	do   func()
	done bool
}

func (w *signallingWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	if !w.done && strings.Contains(w.text.String(), w.on) {
		w.done = true
		w.do()
	}
	return len(p), nil
}

func (w *signallingWriter) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}
