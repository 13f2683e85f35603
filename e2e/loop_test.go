package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// loop starts the loop of a Release, as the watch of a worker would. maxEvents bounds the history of its runs.
func (w *world) loop(name string, maxEvents ...int) client.WorkflowRun {
	w.Helper()
	in := workflows.ReleaseInput{Namespace: w.ns, Name: name}
	for _, events := range maxEvents {
		in.Memory = &workflows.Memory{MaxEvents: events}
	}
	run, err := w.temporal.ExecuteWorkflow(w.Context(), client.StartWorkflowOptions{
		ID: "release:" + w.ns + ":" + name, TaskQueue: w.taskQueue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	}, "ReleaseWorkflow", in)
	require.NoError(w, err)
	w.Cleanup(func() { _ = w.temporal.TerminateWorkflow(context.Background(), run.GetID(), "", "test is over") })
	return run
}

// becomes waits until the condition Applied is what is expected.
func (w *world) becomes(name, applied string) {
	w.Helper()
	w.eventually("Release "+name+" becomes "+applied, func() error {
		if got := w.applied(name); got != applied {
			return fmt.Errorf("it is %s: %s", got, w.message(name))
		}
		return nil
	})
}

func every(d time.Duration) func(*v1alpha1.Release) {
	return func(rel *v1alpha1.Release) { rel.Spec.Interval = &metav1.Duration{Duration: d} }
}

func oneConfigMap(ns, name, value string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: %s}, data: {v: '%s'}}\n", name, ns, value)
}

// D30: a Release is synced, drift of a value, a deleted object and a lost field are healed, and another manager's own
// field is no drift.
func TestLoop_D30_syncs_and_heals_drift(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", oneConfigMap(w.ns, "web", "1"), every(2*time.Second))
	w.loop("shop")
	w.becomes("shop", "True/Succeeded")
	attempts := func() string { return w.get("shop").Status.LastAttempted.RunID }
	first := attempts()
	next := w.get("shop").Status.NextReconcileAt
	w.eventually("three idle passes", func() error {
		if at := w.get("shop").Status.NextReconcileAt; at == nil || !at.After(next.Add(5*time.Second)) {
			return fmt.Errorf("next reconcile at %v, was %v", at, next)
		}
		return nil
	})
	require.Equal(t, first, attempts(), "an idle pass starts no sync")
	for _, change := range []string{
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: web}, data: {v: other}}",
		"",
	} {
		before := attempts()
		if change == "" {
			w.kubectl("", "-n", w.ns, "delete", "configmap", "web")
		} else {
			w.kubectl(change, "-n", w.ns, "apply", "--server-side", "--force-conflicts", "--field-manager=meddler", "-f", "-")
		}
		w.eventually("the drift is healed", func() error {
			cm := w.configMap("web")
			if cm == nil || cm.Data["v"] != "1" || attempts() == before {
				return fmt.Errorf("it is %v", cm)
			}
			return nil
		})
		w.becomes("shop", "True/Succeeded")
	}
}
