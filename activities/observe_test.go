package activities

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// syncedWorld is a world whose Release was synced a moment ago: nothing is to be done.
func syncedWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, cm("a", 0))
	w.lists("a", "")
	w.knows("a")
	w.stands("a")
	w.facts[cmRef("a")] = fact("a")
	digest := w.sync().Digest
	w.rel.Status.Conditions = release.Conditions(nil, release.Outcome{Reason: release.Succeeded, Generation: 3}, w.now)
	w.rel.Status.LastAttempted = &v1alpha1.Attempt{Digest: digest, Result: v1alpha1.ResultSucceeded, Reason: "Succeeded", RunID: "earlier"}
	w.rel.Status.LastSuccessful = &v1alpha1.Success{Digest: digest, FinishedAt: metav1.NewTime(w.now)}
	return w
}

// rendersAnew gives the Release another render, and returns its digest.
func (w *world) rendersAnew() string {
	w.t.Helper()
	text := cm("a", 0) + cm("b", 0)
	w.rel.Spec.Source.Inline = &text
	return w.sync().Digest
}

// glance is what the loop asks when the time has come, and has synced the Release as it is.
func (w *world) glance() ObserveInput {
	return ObserveInput{Namespace: "team-a", Name: "shop", UID: "u", Due: true, SyncedSpec: release.SpecSum(w.rel.Spec)}
}

// observes looks once, and returns what was found and what was changed.
func (w *world) observes(in ObserveInput) (Observation, string) {
	w.t.Helper()
	var seen Observation
	w.calls = nil
	w.succeeds(w.a.Observe, in, &seen)
	require.Empty(w.t, w.a.shares.used, "every share is given back")
	require.Empty(w.t, w.changes("apply", "dry-run", "delete", "save"), "a look changes nothing on a cluster")
	return seen, w.changes("status", "finalizer")
}

func (w *world) condition(kind string) string {
	c := meta.FindStatusCondition(w.rel.Status.Conditions, kind)
	return string(c.Status) + " " + c.Reason
}

// D30 D33: a pass that finds nothing compares by metadata, starts nothing, and writes when the next one is; one that
// finds the same again writes nothing else.
func TestObserve_D30_a_pass_that_finds_nothing(t *testing.T) {
	w := syncedWorld(t)
	seen, changes := w.observes(w.glance())
	require.Equal(t, release.ActNothing, seen.Action, seen.Cause)
	require.Equal(t, "status", changes)
	require.Equal(t, "facts 1", w.changes("facts"))
	cadence := release.CadenceOf(w.rel.Spec)
	require.Equal(t, Observation{
		Action: release.ActNothing, Cause: "nothing changed", UID: "u", Generation: 3, Spec: release.SpecSum(w.rel.Spec), Cadence: cadence,
		Digest: w.sync().Digest, NextAt: cadence.Next("u", w.now, 0),
		Last: &Ended{RunID: "earlier", Result: "Succeeded", Reason: "Succeeded", Digest: w.sync().Digest},
	}, seen)
	require.True(t, w.rel.Status.NextReconcileAt.Time.Equal(seen.NextAt.Truncate(time.Second)))
	require.EqualValues(t, 3, w.rel.Status.ObservedGeneration)

	_, changes = w.observes(w.glance())
	require.Empty(t, changes, "it is written already")

	before := w.rel.DeepCopy()
	w.now = w.now.Add(5 * time.Minute)
	_, changes = w.observes(w.glance())
	require.Equal(t, "status", changes)
	require.NotEqual(t, before.Status.NextReconcileAt, w.rel.Status.NextReconcileAt)
	before.Status.NextReconcileAt, before.ResourceVersion = w.rel.Status.NextReconcileAt, w.rel.ResourceVersion
	require.Equal(t, before, w.rel, "only the next reconcile is another one")
	require.Empty(t, w.events)
}

// D30: an unchanged source is parsed once.
func TestObserve_D30_parses_an_unchanged_source_once(t *testing.T) {
	w := syncedWorld(t)
	w.observes(w.glance())
	require.Len(t, w.a.digests.digest, 1)
	for files := range w.a.digests.digest {
		w.a.digests.digest[files] = "sha256:remembered"
	}
	seen, _ := w.observes(w.glance())
	require.Equal(t, "sha256:remembered", seen.Digest, "it was not parsed again")
	require.Equal(t, 2, w.fetched)
	digest := w.rendersAnew()
	seen, _ = w.observes(w.glance())
	require.Equal(t, digest, seen.Digest)
}

// D30: drift is a cause, and an event names it.
func TestObserve_D30_drift(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*world)
		what   string
	}{
		"gone":       {func(w *world) { delete(w.live, cmRef("a")) }, "is gone"},
		"changed":    {func(w *world) { w.facts[cmRef("a")] = fact("other") }, "was changed or replaced by another writer"},
		"going":      {func(w *world) { w.live[cmRef("a")].DeletionTimestamp = &w.now }, "is being deleted"},
		"not known":  {func(w *world) { w.inv.Spec.Facts = "" }, "has no recorded state"},
		"in between": {func(w *world) { w.facts[cmRef("a")] = "" }, "was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			w := syncedWorld(t)
			c.change(w)
			in := w.glance()
			in.Due = name != "in between"
			seen, changes := w.observes(in)
			require.Equal(t, release.ActSync, seen.Action)
			require.Contains(t, seen.Cause, "drift: ConfigMap team-a/a "+c.what)
			require.Equal(t, []string{seen.Cause}, w.events)
			require.Empty(t, changes, "the sync writes")
		})
	}
}

// D18: a look that comes to nothing takes out of status.terminating what has gone, and keeps what the cluster still holds
// or does not tell about.
func TestObserve_D18_forgets_pruned_objects_that_have_gone(t *testing.T) {
	held, gone := "ConfigMap team-a/held (finalizers: x/hold, y/hold)", "ConfigMap team-a/gone (finalizers: x/hold)"
	w := syncedWorld(t)
	w.observes(w.glance())
	w.rel.Status.Terminating, w.rel.Status.TerminatingTotal = []string{held, gone}, 22
	w.stands("held")
	w.live[cmRef("held")].DeletionTimestamp, w.live[cmRef("held")].Finalizers = &w.now, []string{"y/hold"}

	w.read = func(release.ObjectRef) error { return &release.Failure{Class: release.Accident, Message: "no answer"} }
	seen, changes := w.observes(w.glance())
	require.Equal(t, release.ActNothing, seen.Action)
	require.Empty(t, changes, "what cannot be seen is not forgotten")

	w.read = nil
	_, changes = w.observes(w.glance())
	require.Equal(t, "status", changes)
	require.Equal(t, []string{"ConfigMap team-a/held (finalizers: y/hold)"}, w.rel.Status.Terminating)
	require.EqualValues(t, 21, w.rel.Status.TerminatingTotal)

	delete(w.live, cmRef("held"))
	seen, changes = w.observes(w.glance())
	require.Equal(t, release.ActNothing, seen.Action, "no sync is needed for it")
	require.Equal(t, "status", changes)
	require.Empty(t, w.rel.Status.Terminating)
	require.Zero(t, w.rel.Status.TerminatingTotal)
}

// D18: a list that a sync wrote while the look was on its way stays as the sync wrote it; the look takes a share of the
// cluster, and a cluster that cannot be reached leaves the list alone.
func TestObserve_D18_leaves_the_list_alone(t *testing.T) {
	entry, newer := "ConfigMap team-a/gone (finalizers: x/hold)", "ConfigMap team-a/newer (finalizers: x/hold)"
	w := syncedWorld(t)
	w.lists("", "")
	w.rel.Status.Terminating, w.rel.Status.TerminatingTotal = []string{entry}, 1
	w.targetError = errors.New("no route to host")
	w.observes(w.glance())
	require.Equal(t, []string{entry}, w.rel.Status.Terminating)

	w.targetError = nil
	w.read = func(release.ObjectRef) error {
		require.Equal(t, map[string]int{w.Address(): 1}, w.a.shares.used)
		w.rel.Status.Terminating, w.rel.ResourceVersion = []string{newer}, "written by a sync"
		return nil
	}
	w.observes(w.glance())
	require.Equal(t, []string{newer}, w.rel.Status.Terminating)
	require.EqualValues(t, 1, w.rel.Status.TerminatingTotal)
}

// An empty inventory asks the cluster nothing; one that somebody deleted is made anew by a sync.
func TestObserve_D30_an_empty_inventory_is_not_compared(t *testing.T) {
	w := syncedWorld(t)
	w.lists("", "")
	seen, _ := w.observes(w.glance())
	require.Equal(t, release.ActNothing, seen.Action)
	require.Empty(t, w.changes("facts"))

	w.inv = nil
	seen, _ = w.observes(w.glance())
	require.Equal(t, release.ActSync, seen.Action)
}

// A Release that is gone, or was made anew while a sync of the old one runs, ends the loop.
func TestObserve_gone(t *testing.T) {
	w := syncedWorld(t)
	in := w.glance()
	in.UID, in.Running = "old", &RunningSync{RunID: "r", Awaited: true}
	seen, changes := w.observes(in)
	require.Equal(t, release.ActGone, seen.Action)
	require.Empty(t, changes)

	in.Running = nil
	seen, _ = w.observes(in)
	require.Equal(t, release.ActNothing, seen.Action)
	require.Equal(t, "u", seen.UID)

	w.rel = nil
	seen, _ = w.observes(in)
	require.Equal(t, release.ActGone, seen.Action)
}

// The finalizer and the deletion policy decide what a deletion needs; spec.suspend does not hold it up.
func TestObserve_deleting(t *testing.T) {
	for name, c := range map[string]struct {
		policy     v1alpha1.DeletionPolicy
		finalizers []string
		action     release.Action
		changes    string
	}{
		"orphan":                        {v1alpha1.DeletionOrphan, nil, release.ActGone, ""},
		"no policy":                     {"", nil, release.ActGone, ""},
		"orphan, changed from prune":    {v1alpha1.DeletionOrphan, []string{"x/y", v1alpha1.FinalizerPrune}, release.ActGone, "finalizer convoy.dev/prune false"},
		"prune":                         {v1alpha1.DeletionPrune, []string{v1alpha1.FinalizerPrune}, release.ActDelete, ""},
		"prune, and it was done":        {v1alpha1.DeletionPrune, []string{"x/y"}, release.ActGone, ""},
		"prune, changed from orphan":    {v1alpha1.DeletionPrune, nil, release.ActGone, ""},
		"prune, of a suspended Release": {v1alpha1.DeletionPrune, []string{v1alpha1.FinalizerPrune}, release.ActDelete, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := syncedWorld(t)
			w.rel.DeletionTimestamp, w.rel.Finalizers, w.rel.Spec.DeletionPolicy = &metav1.Time{Time: w.now}, c.finalizers, c.policy
			w.rel.Spec.Suspend = strings.Contains(name, "suspended")
			seen, changes := w.observes(w.glance())
			require.Equal(t, c.action, seen.Action)
			require.Equal(t, c.changes, changes)
			require.Zero(t, w.fetched, "the source does not matter any more")
		})
	}
}

// D23: the deletion hears whether the sync that runs has ended, and of one that somebody else has started.
func TestObserve_D23_deleting_beside_a_sync(t *testing.T) {
	w := syncedWorld(t)
	w.rel.DeletionTimestamp, w.rel.Finalizers, w.rel.Spec.DeletionPolicy = &metav1.Time{Time: w.now}, []string{v1alpha1.FinalizerPrune}, v1alpha1.DeletionPrune
	in := w.glance()
	in.Running = &RunningSync{RunID: "r"}
	seen, _ := w.observes(in)
	require.Equal(t, release.ActDelete, seen.Action)
	require.True(t, seen.RunEnded)
	w.running = true
	seen, _ = w.observes(in)
	require.False(t, seen.RunEnded)

	in.Running, w.rel.Status.Fence = nil, &v1alpha1.Fence{Number: 8, WorkflowID: workflowID, RunID: "theirs"}
	seen, _ = w.observes(in)
	require.Equal(t, release.ActDelete, seen.Action)
	require.Equal(t, "theirs", seen.OtherRun)
}

// The finalizer is there exactly while the policy is Prune.
func TestObserve_keeps_the_finalizer_of_the_deletion_policy(t *testing.T) {
	w := syncedWorld(t)
	w.rel.Finalizers = []string{"x/y"}
	w.rel.Spec.DeletionPolicy = v1alpha1.DeletionPrune
	_, changes := w.observes(w.glance())
	require.Equal(t, "finalizer convoy.dev/prune true, status", changes)
	_, changes = w.observes(w.glance())
	require.Empty(t, changes)
	w.rel.Spec.DeletionPolicy = v1alpha1.DeletionOrphan
	_, changes = w.observes(w.glance())
	require.Equal(t, "finalizer convoy.dev/prune false", changes)
	require.Equal(t, []string{"x/y"}, w.rel.Finalizers)
	w.rel.Spec.DeletionPolicy, w.rel.Status.LastAttempted = v1alpha1.DeletionPrune, nil
	seen, changes := w.observes(w.glance())
	require.Equal(t, release.ActSync, seen.Action)
	require.Equal(t, "finalizer convoy.dev/prune true", changes, "before anything is applied")
}

// D33: a suspended Release says so, is not looked at any further, and counts the requests that wait.
func TestObserve_D33_suspended(t *testing.T) {
	w := syncedWorld(t)
	w.observes(w.glance())
	w.rel.Spec.Suspend, w.rel.Generation = true, 4
	w.fetched = 0
	in := w.glance()
	in.Requests = []string{"r1"}
	w.rel.Annotations = map[string]string{v1alpha1.AnnotationSyncRequested: "token"}
	seen, changes := w.observes(in)
	require.Equal(t, release.ActSuspended, seen.Action)
	require.Equal(t, "status", changes)
	require.Zero(t, w.fetched)
	require.Empty(t, w.changes("facts"))
	require.Equal(t, "False Suspended", w.condition("Reconciling"))
	require.Contains(t, meta.FindStatusCondition(w.rel.Status.Conditions, "Reconciling").Message, "; 2 sync requests wait")
	require.Equal(t, "True Succeeded", w.condition("Applied"))
	require.EqualValues(t, 3, meta.FindStatusCondition(w.rel.Status.Conditions, "Applied").ObservedGeneration, "the one that was synced")
	require.Nil(t, w.rel.Status.NextReconcileAt)
	require.Equal(t, []string{"token"}, seen.Request.IDs)

	w.rel.Spec.Suspend, w.rel.Annotations = false, nil
	seen, _ = w.observes(w.glance())
	require.Equal(t, release.ActNothing, seen.Action)
	require.Equal(t, "False Idle", w.condition("Reconciling"))
	require.NotNil(t, w.rel.Status.NextReconcileAt)
}

// D16: a sync that somebody else has started is waited for; one that has ended without a goodbye is not.
func TestObserve_D16_another_sync(t *testing.T) {
	w := syncedWorld(t)
	w.rel.Status.Fence = &v1alpha1.Fence{Number: 8, WorkflowID: workflowID, RunID: "theirs"}
	w.rel.Status.LastAttempted.Result = v1alpha1.ResultRunning
	w.running = true
	in := w.glance()
	in.Requests = []string{"r1"}
	seen, changes := w.observes(in)
	require.Equal(t, release.ActBusy, seen.Action)
	require.Equal(t, "theirs", seen.OtherRun)
	require.Empty(t, changes)
	w.running = false
	seen, _ = w.observes(w.glance())
	require.Equal(t, release.ActSync, seen.Action)
	require.Contains(t, seen.Cause, "ended without a word")
	w.rel.Status.Fence.Acknowledged, w.running = true, true
	seen, _ = w.observes(w.glance())
	require.Equal(t, release.ActSync, seen.Action, "it has said goodbye")
	w.rel.Status.Fence.Acknowledged = false
	w.runsError = errors.New("Temporal is out of reach")
	require.Contains(t, w.fails(w.a.Observe, w.glance(), Waiting), "Temporal is out of reach")
}

// D23: what supersedes the sync that runs: a changed Release and a new render, and in manual mode only with a request.
// A request alone, and what a sync does not depend on, supersede nothing.
func TestObserve_D23_supersedes(t *testing.T) {
	anew := func(w *world, _ *ObserveInput) { w.rendersAnew() }
	spec := func(w *world, _ *ObserveInput) { w.rel.Spec.SyncPolicy.Prune.Orphaned = true }
	manual := func(w *world, _ *ObserveInput) { w.rel.Spec.SyncPolicy.Mode = v1alpha1.SyncManual }
	request := func(_ *world, in *ObserveInput) { in.Requests = []string{"r1"} }
	type change = func(*world, *ObserveInput)
	for name, c := range map[string]struct {
		changes []change
		want    string
	}{
		"nothing":                      {nil, ""},
		"a changed Release":            {[]change{spec}, "generation 3 of the Release"},
		"a new render":                 {[]change{anew, keepSpec}, "render "},
		"a request alone":              {[]change{request}, ""},
		"the interval":                 {[]change{func(w *world, _ *ObserveInput) { w.rel.Spec.Interval = &metav1.Duration{Duration: time.Hour} }}, ""},
		"manual mode, a new render":    {[]change{manual, anew}, ""},
		"manual mode, a request alone": {[]change{manual, request}, ""},
		"manual mode, both":            {[]change{manual, anew, keepSpec, request}, "render "},
		"manual mode, a changed spec":  {[]change{manual, spec}, ""},
		"manual mode, and a request":   {[]change{manual, spec, request}, "generation 3 of the Release"},
		"manual mode, one that was answered": {[]change{manual, spec, request, func(w *world, _ *ObserveInput) {
			w.rel.Status.LastHandledRequests = []v1alpha1.HandledRequest{{ID: "r1"}}
		}}, ""},
		"suspended: no sync would follow": {[]change{spec, func(w *world, _ *ObserveInput) { w.rel.Spec.Suspend = true }}, ""},
		"it has ended":                    {[]change{spec, func(_ *world, in *ObserveInput) { in.Running.Awaited = false }}, ""},
		"a source out of reach":           {[]change{anew, keepSpec, func(w *world, _ *ObserveInput) { w.sourceError = errors.New("no route") }}, ""},
		"the digest is not known yet":     {[]change{anew, keepSpec, func(_ *world, in *ObserveInput) { in.Running.Digest = "" }}, ""},
		"status knows the digest":         {[]change{func(_ *world, in *ObserveInput) { in.Running.Digest = "sha256:looked-at-earlier" }, ofThisRun}, ""},
		"status knows another one's":      {[]change{func(_ *world, in *ObserveInput) { in.Running.Digest = "sha256:looked-at-earlier" }}, "render "},
		"one that somebody else started":  {[]change{spec, func(_ *world, in *ObserveInput) { in.Running.Spec, in.Running.Digest = "", "" }}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := syncedWorld(t)
			in := w.glance()
			in.Running = &RunningSync{RunID: "now", Awaited: true, Spec: in.SyncedSpec, Digest: w.sync().Digest}
			for _, change := range c.changes {
				change(w, &in)
			}
			seen, changes := w.observes(in)
			require.Equal(t, release.ActBusy, seen.Action)
			require.Contains(t, seen.Supersede, c.want)
			require.Equal(t, c.want == "", seen.Supersede == "", seen.Supersede)
			require.Empty(t, changes)
			require.Empty(t, w.changes("facts"))
			require.Equal(t, name == "it has ended", seen.RunEnded)
		})
	}
}

// keepSpec makes a changed render one of the same spec, as a path or an url would.
func keepSpec(w *world, in *ObserveInput) { in.Running.Spec = release.SpecSum(w.rel.Spec) }

// ofThisRun is a status that the running sync has begun to write.
func ofThisRun(w *world, _ *ObserveInput) { w.rel.Status.LastAttempted.RunID = "now" }

// D26: a request that was answered is not served again, and the loop hears what it came to.
func TestObserve_D26_what_was_answered_is_not_served_again(t *testing.T) {
	w := syncedWorld(t)
	w.rel.Status.LastHandledRequests = []v1alpha1.HandledRequest{{ID: "r2", Result: "Failed"}, {ID: "r1", Result: "Succeeded"}}
	in := w.glance()
	in.Requests = []string{"r1"}
	seen, _ := w.observes(in)
	require.Equal(t, release.ActNothing, seen.Action)
	require.Equal(t, []v1alpha1.HandledRequest{{ID: "r1", Result: "Succeeded"}}, seen.Handled)
	in.Requests = []string{"r1", "r3"}
	seen, _ = w.observes(in)
	require.Equal(t, release.ActSync, seen.Action)
	require.Len(t, seen.Handled, 1)
	in.Requests, in.First = nil, true
	seen, _ = w.observes(in)
	require.Equal(t, w.rel.Status.LastHandledRequests, seen.Handled, "a loop without a memory hears of all")
}

// D26: a new value of the annotation is a request, once.
func TestObserve_D26_the_annotation(t *testing.T) {
	for name, c := range map[string]struct {
		annotations map[string]string
		known       string
		handled     bool
		want        *release.Request
	}{
		"none":              {nil, "", false, nil},
		"new":               {map[string]string{v1alpha1.AnnotationSyncRequested: "t2"}, "t1", false, &release.Request{IDs: []string{"t2"}, RequestedBy: "annotation"}},
		"forced":            {map[string]string{v1alpha1.AnnotationSyncRequested: "t2", v1alpha1.AnnotationSyncForce: "true"}, "", false, &release.Request{IDs: []string{"t2"}, Force: true, RequestedBy: "annotation"}},
		"force is not true": {map[string]string{v1alpha1.AnnotationSyncRequested: "t2", v1alpha1.AnnotationSyncForce: "yes"}, "", false, &release.Request{IDs: []string{"t2"}, RequestedBy: "annotation"}},
		"force alone":       {map[string]string{v1alpha1.AnnotationSyncForce: "true"}, "", false, nil},
		"taken":             {map[string]string{v1alpha1.AnnotationSyncRequested: "t2"}, "t2", false, nil},
		"answered":          {map[string]string{v1alpha1.AnnotationSyncRequested: "t2"}, "", true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := syncedWorld(t)
			w.rel.Annotations = c.annotations
			if c.handled {
				w.rel.Status.LastHandledRequests = []v1alpha1.HandledRequest{{ID: "t2"}}
			}
			in := w.glance()
			in.AnnotationID = c.known
			seen, _ := w.observes(in)
			require.Equal(t, c.want, seen.Request)
			require.Equal(t, c.annotations[v1alpha1.AnnotationSyncRequested], seen.AnnotationID)
			require.Equal(t, c.want != nil, seen.Action == release.ActSync)
		})
	}
}

// D26 D35: answers that no sync has recorded are written once, newest first, bounded, whatever else is to be done.
func TestObserve_D26_writes_answers_once(t *testing.T) {
	w := syncedWorld(t)
	w.observes(w.glance())
	in := w.glance()
	in.Answers = []v1alpha1.HandledRequest{{ID: "r1", Result: "Failed"}, {ID: "r2", Result: "Failed"}}
	_, changes := w.observes(in)
	require.Equal(t, "status", changes)
	require.Equal(t, []v1alpha1.HandledRequest{{ID: "r2", Result: "Failed"}, {ID: "r1", Result: "Failed"}}, w.rel.Status.LastHandledRequests)
	require.EqualValues(t, 2, w.rel.Status.HandledRequestsTotal)
	_, changes = w.observes(in)
	require.Empty(t, changes)
	require.EqualValues(t, 2, w.rel.Status.HandledRequestsTotal)

	w.rel.Annotations = map[string]string{v1alpha1.AnnotationSyncRequested: "r1"}
	in.Answers, in.Requests = nil, []string{"new"}
	for i := range 25 {
		in.Answers = append(in.Answers, v1alpha1.HandledRequest{ID: fmt.Sprintf("n%d", i)})
	}
	seen, changes := w.observes(in)
	require.Equal(t, release.ActSync, seen.Action)
	require.Equal(t, "status", changes)
	require.Len(t, w.rel.Status.LastHandledRequests, 20)
	require.Equal(t, "n24", w.rel.Status.LastHandledRequests[0].ID)
	require.Equal(t, "r1", w.rel.Status.LastHandledRequests[19].ID, "the Release still carries it")
	require.EqualValues(t, 27, w.rel.Status.HandledRequestsTotal)
}

// S4 D33: in manual mode a new render is reported, with both digests, and leaves what is applied alone.
func TestObserve_S4_out_of_sync(t *testing.T) {
	w := syncedWorld(t)
	w.rel.Spec.SyncPolicy.Mode = v1alpha1.SyncManual
	applied, before := w.sync().Digest, w.rel.Status.DeepCopy()
	inSync := *w.rel.Spec.Source.Inline
	digest := w.rendersAnew()
	w.rel.Generation = 4
	in := w.glance()
	seen, changes := w.observes(in)
	require.Equal(t, release.ActOutOfSync, seen.Action)
	require.True(t, seen.Manual)
	require.Equal(t, "status", changes)
	require.Equal(t, "True Succeeded", w.condition("Applied"))
	require.Equal(t, "False OutOfSync", w.condition("Ready"))
	message := meta.FindStatusCondition(w.rel.Status.Conditions, "Ready").Message
	require.Contains(t, message, "applied is "+applied)
	require.Contains(t, message, "the source has "+digest)
	require.Contains(t, message, "convoy sync team-a/shop")
	require.Equal(t, []string{message}, w.events)
	require.EqualValues(t, 3, meta.FindStatusCondition(w.rel.Status.Conditions, "Applied").ObservedGeneration, "the one that was synced")
	require.Equal(t, before.LastSuccessful, w.rel.Status.LastSuccessful)
	require.Equal(t, before.LastAttempted, w.rel.Status.LastAttempted)
	require.NotNil(t, w.rel.Status.NextReconcileAt)

	w.rel.Spec.Source.Inline = &inSync
	seen, _ = w.observes(w.glance())
	require.Equal(t, release.ActNothing, seen.Action)
	require.Equal(t, "True Succeeded", w.condition("Ready"), "as before")

	in.Requests = []string{"r1"}
	seen, _ = w.observes(in)
	require.Equal(t, release.ActSync, seen.Action)
}

// S4: nothing is applied yet, and the source gives nothing.
func TestObserve_S4_never_synced(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	w.rel.Spec.SyncPolicy.Mode = v1alpha1.SyncManual
	seen, _ := w.observes(ObserveInput{Namespace: "team-a", Name: "shop", First: true, Due: true})
	require.Equal(t, release.ActOutOfSync, seen.Action)
	require.Contains(t, w.events[0], "nothing is applied, the source has "+w.sync().Digest)
	w.sourceError = errors.New("no route to the source")
	seen, _ = w.observes(ObserveInput{Namespace: "team-a", Name: "shop", First: true, Due: true})
	require.Equal(t, release.ActOutOfSync, seen.Action)
	require.Contains(t, seen.Cause, "no route to the source")
	require.NotContains(t, w.events[1], "the source has")
}

// D22 D30: a target cluster or a source that does not answer is a reason to sync, which reports it; a control cluster
// that does not answer is waited for.
func TestObserve_D22_what_is_out_of_reach(t *testing.T) {
	noRoute := errors.New("no route")
	for name, c := range map[string]struct {
		change func(*world)
		cause  string
	}{
		"no way to the target": {func(w *world) { w.targetError = noRoute }, "the cluster cannot be compared: no route"},
		"no facts":             {func(w *world) { w.fail["facts 1"] = noRoute }, "the cluster cannot be compared: no route"},
		"no source":            {func(w *world) { w.sourceError = noRoute }, "the source gives no render: no route"},
		"a bad render":         {func(w *world) { bad := "kind: ConfigMap"; w.rel.Spec.Source.Inline = &bad }, "the source gives no render: "},
	} {
		t.Run(name, func(t *testing.T) {
			w := syncedWorld(t)
			c.change(w)
			seen, changes := w.observes(w.glance())
			require.Equal(t, release.ActSync, seen.Action)
			require.Contains(t, seen.Cause, c.cause)
			require.Empty(t, changes)
		})
	}
	w := syncedWorld(t)
	w.controlError = noRoute
	require.Contains(t, w.fails(w.a.Observe, w.glance(), Waiting), "no route")
	w.controlError = nil
	w.fail["status"] = noRoute
	require.Contains(t, w.fails(w.a.Observe, w.glance(), Waiting), "no route")
	w = syncedWorld(t)
	w.rel.Spec.DeletionPolicy, w.fail["finalizer convoy.dev/prune true"] = v1alpha1.DeletionPrune, noRoute
	require.Contains(t, w.fails(w.a.Observe, w.glance(), Waiting), "no route")
}

// A worker whose share of a cluster is taken gives the slot back, and its share after every end.
func TestObserve_D22_a_full_cluster(t *testing.T) {
	w := syncedWorld(t)
	w.a.shares.limit = 1
	require.True(t, w.a.shares.take(w.Address(), 1))
	require.Contains(t, w.fails(w.a.Observe, w.glance(), Waiting), "as may work on the control cluster do so already")
	w.a.shares.give(w.Address())
	require.True(t, w.a.shares.take("server:2", 1), "another cluster's share")
	w.succeeds(w.a.Observe, w.glance(), nil)
	w.a.shares.give("server:2")
	w.fail["facts 1"] = errors.New("no route")
	w.observes(w.glance())
	delete(w.fail, "facts 1")

	w.rel.Spec.ClusterRef = &v1alpha1.ClusterReference{Name: "prod"}
	require.True(t, w.a.shares.take(w.Address(), 1))
	require.Contains(t, w.fails(w.a.Observe, w.glance(), Waiting), "as may work on Cluster prod do so already")
	w.a.shares.give(w.Address())
	w.observes(w.glance())
}

// The share of a step that fails is given back too, and one that finds none free asks to be run again.
func TestShares_are_given_back_after_errors(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	w.a.shares.limit = 1
	w.targetError = errors.New("no route")
	w.fails(w.a.PrepareSync, shop, "DeployFailed")
	require.Empty(t, w.a.shares.used)
	w.targetError = nil
	require.True(t, w.a.shares.take(w.Address(), 1))
	w.fails(w.a.PrepareSync, shop, Waiting)
	w.a.shares.give(w.Address())
	w.succeeds(w.a.PrepareSync, shop, nil)
	require.Empty(t, w.a.shares.used)
}

// D26: force ends with a new render, so a retry is told the digest even where the cause is known without it.
func TestObserve_D26_a_retry_knows_the_render(t *testing.T) {
	w := syncedWorld(t)
	w.rel.Status.LastAttempted.Result, w.rel.Status.LastAttempted.Reason = v1alpha1.ResultFailed, "DeployFailed"
	digest := w.rendersAnew()
	seen, _ := w.observes(w.glance())
	require.Equal(t, release.ActSync, seen.Action)
	require.Empty(t, seen.Digest)
	in := w.glance()
	in.Retry, in.RetryOf = true, "sha256:before"
	seen, _ = w.observes(in)
	require.Equal(t, release.ActSync, seen.Action)
	require.Equal(t, digest, seen.Digest)
}

// D1: status tells a source that was out of reach from a bad render, for a loop that did not see the sync end.
func TestObserve_D1_a_source_that_was_out_of_reach(t *testing.T) {
	for _, unreachable := range []bool{true, false} {
		w := syncedWorld(t)
		in := Outcome{Sync: w.sync(), Reason: "RenderFailed", Message: "no"}
		in.Sync.Unreachable = unreachable
		w.succeeds(w.a.RecordSync, in, nil)
		look := w.glance()
		look.Running = &RunningSync{RunID: "earlier"}
		seen, _ := w.observes(look)
		require.True(t, seen.RunEnded)
		require.Equal(t, unreachable, seen.Last.Unreachable)
	}
}

// D22: a look between a failure and its retry does not put the retry off.
func TestObserve_D22_keeps_the_time_of_a_retry(t *testing.T) {
	w := syncedWorld(t)
	w.rel.Status.LastAttempted.Result, w.rel.Status.LastAttempted.Reason = v1alpha1.ResultFailed, "DeployFailed"
	in := w.glance()
	in.Due, in.RetryAt = false, w.now.Add(20*time.Second)
	seen, _ := w.observes(in)
	require.Equal(t, release.ActNothing, seen.Action)
	require.True(t, seen.NextAt.Equal(in.RetryAt))
	require.True(t, w.rel.Status.NextReconcileAt.Time.Equal(in.RetryAt))
	in.RetryAt = w.now.Add(time.Hour)
	seen, _ = w.observes(in)
	require.True(t, seen.NextAt.Equal(seen.Cadence.Next("u", w.now, 0)), "never later than the interval")
}
