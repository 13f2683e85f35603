package release

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"convoy.dev/convoy/api/v1alpha1"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// shown prints "Applied Ready Reconciling Stalled".
func shown(conditions []metav1.Condition) string {
	var parts []string
	for _, kind := range []string{"Applied", "Ready", "Reconciling", "Stalled"} {
		parts = append(parts, string(meta.FindStatusCondition(conditions, kind).Status))
	}
	applied := meta.FindStatusCondition(conditions, "Applied")
	return fmt.Sprintf("%s | %s", strings.Join(parts, " "), applied.Reason)
}

// D33: each outcome, after each of the states that a Release may be in.
func TestConditions(t *testing.T) {
	succeeded := Conditions(nil, Outcome{Reason: Succeeded, Generation: 1}, start)
	failed := Conditions(nil, Outcome{Reason: Unappliable, Generation: 1, Message: "no"}, start)
	stuck := Conditions(nil, Outcome{Reason: DeployFailed, Stuck: true, Generation: 1, Message: "no"}, start)
	require.Equal(t, Stuck, meta.FindStatusCondition(stuck, v1alpha1.ConditionStalled).Reason)
	for _, c := range []struct {
		previous []metav1.Condition
		outcome  Outcome
		want     string
	}{
		{nil, Outcome{Reason: Progressing, NewRender: true}, "Unknown Unknown True False | Progressing"},
		{nil, Outcome{Reason: Progressing}, "Unknown Unknown True False | Progressing"},
		{succeeded, Outcome{Reason: Progressing, NewRender: true}, "Unknown Unknown True False | Progressing"},
		{succeeded, Outcome{Reason: Progressing}, "True True True False | Succeeded"},
		{failed, Outcome{Reason: Progressing}, "False False True False | Unappliable"},
		{failed, Outcome{Reason: Progressing, NewRender: true}, "Unknown Unknown True False | Progressing"},
		{succeeded, Outcome{Reason: WaitingForWave}, "False False True False | WaitingForWave"},
		{failed, Outcome{Reason: Succeeded}, "True True False False | Succeeded"},
		{succeeded, Outcome{Reason: Unappliable}, "False False False True | Unappliable"},
		{succeeded, Outcome{Reason: RenderFailed}, "False False False True | RenderFailed"},
		{succeeded, Outcome{Reason: RenderFailed, RetryDue: true}, "False False True False | RenderFailed"},
		{succeeded, Outcome{Reason: WaveTimeout}, "False False False True | WaveTimeout"},
		{succeeded, Outcome{Reason: DeployFailed}, "False False True False | DeployFailed"},
		{succeeded, Outcome{Reason: DeployFailed, Stuck: true}, "False False True True | DeployFailed"},
		{succeeded, Outcome{Reason: WaitingForWave, Stuck: true}, "False False True True | WaitingForWave"},
		{stuck, Outcome{Reason: Progressing}, "False False True True | DeployFailed"},
		{stuck, Outcome{Reason: Progressing, NewRender: true}, "Unknown Unknown True False | Progressing"},
		{stuck, Outcome{Reason: WaitingForWave}, "False False True False | WaitingForWave"},
		{stuck, Outcome{Reason: DeployFailed}, "False False True False | DeployFailed"},
		{stuck, Outcome{Reason: Succeeded}, "True True False False | Succeeded"},
		{succeeded, Outcome{Reason: PruneFailed}, "False False True False | PruneFailed"},
		{succeeded, Outcome{Reason: HookFailed}, "False False True False | HookFailed"},
		{succeeded, Outcome{Reason: HookFailed, NoRetry: true}, "False False False False | HookFailed"},
		{succeeded, Outcome{Reason: Superseded}, "False False False False | Superseded"},
		{succeeded, Outcome{Reason: Superseded, RetryDue: true}, "False False True False | Superseded"},
	} {
		before := slices.Clone(c.previous)
		require.Equal(t, c.want, shown(Conditions(c.previous, c.outcome, start.Add(time.Hour))), "%+v", c.outcome)
		require.Equal(t, before, c.previous, "previous is not changed")
	}
}

// Only a changed status moves lastTransitionTime; the generation is the one that was synced.
func TestTransitionTimes(t *testing.T) {
	first := Conditions(nil, Outcome{Reason: DeployFailed, Message: "one", Generation: 1}, start)
	second := Conditions(first, Outcome{Reason: PruneFailed, Message: "two", Generation: 2}, start.Add(time.Minute))
	applied := meta.FindStatusCondition(second, v1alpha1.ConditionApplied)
	require.Equal(t, metav1.NewTime(start), applied.LastTransitionTime)
	require.Equal(t, "two", applied.Message)
	require.EqualValues(t, 2, applied.ObservedGeneration)
	third := Conditions(second, Outcome{Reason: Succeeded, Generation: 2}, start.Add(2*time.Minute))
	require.Equal(t, metav1.NewTime(start.Add(2*time.Minute)), meta.FindStatusCondition(third, v1alpha1.ConditionApplied).LastTransitionTime)
	require.Equal(t, metav1.NewTime(start), meta.FindStatusCondition(third, v1alpha1.ConditionStalled).LastTransitionTime)
}

// The message of Reconciling says what runs or what is due; foreign conditions stay.
func TestReconcilingMessage(t *testing.T) {
	other := []metav1.Condition{{Type: "Other", Status: metav1.ConditionTrue, Reason: "X"}}
	for _, c := range []struct {
		outcome Outcome
		want    string
	}{
		{Outcome{Reason: Progressing, Message: "applying wave 2"}, "applying wave 2"},
		{Outcome{Reason: Progressing, Message: "sync", Doing: "dry run"}, "dry run"},
		{Outcome{Reason: DeployFailed, Message: "x"}, "to be synced again"},
		{Outcome{Reason: DeployFailed, Message: "x", Doing: "next try in 20s"}, "next try in 20s"},
		{Outcome{Reason: Succeeded, Message: "x", Doing: "y"}, ""},
	} {
		out := Conditions(other, c.outcome, start)
		require.Equal(t, c.want, meta.FindStatusCondition(out, v1alpha1.ConditionReconciling).Message)
		require.NotNil(t, meta.FindStatusCondition(out, "Other"))
	}
	long := Conditions(nil, Outcome{Reason: Unappliable, Message: strings.Repeat("x", 100_000)}, start)
	require.Less(t, len(long[0].Message), 32768, "what the API server takes")
}

// D33: which sync is about a new render.
func TestIsNewRender(t *testing.T) {
	status := func(reason Reason, digest string) v1alpha1.ReleaseStatus {
		s := v1alpha1.ReleaseStatus{
			Conditions:    Conditions(nil, Outcome{Reason: reason}, start),
			LastAttempted: &v1alpha1.Attempt{Digest: digest},
		}
		if reason == Succeeded {
			s.LastSuccessful = &v1alpha1.Success{Digest: digest}
		}
		return s
	}
	for _, c := range []struct {
		status v1alpha1.ReleaseStatus
		digest string
		want   bool
	}{
		{v1alpha1.ReleaseStatus{}, "a", true},
		{v1alpha1.ReleaseStatus{}, "", true},
		{status(Succeeded, "a"), "a", false},
		{status(Succeeded, "a"), "b", true},
		{status(Succeeded, "a"), "", false},
		{status(DeployFailed, "a"), "a", false},
		{status(DeployFailed, "a"), "b", true},
		{status(Superseded, "a"), "a", true},
		{status(WaitingForWave, "a"), "a", true},
		{status(Progressing, "a"), "a", true},
	} {
		require.Equal(t, c.want, IsNewRender(c.status, c.digest), "%+v %s", c.status.Conditions, c.digest)
	}
}
