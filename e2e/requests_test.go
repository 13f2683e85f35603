package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// commandLine runs convoy, and returns its exit code and everything that it printed.
func (w *world) commandLine(args ...string) (code int, out string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	all := append(slices.Clone(args), "--kubeconfig", w.info.Kubeconfig, "--temporal-address", w.info.TemporalAddress, "--task-queue", w.taskQueue)
	text, err := exec.CommandContext(ctx, binaries.convoy, all...).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), string(text)
	}
	require.NoError(w, err)
	return 0, string(text)
}

// manual leaves syncs to requests.
func manual(rel *v1alpha1.Release) { rel.Spec.SyncPolicy.Mode = v1alpha1.SyncManual }

// onRequest is a change of a Release whose syncs are left to requests.
func onRequest(change func(*v1alpha1.Release)) func(*v1alpha1.Release) {
	return func(rel *v1alpha1.Release) {
		manual(rel)
		change(rel)
	}
}

// S4, S9, D26, SPEC 4: the command line asks the loop, and waits for the answer to its own request.
func TestCommandLine_sync_asks_the_loop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watchingWorker()
	w.release("shop", manifest(w.ns, "a", 0, "1"), manual)
	arg := w.ns + "/shop"
	w.eventually("the loop finds it out of sync", func() error {
		if _, out := w.commandLine("list", "-n", w.ns); !strings.Contains(out, "False/OutOfSync") {
			return errors.New(out)
		}
		return nil
	})

	t.Run("until it is applied", func(t *testing.T) {
		code, out := w.commandLine("sync", arg, "--wait", "--id", "r-1", "--requested-by", "alice")
		require.Equal(t, 0, code, out)
		require.Contains(t, out, "sync of Release "+arg+" asked for, request r-1")
		require.Contains(t, out, "sync run "+w.answered("shop", "r-1").RunID)
		require.Contains(t, out, "Succeeded: applied 1 object of render")
		require.Equal(t, "alice", w.get("shop").Status.LastAttempted.RequestedBy)
	})
	t.Run("the same id again asks for nothing new", func(t *testing.T) {
		code, out := w.commandLine("sync", arg, "--wait", "--id", "r-1")
		require.Equal(t, 0, code, out)
		require.Contains(t, out, "request r-1 was answered already: Succeeded")
		require.Equal(t, int64(1), w.get("shop").Status.Fence.Number, "syncs")
	})
	t.Run("with the code of the reason", func(t *testing.T) {
		w.render("shop", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: "+w.ns+"}\ndata: {v: 1}\n")
		code, out := w.commandLine("sync", arg, "--wait")
		require.Equal(t, 10, code, out)
		require.Contains(t, out, "convoy: Unappliable: ")
		require.Equal(t, "False/Unappliable", w.applied("shop"))
		code, out = w.commandLine("sync", arg, "--wait", "--force")
		require.Equal(t, 11, code, out)
		require.True(t, w.get("shop").Status.LastAttempted.Force)
	})
	t.Run("status tells of it", func(t *testing.T) {
		code, out := w.commandLine("status", arg)
		require.Equal(t, 0, code, out)
		require.Contains(t, out, "Loop  ")
		require.NotContains(t, out, "none runs")
		require.Regexp(t, `(?s)Requests\n.*r-1 +Succeeded`, out)
	})
}

// D26: a request that comes while a sync runs is served by the next one; the running one is shown too.
func TestCommandLine_a_request_after_a_sync_had_begun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watchingWorker()
	w.release("shop", manifest(w.ns, "a", 0, "1")+manifest(w.ns, "b", 1, "1"), onRequest(gatedBy(1, delay(4))))
	arg := w.ns + "/shop"
	code, out := w.commandLine("sync", arg, "--id", "early")
	require.Equal(t, 0, code, out)
	w.eventually("the first sync waits", func() error {
		if applied := w.applied("shop"); applied != "False/WaitingForWave" {
			return errors.New(applied)
		}
		return nil
	})
	code, out = w.commandLine("sync", arg, "--id", "late", "--wait")
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "this sync began before your request, which the next one serves")
	early, late := w.answered("shop", "early").RunID, w.answered("shop", "late").RunID
	require.NotEqual(t, early, late)
	require.Contains(t, out, "sync run "+early)
	require.Contains(t, out, "sync run "+late)
}

// D26 D35: of 31 requests that one sync answers, status keeps 20; who waits for the first one hears of it all the same.
func TestCommandLine_an_answer_that_status_shows_for_a_moment_only(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watchingWorker()
	w.release("shop", manifest(w.ns, "a", 0, "1")+manifest(w.ns, "b", 1, "1"), onRequest(gatedBy(1, delay(8))))
	arg := w.ns + "/shop"
	code, out := w.commandLine("sync", arg)
	require.Equal(t, 0, code, out)
	w.eventually("the first sync waits", func() error {
		if applied := w.applied("shop"); applied != "False/WaitingForWave" {
			return errors.New(applied)
		}
		return nil
	})
	code, out = w.commandLine("sync", arg, "--id", "first")
	require.Equal(t, 0, code, out)
	for i := range 30 {
		require.NoError(t, w.temporal.SignalWorkflow(t.Context(), "release:"+w.ns+":shop", "", workflows.SignalSync, workflows.SyncRequest{ID: fmt.Sprint("more-", i)}))
	}
	code, out = w.commandLine("sync", arg, "--id", "first", "--wait")
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "Succeeded: applied 2 objects")
	require.Equal(t, int64(32), w.get("shop").Status.HandledRequestsTotal)
	require.Equal(t, int64(2), w.get("shop").Status.Fence.Number, "syncs")
	for _, handled := range w.get("shop").Status.LastHandledRequests {
		require.NotEqual(t, "first", handled.ID)
	}
}

// D30, SPEC 4: reconcile looks at once, suspend stops syncs and keeps requests, resume serves them.
func TestCommandLine_reconcile_suspend_and_resume(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watchingWorker()
	w.release("shop", manifest(w.ns, "a", 0, "1"), func(rel *v1alpha1.Release) { rel.Spec.Interval = &metav1.Duration{Duration: time.Hour} })
	arg := w.ns + "/shop"
	applied := func() error {
		if w.configMap("a") == nil {
			return errors.New("it is not there")
		}
		return nil
	}
	w.eventually("the first sync", func() error {
		if applied := w.applied("shop"); applied != "True/Succeeded" {
			return errors.New(applied)
		}
		return nil
	})
	require.NoError(t, w.kube.Delete(t.Context(), w.configMap("a")))
	code, out := w.commandLine("reconcile", arg)
	require.Equal(t, 0, code, out)
	w.eventually("the drift is repaired", applied)

	code, out = w.commandLine("suspend", arg)
	require.Equal(t, 0, code, out)
	w.eventually("the loop knows", func() error {
		if _, out := w.commandLine("status", arg); !strings.Contains(out, "waits for the suspension to be lifted") {
			return errors.New(out)
		}
		return nil
	})
	code, out = w.commandLine("sync", arg, "--wait")
	require.Equal(t, 17, code, out)
	require.Contains(t, out, "convoy resume "+arg)
	out, err := w.temporalCLI("workflow", "signal", "--workflow-id", "release:"+w.ns+":shop", "--name", "sync", "--input", `{"id":"kept"}`)
	require.NoError(t, err, out)
	w.eventually("the request waits", func() error {
		if _, out := w.commandLine("status", arg); !strings.Contains(out, "requests that wait: kept") {
			return errors.New(out)
		}
		return nil
	})
	code, out = w.commandLine("resume", arg)
	require.Equal(t, 0, code, out)
	require.Equal(t, "Succeeded", w.answered("shop", "kept").Result)
	_, out = w.commandLine("list", "-n", w.ns)
	require.Regexp(t, fmt.Sprintf(`%s +shop +True +True +\S+ ago +in \S+ +-`, w.ns), out)
}
