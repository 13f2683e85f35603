package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"convoy.dev/convoy/internal/release"
)

// configMap manifests for tests.
func manifest(ns, name string, wave int, value string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: ConfigMap
metadata: {name: %s, namespace: %s, annotations: {convoy.dev/sync-wave: "%d"}}
data: {v: "%s"}
`, name, ns, wave, value)
}

// S1 S15 S19 S20 S21 S22 S24 S29 S30 S31 D30
func TestSync_two_waves_and_a_prune(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", manifest(w.ns, "b", 1, "1")+manifest(w.ns, "a", 0, "1")+manifest(w.ns, "old", 0, "1"), nil)

	result := w.succeeds("shop")
	require.Equal(t, 3, result.Objects)
	require.Equal(t, []string{w.cm("a"), w.cm("b"), w.cm("old")}, w.inventory("shop"))
	require.Empty(t, w.rawInventory("shop").Spec.Pending)
	require.Len(t, release.FactsOf(w.rawInventory("shop")), 3, "a fact of each object")
	first := w.get("shop").Status
	require.Equal(t, result.Digest, first.LastSuccessful.Digest)
	require.Len(t, first.Waves, 2)
	require.Len(t, first.History, 1)

	w.render("shop", manifest(w.ns, "b", 1, "2")+manifest(w.ns, "a", 0, "1"))
	result = w.succeeds("shop")
	require.Equal(t, 1, result.Pruned)
	require.Nil(t, w.configMap("old"))
	require.Equal(t, "2", w.configMap("b").Data["v"])
	require.Equal(t, []string{w.cm("a"), w.cm("b")}, w.inventory("shop"))
	require.Len(t, w.get("shop").Status.History, 2)

	before := w.rawInventory("shop")
	require.Len(t, release.FactsOf(before), 2)
	w.succeeds("shop")
	require.Equal(t, before.ResourceVersion, w.rawInventory("shop").ResourceVersion, "the same again writes no inventory")
}
