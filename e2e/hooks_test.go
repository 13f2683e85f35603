package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	workflowpb "go.temporal.io/api/workflow/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// jobHook is a hook whose Job runs an image of that tag, once: "bad" never ends, "fail" fails.
func jobHook(ns, name, tag string) v1alpha1.Hook {
	never := int32(0)
	job := &v1alpha1.JobHook{Namespace: ns}
	job.Template.Spec = batchv1.JobSpec{BackoffLimit: &never}
	job.Template.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "c", Image: "registry.example/hook:" + tag}},
	}
	return v1alpha1.Hook{Name: name, Job: job}
}

func preSync(hooks ...v1alpha1.Hook) func(*v1alpha1.Release) {
	return func(rel *v1alpha1.Release) { rel.Spec.Hooks.PreSync = hooks }
}

func postSync(hooks ...v1alpha1.Hook) func(*v1alpha1.Release) {
	return func(rel *v1alpha1.Release) { rel.Spec.Hooks.PostSync = hooks }
}

// hookRuns is how many Jobs convoy has created in the world's namespace since a mark.
func (w *world) hookRuns(since mark) int {
	w.Helper()
	return len(filter(w.requests(since), func(r request) bool {
		return r.Verb == "create" && r.Resource == "jobs" && r.Code == 201
	}))
}

// jobs lists the Jobs in the world's namespace.
func (w *world) jobs() []batchv1.Job {
	w.Helper()
	list := &batchv1.JobList{}
	require.NoError(w, w.kube.List(w.Context(), list, kube.InNamespace(w.ns)))
	return list.Items
}

// theJob is the only Job that is there and not on its way out.
func (w *world) theJob() batchv1.Job {
	w.Helper()
	var found []batchv1.Job
	for _, job := range w.jobs() {
		if job.DeletionTimestamp == nil {
			found = append(found, job)
		}
	}
	require.Len(w, found, 1)
	return found[0]
}

// hook is the status of a hook.
func (w *world) hook(name, phase, hook string) v1alpha1.HookStatus {
	w.Helper()
	for _, status := range w.get(name).Status.Hooks {
		if status.Name == hook && status.Phase == phase {
			return status
		}
	}
	require.Fail(w, "no such hook in status", "%s %s: %v", phase, hook, w.get(name).Status.Hooks)
	return v1alpha1.HookStatus{}
}

func isJobCreate(call *apiCall) bool {
	return call.method == "POST" && strings.HasSuffix(call.path, "/jobs")
}

// S1 D25: the preSync hook has completed when the first object is applied, and the postSync hook begins when
// everything is applied, pruned and recorded. Their Jobs are no part of the inventory, and no prune takes them.
func TestHooks_run_on_both_sides_of_a_sync(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy()
	w.workerAt(p, nil)
	w.release("shop", manifest(w.ns, "a", 0, "1")+manifest(w.ns, "old", 0, "1"), nil)
	w.succeeds("shop")

	type sight struct {
		what     string
		old      bool
		recorded int
		complete []bool
	}
	seen := make(chan sight, 10)
	applies := counter(isApply)
	p.around(func(call *apiCall) bool {
		what := ""
		switch {
		case isJobCreate(call):
			what = "hook"
		case applies(call) == 1:
			what = "apply"
		}
		if what != "" {
			now := sight{what: what, old: w.configMap("old") != nil, recorded: len(w.inventory("shop"))}
			for _, job := range w.jobs() {
				now.complete = append(now.complete, job.Status.CompletionTime != nil)
			}
			seen <- now
		}
		return true
	}, nil)
	w.update("shop", func(rel *v1alpha1.Release) {
		render := manifest(w.ns, "a", 0, "2")
		rel.Spec.Source.Inline = &render
		rel.Spec.Hooks.PreSync = []v1alpha1.Hook{jobHook(w.ns, "migrate", "1")}
		rel.Spec.Hooks.PostSync = []v1alpha1.Hook{jobHook(w.ns, "notify", "1")}
	})
	result := w.succeeds("shop")
	require.Equal(t, []sight{
		{what: "hook", old: true, recorded: 2},
		{what: "apply", old: true, recorded: 2, complete: []bool{true}},
		{what: "hook", old: false, recorded: 1, complete: []bool{true}},
	}, []sight{<-seen, <-seen, <-seen})
	require.Empty(t, seen)
	for _, status := range []v1alpha1.HookStatus{w.hook("shop", "preSync", "migrate"), w.hook("shop", "postSync", "notify")} {
		require.Equal(t, "Succeeded", status.Result)
		require.Equal(t, result.Digest, status.Digest)
		require.NotEmpty(t, status.Definition)
	}
	require.Equal(t, []string{w.cm("a")}, w.inventory("shop"))

	w.update("shop", func(rel *v1alpha1.Release) {
		render := manifest(w.ns, "b", 0, "1")
		rel.Spec.Source.Inline, rel.Spec.Hooks = &render, v1alpha1.Hooks{}
	})
	w.succeeds("shop")
	require.Len(t, w.jobs(), 2, "a prune took the Job of a hook")
	require.Equal(t, []string{w.cm("b")}, w.inventory("shop"))
}

// D25 S2: a preSync hook that fails, as often as its retries allow, ends the sync before anything is applied.
func TestHooks_failed_preSync_ends_the_sync(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", manifest(w.ns, "a", 0, "1"), nil)
	good := w.succeeds("shop")
	since := w.mark()
	hook := jobHook(w.ns, "migrate", "fail")
	hook.Retries = 1
	w.update("shop", func(rel *v1alpha1.Release) {
		render := manifest(w.ns, "b", 0, "1")
		rel.Spec.Source.Inline = &render
		preSync(hook)(rel)
		postSync(jobHook(w.ns, "notify", "1"))(rel)
	})
	message := w.fails("shop", "HookFailed")
	require.Contains(t, message, `preSync hook "migrate"`)
	require.Contains(t, message, "failed")
	require.Equal(t, 2, w.hookRuns(since), "one try and one retry, and no postSync hook")
	require.Empty(t, filter(changes(w.requests(since)), func(r request) bool { return r.Resource == "configmaps" }))
	require.Equal(t, "Failed", w.hook("shop", "preSync", "migrate").Result)
	require.NotEmpty(t, w.hook("shop", "preSync", "migrate").Message)
	require.Equal(t, []string{w.cm("a")}, w.inventory("shop"))
	require.Equal(t, good.Digest, w.get("shop").Status.LastSuccessful.Digest)

	w.update("shop", preSync(jobHook(w.ns, "migrate", "2")))
	w.succeeds("shop")
	require.Equal(t, "Succeeded", w.hook("shop", "preSync", "migrate").Result)
	require.Empty(t, w.hook("shop", "preSync", "migrate").Message)
	w.agrees("shop", w.cm("b"))
}

// S3 D25: a failed postSync hook is reported, changes nothing in the result, and runs again with the next sync.
func TestHooks_failed_postSync_changes_nothing_in_the_result(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	since := w.mark()
	w.release("shop", manifest(w.ns, "a", 0, "1"), postSync(jobHook(w.ns, "notify", "fail"), jobHook(w.ns, "count", "1")))
	result := w.succeeds("shop")
	require.Contains(t, result.HookFailed, `postSync hook "notify"`)
	require.Contains(t, w.message("shop"), `postSync hook "notify"`)
	require.Equal(t, "Failed", w.hook("shop", "postSync", "notify").Result)
	require.NotEmpty(t, w.hook("shop", "postSync", "notify").Message)
	require.Equal(t, "Succeeded", w.hook("shop", "postSync", "count").Result, "the hook after the one that failed")
	require.Equal(t, result.Digest, w.get("shop").Status.LastSuccessful.Digest)
	require.Equal(t, "False/Succeeded", w.condition("shop", v1alpha1.ConditionStalled))
	require.Equal(t, 2, w.hookRuns(since))

	since = w.mark()
	w.succeeds("shop")
	require.Equal(t, 1, w.hookRuns(since), "only the one that had failed")
}

// caseHook reads the Job of a case as a hook of that name.
func (w *world) caseHook(name, file, hook string) v1alpha1.Hook {
	w.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "cases", name, file))
	require.NoError(w, err)
	job := &batchv1.Job{}
	require.NoError(w, yaml.UnmarshalStrict(data, job))
	return v1alpha1.Hook{Name: hook, Job: &v1alpha1.JobHook{Namespace: w.ns, Template: batchv1.JobTemplateSpec{Spec: job.Spec}}}
}

// Case 70, S1 S2 D25: a hook runs once for a render and its own definition, and again for a person; a retry of a sync
// whose apply failed does not run it again, and a Job of an earlier sync is never taken for this one's.
func TestHooks_run_again_for_a_new_render_or_a_person_only(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy()
	w.workerAt(p, nil)
	const name = "70-hook-job-runs-again-for-a-new-render"
	counted := 0
	runs := func() int { // since it was last asked
		now := p.count(func(call *apiCall) bool { return isJobCreate(call) && call.code == 201 })
		defer func() { counted = now }()
		return now - counted
	}
	w.release("shop", w.caseRender(name, "render1.yaml"), preSync(w.caseHook(name, "hook1.yaml", "pre")))
	w.succeeds("shop")
	require.Equal(t, 1, runs())
	first := w.theJob()

	w.succeeds("shop")
	require.Zero(t, runs(), "the same render")
	require.Equal(t, first.UID, w.theJob().UID)

	w.update("shop", func(rel *v1alpha1.Release) {
		render := w.caseRender(name, "render2.yaml")
		rel.Spec.Source.Inline = &render
		preSync(w.caseHook(name, "hook2.yaml", "pre"))(rel)
	})
	w.succeeds("shop")
	require.Equal(t, 1, runs(), "a new render")
	second := w.theJob()
	require.NotEqual(t, first.UID, second.UID)
	require.Equal(t, "registry.example/hook:2", second.Spec.Template.Spec.Containers[0].Image)

	w.succeeds("shop", func(in *workflows.SyncInput) { in.RequestedBy = "ada" })
	require.Equal(t, 1, runs(), "a person asked")
	require.NotEqual(t, second.UID, w.theJob().UID)
	require.Equal(t, "ada", w.get("shop").Status.LastAttempted.RequestedBy)
	w.succeeds("shop", force)
	require.Equal(t, 1, runs(), "a person forced it")

	w.render("shop", strings.Replace(w.caseRender(name, "render2.yaml"), `"2"`, `"3"`, 1))
	p.around(func(call *apiCall) bool {
		if isApply(call) {
			call.refuse = "not now"
		}
		return true
	}, nil)
	w.fails("shop", "DeployFailed")
	p.around(nil, nil)
	w.succeeds("shop")
	require.Equal(t, 1, runs(), "the hook had succeeded for this render before its apply failed")
	require.Equal(t, "3", w.configMap("app").Data["v"])
	require.Equal(t, []string{w.cm("app")}, w.inventory("shop"))

	w.update("shop", preSync(w.caseHook(name, "hook1.yaml", "pre")))
	w.succeeds("shop")
	require.Equal(t, 1, runs(), "another definition, the same render")
}

// D25: run: Always runs a hook in every sync, each time a Job of its own.
func TestHooks_Always_runs_in_every_sync(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hook := jobHook(w.ns, "check", "1")
	hook.Run = v1alpha1.HookAlways
	w.release("shop", manifest(w.ns, "a", 0, "1"), preSync(hook))
	w.succeeds("shop")
	first := w.theJob()
	w.succeeds("shop")
	require.NotEqual(t, first.UID, w.theJob().UID)
	require.NotEqual(t, first.Name, w.theJob().Name)
}

// A Job that somebody deletes while it runs is an outcome of its own: it is neither taken for a success nor run again
// in silence.
func TestHooks_job_that_vanishes_fails_the_hook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	since := w.mark()
	w.release("shop", manifest(w.ns, "a", 0, "1"), preSync(jobHook(w.ns, "migrate", "bad")))
	run := w.start(workflows.SyncInput{Name: "shop"})
	w.pendingActivity(run, "the hook is looked at several times", func(activity *workflowpb.PendingActivityInfo) bool {
		return activity.GetActivityId() == "pre-sync-migrate-1" && activity.GetAttempt() > 3
	})
	job := w.theJob()
	require.NoError(t, w.kube.Delete(t.Context(), &job, kube.PropagationPolicy(metav1.DeletePropagationBackground)))
	_, reason := w.await(run)
	require.Equal(t, "HookFailed", reason)
	require.Contains(t, w.message("shop"), "deleted by somebody")
	require.Contains(t, w.message("shop"), job.Name)
	require.Equal(t, 1, w.hookRuns(since))
	require.Empty(t, w.configMaps())
}

// D25: a hook that does not end within its timeout has failed, and says so; so does a postSync hook, without harm.
func TestHooks_timeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	slow := func(name string) v1alpha1.Hook {
		hook := jobHook(w.ns, name, "bad")
		hook.Timeout = &metav1.Duration{Duration: 2 * time.Second}
		return hook
	}
	w.release("pre", manifest(w.ns, "a", 0, "1"), preSync(slow("migrate")))
	message := w.fails("pre", "HookFailed")
	require.Contains(t, message, `preSync hook "migrate"`)
	require.Contains(t, message, "within its timeout of 2s")
	require.Equal(t, "Failed", w.hook("pre", "preSync", "migrate").Result)
	require.Contains(t, w.hook("pre", "preSync", "migrate").Message, "timeout")

	w.release("post", manifest(w.ns, "b", 0, "1"), postSync(slow("notify")))
	result := w.succeeds("post")
	require.Contains(t, result.HookFailed, "within its timeout of 2s")
	require.Equal(t, "Failed", w.hook("post", "postSync", "notify").Result)
	w.eventually("the Jobs are stopped", func() error {
		for _, job := range w.jobs() {
			if job.Status.Active > 0 {
				return fmt.Errorf("Job %s is active", job.Name)
			}
		}
		return nil
	})
}
