package release

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"convoy.dev/convoy/api/v1alpha1"
)

// Outcome is the state of a sync, or its end.
type Outcome struct {
	// Reason: Progressing and WaitingForWave while it runs, any other at its end.
	Reason Reason
	// Message says what happened and what to do.
	Message string
	// Generation of the Release that is synced.
	Generation int64
	// NewRender, with Progressing: the render is not the one that the conditions are about (see IsNewRender).
	NewRender bool
	// RetryDue, with RenderFailed and Superseded: convoy tries again by itself, because the source was unreachable or
	// another sync follows. DeployFailed, PruneFailed and HookFailed are always retried (D22).
	RetryDue bool
	// NoRetry, with DeployFailed, PruneFailed and HookFailed: no retry follows.
	NoRetry bool
	// Stuck: convoy goes on by itself, and it has failed so often or waited so long that a person should look.
	Stuck bool
	// Doing is the message of Reconciling: what runs or what is due. Empty: Message while a sync runs, else a
	// sentence that says a retry is due.
	Doing string
}

// IsNewRender reports whether a sync of the digest is about something else than what the conditions say: then Applied
// is Unknown while it runs. A repeated sync of the applied render leaves it True until it fails, and a retry leaves
// the failure in sight until it has ended (D33).
func IsNewRender(status v1alpha1.ReleaseStatus, digest string) bool {
	applied := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionApplied)
	switch {
	case applied == nil || digest == "":
		return applied == nil
	case applied.Status == metav1.ConditionTrue:
		return status.LastSuccessful == nil || status.LastSuccessful.Digest != digest
	case applied.Status == metav1.ConditionFalse && !passing(Reason(applied.Reason)):
		return status.LastAttempted == nil || status.LastAttempted.Digest != digest
	default:
		return true
	}
}

// passing reasons say nothing about a render once their sync is over.
func passing(reason Reason) bool {
	return reason == Superseded || reason == WaitingForWave || reason == Progressing
}

// Conditions are the conditions of a Release after an outcome (D33, SPEC 4). previous is not changed. Only a changed
// status moves lastTransitionTime. Applied, Ready, Reconciling and Stalled are always present, so that one can wait
// for each value of each.
func Conditions(previous []metav1.Condition, o Outcome, now time.Time) []metav1.Condition {
	out := slices.Clone(previous)
	set := func(kind string, status metav1.ConditionStatus, message string) {
		meta.SetStatusCondition(&out, metav1.Condition{
			Type: kind, Status: status, Reason: string(o.Reason), Message: clip(message, maxConditionBytes),
			ObservedGeneration: o.Generation, LastTransitionTime: metav1.NewTime(now),
		})
	}
	if status, say := appliedStatus(out, o); say {
		set(v1alpha1.ConditionApplied, status, o.Message)
		set(v1alpha1.ConditionReady, status, o.Message)
	}
	busy := isBusy(o)
	set(v1alpha1.ConditionReconciling, boolStatus(busy), doing(o, busy))
	if stuck := IsStuck(previous); stuck && o.Reason == Progressing && !o.NewRender {
		return out // the next try of what is stuck: that it runs mends nothing yet
	}
	stalled := isStalled(o)
	set(v1alpha1.ConditionStalled, boolStatus(stalled), onlyIf(stalled, o.Message))
	if o.Stuck {
		meta.FindStatusCondition(out, v1alpha1.ConditionStalled).Reason = Stuck
	}
	return out
}

// IsStuck reports whether the conditions say that a sync is stuck.
func IsStuck(conditions []metav1.Condition) bool {
	stalled := meta.FindStatusCondition(conditions, v1alpha1.ConditionStalled)
	return stalled != nil && stalled.Status == metav1.ConditionTrue && stalled.Reason == Stuck
}

// maxConditionBytes is below what the API server takes for the message of a condition.
const maxConditionBytes = 16 << 10

// appliedStatus is the status of Applied, and of Ready beside it; false where they keep what they say (D33).
func appliedStatus(previous []metav1.Condition, o Outcome) (status metav1.ConditionStatus, say bool) {
	switch o.Reason {
	case Succeeded:
		return metav1.ConditionTrue, true
	case Progressing:
		known := meta.FindStatusCondition(previous, v1alpha1.ConditionApplied) != nil
		return metav1.ConditionUnknown, o.NewRender || !known
	default:
		return metav1.ConditionFalse, true
	}
}

// isBusy reports whether a sync runs or another one is due.
func isBusy(o Outcome) bool {
	switch o.Reason {
	case Progressing, WaitingForWave:
		return true
	case DeployFailed, PruneFailed, HookFailed:
		return !o.NoRetry
	case RenderFailed, Superseded:
		return o.RetryDue
	default:
		return false
	}
}

// isStalled reports whether a person has to act. Reconciling and Stalled are True together only where convoy is stuck: it
// goes on by itself (D33), and by the rules of kstatus the Release is still in progress.
func isStalled(o Outcome) bool {
	if o.Stuck {
		return true
	}
	switch o.Reason {
	case Unappliable, WaveTimeout:
		return true
	case RenderFailed:
		return !o.RetryDue
	default:
		return false
	}
}

func doing(o Outcome, busy bool) string {
	switch {
	case !busy || o.Doing != "":
		return onlyIf(busy, o.Doing)
	case o.Reason == Progressing || o.Reason == WaitingForWave:
		return o.Message
	default:
		return "to be synced again"
	}
}

func boolStatus(b bool) metav1.ConditionStatus {
	if b {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

func onlyIf(b bool, s string) string {
	if b {
		return s
	}
	return ""
}

// Stuck is the reason of Stalled while convoy goes on by itself without getting anywhere: so many syncs in a row have
// failed, or a wave waits longer than the operator thinks right.
const Stuck = "Stuck"

// StuckFailures is how many failed syncs in a row make a Release stuck. With the default backoff that is after about five
// minutes.
const StuckFailures = 5

// The reasons of conditions while no sync runs: of Ready, that the source or the cluster differ from what is applied and
// nobody asked for a sync (S4), and of Reconciling, that spec.suspend is set, or that a person rejected the render. They
// are no reasons of Applied.
const (
	OutOfSync = "OutOfSync"
	Suspended = "Suspended"
	Denied    = "Rejected"
)

// Idle is the state of a Release that is looked at and not synced.
type Idle struct {
	// Reason is OutOfSync, Suspended, Denied, or empty when all is well.
	Reason, Message string
	// Generation of the Release, and whether nothing is to be synced in it: then the conditions are about it too.
	Generation int64
	Current    bool
}

// Rest are the conditions of a Release that is looked at and not synced. Applied keeps its status and reason: what is
// applied did not change (S4, D30).
func Rest(previous []metav1.Condition, idle Idle, now time.Time) []metav1.Condition {
	out := slices.Clone(previous)
	put := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&out, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: clip(message, maxConditionBytes),
			ObservedGeneration: idle.Generation, LastTransitionTime: metav1.NewTime(now),
		})
	}
	applied := meta.FindStatusCondition(out, v1alpha1.ConditionApplied)
	if idle.Current {
		for i := range out {
			out[i].ObservedGeneration = idle.Generation
		}
	}
	switch {
	case idle.Reason == OutOfSync:
		put(v1alpha1.ConditionReady, metav1.ConditionFalse, OutOfSync, idle.Message)
	case applied != nil:
		put(v1alpha1.ConditionReady, applied.Status, applied.Reason, applied.Message)
	}
	reconciling := meta.FindStatusCondition(out, v1alpha1.ConditionReconciling)
	switch {
	case idle.Reason != "":
		put(v1alpha1.ConditionReconciling, metav1.ConditionFalse, idle.Reason, idle.Message)
	case reconciling != nil && slices.Contains([]string{Suspended, OutOfSync, Denied}, reconciling.Reason):
		put(v1alpha1.ConditionReconciling, metav1.ConditionFalse, "Idle", "")
	}
	return out
}
