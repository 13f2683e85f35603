package activities

import (
	"errors"
	"fmt"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/gate"
	"convoy.dev/convoy/internal/release"
)

// checkGates compiles every expression of the sync policy, so that a mistake is found before the first request (D24).
func checkGates(policy v1alpha1.SyncPolicy) error {
	for _, wave := range policy.Waves {
		if err := checkExpressions(wave.Health, fmt.Sprintf("spec.syncPolicy.waves[wave %d].health", wave.Wave)); err != nil {
			return err
		}
	}
	if policy.FinalGate != nil {
		return checkExpressions(policy.FinalGate.Health, "spec.syncPolicy.finalGate.health")
	}
	return nil
}

func checkExpressions(health *v1alpha1.WaveHealth, path string) error {
	if health == nil || health.Strategy != v1alpha1.HealthExpression {
		return nil
	}
	_, err := gate.Compile(health.Current, health.Failed)
	var fault *gate.Fault
	if errors.As(err, &fault) {
		return release.Problemf(release.RenderFailed, "%s.%s, %v. It may use %s, and has to give true or false: correct it in the Release. Nothing was applied",
			path, fault.Field, fault, gate.Variables)
	}
	return err
}

// planGate puts a gate into the plan.
func (p *preparation) planGate(planned *PlannedWave, found release.Gate) {
	planned.After = found.Before.Number
	if health := found.Health; health != nil {
		planned.Strategy, planned.Current, planned.Failed = health.Strategy, health.Current, health.Failed
		if health.Seconds != nil {
			planned.Delay = time.Duration(*health.Seconds) * time.Second
		}
		if health.Timeout != nil {
			planned.Timeout = health.Timeout.Duration
		}
	}
	if found.Approval == nil {
		return
	}
	planned.Approval = &PlannedApproval{Held: release.HeldApproval(p.rel.Status, planned.Number, planned.Final, p.ref.Digest)}
	if found.Approval.Expires != nil {
		planned.Approval.Expires = found.Approval.Expires.Duration
	}
}
