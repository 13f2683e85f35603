package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/spf13/cobra"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"k8s.io/apimachinery/pkg/types"
)

func (p *program) whyCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "why NAMESPACE/NAME",
		GroupID: groupLook,
		Short:   "Say in one paragraph what a Release waits for",
		Long: `Say in one paragraph what a Release waits for, since when, what happens next, and who can unblock it, with the command
that does. It answers from the Release, and from Temporal where that answers within two seconds; it needs no worker.`,
		Example: `  convoy why team-a/shop
  team-a/shop: wave 1 waits for Deployment shop/web (1/3 available), for 95s (since 2026-11-30T11:58:25Z). …`,
		Args:              oneRelease,
		ValidArgsFunction: p.completeRelease,
		RunE: does(func(ctx context.Context, args []string) error {
			_, rel, err := p.readRelease(ctx, args[0])
			if err != nil {
				return err
			}
			f := p.gather(ctx, rel)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			p.printf("%s", why(f))
			return nil
		}),
	}
}

// gather asks Temporal what it knows of a Release, for as long as a person waits gladly. What it does not say in time is
// missing.
func (p *program) gather(ctx context.Context, rel *v1alpha1.Release) facts {
	ctx, cancel := context.WithTimeout(ctx, loopFor)
	defer cancel()
	f := facts{rel: rel, now: p.now()}
	t, err := p.dialTemporal(ctx)
	if err != nil {
		f.noTemporal = "it cannot be reached: check --temporal-address or TEMPORAL_ADDRESS"
		return f
	}
	defer t.Close()
	key := types.NamespacedName{Namespace: rel.Namespace, Name: rel.Name}
	var queue string
	var loopErr, syncErr error
	var loop loopState
	both(func() { loop, loopErr = t.loopState(ctx, key) }, func() { f.sync, queue, syncErr = t.openSync(ctx, key) })
	if err := errors.Join(loopErr, syncErr); err != nil {
		f.noTemporal = oneLine(err.Error())
	}
	if loopErr == nil {
		f.loop = &loop
	}
	f.syncKnown = syncErr == nil
	queues := []string{p.globals.taskQueue}
	if queue != "" || loop.running {
		queues = slices.DeleteFunc([]string{loop.queueIfRunning(), queue}, func(q string) bool { return q == "" })
	}
	f.silent = t.silent(ctx, queues)
	if f.silent == "" {
		f.askWorkers(ctx, t, key)
	}
	if asked := loop.running || f.sync != nil; asked && f.noTemporal == "" && f.silent == "" && !f.answered() {
		f.mute = queues[0]
	}
	return f
}

// answered reports whether a worker answered for the loop or for the sync.
func (f facts) answered() bool { return f.doing != nil || f.sync != nil && f.sync.query != nil }

func both(one, other func()) {
	var group sync.WaitGroup
	group.Go(one)
	group.Go(other)
	group.Wait()
}

// silent is the first of the task queues that no worker polls.
func (t *temporal) silent(ctx context.Context, queues []string) string {
	for _, queue := range slices.Compact(queues) {
		if pollers, err := t.pollers(ctx, queue); err == nil && pollers == 0 {
			return queue
		}
	}
	return ""
}

// askWorkers asks the loop and the sync themselves, which takes a worker.
func (f *facts) askWorkers(ctx context.Context, t *temporal, key types.NamespacedName) {
	both(func() {
		if f.loop != nil && f.loop.running {
			if status, err := t.loopStatus(ctx, key); err == nil {
				f.doing = status
			}
		}
	}, func() {
		if f.sync != nil {
			run := temporalRun{temporal: t, workflowID: release.SyncWorkflowID(key.Namespace, key.Name), runID: f.sync.runID}
			f.sync.query = run.query(ctx)
		}
	})
}

func (s loopState) queueIfRunning() string {
	if !s.running {
		return ""
	}
	return s.queue
}

// openSync is the sync of a Release that has not ended, and its task queue; nil when there is none.
func (t *temporal) openSync(ctx context.Context, key types.NamespacedName) (*openSync, string, error) {
	described, err := t.DescribeWorkflowExecution(ctx, release.SyncWorkflowID(key.Namespace, key.Name), "")
	var unknown *serviceerror.NotFound
	if errors.As(err, &unknown) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	info := described.GetWorkflowExecutionInfo()
	if info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING && info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED {
		return nil, "", nil
	}
	open := &openSync{runID: info.GetExecution().GetRunId(), startedAt: info.GetStartTime().AsTime()}
	if pending := described.GetPendingActivities(); len(pending) > 0 {
		open.step = stepOf(pending[0])
	}
	return open, described.GetExecutionConfig().GetTaskQueue().GetName(), nil
}

// pauseOf is who paused a step; nil when nobody did.
func pauseOf(pending *workflowpb.PendingActivityInfo) *pause {
	if !pending.GetPaused() {
		return nil
	}
	info := pending.GetPauseInfo()
	out := &pause{by: info.GetManual().GetIdentity(), reason: info.GetManual().GetReason()}
	if at := info.GetPauseTime(); at != nil {
		out.at = at.AsTime()
	}
	return out
}

// nextTry is when a step that waits is tried again; zero when it runs.
func nextTry(pending *workflowpb.PendingActivityInfo) time.Time {
	if at := pending.GetNextAttemptScheduleTime(); at != nil && pending.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED {
		return at.AsTime()
	}
	return time.Time{}
}
