package workflows

import "convoy.dev/convoy/api/v1alpha1"

// enter shows which step the sync is at.
func (s *sync) enter(step string) {
	s.status.Step, s.status.WaitingFor = step, ""
}

// wait shows what the sync waits for.
func (s *sync) wait(what string) { s.status.WaitingFor = what }

// planWaves shows the waves of the plan.
func (s *sync) planWaves() {
	s.status.Digest = s.plan.Sync.Digest
	for _, wave := range s.plan.Waves {
		s.status.Waves = append(s.status.Waves, WaveStatus{Wave: wave.Number, Objects: wave.Objects, Phase: v1alpha1.WavePending})
	}
}

// enterWave shows the phase of a wave.
func (s *sync) enterWave(i int, phase v1alpha1.WavePhase) {
	s.enter("apply")
	s.status.Waves[i].Phase = phase
}
