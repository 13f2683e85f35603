package activities

import (
	"testing"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/require"
)

// S29 S30 D33: every end is recorded; lastSuccessful and the history move only when the render was applied.
func TestRecordSync_S30_lastSuccessful_moves_only_with_a_success(t *testing.T) {
	for reason, result := range map[release.Reason]v1alpha1.AttemptResult{
		release.Succeeded: v1alpha1.ResultSucceeded, release.Superseded: v1alpha1.ResultSuperseded,
		release.Unappliable: v1alpha1.ResultFailed, release.RenderFailed: v1alpha1.ResultFailed, release.DeployFailed: v1alpha1.ResultFailed,
		release.PruneFailed: v1alpha1.ResultFailed, release.HookFailed: v1alpha1.ResultFailed, release.WaveTimeout: v1alpha1.ResultFailed,
	} {
		t.Run(string(reason), func(t *testing.T) {
			w := newWorld(t, cm("a", 0))
			before := &v1alpha1.Success{Digest: "sha256:before"}
			w.rel.Status.LastSuccessful = before
			w.succeeds(w.a.RecordSync, Outcome{Sync: w.sync(), Reason: string(reason), Message: "so it ended"}, nil)
			last := w.rel.Status.LastAttempted
			require.Equal(t, result, last.Result)
			require.Equal(t, string(reason), last.Reason)
			require.Equal(t, "so it ended", last.Message)
			require.NotNil(t, last.FinishedAt)
			require.True(t, w.rel.Status.Fence.Acknowledged)
			if reason == release.Succeeded {
				require.Equal(t, w.sync().Digest, w.rel.Status.LastSuccessful.Digest)
				require.Len(t, w.rel.Status.History, 1)
				return
			}
			require.Equal(t, before, w.rel.Status.LastSuccessful)
			require.Empty(t, w.rel.Status.History)
		})
	}
}

// D35: once another sync has begun nothing is written.
func TestRecordSync_D35_writes_nothing_once_another_sync_has_begun(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	in := Outcome{Sync: w.sync(), Reason: string(release.Succeeded)}
	w.rel.Status.Fence.Number++
	w.succeeds(w.a.RecordSync, in, nil)
	require.Empty(t, w.calls)
	require.Nil(t, w.rel.Status.LastSuccessful)
}

// S31 D33: nobody works on a wave any more, nor waits for one.
func TestRecordSync_S31_leaves_no_wave_at_work(t *testing.T) {
	for reason, phase := range map[release.Reason]v1alpha1.WavePhase{release.WaveTimeout: v1alpha1.WaveFailed, release.Superseded: v1alpha1.WavePending} {
		w := newWorld(t, cm("a", 0))
		w.rel.Status.Waves = []v1alpha1.WaveStatus{{Wave: 0, Phase: v1alpha1.WaveApplied}, {Wave: 1, Phase: v1alpha1.WaveWaiting}, {Wave: 2, Phase: v1alpha1.WavePending}}
		w.succeeds(w.a.RecordSync, Outcome{Sync: w.sync(), Reason: string(reason)}, nil)
		require.Equal(t, v1alpha1.WaveApplied, w.rel.Status.Waves[0].Phase)
		require.Equal(t, phase, w.rel.Status.Waves[1].Phase)
		require.Equal(t, v1alpha1.WavePending, w.rel.Status.Waves[2].Phase)
	}
}
