package activities

import (
	"errors"
	"testing"

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
