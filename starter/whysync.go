package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// running says what a sync that has not ended waits for or does.
func (f facts) running() []string {
	if f.sync != nil && f.sync.step != nil && f.sync.step.paused != nil {
		return f.paused(f.sync.step)
	}
	if f.statusIsOfSync() {
		if wave, gate := f.gate(); wave != nil {
			return f.atGate(wave, gate)
		}
	}
	out := []string{fmt.Sprintf("%s: %s%s.", f.name(), f.theSync(), f.atStep())}
	out = append(out, f.trouble()...)
	return append(out, f.byItself("It goes on by itself, and nobody has to act; watch it with `convoy status %s --watch`.", f.name()))
}

// statusIsOfSync reports whether the Release's status is about the sync that is open, and not the one before.
func (f facts) statusIsOfSync() bool {
	last := f.rel.Status.LastAttempted
	return last != nil && last.Result == v1alpha1.ResultRunning && (f.sync == nil || f.sync.runID == last.RunID)
}

// theSync is "a sync runs, for 2m (since …), of render aaaaaaaaaaaa, asked for by alice".
func (f facts) theSync() string {
	if !f.statusIsOfSync() {
		return fmt.Sprintf("a sync runs%s", f.since(metav1.NewTime(f.sync.startedAt)))
	}
	last := f.rel.Status.LastAttempted
	render := ""
	if last.Digest != "" {
		render = ", of " + renderOf(last.Digest, last.Revision)
	}
	return fmt.Sprintf("a sync runs%s%s%s", f.since(last.StartedAt), render, askedBy(last.RequestedBy, last.Force))
}

// atStep is ", at: apply: wave 1, 3/12 objects", as the workflow or else Temporal says.
func (f facts) atStep() string {
	if f.sync == nil {
		if c := f.condition(v1alpha1.ConditionReconciling); c.Message != "" {
			return ": " + strings.TrimRight(oneLine(c.Message), ".")
		}
		return ""
	}
	var parts []string
	if q := f.sync.query; q != nil {
		parts = append(parts, q.Step, q.WaitingFor)
	} else if f.sync.step != nil {
		parts = append(parts, f.sync.step.id)
	}
	if step := f.sync.step; step != nil {
		parts = append(parts, progressWords(step))
	}
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	if len(parts) == 0 {
		return ", at: its start"
	}
	return ", at: " + oneLine(strings.Join(parts, ", "))
}

// progressWords is how far a step is, by its heartbeat.
func progressWords(step *pendingStep) string {
	done := step.progress
	if done.Total == 0 {
		return ""
	}
	text := fmt.Sprintf("%d of %s", done.Done, release.Count(done.Total, "object"))
	if done.Wave != nil {
		text = fmt.Sprintf("wave %d, %s", *done.Wave, text)
	}
	return text
}

// trouble is why the step at hand is tried again, and when.
func (f facts) trouble() []string {
	step := f.sync
	if step == nil || step.step == nil || step.step.lastFailure == "" {
		return nil
	}
	out := []string{fmt.Sprintf("Try %d of the step %s failed: %s", max(step.step.attempt-1, 1), step.step.id, quote(step.step.lastFailure))}
	if next := step.step.nextTry; next.After(f.now) {
		out = append(out, f.byItself("The next is due %s; to try at once: `temporal activity reset --workflow-id %s --activity-id %s`.", f.in(next), f.syncID(), step.step.id))
	}
	return out
}

func (f facts) syncID() string { return release.SyncWorkflowID(f.rel.Namespace, f.rel.Name) }

// paused is a step that a person paused in Temporal.
func (f facts) paused(step *pendingStep) []string {
	by := step.paused.by
	if by != "" {
		by = " by " + by
	}
	out := []string{fmt.Sprintf("%s: %s, and its step %s is paused in Temporal%s%s.", f.name(), f.theSync(), step.id, by, f.since(metav1.NewTime(step.paused.at)))}
	if step.paused.reason != "" {
		out = append(out, "The reason given: "+quote(step.paused.reason))
	}
	if wave, final := f.gate(); wave != nil && f.statusIsOfSync() {
		out = append(out, fmt.Sprintf("Before, %s waited for %s", release.GateName(wave.Wave, final), quote(f.blockers(wave))))
	}
	return append(out, fmt.Sprintf("Nothing is tried until somebody lifts that: `temporal activity unpause --workflow-id %s --activity-id %s`%s.", f.syncID(), step.id, f.endTheWait()))
}

// gate is the wave at which the sync waits, and whether it is the final gate behind it; nil when it waits at none.
func (f facts) gate() (wave *v1alpha1.WaveStatus, final bool) {
	for i := range f.rel.Status.Waves {
		wave := &f.rel.Status.Waves[i]
		final := wave.Phase == v1alpha1.WaveApplied
		approval := *release.ApprovalAt(wave, final)
		decided := approval != nil && approval.Decision != ""
		if len(wave.BlockedBy) > 0 && (final || wave.Phase == v1alpha1.WaveWaiting) && !(decided && isApproval(wave)) {
			return wave, final
		}
	}
	return nil, false
}

// What a wave waits for is an object, a wave (for time), or an approval: activities/awaitwave.go and approve.go.
func isApproval(wave *v1alpha1.WaveStatus) bool { return wave.BlockedBy[0].Object == "approval" }
func isDelay(wave *v1alpha1.WaveStatus) bool {
	return strings.HasPrefix(wave.BlockedBy[0].Object, "wave ")
}

func (f facts) atGate(wave *v1alpha1.WaveStatus, final bool) []string {
	gate := release.GateName(wave.Wave, final)
	switch {
	case isApproval(wave):
		return f.atApproval(wave, gate, final)
	case isDelay(wave):
		first := wave.BlockedBy[0]
		return []string{
			fmt.Sprintf("%s: %s waits for time%s: it %s", f.name(), gate, f.since(first.Since), quote(first.Message)),
			f.byItself("Then %s.", f.begins(wave, final)), "Nobody has to act" + f.endTheWait() + ".",
		}
	}
	return f.atHealth(wave, gate, final)
}

// begins is "wave 1 begins by itself (2 more waves follow)".
func (f facts) begins(wave *v1alpha1.WaveStatus, final bool) string {
	switch {
	case final && f.asksPerson(wave, final):
		return fmt.Sprintf("the sync waits for an approval, which may be given now: `convoy approve %s --final --digest %s`", f.name(), f.rel.Status.LastAttempted.Digest)
	case final:
		return "the sync goes on to its prune by itself"
	}
	text := fmt.Sprintf("wave %d begins by itself", wave.Wave)
	if f.asksPerson(wave, final) {
		text = fmt.Sprintf("wave %d waits for an approval, which may be given now: `convoy approve %s --wave %d --digest %s`",
			wave.Wave, f.name(), wave.Wave, f.rel.Status.LastAttempted.Digest)
	}
	later := 0
	for i := range f.rel.Status.Waves {
		if f.rel.Status.Waves[i].Wave > wave.Wave {
			later++
		}
	}
	switch later {
	case 0:
	case 1:
		text += " (1 more wave follows)"
	default:
		text += fmt.Sprintf(" (%d more waves follow)", later)
	}
	return text
}

// asksPerson reports whether a gate waits for a person once it is healthy.
func (f facts) asksPerson(wave *v1alpha1.WaveStatus, final bool) bool {
	if given := *release.ApprovalAt(wave, final); given != nil && given.Decision != "" {
		return false
	}
	policy := f.rel.Spec.SyncPolicy
	if final {
		return policy.FinalGate != nil && policy.FinalGate.Approval != nil && policy.FinalGate.Approval.Required
	}
	return slices.ContainsFunc(policy.Waves, func(p v1alpha1.WavePolicy) bool {
		return p.Wave == wave.Wave && p.Approval != nil && p.Approval.Required
	})
}

// endTheWait says what ends a wait from outside.
func (f facts) endTheWait() string {
	if f.manual() {
		return fmt.Sprintf("; `%s` ends the sync", cancelCommand(f.syncID()))
	}
	return "; a change of the Release or another render ends the wait and is synced instead"
}

// atHealth is a gate that waits for objects.
func (f facts) atHealth(wave *v1alpha1.WaveStatus, gate string, final bool) []string {
	first := wave.BlockedBy[0]
	skip := "await-" + gateStep(wave, final)
	out := []string{
		fmt.Sprintf("%s: %s waits for %s%s.", f.name(), gate, f.blockers(wave), f.since(first.Since)),
		f.byItself("That is looked at every 2 to 15 seconds, and once it is healthy, %s%s.", f.begins(wave, final), f.giveUp(wave, final)),
		fmt.Sprintf("Whoever owns %s has to mend it: `%s`%s%s.", first.Object, describe(first.Object), f.onCluster(), f.endTheWait()),
	}
	return append(out, fmt.Sprintf("To go on without it: `temporal activity complete --workflow-id %s --activity-id %s --result null --identity \"NAME: REASON\"`.", f.syncID(), skip))
}

// gateStep names a gate in the ids of its steps, as workflows/run.go does.
func gateStep(wave *v1alpha1.WaveStatus, final bool) string {
	if final {
		return "final-gate"
	}
	return fmt.Sprintf("wave-%d", wave.Wave)
}

// blockers is "Deployment shop/web (1/3 available) and 22 more".
func (f facts) blockers(wave *v1alpha1.WaveStatus) string {
	first := wave.BlockedBy[0]
	text := fmt.Sprintf("%s (%s)", first.Object, fit(oneLine(first.Message), whyMessage))
	if more := max(int(wave.BlockedByTotal), len(wave.BlockedBy)) - 1; more > 0 {
		text += " and " + release.Count(more, "more object")
	}
	return text
}

// describe is the command that shows an object: "Deployment shop/web" is in a namespace, "Namespace shop" in none.
func describe(object string) string {
	kind, name, _ := strings.Cut(object, " ")
	if namespace, bare, found := strings.Cut(name, "/"); found {
		return fmt.Sprintf("kubectl describe %s %s -n %s", strings.ToLower(kind), bare, namespace)
	}
	return fmt.Sprintf("kubectl describe %s %s", strings.ToLower(kind), name)
}

func (f facts) onCluster() string {
	if f.rel.Spec.ClusterRef == nil {
		return ""
	}
	return " on cluster " + f.rel.Spec.ClusterRef.Name
}

// giveUp says when a wait for health ends without it. The spec counts only while the sync is of its generation.
func (f facts) giveUp(wave *v1alpha1.WaveStatus, final bool) string {
	health := f.healthPolicy(wave.Wave, final)
	if health == nil || health.Timeout == nil || f.condition(v1alpha1.ConditionApplied).ObservedGeneration != f.rel.Generation {
		return ""
	}
	began := wave.StartedAt
	if final || began == nil {
		began = &wave.BlockedBy[0].Since
	}
	return fmt.Sprintf(", or the sync ends as WaveTimeout about %s", f.in(began.Add(health.Timeout.Duration)))
}

func (f facts) healthPolicy(wave int32, final bool) *v1alpha1.WaveHealth {
	policy := f.rel.Spec.SyncPolicy
	if final && policy.FinalGate != nil {
		return policy.FinalGate.Health
	}
	for i := range policy.Waves {
		if !final && policy.Waves[i].Wave == wave {
			return policy.Waves[i].Health
		}
	}
	return nil
}

// atApproval is a gate that waits for a person.
func (f facts) atApproval(wave *v1alpha1.WaveStatus, gate string, final bool) []string {
	approval := *release.ApprovalAt(wave, final)
	digest, until := f.rel.Status.LastAttempted.Digest, ", for as long as it takes"
	if approval != nil {
		digest = approval.Digest
	}
	if approval != nil && approval.ExpiresAt != nil {
		until = ", until " + stamp(approval.ExpiresAt.Time) + ": then the sync ends as WaveTimeout"
	}
	at := fmt.Sprintf("--wave %d", wave.Wave)
	if final {
		at = "--final"
	}
	return []string{
		fmt.Sprintf("%s: %s waits for a person%s%s.", f.name(), gate, f.since(wave.BlockedBy[0].Since), until),
		f.byItself("Once render %s is approved, %s; once it is rejected, the sync ends and the render is left alone.", release.ShortDigest(digest), f.begins(wave, final)),
		fmt.Sprintf("Whoever may decides: `convoy approve %s %s --digest %s`, or `convoy reject` with the same.", f.name(), at, digest),
	}
}

// thenSuspended says that nothing follows the sync.
func (f facts) thenSuspended() string {
	if !f.rel.Spec.Suspend {
		return ""
	}
	return fmt.Sprintf("The Release is suspended: no further sync starts after this one until `convoy resume %s`.", f.name())
}

// thenChanged says that the sync is of an older Release.
func (f facts) thenChanged() string {
	c := f.condition(v1alpha1.ConditionReconciling)
	if !f.statusIsOfSync() || c.ObservedGeneration == 0 || c.ObservedGeneration == f.rel.Generation || f.manual() || f.rel.Spec.Suspend {
		return ""
	}
	return f.byItself("The Release was changed since this sync began, and is synced after it; a wait at a wave ends for it.")
}

// pause is who paused a step, and when.
type pause struct {
	by, reason string
	at         time.Time
}
