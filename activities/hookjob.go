package activities

import (
	"context"
	"fmt"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Labels and annotations on the Job of a hook.
const (
	labelRelease   = "convoy.dev/release-uid"
	labelHook      = "convoy.dev/hook"
	annotationSync = "convoy.dev/sync-run"
)

// runJob starts the Job of the try, unless an attempt before has seen it, and looks at it.
func (h *hookRun) runJob(ctx context.Context, l *lease, seen string, hook *v1alpha1.JobHook) error {
	var err error
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

// job is the Job of this try. A TTL would let it vanish before it is looked at, so convoy removes Jobs itself.
func (h *hookRun) job(hook *v1alpha1.JobHook) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: *hook.Template.ObjectMeta.DeepCopy(), Spec: *hook.Template.Spec.DeepCopy()}
	job.Namespace = hook.Namespace
	if job.Namespace == "" {
		job.Namespace = "default"
	}
	job.Name = h.try().Name()
	job.GenerateName, job.Spec.TTLSecondsAfterFinished = "", nil
	if job.Spec.ActiveDeadlineSeconds == nil {
		// A second later than the try: the start of a Job is cut to a whole second, and the message is to be convoy's.
		deadline := int64(h.in.Hook.Timeout/time.Second) + 1
		job.Spec.ActiveDeadlineSeconds = &deadline
	}
	if job.Labels == nil {
		job.Labels = map[string]string{}
	}
	if job.Annotations == nil {
		job.Annotations = map[string]string{}
	}
	job.Labels[labelRelease], job.Labels[labelHook] = h.in.Sync.UID, h.in.Phase+"."+h.in.Hook.Name
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
	left := h.left()
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

// hookPoll between looks at a Job: half a second growing to 10 s.
func hookPoll(attempt int32) time.Duration {
	return min(time.Duration(attempt)*500*time.Millisecond, 10*time.Second)
}
