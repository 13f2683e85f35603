package k8s

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"convoy.dev/convoy/internal/release"
)

// crd is a CustomResourceDefinition of kind Lamp in a group of the test's own; FIELDS are the properties of spec.
const crd = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.NS.example.test}
spec:
  group: NS.example.test
  scope: Namespaced
  names: {kind: Lamp, listKind: LampList, plural: lamps, singular: lamp}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer, format: int64}FIELDS}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

const lamp = "{apiVersion: NS.example.test/v1, kind: Lamp, metadata: {name: l, namespace: NS}, spec: {size: 9007199254740993}}"

func (s *server) lampKinds() map[schema.GroupKind]string {
	group := s.namespace + ".example.test"
	return map[schema.GroupKind]string{{Group: group, Kind: "Lamp"}: "lamps." + group}
}

func TestApply_S13_creates_changes_and_tells_what_changed(t *testing.T) {
	s := newServer(t)
	session := s.impatient()
	obj := s.object(configMap)
	_, err := s.cluster.Resolve(t.Context(), obj.GVK)
	require.NoError(t, err)
	s.requests.take()

	tried, err := session.DryRun(t.Context(), obj, ref(obj))
	require.NoError(t, err)
	require.True(t, tried.Created)
	require.True(t, tried.Changed)

	made := s.apply(session, obj)
	require.True(t, made.Created)
	require.True(t, made.Changed)
	require.NotEmpty(t, made.UID)
	path := "/api/v1/namespaces/" + s.namespace + "/configmaps/settings?"
	require.Equal(t, []string{
		"PATCH " + path + "dryRun=All&fieldManager=convoy&force=true",
		"PATCH " + path + "fieldManager=convoy&force=true",
	}, s.requests.take(), "one request each, no GET")

	s.eventually("two seconds go by", func() bool {
		again, err := session.DryRun(t.Context(), obj, ref(obj))
		require.NoError(t, err)
		return !again.Changed
	})
	same := s.apply(session, obj)
	require.False(t, same.Created)
	require.False(t, same.Changed)
	require.Equal(t, made.ResourceVersion, same.ResourceVersion)

	other := s.object(replace(configMap, "value", "other"))
	tried, err = session.DryRun(t.Context(), other, ref(other))
	require.NoError(t, err)
	require.True(t, tried.Changed)
	require.Equal(t, made.ResourceVersion, tried.ResourceVersion, "a dry run keeps nothing")
}

func TestApply_S13_takes_fields_of_others_by_force(t *testing.T) {
	s := newServer(t)
	s.create(replace(configMap, "value", "theirs"))
	obj := s.object(configMap)
	applied := s.apply(s.impatient(), obj)
	require.False(t, applied.Created)
	require.True(t, applied.Changed)
	require.Empty(t, applied.TakenOver, "kubectl-create is no client-side apply")
	data, _, _ := unstructured.NestedStringMap(s.live(obj).Object, "data")
	require.Equal(t, map[string]string{"key": "value"}, data)
}

func TestApply_S14_fills_the_namespace_in_and_drops_a_stray_one(t *testing.T) {
	s := newServer(t)
	obj := s.object("{apiVersion: v1, kind: ConfigMap, metadata: {name: NS-in-default}, data: {html: <a&b>}}")
	s.deleteLater(obj)
	s.apply(s.impatient(), obj)
	require.Equal(t, "default", s.live(obj).GetNamespace())

	stray := s.object("{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: NS-stray, namespace: elsewhere}, value: 7}")
	s.deleteLater(stray)
	_, err := s.impatient().Apply(t.Context(), stray, global(stray))
	require.NoError(t, err)
	require.Empty(t, s.live(stray).GetNamespace())
}

func TestApply_D11_defines_a_kind_and_uses_it_in_one_session(t *testing.T) {
	s := newServer(t)
	definition, obj := s.object(replace(crd, "FIELDS", "")), s.object(lamp)
	s.deleteLater(definition)
	session := s.cluster.Session(SessionOptions{RenderCRDs: s.lampKinds()})

	_, err := session.DryRun(t.Context(), obj, ref(obj))
	require.Equal(t, release.UnknownKind, failureOf(t, err).Class, "S8: a dry run does not wait")

	_, err = session.Apply(t.Context(), definition, global(definition))
	require.NoError(t, err)
	s.apply(session, obj)
	size, _, _ := unstructured.NestedInt64(s.live(obj).Object, "spec", "size")
	require.Equal(t, int64(9007199254740993), size, "every digit is kept")

	// The definition gains a field, and the object uses it at once.
	definition = s.object(replace(crd, "FIELDS", ", color: {type: string}"))
	red := s.object(replace(lamp, "spec: {", "spec: {color: red, "))
	_, err = s.impatient().DryRun(t.Context(), red, ref(red))
	failure := failureOf(t, err)
	require.Equal(t, release.Verdict, failure.Class)
	require.True(t, failure.Schema)
	_, err = session.Apply(t.Context(), definition, global(definition))
	require.NoError(t, err)
	s.apply(session, red)
	color, _, _ := unstructured.NestedString(s.live(red).Object, "spec", "color")
	require.Equal(t, "red", color)
}

// Inside a wave the definition is awaited before the first object of its kind is tried: that an object which is denied
// is tried again would hide a wait that is not there.
func TestApply_D11_looks_at_the_definition_before_its_first_object(t *testing.T) {
	s := newServer(t)
	definition, obj, other := s.object(replace(crd, "FIELDS", "")), s.object(lamp), s.object(replace(lamp, "name: l,", "name: m,"))
	s.deleteLater(definition)
	session := s.cluster.Session(SessionOptions{RenderCRDs: s.lampKinds()})
	_, err := session.Apply(t.Context(), definition, global(definition))
	require.NoError(t, err)
	at := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + definition.Name
	objects := func() (looks, applies []string) {
		for _, request := range s.requests.take() {
			switch {
			case request == "GET "+at:
				require.Empty(t, applies, "the look comes first")
				looks = append(looks, request)
			case strings.Contains(request, "/lamps/"):
				applies = append(applies, request)
			}
		}
		return looks, applies
	}
	objects()

	s.apply(session, obj)
	looks, applies := objects()
	require.NotEmpty(t, looks)
	require.Len(t, applies, 1, "the first try succeeds")

	s.apply(session, other)
	looks, applies = objects()
	require.Empty(t, looks, "it was awaited already")
	require.Len(t, applies, 1)
}

// A definition that somebody installs while convoy tries (case 18).
func TestApply_D11_kind_that_comes_a_moment_later(t *testing.T) {
	s := newServer(t)
	definition, obj := s.object(replace(crd, "FIELDS", "")), s.object(lamp)
	s.deleteLater(definition)
	session := s.cluster.Session(SessionOptions{RenderCRDs: s.lampKinds()})
	ended := make(chan error, 1)
	go func() {
		_, err := session.Apply(t.Context(), obj, ref(obj))
		ended <- err
	}()
	s.eventually("convoy meets the unknown kind", func() bool { return len(s.requests.take()) > 2 })
	_, err := s.impatient().Apply(t.Context(), definition, global(definition))
	require.NoError(t, err)
	require.NoError(t, <-ended)
}

func TestAwaitEstablished_D11_waits_for_discovery(t *testing.T) {
	s := newServer(t)
	_, err := s.cluster.Resolve(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}) // warm
	require.NoError(t, err)
	definition := s.object(replace(crd, "FIELDS", ""))
	s.deleteLater(definition)
	session := s.impatient()
	_, err = session.Apply(t.Context(), definition, global(definition))
	require.NoError(t, err)
	require.NoError(t, session.AwaitEstablished(t.Context(), []string{definition.Name}))
	s.requests.take()
	mapping, err := s.cluster.Resolve(t.Context(), s.object(lamp).GVK)
	require.NoError(t, err)
	require.Equal(t, "lamps", mapping.Resource.Resource)
	require.True(t, mapping.Namespaced)
	require.Empty(t, s.requests.take(), "discovery is fresh already")
}

func TestApply_D14_onto_an_object_being_deleted_does_not_count(t *testing.T) {
	s := newServer(t)
	held := "{apiVersion: v1, kind: ConfigMap, metadata: {name: held, namespace: NS, finalizers: [convoy.dev/test]}}"
	old := s.create(held)
	obj := s.object("{apiVersion: v1, kind: ConfigMap, metadata: {name: held, namespace: NS}, data: {key: value}}")
	s.delete(obj)
	t.Cleanup(func() { s.dropFinalizers(obj) })

	tried, err := s.impatient().DryRun(t.Context(), obj, ref(obj))
	require.NoError(t, err)
	require.True(t, tried.Deleting)
	require.Equal(t, []string{"convoy.dev/test"}, tried.Finalizers)

	_, err = s.cluster.Session(SessionOptions{DeletingFor: 300 * time.Millisecond}).Apply(t.Context(), obj, ref(obj))
	failure := failureOf(t, err)
	t.Log(failure)
	require.Equal(t, release.Accident, failure.Class)
	require.Contains(t, failure.Message, "convoy.dev/test")
	require.Contains(t, failure.Message, "Remedy")

	// With a finalizer of its own the render is refused outright (422), which means the same.
	own := s.object("{apiVersion: v1, kind: ConfigMap, metadata: {name: held, namespace: NS, finalizers: [convoy.dev/own]}}")
	_, err = s.impatient().DryRun(t.Context(), own, ref(own))
	require.Equal(t, release.Accident, failureOf(t, err).Class)

	// It goes on by itself once the finalizer is gone, and makes the object anew.
	s.requests.take()
	type result struct {
		applied release.Applied
		err     error
	}
	ended := make(chan result, 1)
	go func() {
		applied, err := s.cluster.Session(SessionOptions{}).Apply(t.Context(), own, ref(own))
		ended <- result{applied, err}
	}()
	s.eventually("convoy looks at the object", func() bool {
		return strings.Contains(strings.Join(s.requests.take(), " "), "GET /api/v1/namespaces/")
	})
	s.dropFinalizers(obj)
	got := <-ended
	require.NoError(t, got.err)
	require.True(t, got.applied.Created)
	require.NotEqual(t, string(old.GetUID()), got.applied.UID)
	s.dropFinalizers(obj)
}

// clientSide does what `kubectl apply` without --server-side does.
func (s *server) clientSide(manifest string) {
	s.t.Helper()
	content := s.content(manifest)
	content.SetAnnotations(map[string]string{lastApplied: string(s.object(manifest).JSON)})
	_, err := s.client(s.object(manifest)).Create(s.t.Context(), content, metav1.CreateOptions{FieldManager: clientSideApply})
	require.NoError(s.t, err)
}

// Case 26.
func TestApply_D15_takes_over_client_side_fields(t *testing.T) {
	s := newServer(t)
	adopted := "{apiVersion: v1, kind: ConfigMap, metadata: {name: adopted, namespace: NS}, data: {key: \"1\", legacy: old}}"
	s.clientSide(adopted)
	obj := s.object(adopted)
	_, err := s.client(obj).Patch(t.Context(), obj.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"keep":"me"}}}`), metav1.PatchOptions{FieldManager: "somebody"})
	require.NoError(t, err)

	tried, err := s.impatient().DryRun(t.Context(), obj, ref(obj))
	require.NoError(t, err)
	require.Equal(t, []string{clientSideApply}, tried.TakenOver)

	s.requests.take()
	applied := s.apply(s.impatient(), obj)
	require.Equal(t, []string{clientSideApply}, applied.TakenOver)
	require.Len(t, s.requests.take(), 3, "apply, take-over, apply")
	live := s.live(obj)
	require.Equal(t, []string{"convoy/Apply", "somebody/Update"}, managers(live))
	require.NotContains(t, live.GetAnnotations(), lastApplied)

	again := s.apply(s.impatient(), obj)
	require.Empty(t, again.TakenOver)
	require.Len(t, s.requests.take(), 1, "once only")

	dropped := s.object(replace(adopted, ", legacy: old", ""))
	s.apply(s.impatient(), dropped)
	live = s.live(obj)
	data, _, _ := unstructured.NestedStringMap(live.Object, "data")
	require.Equal(t, map[string]string{"key": "1"}, data)
	require.Equal(t, "me", live.GetLabels()["keep"])
}

func managers(live *unstructured.Unstructured) []string {
	var names []string
	for _, entry := range live.GetManagedFields() {
		names = append(names, entry.Manager+"/"+string(entry.Operation))
	}
	return names
}

const service = "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: NS}, spec: {selector: {a: b}, ports: [{name: http, port: 80}]}}"

func TestApply_D15_left_over_fields_that_make_the_render_invalid(t *testing.T) {
	s := newServer(t)
	s.clientSide(service)
	obj := s.object(replace(service, "port: 80", "port: 8080"))

	_, err := s.impatient().DryRun(t.Context(), obj, ref(obj))
	failure := failureOf(t, err)
	require.Equal(t, release.Verdict, failure.Class)
	require.Contains(t, failure.Message, "a forced sync (force) takes them over")

	applied := s.apply(s.impatient(), obj)
	require.Equal(t, []string{clientSideApply}, applied.TakenOver)
	require.Equal(t, []int64{8080}, ports(s.live(obj)))
}

// Case 83: force is named only where it helps.
func TestDryRun_D15_names_force_only_where_left_over_fields_alone_are_at_fault(t *testing.T) {
	frozen := "{apiVersion: v1, kind: ConfigMap, metadata: {name: frozen, namespace: NS}, immutable: true, data: {key: a, legacy: old}}"
	hidden := "{apiVersion: v1, kind: Secret, metadata: {name: hidden, namespace: NS}, immutable: true, stringData: {key: a, legacy: old}}"
	autoscaler := "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web, namespace: NS}, " +
		"spec: {minReplicas: 3, maxReplicas: 5, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}}"
	deployment := "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: NS}, spec: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 2}}, " +
		"selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}"
	stateful := "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: web, namespace: NS}, spec: {serviceName: one, minReadySeconds: 3, " +
		"selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}"
	for name, c := range map[string]struct {
		live, old, new string
		helps          bool
	}{
		"an immutable ConfigMap":             {frozen, "key: a, legacy: old", "key: b", false},
		"an immutable Secret":                {hidden, "key: a, legacy: old", "key: b", false},
		"an immutable selector":              {deployment, "a: b", "c: d", false},
		"a StatefulSet that may not change":  {stateful, "serviceName: one, minReadySeconds: 3", "serviceName: two", false},
		"a value that is wrong in itself":    {service, "port: 80", "port: 80000", false},
		"an entry that is there twice":       {service, "port: 80", "port: 8080", true},
		"a name that two entries need":       {service, "name: http, port: 80", "port: 8080", true},
		"a field that excludes another":      {deployment, "type: RollingUpdate, rollingUpdate: {maxSurge: 2}", "type: Recreate", true},
		"a bound that the render has lifted": {autoscaler, "minReplicas: 3, maxReplicas: 5", "maxReplicas: 2", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.clientSide(c.live)
			obj := s.object(strings.ReplaceAll(c.live, c.old, c.new))
			_, err := s.impatient().DryRun(t.Context(), obj, ref(obj))
			failure := failureOf(t, err)
			require.Equal(t, release.Verdict, failure.Class, failure.Message)
			require.Equal(t, c.helps, strings.Contains(failure.Message, "a forced sync (force) takes them over"), failure.Message)

			_, err = s.cluster.Session(SessionOptions{}).Apply(t.Context(), obj, ref(obj)) // its controller writes to the autoscaler too
			require.Equal(t, c.helps, err == nil, "force does what the hint says: %v", err)
		})
	}
}

func TestApply_D15_take_over_that_does_not_help_is_put_back(t *testing.T) {
	s := newServer(t)
	s.clientSide(service)
	obj := s.object(replace(service, "port: 80", "port: 80000"))
	_, err := s.impatient().Apply(t.Context(), obj, ref(obj))
	require.Equal(t, release.Verdict, failureOf(t, err).Class)
	require.Equal(t, []string{clientSideApply + "/Update"}, managers(s.live(obj)), "D13: convoy has applied nothing")
}

// Case 21, run 2: kubectl create is no client-side apply.
func TestDryRun_D15_other_managers_are_left_alone(t *testing.T) {
	s := newServer(t)
	s.create(service)
	s.apply(s.impatient(), s.object(service))
	obj := s.object(replace(service, "port: 80", "port: 8080"))
	_, err := s.impatient().DryRun(t.Context(), obj, ref(obj))
	failure := failureOf(t, err)
	require.Equal(t, release.Verdict, failure.Class)
	require.Contains(t, failure.Message, "Duplicate value")
	require.NotContains(t, failure.Message, "force")
	require.Equal(t, []int64{80}, ports(s.live(obj)))
}

func ports(live *unstructured.Unstructured) []int64 {
	list, _, _ := unstructured.NestedSlice(live.Object, "spec", "ports")
	var found []int64
	for _, one := range list {
		port, _, _ := unstructured.NestedInt64(one.(map[string]any), "port")
		found = append(found, port)
	}
	return found
}

func TestRead_S26_absent_objects_and_kinds(t *testing.T) {
	s := newServer(t)
	for _, absent := range []release.ObjectRef{
		{Kind: "ConfigMap", Namespace: s.namespace, Name: "nowhere"},
		{Kind: "ConfigMap", Namespace: "nowhere", Name: "nowhere"},
		{Group: "lab.example.test", Kind: "Ghost", Namespace: s.namespace, Name: "g"},
		{Kind: "ConfigMap", Name: "in-no-namespace"},
	} {
		live, err := s.impatient().Read(t.Context(), absent)
		require.NoError(t, err, absent)
		require.Nil(t, live, absent)
	}
}

func TestRead_D17_tells_owner_marks_and_deletion(t *testing.T) {
	s := newServer(t)
	secret := "{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: NS, labels: {l: x}}, stringData: {password: hunter2}}"
	s.clientSide(secret)
	obj := s.object(secret)
	live, err := s.impatient().Read(t.Context(), ref(obj))
	require.NoError(t, err)
	require.False(t, live.OwnedByConvoy)
	require.Equal(t, map[string]string{"l": "x"}, live.Labels)
	require.NotContains(t, live.Annotations, lastApplied, "D10: kubectl keeps the values there")
	s.apply(s.impatient(), obj)
	live, err = s.impatient().Read(t.Context(), ref(obj))
	require.NoError(t, err)
	require.True(t, live.OwnedByConvoy)
	require.Nil(t, live.DeletionTimestamp)
}

func (s *server) read(ref release.ObjectRef) *release.Live {
	s.t.Helper()
	live, err := s.impatient().Read(s.t.Context(), ref)
	require.NoError(s.t, err)
	require.NotNil(s.t, live)
	return live
}

func TestDelete_D17_D18_outcomes(t *testing.T) {
	s := newServer(t)
	session := s.impatient()
	for name, c := range map[string]struct {
		manifest string
		want     Deletion
		requests int
	}{
		"plain object":       {configMap, Deletion{Gone: true}, 1},
		"service":            {service, Deletion{Gone: true}, 1},
		"job, background":    {job, Deletion{Gone: true}, 1},
		"held by finalizers": {"{apiVersion: v1, kind: ConfigMap, metadata: {name: held, namespace: NS, finalizers: [convoy.dev/a, convoy.dev/b]}}", Deletion{Terminating: true, Finalizers: []string{"convoy.dev/a", "convoy.dev/b"}}, 1},
		"service account":    {"{apiVersion: v1, kind: ServiceAccount, metadata: {name: sa, namespace: NS}}", Deletion{Gone: true}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			obj := s.object(c.manifest)
			s.apply(session, obj)
			var live *release.Live
			var got Deletion
			var err error
			s.eventually("no controller writes in between", func() bool {
				live = s.read(ref(obj))
				s.requests.take()
				got, err = session.Delete(t.Context(), live, metav1.DeletePropagationBackground)
				return !errors.Is(err, ErrChanged)
			})
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			require.Len(t, s.requests.take(), c.requests)
			if !got.Gone {
				s.dropFinalizers(obj)
				return
			}
			again, err := session.Delete(t.Context(), live, metav1.DeletePropagationBackground)
			require.NoError(t, err, "S26: already gone is no error")
			require.Equal(t, Deletion{Gone: true}, again)
		})
	}
}

func TestDelete_D20_foreground_is_held_by_its_finalizer(t *testing.T) {
	s := newServer(t)
	obj := s.object(configMap)
	s.apply(s.impatient(), obj)
	got, err := s.impatient().Delete(t.Context(), s.read(ref(obj)), metav1.DeletePropagationForeground)
	require.NoError(t, err)
	require.True(t, got.Terminating, "the answer to the delete shows the finalizer, whatever the garbage collector does next")
	require.Equal(t, []string{metav1.FinalizerDeleteDependents}, got.Finalizers)
}

func TestDelete_D17_preconditions(t *testing.T) {
	s := newServer(t)
	obj := s.object(configMap)
	s.apply(s.impatient(), obj)
	live := s.read(ref(obj))

	s.apply(s.impatient(), s.object(replace(configMap, "value", "changed")))
	_, err := s.impatient().Delete(t.Context(), live, metav1.DeletePropagationBackground)
	require.ErrorIs(t, err, ErrChanged, "another resourceVersion")

	s.delete(obj)
	s.apply(s.impatient(), obj)
	fresh := s.read(ref(obj))
	stale := *fresh
	stale.UID = live.UID
	_, err = s.impatient().Delete(t.Context(), &stale, metav1.DeletePropagationBackground)
	require.ErrorIs(t, err, ErrChanged, "another uid")
	require.Equal(t, fresh.UID, s.read(ref(obj)).UID, "nothing was deleted")
}

func TestDelete_S27_refused_by_rbac(t *testing.T) {
	s := newServer(t)
	obj := s.object(configMap)
	s.apply(s.impatient(), obj)
	live := s.read(ref(obj))
	_, err := s.as("nobody").impatient().Delete(t.Context(), live, metav1.DeletePropagationBackground)
	failure := failureOf(t, err)
	require.Equal(t, release.Verdict, failure.Class)
	require.Equal(t, http.StatusForbidden, failure.Code)
}

// Case 55: when the definition goes first, its objects are absent.
func TestDelete_D17_kind_that_is_gone_means_absent(t *testing.T) {
	s := newServer(t)
	definition, obj := s.object(replace(crd, "FIELDS", "")), s.object(lamp)
	session := s.cluster.Session(SessionOptions{RenderCRDs: s.lampKinds()})
	_, err := session.Apply(t.Context(), definition, global(definition))
	require.NoError(t, err)
	s.apply(session, obj)
	live := s.read(ref(obj))

	crdLive := s.read(global(definition))
	deletion, err := session.Delete(t.Context(), crdLive, metav1.DeletePropagationBackground)
	require.NoError(t, err)
	t.Logf("%+v", deletion)
	s.eventually("the definition is gone", func() bool {
		gone, err := session.Read(t.Context(), global(definition))
		require.NoError(t, err)
		return gone == nil
	})
	got, err := s.cluster.Session(SessionOptions{}).Delete(t.Context(), live, metav1.DeletePropagationBackground)
	require.NoError(t, err)
	require.Equal(t, Deletion{Gone: true}, got)
	absent, err := s.cluster.Session(SessionOptions{}).Read(t.Context(), ref(obj))
	require.NoError(t, err)
	require.Nil(t, absent)
}

func TestGuard_D16_stops_every_request(t *testing.T) {
	s := newServer(t)
	lost := errors.New("the lease is lost")
	ctx := release.WithGuard(t.Context(), func() error { return lost })
	session := s.cluster.Session(SessionOptions{})
	obj := s.object(configMap)
	live := &release.Live{Ref: ref(obj), UID: "u", ResourceVersion: "1"}
	for name, call := range map[string]func() error{
		"identity":  func() error { _, err := s.cluster.Identity(ctx); return err },
		"resolve":   func() error { _, err := s.cluster.Resolve(ctx, obj.GVK); return err },
		"refresh":   func() error { return s.cluster.RefreshDiscovery(ctx) },
		"dry run":   func() error { _, err := session.DryRun(ctx, obj, ref(obj)); return err },
		"apply":     func() error { _, err := session.Apply(ctx, obj, ref(obj)); return err },
		"read":      func() error { _, err := session.Read(ctx, ref(obj)); return err },
		"delete":    func() error { _, err := session.Delete(ctx, live, metav1.DeletePropagationBackground); return err },
		"health":    func() error { _, err := session.Health(ctx, []release.ObjectRef{ref(obj)}); return err },
		"await":     func() error { return session.AwaitEstablished(ctx, []string{"x"}) },
		"job state": func() error { _, err := session.JobState(ctx, s.namespace, "x"); return err },
		"jobs":      func() error { return session.DeleteJobs(ctx, s.namespace, "a=b", "") },
		"create":    func() error { _, err := session.CreateJob(ctx, hookJob(s.namespace, "x")); return err },
		"dry run of all": func() error {
			return session.DryRunAll(ctx, []DryRunItem{{obj, ref(obj)}}, 8, func(int, release.Applied, error) {
				require.Fail(t, "nothing was answered")
			})
		},
	} {
		err := call()
		require.ErrorIs(t, err, lost, name)
		require.Nil(t, asFailure(err), name)
	}
	require.Empty(t, s.requests.take(), "nothing reached the wire")

	// The same calls with a warm discovery.
	_, err := s.cluster.Resolve(t.Context(), obj.GVK)
	require.NoError(t, err)
	s.requests.take()
	_, err = session.Apply(ctx, obj, ref(obj))
	require.ErrorIs(t, err, lost)
	require.Empty(t, s.requests.take())
}

// The lease is lost between the guard's first answer and the moment at which the connection is there.
func TestGuard_D16_stops_a_write_that_waits_for_its_connection(t *testing.T) {
	s := newServer(t)
	obj := s.object(configMap)
	_, err := s.cluster.Resolve(t.Context(), obj.GVK)
	require.NoError(t, err)
	lost := errors.New("the lease is lost")
	asked := 0
	ctx := release.WithGuard(t.Context(), func() error {
		if asked++; asked > 1 {
			return lost
		}
		return nil
	})
	_, err = s.cluster.Session(SessionOptions{}).Apply(ctx, obj, ref(obj))
	require.ErrorIs(t, err, lost)
	live, err := s.impatient().Read(t.Context(), ref(obj))
	require.NoError(t, err)
	require.Nil(t, live, "nothing was applied")
}

// The API server's word that nothing is kept is as good as the parameter that asks for it: the object itself is looked
// for by another client.
func TestDryRun_S5_keeps_nothing(t *testing.T) {
	s := newServer(t)
	fresh := s.object("{apiVersion: v1, kind: ConfigMap, metadata: {name: fresh, namespace: NS}, data: {key: value}}")
	tried, err := s.impatient().DryRun(t.Context(), fresh, ref(fresh))
	require.NoError(t, err)
	require.True(t, tried.Created, "it would be")
	require.NoError(t, s.impatient().DryRunAll(t.Context(), []DryRunItem{{fresh, ref(fresh)}}, 1, func(_ int, _ release.Applied, err error) {
		require.NoError(t, err)
	}))
	_, err = s.client(fresh).Get(t.Context(), fresh.Name, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)

	s.apply(s.impatient(), fresh)
	before := s.live(fresh)
	changed := s.object("{apiVersion: v1, kind: ConfigMap, metadata: {name: fresh, namespace: NS}, data: {key: other}}")
	_, err = s.impatient().DryRun(t.Context(), changed, ref(changed))
	require.NoError(t, err)
	require.Equal(t, before, s.live(fresh))
}

func TestDryRunAll_S5_answers_every_object(t *testing.T) {
	s := newServer(t)
	var items []DryRunItem
	for i := range 40 {
		manifest := fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: c%d, namespace: NS}, data: {k: v}}", i)
		if i%10 == 3 {
			manifest = replace(manifest, "data: {k: v}", "dato: {}")
		}
		obj := s.object(manifest)
		items = append(items, DryRunItem{Object: obj, Ref: ref(obj)})
	}
	answers := map[int]error{}
	require.NoError(t, s.cluster.Session(SessionOptions{}).DryRunAll(t.Context(), items, 8, func(i int, _ release.Applied, err error) {
		answers[i] = err
	}))
	require.Len(t, answers, 40)
	for i, err := range answers {
		if i%10 == 3 {
			require.Equal(t, release.Verdict, failureOf(t, err).Class)
		} else {
			require.NoError(t, err)
		}
	}
	seen := s.requests.take()
	require.Len(t, seen, 42, "two for discovery and one each: %v", seen)
}

func TestIdentity_D31(t *testing.T) {
	s := newServer(t)
	id, err := s.cluster.Identity(t.Context())
	require.NoError(t, err)
	kubeSystem := s.live(s.object("{apiVersion: v1, kind: Namespace, metadata: {name: kube-system}}"))
	require.Equal(t, string(kubeSystem.GetUID()), id)
	other, err := s.as("nobody").cluster.Identity(t.Context())
	require.NoError(t, err)
	require.Regexp(t, "^server:[0-9a-f]{32}$", other)
}
