package release

import (
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// D25: each try of each sync has a name of its own, and the same try the same.
func TestHookTryName(t *testing.T) {
	try := HookTry{"uid", "preSync", "migrate", "sha256:1", "run", 1}
	require.Equal(t, try.Name(), try.Name())
	seen := map[string]bool{try.Name(): true}
	for _, other := range []HookTry{
		{"uid2", "preSync", "migrate", "sha256:1", "run", 1},
		{"uid", "postSync", "migrate", "sha256:1", "run", 1},
		{"uid", "preSync", "migrate", "sha256:2", "run", 1},
		{"uid", "preSync", "migrate", "sha256:1", "run2", 1},
		{"uid", "preSync", "migrate", "sha256:1", "run", 2},
		{"uid", "preSync", strings.Repeat("m", 33) + "-" + strings.Repeat("n", 6), "sha256:1", "run", 2147483647},
	} {
		require.Regexp(t, `^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`, other.Name())
		require.LessOrEqual(t, len(other.Name()), 63)
		require.False(t, seen[other.Name()])
		seen[other.Name()] = true
	}
}

// D25: what a hook does makes its definition, not when or how often it runs.
func TestHookDefinition(t *testing.T) {
	hook := v1alpha1.Hook{Name: "migrate", Job: &v1alpha1.JobHook{Namespace: "shop"}}
	base := HookDefinition(hook)
	hook.Retries, hook.Run, hook.Timeout = 3, v1alpha1.HookAlways, &metav1.Duration{Duration: time.Second}
	require.Equal(t, base, HookDefinition(hook))
	hook.Job.Template = batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{BackoffLimit: new(int32(1))}}
	require.NotEqual(t, base, HookDefinition(hook))
	require.NotPanics(t, func() { HookDefinition(v1alpha1.Hook{Name: "none"}) })
}

// D25: the definitions of Jobs are those of earlier versions of convoy, so that an upgrade runs no hook again.
func TestHookDefinition_D25_of_a_job_is_that_of_earlier_versions(t *testing.T) {
	never := int32(0)
	job := &v1alpha1.JobHook{Namespace: "shop"}
	job.Template.Spec = batchv1.JobSpec{BackoffLimit: &never}
	job.Template.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "migrate", Image: "shop/migrate:1.0", Command: []string{"migrate", "--all"}}},
	}
	require.Equal(t, "sha256:ff6d0db72698bad45511cfcb619758ab5ba1cfc6ba4a4226243710862da0134d",
		HookDefinition(v1alpha1.Hook{Name: "migrate", Job: job}))
}

// D25: every member of an http or a workflow hook is part of its definition, an empty map in an input too.
func TestHookDefinition_D25_holds_every_member(t *testing.T) {
	input := func(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }
	hooks := []v1alpha1.Hook{
		{Job: &v1alpha1.JobHook{Namespace: "shop"}},
		{HTTP: &v1alpha1.HTTPHook{URL: "https://a"}},
		{HTTP: &v1alpha1.HTTPHook{URL: "https://b"}},
		{HTTP: &v1alpha1.HTTPHook{URL: "https://a", Method: "PUT"}},
		{HTTP: &v1alpha1.HTTPHook{URL: "https://a", Headers: map[string]string{"X-A": "1"}}},
		{HTTP: &v1alpha1.HTTPHook{URL: "https://a", Headers: map[string]string{"X-A": "2"}}},
		{HTTP: &v1alpha1.HTTPHook{URL: "https://a", Body: new("")}},
		{HTTP: &v1alpha1.HTTPHook{URL: "https://a", Body: new("x")}},
		{HTTP: &v1alpha1.HTTPHook{URL: "https://a", SecretRef: &v1alpha1.HookSecretReference{Name: "s", Key: "a"}}},
		{HTTP: &v1alpha1.HTTPHook{URL: "https://a", SecretRef: &v1alpha1.HookSecretReference{Name: "s", Key: "b"}}},
		{HTTP: &v1alpha1.HTTPHook{URL: "https://a", RetryOn: []int32{404}}},
		{Workflow: &v1alpha1.WorkflowHook{Type: "Smoke"}},
		{Workflow: &v1alpha1.WorkflowHook{Type: "Smoke", TaskQueue: "q"}},
		{Workflow: &v1alpha1.WorkflowHook{Type: "Smoke", Input: input(`{"a":{}}`)}},
		{Workflow: &v1alpha1.WorkflowHook{Type: "Smoke", Input: input(`{"a":null}`)}},
		{Workflow: &v1alpha1.WorkflowHook{Type: "Smoke", Input: input(`{"a":9007199254740993}`)}},
		{Workflow: &v1alpha1.WorkflowHook{Type: "Smoke", Input: input(`{"a":9007199254740992}`)}},
	}
	seen := map[string]bool{}
	for _, hook := range hooks {
		definition := HookDefinition(hook)
		require.False(t, seen[definition], "%+v", hook)
		seen[definition] = true
		hook.Retries, hook.Run, hook.Timeout = 3, v1alpha1.HookAlways, &metav1.Duration{Duration: time.Second}
		require.Equal(t, definition, HookDefinition(hook))
	}
	require.Equal(t, HookDefinition(v1alpha1.Hook{Workflow: &v1alpha1.WorkflowHook{Type: "S", Input: input(`{"a":1,"b":2}`)}}),
		HookDefinition(v1alpha1.Hook{Workflow: &v1alpha1.WorkflowHook{Type: "S", Input: input(`{ "b": 2, "a": 1 }`)}}), "order is no change")
}

// The id of a hook's workflow stays below what PostgreSQL keeps, and belongs to one try.
func TestHookWorkflowID(t *testing.T) {
	try := HookTry{Phase: "postSync", Hook: "smoke", RunID: "0197b2a4-8a51-7c3e-9d1f-000000000000", Try: 1}
	require.Equal(t, "hook:team-a:shop:postSync:smoke:0197b2a4-8a51-7c3e-9d1f-000000000000:1", HookWorkflowID("team-a", "shop", try))
	try.Hook, try.Try = strings.Repeat("h", 40), 11
	long := strings.Repeat("n", 130)
	seen := map[string]bool{}
	for _, name := range []string{long + "a", long + "b", long + "." + strings.Repeat("-", 6) + "c"} {
		id := HookWorkflowID(strings.Repeat("s", 60), name, try)
		require.LessOrEqual(t, len(id), 255)
		require.True(t, strings.HasSuffix(id, ":postSync:"+try.Hook+":"+try.RunID+":11"), id)
		require.False(t, seen[id], id)
		seen[id] = true
	}
}
