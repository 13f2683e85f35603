package release

import (
	"testing"

	"github.com/stretchr/testify/require"

	"convoy.dev/convoy/api/v1alpha1"
)

// D12, D17, D27, D28: what stays on the cluster, and as what.
func TestProtection(t *testing.T) {
	configMap := ObjectRef{Kind: "ConfigMap", Namespace: "shop", Name: "prices"}
	namespace := ObjectRef{Kind: "Namespace", Name: "shop"}
	crd := ObjectRef{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "lamps.lab.example.test"}
	ingress := ObjectRef{Group: "extensions", Kind: "Ingress", Namespace: "shop", Name: "web"}
	lifted := v1alpha1.PrunePolicy{Orphaned: true, Namespaces: true, CustomResourceDefinitions: true}
	live := func(ref ObjectRef, annotations ...string) Live {
		l := Live{Ref: ref, UID: "uid-1", OwnedByConvoy: true, Annotations: map[string]string{}}
		for i := 0; i < len(annotations); i += 2 {
			l.Annotations[annotations[i]] = annotations[i+1]
		}
		return l
	}
	foreign := live(configMap)
	foreign.OwnedByConvoy = false
	const argo = "argocd.argoproj.io/sync-options"

	for name, c := range map[string]struct {
		live Live
		view PruneView
		kind StayKind // empty: deleted
		says string
	}{
		"an ordinary object":                {live: live(configMap)},
		"D12 a Namespace":                   {live(namespace), PruneView{}, Protected, "spec.syncPolicy.prune.namespaces"},
		"D12 a Namespace, CRDs lifted":      {live(namespace), PruneView{Policy: v1alpha1.PrunePolicy{CustomResourceDefinitions: true}}, Protected, "namespaces"},
		"D12 a Namespace, lifted":           {live: live(namespace), view: PruneView{Policy: lifted}},
		"D12 a definition":                  {live(crd), PruneView{}, Protected, "spec.syncPolicy.prune.customResourceDefinitions"},
		"D12 a definition, lifted":          {live: live(crd), view: PruneView{Policy: lifted}},
		"a Namespace of another group":      {live: live(ObjectRef{Group: "x.example", Kind: "Namespace", Name: "shop"})},
		"D28 a Namespace that holds others": {live(namespace), PruneView{Policy: lifted, InUse: NamespacesInUse(nil, []ObjectRef{configMap})}, Protected, "it still holds ConfigMap shop/prices"},
		"D28 another Namespace holds them":  {live: live(ObjectRef{Kind: "Namespace", Name: "empty"}), view: PruneView{Policy: lifted, InUse: NamespacesInUse([]ObjectRef{configMap})}},
		"D12 convoy's mark (case 61)":       {live(configMap, "convoy.dev/prune", "disabled"), PruneView{}, Protected, "convoy.dev/prune: disabled"},
		"D12 another value":                 {live: live(configMap, "convoy.dev/prune", "enabled")},
		"D12 Helm":                          {live(configMap, "helm.sh/resource-policy", "keep"), PruneView{}, Protected, "helm.sh/resource-policy: keep"},
		"D12 Flux":                          {live(configMap, "kustomize.toolkit.fluxcd.io/prune", "Disabled"), PruneView{}, Protected, "kustomize.toolkit.fluxcd.io/prune"},
		"D12 Argo CD":                       {live(configMap, argo, "Prune=false"), PruneView{}, Protected, "Prune=false"},
		"D12 Argo CD in a list":             {live(configMap, argo, "Validate=false, Prune=false ,Delete=false"), PruneView{}, Protected, "Prune=false"},
		"D12 Argo CD asks first":            {live(configMap, argo, "Prune=confirm"), PruneView{}, Protected, "Prune=confirm"},
		"D12 Argo CD, another option":       {live: live(configMap, argo, "Prune=true,NoPrune=false,PruneLast=true")},
		"D12 a mark on a lifted Namespace":  {live(namespace, "convoy.dev/prune", "disabled"), PruneView{Policy: lifted}, Protected, "convoy.dev/prune"},
		"D27 moved":                         {live(configMap), PruneView{Claims: map[ObjectRef]string{configMap: "team-b/shop"}}, Moved, "it belongs to the Release team-b/shop now"},
		"D27 moved comes before a mark":     {live(configMap, "convoy.dev/prune", "disabled"), PruneView{Claims: map[ObjectRef]string{configMap: "team-b/shop"}}, Moved, "team-b/shop"},
		"D17 made anew":                     {foreign, PruneView{}, Foreign, "somebody else"},
		"D17 the same under another group":  {live(ingress), PruneView{AppliedUIDs: map[string]ObjectRef{"uid-1": {"networking.k8s.io", "Ingress", "shop", "web"}}}, Moved, "networking.k8s.io"},
		"D17 another uid":                   {live: live(ingress), view: PruneView{AppliedUIDs: map[string]ObjectRef{"uid-2": {}}}},
	} {
		t.Run(name, func(t *testing.T) {
			stay, protected := Protection(c.live, c.view)
			require.Equal(t, c.kind != "", protected)
			if protected {
				require.Equal(t, c.kind, stay.Kind)
				require.Contains(t, stay.Reason, c.says)
			}
		})
	}
}
