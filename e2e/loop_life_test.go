package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
)

// wakes tells a loop that its Release changed, as the watch of a worker would.
func (w *world) wakes(name string) {
	w.Helper()
	rel := w.get(name)
	require.NoError(w, w.temporal.SignalWorkflow(w.Context(), "release:"+w.ns+":"+name, "", workflows.SignalChanged,
		workflows.Changed{UID: string(rel.UID), Generation: rel.Generation, AnnotationID: rel.Annotations[v1alpha1.AnnotationSyncRequested]}))
}

// changes updates a Release and wakes its loop.
func (w *world) changes(name string, change func(*v1alpha1.Release)) {
	w.Helper()
	w.update(name, change)
	w.wakes(name)
}

// rendersAnew gives a Release another inline render and wakes its loop.
func (w *world) rendersAnew(name, render string) {
	w.Helper()
	w.changes(name, func(rel *v1alpha1.Release) { rel.Spec.Source.Inline = &render })
}

// is waits until a check holds.
func (w *world) is(what string, check func() bool) {
	w.Helper()
	w.eventually(what, func() error {
		if !check() {
			return errors.New("not yet")
		}
		return nil
	})
}

// gone waits until a Release and its loop have ended.
func (w *world) gone(name string) {
	w.Helper()
	w.eventually("Release "+name+" is gone", func() error {
		err := w.kube.Get(w.Context(), types.NamespacedName{Namespace: w.ns, Name: name}, &v1alpha1.Release{})
		if err == nil {
			return errors.New("it is there")
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
	id := "release:" + w.ns + ":" + name
	w.eventually("the loop ends", func() error {
		answer, err := w.temporal.DescribeWorkflowExecution(w.Context(), id, "")
		if err != nil {
			return err
		}
		if status := answer.GetWorkflowExecutionInfo().GetStatus(); status != enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED {
			return fmt.Errorf("it is %s", status)
		}
		return nil
	})
}

func prunesAtItsEnd(rel *v1alpha1.Release) { rel.Spec.DeletionPolicy = v1alpha1.DeletionPrune }

// Case 01, S7: Unappliable is no accident: one dry run for each object and interval, no retry with backoff.
func TestCase_01_through_the_loop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", w.caseRender("01-dup-env-is-a-500", "render1.yaml"), every(8*time.Second))
	since := w.mark()
	w.loop("shop")
	w.becomes("shop", "False/Unappliable")
	require.Equal(t, "True/Unappliable", w.condition("shop", v1alpha1.ConditionStalled))
	first := w.get("shop").Status.LastAttempted.RunID
	require.Len(t, filter(w.requests(since), func(r request) bool { return r.isWrite() && !r.isBookkeeping() }), 2)
	w.is("the next periodic reconcile checks again", func() bool { return w.get("shop").Status.LastAttempted.RunID != first })
	w.is("it ends", func() bool { return w.get("shop").Status.LastAttempted.Result == v1alpha1.ResultFailed })
	writes := filter(w.requests(since), func(r request) bool { return r.isWrite() && !r.isBookkeeping() })
	require.Len(t, writes, 4)
	for _, r := range writes {
		require.True(t, r.DryRun, r)
	}
	between := writes[2].ReceivedAt.Sub(writes[1].ReceivedAt)
	require.Greater(t, between, 6*time.Second, "an interval, less a tenth")
	require.Nil(t, w.configMap("beside"))
}

// Case 69, D7 D22: a namespace that is being deleted is an accident: DeployFailed within a minute, retried with backoff
// and applied by itself once the namespace is there again.
func TestCase_69_namespace_is_being_deleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dying := w.ns + "-dying"
	render := strings.NewReplacer("namespace: dying", "namespace: "+dying).Replace(w.caseRender("69-namespace-is-being-deleted", "render1.yaml"))
	before := strings.NewReplacer("name: dying", "name: "+dying, "namespace: dying", "namespace: "+dying).Replace(w.caseRender("69-namespace-is-being-deleted", "before.yaml"))
	w.byHand(before)
	w.kubectl("", "delete", "namespace", dying, "--wait=false")
	w.release("shop", render, every(10*time.Minute))
	w.loop("shop")
	w.becomes("shop", "False/DeployFailed")
	last := w.get("shop").Status.LastAttempted
	require.Less(t, last.FinishedAt.Sub(last.StartedAt.Time), time.Minute)
	require.Equal(t, "True/DeployFailed", w.condition("shop", v1alpha1.ConditionReconciling))
	status := w.get("shop").Status
	require.Less(t, time.Until(status.NextReconcileAt.Time), 15*time.Second, "a retry, not the interval")
	w.kubectl("", "-n", dying, "patch", "configmap", "holder", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	w.is("the namespace is gone", func() bool { return w.object("v1", "Namespace", "", dying) == nil })
	w.byHand("{apiVersion: v1, kind: Namespace, metadata: {name: " + dying + "}}")
	w.eventually("it is applied without a request", func() error {
		if got := w.applied("shop"); got == "False/Unappliable" { // it came to the moment without a namespace: the case allows that
			require.NoError(w, w.temporal.SignalWorkflow(w.Context(), "release:"+w.ns+":shop", "", workflows.SignalReconcile, nil))
			return errors.New(got)
		} else if got != "True/Succeeded" {
			return errors.New(got)
		}
		return nil
	})
}

// D23: a new render supersedes a sync that waits, at once; a request alone, and a changed interval, do not. The old run
// ends as cancelled, the inventory holds what was applied, and the new sync prunes.
func TestLoop_D23_a_new_render_supersedes_a_waiting_sync(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", stuckPod(w.ns, "front", 0)+manifest(w.ns, "late", 1, "1"), gatedBy(1, ready(0)))
	w.loop("shop")
	w.becomes("shop", "False/WaitingForWave")
	waiting := w.get("shop").Status.LastAttempted.RunID
	w.changes("shop", every(time.Minute))
	w.asks("shop", workflows.SyncRequest{ID: "patience"})
	w.is("the loop has seen the change", func() bool { return w.loopStatus("shop").NextAt.Before(time.Now().Add(time.Minute)) })
	require.Equal(t, []string{"patience"}, w.loopStatus("shop").Waiting)
	require.Equal(t, waiting, w.get("shop").Status.LastAttempted.RunID)
	require.Equal(t, "False/WaitingForWave", w.applied("shop"))

	w.rendersAnew("shop", manifest(w.ns, "other", 0, "1"))
	w.becomes("shop", "True/Succeeded")
	require.Equal(t, []string{w.cm("other")}, w.inventory("shop"))
	require.Nil(t, w.configMap("late"))
	require.Equal(t, "Succeeded", w.answered("shop", "patience").Result)
	answer, err := w.temporal.DescribeWorkflowExecution(w.Context(), "sync:"+w.ns+":shop", waiting)
	require.NoError(t, err)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, answer.GetWorkflowExecutionInfo().GetStatus())
	w.is("the Pod is pruned", func() bool { return w.object("v1", "Pod", w.ns, "front") == nil })
}

// D23: in Manual mode a new render alone supersedes nothing; with a request it does.
func TestLoop_D23_in_manual_mode_a_request_supersedes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", stuckPod(w.ns, "front", 0)+manifest(w.ns, "late", 1, "1"), func(rel *v1alpha1.Release) {
		gatedBy(1, ready(0))(rel)
		manual(rel)
		every(time.Second)(rel)
	})
	w.loop("shop")
	w.asks("shop", workflows.SyncRequest{ID: "first"})
	w.becomes("shop", "False/WaitingForWave")
	waiting := w.get("shop").Status.LastAttempted.RunID
	w.rendersAnew("shop", manifest(w.ns, "other", 0, "1"))
	seen := w.loopStatus("shop").NextAt
	w.is("more looks at the sync", func() bool { return w.loopStatus("shop").NextAt.After(seen.Add(2 * time.Second)) })
	require.Equal(t, waiting, w.get("shop").Status.LastAttempted.RunID)
	w.asks("shop", workflows.SyncRequest{ID: "second"})
	require.Equal(t, "Succeeded", w.answered("shop", "second").Result)
	require.Equal(t, "Superseded", w.answered("shop", "first").Result)
	require.Equal(t, []string{w.cm("other")}, w.inventory("shop"))
}

// A suspended Release starts no sync and says so; requests wait until it is resumed.
func TestLoop_suspend_stops_new_syncs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", oneConfigMap(w.ns, "web", "1"), every(time.Second))
	w.loop("shop")
	w.becomes("shop", "True/Succeeded")
	w.changes("shop", func(rel *v1alpha1.Release) { rel.Spec.Suspend = true })
	w.is("it says so", func() bool { return w.condition("shop", v1alpha1.ConditionReconciling) == "False/Suspended" })
	require.Nil(t, w.get("shop").Status.NextReconcileAt)
	w.rendersAnew("shop", oneConfigMap(w.ns, "web", "2"))
	w.asks("shop", workflows.SyncRequest{ID: "kept"})
	w.is("the change is seen", func() bool {
		return w.get("shop").Status.ObservedGeneration == w.get("shop").Generation && len(w.loopStatus("shop").Waiting) == 1
	})
	require.Equal(t, "1", w.configMap("web").Data["v"])
	_, reason := w.sync("shop")
	require.Equal(t, "Refused", reason, "nor by hand")
	w.changes("shop", func(rel *v1alpha1.Release) { rel.Spec.Suspend = false })
	require.Equal(t, "Succeeded", w.answered("shop", "kept").Result)
	require.Equal(t, "2", w.configMap("web").Data["v"])
	w.is("it has a next reconcile again", func() bool { return w.get("shop").Status.NextReconcileAt != nil })
}

// With the deletion policy Orphan the objects stay, and the inventory goes with the Release.
func TestLoop_deletion_leaves_the_objects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rel := w.release("shop", oneConfigMap(w.ns, "web", "1"), nil)
	w.loop("shop")
	w.becomes("shop", "True/Succeeded")
	require.NoError(t, w.kube.Delete(w.Context(), rel))
	require.NoError(t, w.temporal.SignalWorkflow(w.Context(), "release:"+w.ns+":shop", "", workflows.SignalChanged, workflows.Changed{Deleted: true}))
	w.gone("shop")
	require.NotNil(t, w.configMap("web"))
	w.is("the inventory goes with it", func() bool { return w.rawInventory("shop") == nil })
}

// With the deletion policy Prune everything in the inventory goes first, by the rules of the prune; a deletion that
// failed is tried again, and a sync that waits is stopped.
func TestLoop_deletion_prunes_first(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	keep := "\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: keep, namespace: " + w.ns + ", annotations: {convoy.dev/prune: disabled}}}\n"
	rel := w.release("shop", oneConfigMap(w.ns, "web", "1")+keep+stuckPod(w.ns, "front", 0)+manifest(w.ns, "late", 1, "1"),
		func(rel *v1alpha1.Release) { prunesAtItsEnd(rel); gatedBy(1, ready(0))(rel) })
	w.loop("shop")
	w.becomes("shop", "False/WaitingForWave")
	waiting := w.get("shop").Status.LastAttempted.RunID
	require.Contains(t, w.get("shop").Finalizers, v1alpha1.FinalizerPrune)
	w.byHand(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s-keep}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: ["v1"], operations: ["DELETE"], resources: ["configmaps"]}]}
  matchConditions: [{name: ours, expression: "request.namespace == '%[1]s' && request.name == 'web'"}]
  validations: [{expression: "false", message: "web stays for now"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s-keep}
spec: {policyName: %[1]s-keep, validationActions: [Deny]}
`, w.ns))
	w.is("the policy holds", func() bool {
		return w.kube.Delete(w.Context(), w.configMap("web"), dryRunDelete) != nil
	})
	require.NoError(t, w.kube.Delete(w.Context(), rel))
	w.wakes("shop")
	w.becomes("shop", "False/PruneFailed")
	require.Contains(t, w.message("shop"), "web stays for now")
	require.NotNil(t, w.configMap("web"))
	answer, err := w.temporal.DescribeWorkflowExecution(w.Context(), "sync:"+w.ns+":shop", waiting)
	require.NoError(t, err)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, answer.GetWorkflowExecutionInfo().GetStatus())
	w.kubectl("", "delete", "validatingadmissionpolicybinding", w.ns+"-keep")
	w.gone("shop")
	require.Nil(t, w.configMap("web"))
	require.NotNil(t, w.configMap("keep"), "protected objects stay")
	require.Nil(t, w.configMap("late"))
	w.is("the Pod goes", func() bool { return w.object("v1", "Pod", w.ns, "front") == nil })
}

// A cluster that vanished first does not hold a Release for ever: its deletion policy can be changed to Orphan.
func TestLoop_deletion_has_a_way_out(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rel := w.release("shop", oneConfigMap(w.ns, "web", "1"), func(rel *v1alpha1.Release) {
		prunesAtItsEnd(rel)
		rel.Spec.SyncPolicy.Mode = v1alpha1.SyncManual
		rel.Spec.ClusterRef = &v1alpha1.ClusterReference{Name: "nowhere"}
	})
	w.loop("shop")
	w.is("the finalizer is there", func() bool { return len(w.get("shop").Finalizers) == 1 })
	require.NoError(t, w.kube.Delete(w.Context(), rel))
	w.wakes("shop")
	w.becomes("shop", "False/PruneFailed")
	require.Contains(t, w.message("shop"), "nowhere")
	w.changes("shop", func(rel *v1alpha1.Release) { rel.Spec.DeletionPolicy = v1alpha1.DeletionOrphan })
	w.gone("shop")
}

// D16: a sync that a person started is waited for, and its Release is not synced beside it.
func TestLoop_D16_waits_for_a_sync_that_a_person_started(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", stuckPod(w.ns, "front", 0)+manifest(w.ns, "late", 1, "1"), gatedBy(1, ready(0)))
	byHand := w.start(syncOf("shop"))
	w.becomes("shop", "False/WaitingForWave")
	w.loop("shop")
	w.is("the loop sees it", func() bool { return w.loopStatus("shop").SyncRunID == byHand.GetRunID() })
	w.asks("shop", workflows.SyncRequest{ID: "after"})
	w.becomesReady("front")
	_, reason := w.await(byHand)
	require.Equal(t, "Succeeded", reason)
	require.Equal(t, "Succeeded", w.answered("shop", "after").Result)
	require.NotEqual(t, byHand.GetRunID(), w.get("shop").Status.LastAttempted.RunID)
}

// A sync that somebody terminated is repaired by the next one, at once.
func TestLoop_a_terminated_sync_is_repaired(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", stuckPod(w.ns, "front", 0)+manifest(w.ns, "late", 1, "1"), gatedBy(1, ready(0)))
	w.loop("shop")
	w.asks("shop", workflows.SyncRequest{ID: "lost"})
	w.becomes("shop", "False/WaitingForWave")
	lost := w.get("shop").Status.LastAttempted.RunID
	require.NoError(t, w.temporal.TerminateWorkflow(w.Context(), "sync:"+w.ns+":shop", "", "test"))
	w.is("another one runs", func() bool {
		status := w.get("shop").Status
		return status.LastAttempted.RunID != lost && w.applied("shop") == "False/WaitingForWave"
	})
	w.becomesReady("front")
	w.becomes("shop", "True/Succeeded")
	if w.get("shop").Status.LastHandledRequests == nil {
		w.answered("shop", "lost")
	}
}

// The loop continues as new while a sync waits, and still hears of its end.
func TestLoop_continues_as_new_beside_a_waiting_sync(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", stuckPod(w.ns, "front", 0)+manifest(w.ns, "late", 1, "1"), func(rel *v1alpha1.Release) {
		gatedBy(1, ready(0))(rel)
		every(time.Second)(rel)
	})
	w.loop("shop", 50)
	w.becomes("shop", "False/WaitingForWave")
	w.is("several runs of the loop", func() bool { return len(w.runs("release:"+w.ns+":shop")) >= 2 })
	w.asks("shop", workflows.SyncRequest{ID: "meanwhile"})
	w.becomesReady("front")
	w.becomes("shop", "True/Succeeded")
	require.Equal(t, "Succeeded", w.answered("shop", "meanwhile").Result)
}

// Whoever takes the inventory away before the prune of a deletion does not get it: not the garbage collector in the
// foreground, and not a person.
func TestLoop_deletion_keeps_the_inventory_until_it_has_pruned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, deletes := range map[string]func(rel *v1alpha1.Release){
		"foreground": func(rel *v1alpha1.Release) {
			require.NoError(t, w.kube.Delete(w.Context(), rel, kube.PropagationPolicy(metav1.DeletePropagationForeground)))
		},
		"inventory-first": func(rel *v1alpha1.Release) {
			require.NoError(t, w.kube.Delete(w.Context(), w.rawInventory(rel.Name)))
			require.NoError(t, w.kube.Delete(w.Context(), rel))
		},
	} {
		rel := w.release(name, oneConfigMap(w.ns, name, "1"), prunesAtItsEnd)
		w.loop(name)
		w.becomes(name, "True/Succeeded")
		w.is("the inventory is exact", func() bool { return len(w.inventory(name)) == 1 })
		deletes(rel)
		w.is("the deletion is seen", func() bool {
			inv := w.rawInventory(name)
			return inv == nil || inv.DeletionTimestamp != nil || name == "foreground"
		})
		require.NoError(t, w.temporal.SignalWorkflow(w.Context(), "release:"+w.ns+":"+name, "", workflows.SignalChanged,
			workflows.Changed{UID: string(rel.UID), Generation: 99}))
		w.gone(name)
		require.Nil(t, w.configMap(name), name)
		w.is("the inventory goes", func() bool { return w.rawInventory(name) == nil })
	}

	rel := w.release("by-hand", oneConfigMap(w.ns, "by-hand", "1"), prunesAtItsEnd)
	w.loop("by-hand")
	w.becomes("by-hand", "True/Succeeded")
	w.kubectl("", "-n", w.ns, "patch", "release", "by-hand", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	require.NoError(t, w.kube.Delete(w.Context(), rel))
	require.NoError(t, w.temporal.SignalWorkflow(w.Context(), "release:"+w.ns+":by-hand", "", workflows.SignalChanged, workflows.Changed{Deleted: true}))
	w.gone("by-hand")
	require.NotNil(t, w.configMap("by-hand"), "who takes the finalizer off lets the objects stay")
	w.is("the inventory goes with the Release", func() bool { return w.rawInventory("by-hand") == nil })
}

// A request that meets a sync which waits makes the loop look at the source: what was mended takes its place (D23).
func TestLoop_D23_a_request_finds_what_was_mended(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "render.yaml")
	require.NoError(t, os.WriteFile(file, []byte(stuckPod(w.ns, "front", 0)+manifest(w.ns, "late", 1, "1")), 0o600))
	w.watcher("--path-root", dir)
	w.release("shop", "", func(rel *v1alpha1.Release) {
		gatedBy(1, ready(0))(rel)
		rel.Spec.Source = v1alpha1.Source{Path: &dir}
	})
	w.becomes("shop", "False/WaitingForWave")
	require.NoError(t, os.WriteFile(file, []byte(manifest(w.ns, "mended", 0, "1")), 0o600))
	w.asks("shop", workflows.SyncRequest{ID: "mended"})
	require.Equal(t, "Succeeded", w.answered("shop", "mended").Result)
	require.Equal(t, []string{w.cm("mended")}, w.inventory("shop"))
}
