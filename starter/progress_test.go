package main

import (
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
)

func int32p(n int32) *int32 { return &n }

// waitingLook is a sync that waits at wave 1.
func waitingLook() look {
	return look{
		query: &workflows.SyncStatus{
			Step: "apply", Digest: digestB, WaitingFor: "wave 1: wait for wave 0 to be healthy",
			Waves: []workflows.WaveStatus{
				{Wave: 0, Objects: 12, Phase: v1alpha1.WaveApplied},
				{Wave: 1, Objects: 4, Phase: v1alpha1.WaveWaiting},
			},
		},
		status: &waitingRelease().Status,
		step:   &pendingStep{id: "await-wave-1", attempt: 3, lastFailure: "1 object is not healthy yet"},
	}
}

// applyingLook is a sync that applies wave 1.
func applyingLook() look {
	l := waitingLook()
	l.query.WaitingFor, l.query.Waves[1].Phase = "", v1alpha1.WaveApplying
	l.step = &pendingStep{id: "apply-wave-1", attempt: 1, progress: activities.Progress{Step: "apply", Wave: int32p(1), Done: 2, Total: 4}}
	return l
}

func TestProgressIsDrawnWithBarsAndBlockers(t *testing.T) {
	got := progressOf(waitingLook()).draw("team-a/shop -> prod-eu", 95*time.Second, 120, 40)
	require.Equal(t, []string{
		"team-a/shop -> prod-eu  render bbbbbbbbbbbb  1m35s",
		"  apply: wave 1: wait for wave 0 to be healthy",
		"  wave 0    [########################] 12/12  Applied",
		"  wave 1    [------------------------] 0/4  Waiting",
		"            blocked by Deployment shop/web: 1/3[31m available",
		"            and 18 more",
	}, got)
	got = progressOf(applyingLook()).draw("t", 0, 120, 40)
	require.Contains(t, got, "  wave 1    [############------------] 2/4  Applying")
}

func TestProgressFitsTheTerminal(t *testing.T) {
	got := progressOf(waitingLook()).draw("team-a/shop -> prod-eu", 0, 30, 4)
	require.Len(t, got, 4)
	require.Equal(t, "  … 3 more lines", got[3])
	for _, line := range got {
		require.LessOrEqual(t, len([]rune(line)), 29)
	}
}

func TestProgressWithoutAWorkerRestsOnTheReleaseAlone(t *testing.T) {
	l := waitingLook()
	l.query = nil
	got := progressOf(l)
	require.Equal(t, "await-wave-1", got.step)
	require.Equal(t, digestB, got.digest)
	require.Len(t, got.waves, 2)
	require.Equal(t, 12, got.waves[0].applied)

	require.Equal(t, "starting", progressOf(look{}).step)
}

func TestProgressTellsWhyAStepIsTriedAgain(t *testing.T) {
	l := applyingLook()
	l.step.lastFailure = "the worker stops"
	got := progressOf(l)
	require.Contains(t, got.draw("t", 0, 80, 40), "  last try: the worker stops")
	require.Contains(t, got.changes(progress{}), "last try: the worker stops")
}

func TestProgressShowsAFailedWave(t *testing.T) {
	l := applyingLook()
	l.status.Waves[1].Phase, l.status.Waves[1].Applied = v1alpha1.WaveFailed, 2
	l.step = nil
	got := progressOf(l)
	require.Equal(t, v1alpha1.WaveFailed, got.waves[1].phase)
	require.Equal(t, 2, got.waves[1].applied)
}

func TestProgressInLinesTellsEachChangeOnce(t *testing.T) {
	dryRun := look{
		query: &workflows.SyncStatus{Step: "dry run", Digest: digestB, Waves: []workflows.WaveStatus{{Wave: 0, Objects: 12, Phase: v1alpha1.WavePending}, {Wave: 1, Objects: 4, Phase: v1alpha1.WavePending}}},
		step:  &pendingStep{progress: activities.Progress{Done: 3, Total: 12}},
	}
	later := dryRun
	later.step = &pendingStep{progress: activities.Progress{Done: 9, Total: 12}}
	var got []string
	last := progress{}
	for _, l := range []look{{}, dryRun, later, waitingLook(), waitingLook(), applyingLook()} {
		next := progressOf(l)
		got = append(got, next.changes(last)...)
		last = next
	}
	require.Equal(t, strings.Split(strings.TrimSpace(`
step starting
render bbbbbbbbbbbb
step dry run
step apply: wave 1: wait for wave 0 to be healthy
wave 0 applied (12/12 objects applied)
wave 1 waiting (0/4 objects applied)
wave 1 is blocked by Deployment shop/web: 1/3[31m available
step apply
wave 1 applying (2/4 objects applied)`), "\n"), got)
}
