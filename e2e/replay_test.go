package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/encoding/protojson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// recordInto names a directory that the histories of TestReplay are kept in: fixtures for package workflows.
const recordInto = "CONVOY_RECORD"

// Histories of every way that a loop and its syncs can take, recorded just now by a real worker, replay without a
// difference. Workflows whose steps stand in another order must not: so the replay can fail.
func TestReplay_of_recorded_histories(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.worker("--loop-history-events", "60")
	for name, play := range map[string]func(name string){
		"steady":      w.playSteady,
		"unappliable": w.playUnappliable,
		"failing":     w.playFailing,
		"waiting":     w.playWaiting,
		"timeout":     w.playTimeout,
		"superseded":  w.playSuperseded,
		"cancelled":   w.playCancelled,
		"suspended":   w.playSuspended,
		"deletion":    w.playDeletion,
	} {
		play(name)
		for _, id := range []string{"release:" + w.ns + ":" + name, "sync:" + w.ns + ":" + name} {
			for i, run := range w.runs(id) {
				history := w.recording(run)
				kind := history.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes().GetWorkflowType().GetName()
				require.NoError(t, replay(history, run, ordered), "%s, %s", name, kind)
				w.keep(history, kind, name, i)
			}
		}
	}
	for _, id := range []string{"release:" + w.ns + ":steady", "sync:" + w.ns + ":steady"} {
		run := w.runs(id)[0]
		require.Error(t, replay(w.recording(run), run, backwards), "a workflow in another order replayed")
	}
}

// identities are the names of processes and hosts in a history.
var identities = regexp.MustCompile(`"identity":\s*"[^"]*"`)

// keep writes a history where one asked for it.
func (w *world) keep(history *historypb.History, kind, name string, i int) {
	w.Helper()
	dir := os.Getenv(recordInto)
	if dir == "" || i > 1 {
		return
	}
	data, err := protojson.Marshal(history)
	require.NoError(w, err)
	data = identities.ReplaceAll(data, []byte(`"identity":"worker"`))
	file := filepath.Join(dir, kind+"-"+name+"-"+string(rune('a'+i))+".json")
	require.NoError(w, os.WriteFile(file, data, 0o600))
}

func ordered(replayer worker.WorkflowReplayer) {
	w := &workflows.Workflows{HeartbeatTimeout: 3 * time.Second, MaxLoopEvents: 60}
	replayer.RegisterWorkflowWithOptions(w.ReleaseWorkflow, workflow.RegisterOptions{Name: "ReleaseWorkflow"})
	replayer.RegisterWorkflowWithOptions(w.SyncWorkflow, workflow.RegisterOptions{Name: "SyncWorkflow"})
	replayer.RegisterWorkflowWithOptions(w.DeleteWorkflow, workflow.RegisterOptions{Name: "DeleteWorkflow"})
}

// backwards begins with a step of the middle.
func backwards(replayer worker.WorkflowReplayer) {
	middle := func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{ActivityID: "prune", StartToCloseTimeout: time.Hour})
		var act *activities.Activities
		return workflow.ExecuteActivity(ctx, act.PruneOrphans, activities.PruneInput{}).Get(ctx, nil)
	}
	replayer.RegisterWorkflowWithOptions(func(ctx workflow.Context, _ workflows.SyncInput) (workflows.SyncResult, error) {
		return workflows.SyncResult{}, middle(ctx)
	}, workflow.RegisterOptions{Name: "SyncWorkflow"})
	replayer.RegisterWorkflowWithOptions(func(ctx workflow.Context, _ workflows.ReleaseInput) error { return middle(ctx) },
		workflow.RegisterOptions{Name: "ReleaseWorkflow"})
}

func replay(history *historypb.History, r run, register func(worker.WorkflowReplayer)) error {
	replayer := worker.NewWorkflowReplayer()
	register(replayer)
	return replayer.ReplayWorkflowHistoryWithOptions(log.NewStructuredLogger(discard()), history, worker.ReplayWorkflowHistoryOptions{
		OriginalExecution: workflow.Execution{ID: r.id, RunID: r.runID},
	})
}

// recording is the whole history of a run.
func (w *world) recording(r run) *historypb.History {
	w.Helper()
	history := &historypb.History{}
	iterator := w.temporal.GetWorkflowHistory(w.Context(), r.id, r.runID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for iterator.HasNext() {
		event, err := iterator.Next()
		require.NoError(w, err)
		history.Events = append(history.Events, event)
	}
	return history
}

// playSteady: idle passes, drift, requests by signal and update, retries of none, over several runs of the loop.
func (w *world) playSteady(name string) {
	w.release(name, manifest(w.ns, name, 0, "1")+manifest(w.ns, name+"-b", 1, "1"), every(time.Second))
	w.loop(name, 60)
	w.becomes(name, "True/Succeeded")
	w.kubectl("", "-n", w.ns, "delete", "configmap", name)
	w.is("it is healed", func() bool { return w.configMap(name) != nil })
	for _, id := range []string{"one", "two"} {
		w.asks(name, workflows.SyncRequest{ID: id, Force: true})
		w.answered(name, id)
	}
	w.rendersAnew(name, manifest(w.ns, name, 0, "2"))
	w.is("it prunes", func() bool { return w.configMap(name+"-b") == nil })
	w.is("a second run of the loop", func() bool { return len(w.runs("release:"+w.ns+":"+name)) > 1 })
}

func (w *world) playUnappliable(name string) {
	w.release(name, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: r, namespace: "+w.ns+"}\ndata: {a: 1}\n", nil)
	w.loop(name)
	w.becomes(name, "False/Unappliable")
}

// playFailing: retries with backoff.
func (w *world) playFailing(name string) {
	w.release(name, manifest(w.ns, name, 0, "1"), func(rel *v1alpha1.Release) {
		rel.Spec.ClusterRef = &v1alpha1.ClusterReference{Name: "nowhere"}
		rel.Spec.SyncPolicy.Retry.InitialInterval = &metav1.Duration{Duration: time.Second}
	})
	w.loop(name)
	w.is("three tries", func() bool { return len(w.runs("sync:"+w.ns+":"+name)) >= 3 })
}

func (w *world) playWaiting(name string) {
	w.release(name, stuckPod(w.ns, name, 0)+manifest(w.ns, name, 1, "1"), gatedBy(1, ready(0)))
	w.loop(name)
	w.becomes(name, "False/WaitingForWave")
	w.becomesReady(name)
	w.becomes(name, "True/Succeeded")
}

func (w *world) playTimeout(name string) {
	w.release(name, stuckPod(w.ns, name, 0)+manifest(w.ns, name, 1, "1"), gatedBy(1, ready(2*time.Second)))
	w.loop(name)
	w.becomes(name, "False/WaveTimeout")
}

func (w *world) playSuperseded(name string) {
	w.release(name, stuckPod(w.ns, name, 0)+manifest(w.ns, name, 1, "1"), gatedBy(1, ready(0)))
	w.loop(name)
	w.becomes(name, "False/WaitingForWave")
	w.rendersAnew(name, manifest(w.ns, name, 0, "2"))
	w.becomes(name, "True/Succeeded")
}

func (w *world) playCancelled(name string) {
	w.release(name, stuckPod(w.ns, name, 0)+manifest(w.ns, name, 1, "1"), gatedBy(1, delay(3600)))
	w.loop(name)
	w.becomes(name, "False/WaitingForWave")
	require.NoError(w, w.temporal.CancelWorkflow(w.Context(), "sync:"+w.ns+":"+name, ""))
	w.becomes(name, "False/Superseded")
}

func (w *world) playSuspended(name string) {
	w.release(name, manifest(w.ns, name, 0, "1"), func(rel *v1alpha1.Release) { rel.Spec.Suspend = true })
	w.loop(name)
	w.is("it says so", func() bool { return w.condition(name, v1alpha1.ConditionReconciling) == "False/Suspended" })
	w.changes(name, func(rel *v1alpha1.Release) { rel.Spec.Suspend = false })
	w.becomes(name, "True/Succeeded")
}

func (w *world) playDeletion(name string) {
	rel := w.release(name, stuckPod(w.ns, name, 0)+manifest(w.ns, name, 1, "1"), func(rel *v1alpha1.Release) {
		gatedBy(1, ready(0))(rel)
		prunesAtItsEnd(rel)
	})
	w.loop(name)
	w.becomes(name, "False/WaitingForWave")
	require.NoError(w, w.kube.Delete(w.Context(), rel))
	w.wakes(name)
	w.gone(name)
}
