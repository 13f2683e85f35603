package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Observe looks at a Release for its loop and tells what has to be done (S4, S7, D22, D23, D30). It reads the Release,
// renders the source, and compares the cluster with what the last sync left, by metadata only; each of these only while
// the answer is open. It starts nothing. In the world it writes the loop's part of the status: what requests came to,
// when the next reconcile is, whether the Release is suspended or out of sync, and that pruned objects which finalizers
// held have gone (D18); and the finalizer of the deletion policy.
//
// Idempotent: it writes nothing that is there already.
// Fails with: Waiting, when the control cluster is out of reach. A source without a render and a target cluster that
// does not answer are no failures: they are reasons to sync, and the sync reports them.
// Heartbeat: the step's name.
func (a *Activities) Observe(ctx context.Context, in ObserveInput) (Observation, error) {
	return perform(ctx, a, "observe", release.DeployFailed, func(ctx context.Context, _ *lease) (Observation, error) {
		o := &observer{Activities: a, in: in}
		seen, err := o.run(ctx)
		var wait *waitError
		if err != nil && ctx.Err() == nil && !errors.As(err, &wait) {
			err = &waitError{message: shorten(err.Error()), after: observeAgain}
		}
		return seen, err
	})
}

// observeAgain is the pause before a look that failed is tried again; compareFor bounds how long the target cluster may
// take to show its objects: a sync that follows tries longer, and reports within a minute (D22).
const (
	observeAgain = 5 * time.Second
	compareFor   = 15 * time.Second
)

// observer is one run of Observe.
type observer struct {
	*Activities
	in   ObserveInput
	rel  *v1alpha1.Release
	seen Observation
	// rejected: nothing is done because a person rejected the render.
	rejected bool
	// held are the entries of status.terminating that were looked at, and what is left of them (D18).
	held, left []string
}

func (o *observer) run(ctx context.Context) (Observation, error) {
	rel, err := o.control.Release(ctx, o.in.Namespace, o.in.Name)
	if errors.Is(err, release.ErrNotFound) { // somebody may have taken its finalizer off: the inventory goes with it
		gone := &v1alpha1.Release{ObjectMeta: metav1.ObjectMeta{Namespace: o.in.Namespace, Name: o.in.Name}}
		err := o.control.HoldInventory(ctx, gone, v1alpha1.FinalizerPrune, false)
		return Observation{Action: release.ActGone, Cause: "there is no such Release any more"}, err
	}
	if err != nil {
		return Observation{}, err
	}
	if o.in.UID != "" && string(rel.UID) != o.in.UID { // deleted and made anew under the same name
		if o.in.Running != nil {
			return Observation{Action: release.ActGone, Reborn: true, Cause: "the Release was deleted and made anew"}, nil
		}
		o.in = ObserveInput{Namespace: o.in.Namespace, Name: o.in.Name, First: true, Due: true, Requests: o.in.Requests}
	}
	o.rel = rel
	o.describe()
	if err := o.decide(ctx); err != nil {
		return Observation{}, err
	}
	if o.seen.Action == release.ActSync || o.seen.Action == release.ActDelete {
		o.seen.Searchable = o.runs.Searchable(ctx)
		o.log.InfoContext(ctx, "to be synced", "release", key(rel).String(), "cause", o.seen.Cause)
	}
	return o.seen, o.write(ctx)
}

// describe is what the loop has to know of the Release in any case.
func (o *observer) describe() {
	spec, status := o.rel.Spec, o.rel.Status
	o.seen = Observation{
		UID: string(o.rel.UID), Generation: o.rel.Generation, Spec: release.SpecSum(spec), Cadence: release.CadenceOf(spec),
		Manual: spec.SyncPolicy.Mode == v1alpha1.SyncManual,
	}
	if spec.ClusterRef != nil {
		o.seen.Cluster = spec.ClusterRef.Name
	}
	for _, handled := range status.LastHandledRequests {
		if o.in.First || slices.Contains(o.in.Requests, handled.ID) {
			o.seen.Handled = append(o.seen.Handled, handled)
		}
	}
	if id := o.rel.Annotations[v1alpha1.AnnotationSyncRequested]; id != "" {
		id = release.RequestID(id)
		o.seen.AnnotationID = id
		if id != o.in.AnnotationID && !release.Handled(status.LastHandledRequests, id) {
			o.seen.Request = &release.Request{
				IDs: []string{id}, Force: o.rel.Annotations[v1alpha1.AnnotationSyncForce] == "true", RequestedBy: "annotation",
			}
		}
	}
	if last := status.LastAttempted; last != nil {
		o.seen.Last = &Ended{RunID: last.RunID, Result: string(last.Result), Reason: last.Reason, Message: last.Message, Digest: last.Digest}
		o.seen.Last.Unreachable = last.Reason == string(release.RenderFailed) && meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReconciling)
	}
}

// requested reports whether a request waits that was not answered yet.
func (o *observer) requested() bool {
	return o.seen.Request != nil || slices.ContainsFunc(o.in.Requests, func(id string) bool {
		return !release.Handled(o.rel.Status.LastHandledRequests, id)
	})
}

func (o *observer) decide(ctx context.Context) error {
	if err := o.hasEnded(ctx); err != nil {
		return err
	}
	switch {
	case o.rel.DeletionTimestamp != nil:
		return o.deleting(ctx)
	case o.in.Running != nil:
		return o.watch(ctx)
	case o.rel.Spec.Suspend:
		o.seen.Action, o.seen.Cause = release.ActSuspended, "spec.suspend is set"
		return nil
	}
	if busy, err := o.otherSync(ctx); err != nil || busy {
		return err
	}
	decision, err := release.Decide(o.facts(), o.look(ctx))
	if err != nil {
		return err
	}
	o.seen.Action, o.seen.Cause, o.seen.Digest = decision.Action, decision.Cause, decision.Digest
	o.rejected = decision.Rejected && decision.Action == release.ActNothing
	if decision.RenderError != nil {
		o.seen.Cause += ": " + shorten(decision.RenderError.Error())
	}
	if decision.Action == release.ActSync && o.in.Retry && o.seen.Digest == "" { // force ends with a new render (D26)
		o.seen.Digest, _ = o.digest(ctx)
	}
	if len(decision.Drift) > 0 {
		o.note(ctx, "Drifted", decision.Cause)
	}
	if decision.Action == release.ActNothing {
		return o.lookAtHeld(ctx)
	}
	return nil
}

// lookAtHeld looks which objects of status.terminating are still there (D18): no sync may come for long that would. A
// cluster that does not answer leaves them all.
func (o *observer) lookAtHeld(ctx context.Context) error {
	entries := o.rel.Status.Terminating
	if len(entries) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, compareFor)
	defer cancel()
	target, err := o.targets.Connect(ctx, o.rel, nil)
	if err == nil {
		if err := o.enter(ctx, o.rel, target); err != nil {
			return err
		}
		var still Named
		if still, err = stillHeld(ctx, target, entries, nil); err == nil {
			o.held, o.left = slices.Clone(entries), still.Objects
			return nil
		}
	}
	return release.CheckGuard(ctx)
}

// deleting decides what the deletion of a Release needs: with the policy Orphan nothing.
func (o *observer) deleting(ctx context.Context) error {
	if o.in.Running == nil {
		if _, err := o.otherSync(ctx); err != nil {
			return err
		}
	}
	o.seen.Action, o.seen.Cause = release.ActDelete, "the Release is being deleted"
	if o.rel.Spec.DeletionPolicy == v1alpha1.DeletionPrune && slices.Contains(o.rel.Finalizers, v1alpha1.FinalizerPrune) {
		return nil
	}
	o.seen.Action = release.ActGone
	return o.hold(ctx, o.rel, false)
}

// hasEnded looks whether the sync that the loop waits for has ended, where Temporal does not tell the loop.
func (o *observer) hasEnded(ctx context.Context) error {
	if o.in.Running == nil || o.in.Running.Awaited {
		return nil
	}
	open, _, err := o.runs.Running(ctx, release.SyncWorkflowID(o.in.Namespace, o.in.Name), o.in.Running.RunID)
	o.seen.RunEnded = err == nil && !open
	return err
}

// watch looks after the sync that the loop waits for: whether it is out of date (D23).
func (o *observer) watch(ctx context.Context) error {
	o.seen.Action, o.seen.Cause = release.ActBusy, "a sync runs"
	running := o.in.Running
	if o.seen.RunEnded || o.rel.Spec.Suspend || o.seen.Manual && !o.requested() { // or no sync would follow
		return nil
	}
	if running.Spec != "" && running.Spec != o.seen.Spec {
		o.seen.Supersede = fmt.Sprintf("generation %d of the Release", o.rel.Generation)
		return nil
	}
	synced := running.Digest
	if last := o.rel.Status.LastAttempted; last != nil && last.RunID == running.RunID && last.Digest != "" {
		synced = last.Digest
	}
	digest, err := o.digest(ctx)
	if err == nil && synced != "" && digest != synced {
		o.seen.Supersede = "render " + release.ShortDigest(digest)
	}
	return nil
}

// otherSync reports whether a sync of the Release runs that is not the loop's: one that a person started.
func (o *observer) otherSync(ctx context.Context) (bool, error) {
	fence := o.rel.Status.Fence
	if fence == nil || fence.Acknowledged {
		return false, nil
	}
	running, _, err := o.runs.Running(ctx, fence.WorkflowID, fence.RunID)
	if err != nil || !running {
		return false, err
	}
	o.seen.Action, o.seen.Cause, o.seen.OtherRun = release.ActBusy, "another sync runs, run "+fence.RunID, fence.RunID
	return true, nil
}

func (o *observer) facts() release.Facts {
	return release.Facts{
		Now: o.now(), Manual: o.seen.Manual, Due: o.in.Due, Requested: o.requested(), Whole: o.in.Whole,
		Generation: o.rel.Generation, Spec: o.seen.Spec, SyncedSpec: o.in.SyncedSpec, Status: &o.rel.Status,
		ResyncInterval: release.ResyncInterval(o.rel.Spec), Retry: o.in.Retry, RetryOf: o.in.RetryOf,
	}
}

func (o *observer) look(ctx context.Context) release.Look {
	var inv *v1alpha1.ReleaseInventory
	inventory := func() (*v1alpha1.ReleaseInventory, error) {
		var err error
		if inv == nil {
			inv, err = o.control.Inventory(ctx, o.rel)
		}
		return inv, err
	}
	return release.Look{
		Render: func() (string, error) { return o.digest(ctx) },
		Pending: func() (bool, error) {
			inv, err := inventory() // one that somebody deleted is made anew by a sync
			return err == nil && (len(inv.Spec.Pending) > 0 || inv.ResourceVersion == ""), err
		},
		Drift: func() ([]release.Drifted, error) {
			inv, err := inventory()
			if err != nil {
				return nil, err
			}
			return o.drift(ctx, inv)
		},
	}
}

// digest is the digest of the render that is to be applied: the one that the Release is pinned to, or that of the source,
// on one try: a sync that follows tries longer (D22).
func (o *observer) digest(ctx context.Context) (string, error) {
	if pin := o.rel.Spec.Pin; pin != nil {
		return pin.Digest, nil
	}
	files, revision, err := o.source.Fetch(ctx, o.rel.Spec.Source)
	if err != nil {
		return "", err
	}
	return o.digests.of(files, func() (string, error) {
		render, err := o.parse(files, revision)
		if err != nil {
			return "", err
		}
		return render.Digest, nil
	})
}

// drift compares the cluster with the inventory (D30). A cluster that does not answer is a reason to sync, which
// reports it.
func (o *observer) drift(ctx context.Context, inv *v1alpha1.ReleaseInventory) ([]release.Drifted, error) {
	ctx, cancel := context.WithTimeout(ctx, compareFor)
	defer cancel()
	refs := release.RefsOf(inv.Spec.Objects)
	if len(refs) == 0 {
		return nil, nil
	}
	target, err := o.targets.Connect(ctx, o.rel, nil)
	if err == nil {
		if err := o.enter(ctx, o.rel, target); err != nil {
			return nil, err
		}
		var seen []release.Seen
		if seen, err = target.Facts(ctx, refs); err == nil {
			return release.Drift(refs, release.UnpackFacts(inv.Spec.Facts, len(refs)), seen), nil
		}
	}
	if guardErr := release.CheckGuard(ctx); guardErr != nil {
		return nil, guardErr
	}
	return nil, &release.Incomparable{Cause: shorten(err.Error())}
}

// write writes the loop's part of the status.
func (o *observer) write(ctx context.Context) error {
	if o.rel.DeletionTimestamp == nil && o.rel.Spec.DeletionPolicy == v1alpha1.DeletionPrune != slices.Contains(o.rel.Finalizers, v1alpha1.FinalizerPrune) {
		if err := o.hold(ctx, o.rel, o.rel.Spec.DeletionPolicy == v1alpha1.DeletionPrune); err != nil {
			return err
		}
	}
	if o.seen.Action == release.ActNothing || o.seen.Action == release.ActOutOfSync {
		o.seen.NextAt = o.seen.Cadence.Next(o.seen.UID, o.now(), 0)
	}
	if retry := o.in.RetryAt; o.seen.Action == release.ActNothing && !retry.IsZero() && retry.Before(o.seen.NextAt) {
		o.seen.NextAt = retry // a look in between does not put it off (D22)
	}
	if o.seen.Action == release.ActOutOfSync {
		o.note(ctx, "OutOfSync", o.outOfSync())
	}
	_, err := o.writeLoop(ctx, o.rel, o.mutate)
	if errors.Is(err, release.ErrNotFound) {
		return nil
	}
	return err
}

func (o *observer) mutate(status *v1alpha1.ReleaseStatus) {
	answer(status, o.in.Answers, o.seen.AnnotationID)
	idle := release.Idle{Generation: o.rel.Generation, Current: o.seen.Action == release.ActNothing}
	next := o.timestamp()
	switch o.seen.Action {
	case release.ActNothing:
		o.forgetGone(status)
		if o.rejected {
			idle.Reason, idle.Message = release.Denied, o.seen.Cause+"; "+release.LiftRejection(o.rel.Namespace, o.rel.Name)
		}
	case release.ActOutOfSync:
		idle.Reason, idle.Message = release.OutOfSync, o.outOfSync()
	case release.ActSuspended:
		idle.Reason, idle.Message = release.Suspended, o.suspended()
		status.NextReconcileAt, next = nil, nil
	default:
		return
	}
	if next != nil {
		next.Time = o.seen.NextAt.Truncate(time.Second)
		status.NextReconcileAt = next
	}
	status.ObservedGeneration = o.rel.Generation
	status.Conditions = release.Rest(status.Conditions, idle, o.now())
}

// forgetGone takes out of status.terminating what has gone, unless a sync wrote the list since it was looked at. Objects
// that the list had no room for are counted as long as it names one.
func (o *observer) forgetGone(status *v1alpha1.ReleaseStatus) {
	if len(o.held) == 0 || !slices.Equal(status.Terminating, o.held) {
		return
	}
	gone := len(o.held) - len(o.left)
	status.Terminating, status.TerminatingTotal = o.left, max(status.TerminatingTotal-int32(gone), 0)
	if len(o.left) == 0 {
		status.TerminatingTotal = 0
	}
}

func (o *observer) suspended() string {
	waiting := len(o.in.Requests)
	if o.seen.Request != nil {
		waiting++
	}
	message := "spec.suspend is set: no sync starts until it is lifted (convoy resume)"
	if waiting > 0 {
		message += fmt.Sprintf("; %s %s", release.Count(waiting, "sync request"), release.Verb(waiting, "waits", "wait"))
	}
	return message
}

// outOfSync says what is not synced, with both digests (S4).
func (o *observer) outOfSync() string {
	applied := "nothing is applied"
	if last := o.rel.Status.LastSuccessful; last != nil {
		applied = "applied is " + last.Digest
	}
	source := ""
	if o.seen.Digest != "" {
		source = ", the source has " + o.seen.Digest
	}
	return fmt.Sprintf("%s: %s%s; mode is Manual: ask for it with convoy sync %s/%s", o.seen.Cause, applied, source, o.rel.Namespace, o.rel.Name)
}

// note records an event of the loop, once for each message.
func (o *observer) note(ctx context.Context, reason, message string) {
	o.event(ctx, o.rel, SyncRef{Digest: release.SumOf(message)}, "Normal", reason, "%s", message)
}

// writeLoop changes the loop's part of the status; the fence does not matter to it.
func (a *Activities) writeLoop(ctx context.Context, rel *v1alpha1.Release, mutate func(*v1alpha1.ReleaseStatus)) (*v1alpha1.Release, error) {
	for {
		err := a.control.PatchStatus(ctx, rel, mutate)
		if !errors.Is(err, release.ErrConflict) {
			return rel, err
		}
		if rel, err = a.control.Release(ctx, rel.Namespace, rel.Name); err != nil {
			return nil, err
		}
	}
}

// answer adds answers that status does not have yet.
func answer(status *v1alpha1.ReleaseStatus, answers []v1alpha1.HandledRequest, keep string) {
	var fresh []v1alpha1.HandledRequest
	for _, a := range answers {
		if !release.Handled(status.LastHandledRequests, a.ID) {
			fresh = append(fresh, a)
		}
	}
	if len(fresh) == 0 {
		return
	}
	status.LastHandledRequests = release.Handle(status.LastHandledRequests, fresh, keep)
	status.HandledRequestsTotal += int64(len(fresh))
}
