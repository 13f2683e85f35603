package activities

import (
	"errors"
	"testing"

	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/require"
)

// S21 D21: exactly what was applied, in the order of application; what leaves is named.
func TestWriteInventory_S21_is_exactly_what_was_applied(t *testing.T) {
	w := newWorld(t, cm("b", 1), cm("a", 0))
	w.lists("old b a", "p")
	var result InventoryResult
	w.succeeds(w.a.WriteInventory, InventoryInput{Sync: w.sync()}, &result)
	require.Equal(t, "a b | ", w.listed())
	require.Equal(t, []string{"ConfigMap team-a/old"}, result.Left.Objects)
	require.Equal(t, clusterUID, w.inv.Spec.ClusterUID, "D31")

	w.calls = nil
	w.succeeds(w.a.WriteInventory, InventoryInput{Sync: w.sync()}, nil)
	require.Empty(t, w.calls, "nothing is written when it is exact already")
}

// D16: after an attempt that may have left a request in flight, what left stays pending.
func TestWriteInventory_D16_keeps_pending_what_is_to_be_looked_at_again(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	w.lists("a pruned", "late a")
	w.succeeds(w.a.WriteInventory, InventoryInput{Sync: w.sync(), Recheck: true}, nil)
	require.Equal(t, "a | pruned late", w.listed())
}

// D30: what stays keeps its fact in its new place.
func TestWriteInventory_D30_keeps_facts_beside_their_objects(t *testing.T) {
	w := newWorld(t, cm("b", 1), cm("c", 1), cm("a", 0))
	w.lists("old b pruned c a", "")
	w.knows("old b a")
	w.succeeds(w.a.WriteInventory, InventoryInput{Sync: w.sync()}, nil)
	require.Equal(t, "a b c?", w.known())
}

// D34
func TestWriteInventory_D34_fails_as_DeployFailed(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	w.fail["save a | "] = errors.New("too large")
	require.Contains(t, w.fails(w.a.WriteInventory, InventoryInput{Sync: w.sync()}, "DeployFailed"), "the inventory was not written")
}

// D16: it does not write over the inventory of a sync that has begun since.
func TestWriteInventory_D16_is_fenced(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	in := InventoryInput{Sync: w.sync()}
	w.lists("a b", "")
	w.rel.Status.Fence.Number++
	w.fails(w.a.WriteInventory, in, Fenced)
	require.Empty(t, w.calls)
}

// D18: what an earlier sync pruned stays named while finalizers hold it, and no longer.
func TestWriteInventory_D18_looks_at_what_finalizers_held(t *testing.T) {
	w := newWorld(t, cm("a", 0)+cm("back", 0))
	w.rel.Status.Terminating = []string{
		"ConfigMap team-a/held (finalizers: x/hold, y/hold)", "ConfigMap team-a/gone (finalizers: x/hold)",
		"ConfigMap team-a/anew (finalizers: x/hold)", "ConfigMap team-a/back (finalizers: x/hold)", "words",
	}
	w.stands("held anew back")
	for _, name := range []string{"held", "back"} {
		w.live[cmRef(name)].DeletionTimestamp, w.live[cmRef(name)].Finalizers = &w.now, []string{"y/hold"}
	}
	var result InventoryResult
	w.succeeds(w.a.WriteInventory, InventoryInput{Sync: w.sync()}, &result)
	require.Equal(t, Named{Objects: []string{"ConfigMap team-a/held (finalizers: y/hold)"}, Total: 1}, result.Terminating)

	w.read = func(release.ObjectRef) error {
		return &release.Failure{Class: release.Accident, Message: "out of reach"}
	}
	w.rel.Status.Terminating = w.rel.Status.Terminating[:1]
	result = InventoryResult{}
	w.succeeds(w.a.WriteInventory, InventoryInput{Sync: w.sync()}, &result)
	require.Equal(t, w.rel.Status.Terminating, result.Terminating.Objects, "what cannot be seen is not forgotten")
}

func TestNamed_WithHeld_names_an_object_once(t *testing.T) {
	now := Named{Objects: []string{"ConfigMap team-a/a (finalizers: x)"}, Total: 1}
	before := Named{Objects: []string{"ConfigMap team-a/a (finalizers: x, y)", "Lamp.example.test l (finalizers: x)"}, Total: 2}
	require.Equal(t, Named{Objects: []string{now.Objects[0], before.Objects[1]}, Total: 2}, now.WithHeld(before))
	require.Equal(t, now, now.WithHeld(Named{}))
	require.Equal(t, before, Named{}.WithHeld(before))
	require.Zero(t, Named{}.WithHeld(Named{}))
}
