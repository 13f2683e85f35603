package main

import (
	"context"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/control"
	"convoy.dev/convoy/workflows"

	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
)

// syncRun is a sync that runs: what the watcher needs of it.
type syncRun interface {
	// look is one look at the progress. What cannot be had now is missing.
	look(ctx context.Context) look
	// result waits for the end.
	result(ctx context.Context) (workflows.SyncResult, error)
	// pollers is how many workers serve the task queue.
	pollers(ctx context.Context) (int, error)
}

// look is what can be seen of a sync from outside at one moment.
type look struct {
	// query is the workflow's own word; nil when no worker answers.
	query *workflows.SyncStatus
	// status of the Release; nil when it is about another run.
	status *v1alpha1.ReleaseStatus
	// step that runs at a worker or waits for one; nil when none does.
	step *pendingStep
	// loop is set where a request is followed, and not one sync.
	loop *loopLook
}

// answers reports whether a worker answered.
func (l look) answers() bool { return l.query != nil || l.loop != nil && l.loop.loop != nil }

// pendingStep is an activity that has not ended.
type pendingStep struct {
	id       string
	attempt  int32
	progress activities.Progress
	// waits: it looked and gave its slot back, or it failed and is tried again; lastFailure says why.
	lastFailure string
	nextTry     time.Time // zero while a try runs
	paused      *pause    // nil when nobody paused it
}

// temporalRun is a sync in Temporal.
type temporalRun struct {
	*temporal
	control           *control.Client
	namespace, name   string
	taskQueue         string
	workflowID, runID string
}

// How long one part of a look may take. A query without a worker would block for ten seconds.
const (
	queryFor = 2 * time.Second
	lookFor  = 5 * time.Second
)

func (r *temporalRun) result(ctx context.Context) (workflows.SyncResult, error) {
	var result workflows.SyncResult
	err := r.GetWorkflow(ctx, r.workflowID, r.runID).Get(ctx, &result)
	return result, err
}

func (r *temporalRun) look(ctx context.Context) look {
	return look{query: r.query(ctx), status: r.status(ctx), step: r.step(ctx)}
}

func (r *temporalRun) query(ctx context.Context) *workflows.SyncStatus {
	ctx, cancel := context.WithTimeout(ctx, queryFor)
	defer cancel()
	answer, err := r.QueryWorkflow(ctx, r.workflowID, r.runID, "status")
	if err != nil {
		return nil
	}
	var status workflows.SyncStatus
	if answer.Get(&status) != nil {
		return nil
	}
	return &status
}

func (r *temporalRun) status(ctx context.Context) *v1alpha1.ReleaseStatus {
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	rel, err := r.control.Release(ctx, r.namespace, r.name)
	if err != nil || rel.Status.LastAttempted == nil || rel.Status.LastAttempted.RunID != r.runID {
		return nil
	}
	return &rel.Status
}

func (r *temporalRun) step(ctx context.Context) *pendingStep {
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	described, err := r.DescribeWorkflowExecution(ctx, r.workflowID, r.runID)
	if err != nil || len(described.PendingActivities) == 0 {
		return nil
	}
	return stepOf(described.PendingActivities[0])
}

func stepOf(pending *workflowpb.PendingActivityInfo) *pendingStep {
	step := &pendingStep{id: pending.ActivityId, attempt: pending.Attempt, lastFailure: pending.GetLastFailure().GetMessage(),
		nextTry: nextTry(pending), paused: pauseOf(pending)}
	if details := pending.HeartbeatDetails; details != nil {
		_ = converter.GetDefaultDataConverter().FromPayloads(details, &step.progress)
	}
	return step
}

func (r *temporalRun) pollers(ctx context.Context) (int, error) {
	return r.temporal.pollers(ctx, r.taskQueue)
}

// pollers is how many workers serve a task queue.
func (t *temporal) pollers(ctx context.Context, taskQueue string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	described, err := t.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
		Namespace:     t.namespace,
		TaskQueue:     &taskqueuepb.TaskQueue{Name: taskQueue, Kind: enumspb.TASK_QUEUE_KIND_NORMAL},
		TaskQueueType: enumspb.TASK_QUEUE_TYPE_WORKFLOW,
	})
	if err != nil {
		return 0, err
	}
	return len(described.Pollers), nil
}
