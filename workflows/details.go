package workflows

import (
	"fmt"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"go.temporal.io/sdk/workflow"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	text := fmt.Sprintf("Release `%s/%s`", s.in.Namespace, s.in.Name)
	if s.status.Digest != "" {
		text += fmt.Sprintf(", render `%s`", release.ShortDigest(s.status.Digest))
	}
	text += fmt.Sprintf(", at: %s\n\n", s.status.Step)
	if s.status.WaitingFor != "" {
		text += fmt.Sprintf("It waits: %s\n\n", s.status.WaitingFor)
	}
	for i, wave := range s.status.Waves {
		switch {
		case i == 0:
			text += "| wave | objects | phase |\n| --- | --- | --- |\n"
		case i == maxShownWaves:
			text += fmt.Sprintf("| … | | %d more |\n", len(s.status.Waves)-i)
		}
		if i < maxShownWaves {
			text += fmt.Sprintf("| %d | %d | %s |\n", wave.Wave, wave.Objects, wave.Phase)
		}
	}
	workflow.SetCurrentDetails(s.root, text)
}

// show puts what the loop does into its current details.
func (l *loop) show(ctx workflow.Context) {
	text := fmt.Sprintf("Release `%s`: %s\n\n", l.id(), l.doing)
	if !l.mem.NextDue.IsZero() {
		text += fmt.Sprintf("- next look: %s\n", stamp(&metav1.Time{Time: l.mem.NextDue}))
	}
	if r := l.mem.Running; r != nil {
		text += fmt.Sprintf("- sync: `%s`, run `%s`\n", release.SyncWorkflowID(l.in.Namespace, l.in.Name), r.RunID)
	}
	if l.mem.Failures > 0 {
		text += fmt.Sprintf("- failed in a row: %d\n", l.mem.Failures)
	}
	if l.mem.Waiting != nil {
		text += fmt.Sprintf("- requests that wait: %d\n", len(l.mem.Waiting.IDs))
	}
	workflow.SetCurrentDetails(ctx, text)
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
