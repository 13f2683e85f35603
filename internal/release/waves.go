package release

import (
	"slices"

	"convoy.dev/convoy/api/v1alpha1"
)

// Wave is a run of items that carry the same sync-wave number: Items[First : First+Count] of the plan.
type Wave struct {
	Number int32
	First  int
	Count  int
}

// group finds the waves of items that are sorted by wave.
func group(items []Item) []Wave {
	var waves []Wave
	for i, item := range items {
		if len(waves) == 0 || waves[len(waves)-1].Number != item.Object.Wave {
			waves = append(waves, Wave{Number: item.Object.Wave, First: i})
		}
		waves[len(waves)-1].Count++
	}
	return waves
}

// Gate is what a wave waits for before it begins (S17).
type Gate struct {
	// Wave that waits.
	Wave Wave
	// Before is the next lower wave that has objects: the one to be judged (D24).
	Before Wave
	// Health is nil where there is nothing to be judged, and Approval where nobody is asked.
	Health   *v1alpha1.WaveHealth
	Approval *v1alpha1.Approval
}

// GateFor finds the gate in front of a wave; false where there is none. The strategy of the lowest wave is satisfied at
// once (D24); its approval is asked for.
func GateFor(number int32, policies []v1alpha1.WavePolicy, waves []Wave) (Gate, bool) {
	position := slices.IndexFunc(waves, func(w Wave) bool { return w.Number == number })
	policy := slices.IndexFunc(policies, func(p v1alpha1.WavePolicy) bool { return p.Wave == number })
	if position < 0 || policy < 0 {
		return Gate{}, false
	}
	gate := Gate{Wave: waves[position], Approval: required(policies[policy].Approval)}
	if position > 0 {
		gate.Before, gate.Health = waves[position-1], policies[policy].Health
	}
	return gate, gate.Health != nil || gate.Approval != nil
}

// FinalGateFor finds the gate behind the last wave, in front of the prune. Its Wave is the zero Wave. A render without
// objects has nothing to judge; a person is asked all the same.
func FinalGateFor(policy *v1alpha1.FinalGate, waves []Wave) (Gate, bool) {
	if policy == nil {
		return Gate{}, false
	}
	gate := Gate{Approval: required(policy.Approval)}
	if len(waves) > 0 {
		gate.Before, gate.Health = waves[len(waves)-1], policy.Health
	}
	return gate, gate.Health != nil || gate.Approval != nil
}

func required(approval *v1alpha1.Approval) *v1alpha1.Approval {
	if approval == nil || !approval.Required {
		return nil
	}
	return approval
}

// MaxWaveStatus is how many waves status lists (D35).
const MaxWaveStatus = 20

// WindowWaves keeps at most 20 waves around the current one (D35): it and those after it first, since what is done is
// of less interest than what is to come, and always the one before it, which a gate judges.
func WindowWaves(waves []v1alpha1.WaveStatus, current int32) []v1alpha1.WaveStatus {
	if len(waves) <= MaxWaveStatus {
		return waves
	}
	position := slices.IndexFunc(waves, func(w v1alpha1.WaveStatus) bool { return w.Wave >= current })
	if position < 0 {
		position = len(waves) - 1
	}
	start := min(max(position-MaxWaveStatus/4, 0), len(waves)-MaxWaveStatus)
	return slices.Clone(waves[start : start+MaxWaveStatus])
}
