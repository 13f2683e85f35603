package release

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// D18: an entry of status.terminating leads back to the object.
func TestHeld_D18_an_entry_names_the_object_whole(t *testing.T) {
	for entry, held := range map[string]Held{
		"ConfigMap shop/a (finalizers: x/hold)":                   {ObjectRef{Kind: "ConfigMap", Namespace: "shop", Name: "a"}, []string{"x/hold"}},
		"Deployment.apps shop/web (finalizers: x/hold, y.z/hold)": {ObjectRef{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, []string{"x/hold", "y.z/hold"}},
		"Namespace shop (finalizers: kubernetes)":                 {ObjectRef{Kind: "Namespace", Name: "shop"}, []string{"kubernetes"}},
		"ClusterRole.rbac.authorization.k8s.io system:a.b (finalizers: x)": {
			ObjectRef{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "system:a.b"}, []string{"x"},
		},
	} {
		require.Equal(t, entry, held.String())
		parsed, ok := ParseHeld(entry)
		require.True(t, ok, entry)
		require.Equal(t, held, parsed)
	}
	for _, entry := range []string{"", "ConfigMap shop/a", "ConfigMap shop/a (finalizers: )", "ConfigMap a/b/c (finalizers: x)", "ConfigMap /c (finalizers: x)", "ConfigMap a/ (finalizers: x)", "ConfigMap (finalizers: x)", "ConfigMap a (finalizers: x", " a (finalizers: x)", "more"} {
		_, ok := ParseHeld(entry)
		require.False(t, ok, entry)
	}
}
