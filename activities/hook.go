package activities

import (
	"context"
	"fmt"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"go.temporal.io/sdk/activity"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RunHook runs one try of a hook's Job and looks whether it has ended. While it runs, the activity fails as Waiting:
// it gives its slot back and is run again. The Job's name is made of this sync's run and the try, so a later attempt
// finds its own Job, and the outcome of a Job of another run is never read. Finished and abandoned Jobs of earlier
// runs of the same hook are deleted when a new one begins.
//
// Idempotent: the Job is created once under its name. A Job that was seen and is gone is an outcome of its own.
// Fails with: Waiting; HookFailed; Superseded when the hook's definition changed under the sync.
// Heartbeat: the uid of the Job, confirmed before the first look.
func (a *Activities) RunHook(ctx context.Context, in HookInput) error {
	h := &hookRun{Activities: a, in: in, info: activity.GetInfo(ctx)}
	_, err := perform(ctx, a, "hook", release.HookFailed, func(attempt context.Context, l *lease) (struct{}, error) {
		return struct{}{}, h.run(attempt, l, seenJob(ctx))
	})
	return err
}

// hookRun is one look at one try of one hook.
type hookRun struct {
	*Activities
	in     HookInput
	info   activity.Info
	rel    *v1alpha1.Release
	target Target
}

// seenJob is the uid of the Job that an earlier attempt saw.
func seenJob(ctx context.Context) string {
	var progress Progress
	if !activity.HasHeartbeatDetails(ctx) || activity.GetHeartbeatDetails(ctx, &progress) != nil {
		return ""
	}
	return progress.Job
}

// Labels and annotations on the Job of a hook.
const (
	labelRelease   = "convoy.dev/release-uid"
	labelHook      = "convoy.dev/hook"
	annotationSync = "convoy.dev/sync-run"
)

func (h *hookRun) run(ctx context.Context, l *lease, seen string) error {
	l.record(func(p *Progress) { p.Job, p.Object = seen, h.in.Hook.Name })
	var err error
	if h.rel, err = h.fenced(ctx, h.in.Sync); err != nil {
		return err
	}
	hook, err := h.definition()
	if err != nil {
		return err
	}
	if h.target, err = h.targets.Connect(ctx, h.rel, nil); err != nil {
		return err
	}
	job := h.job(hook)
	if seen == "" {
		if seen, err = h.start(ctx, job); err != nil {
			return err
		}
		if err := l.confirm(ctx, func(p *Progress) { p.Job = seen }); err != nil {
			return err
		}
	}
	state, err := h.target.JobState(ctx, job.Namespace, job.Name)
	if err != nil {
		return err
	}
	return h.judge(ctx, job, seen, state)
}

// definition finds the hook in the Release, unchanged since the sync was prepared.
func (h *hookRun) definition() (v1alpha1.Hook, error) {
	hooks := h.rel.Spec.Hooks.PreSync
	if h.in.Phase == "postSync" {
		hooks = h.rel.Spec.Hooks.PostSync
	}
	for _, hook := range hooks {
		if hook.Name == h.in.Hook.Name && release.HookDefinition(hook) == h.in.Hook.Definition {
			return hook, nil
		}
	}
	return v1alpha1.Hook{}, release.Problemf(release.Superseded,
		"the %s hook %q was changed or removed while the sync ran: start the sync again", h.in.Phase, h.in.Hook.Name)
}

// job is the Job of this try. A TTL would let it vanish before it is looked at, so convoy removes Jobs itself.
func (h *hookRun) job(hook v1alpha1.Hook) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: *hook.Job.Template.ObjectMeta.DeepCopy(), Spec: *hook.Job.Template.Spec.DeepCopy()}
	job.Namespace = hook.Job.Namespace
	if job.Namespace == "" {
		job.Namespace = "default"
	}
	job.Name = release.HookTry{
		ReleaseUID: h.in.Sync.UID, Phase: h.in.Phase, Hook: hook.Name, Definition: h.in.Hook.Definition,
		RunID: h.info.WorkflowExecution.RunID, Try: int(h.in.Try),
	}.Name()
	job.GenerateName, job.Spec.TTLSecondsAfterFinished = "", nil
	if job.Spec.ActiveDeadlineSeconds == nil {
		deadline := int64(h.in.Hook.Timeout / time.Second)
		job.Spec.ActiveDeadlineSeconds = &deadline
	}
	if job.Labels == nil {
		job.Labels = map[string]string{}
	}
	if job.Annotations == nil {
		job.Annotations = map[string]string{}
	}
	job.Labels[labelRelease], job.Labels[labelHook] = h.in.Sync.UID, h.in.Phase+"."+hook.Name
	job.Annotations[annotationSync] = h.info.WorkflowExecution.RunID
	return job
}

// start creates the Job, and removes those of earlier runs of this hook.
func (h *hookRun) start(ctx context.Context, job *batchv1.Job) (uid string, err error) {
	uid, err = h.target.CreateJob(ctx, job)
	if err != nil {
		return "", release.Problemf(release.HookFailed, "%s hook %q: create Job %s/%s: %v",
			h.in.Phase, h.in.Hook.Name, job.Namespace, job.Name, err)
	}
	selector := metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: map[string]string{
		labelRelease: job.Labels[labelRelease], labelHook: job.Labels[labelHook],
	}})
	return uid, h.target.DeleteJobs(ctx, job.Namespace, selector, uid)
}

// judge turns the state of the Job into the outcome of the try.
func (h *hookRun) judge(ctx context.Context, job *batchv1.Job, seen string, state release.JobState) error {
	name := job.Namespace + "/" + job.Name
	left := h.info.ScheduledTime.Add(h.in.Hook.Timeout).Sub(h.now())
	switch {
	case !state.Found || state.UID != seen:
		return h.fail(ctx, fmt.Sprintf("its Job %s was deleted by somebody while it ran: its outcome is unknown", name))
	case !state.Succeeded && left <= 0:
		return h.fail(ctx, fmt.Sprintf("its Job %s did not end within its timeout of %s", name, h.in.Hook.Timeout))
	case !state.Done:
		return &waitError{
			message: fmt.Sprintf("%s hook %q: Job %s is running", h.in.Phase, h.in.Hook.Name, name),
			after:   min(hookPoll(h.info.Attempt), left),
		}
	case !state.Succeeded:
		return h.fail(ctx, fmt.Sprintf("its Job %s failed: %s", name, state.Message))
	}
	return h.record(ctx, v1alpha1.ResultSucceeded, "")
}

func (h *hookRun) fail(ctx context.Context, message string) error {
	if err := h.record(ctx, v1alpha1.ResultFailed, message); err != nil {
		return err
	}
	return release.Problemf(release.HookFailed, "%s hook %q: %s", h.in.Phase, h.in.Hook.Name, message)
}

// record writes the outcome to status at once, so that no later sync runs a hook again that has succeeded (D25).
func (h *hookRun) record(ctx context.Context, result v1alpha1.AttemptResult, message string) error {
	entry := v1alpha1.HookStatus{
		Name: h.in.Hook.Name, Phase: h.in.Phase, Result: string(result), Message: message,
		Digest: h.in.Sync.Digest, Definition: h.in.Hook.Definition, FinishedAt: *h.timestamp(),
	}
	_, err := h.writeStatus(ctx, h.rel, h.in.Sync, func(status *v1alpha1.ReleaseStatus) {
		status.Hooks = putHook(status.Hooks, entry, h.rel.Spec.Hooks)
	})
	return err
}

// putHook replaces the entry of a hook, and drops entries of hooks that are gone.
func putHook(hooks []v1alpha1.HookStatus, entry v1alpha1.HookStatus, defined v1alpha1.Hooks) []v1alpha1.HookStatus {
	exists := map[string]bool{}
	for _, hook := range defined.PreSync {
		exists["preSync/"+hook.Name] = true
	}
	for _, hook := range defined.PostSync {
		exists["postSync/"+hook.Name] = true
	}
	out := []v1alpha1.HookStatus{}
	for _, h := range hooks {
		same := h.Name == entry.Name && h.Phase == entry.Phase
		if !same && exists[h.Phase+"/"+h.Name] {
			out = append(out, h)
		}
	}
	return append(out, entry)
}

// hookPoll between looks at a Job: half a second growing to 10 s.
func hookPoll(attempt int32) time.Duration {
	return min(time.Duration(attempt)*500*time.Millisecond, 10*time.Second)
}
