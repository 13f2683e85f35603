package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"google.golang.org/protobuf/types/known/durationpb"
)

// watcher starts a worker that starts and wakes the loops of this world's Releases by itself.
func (w *world) watcher(args ...string) *workerProcess {
	w.Helper()
	return w.worker(append([]string{"--watch=true", "--watch-namespace", w.ns}, args...)...)
}

// Releases start themselves: a new one is synced, a changed one at once, and a deleted one ends its loop. Two workers
// that watch make no second sync of it.
func TestLoop_releases_start_themselves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watcher()
	w.watcher()
	rel := w.release("shop", oneConfigMap(w.ns, "web", "1"), nil)
	w.becomes("shop", "True/Succeeded")
	w.render("shop", oneConfigMap(w.ns, "web", "2"))
	w.is("the new render is applied at once, long before the interval", func() bool { return w.configMap("web").Data["v"] == "2" })
	w.update("shop", func(rel *v1alpha1.Release) {
		rel.Annotations = map[string]string{v1alpha1.AnnotationSyncRequested: "token-1"}
	})
	w.answered("shop", "token-1")
	require.Len(t, w.runs("sync:"+w.ns+":shop"), 3)
	require.NoError(t, w.temporal.TerminateWorkflow(w.Context(), "release:"+w.ns+":shop", "", "somebody did"))
	w.update("shop", func(rel *v1alpha1.Release) { rel.Spec.Suspend = true })
	w.is("a loop that was terminated is started again", func() bool { return w.condition("shop", v1alpha1.ConditionReconciling) == "False/Suspended" })
	require.NoError(t, w.kube.Delete(w.Context(), rel))
	w.gone("shop")
}

// Case 84: a Temporal namespace that knows no search attributes is good enough.
func TestCase_84_fresh_temporal_namespace_without_search_attributes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.temporal.WorkflowService().RegisterNamespace(w.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: w.ns, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	})
	require.NoError(t, err)
	fresh, err := client.Dial(client.Options{HostPort: w.info.TemporalAddress, Namespace: w.ns, Logger: log.NewStructuredLogger(discard())})
	require.NoError(t, err)
	t.Cleanup(fresh.Close)
	w.eventually("the Temporal namespace is there", func() error {
		_, err := fresh.CountWorkflow(w.Context(), &workflowservice.CountWorkflowExecutionsRequest{Namespace: w.ns})
		return err
	})
	w.temporal = fresh
	w.watcher("--temporal-namespace", w.ns)
	w.release("shop", w.caseRender("84-fresh-temporal-namespace-without-search-attributes", "render1.yaml"), nil)
	w.becomes("shop", "True/Succeeded")
	for _, id := range []string{"release:" + w.ns + ":shop", "sync:" + w.ns + ":shop"} {
		for _, run := range w.runs(id) {
			for _, event := range w.recording(run).GetEvents() {
				require.NotEqual(t, enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED, event.GetEventType(), event)
			}
		}
	}
}

// Case 86: every workflow task replays, the worker is killed at random moments, and the order of a run's steps is the
// same each time.
func TestCase_86_replay_after_a_restart_is_deterministic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seed := uint64(time.Now().UnixNano())
	if given, err := strconv.ParseUint(os.Getenv("CONVOY_SEED"), 10, 64); err == nil {
		seed = given
	}
	t.Logf("CONVOY_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	worker := w.watcher("--workflow-cache", "0")
	render := w.caseRender("86-replay-after-a-restart-is-deterministic", "render1.yaml")
	old := ""
	for i := range 6 {
		old += "---\n" + oneConfigMap(w.ns, fmt.Sprintf("old-%d", i), "1")
	}
	w.release("shop", old, func(rel *v1alpha1.Release) {
		gatedBy(2, ready(0))(rel)
		gatedBy(5, ready(0))(rel)
	})
	w.becomes("shop", "True/Succeeded")
	w.render("shop", render)
	for range 10 {
		<-time.After(time.Duration(random.IntN(1500)) * time.Millisecond) // the random moment is the point
		worker.kill()
		worker = w.watcher("--workflow-cache", "0")
	}
	w.becomes("shop", "True/Succeeded")
	w.is("the render is applied and the old objects are pruned", func() bool { return len(w.inventory("shop")) == 40 && w.configMap("old-0") == nil })
	for _, id := range []string{"release:" + w.ns + ":shop", "sync:" + w.ns + ":shop"} {
		for _, run := range w.runs(id) {
			history := w.recording(run)
			for _, event := range history.GetEvents() {
				if failed := event.GetWorkflowTaskFailedEventAttributes(); failed != nil {
					require.NotEqual(t, enumspb.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR, failed.GetCause(), event)
				}
			}
			for range 20 {
				require.NoError(t, replay(history, run, ordered))
			}
		}
	}
}
