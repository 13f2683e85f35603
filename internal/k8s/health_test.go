package k8s

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"convoy.dev/convoy/internal/release"
)

func TestJudge_D24(t *testing.T) {
	const deployment = "{apiVersion: apps/v1, kind: Deployment, metadata: {generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 2, replicas: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 2, conditions: [{type: Available, status: \"True\"}, {type: Progressing, status: \"True\", reason: NewReplicaSetAvailable}]}}"
	const statefulSet = "{apiVersion: apps/v1, kind: StatefulSet, metadata: {generation: 2}, spec: {replicas: 1}, status: {observedGeneration: 2, replicas: 1, currentReplicas: 1, updatedReplicas: 1, readyReplicas: 1, currentRevision: a, updateRevision: a}}"
	const daemonSet = "{apiVersion: apps/v1, kind: DaemonSet, metadata: {generation: 2}, status: {observedGeneration: 2, desiredNumberScheduled: 1, currentNumberScheduled: 1, updatedNumberScheduled: 1, numberAvailable: 1, numberReady: 1}}"
	const custom = "{apiVersion: lab.example.test/v1, kind: Lamp, metadata: {generation: 2}, status: {conditions: [{type: Ready, status: \"True\", observedGeneration: 2}]}}"
	const observed, stale = "observedGeneration: 2", "observedGeneration: 1"
	for name, c := range map[string]struct {
		object  string
		blocked string // "" when healthy
		failed  bool
	}{
		"Deployment":                        {deployment, "", false},
		"Deployment, stale":                 {replace(deployment, observed, stale), "generation is 2, but latest observed generation is 1", false},
		"Deployment, not observed":          {replace(deployment, observed+",", ""), "not observed generation 2", false},
		"Deployment, old Pods still serve":  {replace(deployment, "updatedReplicas: 2", "updatedReplicas: 1"), "Updated: 1/2", false},
		"Deployment, deadline":              {replace(deployment, "NewReplicaSetAvailable", "ProgressDeadlineExceeded"), "deadline", true},
		"Deployment, no status at all":      {"{apiVersion: apps/v1, kind: Deployment, metadata: {generation: 1}, spec: {replicas: 0}}", "not observed generation 1", false},
		"StatefulSet":                       {statefulSet, "", false},
		"StatefulSet, stale":                {replace(statefulSet, observed, stale), "latest observed generation is 1", false},
		"StatefulSet, revision":             {replace(statefulSet, "updateRevision: a", "updateRevision: b"), "updated revision", false},
		"StatefulSet of none, not observed": {"{apiVersion: apps/v1, kind: StatefulSet, metadata: {generation: 1}, spec: {replicas: 0}}", "not observed", false},
		"DaemonSet":                         {daemonSet, "", false},
		"DaemonSet, stale":                  {replace(daemonSet, observed, stale), "latest observed generation is 1", false},
		"DaemonSet, not updated":            {replace(daemonSet, "updatedNumberScheduled: 1", "updatedNumberScheduled: 0"), "Updated: 0/1", false},
		"Job, failed":                       {"{apiVersion: batch/v1, kind: Job, metadata: {generation: 1}, status: {startTime: x, conditions: [{type: Failed, status: \"True\"}]}}", "Job Failed", true},
		"Job, complete":                     {"{apiVersion: batch/v1, kind: Job, metadata: {generation: 1}, status: {startTime: x, conditions: [{type: Complete, status: \"True\"}]}}", "", false},
		"Job, not started":                  {"{apiVersion: batch/v1, kind: Job, metadata: {generation: 1}}", "not started", false},
		"custom":                            {custom, "", false},
		"custom, stale condition":           {replace(custom, observed, stale), "Ready is about generation 1, not 2", false},
		"custom, not ready":                 {replace(custom, "\"True\"", "\"False\", message: nearly"), "nearly", false},
		"custom, stalled":                   {"{apiVersion: a/v1, kind: B, metadata: {generation: 1}, status: {conditions: [{type: Stalled, status: \"True\", message: broken}]}}", "broken", true},
		"no status":                         {"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", "", false},
		"being deleted":                     {"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, deletionTimestamp: \"2020-01-01T00:00:00Z\"}}", "deletion", false},
		"long message":                      {replace(custom, "\"True\"", "\"False\", message: "+strings.Repeat("x", 900)), "xxx", false},
	} {
		t.Run(name, func(t *testing.T) {
			document, err := yaml.YAMLToJSON([]byte(c.object))
			require.NoError(t, err)
			object := &unstructured.Unstructured{}
			require.NoError(t, object.UnmarshalJSON(document))
			blocker := judge(aConfigMap, object)
			if c.blocked == "" {
				require.Nil(t, blocker)
				return
			}
			require.NotNil(t, blocker)
			require.Contains(t, blocker.Message, c.blocked)
			require.Equal(t, c.failed, blocker.Failed)
			require.LessOrEqual(t, len([]rune(blocker.Message)), healthLimit)
		})
	}
}

func TestHealth_D24_on_a_server(t *testing.T) {
	s := newServer(t)
	session := s.cluster.Session(SessionOptions{RenderCRDs: s.lampKinds()})
	definition, obj := s.object(replace(crd, "FIELDS", "")), s.object(lamp)
	s.deleteLater(definition)
	_, err := session.Apply(t.Context(), definition, global(definition))
	require.NoError(t, err)
	s.apply(session, obj)
	absent := release.ObjectRef{Kind: "ConfigMap", Namespace: s.namespace, Name: "absent"}
	ghost := release.ObjectRef{Group: "nowhere.example.test", Kind: "Ghost", Namespace: s.namespace, Name: "g"}
	refs := []release.ObjectRef{global(definition), ref(obj), absent, ghost}

	s.setStatus(obj, map[string]any{"observedGeneration": 1})
	report, err := session.Health(t.Context(), refs)
	require.NoError(t, err)
	require.False(t, report.Healthy)
	require.Equal(t, []Blocker{{Ref: absent, Message: "not found"}, {Ref: ghost, Message: "not found"}}, report.Blockers)

	// The spec changes; its controller has not looked yet (case 67).
	s.apply(session, s.object(replace(lamp, "9007199254740993", "3")))
	report, err = session.Health(t.Context(), refs[:2])
	require.NoError(t, err)
	require.Len(t, report.Blockers, 1)
	require.Contains(t, report.Blockers[0].Message, "latest observed generation is 1")

	s.setStatus(obj, map[string]any{"observedGeneration": 2, "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}})
	report, err = session.Health(t.Context(), refs[:2])
	require.NoError(t, err)
	require.True(t, report.Healthy)
}

func TestHealth_lists_what_shares_kind_and_namespace(t *testing.T) {
	s := newServer(t)
	var refs []release.ObjectRef
	for i := range 12 {
		obj := s.object(fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: s%d, namespace: NS}, spec: {ports: [{port: 80}]}}", i))
		s.apply(s.impatient(), obj)
		refs = append(refs, ref(obj))
	}
	secret := s.object("{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: NS}, data: {a: YQ==}}")
	s.apply(s.impatient(), secret)
	refs = append(refs, ref(secret))
	absent := refs[0]
	absent.Name = "absent"
	s.requests.take()
	report, err := s.impatient().Health(t.Context(), append(refs, absent))
	require.NoError(t, err)
	require.Equal(t, []Blocker{{Ref: absent, Message: "not found"}}, report.Blockers)
	require.Len(t, s.requests.take(), 2, "one list, one get")
}
