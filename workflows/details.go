package workflows

import (
	"fmt"
	"strings"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"go.temporal.io/sdk/workflow"
)

// enter shows which step the sync is at.
func (s *sync) enter(step string) {
	s.status.Step, s.status.WaitingFor = step, ""
	s.show()
}

// wait shows what the sync waits for.
func (s *sync) wait(what string) {
	s.status.WaitingFor = what
	s.show()
}

// maxShownWaves bounds the table of waves in the Temporal UI.
const maxShownWaves = 40

// show puts the state of the sync into its current details. The Temporal UI asks a worker for them: what is to be read
// without one stands in the pending activity, in status and in the search attributes.
func (s *sync) show() {
	var b strings.Builder
	fmt.Fprintf(&b, "Release `%s/%s`", s.in.Namespace, s.in.Name)
	if s.status.Digest != "" {
		fmt.Fprintf(&b, ", render `%s`", release.ShortDigest(s.status.Digest))
	}
	fmt.Fprintf(&b, ", at: %s\n\n", s.status.Step)
	if s.status.WaitingFor != "" {
		fmt.Fprintf(&b, "It waits: %s\n\n", s.status.WaitingFor)
	}
	for i, wave := range s.status.Waves {
		switch {
		case i == 0:
			b.WriteString("| wave | objects | phase |\n| --- | --- | --- |\n")
		case i == maxShownWaves:
			fmt.Fprintf(&b, "| … | | %d more |\n", len(s.status.Waves)-i)
		}
		if i < maxShownWaves {
			fmt.Fprintf(&b, "| %d | %d | %s |\n", wave.Wave, wave.Objects, wave.Phase)
		}
	}
	workflow.SetCurrentDetails(s.root, b.String())
}

// show puts what the loop does into its current details.
func (l *loop) show(ctx workflow.Context) {
	var b strings.Builder
	fmt.Fprintf(&b, "Release `%s`: %s\n\n", l.id(), l.doing)
	if !l.mem.NextDue.IsZero() {
		fmt.Fprintf(&b, "- next look: %s\n", l.mem.NextDue.UTC().Format(time.RFC3339))
	}
	if r := l.mem.Running; r != nil {
		fmt.Fprintf(&b, "- sync: `%s`, run `%s`\n", release.SyncWorkflowID(l.in.Namespace, l.in.Name), r.RunID)
	}
	if l.mem.Failures > 0 {
		fmt.Fprintf(&b, "- failed in a row: %d\n", l.mem.Failures)
	}
	if l.mem.Waiting != nil {
		fmt.Fprintf(&b, "- requests that wait: %d\n", len(l.mem.Waiting.IDs))
	}
	workflow.SetCurrentDetails(ctx, b.String())
}

// planWaves shows the waves of the plan.
func (s *sync) planWaves() {
	s.status.Digest = s.plan.Sync.Digest
	for _, wave := range s.plan.Waves {
		s.status.Waves = append(s.status.Waves, WaveStatus{Wave: wave.Number, Objects: wave.Objects, Phase: v1alpha1.WavePending})
	}
	s.show()
}

// enterWave shows the phase of a wave.
func (s *sync) enterWave(i int, phase v1alpha1.WavePhase) {
	s.status.Waves[i].Phase = phase
	s.enter("apply")
}
