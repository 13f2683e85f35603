package release

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// D33 S4: the conditions of a Release that is looked at and not synced: Applied stays what it is, Ready and Reconciling
// say what keeps it from being synced, and are restored afterwards.
func TestRest_D33(t *testing.T) {
	succeeded := Conditions(nil, Outcome{Reason: Succeeded, Generation: 1, Message: "applied"}, start)
	failed := Conditions(nil, Outcome{Reason: Unappliable, Generation: 1, Message: "no"}, start)
	retrying := Conditions(nil, Outcome{Reason: DeployFailed, Generation: 1, Message: "no", Doing: "soon"}, start)
	idle, outOfSync, suspended := Idle{Current: true}, Idle{Reason: OutOfSync, Message: "ask"}, Idle{Reason: Suspended, Message: "lift it"}
	for _, c := range []struct {
		previous []metav1.Condition
		idle     Idle
		want     string
		ready    string
	}{
		{succeeded, idle, "True True False False | Succeeded", "Succeeded"},
		{succeeded, outOfSync, "True False False False | Succeeded", OutOfSync},
		{succeeded, suspended, "True True False False | Succeeded", "Succeeded"},
		{failed, idle, "False False False True | Unappliable", "Unappliable"},
		{failed, outOfSync, "False False False True | Unappliable", OutOfSync},
		{retrying, idle, "False False True False | DeployFailed", "DeployFailed"},
		{retrying, suspended, "False False False False | DeployFailed", "DeployFailed"},
	} {
		before := slices.Clone(c.previous)
		out := Rest(c.previous, c.idle, start.Add(time.Hour))
		require.Equal(t, c.want, shown(out), "%+v", c.idle)
		require.Equal(t, c.ready, meta.FindStatusCondition(out, "Ready").Reason)
		require.Equal(t, before, c.previous, "previous is not changed")
		back := Rest(out, idle, start.Add(2*time.Hour))
		require.Equal(t, meta.FindStatusCondition(c.previous, "Ready").Status, meta.FindStatusCondition(back, "Ready").Status, "restored")
		require.Equal(t, meta.FindStatusCondition(c.previous, "Ready").Reason, meta.FindStatusCondition(back, "Ready").Reason, "restored")
		require.Equal(t, meta.FindStatusCondition(c.previous, "Applied").LastTransitionTime, meta.FindStatusCondition(back, "Applied").LastTransitionTime)
	}
}

// D33: Reconciling says why nothing runs, and no more once that is over; a retry that is due stays announced.
func TestRest_D33_reconciling(t *testing.T) {
	reconciling := func(conditions []metav1.Condition) string {
		c := meta.FindStatusCondition(conditions, "Reconciling")
		return strings.Join([]string{string(c.Status), c.Reason, c.Message}, " ")
	}
	applied := Conditions(nil, Outcome{Reason: Succeeded}, start)
	suspended := Rest(applied, Idle{Reason: Suspended, Message: "lift it"}, start)
	require.Equal(t, "False Suspended lift it", reconciling(suspended))
	outOfSync := Rest(suspended, Idle{Reason: OutOfSync, Message: "ask"}, start)
	require.Equal(t, "False OutOfSync ask", reconciling(outOfSync))
	for _, before := range [][]metav1.Condition{suspended, outOfSync} {
		require.Equal(t, "False Idle ", reconciling(Rest(before, Idle{}, start)))
	}
	require.Equal(t, "False Succeeded ", reconciling(Rest(applied, Idle{}, start)))
	retrying := Conditions(nil, Outcome{Reason: DeployFailed, Doing: "soon"}, start)
	require.Equal(t, "True DeployFailed soon", reconciling(Rest(retrying, Idle{}, start)))
}

// D33: a generation in which nothing is to be synced is one that was synced; any other is not.
func TestRest_D33_observedGeneration(t *testing.T) {
	applied := Conditions(nil, Outcome{Reason: Succeeded, Generation: 3}, start)
	generation := func(idle Idle, kind string) int64 {
		idle.Generation = 4
		return meta.FindStatusCondition(Rest(applied, idle, start), kind).ObservedGeneration
	}
	for _, kind := range []string{"Applied", "Ready", "Reconciling", "Stalled"} {
		require.EqualValues(t, 4, generation(Idle{Current: true}, kind), kind)
	}
	require.EqualValues(t, 3, generation(Idle{Reason: OutOfSync}, "Applied"))
	require.EqualValues(t, 4, generation(Idle{Reason: OutOfSync}, "Ready"))
	require.EqualValues(t, 3, generation(Idle{Reason: Suspended}, "Applied"))
	require.EqualValues(t, 4, generation(Idle{Reason: Suspended}, "Reconciling"))
}

// D33: a Release that was never synced has nothing to restore, and a long message is cut.
func TestRest_D33_of_a_Release_that_was_never_synced(t *testing.T) {
	require.Empty(t, Rest(nil, Idle{Current: true}, start))
	out := Rest(nil, Idle{Reason: OutOfSync, Message: strings.Repeat("x", 100_000)}, start)
	require.Equal(t, metav1.ConditionFalse, meta.FindStatusCondition(out, "Ready").Status)
	require.Less(t, len(meta.FindStatusCondition(out, "Ready").Message), 32768, "what the API server takes")
	require.Nil(t, meta.FindStatusCondition(out, "Applied"))
}
