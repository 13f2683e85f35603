package e2e

import (
	"fmt"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// temporalCLI runs the temporal command line against the stack and returns what it printed.
func (w *world) temporalCLI(args ...string) (string, error) {
	w.Helper()
	all := append([]string{"--address", w.info.TemporalAddress}, args...)
	out, err := exec.CommandContext(w.Context(), w.info.Temporal, all...).CombinedOutput()
	return string(out), err
}

// SPEC 4: a sync is started alone with Temporal's own command line, and a failed one is a failed workflow whose error
// type is the reason.
func TestSync_started_with_the_temporal_command_line(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("typed", manifest(w.ns, "a", 0, "1"), nil)
	id := "sync:" + w.ns + ":typed"
	start := func() {
		out, err := w.temporalCLI("workflow", "start", "--type", "SyncWorkflow", "--task-queue", w.taskQueue,
			"--workflow-id", id, "--input", fmt.Sprintf(`{"namespace":%q,"name":"typed"}`, w.ns))
		require.NoError(t, err, out)
	}
	start()
	out, err := w.temporalCLI("workflow", "result", "--workflow-id", id)
	require.NoError(t, err, out)
	require.Contains(t, out, "COMPLETED")
	require.Equal(t, "True/Succeeded", w.applied("typed"))
	require.Equal(t, []string{w.cm("a")}, w.inventory("typed"))

	w.render("typed", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: "+w.ns+"}\ndata: {v: 1}\n")
	start()
	out, _ = w.temporalCLI("workflow", "result", "--workflow-id", id)
	require.Contains(t, out, "FAILED")
	require.Contains(t, out, "expected string")
	out, err = w.temporalCLI("workflow", "show", "--workflow-id", id, "--output", "json")
	require.NoError(t, err, out)
	require.Contains(t, out, `"type": "Unappliable"`)
	require.Equal(t, "False/Unappliable", w.applied("typed"))

	out, err = w.temporalCLI("workflow", "query", "--workflow-id", id, "--type", "status")
	require.NoError(t, err, out)
	require.Contains(t, out, "dry run")
}
