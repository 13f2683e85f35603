package control

import (
	"testing"

	"github.com/stretchr/testify/require"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"
)

// D27 D30: what moved away leaves objects and pending ones; what stays keeps its fact.
func TestDisclaim_D27_D30(t *testing.T) {
	a, b, c := release.ObjectRef{Kind: "A", Name: "a"}, release.ObjectRef{Kind: "B", Name: "b"}, release.ObjectRef{Kind: "C", Name: "c"}
	facts := map[release.ObjectRef]release.Fact{a: release.FactOf("a", "", "", nil), c: release.FactOf("c", "", "", nil)}
	inv := &v1alpha1.ReleaseInventory{}
	inv.Spec.Pending = release.Records([]release.ObjectRef{b, c})
	release.SetObjects(inv, []release.ObjectRef{a, b, c}, facts)

	before := inv.DeepCopy()
	require.False(t, disclaim(inv, map[release.ObjectRef]bool{{Kind: "A", Name: "other"}: true}))
	require.Equal(t, before, inv)

	require.True(t, disclaim(inv, map[release.ObjectRef]bool{a: true, b: true}))
	require.Equal(t, []release.ObjectRef{c}, release.RefsOf(inv.Spec.Objects))
	require.Equal(t, []release.ObjectRef{c}, release.RefsOf(inv.Spec.Pending))
	require.Equal(t, map[release.ObjectRef]release.Fact{c: facts[c]}, release.FactsOf(inv))
}
