package activities

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var shop = PrepareInput{Namespace: "team-a", Name: "shop"}

// D16: one sync of a Release at a time, under its own id.
func TestPrepareSync_D16_admits_one_sync_at_a_time(t *testing.T) {
	open := func(w *world) { w.rel.Status.Fence.Acknowledged = false }
	t.Run("another id", func(t *testing.T) {
		w := newWorld(t, cm("a", 0))
		message := failed(t, w.perform("my-own-id", w.a.PrepareSync, shop, nil), Refused)
		require.Contains(t, message, `start it with --workflow-id sync:team-a:shop`)
		require.Empty(t, w.calls)
	})
	t.Run("another sync runs", func(t *testing.T) {
		w := newWorld(t, cm("a", 0))
		open(w)
		w.running = true
		require.Contains(t, w.fails(w.a.PrepareSync, shop, Refused), "is running")
		require.Empty(t, w.calls)
	})
	t.Run("another sync ended without a goodbye a moment ago", func(t *testing.T) {
		w := newWorld(t, cm("a", 0))
		open(w)
		w.closedAt = w.now.Add(-heartbeat + time.Second)
		require.Contains(t, w.fails(w.a.PrepareSync, shop, Waiting), "waiting 1s")
		require.Empty(t, w.calls)
	})
	t.Run("it did so a heartbeat timeout ago", func(t *testing.T) {
		w := newWorld(t, cm("a", 0))
		open(w)
		w.closedAt = w.now.Add(-heartbeat)
		var plan Prepared
		w.succeeds(w.a.PrepareSync, shop, &plan)
		require.True(t, plan.Unsure)
		require.Equal(t, int64(8), plan.Sync.Fence)
	})
	t.Run("no other sync", func(t *testing.T) {
		w := newWorld(t, cm("a", 0))
		var plan Prepared
		w.succeeds(w.a.PrepareSync, shop, &plan)
		require.False(t, plan.Unsure)
		require.Equal(t, int64(8), w.rel.Status.Fence.Number)
		require.False(t, w.rel.Status.Fence.Acknowledged)
	})
}

// emptyStore holds no render.
type emptyStore struct{ Store }

func (emptyStore) Get(context.Context, string) (*release.Render, error) {
	return nil, fmt.Errorf("file:///renders: %w", release.ErrNotFound)
}

// S30: a stored render that cannot be had is refused, and what is said of the render that is applied stays.
func TestPrepareSync_refuses_a_stored_render_that_is_not_there(t *testing.T) {
	in := shop
	in.Digest = "sha256:" + strings.Repeat("a", 64)
	for want, store := range map[string]Store{"--render-store-url": nil, "file:///renders": emptyStore{}} {
		w := newWorld(t, cm("a", 0))
		w.a.store = store
		message := w.fails(w.a.PrepareSync, in, Refused)
		require.Contains(t, message, in.Digest)
		require.Contains(t, message, want)
		require.Empty(t, w.calls)
	}
}

// D13: what is pending was applied when it bears convoy's own apply entry; what is absent, foreign or another
// Release's was not.
func TestPrepareSync_D13_settles_what_is_pending_by_looking(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	w.lists("a", "ours theirs absent taken")
	w.knows("a")
	w.stands("a ours taken")
	w.foreign("theirs")
	w.claims[cmRef("taken")] = types.NamespacedName{Namespace: "team-b", Name: "other"}
	var plan Prepared
	w.succeeds(w.a.PrepareSync, shop, &plan)
	require.Equal(t, "a ours | ", w.listed())
	require.Equal(t, "a ours?", w.known(), "D30: what was found is not known until it is applied again")
	require.Equal(t, 1, plan.Orphans)
}

// D1 D19 D27 D31 D34 S29 D33: what is refused before anything is applied. The attempt is recorded, the inventory stays.
func TestPrepareSync_refuses_before_anything_is_applied(t *testing.T) {
	other := types.NamespacedName{Namespace: "team-b", Name: "other"}
	large := func() string {
		var all strings.Builder
		for i := range 5000 {
			all.WriteString(cm(fmt.Sprintf("%s-%04d", strings.Repeat("long", 60), i), 0))
		}
		return all.String()
	}
	for name, c := range map[string]struct {
		render string
		change func(*world)
		reason release.Reason
		says   string
	}{
		"D1 a faulty render":        {"kind: ConfigMap", nil, release.RenderFailed, "metadata.name"},
		"D19 an empty render":       {"# nothing", func(w *world) { w.lists("a b", "") }, release.RenderFailed, "the render is empty and the inventory lists 2 objects"},
		"D19 pending ones count":    {"# nothing", func(w *world) { w.lists("", "a") }, release.RenderFailed, "lists 1 object:"},
		"D31 another cluster":       {cm("a", 0), func(w *world) { w.lists("a", ""); w.inv.Spec.ClusterUID = "cluster-2" }, release.RenderFailed, "on the cluster cluster-2"},
		"D34 a large inventory":     {large(), nil, release.DeployFailed, "would hold 5000 records"},
		"D27 another Release's":     {cm("a", 0), func(w *world) { w.claims[cmRef("a")] = other }, release.RenderFailed, "ConfigMap team-a/a belongs to Release team-b/other"},
		"D27 the loser is silent":   {cm("a", 0, "convoy.dev/adopt: enabled"), func(w *world) { w.claims[cmRef("a")], w.others[other] = other, &v1alpha1.Release{} }, release.RenderFailed, "convoy.dev/hand-over: team-a/shop"},
		"D27 no adoption asked for": {cm("a", 0), func(w *world) { w.claims[cmRef("a")] = types.NamespacedName{Namespace: "team-a", Name: "old"} }, release.RenderFailed, "belongs to Release team-a/old"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.render)
			if c.change != nil {
				c.change(w)
			}
			before := w.listed()
			require.Contains(t, w.fails(w.a.PrepareSync, PrepareInput{Namespace: "team-a", Name: "shop", Force: true}, string(c.reason)), c.says)
			require.Equal(t, before, w.listed())
			require.Equal(t, "status", strings.Join(w.calls, ", "))
			require.Equal(t, v1alpha1.ResultRunning, w.rel.Status.LastAttempted.Result)
		})
	}
}

// D19 D27 D31: what lifts a refusal.
func TestPrepareSync_what_lifts_a_refusal(t *testing.T) {
	loser := types.NamespacedName{Namespace: "team-b", Name: "other"}
	for name, c := range map[string]struct {
		render string
		change func(*world)
	}{
		"D19 allowEmpty":                   {"# nothing", func(w *world) { w.lists("a", ""); w.rel.Spec.SyncPolicy.Prune.AllowEmpty = true }},
		"D19 nothing was there":            {"# nothing", nil},
		"D31 an inventory without objects": {cm("a", 0), func(w *world) { w.lists("", ""); w.inv.Spec.ClusterUID = "cluster-2" }},
		"D27 adoption inside a namespace":  {cm("a", 0, "convoy.dev/adopt: enabled"), func(w *world) { w.claims[cmRef("a")] = types.NamespacedName{Namespace: "team-a", Name: "old"} }},
		"D27 adoption, the loser agrees": {cm("a", 0, "convoy.dev/adopt: enabled"), func(w *world) {
			w.claims[cmRef("a")] = loser
			w.others[loser] = &v1alpha1.Release{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"convoy.dev/hand-over": "team-a/shop"}}}
		}},
		"D27 what is recorded is one's own": {cm("a", 0), func(w *world) { w.lists("a", ""); w.claims[cmRef("a")] = loser }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.render)
			if c.change != nil {
				c.change(w)
			}
			w.succeeds(w.a.PrepareSync, shop, nil)
		})
	}
}

// D25: OnChange runs when the digest or the definition differ from the last success, or when a person asks.
func TestPrepareSync_D25_plans_the_hooks_that_are_to_run(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*world, *v1alpha1.HookStatus, *PrepareInput)
		want   string
	}{
		"it succeeded": {func(*world, *v1alpha1.HookStatus, *PrepareInput) {}, "always"},
		"it failed": {func(_ *world, last *v1alpha1.HookStatus, _ *PrepareInput) {
			last.Result = string(v1alpha1.ResultFailed)
		}, "onchange always"},
		"another digest":         {func(_ *world, last *v1alpha1.HookStatus, _ *PrepareInput) { last.Digest = "sha256:other" }, "onchange always"},
		"another definition":     {func(_ *world, last *v1alpha1.HookStatus, _ *PrepareInput) { last.Definition = "sha256:other" }, "onchange always"},
		"it was a postSync hook": {func(_ *world, last *v1alpha1.HookStatus, _ *PrepareInput) { last.Phase = "postSync" }, "onchange always"},
		"a person asks":          {func(_ *world, _ *v1alpha1.HookStatus, in *PrepareInput) { in.RequestedBy = "ann" }, "onchange always"},
		"force":                  {func(_ *world, _ *v1alpha1.HookStatus, in *PrepareInput) { in.Force = true }, "onchange always"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cm("a", 0))
			hook := v1alpha1.Hook{Name: "onchange", Job: &v1alpha1.JobHook{Namespace: "team-a"}}
			w.rel.Spec.Hooks.PreSync = []v1alpha1.Hook{hook, {Name: "always", Run: v1alpha1.HookAlways, Job: hook.Job}}
			in, last := shop, v1alpha1.HookStatus{
				Name: "onchange", Phase: "preSync", Result: string(v1alpha1.ResultSucceeded), Digest: w.sync().Digest, Definition: release.HookDefinition(hook),
			}
			c.change(w, &last, &in)
			always := last
			always.Name = "always"
			w.rel.Status.Hooks = []v1alpha1.HookStatus{last, always}
			var plan Prepared
			w.succeeds(w.a.PrepareSync, in, &plan)
			var planned []string
			for _, hook := range plan.PreSync {
				planned = append(planned, hook.Name)
			}
			require.Equal(t, c.want, strings.Join(planned, " "))
		})
	}
}

// D21 D35: with the prune off the plan names what the exact inventory will forget.
func TestPrepareSync_D21_names_the_orphans(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	w.lists("old a", "ours")
	w.stands("a ours")
	var plan Prepared
	w.succeeds(w.a.PrepareSync, shop, &plan)
	require.Equal(t, Named{Objects: []string{"ConfigMap team-a/old", "ConfigMap team-a/ours"}, Total: 2}, plan.OrphanNames)

	var first, second InventoryResult
	w.succeeds(w.a.WriteInventory, InventoryInput{Sync: w.sync()}, &first)
	require.Equal(t, plan.OrphanNames, first.Left, "the plan names what leaves")
	w.succeeds(w.a.WriteInventory, InventoryInput{Sync: w.sync()}, &second)
	require.Zero(t, second.Left.Total, "an attempt that finds the inventory exact knows no names")

	w.lists(strings.Join(numbered("o", 31), " "), "")
	plan = Prepared{}
	w.rel.Status.Fence.Acknowledged = true
	w.succeeds(w.a.PrepareSync, shop, &plan)
	require.Len(t, plan.OrphanNames.Objects, 20)
	require.Equal(t, 31, plan.OrphanNames.Total)

	w.rel.Status.Fence.Acknowledged = true
	w.rel.Spec.SyncPolicy.Prune.Orphaned = true
	plan = Prepared{}
	w.succeeds(w.a.PrepareSync, shop, &plan)
	require.Equal(t, 31, plan.Orphans)
	require.Zero(t, plan.OrphanNames, "the prune says what becomes of them")
}

func numbered(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return names
}
