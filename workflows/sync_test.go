package workflows

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// stage is one run of SyncWorkflow in the SDK's test environment: every activity is played, and their calls are
// written down as one line each.
type stage struct {
	*testsuite.TestWorkflowEnvironment
	t     *testing.T
	calls []string
	// fail makes a call fail, by its line.
	fail map[string]error
	// unhealthy is how often AwaitWave looks in vain, once a day; negative: always.
	unhealthy int
	// again is the pause after a look in vain, a day unless a test says otherwise, and on what happens at a call.
	again    time.Duration
	on       map[string]func()
	prepared activities.PrepareInput
	recorded *activities.Outcome
	// wave is what ApplyWave answers, left and held what WriteInventory does, and recheck what that was asked for.
	wave    activities.ApplyWaveResult
	left    activities.Named
	held    activities.Named
	recheck bool
}

// plan is what PrepareSync answers, unless a test changes it.
func plan() activities.Prepared {
	return activities.Prepared{
		Sync:    activities.SyncRef{Namespace: "team-a", Name: "shop", UID: "u", Generation: 3, Fence: 7, Digest: "sha256:abc", Revision: "r1"},
		Objects: 3, Orphans: 5, HasStore: true, Prune: v1alpha1.PrunePolicy{Orphaned: true},
		Waves:    []activities.PlannedWave{{Number: -1, Objects: 1}, {Number: 2, Objects: 2}},
		PreSync:  []activities.PlannedHook{{Name: "migrate", Timeout: time.Minute}},
		PostSync: []activities.PlannedHook{{Name: "notify", Timeout: time.Minute}},
	}
}

func newStage(t *testing.T, prepared activities.Prepared) *stage {
	t.Helper()
	suite := testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	s := &stage{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment(), t: t, fail: map[string]error{}, on: map[string]func(){}, again: 24 * time.Hour, wave: activities.ApplyWaveResult{Applied: 1, Changed: 1}}
	unhurried(s.TestWorkflowEnvironment)
	s.left = activities.Named{Objects: []string{"ConfigMap old"}, Total: 1}
	s.RegisterWorkflowWithOptions((&Workflows{HeartbeatTimeout: 10 * time.Second}).SyncWorkflow, workflow.RegisterOptions{Name: "SyncWorkflow"})
	s.RegisterActivity(&activities.Activities{})
	s.OnActivity(act.PrepareSync, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.PrepareInput) (activities.Prepared, error) {
		s.prepared = in
		return prepared, s.play("prepare")
	})
	s.OnActivity(act.DryRun, mock.Anything, mock.Anything).Return(func(context.Context, activities.SyncRef) (activities.DryRunResult, error) {
		return activities.DryRunResult{Objects: 3, Unverified: activities.Named{Objects: []string{"Lamp l"}, Total: 1}}, s.play("dry run")
	})
	s.OnActivity(act.StoreRender, mock.Anything, mock.Anything).Return(func(context.Context, activities.SyncRef) (string, error) {
		return "key", s.play("store")
	})
	s.OnActivity(act.RunHook, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.HookInput) error {
		return s.play(fmt.Sprintf("%s %s %d", in.Phase, in.Hook.Name, in.Try))
	})
	s.OnActivity(act.AwaitWave, mock.Anything, mock.Anything).Return(func(ctx context.Context, in activities.WaveInput) error {
		if s.unhealthy < 0 || int(activity.GetInfo(ctx).Attempt) <= s.unhealthy {
			return temporal.NewApplicationErrorWithOptions("not healthy", activities.Waiting, temporal.ApplicationErrorOptions{NextRetryDelay: s.again})
		}
		return s.play(fmt.Sprintf("wave %d healthy", in.Wave))
	})
	s.OnActivity(act.AnnounceDelay, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.DelayInput) error {
		return s.play(fmt.Sprintf("wave %d delayed", in.Blocks))
	})
	s.OnActivity(act.ApplyWave, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.WaveInput) (activities.ApplyWaveResult, error) {
		return s.wave, s.play(fmt.Sprintf("wave %d", in.Wave))
	})
	s.OnActivity(act.PruneOrphans, mock.Anything, mock.Anything).Return(func(context.Context, activities.PruneInput) (activities.PruneResult, error) {
		return activities.PruneResult{Deleted: 4, Kept: activities.Named{Objects: []string{"Namespace shop"}, Total: 1}}, s.play("prune")
	})
	s.OnActivity(act.WriteInventory, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.InventoryInput) (activities.InventoryResult, error) {
		s.recheck = in.Recheck
		return activities.InventoryResult{Objects: 3, Left: s.left, Terminating: s.held}, s.play("inventory")
	})
	s.OnActivity(act.RecordSync, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.Outcome) error {
		s.recorded = &in
		return s.play("record " + in.Reason)
	})
	return s
}

// unhurried lets a busy machine take its time: the SDK's own bounds are seconds of the real clock.
func unhurried(env *testsuite.TestWorkflowEnvironment) {
	env.SetTestTimeout(time.Minute)
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute})
}

func (s *stage) play(call string) error {
	s.calls = append(s.calls, call)
	if on := s.on[call]; on != nil {
		on()
	}
	return s.fail[call]
}

// run plays a sync and returns the reason of its end.
func (s *stage) run(in SyncInput) string {
	s.t.Helper()
	return s.plays("SyncWorkflow", in)
}

func (s *stage) plays(workflowType string, in SyncInput) string {
	s.t.Helper()
	in.Namespace, in.Name = "team-a", "shop"
	s.ExecuteWorkflow(workflowType, in)
	require.True(s.t, s.IsWorkflowCompleted())
	err := s.GetWorkflowError()
	var failure *temporal.ApplicationError
	switch {
	case err == nil:
		return "Succeeded"
	case temporal.IsCanceledError(err):
		return "Canceled"
	case errors.As(err, &failure):
		return failure.Type()
	}
	return err.Error()
}

func failure(reason release.Reason) error {
	return temporal.NewNonRetryableApplicationError("it went wrong", string(reason), nil)
}

const wholeSync = "prepare, dry run, store, preSync migrate 1, wave -1, wave 2, prune, inventory, postSync notify 1, record Succeeded"

// S1 S15
func TestSyncWorkflow_runs_the_steps_in_their_order(t *testing.T) {
	s := newStage(t, plan())
	require.Equal(t, "Succeeded", s.run(SyncInput{}))
	require.Equal(t, wholeSync, strings.Join(s.calls, ", "))
	require.Equal(t, "applied 3 objects of render abc; pruned 4", s.recorded.Message)
	require.Equal(t, []string{"Lamp l"}, s.recorded.Unverified.Objects)
	require.Equal(t, []string{"Namespace shop"}, s.recorded.Orphaned.Objects)
	var result SyncResult
	require.NoError(t, s.GetWorkflowResult(&result))
	require.Equal(t, SyncResult{Digest: "sha256:abc", Revision: "r1", Objects: 3, Changed: 2, Pruned: 4}, result)
}

// S2 S6 S11 S18 S23 S27 S29 D25: after a step that fails only the record runs, under the step's reason.
func TestSyncWorkflow_a_failed_step_ends_the_sync(t *testing.T) {
	for _, step := range []struct {
		call   string
		reason release.Reason
	}{
		{"dry run", release.Unappliable},
		{"dry run", release.DeployFailed},
		{"store", release.DeployFailed},
		{"preSync migrate 1", release.HookFailed},
		{"wave -1", release.DeployFailed},
		{"wave 2", release.DeployFailed},
		{"prune", release.PruneFailed},
		{"inventory", release.DeployFailed},
	} {
		t.Run(step.call+" "+string(step.reason), func(t *testing.T) {
			s := newStage(t, plan())
			s.fail[step.call] = failure(step.reason)
			require.Equal(t, string(step.reason), s.run(SyncInput{}))
			before, _, found := strings.Cut(wholeSync, step.call)
			require.True(t, found)
			require.Equal(t, before+step.call+", record "+string(step.reason), strings.Join(s.calls, ", "))
			require.Equal(t, "it went wrong", s.recorded.Message)
		})
	}
}

// D1: a render that fails is recorded once the fence was taken; a sync that may not begin records nothing (D16).
func TestSyncWorkflow_a_failed_prepare(t *testing.T) {
	fenced := activities.SyncRef{Namespace: "team-a", Name: "shop", UID: "u", Fence: 8}
	for _, end := range []struct {
		name, reason string
		details      []any
		calls        string
	}{
		{"render failed", "RenderFailed", []any{fenced}, "prepare, record RenderFailed"},
		{"refused", activities.Refused, []any{activities.SyncRef{}}, "prepare"},
		{"another sync began", activities.Fenced, []any{fenced}, "prepare"},
	} {
		t.Run(end.name, func(t *testing.T) {
			s := newStage(t, plan())
			s.fail["prepare"] = temporal.NewNonRetryableApplicationError("no", end.reason, nil, end.details...)
			require.Equal(t, end.reason, s.run(SyncInput{}))
			require.Equal(t, end.calls, strings.Join(s.calls, ", "))
			if s.recorded != nil {
				require.Equal(t, int64(8), s.recorded.Sync.Fence)
			}
		})
	}
}

// D16: after an attempt that may have left a request in flight, what was pruned is looked at once more.
func TestSyncWorkflow_what_was_pruned_is_looked_at_again_after_a_lost_attempt(t *testing.T) {
	for name, change := range map[string]func(*stage, *activities.Prepared){
		"none was lost":    func(*stage, *activities.Prepared) {},
		"prepare was lost": func(_ *stage, p *activities.Prepared) { p.Unsure = true },
		"a wave was lost":  func(s *stage, _ *activities.Prepared) { s.wave.Unsure = true },
	} {
		t.Run(name, func(t *testing.T) {
			p := plan()
			change(&stage{}, &p)
			s := newStage(t, p)
			change(s, &p)
			require.Equal(t, "Succeeded", s.run(SyncInput{}))
			require.Equal(t, name != "none was lost", s.recheck)
		})
	}
}

// S3: a failed postSync hook is reported and changes nothing in the result.
func TestSyncWorkflow_a_failed_postSync_hook_changes_nothing(t *testing.T) {
	s := newStage(t, plan())
	s.fail["postSync notify 1"] = failure(release.HookFailed)
	require.Equal(t, "Succeeded", s.run(SyncInput{}))
	require.Equal(t, wholeSync, strings.Join(s.calls, ", "))
	require.Contains(t, s.recorded.Message, "it went wrong")
}

// S9 S12 S22 D21: steps that are not asked for.
func TestSyncWorkflow_steps_that_are_not_asked_for(t *testing.T) {
	t.Run("force skips the dry run only", func(t *testing.T) {
		s := newStage(t, plan())
		require.Equal(t, "Succeeded", s.run(SyncInput{Force: true}))
		require.Equal(t, strings.Replace(wholeSync, "dry run, ", "", 1), strings.Join(s.calls, ", "))
	})
	t.Run("no render store", func(t *testing.T) {
		p := plan()
		p.HasStore = false
		s := newStage(t, p)
		require.Equal(t, "Succeeded", s.run(SyncInput{}))
		require.Equal(t, strings.Replace(wholeSync, "store, ", "", 1), strings.Join(s.calls, ", "))
	})
	t.Run("nothing to prune", func(t *testing.T) {
		p := plan()
		p.Orphans = 0
		s := newStage(t, p)
		require.Equal(t, "Succeeded", s.run(SyncInput{}))
		require.Equal(t, strings.Replace(wholeSync, "prune, ", "", 1), strings.Join(s.calls, ", "))
	})
	t.Run("no prune: what leaves the inventory is named", func(t *testing.T) {
		p := plan()
		p.Prune.Orphaned = false
		s := newStage(t, p)
		require.Equal(t, "Succeeded", s.run(SyncInput{}))
		require.Equal(t, strings.Replace(wholeSync, "prune, ", "", 1), strings.Join(s.calls, ", "))
		require.Equal(t, []string{"ConfigMap old"}, s.recorded.Orphaned.Objects)
	})
}

// D25: retries of a hook are new tries with names of their own.
func TestSyncWorkflow_retries_a_hook_as_often_as_it_says(t *testing.T) {
	p := plan()
	p.PreSync[0].Retries = 2
	s := newStage(t, p)
	s.fail["preSync migrate 1"], s.fail["preSync migrate 2"] = failure(release.HookFailed), failure(release.HookFailed)
	require.Equal(t, "Succeeded", s.run(SyncInput{}))
	require.Contains(t, strings.Join(s.calls, ", "), "preSync migrate 1, preSync migrate 2, preSync migrate 3, wave -1")
}

func gated(strategy v1alpha1.HealthStrategy, timeout time.Duration) activities.Prepared {
	p := plan()
	p.Waves[1].Strategy, p.Waves[1].After, p.Waves[1].Timeout = strategy, -1, timeout
	if strategy == v1alpha1.HealthDelay {
		p.Waves[1].Delay = 90 * time.Second
	}
	return p
}

// S17 D23 D24
func TestSyncWorkflow_a_wave_waits_for_the_one_before(t *testing.T) {
	t.Run("until it is healthy, however long", func(t *testing.T) {
		s := newStage(t, gated(v1alpha1.HealthReady, 0))
		s.unhealthy = 7
		began := s.Now()
		require.Equal(t, "Succeeded", s.run(SyncInput{}))
		require.Equal(t, strings.Replace(wholeSync, "wave 2", "wave -1 healthy, wave 2", 1), strings.Join(s.calls, ", "))
		require.WithinDuration(t, began.Add(7*24*time.Hour), s.Now(), time.Minute)
	})
	t.Run("until the timeout", func(t *testing.T) {
		s := newStage(t, gated(v1alpha1.HealthReady, time.Minute))
		s.unhealthy = -1
		began := s.Now()
		require.Equal(t, "WaveTimeout", s.run(SyncInput{}))
		require.WithinDuration(t, began.Add(time.Minute), s.Now(), 20*time.Second)
		require.Equal(t, "prepare, dry run, store, preSync migrate 1, wave -1, record WaveTimeout", strings.Join(s.calls, ", "))
		require.Equal(t, int32(2), *s.recorded.FailedWave)
	})
	t.Run("a failed object ends the wait", func(t *testing.T) {
		s := newStage(t, gated(v1alpha1.HealthReady, 0))
		s.fail["wave -1 healthy"] = failure(release.DeployFailed)
		require.Equal(t, "DeployFailed", s.run(SyncInput{}))
		require.NotContains(t, s.calls, "wave 2")
	})
	t.Run("a delay", func(t *testing.T) {
		s := newStage(t, gated(v1alpha1.HealthDelay, 0))
		began := s.Now()
		require.Equal(t, "Succeeded", s.run(SyncInput{}))
		require.Equal(t, strings.Replace(wholeSync, "wave 2", "wave 2 delayed, wave 2", 1), strings.Join(s.calls, ", "))
		require.WithinDuration(t, began.Add(90*time.Second), s.Now(), time.Second)
	})
	t.Run("a delay longer than its timeout", func(t *testing.T) {
		s := newStage(t, gated(v1alpha1.HealthDelay, time.Second))
		require.Equal(t, "WaveTimeout", s.run(SyncInput{}))
		require.NotContains(t, s.calls, "wave 2")
	})
}

// D33: a cancelled sync is recorded as Superseded, and ends as cancelled.
func TestSyncWorkflow_a_cancelled_sync_is_recorded(t *testing.T) {
	s := newStage(t, gated(v1alpha1.HealthReady, 0))
	s.unhealthy = -1
	s.RegisterDelayedCallback(s.CancelWorkflow, time.Hour)
	require.Equal(t, "Canceled", s.run(SyncInput{}))
	require.Equal(t, "prepare, dry run, store, preSync migrate 1, wave -1, record Superseded", strings.Join(s.calls, ", "))
	require.Nil(t, s.recorded.FailedWave)
}

// SPEC 4: the query "status" tells the step, the waves, and what is waited for.
func TestSyncWorkflow_answers_the_query_status(t *testing.T) {
	s := newStage(t, gated(v1alpha1.HealthReady, time.Hour))
	s.unhealthy = -1
	s.RegisterDelayedCallback(func() {
		value, err := s.QueryWorkflow("status")
		require.NoError(t, err)
		var status SyncStatus
		require.NoError(t, value.Get(&status))
		require.Equal(t, SyncStatus{
			Step: "apply", Digest: "sha256:abc", WaitingFor: "wave 2: wait for wave -1 to be healthy",
			Waves: []WaveStatus{{Wave: -1, Objects: 1, Phase: v1alpha1.WaveApplied}, {Wave: 2, Objects: 2, Phase: v1alpha1.WaveWaiting}},
		}, status)
	}, time.Minute)
	require.Equal(t, "WaveTimeout", s.run(SyncInput{}))
}

// D21: a worker that dies after it wrote the exact inventory takes the names of what left with it; the plan has them.
func TestSyncWorkflow_D21_names_what_an_attempt_that_died_has_forgotten(t *testing.T) {
	gone := activities.Named{Objects: []string{"ConfigMap old", "ConfigMap older"}, Total: 2}
	for name, c := range map[string]struct {
		prune bool
		left  activities.Named
		want  []string
	}{
		"the attempt that wrote answered":                   {left: gone, want: gone.Objects},
		"an attempt that found it exact answered":           {want: gone.Objects},
		"the plan knew fewer":                               {left: activities.Named{Objects: []string{"a", "b", "c"}, Total: 3}, want: []string{"a", "b", "c"}},
		"with the prune on, the prune says what stays":      {prune: true, want: []string{"Namespace shop"}},
		"with the prune on, what left with it is no matter": {prune: true, left: gone, want: []string{"Namespace shop"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan()
			p.Prune.Orphaned, p.OrphanNames = c.prune, gone
			s := newStage(t, p)
			s.left = c.left
			require.Equal(t, "Succeeded", s.run(SyncInput{}))
			require.Equal(t, c.want, s.recorded.Orphaned.Objects)
			require.Equal(t, len(c.want), s.recorded.Orphaned.Total)
		})
	}
}

// D18: what an earlier sync pruned and finalizers hold to this day is named beside what this one pruned.
func TestSyncWorkflow_D18_does_not_forget_what_finalizers_hold(t *testing.T) {
	s := newStage(t, plan())
	s.held = activities.Named{Objects: []string{"ConfigMap team-a/held (finalizers: x)"}, Total: 1}
	require.Equal(t, "Succeeded", s.run(SyncInput{}))
	require.Equal(t, s.held, s.recorded.Terminating)
}
