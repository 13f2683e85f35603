package activities

import (
	"errors"
	"testing"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// deletingWorld is a world whose Release, with objects a and b in its inventory, is being deleted with them.
func deletingWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, cm("a", 0))
	w.lists("a b", "")
	w.stands("a b")
	w.rel.Spec.DeletionPolicy, w.rel.Finalizers = v1alpha1.DeletionPrune, []string{"x/y", v1alpha1.FinalizerPrune}
	w.rel.DeletionTimestamp = &metav1.Time{Time: w.now}
	return w
}

// A Release that is suspended or being deleted is not synced, except by a sync that has begun; one that is not being
// deleted is not deleted.
func TestPrepareSync_refuses_what_the_state_of_the_Release_does_not_allow(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*world)
		refuses string
	}{
		"suspended":     {func(w *world) { w.rel.Spec.Suspend = true }, "is suspended: lift spec.suspend first (convoy resume team-a/shop)"},
		"being deleted": {func(w *world) { w.rel.DeletionTimestamp = &metav1.Time{Time: w.now} }, "no sync of it begins any more"},
		"gone":          {func(w *world) { w.rel = nil }, "there is no Release"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cm("a", 0))
			c.change(w)
			require.Contains(t, w.fails(w.a.PrepareSync, shop, Refused), c.refuses)
			require.Empty(t, w.calls)
			require.Zero(t, w.fetched)
		})
	}
	t.Run("not being deleted", func(t *testing.T) {
		w := newWorld(t, cm("a", 0))
		require.Contains(t, w.fails(w.a.PrepareDeletion, shop, Refused), "is not being deleted")
		require.Empty(t, w.calls)
	})
}

// A suspension does not stop a sync that has begun: a second attempt of its first step goes on.
func TestPrepareSync_goes_on_when_its_Release_is_suspended(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	w.succeeds(w.a.PrepareSync, shop, nil)
	w.rel.Spec.Suspend = true
	w.rel.Status.Fence.RunID = "other"
	w.fails(w.a.PrepareSync, shop, Refused)
	w.rel.Status.Fence.RunID = "default-test-run-id"
	w.succeeds(w.a.PrepareSync, shop, nil)
}

// With the deletion policy Prune the finalizer is there before anything is applied, and before the attempt is begun.
func TestPrepareSync_guards_the_deletion_first(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	w.rel.Spec.DeletionPolicy = v1alpha1.DeletionPrune
	w.succeeds(w.a.PrepareSync, shop, nil)
	require.Equal(t, "finalizer convoy.dev/prune true, status", w.changes("finalizer", "status", "save"))

	w = newWorld(t, cm("a", 0))
	w.rel.Spec.DeletionPolicy = v1alpha1.DeletionPrune
	w.fail["finalizer convoy.dev/prune true"] = release.ErrConflict
	require.Contains(t, w.fails(w.a.PrepareSync, shop, Waiting), "beginning again")
	w.fail["finalizer convoy.dev/prune true"] = errors.New("no route")
	w.fails(w.a.PrepareSync, shop, "DeployFailed")
	require.Empty(t, w.changes("status"))

	w = newWorld(t, cm("a", 0))
	w.succeeds(w.a.PrepareSync, shop, nil)
	require.Empty(t, w.changes("finalizer"))
}

// D13 D16: the deletion takes the fence, counts everything in the inventory and what was pending and is convoy's, and
// reads no source.
func TestPrepareDeletion_D13_settles_what_is_pending(t *testing.T) {
	w := deletingWorld(t)
	w.lists("a b", "ours theirs")
	w.stands("a b ours")
	w.foreign("theirs")
	w.sourceError = errors.New("no route")
	w.rel.Spec.SyncPolicy.Prune.PropagationPolicy = metav1.DeletePropagationForeground
	var plan Prepared
	w.succeeds(w.a.PrepareDeletion, shop, &plan)
	require.Equal(t, 3, plan.Orphans)
	require.Equal(t, "a b ours | ", w.listed())
	require.True(t, plan.Sync.Deleting)
	require.Equal(t, int64(8), plan.Sync.Fence)
	require.Equal(t, metav1.DeletePropagationForeground, plan.Prune.PropagationPolicy)
	require.Zero(t, w.fetched)
	require.Equal(t, v1alpha1.ResultRunning, w.rel.Status.LastAttempted.Result)
	w.succeeds(w.a.PrepareDeletion, shop, &plan)
	require.Equal(t, int64(8), plan.Sync.Fence, "a second attempt of the same run keeps its fence")
}

// D16 D31: the deletion begins beside no sync, and deletes nothing on another cluster.
func TestPrepareDeletion_D31_refuses(t *testing.T) {
	w := deletingWorld(t)
	w.rel.Status.Fence.Acknowledged, w.running = false, true
	require.Contains(t, w.fails(w.a.PrepareDeletion, shop, Refused), "is running")
	w = deletingWorld(t)
	w.inv.Spec.ClusterUID = "cluster-2"
	require.Contains(t, w.fails(w.a.PrepareDeletion, shop, "RenderFailed"), "on the cluster cluster-2")
	w = deletingWorld(t)
	w.targetError = errors.New("no route")
	w.fails(w.a.PrepareDeletion, shop, "PruneFailed")
}

// S24 S25 D12 D17: a deletion prunes everything in the inventory, also what the source still holds, in the reverse of
// the order of application; what is protected stays.
func TestPruneOrphans_S24_of_a_deletion(t *testing.T) {
	w := deletingWorld(t)
	w.lists("a marked moved b", "")
	w.stands("a marked moved b")
	w.live[cmRef("marked")].Annotations = map[string]string{"convoy.dev/prune": "disabled"}
	w.claims[cmRef("moved")] = types.NamespacedName{Namespace: "team-b", Name: "other"}
	var plan Prepared
	w.succeeds(w.a.PrepareDeletion, shop, &plan)
	var result PruneResult
	w.succeeds(w.a.PruneOrphans, PruneInput{Sync: plan.Sync, Policy: plan.Prune}, &result)
	require.Equal(t, "delete b Background, delete a Background", w.changes("delete"))
	require.Equal(t, 2, result.Deleted)
	require.Equal(t, 2, result.Kept.Total)
	require.Equal(t, "a marked moved b | ", w.listed(), "the records go with the Release")
}

// What is let go is the Release, and only of convoy's own finalizer; a Release that is gone is let go already, and one
// that another sync has taken is not this deletion's (D35).
func TestFinishDeletion_lets_the_Release_go(t *testing.T) {
	w := deletingWorld(t)
	in := FinishInput{Sync: w.sync(), Deleted: 3, Kept: Named{Objects: []string{"Namespace shop: its kind is protected"}, Total: 1}}
	w.fail["finalizer convoy.dev/prune false"] = errors.New("no route")
	require.Contains(t, w.fails(w.a.FinishDeletion, in, Waiting), "no route")
	delete(w.fail, "finalizer convoy.dev/prune false")
	w.calls = nil
	w.succeeds(w.a.FinishDeletion, in, nil)
	require.Equal(t, []string{"x/y"}, w.rel.Finalizers)
	require.Equal(t, "the Release goes, and 3 of its objects are deleted; 1 stays: Namespace shop: its kind is protected", w.events[len(w.events)-1])
	w.succeeds(w.a.FinishDeletion, in, nil)
	require.Len(t, w.calls, 2, "the second time there is nothing to do")

	w = deletingWorld(t)
	w.rel.Status.Fence.Number++
	w.fails(w.a.FinishDeletion, in, Fenced)
	w.rel = nil
	w.succeeds(w.a.FinishDeletion, in, nil)
	require.Empty(t, w.calls)
}

// D1: a source that is out of reach is told from a bad one, since only the first is tried again with backoff.
func TestPrepareSync_D1_marks_a_source_out_of_reach(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	w.sourceError = errors.New("no route")
	w.onFetch = w.skips(fetchFor + 1)
	require.True(t, w.failedAt(w.a.PrepareSync, shop, "RenderFailed").Unreachable)

	w = newWorld(t, "kind: ConfigMap")
	require.False(t, w.failedAt(w.a.PrepareSync, shop, "RenderFailed").Unreachable)
	w = newWorld(t, cm("a", 0))
	w.sourceError = release.Problemf(release.RenderFailed, "no such file")
	require.False(t, w.failedAt(w.a.PrepareSync, shop, "RenderFailed").Unreachable)
	require.Equal(t, 1, w.fetched, "a bad source is not tried again")
}

// D25: a retry of a requested sync keeps its force, and runs no hook again that has succeeded.
func TestPrepareSync_D25_a_retry_runs_no_hook_again(t *testing.T) {
	for _, asked := range []PrepareInput{{RequestedBy: "ann"}, {Force: true}} {
		w := newWorld(t, cm("a", 0))
		hook := v1alpha1.Hook{Name: "migrate", Job: &v1alpha1.JobHook{Namespace: "team-a"}}
		w.rel.Spec.Hooks.PreSync = []v1alpha1.Hook{hook}
		done := v1alpha1.HookStatus{Name: "migrate", Phase: "preSync", Result: "Succeeded", Digest: w.sync().Digest, Definition: release.HookDefinition(hook)}
		w.rel.Status.Hooks = []v1alpha1.HookStatus{done}
		in := asked
		in.Namespace, in.Name, in.Cause = "team-a", "shop", "the sync before failed"
		var plan Prepared
		w.succeeds(w.a.PrepareSync, in, &plan)
		require.Len(t, plan.PreSync, 1, "a person asks")
		plan, in.Retry = Prepared{}, true
		w.succeeds(w.a.PrepareSync, in, &plan)
		require.Empty(t, plan.PreSync)
		require.Equal(t, asked.Force, w.rel.Status.LastAttempted.Force)
		require.Equal(t, asked.RequestedBy, w.rel.Status.LastAttempted.RequestedBy)
		done.Result = "Failed"
		w.rel.Status.Hooks, plan = []v1alpha1.HookStatus{done}, Prepared{}
		w.succeeds(w.a.PrepareSync, in, &plan)
		require.Len(t, plan.PreSync, 1, "it did not succeed")
	}
}
