package k8s

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"convoy.dev/convoy/internal/release"
)

// Each row of FACTS' table about the API server's answers that a test can provoke (D7).

func TestDryRun_D7_schema_violations_are_verdicts_although_500(t *testing.T) {
	s := newServer(t)
	for name, manifest := range map[string]string{
		"unknown field":        "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS}, dato: {}}",
		"wrong type":           "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS, annotations: {feature: true}}}",
		"duplicate key":        dupEnv,
		"unknown nested field": "{apiVersion: v1, kind: Service, metadata: {name: a, namespace: NS}, spec: {prots: []}}",
		"map for a list":       "{apiVersion: v1, kind: Service, metadata: {name: a, namespace: NS}, spec: {ports: {}}}",
	} {
		t.Run(name, func(t *testing.T) {
			obj := s.object(manifest)
			_, err := s.cluster.Session(SessionOptions{}).DryRun(t.Context(), obj, ref(obj))
			failure := failureOf(t, err)
			t.Log(failure)
			require.Equal(t, release.Verdict, failure.Class)
			require.Equal(t, 500, failure.Code)
			require.Empty(t, failure.Reason)
			require.True(t, failure.Schema)
		})
	}
}

const dupEnv = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: dup-env, namespace: NS}
spec:
  selector: {matchLabels: {app: x}}
  template:
    metadata: {labels: {app: x}}
    spec:
      containers:
      - {name: c, image: i, env: [{name: MODE, value: a}, {name: MODE, value: b}]}
`

const job = `
apiVersion: batch/v1
kind: Job
metadata: {name: migrate, namespace: NS}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: "migrate:v1"}]}}
`

const configMap = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}, data: {key: value}}"

func TestDryRun_D9_immutable_field_is_named_with_a_hint(t *testing.T) {
	s := newServer(t)
	s.apply(s.impatient(), s.object(job))
	obj := s.object(replace(job, "migrate:v1", "migrate:v2"))
	_, err := s.impatient().DryRun(t.Context(), obj, ref(obj))
	failure := failureOf(t, err)
	require.Equal(t, release.Verdict, failure.Class)
	require.Equal(t, 422, failure.Code)
	require.Equal(t, []string{"spec.template"}, failure.Fields)
	require.Contains(t, failure.Message, "field is immutable")
	require.Contains(t, failure.Message, "hint: spec.template cannot change")
}

func TestDryRun_D7_admission_policy_denies_with_422(t *testing.T) {
	s := newServer(t)
	s.createGlobal(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NS-size}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}]
  validations: [{expression: "!has(object.data) || !('size' in object.data)", message: size must stay away}]
`)
	s.createGlobal(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NS-size}
spec:
  policyName: NS-size
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}}
`)
	obj := s.object("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS}, data: {size: big}}")
	var failure *release.Failure
	s.eventually("the policy is active", func() bool {
		_, err := s.impatient().DryRun(t.Context(), obj, ref(obj))
		if err != nil {
			failure = failureOf(t, err)
		}
		return err != nil
	})
	t.Log(failure, failure.Fields)
	require.Equal(t, release.Verdict, failure.Class)
	require.Equal(t, 422, failure.Code)
	require.Contains(t, failure.Message, "size must stay away")
}

func TestDryRun_D7_rbac_is_a_verdict(t *testing.T) {
	s := newServer(t)
	obj := s.object(configMap)
	_, err := s.as("nobody").impatient().DryRun(t.Context(), obj, ref(obj))
	failure := failureOf(t, err)
	require.Equal(t, release.Verdict, failure.Class)
	require.Equal(t, 403, failure.Code)
	require.Equal(t, "Forbidden", failure.Reason)
	require.Contains(t, failure.Message, `cannot patch resource "configmaps"`)
}

// The dry run passes, the real apply is refused: the caller makes DeployFailed of it.
func TestApply_D7_quota_is_refused_at_the_real_apply_only(t *testing.T) {
	s := newServer(t)
	s.create("{apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: NS}, spec: {hard: {count/secrets: \"0\"}}}")
	quota := s.object("{apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: NS}}")
	s.setStatus(quota, map[string]any{"hard": map[string]any{"count/secrets": "0"}, "used": map[string]any{"count/secrets": "0"}})
	obj := s.object("{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: NS}, stringData: {password: hunter2}}")
	var failure *release.Failure
	s.eventually("the quota counts", func() bool {
		_, err := s.impatient().Apply(t.Context(), obj, ref(obj))
		if err != nil {
			failure = failureOf(t, err)
		}
		return err != nil
	})
	require.Equal(t, release.Verdict, failure.Class)
	require.Equal(t, 403, failure.Code)
	require.Contains(t, failure.Message, "a quota is exceeded")
	require.NotContains(t, failure.Message, "hunter2")
}

func TestApply_D7_terminating_namespace_is_an_accident(t *testing.T) {
	s := newServer(t)
	s.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: holder, namespace: NS, finalizers: [convoy.dev/test]}}")
	t.Cleanup(func() {
		s.dropFinalizers(s.object("{apiVersion: v1, kind: ConfigMap, metadata: {name: holder, namespace: NS}}"))
	})
	s.delete(s.object("{apiVersion: v1, kind: Namespace, metadata: {name: NS}}"))
	obj := s.object(configMap)
	var failure *release.Failure
	s.eventually("the namespace terminates", func() bool {
		_, err := s.impatient().Apply(t.Context(), obj, ref(obj))
		if err != nil {
			failure = failureOf(t, err)
		}
		return err != nil
	})
	require.Equal(t, release.Accident, failure.Class)
	require.Equal(t, 403, failure.Code)
	require.Contains(t, failure.Message, "because it is being terminated")
}

func TestDryRun_D8_missing_namespace_is_named(t *testing.T) {
	s := newServer(t)
	obj := s.object("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS-nowhere}}")
	_, err := s.impatient().DryRun(t.Context(), obj, ref(obj))
	failure := failureOf(t, err)
	require.Equal(t, release.Verdict, failure.Class)
	require.Equal(t, 404, failure.Code)
	require.Equal(t, &release.MissingObject{Resource: "namespaces", Name: s.namespace + "-nowhere"}, failure.Missing)
}

func TestDryRun_D8_missing_role_of_a_binding_is_named(t *testing.T) {
	s := newServer(t)
	s.createGlobal(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NS-binder}
rules: [{apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings], verbs: [get, create, patch]}]
`)
	s.createGlobal(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NS-binder}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NS-binder}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: NS-binder}]
`)
	as := s.as(s.namespace + "-binder")
	for kind, resource := range map[string]string{"Role": "roles", "ClusterRole": "clusterroles"} {
		obj := s.object(fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: b, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: %s, name: NS-absent}
`, kind))
		var failure *release.Failure
		s.eventually("the rights of the binder hold", func() bool {
			_, err := as.impatient().DryRun(t.Context(), obj, ref(obj))
			failure = failureOf(t, err)
			return failure.Code != 403
		})
		require.Equal(t, release.Verdict, failure.Class)
		require.Equal(t, 404, failure.Code)
		require.Equal(t, &release.MissingObject{Group: "rbac.authorization.k8s.io", Resource: resource, Name: s.namespace + "-absent"}, failure.Missing)
		t.Log(failure)
	}
}

func TestDryRun_S8_unknown_kinds_and_versions(t *testing.T) {
	s := newServer(t)
	for _, manifest := range []string{
		"{apiVersion: lab.example.test/v1, kind: Ghost, metadata: {name: g, namespace: NS}}",
		"{apiVersion: apps/v1beta1, kind: Deployment, metadata: {name: g, namespace: NS}}",
		"{apiVersion: v1, kind: Ghost, metadata: {name: g, namespace: NS}}",
	} {
		obj := s.object(manifest)
		_, err := s.cluster.Session(SessionOptions{}).DryRun(t.Context(), obj, ref(obj))
		failure := failureOf(t, err)
		require.Equal(t, release.UnknownKind, failure.Class, failure.Message)
		t.Log(failure)
	}
}

func TestDiscovery_D17_dead_aggregated_api_hurts_its_own_group_only(t *testing.T) {
	s := newServer(t)
	group := s.namespace + ".down.example.test"
	s.createGlobal(fmt.Sprintf(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.%[1]s}
spec: {group: %[1]s, version: v1, groupPriorityMinimum: 100, versionPriority: 10, insecureSkipTLSVerify: true, service: {namespace: NS, name: nowhere}}
`, group))
	thing := s.object(fmt.Sprintf("{apiVersion: %s/v1, kind: Thing, metadata: {name: x, namespace: NS}}", group))
	var failure *release.Failure
	s.eventually("the group is registered", func() bool {
		_, err := s.impatient().DryRun(t.Context(), thing, ref(thing))
		failure = failureOf(t, err)
		return failure.Class != release.UnknownKind
	})
	t.Log(failure, s.requests.take())
	require.Equal(t, release.Accident, failure.Class)

	_, err := s.impatient().Read(t.Context(), ref(thing))
	require.Equal(t, release.Accident, failureOf(t, err).Class, "D17: not absent")

	for _, manifest := range []string{configMap, "{apiVersion: lab.example.test/v1, kind: Ghost, metadata: {name: g, namespace: NS}}"} {
		obj := s.object(manifest)
		_, err := s.impatient().DryRun(t.Context(), obj, ref(obj))
		if err != nil {
			require.Equal(t, release.UnknownKind, failureOf(t, err).Class)
		}
	}
}

func TestDryRun_D7_webhook_that_cannot_be_called_is_an_accident(t *testing.T) {
	s := newServer(t)
	s.createGlobal(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: NS-dead}
webhooks:
- name: dead.example.test
  clientConfig: {url: "https://127.0.0.1:1/"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
  sideEffects: None
  admissionReviewVersions: [v1]
`)
	obj := s.object("{apiVersion: v1, kind: ConfigMap, metadata: {name: hooked, namespace: NS}}")
	var failure *release.Failure
	s.eventually("the webhook is active", func() bool {
		_, err := s.impatient().DryRun(t.Context(), obj, ref(obj))
		if err != nil {
			failure = failureOf(t, err)
		}
		return err != nil
	})
	t.Log(failure)
	require.Equal(t, release.Accident, failure.Class)
	require.Equal(t, 500, failure.Code)
	require.Equal(t, "InternalError", failure.Reason)
	require.Equal(t, "dead.example.test", failure.Webhook)
}

func TestApply_D7_terminating_definition_is_an_accident(t *testing.T) {
	s := newServer(t)
	definition, obj := s.object(replace(crd, "FIELDS", "")), s.object(lamp)
	session := s.cluster.Session(SessionOptions{RenderCRDs: s.lampKinds()})
	_, err := session.Apply(t.Context(), definition, global(definition))
	require.NoError(t, err)
	held := s.object(replace(lamp, "namespace: NS", "namespace: NS, finalizers: [convoy.dev/test]"))
	s.apply(session, held)
	t.Cleanup(func() { s.dropFinalizers(held) })
	s.delete(definition)
	fresh := s.object(replace(lamp, "name: l,", "name: fresh,"))
	failure := s.refusal(fresh)
	t.Log(failure, failure.Fields)
	require.Equal(t, release.Accident, failure.Class)
	require.Equal(t, 403, failure.Code)
	s.dropFinalizers(obj)
}

// A server limit: convoy's entry in managedFields is in a version that the definition no longer has.
func TestDryRun_D7_version_that_was_removed_is_a_verdict(t *testing.T) {
	s := newServer(t)
	const two = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: doors.NS.example.test}
spec:
  group: NS.example.test
  scope: Namespaced
  names: {kind: Door, listKind: DoorList, plural: doors, singular: door}
  versions:
  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {a: {type: string}}}}}}}
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {a: {type: string}, access: {type: string, default: open}}}}}}}
`
	definition := s.object(two)
	s.deleteLater(definition)
	session := s.cluster.Session(SessionOptions{})
	_, err := session.Apply(t.Context(), definition, global(definition))
	require.NoError(t, err)
	require.NoError(t, session.AwaitEstablished(t.Context(), []string{definition.Name}))
	const door = "{apiVersion: NS.example.test/v1beta1, kind: Door, metadata: {name: d, namespace: NS}, spec: {a: b}}"
	s.apply(session, s.object(door))

	// Case 08: the newer version has a defaulted field.
	newer := s.object(replace(door, "v1beta1", "v1"))
	_, err = session.DryRun(t.Context(), newer, ref(newer))
	failure := failureOf(t, err)
	require.Equal(t, release.Verdict, failure.Class)
	require.Contains(t, failure.Message, ".spec.access: field not declared in schema")
	require.Contains(t, failure.Message, "hint: this is not about a field that the render sets")

	one := s.content(two)
	versions, _, _ := unstructured.NestedSlice(one.Object, "spec", "versions")
	require.NoError(t, unstructured.SetNestedSlice(one.Object, versions[1:], "spec", "versions"))
	live := s.live(definition)
	one.SetResourceVersion(live.GetResourceVersion())
	_, err = s.client(definition).Update(t.Context(), one, metav1.UpdateOptions{})
	require.NoError(t, err)
	var texts []string
	s.eventually("the older version is gone", func() bool {
		_, err = session.DryRun(t.Context(), newer, ref(newer))
		if failure = asFailure(err); failure != nil {
			texts = append(texts, failure.Error())
		}
		return failure == nil || !strings.HasPrefix(failure.Message, ".spec.access: field not declared in schema")
	})
	t.Log(unique(texts))
	if failure != nil {
		require.Equal(t, release.Verdict, failure.Class)
	}
}
