package release

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// core knows the kinds that tests use, as a cluster without custom resources would.
func core(gvk schema.GroupVersionKind) (namespaced, known bool) {
	switch gvk.Kind {
	case "Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "PriorityClass":
		return false, true
	case "ConfigMap", "Secret", "Deployment", "HorizontalPodAutoscaler", "Role", "RoleBinding", "ServiceAccount", "Pod", "Ingress":
		return true, true
	default:
		return false, false
	}
}

func locate(t testing.TB, text string) *Plan {
	t.Helper()
	plan, err := Locate(parse(t, text), core)
	require.NoError(t, err)
	return plan
}

func names(plan *Plan) []string {
	var out []string
	for _, item := range plan.Items {
		out = append(out, item.Ref.String())
	}
	return out
}

// D3, case 46: identical copies count once, after normalisation.
func TestIdenticalCopiesCountOnce(t *testing.T) {
	plan := locate(t, `
apiVersion: v1
kind: ConfigMap
metadata: {name: twin}
data: {b: "2"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: twin, namespace: default}
data: {b: "2"}
`)
	require.Equal(t, []ObjectRef{{Kind: "ConfigMap", Namespace: "default", Name: "twin"}}, plan.Refs())
}

// D3, case 46: two different ones are an error that names both places.
func TestDifferentCopiesNameBothPlaces(t *testing.T) {
	_, err := Locate(parse(t, `apiVersion: v1
kind: ConfigMap
metadata: {name: twin}
data: {a: "1"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: twin, namespace: default}
data: {b: "2"}
`), core)
	problem := &Problem{}
	require.ErrorAs(t, err, &problem)
	require.Equal(t, RenderFailed, problem.Reason)
	require.Equal(t, "ConfigMap default/twin stands twice in the render with different content: shop.yaml, document 1, line 1 and shop.yaml, document 2, line 6", problem.Message)
}

// S19: the API version is no part of the identity, so two versions of one object are two different copies of it.
func TestTwoVersionsOfOneObjectClash(t *testing.T) {
	r := parse(t, `
{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: web}}
---
{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web}}
`)
	for i := range r.Objects {
		r.Objects[i].Place = Place{} // as from the render store
	}
	_, err := Locate(r, core)
	require.ErrorContains(t, err, "HorizontalPodAutoscaler default/web stands twice in the render with different content: object 1 of the render and object 2 of the render")
}

// Case 49: going from one version to another keeps the identity.
func TestVersionIsNoPartOfTheIdentity(t *testing.T) {
	one := locate(t, `{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: web}}`)
	two := locate(t, `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web}}`)
	require.Equal(t, one.Refs(), two.Refs())
}

// S14, D4, case 47: from no namespace to an explicit default, nothing is an orphan.
func TestDefaultNamespaceWrittenOutLater(t *testing.T) {
	one := locate(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: plain}}`)
	two := locate(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: plain, namespace: default}}`)
	require.Empty(t, Orphans(one.Refs(), two.Refs()))
	require.Empty(t, Orphans(two.Refs(), one.Refs()))
}

// D4: a stray namespace on a cluster-scoped kind is dropped with a warning.
func TestStrayNamespace(t *testing.T) {
	plan := locate(t, `
{apiVersion: v1, kind: Namespace, metadata: {name: shop, namespace: shop}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
`)
	require.Equal(t, []ObjectRef{{Kind: "Namespace", Name: "shop"}}, plan.Refs())
	require.Equal(t, []string{`Namespace shop is cluster-scoped: its namespace "shop" is ignored (shop.yaml, document 1, line 2)`}, plan.Warnings)
}

const lampDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.lab.example.test}
spec: {group: lab.example.test, scope: SCOPE, names: {plural: lamps, kind: Lamp}}
---
`

// D4: the scope of a kind that the cluster does not know is taken from its definition in the render, also a later one.
func TestScopeFromTheRender(t *testing.T) {
	lamp := "{apiVersion: lab.example.test/v1, kind: Lamp, metadata: {name: l}}\n---\n"
	namespaced := locate(t, lamp+replaced(lampDefinition, "Namespaced"))
	require.Equal(t, ObjectRef{"lab.example.test", "Lamp", "default", "l"}, namespaced.Items[0].Ref)
	cluster := locate(t, lamp+replaced(lampDefinition, "Cluster"))
	require.Equal(t, ObjectRef{"lab.example.test", "Lamp", "", "l"}, cluster.Items[0].Ref)
	require.Empty(t, cluster.Unknown)

	gk, ok := DefinedKind(cluster.Items[1].Object)
	require.True(t, ok)
	require.Equal(t, schema.GroupKind{Group: "lab.example.test", Kind: "Lamp"}, gk)
}

// D4: where neither says, the namespace is taken as written, else default.
func TestScopeUnknown(t *testing.T) {
	plan := locate(t, `
{apiVersion: x.example/v1, kind: Thing, metadata: {name: a}}
---
{apiVersion: x.example/v1, kind: Thing, metadata: {name: b, namespace: shop}}
`)
	require.Equal(t, []string{"Thing default/a", "Thing shop/b"}, names(plan))
	require.True(t, plan.Items[0].ScopeUnknown)
	require.Equal(t, []schema.GroupVersionKind{{Group: "x.example", Version: "v1", Kind: "Thing"}}, plan.Unknown)
}

// S15, S16: waves ascending, inside a wave the order of the render, whatever the kinds.
func TestOrderOfApplication(t *testing.T) {
	plan := locate(t, `
{apiVersion: v1, kind: ConfigMap, metadata: {name: late, annotations: {convoy.dev/sync-wave: "5"}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: z}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: ns}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: first, annotations: {convoy.dev/sync-wave: "-2147483648"}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: last, annotations: {convoy.dev/sync-wave: "2147483647"}}}
`)
	require.Equal(t, []string{"ConfigMap default/first", "ConfigMap default/z", "Namespace ns", "ConfigMap default/a", "ConfigMap default/late", "ConfigMap default/last"}, names(plan))
	require.Equal(t, []Wave{{-2147483648, 0, 1}, {0, 1, 3}, {5, 4, 1}, {2147483647, 5, 1}}, plan.Waves)
	require.Equal(t, 5, plan.Items[0].Index)
	require.Equal(t, "z", plan.InWave(plan.Waves[1])[0].Ref.Name)
}

// D3, D35: many clashes are listed up to 20, with the total; no content is shown (D10).
func TestManyClashes(t *testing.T) {
	var text strings.Builder
	for i := range 30 {
		fmt.Fprintf(&text, "---\n{apiVersion: v1, kind: Secret, metadata: {name: s%d}, stringData: {k: hush}}\n---\n{apiVersion: v1, kind: Secret, metadata: {name: s%d}, stringData: {k: other}}\n", i, i)
	}
	_, err := Locate(parse(t, text.String()), core)
	require.ErrorContains(t, err, "Secret default/s19 stands twice")
	require.ErrorContains(t, err, "\n… and 10 more")
	require.NotContains(t, err.Error(), "hush")
}
