package e2e

import (
	"testing"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Histories of every kind of end, recorded just now by a real worker, replay without a difference. A workflow whose
// steps stand in another order must not: so the replay can fail.
func TestReplay_of_recorded_histories(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gate := func(rel *v1alpha1.Release) {
		rel.Spec.SyncPolicy.Waves = []v1alpha1.WavePolicy{{Wave: 1, Health: &v1alpha1.WaveHealth{
			Strategy: v1alpha1.HealthReady, Timeout: &metav1.Duration{Duration: 2 * time.Second},
		}}}
	}
	stuck := "---\napiVersion: v1\nkind: Pod\nmetadata: {name: stuck, namespace: " + w.ns + "}\n" +
		"spec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: \"registry.example/app:bad\"}]}\n"
	w.release("ends", manifest(w.ns, "a", 0, "1")+manifest(w.ns, "b", 1, "1"), gate)
	w.release("rejected", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: r, namespace: "+w.ns+"}\ndata: {a: 1}\n", nil)
	w.release("stuck", stuck+manifest(w.ns, "after", 1, "1"), gate)

	ends := map[string]client.WorkflowRun{}
	for name, reason := range map[string]string{"ends": "Succeeded", "rejected": "Unappliable", "stuck": "WaveTimeout"} {
		run := w.start(syncOf(name))
		_, got := w.await(run)
		require.Equal(t, reason, got, w.message(name))
		ends[name] = run
	}
	for name, run := range ends {
		events := w.recording(run)
		require.NoError(t, replay(t, events, (&workflows.Workflows{HeartbeatTimeout: 3 * time.Second}).SyncWorkflow), name)
	}
	require.Error(t, replay(t, w.recording(ends["ends"]), backwards), "a workflow in another order replayed")
}

// backwards begins with a step of the middle.
func backwards(ctx workflow.Context, _ workflows.SyncInput) (workflows.SyncResult, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{ActivityID: "prune", StartToCloseTimeout: time.Hour})
	var act *activities.Activities
	err := workflow.ExecuteActivity(ctx, act.PruneOrphans, activities.PruneInput{}).Get(ctx, nil)
	return workflows.SyncResult{}, err
}

func replay(t *testing.T, history *historypb.History, sync any) error {
	t.Helper()
	replayer := worker.NewWorkflowReplayer()
	replayer.RegisterWorkflowWithOptions(sync, workflow.RegisterOptions{Name: "SyncWorkflow"})
	return replayer.ReplayWorkflowHistory(log.NewStructuredLogger(discard()), history)
}

// recording is the whole history of a run.
func (w *world) recording(run client.WorkflowRun) *historypb.History {
	w.Helper()
	history := &historypb.History{}
	iterator := w.temporal.GetWorkflowHistory(w.Context(), run.GetID(), run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for iterator.HasNext() {
		event, err := iterator.Next()
		require.NoError(w, err)
		history.Events = append(history.Events, event)
	}
	return history
}
