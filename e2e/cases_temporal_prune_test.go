package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/client"
)

// eventsOf is the whole event history of a run.
func (w *world) eventsOf(run client.WorkflowRun) []*historypb.HistoryEvent {
	w.Helper()
	var events []*historypb.HistoryEvent
	iterator := w.temporal.GetWorkflowHistory(w.Context(), run.GetID(), run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for iterator.HasNext() {
		event, err := iterator.Next()
		require.NoError(w, err)
		events = append(events, event)
	}
	return events
}

// shown is an event as `temporal workflow show --output json` prints it: payloads as the JSON that they hold.
func (w *world) shown(event *historypb.HistoryEvent) string {
	w.Helper()
	options := temporalproto.CustomJSONMarshalOptions{Metadata: map[string]any{commonpb.EnablePayloadShorthandMetadataKey: true}}
	text, err := options.Marshal(event)
	require.NoError(w, err)
	return string(text)
}

// reportedTypes are the types of all failures in a history, of activities and of the workflow itself.
func (w *world) reportedTypes(run client.WorkflowRun) []string {
	w.Helper()
	var reported []string
	note := func(failure *failurepb.Failure) {
		for ; failure != nil; failure = failure.GetCause() {
			reported = append(reported, failure.GetApplicationFailureInfo().GetType())
		}
	}
	for _, event := range w.eventsOf(run) {
		note(event.GetActivityTaskFailedEventAttributes().GetFailure())
		note(event.GetWorkflowExecutionFailedEventAttributes().GetFailure())
	}
	return reported
}

// bigMap is the manifest of a ConfigMap with a value of so many bytes.
func (w *world) bigMap(name string, size int) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\ndata: {x: %q}\n", name, w.ns, strings.Repeat("x", size))
}

// path makes a Release with a path source. write replaces what lies there.
func (w *world) path(name, root string) (write func(manifests string)) {
	w.Helper()
	file := filepath.Join(root, name+".yaml")
	write = func(manifests string) {
		w.Helper()
		require.NoError(w, os.WriteFile(file, []byte(manifests), 0o600))
	}
	w.release(name, "", func(rel *v1alpha1.Release) { rel.Spec.Source = v1alpha1.Source{Path: &file} })
	return write
}

// S5 S7 S11 D7 D10
func TestCase_82_render_larger_than_a_payload(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const value = "do-not-log-me-7731"
	root := t.TempDir()
	worker := w.worker("--path-root", root, "--log-level", "debug")
	write := w.path("r", root)
	render := func(maps int) string {
		var all strings.Builder
		for i := range maps {
			all.WriteString(w.bigMap(fmt.Sprintf("big-%02d", i), 100<<10))
		}
		fmt.Fprintf(&all, "---\napiVersion: v1\nkind: Secret\nmetadata: {name: quiet, namespace: %s}\nstringData: {token: %s}\n", w.ns, value)
		return all.String()
	}

	write(render(60))
	runs := []client.WorkflowRun{w.endsWith("r", "Succeeded")}
	require.Equal(t, "True/Succeeded", w.applied("r"))
	require.Len(t, w.inventory("r"), 61)
	write(render(30))
	run := w.start(workflows.SyncInput{Name: "r"})
	result, reason := w.await(run)
	runs = append(runs, run)
	require.Equal(t, "Succeeded", reason)
	require.Equal(t, "True/Succeeded", w.applied("r"))
	require.Equal(t, 30, result.Pruned)
	require.Len(t, w.inventory("r"), 31)
	require.NotNil(t, w.configMap("big-29"))
	require.Nil(t, w.configMap("big-30"))
	require.Equal(t, map[string]string{"token": value}, w.secret("quiet"))

	places := map[string]string{"events": strings.Join(w.events("r"), "\n"), "logs": worker.logs.String()}
	require.NotEmpty(t, places["logs"])
	status, err := json.Marshal([]any{w.get("r"), w.rawInventory("r")})
	require.NoError(t, err)
	places["status"] = string(status)
	for i, run := range runs {
		var history strings.Builder
		size := 0
		for _, event := range w.eventsOf(run) {
			raw, err := temporalproto.CustomJSONMarshalOptions{}.Marshal(event)
			require.NoError(t, err)
			require.LessOrEqual(t, len(raw), 256<<10, event.GetEventType())
			size += len(raw)
			history.WriteString(w.shown(event) + "\n" + event.String() + "\n")
		}
		require.Less(t, size, 1<<20)
		require.Contains(t, history.String(), `"digest":"sha256:`, "payloads are readable")
		places[fmt.Sprintf("history %d", i+1)] = history.String()
	}
	for place, text := range places {
		require.NotContains(t, text, value, place)
		require.NotContains(t, text, strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(value)), "="), place)
	}

	for name, size := range map[string]int{"big": 1<<20 + 100<<10, "huge": 3<<20 + 100<<10} {
		since := w.mark()
		w.path(name, root)(w.bigMap(name, size))
		message := w.isRejected(name)
		answer := map[string]string{"big": "Too long", "huge": "RequestEntityTooLarge"}[name]
		code := map[string]int{"big": 422, "huge": 413}[name]
		require.Contains(t, message, answer)
		require.Equal(t, []string{fmt.Sprintf("patch configmaps/%s dry run %d", name, code)}, said(dryRuns(w.requests(since))))
	}
}

// S7 S18 D7 D22
func TestCase_83_verdict_survives_wrapping(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "83-verdict-survives-wrapping"
	w.byHand(w.caseRender(name, "before.yaml"))
	w.release("rejected", w.caseRender(name, "render1.yaml"), nil)
	since := w.mark()
	w.isRejected("rejected")
	require.Equal(t, []string{"patch configmaps/frozen dry run 422"}, said(dryRuns(w.requests(since))))
	attempt := w.get("rejected").Status.LastAttempted
	run := w.temporal.GetWorkflow(t.Context(), attempt.WorkflowID, attempt.RunID)
	require.Equal(t, []string{"Unappliable", "Unappliable"}, w.reportedTypes(run))
	last, err := w.temporal.DescribeWorkflowExecution(t.Context(), attempt.WorkflowID, "")
	require.NoError(t, err)
	require.Equal(t, attempt.RunID, last.GetWorkflowExecutionInfo().GetExecution().GetRunId())
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_FAILED, last.GetWorkflowExecutionInfo().GetStatus())

	w.release("unknown", w.caseRender(name, "render2.yaml"), nil)
	run = w.endsWith("unknown", "DeployFailed")
	require.Equal(t, "False/DeployFailed", w.applied("unknown"))
	w.willRetry("unknown", "DeployFailed")
	require.Equal(t, []string{"DeployFailed", "DeployFailed"}, w.reportedTypes(run))
	require.Len(t, w.get("unknown").Status.Unverified, 1)
	require.Contains(t, w.get("unknown").Status.Unverified[0], "Ghost "+w.ns+"/g")
	attempts, _ := w.steps(run)
	require.Equal(t, 1, attempts["dry-run"])
	require.Equal(t, 1, attempts["apply-wave-0"])
}
