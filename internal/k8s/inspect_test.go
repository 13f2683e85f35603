package k8s

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"convoy.dev/convoy/internal/release"
)

// D24: an expression judges an object as this sync left it.
func TestInspect_D24_tells_whether_a_status_is_to_be_trusted(t *testing.T) {
	for object, want := range map[string]string{
		"{apiVersion: a/v1, kind: B, metadata: {generation: 2}, status: {observedGeneration: 2}}":                              "",
		"{apiVersion: a/v1, kind: B, metadata: {generation: 2}, status: {observedGeneration: 1}}":                              "its status is about generation 1, not 2",
		"{apiVersion: a/v1, kind: B, metadata: {generation: 2}}":                                                               "",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}":                                                               "",
		"{apiVersion: apps/v1, kind: Deployment, metadata: {generation: 2}}":                                                   "its controller has not observed generation 2 yet",
		"{apiVersion: a/v1, kind: B, metadata: {generation: 2}, status: {conditions: [{type: Ready, observedGeneration: 1}]}}": "its condition Ready is about generation 1, not 2",
		"{apiVersion: a/v1, kind: B, metadata: {generation: 1, deletionTimestamp: 2020-01-01T00:00:00Z}}":                      "it is being deleted",
	} {
		document, err := yaml.YAMLToJSON([]byte(object))
		require.NoError(t, err)
		parsed := &unstructured.Unstructured{}
		require.NoError(t, parsed.UnmarshalJSON(document))
		require.Equal(t, want, inspected(aConfigMap, parsed).Unsettled, object)
	}
	require.Equal(t, release.Looked{Ref: aConfigMap, Unsettled: "not found"}, inspected(aConfigMap, nil))
}

// D10 D24: ConfigMaps are read whole, Secrets never, alone or in a list; and no more requests are sent than for Ready.
func TestInspect_D10_reads_no_Secret(t *testing.T) {
	s := newServer(t)
	const sentinel = "czNudGluZWw=" // base64
	var refs []release.ObjectRef
	add := func(kind, name, content string) {
		obj := s.object(fmt.Sprintf("{apiVersion: v1, kind: %s, metadata: {name: %s, namespace: NS, annotations: {%s: %s, a: b}}, %s}", kind, name, lastApplied, sentinel, content))
		s.apply(s.impatient(), obj)
		refs = append(refs, ref(obj))
	}
	add("ConfigMap", "c", "data: {a: b}")
	for i := range 12 {
		add("Secret", fmt.Sprintf("s%d", i), "data: {a: "+sentinel+"}")
	}
	for name, asked := range map[string][]release.ObjectRef{"alone": refs[:2], "listed": refs} {
		s.requests.take()
		looked, err := s.impatient().Inspect(t.Context(), asked)
		require.NoError(t, err)
		require.Len(t, s.requests.take(), 2, name)
		require.Len(t, looked, len(asked))
		require.Equal(t, map[string]any{"a": "b"}, looked[0].Content["data"])
		for _, one := range looked {
			require.Empty(t, one.Unsettled)
			require.NotContains(t, fmt.Sprint(one.Content), sentinel)
			require.Equal(t, one.Ref.Kind, one.Content["kind"])
		}
	}
}
