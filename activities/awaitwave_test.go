package activities

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
)

// S17 D23 D33 D35: one look that gives its slot back; status names the first 20 blockers and their number.
func TestAwaitWave_D23_looks_once_and_gives_its_slot_back(t *testing.T) {
	w := newWorld(t, cm("a", 0), cm("free", 0, "convoy.dev/wait: disabled"), cm("b", 1))
	for i := range 25 {
		w.health.Blockers = append(w.health.Blockers, release.Unhealthy{Ref: cmRef(fmt.Sprint("c", i)), Message: "not yet"})
	}
	message := w.fails(w.a.AwaitWave, WaveInput{Sync: w.sync(), Wave: 0, Blocks: 1}, Waiting)
	require.Equal(t, "wave 1 waits for wave 0: ConfigMap team-a/c0: not yet (and 24 more), since 2026-01-01T12:00:00Z", message)
	require.Equal(t, "health a, status", strings.Join(w.calls, ", "))
	wave := w.rel.Status.Waves[1]
	require.Equal(t, v1alpha1.WaveWaiting, wave.Phase)
	require.Len(t, wave.BlockedBy, 20)
	require.EqualValues(t, 25, wave.BlockedByTotal)
	require.Equal(t, "WaitingForWave", meta.FindStatusCondition(w.rel.Status.Conditions, "Applied").Reason)
}

// D24: a failed object ends the wait at once; a healthy wave ends it too.
func TestAwaitWave_D24_ends_when_it_is_known(t *testing.T) {
	w := newWorld(t, cm("a", 0), cm("b", 1))
	in := WaveInput{Sync: w.sync(), Wave: 0, Blocks: 1}
	w.health.Blockers = []release.Unhealthy{{Ref: cmRef("a"), Message: "not yet"}, {Ref: cmRef("x"), Message: "out of tries", Failed: true}}
	require.Contains(t, w.fails(w.a.AwaitWave, in, "DeployFailed"), "ConfigMap team-a/x of wave 0 has failed: out of tries")
	w.health = release.Health{Healthy: true}
	w.succeeds(w.a.AwaitWave, in, nil)
}

// D33: a wave that waits longer than the operator thinks right is stuck: condition Stalled, one event, and the wait goes on.
func TestAwaitWave_a_long_wait_is_stuck(t *testing.T) {
	w := newWorld(t, cm("a", 0), cm("b", 1))
	w.health.Blockers = []release.Unhealthy{{Ref: cmRef("a"), Message: "not yet"}}
	in := WaveInput{Sync: w.sync(), Wave: 0, Blocks: 1}
	stalled := func() string {
		c := meta.FindStatusCondition(w.rel.Status.Conditions, "Stalled")
		return string(c.Status) + " " + c.Reason
	}
	w.fails(w.a.AwaitWave, in, Waiting)
	w.now = w.now.Add(30*time.Minute - time.Second)
	w.fails(w.a.AwaitWave, in, Waiting)
	require.Equal(t, "False WaitingForWave", stalled())
	require.Empty(t, w.changes("event"))
	w.now = w.now.Add(2 * time.Second)
	w.fails(w.a.AwaitWave, in, Waiting)
	require.Equal(t, "True Stuck", stalled())
	require.Equal(t, "event Stuck", w.changes("event"))
	require.True(t, meta.IsStatusConditionTrue(w.rel.Status.Conditions, "Reconciling"))
	w.now = w.now.Add(time.Minute)
	w.fails(w.a.AwaitWave, in, Waiting)
	require.Equal(t, "event Stuck", w.changes("event"), "it is said once")
	w.succeeds(w.a.AnnounceDelay, DelayInput{WaveInput: in, Until: w.now.Add(time.Hour)}, nil)
	require.Equal(t, "False WaitingForWave", stalled(), "time is no trouble")
}
