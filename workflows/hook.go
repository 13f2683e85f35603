package workflows

import (
	"errors"
	"fmt"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/internal/release"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// runHook runs a hook until it has ended, and again as often as its retries say.
func (s *sync) runHook(ctx workflow.Context, phase string, hook activities.PlannedHook) error {
	var err error
	for try := int32(1); try <= hook.Retries+1; try++ {
		s.enter(phase + " hook " + hook.Name)
		err = s.tryHook(ctx, activities.HookInput{Sync: s.plan.Sync, Phase: phase, Hook: hook, Try: try})
		if err == nil || ctx.Err() != nil || reasonOf(err) != string(release.HookFailed) {
			return err
		}
	}
	return err
}

// hookGrace is what the timeout of a try leaves for its end to be seen and recorded by a worker.
const hookGrace = time.Minute

// tryHook runs one try. The activity judges its timeout; where no worker does, Temporal ends it a little later.
func (s *sync) tryHook(ctx workflow.Context, in activities.HookInput) error {
	prefix := "pre-sync-"
	if in.Phase == "postSync" {
		prefix = "post-sync-"
	}
	id := fmt.Sprintf("%s%s-%d", prefix, in.Hook.Name, in.Try)
	title := fmt.Sprintf("%s hook %s", in.Phase, in.Hook.Name)
	if in.Hook.Type == release.HookTypeWorkflow {
		return s.tryWorkflow(ctx, in, title, id)
	}
	options := s.option(title, id, time.Minute)
	options.ScheduleToCloseTimeout = in.Hook.Timeout + hookGrace
	err := callOnly(ctx, options, act.RunHook, in)
	if temporal.IsTimeoutError(err) {
		return hookFailed(in, fmt.Sprintf(" did not end within its timeout of %s", in.Hook.Timeout))
	}
	return err
}

// hookFailed is the end of a try that failed.
func hookFailed(in activities.HookInput, what string) error {
	return temporal.NewNonRetryableApplicationError(fmt.Sprintf("%s hook %q%s", in.Phase, in.Hook.Name, what), string(release.HookFailed), nil)
}

// tryWorkflow runs one try of a workflow hook: an activity says what it is, the workflow runs as a child of the sync,
// and an activity records its end. The child outlives no sync: a sync that is cancelled cancels it and waits for its
// end, and so does Temporal where the sync is terminated, without waiting.
func (s *sync) tryWorkflow(ctx workflow.Context, in activities.HookInput, title, id string) error {
	start, err := call(ctx, s.option(title+": begin", id+"-begin", time.Minute), act.BeginHook, in)
	if err != nil {
		return err
	}
	if start.TaskQueue == "" {
		start.TaskQueue = workflow.GetInfo(ctx).TaskQueueName
	}
	s.wait(fmt.Sprintf("%s: workflow %s on task queue %s (%s)", title, start.Type, start.TaskQueue, start.WorkflowID))
	began := workflow.Now(ctx)
	err = workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, s.childOptions(in, title, start)), start.Type, start.Call).Get(ctx, nil)
	if err != nil && ctx.Err() != nil {
		return err
	}
	end := activities.HookOutcome{HookInput: in, StartedAt: began}
	if err != nil {
		end.Failed, end.Message = true, childEnd(err, in, start)
	}
	detached, cancel := workflow.NewDisconnectedContext(ctx) // a success that came with a cancellation is one
	defer cancel()
	if err := callOnly(detached, s.option(title+": record", id+"-record", time.Minute), act.RecordHook, end); err != nil {
		return err
	}
	if end.Failed {
		return hookFailed(in, ": "+end.Message)
	}
	return nil
}

func (s *sync) childOptions(in activities.HookInput, title string, start activities.HookStart) workflow.ChildWorkflowOptions {
	return workflow.ChildWorkflowOptions{
		WorkflowID:               start.WorkflowID,
		TaskQueue:                start.TaskQueue,
		WorkflowExecutionTimeout: in.Hook.Timeout,
		WaitForCancellation:      true,
		ParentClosePolicy:        enumspb.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
		StaticSummary:            fmt.Sprintf("%s of Release %s/%s", title, in.Sync.Namespace, in.Sync.Name),
		StaticDetails: fmt.Sprintf("Try %d of the %s of Release `%s/%s`, for render `%s`.\n\nThe sync `%s` waits for its end: completed is success, anything else fails the hook.",
			in.Try, title, in.Sync.Namespace, in.Sync.Name, in.Sync.Digest, release.SyncWorkflowID(in.Sync.Namespace, in.Sync.Name)),
	}
}

// childEnd says how the workflow of a hook ended, if it did not complete.
func childEnd(err error, in activities.HookInput, start activities.HookStart) string {
	name := fmt.Sprintf("its workflow %s (%s)", start.Type, start.WorkflowID)
	var started *temporal.ChildWorkflowExecutionAlreadyStartedError
	var child *temporal.ChildWorkflowExecutionError
	switch {
	case errors.As(err, &started):
		return name + " runs already"
	case errors.As(err, &child):
		err = child.Unwrap()
	}
	switch cause := err.(type) { //nolint:errorlint // how the workflow itself ended, not a step of it
	case *temporal.TimeoutError:
		return fmt.Sprintf("%s did not end within its timeout of %s; if it has not even begun, no worker that knows it may be polling task queue %q",
			name, in.Hook.Timeout, start.TaskQueue)
	case *temporal.TerminatedError:
		return name + " was terminated"
	case *temporal.CanceledError:
		return name + " was cancelled"
	case *temporal.ApplicationError:
		return name + " failed: " + cut(cause.Message())
	default:
		return name + " failed: " + cut(messageOf(err))
	}
}

// cut bounds what somebody else's workflow says.
func cut(message string) string { return fmt.Sprintf("%.1000s", message) }
