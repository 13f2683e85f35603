package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/workflows"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// loopFor bounds how long `convoy status` waits for Temporal: what the Release says itself must not wait for it.
const loopFor = 2 * time.Second

// loopView is the loop of a Release, as far as it could be asked: trouble says why not.
type loopView struct {
	status  *workflows.LoopStatus
	trouble string
	// ended: no loop runs, so nobody looks at the Release by itself.
	ended bool
}

// askLoop asks the loop of a Release what it does. One that has ended is not asked: Temporal would let it answer with
// what it did when it ended.
func (p *program) askLoop(ctx context.Context, rel *v1alpha1.Release) loopView {
	dialing, cancel := context.WithTimeout(ctx, loopFor)
	defer cancel()
	t, err := p.dialTemporal(dialing)
	if err != nil {
		return loopView{trouble: "not asked: Temporal cannot be reached (--temporal-address)"}
	}
	defer t.Close()
	key := types.NamespacedName{Namespace: rel.Namespace, Name: rel.Name}
	state, err := t.loopState(ctx, key)
	switch {
	case err != nil:
		return loopView{trouble: "not asked: " + oneLine(err.Error())}
	case !state.running:
		return loopView{ended: true, trouble: notRunning(rel, state.howLong(p.now())) + p.orNoWorker(ctx, t, p.globals.taskQueue)}
	}
	status, err := t.loopStatus(ctx, key)
	if err != nil {
		return loopView{trouble: "does not answer (" + oneLine(err.Error()) + ")" + p.orNoWorker(ctx, t, state.queue) + toAnotherQueue(key, state.queue)}
	}
	return loopView{status: status}
}

// loopState is what Temporal itself knows of a loop, without a worker.
type loopState struct {
	running bool
	queue   string // that it was started with
	end     string // "terminated", or "not found"
	endedAt time.Time
}

func (t *temporal) loopState(ctx context.Context, key types.NamespacedName) (loopState, error) {
	ctx, cancel := context.WithTimeout(ctx, queryFor)
	defer cancel()
	described, err := t.DescribeWorkflowExecution(ctx, release.ReleaseWorkflowID(key.Namespace, key.Name), "")
	var unknown *serviceerror.NotFound
	switch {
	case errors.As(err, &unknown):
		return loopState{end: "not found"}, nil
	case err != nil:
		return loopState{}, err
	}
	info := described.GetWorkflowExecutionInfo()
	state := loopState{queue: described.GetExecutionConfig().GetTaskQueue().GetName(), endedAt: info.GetCloseTime().AsTime()}
	switch status := info.GetStatus(); status {
	case enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW, enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED:
		state.running = true
	case enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		state.end = "timed out"
	default:
		state.end = strings.ToLower(status.String())
	}
	return state, nil
}

// howLong is "terminated 3m ago".
func (s loopState) howLong(now time.Time) string {
	if s.endedAt.Unix() <= 0 {
		return s.end
	}
	return s.end + " " + since(metav1.NewTime(s.endedAt), now) + " ago"
}

// notRunning says how a loop that has ended comes back: the worker's watch misses it, and so does a request.
func notRunning(rel *v1alpha1.Release, end string) string {
	text := fmt.Sprintf("not running (%s): the worker starts it again within ten minutes", end)
	if mayRequest(rel) == nil {
		text += fmt.Sprintf(", or now with `convoy reconcile %s/%s`", rel.Namespace, rel.Name)
	}
	return text
}

// orNoWorker is a further line where nobody serves a task queue.
func (p *program) orNoWorker(ctx context.Context, t *temporal, queue string) string {
	if pollers, err := t.pollers(ctx, queue); err != nil || pollers > 0 {
		return ""
	}
	return fmt.Sprintf("\nno worker polls task queue %[1]s: start one with `worker --task-queue %[1]s`", queue)
}

// toAnotherQueue says how a loop moves that waits on the wrong task queue.
func toAnotherQueue(key types.NamespacedName, queue string) string {
	return fmt.Sprintf("\nit waits on task queue %s, which it was started with; to move it: `temporal workflow terminate --workflow-id %s`, "+
		"then `convoy reconcile %s --task-queue QUEUE`", queue, release.ReleaseWorkflowID(key.Namespace, key.Name), key)
}

// cadence says when convoy looks at the Release again, and what keeps it from syncing.
func (s statusPage) cadence() {
	conditions := s.rel.Status.Conditions
	if s.rel.DeletionTimestamp != nil {
		s.line("Deleting", "since %s", since(*s.rel.DeletionTimestamp, s.now))
	}
	if pin := s.rel.Spec.Pin; pin != nil {
		s.line("Pinned", "to render %s, whatever the source has (convoy unpin %s/%s)", pin.Digest, s.rel.Namespace, s.rel.Name)
	}
	if s.rel.Spec.Suspend {
		message := "spec.suspend is set: no sync starts until it is lifted (convoy resume)"
		if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReconciling); c != nil && c.Reason == release.Suspended {
			message = c.Message
		}
		s.line("Suspended", "%s", message)
	}
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); c != nil && c.Reason == release.OutOfSync && c.Status == metav1.ConditionFalse {
		s.line("Out of sync", "%s", c.Message)
	}
	if next := nextCell(s.rel, s.now); next != "" && !s.loop.ended {
		s.line("Next look", "%s (%s)", next, s.rel.Status.NextReconcileAt.UTC().Format(time.RFC3339))
	}
}

// loopLines say what the loop does, and which requests wait for it.
func (s statusPage) loopLines() {
	loop := s.loop
	if loop.status == nil {
		if loop.trouble != "" {
			s.line("Loop", "%s", loop.trouble)
		}
		return
	}
	s.line("Loop", "%s", loopDoing(loop.status))
	if len(loop.status.Waiting) > 0 {
		s.line("", "requests that wait: %s", strings.Join(loop.status.Waiting, ", "))
	}
}

// loopDoing is what a loop does, as a sentence. Its own words are made for the timers in Temporal's Web UI.
func loopDoing(loop *workflows.LoopStatus) string {
	doing := loop.Doing
	switch {
	case doing == "":
		return "is there"
	case loop.Failures > 0 && strings.HasPrefix(doing, "retry after"):
		return fmt.Sprintf("waits for the next try, after %s in a row", release.Count(loop.Failures, "failure"))
	case loop.Failures > 0:
		return fmt.Sprintf("%s, after %s in a row", inSentence(doing), release.Count(loop.Failures, "failure"))
	}
	return inSentence(doing)
}

func inSentence(doing string) string {
	switch doing {
	case "next reconcile":
		return "waits for the next reconcile"
	case "suspended":
		return "waits for the suspension to be lifted"
	case "looking at the Release":
		return "looks at the Release"
	}
	return doing
}

// shownRequests is how many answered requests the page shows.
const shownRequests = 5

// requests shows what requests came to.
func (s statusPage) requests() {
	handled := s.rel.Status.LastHandledRequests
	if len(handled) == 0 {
		return
	}
	shown := handled[:min(len(handled), shownRequests)]
	s.title("Requests", len(shown), max(int(s.rel.Status.HandledRequestsTotal), len(handled)))
	rows := [][]string{{"REQUEST", "RESULT", "RENDER", "RUN"}}
	for _, answer := range shown {
		result := answer.Result
		if answer.Reason != "" && answer.Reason != result {
			result = fmt.Sprintf("%s (%s)", result, answer.Reason)
		}
		rows = append(rows, []string{answer.ID, result, orDash(release.ShortDigest(answer.Digest)), orDash(answer.RunID)})
	}
	table(s.w, "  ", rows)
}
