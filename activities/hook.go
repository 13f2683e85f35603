package activities

import (
	"context"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"go.temporal.io/sdk/activity"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RunHook runs one try of a job or an http hook (D25).
//
// Of a job hook it starts the Job and looks whether it has ended. While it runs, the activity fails as Waiting: it gives
// its slot back and is run again. The Job's name is made of this sync's run and the try, so a later attempt finds its
// own Job, and the outcome of a Job of another run is never read. Finished and abandoned Jobs of earlier runs of the
// same hook are deleted when a new one begins.
//
// Of an http hook it sends one request. One that is not answered, or with a status that is tried again, fails as Waiting
// too, and is sent again until the timeout of the hook is over.
//
// Idempotent: the Job is created once under its name, and one that was seen and is gone is an outcome of its own. A
// request whose answer was lost with its worker is sent again, under the same idempotency key.
// Fails with: Waiting; HookFailed; Superseded when the hook's definition changed under the sync.
// Heartbeat: the uid of the Job, confirmed before the first look; what became of the last request.
func (a *Activities) RunHook(ctx context.Context, in HookInput) error {
	h := a.hookRun(ctx, in)
	_, err := perform(ctx, a, "hook", release.HookFailed, func(attempt context.Context, l *lease) (struct{}, error) {
		return struct{}{}, h.run(attempt, l, progressBefore(ctx))
	})
	return err
}

// The phases of hooks.
const (
	phasePreSync  = "preSync"
	phasePostSync = "postSync"
)

// hookRun is one look at one try of one hook.
type hookRun struct {
	*Activities
	in     HookInput
	info   activity.Info
	began  time.Time // the try
	rel    *v1alpha1.Release
	target Target
}

func (a *Activities) hookRun(ctx context.Context, in HookInput) *hookRun {
	info := activity.GetInfo(ctx)
	return &hookRun{Activities: a, in: in, info: info, began: info.ScheduledTime}
}

func (h *hookRun) run(ctx context.Context, l *lease, before Progress) error {
	l.record(func(p *Progress) { p.Object = h.in.Hook.Name })
	hook, err := h.open(ctx)
	switch {
	case err != nil:
		return err
	case hook.Job != nil:
		return h.runJob(ctx, l, before.Job, hook.Job)
	case hook.HTTP != nil:
		return h.runHTTP(ctx, l, before.Answer, hook.HTTP)
	}
	return h.fail(ctx, "it is neither a Job nor a request")
}

// open reads the Release, makes sure that this sync may still write, and finds the hook in it.
func (h *hookRun) open(ctx context.Context) (v1alpha1.Hook, error) {
	var err error
	if h.rel, err = h.fenced(ctx, h.in.Sync); err != nil {
		return v1alpha1.Hook{}, err
	}
	return h.definition()
}

// left is how much of the try's timeout is left.
func (h *hookRun) left() time.Duration { return h.began.Add(h.in.Hook.Timeout).Sub(h.now()) }

// try is this try, for its name.
func (h *hookRun) try() release.HookTry {
	return release.HookTry{
		ReleaseUID: h.in.Sync.UID, Phase: h.in.Phase, Hook: h.in.Hook.Name, Definition: h.in.Hook.Definition,
		RunID: h.info.WorkflowExecution.RunID, Try: int(h.in.Try),
	}
}

// definition finds the hook in the Release, unchanged since the sync was prepared.
func (h *hookRun) definition() (v1alpha1.Hook, error) {
	hooks := h.rel.Spec.Hooks.PreSync
	if h.in.Phase == phasePostSync {
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

func (h *hookRun) fail(ctx context.Context, message string) error {
	if err := h.record(ctx, v1alpha1.ResultFailed, message); err != nil {
		return err
	}
	h.warn(ctx, message)
	return release.Problemf(release.HookFailed, "%s hook %q: %s", h.in.Phase, h.in.Hook.Name, message)
}

// warn makes a failed postSync hook heard, once its last try has failed: the sync itself goes well (S3).
func (h *hookRun) warn(ctx context.Context, message string) {
	if h.in.Phase != phasePostSync || h.in.Try <= h.in.Hook.Retries {
		return
	}
	ref := h.in.Sync
	ref.Digest += "/" + h.in.Hook.Name // the events of two hooks are two
	h.event(ctx, h.rel, ref, "Warning", "PostSyncHookFailed", "postSync hook %q failed, which changes nothing in the result: %s", h.in.Hook.Name, message)
}

// record writes the outcome to status at once, so that no later sync runs a hook again that has succeeded (D25).
func (h *hookRun) record(ctx context.Context, result v1alpha1.AttemptResult, message string) error {
	began := metav1.NewTime(h.began).Rfc3339Copy()
	entry := v1alpha1.HookStatus{
		Name: h.in.Hook.Name, Phase: h.in.Phase, Type: string(h.in.Hook.Type), StartedAt: &began, Result: string(result), Message: message,
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
		exists[phasePreSync+"/"+hook.Name] = true
	}
	for _, hook := range defined.PostSync {
		exists[phasePostSync+"/"+hook.Name] = true
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
