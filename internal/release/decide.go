package release

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"convoy.dev/convoy/api/v1alpha1"

	"k8s.io/apimachinery/pkg/api/meta"
)

// Action is what a reconcile comes to. It travels in workflow histories: never rename one.
type Action string

// The actions.
const (
	// ActNothing: the render is applied, and nothing drifted.
	ActNothing Action = "Nothing"
	// ActSync: a whole sync is to run.
	ActSync Action = "Sync"
	// ActOutOfSync: in manual mode something is to be synced, and nobody asked for it (S4).
	ActOutOfSync Action = "OutOfSync"
	// ActBusy: a sync of the Release runs that is not this loop's.
	ActBusy Action = "Busy"
	// ActSuspended: spec.suspend is set.
	ActSuspended Action = "Suspended"
	// ActDelete: the Release is being deleted, and its objects have to be pruned first.
	ActDelete Action = "Delete"
	// ActGone: there is no such Release any more, or nothing is left to do before it goes.
	ActGone Action = "Gone"
)

// Facts are what a reconcile knows when it decides (D30). Each is cheap, or is only asked for when the ones before it
// leave the answer open: see Decide.
type Facts struct {
	Now    time.Time
	Manual bool
	// Due: the time of the periodic reconcile or of a retry has come, or a person asked for a reconcile.
	Due bool
	// Requested: a person or program asked for a sync.
	Requested bool
	// Whole: a sync before may have left a request in flight, so the next pass is a whole sync (D16).
	Whole bool
	// Generation and Spec (SpecSum) of the Release, and SyncedSpec: the sum that the last sync of this loop began with,
	// empty when it is not known.
	Generation       int64
	Spec, SyncedSpec string
	Status           *v1alpha1.ReleaseStatus
	ResyncInterval   time.Duration
	// RetryOf is the digest of the render whose sync failed and is to be tried again; Retry says that there is one.
	Retry   bool
	RetryOf string
}

// Look fetches the facts that cost something.
type Look struct {
	// Render returns the digest of the source's render. An error is no accident of convoy's but the state of the source.
	Render func() (digest string, err error)
	// Pending reports whether an earlier sync left something to settle (D13).
	Pending func() (bool, error)
	// Drift names what another writer did to applied objects (D30).
	Drift func() ([]Drifted, error)
}

// Decision is what a reconcile comes to, and why, in words for people.
type Decision struct {
	Action Action
	Cause  string
	// Digest of the source's render, where it was looked at.
	Digest string
	// RenderError: the source gave no render.
	RenderError error
	// Drift, when that is the cause.
	Drift []Drifted
	// Rejected, with ActNothing: a person rejected the render, and that is the cause.
	Rejected bool
}

// Incomparable is the error of a drift look whose target cluster does not answer. It is a reason to sync: the sync
// reports what is wrong with the cluster.
type Incomparable struct{ Cause string }

// Error says what kept the look from an answer.
func (i *Incomparable) Error() string { return "the cluster cannot be compared: " + i.Cause }

// Decide tells what a reconcile has to do (S4, S7, D22, D30). It asks the costly questions last, and only while the
// answer is open.
func Decide(f Facts, look Look) (Decision, error) {
	if f.Manual {
		return decideManual(f, look)
	}
	if cause := f.known(); cause != "" {
		return Decision{Action: ActSync, Cause: cause}, nil
	}
	return compare(f, look)
}

// known is a cause for a sync that needs no look at the source or the cluster; "" when there is none.
func (f Facts) known() string {
	last := f.Status.LastAttempted
	switch {
	case f.Requested:
		return "a sync was requested"
	case last == nil:
		return "it was never synced"
	case f.changed():
		return "the Release was changed"
	case last.Result == v1alpha1.ResultRunning:
		return "the sync before ended without a word"
	case Veto(*f.Status) != "": // whether the render is another one now is seen at the source
		return ""
	case last.Result != v1alpha1.ResultSucceeded && f.Due:
		return "the sync before ended as " + last.Reason
	case f.Whole && f.Due:
		return "the sync before may have left a request in flight"
	case f.Due && f.ResyncInterval > 0 && f.Status.LastSuccessful != nil && !f.Now.Before(f.Status.LastSuccessful.FinishedAt.Add(f.ResyncInterval)):
		return "resyncInterval has passed"
	}
	return ""
}

// changed reports whether the Release is another one than the one that was synced, in what a sync is about.
func (f Facts) changed() bool {
	if f.SyncedSpec != "" {
		return f.Spec != f.SyncedSpec
	}
	applied := meta.FindStatusCondition(f.Status.Conditions, v1alpha1.ConditionApplied)
	return applied != nil && applied.ObservedGeneration != f.Generation
}

// compare looks at the source and then at the cluster.
func compare(f Facts, look Look) (Decision, error) {
	last, veto := f.Status.LastAttempted, Veto(*f.Status)
	d := Decision{Action: ActSync}
	if d.Digest, d.RenderError = look.Render(); d.RenderError != nil {
		d.Cause = "the source gives no render"
		if veto != "" && !errors.As(d.RenderError, new(*Problem)) { // out of reach, it has brought no other
			return Decision{Action: ActNothing, Cause: veto, Rejected: true}, nil
		}
		if !f.Due && last != nil && last.Reason == string(RenderFailed) {
			d.Action = ActNothing
		}
		return d, nil
	}
	if last == nil || d.Digest != last.Digest {
		d.Cause = "a new render, " + ShortDigest(d.Digest)
		return d, nil
	}
	if veto != "" {
		d.Action, d.Cause, d.Rejected = ActNothing, veto, true
		return d, nil
	}
	if last.Result != v1alpha1.ResultSucceeded { // it failed, and its time has not come
		d.Action, d.Cause = ActNothing, "the sync before ended as "+last.Reason
		return d, nil
	}
	pending, err := look.Pending()
	if err != nil {
		return Decision{}, err
	}
	if pending && f.Due {
		d.Cause = "the sync before left objects to settle"
		return d, nil
	}
	var blind *Incomparable
	if d.Drift, err = look.Drift(); errors.As(err, &blind) {
		d.Cause = blind.Error()
		return d, nil
	} else if err != nil {
		return Decision{}, err
	}
	if len(d.Drift) > 0 {
		d.Cause = "drift: " + DescribeDrift(d.Drift)
		return d, nil
	}
	d.Action, d.Cause = ActNothing, "nothing changed"
	return d, nil
}

// decideManual starts a sync for a request and for the retries that belong to it; everything else is only told (S4,
// D22).
func decideManual(f Facts, look Look) (Decision, error) {
	if f.Requested {
		return Decision{Action: ActSync, Cause: "a sync was requested"}, nil
	}
	if f.Status.LastAttempted == nil {
		d := Decision{Action: ActOutOfSync, Cause: "it was never synced"}
		d.Digest, d.RenderError = look.Render()
		return d, nil
	}
	told := f
	told.Whole, told.Due, told.ResyncInterval = false, true, 0
	d, err := compare(told, look)
	if err != nil {
		return Decision{}, err
	}
	failed := f.Status.LastAttempted.Result != v1alpha1.ResultSucceeded
	if f.Retry && failed && f.sameRender(d) && !f.changed() {
		retry := Decision{Action: ActNothing, Cause: "the requested sync ended as " + f.Status.LastAttempted.Reason, Digest: d.Digest}
		if f.Due {
			retry.Action = ActSync
		}
		return retry, nil
	}
	if f.changed() {
		d.Action, d.Cause = ActSync, "the Release was changed"
	}
	if d.Action == ActSync {
		d.Action = ActOutOfSync
	}
	return d, nil
}

// sameRender reports whether the source has not brought another render since the sync failed that is to be tried again.
// One that is out of reach has brought none: the retry reports it, and is tried again (D1).
func (f Facts) sameRender(d Decision) bool {
	if d.RenderError != nil {
		return !errors.As(d.RenderError, new(*Problem))
	}
	return f.RetryOf == "" || d.Digest == f.RetryOf
}

// DescribeDrift names the first objects that drifted.
func DescribeDrift(drift []Drifted) string {
	const shown = 3
	var parts []string
	for _, d := range drift[:min(len(drift), shown)] {
		parts = append(parts, d.Ref.String()+" "+d.What)
	}
	if more := len(drift) - shown; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}
