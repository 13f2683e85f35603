package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/workflows"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// facts are what is known of a Release when somebody asks why.
type facts struct {
	rel *v1alpha1.Release
	now time.Time
	// noTemporal says why Temporal could not be asked: then nothing below is known.
	noTemporal string
	// loop is what Temporal knows of the loop, nil when it did not say; doing is the loop's own word, nil when no worker
	// gives it.
	loop  *loopState
	doing *workflows.LoopStatus
	// sync is the sync that is open in Temporal, nil when none is; syncKnown: Temporal said so.
	sync      *openSync
	syncKnown bool
	// silent is a task queue that the loop or the sync waits on and that no worker polls; empty when there is none.
	silent string
	// mute is a task queue that had a worker a moment ago, as Temporal believes for some minutes, and where none answered.
	mute string
}

// openSync is a sync that has not ended.
type openSync struct {
	runID     string
	startedAt time.Time
	query     *workflows.SyncStatus // nil when no worker answers
	step      *pendingStep          // nil when none runs or waits
}

// why answers in one paragraph what a Release waits for, since when, what happens next, and who can unblock it.
func why(f facts) string {
	sentences := f.state()
	sentences = append(sentences, f.stuck(), f.noLoop(), f.requests(), f.pinned(), f.blind())
	sentences = slices.DeleteFunc(sentences, func(s string) bool { return s == "" })
	return oneLine(strings.Join(sentences, " "))
}

// state is what the Release is in: the first that holds.
func (f facts) state() []string {
	last := f.rel.Status.LastAttempted
	running := last != nil && last.Result == v1alpha1.ResultRunning
	switch {
	case f.rel.DeletionTimestamp != nil:
		return f.deleting()
	case f.sync != nil, running && !f.syncKnown:
		return append(f.running(), f.thenSuspended(), f.thenChanged())
	case running:
		return f.vanished(last)
	case f.rel.Spec.Suspend:
		return f.suspended()
	case last == nil:
		return f.neverSynced()
	}
	return append(f.ended(last), f.changed())
}

func (f facts) name() string { return f.rel.Namespace + "/" + f.rel.Name }

func (f facts) condition(kind string) metav1.Condition {
	if c := meta.FindStatusCondition(f.rel.Status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

func (f facts) manual() bool { return f.rel.Spec.SyncPolicy.Mode == v1alpha1.SyncManual }

// lives reports whether somebody goes on with what runs or is due, as far as is known.
func (f facts) lives() bool {
	return f.silent == "" && (f.sync != nil || f.loop == nil || f.loop.running)
}

// byItself is what happens next, where somebody is there to do it.
func (f facts) byItself(format string, args ...any) string {
	if !f.lives() {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// nextLook is "in 3m (2026-11-30T12:03:00Z)".
func (f facts) nextLook() string {
	next := nextCell(f.rel, f.now)
	if next == "" {
		return "with its next look"
	}
	return fmt.Sprintf("%s (%s)", next, stamp(f.rel.Status.NextReconcileAt.Time))
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// in is how long it is until a point in time: "in 5m (2026-11-30T12:05:00Z)".
func (f facts) in(at time.Time) string {
	if !at.After(f.now) {
		return "now"
	}
	return fmt.Sprintf("in %s (%s)", duration.HumanDuration(at.Sub(f.now)), stamp(at))
}

// whyMessage is how many characters of a message the answer holds: status has the whole.
const whyMessage = 600

// quote is a message of the cluster or of a sync as the end of a sentence.
func quote(message string) string {
	message = fit(oneLine(message), whyMessage)
	if message == "" || strings.HasSuffix(message, "…") {
		return message
	}
	return strings.TrimRight(message, ".") + "."
}

func (f facts) neverSynced() []string {
	created := ""
	if !f.rel.CreationTimestamp.IsZero() {
		created = fmt.Sprintf(", and the Release is %s old", since(f.rel.CreationTimestamp, f.now))
	}
	began := fmt.Sprintf("%s was never synced%s.", f.name(), created)
	if f.manual() {
		return []string{began, fmt.Sprintf("Its mode is Manual, so it waits for a request: `convoy sync %[1]s` starts a sync, and `convoy diff %[1]s` shows before what it would do.", f.name())}
	}
	return []string{began, f.byItself("It waits for nobody: its loop starts the first sync by itself, in seconds as a rule.")}
}

func (f facts) suspended() []string {
	since := ""
	if c := f.condition(v1alpha1.ConditionReconciling); c.Reason == release.Suspended {
		since = f.since(c.LastTransitionTime)
	}
	return []string{
		fmt.Sprintf("%s is suspended%s: spec.suspend is set, so no sync starts and requests are kept.", f.name(), since), f.applied(),
		fmt.Sprintf("Whoever may change the Release lifts it with `convoy resume %s`; then it is looked at, and what waited is served.", f.name()),
	}
}

// since is ", for 3m (since 2026-11-30T11:57:00Z)", and nothing where it is not known.
func (f facts) since(at metav1.Time) string {
	if at.IsZero() {
		return ""
	}
	return fmt.Sprintf(", for %s (since %s)", since(at, f.now), stamp(at.Time))
}

// applied says what is on the cluster.
func (f facts) applied() string {
	last := f.rel.Status.LastSuccessful
	if last == nil {
		return "No render was ever applied whole."
	}
	return fmt.Sprintf("Applied is %s, last applied whole %s ago.", renderOf(last.Digest, last.Revision), since(last.FinishedAt, f.now))
}

func (f facts) deleting() []string {
	what := fmt.Sprintf("%s is being deleted%s.", f.name(), f.since(*f.rel.DeletionTimestamp))
	if !slices.Contains(f.rel.Finalizers, v1alpha1.FinalizerPrune) {
		return []string{what, fmt.Sprintf("What holds it is not convoy but the finalizers %s: whoever set them has to act.", strings.Join(f.rel.Finalizers, ", "))}
	}
	out := []string{what, "Its deletionPolicy is Prune: the loop deletes the objects of its inventory first, by the rules of the prune, and then lets it go."}
	if c := f.condition(v1alpha1.ConditionApplied); c.Reason == string(release.PruneFailed) || c.Reason == string(release.DeployFailed) {
		out = append(out, fmt.Sprintf("The last try failed%s: %s", f.since(c.LastTransitionTime), quote(c.Message)), f.byItself("It is tried again by itself."))
	}
	if f.sync != nil {
		out = append(out, "A deletion runs"+f.atStep()+".")
		out = append(out, f.trouble()...)
	}
	out = append(out, f.held())
	return append(out, fmt.Sprintf("To let it go and leave its objects: `kubectl patch release %s -n %s --type=merge -p '{\"spec\":{\"deletionPolicy\":\"Orphan\"}}'`.", f.rel.Name, f.rel.Namespace))
}

// held names pruned objects that finalizers hold.
func (f facts) held() string {
	names := f.rel.Status.Terminating
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("Finalizers still hold %s: the controller behind them has to act.", some(names, int(f.rel.Status.TerminatingTotal)))
}

// some names up to three of a list.
func some(names []string, total int) string {
	shown := names[:min(len(names), 3)]
	text := strings.Join(shown, ", ")
	if more := max(total, len(names)) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// vanished is a sync that status calls running and Temporal does not.
func (f facts) vanished(last *v1alpha1.Attempt) []string {
	return []string{
		fmt.Sprintf("%s: the sync that began %s (run %s) has ended in Temporal without saying so in the Release: it was terminated, or the Release is a moment behind.",
			f.name(), ago(last.StartedAt, f.now), last.RunID),
		f.byItself("The loop sees that by itself and syncs again, which repairs what it left open."),
		fmt.Sprintf("To sync now: `convoy sync %s`.", f.name()),
	}
}

// ended is what became of the last sync, and what follows.
func (f facts) ended(last *v1alpha1.Attempt) []string {
	applied, ready := f.condition(v1alpha1.ConditionApplied), f.condition(v1alpha1.ConditionReady)
	if veto := release.Veto(f.rel.Status); veto != "" || f.condition(v1alpha1.ConditionReconciling).Reason == release.Denied {
		return f.rejected(last, orElse(veto, "rejected by a person"))
	}
	if ready.Reason == release.OutOfSync && ready.Status == metav1.ConditionFalse {
		return []string{
			fmt.Sprintf("%s is out of sync%s: %s", f.name(), f.since(ready.LastTransitionTime), quote(ready.Message)),
			fmt.Sprintf("Nothing is synced by itself: `convoy diff %[1]s` shows what a sync would do, and `convoy sync %[1]s` starts it.", f.name()),
		}
	}
	if applied.Status == metav1.ConditionTrue || applied.Reason == "" && last.Result == v1alpha1.ResultSucceeded {
		return f.idle(applied)
	}
	reason := orElse(applied.Reason, last.Reason)
	return append([]string{
		fmt.Sprintf("The last sync of %s, of %s, ended as %s%s: %s", f.name(), renderOf(last.Digest, last.Revision), reason, f.endedAt(last),
			quote(orElse(applied.Message, last.Message))),
	}, append(f.afterFailure(release.Reason(reason)), f.applied())...)
}

// endedAt is " 60s ago (2026-11-30T11:59:00Z), and nothing was applied whole since 2026-11-30T11:00:00Z".
func (f facts) endedAt(last *v1alpha1.Attempt) string {
	text := ""
	if last.FinishedAt != nil {
		text = " " + ago(*last.FinishedAt, f.now)
	}
	if began := f.condition(v1alpha1.ConditionApplied).LastTransitionTime; !began.IsZero() && began.Before(&last.StartedAt) {
		text += ", and Applied is False since " + stamp(began.Time)
	}
	return text
}

func (f facts) rejected(last *v1alpha1.Attempt, veto string) []string {
	return []string{
		fmt.Sprintf("Render %s of %s was %s", release.ShortDigest(last.Digest), f.name(), quote(veto)),
		fmt.Sprintf("Nothing is waited for, and %s.", release.LiftRejection(f.rel.Namespace, f.rel.Name)), f.applied(),
	}
}

func (f facts) idle(applied metav1.Condition) []string {
	out := []string{fmt.Sprintf("%s waits for nothing: it is applied%s.", f.name(), f.since(applied.LastTransitionTime)), f.applied()}
	if f.manual() {
		out = append(out, f.byItself("It is looked at next %s; in mode Manual a sync starts on request only (`convoy sync %s`).", f.nextLook(), f.name()))
	} else {
		out = append(out, f.byItself("It is looked at next %s; a changed Release or a request is acted upon at once.", f.nextLook()))
	}
	return append(out, f.held())
}

// afterFailure is what follows a sync that failed, and what helps.
func (f facts) afterFailure(reason release.Reason) []string {
	retry := f.condition(v1alpha1.ConditionReconciling).Status == metav1.ConditionTrue
	now := fmt.Sprintf("`convoy sync %s`", f.name())
	switch {
	case reason == release.RenderFailed && f.rel.Spec.Pin != nil:
		return []string{f.another(), fmt.Sprintf("Whoever pinned it has to name a render that the render store holds (`convoy history %[1]s`, `convoy pin %[1]s DIGEST`), or let it follow its source: `convoy unpin %[1]s`.", f.name())}
	case reason == release.RenderFailed && retry:
		return []string{f.retry(), fmt.Sprintf("Whoever runs the source (%s) has to make it reachable for the worker; to try at once: %s.", f.source(), now)}
	case reason == release.RenderFailed:
		return []string{f.another(), fmt.Sprintf("Whoever owns the manifests has to correct the source (%s); `convoy diff %s` shows whether it renders.", f.source(), f.name())}
	case reason == release.Unappliable:
		return []string{"Nothing was applied.", f.another(), fmt.Sprintf("Whoever owns the manifests has to correct them; `convoy diff %s` asks the cluster again without a sync, and after a change on the cluster %s.", f.name(), now)}
	case reason == release.WaveTimeout:
		return []string{f.timedOut(), f.another(), fmt.Sprintf("To wait once more: %s.", now)}
	case retry:
		return []string{f.retry(), fmt.Sprintf("%s; to try at once: %s.", remedy(reason), now)}
	}
	return []string{fmt.Sprintf("No retry is due by itself: %s starts one.", now)}
}

// remedy says who can mend what made a sync fail.
func remedy(reason release.Reason) string {
	switch reason {
	case release.PruneFailed:
		return "Everything was applied; whoever can change those objects has to let them be deleted"
	case release.HookFailed:
		return "Nothing was applied; whoever owns the hook has to mend it"
	case release.Superseded:
		return "Nobody has to act"
	}
	return "Whoever owns those objects or the cluster has to mend what the message names"
}

// retry says when a failed sync is tried again.
func (f facts) retry() string {
	row := ""
	if f.doing != nil && f.doing.Failures > 1 {
		row = fmt.Sprintf(", after %s in a row", release.Count(f.doing.Failures, "failure"))
	}
	return f.byItself("convoy tries again by itself %s%s.", f.nextLook(), row)
}

// another says when convoy tries once more what is not retried with backoff.
func (f facts) another() string {
	if f.manual() {
		return "convoy does not try that again by itself, since its mode is Manual."
	}
	return f.byItself("convoy tries again by itself %s, and at once after a change of the Release.", f.nextLook())
}

// source names where the manifests come from; a URL may hold what is not for everybody.
func (f facts) source() string {
	switch source := f.rel.Spec.Source; {
	case source.Path != nil:
		return "the path " + *source.Path
	case source.URL != nil:
		return "spec.source.url"
	}
	return "spec.source.inline"
}

// timedOut names what a wave waited for to the end.
func (f facts) timedOut() string {
	for i := range f.rel.Status.Waves {
		wave := &f.rel.Status.Waves[i]
		if len(wave.BlockedBy) > 0 && wave.Phase != v1alpha1.WavePending && !isApproval(wave) {
			return fmt.Sprintf("It waited for %s", quote(f.blockers(wave)))
		}
	}
	return ""
}

// changed says that the Release is newer than what the last sync worked on.
func (f facts) changed() string {
	if f.rel.Status.ObservedGeneration == f.rel.Generation || f.rel.Status.ObservedGeneration == 0 {
		return ""
	}
	if f.manual() {
		return fmt.Sprintf("The Release was changed since that sync: `convoy sync %s` syncs it.", f.name())
	}
	return f.byItself("The Release was changed since that sync, and the loop syncs it in a moment.")
}

// stuck says that convoy goes on without getting anywhere.
func (f facts) stuck() string {
	if !release.IsStuck(f.rel.Status.Conditions) || f.rel.DeletionTimestamp != nil {
		return ""
	}
	return fmt.Sprintf("convoy calls that stuck%s: it goes on, and a person should look (docs/stuck.md: pause, retry, skip, restart).",
		f.since(f.condition(v1alpha1.ConditionStalled).LastTransitionTime))
}

// noLoop says that nobody does what comes next, and what changes that.
func (f facts) noLoop() string {
	switch {
	case f.silent != "":
		return fmt.Sprintf("No worker polls task queue %[1]s, so nothing goes on until one is started: `worker --task-queue %[1]s`.", f.silent)
	case f.mute != "":
		return fmt.Sprintf("No worker answered within %[1]s: where that stays so, none serves task queue %[2]s any more, and nothing goes on until `worker --task-queue %[2]s` runs.", loopFor, f.mute)
	case f.loop == nil || f.loop.running:
		return ""
	}
	text := fmt.Sprintf("Its loop does not run (%s), so nothing starts by itself: a worker that watches namespace %s starts it within ten minutes", f.loop.howLong(f.now), f.rel.Namespace)
	if mayRequest(f.rel) == nil {
		text += fmt.Sprintf(", or now `convoy reconcile %s`", f.name())
	}
	return text + "."
}

// requests says what waits for the next sync.
func (f facts) requests() string {
	if f.doing == nil || len(f.doing.Waiting) == 0 {
		return ""
	}
	waits := "request waits"
	if len(f.doing.Waiting) > 1 {
		waits = "requests wait"
	}
	return fmt.Sprintf("%d %s for the next sync.", len(f.doing.Waiting), waits)
}

func (f facts) pinned() string {
	if f.rel.Spec.Pin == nil || f.rel.DeletionTimestamp != nil {
		return ""
	}
	return fmt.Sprintf("It is pinned to render %s, whatever its source has, until `convoy unpin %s`.", release.ShortDigest(f.rel.Spec.Pin.Digest), f.name())
}

// blind says what the answer does not know.
func (f facts) blind() string {
	if f.noTemporal == "" {
		return ""
	}
	return fmt.Sprintf("Temporal was not asked (%s): this is what the Release says, and whether a worker is there is not known.", f.noTemporal)
}
