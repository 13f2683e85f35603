package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"
)

// BeginHook says which workflow a try of a workflow hook runs, and what it is given. In the world it changes nothing;
// the workflow is started by the sync itself, as its child. The plan of the sync does not hold the input of its hooks:
// it is read when the hook begins.
//
// Idempotent: the same try gets the same workflow id.
// Fails with: HookFailed for a workflow that cannot be a hook; Superseded when the hook's definition changed under the
// sync.
// Heartbeat: the name of the hook.
func (a *Activities) BeginHook(ctx context.Context, in HookInput) (HookStart, error) {
	h := a.hookRun(ctx, in)
	return perform(ctx, a, "hook", release.HookFailed, func(ctx context.Context, l *lease) (HookStart, error) {
		l.record(func(p *Progress) { p.Object = in.Hook.Name })
		hook, err := h.open(ctx)
		if err != nil {
			return HookStart{}, err
		}
		return h.begin(ctx, hook.Workflow)
	})
}

// maxHookInput bounds the input of a workflow hook, in bytes: it stands in three histories.
const maxHookInput = 64 << 10

func (h *hookRun) begin(ctx context.Context, hook *v1alpha1.WorkflowHook) (HookStart, error) {
	switch {
	case hook == nil:
		return HookStart{}, h.fail(ctx, "it is no workflow")
	case release.IsOwnWorkflow(hook.Type):
		return HookStart{}, h.fail(ctx, fmt.Sprintf("%s is a workflow of convoy itself, and no hook", hook.Type))
	case hook.Input != nil && len(hook.Input.Raw) > maxHookInput:
		return HookStart{}, h.fail(ctx, fmt.Sprintf("its input has %d bytes, and at most %d are allowed", len(hook.Input.Raw), maxHookInput))
	}
	call := h.call()
	call.Input = json.RawMessage("{}")
	if hook.Input != nil && len(hook.Input.Raw) > 0 {
		call.Input = hook.Input.Raw
	}
	return HookStart{
		WorkflowID: release.HookWorkflowID(h.in.Sync.Namespace, h.in.Sync.Name, h.try()),
		Type:       hook.Type, TaskQueue: hook.TaskQueue, Call: call,
	}, nil
}

// RecordHook writes the end of a try of a workflow hook to status at once, so that no later sync runs a hook again that
// has succeeded (D25).
//
// Idempotent: it writes the same entry.
// Fails with: Waiting while the control cluster is out of reach; Fenced when another sync has begun; Superseded when the
// Release is gone.
// Heartbeat: the name of the hook.
func (a *Activities) RecordHook(ctx context.Context, in HookOutcome) error {
	h := a.hookRun(ctx, in.HookInput)
	h.began = in.StartedAt
	_, err := perform(ctx, a, "hook", release.HookFailed, func(ctx context.Context, l *lease) (struct{}, error) {
		l.record(func(p *Progress) { p.Object = in.Hook.Name })
		err := h.recordEnd(ctx, in)
		if err != nil && ctx.Err() == nil && !isProblem(err) && !errors.Is(err, errFenced) {
			err = &waitError{message: "the end of the hook is not recorded yet: " + shorten(err.Error()), after: recordAgain}
		}
		return struct{}{}, err
	})
	return err
}

func (h *hookRun) recordEnd(ctx context.Context, in HookOutcome) error {
	var err error
	if h.rel, err = h.fenced(ctx, h.in.Sync); err != nil {
		return err
	}
	if !in.Failed {
		return h.record(ctx, v1alpha1.ResultSucceeded, "")
	}
	if err := h.record(ctx, v1alpha1.ResultFailed, in.Message); err != nil {
		return err
	}
	h.warn(ctx, in.Message)
	return nil
}
