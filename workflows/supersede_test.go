package workflows

import (
	"context"
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

const untilTheGate = "prepare, dry run, store, preSync migrate 1, wave -1"

// supersedes tells the sync that something newer is to be synced, right when a call is played.
func (s *stage) supersedes(call string) {
	s.on[call] = func() { s.SignalWorkflow(SignalSupersede, Supersede{By: "render def"}) }
}

// gaveWay requires that the sync ended at its gate, after a time, and was recorded as superseded (D33).
func (s *stage) gaveWay(began time.Time, after time.Duration, calls string) {
	s.t.Helper()
	require.Equal(s.t, "Canceled", s.run(SyncInput{}))
	require.InDelta(s.t, after.Seconds(), s.Now().Sub(began).Seconds(), 0.5)
	require.Equal(s.t, calls+", record Superseded", strings.Join(s.calls, ", "))
	require.Equal(s.t, "superseded by render def while it was at: apply", s.recorded.Message)
	require.Nil(s.t, s.recorded.FailedWave)
	var cancelled *temporal.CanceledError
	require.ErrorAs(s.t, s.GetWorkflowError(), &cancelled)
	var message string
	var detail SyncFailure
	require.NoError(s.t, cancelled.Details(&message, &detail))
	require.Equal(s.t, s.recorded.Message, message)
	require.Equal(s.t, SyncFailure{Digest: "sha256:abc", Recorded: true}, detail)
}

// D23 D33: a sync that waits for health gives way at once.
func TestSyncWorkflow_D23_gives_way_while_it_waits_for_health(t *testing.T) {
	s := newStage(t, gated(v1alpha1.HealthReady, 0))
	s.unhealthy = -1
	began := s.Now()
	s.RegisterDelayedCallback(func() { s.SignalWorkflow(SignalSupersede, Supersede{By: "render def"}) }, time.Hour)
	s.gaveWay(began, time.Hour, untilTheGate)
}

// D23: a sync that was superseded before its gate looks once, so that one that is superseded at every gate still comes
// to its prune: healthy at once, it goes on.
func TestSyncWorkflow_D23_looks_once_before_it_gives_way(t *testing.T) {
	t.Run("not healthy", func(t *testing.T) {
		s := newStage(t, gated(v1alpha1.HealthReady, time.Hour))
		s.unhealthy = -1
		s.supersedes("wave -1")
		s.gaveWay(s.Now(), firstLook, untilTheGate)
	})
	t.Run("healthy a moment too late", func(t *testing.T) {
		s := newStage(t, gated(v1alpha1.HealthReady, 0))
		s.unhealthy, s.again = 1, 5*time.Second
		s.supersedes("wave -1")
		s.gaveWay(s.Now(), firstLook, untilTheGate)
	})
	t.Run("told a moment after it began to wait", func(t *testing.T) {
		s := newStage(t, gated(v1alpha1.HealthReady, 0))
		s.unhealthy = -1
		began := s.Now()
		s.RegisterDelayedCallback(func() { s.SignalWorkflow(SignalSupersede, Supersede{By: "render def"}) }, 2*time.Second)
		s.gaveWay(began, firstLook, untilTheGate)
	})
	for name, unhealthy := range map[string]int{"healthy at once": 0, "healthy at the second look": 1} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, gated(v1alpha1.HealthReady, 0))
			s.unhealthy, s.again = unhealthy, time.Second
			s.supersedes("wave -1")
			require.Equal(t, "Succeeded", s.run(SyncInput{}))
			require.Equal(t, strings.Replace(wholeSync, "wave 2", "wave -1 healthy, wave 2", 1), strings.Join(s.calls, ", "))
		})
	}
}

// D23: a sync gives way during a delay, and before one.
func TestSyncWorkflow_D23_gives_way_at_a_delay(t *testing.T) {
	announced := untilTheGate + ", wave 2 delayed"
	t.Run("during it", func(t *testing.T) {
		s := newStage(t, gated(v1alpha1.HealthDelay, 0))
		began := s.Now()
		s.RegisterDelayedCallback(func() { s.SignalWorkflow(SignalSupersede, Supersede{By: "render def"}) }, 40*time.Second)
		s.gaveWay(began, 40*time.Second, announced)
	})
	t.Run("before it", func(t *testing.T) {
		s := newStage(t, gated(v1alpha1.HealthDelay, 0))
		s.supersedes("wave -1")
		s.gaveWay(s.Now(), 0, announced)
	})
	t.Run("with a timeout", func(t *testing.T) {
		s := newStage(t, gated(v1alpha1.HealthDelay, 30*time.Second))
		began := s.Now()
		s.RegisterDelayedCallback(func() { s.SignalWorkflow(SignalSupersede, Supersede{By: "render def"}) }, 20*time.Second)
		s.gaveWay(began, 20*time.Second, announced)
	})
}

// D23: a sync that works reaches its end, or its next wait.
func TestSyncWorkflow_D23_does_not_give_way_while_it_works(t *testing.T) {
	for call := range strings.SplitSeq(wholeSync, ", ") {
		t.Run(call, func(t *testing.T) {
			s := newStage(t, plan())
			s.supersedes(call)
			require.Equal(t, "Succeeded", s.run(SyncInput{}))
			require.Equal(t, wholeSync, strings.Join(s.calls, ", "))
		})
	}
	t.Run("a sync that fails fails", func(t *testing.T) {
		s := newStage(t, gated(v1alpha1.HealthReady, 0))
		s.supersedes("wave -1")
		s.fail["wave 2"] = failure(release.DeployFailed)
		require.Equal(t, "DeployFailed", s.run(SyncInput{}))
		require.Equal(t, "DeployFailed", s.recorded.Reason)
	})
}

// D23: the word is kept for the wait at a later wave, and an order without a word still has one.
func TestSyncWorkflow_D23_gives_way_at_a_later_wave(t *testing.T) {
	p := gated(v1alpha1.HealthReady, 0)
	p.Waves = append(p.Waves, activities.PlannedWave{Number: 5, Objects: 1, Strategy: v1alpha1.HealthDelay, After: 2, Delay: time.Hour})
	s := newStage(t, p)
	s.on["prepare"] = func() { s.SignalWorkflow(SignalSupersede, Supersede{}) }
	require.Equal(t, "Canceled", s.run(SyncInput{}))
	require.Equal(t, untilTheGate+", wave -1 healthy, wave 2, wave 5 delayed, record Superseded", strings.Join(s.calls, ", "))
	require.Contains(t, s.recorded.Message, "superseded by something newer")
}

// D22 D25 D26: what the loop says of its sync comes to its first step and to its record.
func TestSyncWorkflow_D26_hands_on_what_the_loop_says(t *testing.T) {
	s := newStage(t, plan())
	loop := activities.LoopRef{Requests: []string{"r1"}, Failures: 2, Retry: true, Cause: "drift"}
	require.Equal(t, "Succeeded", s.run(SyncInput{Force: true, RequestedBy: "ann", Loop: &loop}))
	require.Equal(t, activities.PrepareInput{Namespace: "team-a", Name: "shop", Force: true, RequestedBy: "ann", Retry: true, Cause: "drift"}, s.prepared)
	require.Equal(t, &loop, s.recorded.Loop)
	require.Empty(t, s.recorded.ParentRunID)
}

// deletionStage is one run of DeleteWorkflow.
func deletionStage(t *testing.T) *stage {
	t.Helper()
	p := plan()
	p.Sync.Deleting = true
	s := newStage(t, p)
	s.RegisterWorkflowWithOptions((&Workflows{HeartbeatTimeout: 10 * time.Second}).DeleteWorkflow, workflow.RegisterOptions{Name: "DeleteWorkflow"})
	s.OnActivity(act.PrepareDeletion, mock.Anything, mock.Anything).Return(func(context.Context, activities.PrepareInput) (activities.Prepared, error) {
		return p, s.play("prepare")
	})
	s.OnActivity(act.FinishDeletion, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.FinishInput) error {
		require.True(t, in.Sync.Deleting)
		return s.play("finish")
	})
	return s
}

// S24 S27 S29: a deletion prunes, and lets the Release go only when nothing failed. A failed one is recorded.
func TestDeleteWorkflow_S27_lets_the_Release_go_last(t *testing.T) {
	s := deletionStage(t)
	require.Equal(t, "Succeeded", s.plays("DeleteWorkflow", SyncInput{}))
	require.Equal(t, "prepare, prune, finish", strings.Join(s.calls, ", "))
	var result SyncResult
	require.NoError(t, s.GetWorkflowResult(&result))
	require.Equal(t, 4, result.Pruned)

	for call, want := range map[string]string{
		"prune":  "prepare, prune, record PruneFailed",
		"finish": "prepare, prune, finish, record PruneFailed",
	} {
		s = deletionStage(t)
		s.fail[call] = failure(release.PruneFailed)
		require.Equal(t, "PruneFailed", s.plays("DeleteWorkflow", SyncInput{Loop: &activities.LoopRef{Failures: 3}}))
		require.Equal(t, want, strings.Join(s.calls, ", "))
		require.Equal(t, 3, s.recorded.Loop.Failures)
	}
	s = deletionStage(t)
	s.fail["prepare"] = temporal.NewNonRetryableApplicationError("no", activities.Refused, nil, activities.SyncRef{})
	require.Equal(t, activities.Refused, s.plays("DeleteWorkflow", SyncInput{}))
	require.Equal(t, "prepare", strings.Join(s.calls, ", "))
	s = deletionStage(t)
	s.fail["prepare"] = temporal.NewNonRetryableApplicationError("no route", "PruneFailed", nil, activities.SyncRef{Fence: 8})
	require.Equal(t, "PruneFailed", s.plays("DeleteWorkflow", SyncInput{}))
	require.Equal(t, "prepare, record PruneFailed", strings.Join(s.calls, ", "))
}

// D23: the word that came before a gate which was healthy at once counts at the next one.
func TestSyncWorkflow_D23_remembers_the_word_at_the_next_gate(t *testing.T) {
	p := gated(v1alpha1.HealthReady, 0)
	p.Waves = append(p.Waves, activities.PlannedWave{Number: 5, Objects: 1, Strategy: v1alpha1.HealthReady, After: 2})
	s := newStage(t, p)
	s.supersedes("wave -1")
	s.on["wave 2"] = func() { s.unhealthy = -1 }
	s.gaveWay(s.Now(), firstLook, untilTheGate+", wave -1 healthy, wave 2")
}
