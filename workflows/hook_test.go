package workflows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// smokePlan has a workflow hook in a phase, tried again so many times.
func smokePlan(phase string, retries int32) activities.Prepared {
	p := plan()
	hook := []activities.PlannedHook{{Name: "smoke", Type: release.HookTypeWorkflow, Timeout: time.Minute, Retries: retries}}
	if phase == "preSync" {
		p.PreSync = hook
	} else {
		p.PostSync = hook
	}
	return p
}

// smoke adds the activities of workflow hooks and the workflow itself, which is played by run.
func (s *stage) smoke(run func(workflow.Context, activities.HookCall) (string, error)) (ended *[]activities.HookOutcome) {
	ended = &[]activities.HookOutcome{}
	s.OnActivity(act.BeginHook, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.HookInput) (activities.HookStart, error) {
		return activities.HookStart{
			WorkflowID: fmt.Sprintf("hook:%d", in.Try), Type: "Smoke", TaskQueue: "checks",
			Call: activities.HookCall{Hook: in.Hook.Name, Try: in.Try, Input: json.RawMessage(`{"url":"u"}`)},
		}, s.play(fmt.Sprintf("begin %s %d", in.Hook.Name, in.Try))
	})
	s.OnActivity(act.RecordHook, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.HookOutcome) error {
		*ended = append(*ended, in)
		return s.play(fmt.Sprintf("ended %s %d %t", in.Hook.Name, in.Try, !in.Failed))
	})
	s.RegisterWorkflowWithOptions(run, workflow.RegisterOptions{Name: "Smoke"})
	return ended
}

// D25: a workflow hook is a child of the sync, with what the activity says as its input; its end is recorded, and its
// result is not.
func TestSyncWorkflow_D25_runs_a_workflow_hook_as_a_child(t *testing.T) {
	s := newStage(t, smokePlan("preSync", 0))
	var got activities.HookCall
	var info *workflow.Info
	ended := s.smoke(func(ctx workflow.Context, call activities.HookCall) (string, error) {
		got, info = call, workflow.GetInfo(ctx)
		return "result", workflow.Sleep(ctx, 20*time.Second)
	})
	began := s.Now()
	require.Equal(t, "Succeeded", s.run(SyncInput{}))
	require.Contains(t, strings.Join(s.calls, ", "), "store, begin smoke 1, ended smoke 1 true, wave -1")
	require.Equal(t, activities.HookCall{Hook: "smoke", Try: 1, Input: json.RawMessage(`{"url":"u"}`)}, got)
	require.Equal(t, "hook:1", info.WorkflowExecution.ID)
	require.Equal(t, "checks", info.TaskQueueName)
	require.Equal(t, time.Minute, info.WorkflowExecutionTimeout)
	require.Len(t, *ended, 1)
	require.Empty(t, (*ended)[0].Message)
	require.WithinDuration(t, began, (*ended)[0].StartedAt, 5*time.Second)
	require.WithinDuration(t, began.Add(20*time.Second), s.Now(), 5*time.Second)
}

// D25 S2 S3: whatever else than completion ends the workflow, fails the hook: a preSync one ends the sync, a postSync
// one changes nothing.
func TestSyncWorkflow_D25_ends_of_a_workflow_hook(t *testing.T) {
	for name, c := range map[string]struct {
		end  error
		says string
	}{
		"failed":      {temporal.NewApplicationError("the shop is closed", "Closed"), "failed: the shop is closed"},
		"failed long": {temporal.NewApplicationError(strings.Repeat("ü", 5000), "Closed"), "failed: " + strings.Repeat("ü", 1000)},
		"plain":       {errors.New("plain"), "failed: plain"},
		"cancelled":   {temporal.NewCanceledError(), "was cancelled"},
		"panicked":    {temporal.NewApplicationError("index out of range", "PanicError"), "failed: index out of range"},
	} {
		for _, phase := range []string{"preSync", "postSync"} {
			t.Run(phase+" "+name, func(t *testing.T) {
				s := newStage(t, smokePlan(phase, 0))
				ended := s.smoke(func(workflow.Context, activities.HookCall) (string, error) { return "", c.end })
				reason := s.run(SyncInput{})
				require.Len(t, *ended, 1)
				require.Equal(t, "its workflow Smoke (hook:1) "+c.says, (*ended)[0].Message)
				message := fmt.Sprintf("%s hook %q: %s", phase, "smoke", (*ended)[0].Message)
				if phase == "preSync" {
					require.Equal(t, "HookFailed", reason)
					require.Equal(t, message, s.recorded.Message)
					require.Equal(t, "prepare, dry run, store, begin smoke 1, ended smoke 1 false, record HookFailed", strings.Join(s.calls, ", "))
					return
				}
				require.Equal(t, "Succeeded", reason)
				require.Contains(t, s.recorded.Message, message)
				var result SyncResult
				require.NoError(t, s.GetWorkflowResult(&result))
				require.Equal(t, message, result.HookFailed)
			})
		}
	}
}

// A workflow that nobody runs ends by its timeout, and the message says what may be missing.
func TestSyncWorkflow_a_workflow_hook_without_a_worker(t *testing.T) {
	s := newStage(t, smokePlan("preSync", 0))
	ended := s.smoke(func(workflow.Context, activities.HookCall) (string, error) { return "", nil })
	s.OnWorkflow("Smoke", mock.Anything, mock.Anything).Return("", temporal.NewTimeoutError(0, nil))
	require.Equal(t, "HookFailed", s.run(SyncInput{}))
	require.Len(t, *ended, 1)
	for _, part := range []string{"Smoke", "hook:1", "within its timeout of 1m0s", `no worker that knows it may be polling task queue "checks"`} {
		require.Contains(t, (*ended)[0].Message, part)
	}
}

// D25: retries are new workflows.
func TestSyncWorkflow_D25_retries_a_workflow_hook(t *testing.T) {
	s := newStage(t, smokePlan("preSync", 2))
	s.smoke(func(_ workflow.Context, call activities.HookCall) (string, error) {
		if call.Try < 3 {
			return "", errors.New("not yet")
		}
		return "", nil
	})
	require.Equal(t, "Succeeded", s.run(SyncInput{}))
	require.Contains(t, strings.Join(s.calls, ", "),
		"begin smoke 1, ended smoke 1 false, begin smoke 2, ended smoke 2 false, begin smoke 3, ended smoke 3 true, wave -1")
}

// D33: a sync that is cancelled cancels the workflow of its hook and waits for its end; nothing is recorded of the hook.
func TestSyncWorkflow_D33_cancels_its_workflow_hook_and_waits(t *testing.T) {
	s := newStage(t, smokePlan("preSync", 0))
	ended := s.smoke(func(ctx workflow.Context, _ activities.HookCall) (string, error) {
		err := workflow.Sleep(ctx, time.Hour)
		detached, cancel := workflow.NewDisconnectedContext(ctx)
		defer cancel()
		_ = workflow.Sleep(detached, 10*time.Second) // it tidies up
		_ = s.play("tidied up")
		return "", err
	})
	s.RegisterDelayedCallback(s.CancelWorkflow, 5*time.Second)
	require.Equal(t, "Canceled", s.run(SyncInput{}))
	require.Equal(t, "prepare, dry run, store, begin smoke 1, tidied up, record Superseded", strings.Join(s.calls, ", "))
	require.Empty(t, *ended)
	require.Contains(t, s.recorded.Message, "preSync hook smoke")
}

// A workflow that completes although its sync is being cancelled has succeeded, and does not run again (D25).
func TestSyncWorkflow_D25_a_success_that_came_with_a_cancellation_is_recorded(t *testing.T) {
	s := newStage(t, smokePlan("preSync", 0))
	ended := s.smoke(func(ctx workflow.Context, _ activities.HookCall) (string, error) {
		_ = workflow.Sleep(ctx, time.Hour)
		return "done", nil
	})
	s.RegisterDelayedCallback(s.CancelWorkflow, 5*time.Second)
	require.Equal(t, "Canceled", s.run(SyncInput{}))
	require.Equal(t, "prepare, dry run, store, begin smoke 1, ended smoke 1 true, record Superseded", strings.Join(s.calls, ", "))
	require.Len(t, *ended, 1)
}

// D16: a hook that may not begin starts no workflow, and an end that may not be written ends the sync.
func TestSyncWorkflow_D16_a_workflow_hook_of_a_fenced_sync(t *testing.T) {
	for _, call := range []string{"begin smoke 1", "ended smoke 1 true"} {
		s := newStage(t, smokePlan("preSync", 3))
		ran := 0
		s.smoke(func(workflow.Context, activities.HookCall) (string, error) { ran++; return "", nil })
		s.fail[call] = temporal.NewNonRetryableApplicationError("another sync", activities.Fenced, nil)
		require.Equal(t, activities.Fenced, s.run(SyncInput{}))
		require.Equal(t, call, s.calls[len(s.calls)-1])
		require.Equal(t, call != "begin smoke 1", ran == 1)
	}
}

// SPEC 4: the query says which workflow is waited for.
func TestSyncWorkflow_says_which_workflow_hook_it_waits_for(t *testing.T) {
	s := newStage(t, smokePlan("postSync", 0))
	s.smoke(func(ctx workflow.Context, _ activities.HookCall) (string, error) {
		return "", workflow.Sleep(ctx, 20*time.Second)
	})
	asked := false
	s.RegisterDelayedCallback(func() {
		value, err := s.QueryWorkflow("status")
		require.NoError(t, err)
		var status SyncStatus
		require.NoError(t, value.Get(&status))
		require.Equal(t, "postSync hook smoke", status.Step)
		require.Equal(t, "postSync hook smoke: workflow Smoke on task queue checks (hook:1)", status.WaitingFor)
		asked = true
	}, 10*time.Second)
	require.Equal(t, "Succeeded", s.run(SyncInput{}))
	require.True(t, asked)
}
