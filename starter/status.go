package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (p *program) statusCommand() *cobra.Command {
	var format string
	var watch bool
	cmd := &cobra.Command{
		Use:     "status NAMESPACE/NAME",
		GroupID: groupLook,
		Short:   "Show what became of a Release's last sync, and what runs",
		Long: `Show whether the last render is applied, why not, what runs, the progress of each wave and what blocks it, when convoy
looks at the Release again, what requests came to, and the history. With -o the status comes as the API server has it.

With --watch it shows the waves with what blocks them, and goes on until Ctrl-C or until the Release is gone: in place in
a terminal, a line for each change elsewhere. It watches the Release alone, so it works without Temporal and workers.`,
		Example:           "  convoy status team-a/shop\n  convoy status team-a/shop --watch\n  convoy status team-a/shop -o json | jq -r .status.lastSuccessful.digest",
		Args:              oneRelease,
		ValidArgsFunction: p.completeRelease,
		RunE: does(func(ctx context.Context, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			if watch && format != "" {
				return failf(exitUsage, "--watch draws for people, and -o is for programs: use one of them (`kubectl get release -w -o json` gives both)")
			}
			if watch {
				return p.watchStatus(ctx, args[0])
			}
			_, rel, err := p.readRelease(ctx, args[0])
			if err != nil {
				return err
			}
			if format != "" {
				return encode(p.stdout, format, plainStatus(rel))
			}
			printStatus(p.stdout, rel, p.askLoop(ctx, rel), p.now())
			return nil
		}),
	}
	outputFlag(cmd, &format)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show each change until Ctrl-C")
	return cmd
}

// releaseStatus is a Release without its spec: the source may hold Secrets (D10).
type releaseStatus struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        releaseMeta            `json:"metadata"`
	Status          v1alpha1.ReleaseStatus `json:"status"`
}

type releaseMeta struct {
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"`
	Generation int64  `json:"generation,omitempty"`
}

func plainStatus(rel *v1alpha1.Release) releaseStatus {
	return releaseStatus{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Release"},
		Metadata: releaseMeta{rel.Namespace, rel.Name, string(rel.UID), rel.Generation},
		Status:   rel.Status,
	}
}

// statusPage prints the status of a Release for people.
type statusPage struct {
	w    io.Writer
	rel  *v1alpha1.Release
	loop loopView
	now  time.Time
}

func printStatus(w io.Writer, rel *v1alpha1.Release, loop loopView, now time.Time) {
	s := statusPage{w, rel, loop, now}
	s.line("Release", "%s/%s -> %s", rel.Namespace, rel.Name, targetName(rel))
	if meta.FindStatusCondition(rel.Status.Conditions, v1alpha1.ConditionApplied) == nil && rel.Status.LastAttempted == nil {
		s.line("Applied", "not yet, %s", firstSync(rel))
		s.cadence()
		s.loopLines()
		return
	}
	s.conditions()
	s.cadence()
	s.loopLines()
	s.attempts()
	s.waves()
	s.hooks()
	s.list("Unverified by the dry run", rel.Status.Unverified, rel.Status.UnverifiedTotal)
	s.list("Left the inventory, stay on the cluster", rel.Status.Orphaned, rel.Status.OrphanedTotal)
	s.list("Pruned, held by finalizers", rel.Status.Terminating, rel.Status.TerminatingTotal)
	s.requests()
	s.history()
	s.temporal()
}

// firstSync says what the first sync of a Release waits for.
func firstSync(rel *v1alpha1.Release) string {
	name := rel.Namespace + "/" + rel.Name
	switch {
	case rel.DeletionTimestamp != nil:
		return "no sync has begun, and the Release is being deleted"
	case rel.Spec.Suspend:
		return fmt.Sprintf("no sync has begun, and the Release is suspended (`convoy resume %s`)", name)
	case rel.Spec.SyncPolicy.Mode == v1alpha1.SyncManual:
		return fmt.Sprintf("no sync has begun: mode Manual waits for a request, `convoy sync %s`", name)
	}
	return "no sync has begun: its loop will sync it"
}

// line writes a labelled line; more lines of the text are indented below it.
func (s statusPage) line(label, format string, args ...any) {
	text := clean(fmt.Sprintf(format, args...))
	text = strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+strings.Repeat(" ", 12))
	fmt.Fprintf(s.w, "%-11s %s\n", label, text)
}

func (s statusPage) conditions() {
	conditions := s.rel.Status.Conditions
	if applied := meta.FindStatusCondition(conditions, v1alpha1.ConditionApplied); applied != nil {
		s.line("Applied", "%s, %s, for %s (since %s)", applied.Status, applied.Reason, since(applied.LastTransitionTime, s.now),
			applied.LastTransitionTime.UTC().Format(time.RFC3339))
		if applied.Message != "" {
			s.line("", "%s", applied.Message)
		}
	}
	if doing := meta.FindStatusCondition(conditions, v1alpha1.ConditionReconciling); doing != nil && doing.Status == metav1.ConditionTrue {
		s.line("Doing", "%s", doing.Message)
	}
	if meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionStalled) {
		s.stalled(*meta.FindStatusCondition(conditions, v1alpha1.ConditionStalled))
	}
	if synced := s.rel.Status.ObservedGeneration; synced != s.rel.Generation {
		s.line("Changed", "the Release is at generation %d, and the last sync was of generation %d", s.rel.Generation, synced)
	}
}

// stalled says what a person has to do.
func (s statusPage) stalled(c metav1.Condition) {
	if c.Reason != release.Stuck {
		s.line("Stalled", "%s, for %s: it needs a person: correct what Applied says, %s", c.Reason, since(c.LastTransitionTime, s.now), s.afterwards())
		return
	}
	s.line("Stalled", "%s, for %s: convoy goes on by itself and gets nowhere; `convoy why %s/%s` says what to do", c.Reason, since(c.LastTransitionTime, s.now),
		s.rel.Namespace, s.rel.Name)
}

// afterwards is what follows a correction.
func (s statusPage) afterwards() string {
	switch {
	case s.rel.Spec.Suspend:
		return "and lift the suspension"
	case s.rel.Spec.SyncPolicy.Mode == v1alpha1.SyncManual:
		return fmt.Sprintf("then ask for a sync: `convoy sync %s/%s`", s.rel.Namespace, s.rel.Name)
	}
	return fmt.Sprintf("and a changed Release or render is synced by itself; after a change on the cluster: `convoy sync %s/%s`", s.rel.Namespace, s.rel.Name)
}

func (s statusPage) attempts() {
	if last := s.rel.Status.LastAttempted; last != nil {
		s.line("Attempted", "%s, %s", attemptResult(last), s.attemptTimes(last))
		s.line("", "%s%s", renderOf(last.Digest, last.Revision), askedBy(last.RequestedBy, last.Force))
	}
	if last := s.rel.Status.LastSuccessful; last != nil {
		s.line("Succeeded", "%s", ago(last.FinishedAt, s.now))
		s.line("", "%s", renderOf(last.Digest, last.Revision))
	} else {
		s.line("Succeeded", "never")
	}
}

func attemptResult(last *v1alpha1.Attempt) string {
	if last.Reason == "" || last.Reason == string(last.Result) {
		return string(last.Result)
	}
	return fmt.Sprintf("%s (%s)", last.Result, last.Reason)
}

func (s statusPage) attemptTimes(last *v1alpha1.Attempt) string {
	if last.FinishedAt == nil {
		return "started " + ago(last.StartedAt, s.now)
	}
	took := last.FinishedAt.Sub(last.StartedAt.Time).Round(time.Second)
	return fmt.Sprintf("started %s, took %s", ago(last.StartedAt, s.now), took)
}

func renderOf(digest, revision string) string {
	if digest == "" {
		return "no render"
	}
	text := "render " + release.ShortDigest(digest)
	if revision != "" {
		text += ", revision " + revision
	}
	return text
}

func askedBy(who string, force bool) string {
	text := ""
	if who != "" {
		text += ", asked for by " + who
	}
	if force {
		text += ", forced"
	}
	return text
}

func (s statusPage) waves() {
	status := s.rel.Status
	if len(status.Waves) == 0 {
		return
	}
	s.title("Waves", len(status.Waves), int(status.WavesTotal))
	rows := [][]string{{"WAVE", "PHASE", "APPLIED", "STARTED", "TOOK"}}
	for _, wave := range status.Waves {
		rows = append(rows, s.waveRow(wave))
	}
	table(s.w, "  ", rows)
	for _, wave := range status.Waves {
		s.blockers(wave)
	}
	for i := range status.Waves {
		for _, final := range []bool{false, true} {
			s.decision(release.GateName(status.Waves[i].Wave, final), *release.ApprovalAt(&status.Waves[i], final))
		}
	}
}

// decision says who decided at a gate.
func (s statusPage) decision(gate string, approval *v1alpha1.ApprovalStatus) {
	if approval == nil || approval.Decision == "" || approval.At == nil {
		return
	}
	text := fmt.Sprintf("%s: %s", gate, strings.ToLower(string(approval.Decision)))
	if approval.By != "" {
		text += " by " + approval.By
	}
	text += " " + ago(*approval.At, s.now)
	if approval.Reason != "" {
		text += ": " + approval.Reason
	}
	s.item("%s", text)
}

func (s statusPage) waveRow(wave v1alpha1.WaveStatus) []string {
	row := []string{fmt.Sprint(wave.Wave), string(wave.Phase), fmt.Sprintf("%d/%d", wave.Applied, wave.Objects), "-", "-"}
	if wave.StartedAt != nil {
		row[3] = since(*wave.StartedAt, s.now) + " ago"
		if wave.FinishedAt != nil {
			row[4] = wave.FinishedAt.Sub(wave.StartedAt.Time).Round(time.Second).String()
		}
	}
	return row
}

func (s statusPage) blockers(wave v1alpha1.WaveStatus) {
	if len(wave.BlockedBy) == 0 {
		return
	}
	s.title(fmt.Sprintf("Wave %d waits for", wave.Wave), len(wave.BlockedBy), int(wave.BlockedByTotal))
	for _, blocker := range wave.BlockedBy {
		s.item("%s: %s (for %s)", blocker.Object, blocker.Message, since(blocker.Since, s.now))
	}
}

func (s statusPage) hooks() {
	if len(s.rel.Status.Hooks) == 0 {
		return
	}
	s.title("Hooks", 0, 0)
	rows := [][]string{{"PHASE", "HOOK", "RESULT", "RENDER", "ENDED", "MESSAGE"}}
	for _, hook := range s.rel.Status.Hooks {
		rows = append(rows, []string{hook.Phase, hook.Name, hook.Result, orDash(release.ShortDigest(hook.Digest)),
			since(hook.FinishedAt, s.now) + " ago", hook.Message})
	}
	table(s.w, "  ", rows)
}

// list prints object references; total may be more than are listed (D35).
func (s statusPage) list(title string, objects []string, total int32) {
	if len(objects) == 0 {
		return
	}
	s.title(title, len(objects), int(total))
	for _, object := range objects {
		s.item("%s", object)
	}
}

// title heads a section; where not all is listed it says so.
func (s statusPage) title(text string, listed, total int) {
	if total > listed {
		text += fmt.Sprintf(" (%d of %d)", listed, total)
	}
	fmt.Fprintf(s.w, "\n%s\n", text)
}

func (s statusPage) item(format string, args ...any) {
	fmt.Fprintf(s.w, "  %s\n", oneLine(fmt.Sprintf(format, args...)))
}

func (s statusPage) history() {
	if len(s.rel.Status.History) == 0 {
		return
	}
	s.title("History", 0, 0)
	rows := [][]string{{"RENDER", "REVISION", "APPLIED", "LAST", "ASKED BY", "RUN"}}
	for _, entry := range s.rel.Status.History {
		rows = append(rows, []string{release.ShortDigest(entry.Digest), orDash(entry.Revision), since(entry.FirstAppliedAt, s.now) + " ago",
			since(entry.LastAppliedAt, s.now) + " ago", orDash(entry.RequestedBy), orDash(entry.RunID)})
	}
	table(s.w, "  ", rows)
}

// temporal says where the last sync is to be seen.
func (s statusPage) temporal() {
	last := s.rel.Status.LastAttempted
	if last == nil || last.WorkflowID == "" {
		return
	}
	s.title("In Temporal", 0, 0)
	s.item("workflow %s, run %s", last.WorkflowID, last.RunID)
	s.item("%s", showCommand(last.WorkflowID, last.RunID))
}

// showCommand is what shows a run in Temporal.
func showCommand(workflowID, runID string) string {
	return fmt.Sprintf("temporal workflow show --workflow-id %s --run-id %s", workflowID, runID)
}
