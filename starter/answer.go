package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/workflows"

	"go.temporal.io/sdk/client"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
)

// awaited is a request whose answer is waited for: a syncRun that shows every sync of the Release until one of them has
// answered it. A sync that had begun before the request serves it not (D26), and is shown all the same.
type awaited struct {
	*request
	answer *v1alpha1.HandledRequest
	// absent is in how many looks in a row the loop neither kept the request nor served it.
	absent int
}

// followRequest shows what happens until the request is answered, and ends with the code of the answer's reason. When
// ctx ends the watching stops, and the request stays.
func (p *program) followRequest(ctx context.Context, asked *request) error {
	asked.findQueue(ctx)
	a := &awaited{request: asked}
	w := &watcher{run: a, screen: p.screen(fmt.Sprintf("%s -> %s", asked.key, targetName(asked.rel))), taskQueue: asked.queue}
	result, err := w.watch(ctx)
	if err != nil && ctx.Err() != nil {
		return failf(exitInterrupted, "stopped watching; request %[1]s stays, and its sync goes on. Look at it with `convoy status %[2]s`, watch again with `convoy sync %[2]s --id %[1]s --wait`",
			asked.id, asked.key)
	}
	if err != nil {
		return err
	}
	text := "applied render " + release.ShortDigest(a.answer.Digest)
	if result.Digest != "" {
		text = resultText(result)
	}
	p.printf("%s: %s", a.answer.Result, text)
	return nil
}

// patience is how many reads of the Release in a row may fail: each has been tried again on its own for a while.
const patience = 3

// result waits for the answer in the Release's status.
func (a *awaited) result(ctx context.Context) (workflows.SyncResult, error) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for failures := 0; ; {
		rel, err := a.control.Release(ctx, a.key.Namespace, a.key.Name)
		switch {
		case err == nil && a.answerIn(rel) != nil:
			a.answer = a.answerIn(rel)
			return a.end(ctx, rel)
		case err == nil && rel.DeletionTimestamp != nil:
			return workflows.SyncResult{}, mayRequest(rel)
		case err == nil:
			failures = 0
			if a.answer = a.missed(ctx); a.answer != nil {
				return a.end(ctx, rel)
			}
		case errors.Is(err, release.ErrNotFound):
			return workflows.SyncResult{}, err
		default:
			if failures++; failures == patience {
				return workflows.SyncResult{}, fmt.Errorf("the answer to request %s is not known: %w", a.id, err)
			}
		}
		select {
		case <-ctx.Done():
			return workflows.SyncResult{}, ctx.Err()
		case <-ticker.C:
		}
	}
}

// absentLooks is from when on an answer counts as missed; status has it a moment after the loop, as a rule.
const absentLooks = 3

// missed is an answer that status no longer shows: of many requests that one sync answers it shows each for a moment
// only (D35). The loop remembers more of them, and tells an update with the same id.
func (a *awaited) missed(ctx context.Context) *v1alpha1.HandledRequest {
	status, err := a.loopStatus(ctx, a.key)
	if err != nil || status.Suspended || status.SyncRunID != "" || slices.Contains(status.Waiting, a.id) {
		a.absent = 0
		return nil
	}
	if a.absent++; a.absent < absentLooks {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	handle, err := a.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: release.ReleaseWorkflowID(a.key.Namespace, a.key.Name), UpdateName: workflows.UpdateSync,
		Args: []any{a.in}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	var answer workflows.SyncAnswer
	if err != nil || handle.Get(ctx, &answer) != nil {
		return nil // it is served after all, or the loop refuses: status will tell
	}
	return &v1alpha1.HandledRequest{
		ID: answer.ID, Result: answer.Result, Reason: answer.Reason, Message: answer.Message, Digest: answer.Digest, RunID: answer.RunID,
	}
}

// end is what the answer says. The numbers of a sync that succeeded are Temporal's, where it still has them.
func (a *awaited) end(ctx context.Context, rel *v1alpha1.Release) (workflows.SyncResult, error) {
	if a.answer.Result != string(v1alpha1.ResultSucceeded) {
		return workflows.SyncResult{}, failureOf(a.answer, rel)
	}
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	result, err := a.sync(a.answer.RunID).result(ctx)
	if err != nil {
		return workflows.SyncResult{}, nil
	}
	return result, nil
}

// failureOf is an answer that is no success. The status holds the whole message of the last sync, and whether another
// one follows by itself.
func failureOf(answer *v1alpha1.HandledRequest, rel *v1alpha1.Release) error {
	message, code := answer.Message, exitOfReason(answer.Reason)
	if last := rel.Status.LastAttempted; last != nil && last.RunID == answer.RunID && answer.RunID != "" {
		message = orElse(last.Message, message)
	}
	if code == exitFailed && answer.Result == activities.Refused {
		code = exitRefused
	}
	reconciling := meta.FindStatusCondition(rel.Status.Conditions, v1alpha1.ConditionReconciling)
	if reconciling != nil && reconciling.Reason == answer.Reason && reconciling.Message != "" {
		message += " (" + reconciling.Message + ")"
	}
	return failf(code, "%s: %s", orElse(answer.Reason, answer.Result), message)
}

// sync is one run of the Release's syncs.
func (a *awaited) sync(runID string) *temporalRun {
	return &temporalRun{
		temporal: a.temporal, control: a.control, namespace: a.key.Namespace, name: a.key.Name, taskQueue: a.queue,
		workflowID: release.SyncWorkflowID(a.key.Namespace, a.key.Name), runID: runID,
	}
}

// look is one look at the sync that runs, or at the loop while none does.
func (a *awaited) look(ctx context.Context) look {
	seen := &loopLook{id: a.id}
	if status, err := a.loopStatus(ctx, a.key); err == nil {
		seen.loop = status
	}
	if rel, err := a.control.Release(ctx, a.key.Namespace, a.key.Name); err == nil {
		seen.last, seen.suspended = rel.Status.LastAttempted, rel.Spec.Suspend
		seen.answer = a.answerIn(rel)
	}
	run := seen.syncRun()
	if run == "" {
		return look{loop: seen}
	}
	out := a.sync(run).look(ctx)
	out.loop = seen
	return out
}

func (a *awaited) pollers(ctx context.Context) (int, error) { return a.temporal.pollers(ctx, a.queue) }

// loopStatus is the loop's own word on itself.
func (t *temporal) loopStatus(ctx context.Context, key types.NamespacedName) (*workflows.LoopStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, queryFor)
	defer cancel()
	answer, err := t.QueryWorkflow(ctx, release.ReleaseWorkflowID(key.Namespace, key.Name), "", workflows.QueryStatus)
	if err != nil {
		return nil, err
	}
	status := &workflows.LoopStatus{}
	return status, answer.Get(status)
}

// loopLook is what can be seen of a request at one moment.
type loopLook struct {
	id        string
	loop      *workflows.LoopStatus // nil when no worker answers
	last      *v1alpha1.Attempt
	suspended bool
	answer    *v1alpha1.HandledRequest
}

// syncRun is the sync to show: the one that answered, else the one that runs.
func (l *loopLook) syncRun() string {
	switch {
	case l.answer != nil:
		return l.answer.RunID
	case l.loop != nil && l.loop.SyncRunID != "":
		return l.loop.SyncRunID
	case l.last != nil && l.last.Result == v1alpha1.ResultRunning:
		return l.last.RunID
	}
	return ""
}

// waitsFor is what the request waits for while no sync runs.
func (l *loopLook) waitsFor() string {
	switch {
	case l.suspended:
		return "the Release is suspended; the request is kept until convoy resume"
	case l.loop != nil:
		return l.loop.Doing
	}
	return "the loop of the Release to take it"
}
