package workflows

import (
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/internal/release"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// The search attributes of a sync that is in trouble. See release.SearchAttributes.
var (
	attributeStep    = temporal.NewSearchAttributeKeyKeyword(release.AttributeStep)
	attributeWave    = temporal.NewSearchAttributeKeyInt64(release.AttributeWave)
	attributeReason  = temporal.NewSearchAttributeKeyKeyword(release.AttributeReason)
	attributeStalled = temporal.NewSearchAttributeKeyBool(release.AttributeStalled)
)

// markAfter is how long a gate waits before the search attributes say so: most open at once, and each change of the
// attributes costs Temporal as much as a dozen events.
const markAfter = 10 * time.Second

// marking runs a wait at a gate, and lets the search attributes tell of it while it lasts. A wait that may be stuck counts
// as that after the bound that the worker names. Where Temporal does not know the attributes nothing is marked: a
// workflow task with an unknown one would fail for ever.
func (s *sync) marking(ctx workflow.Context, wave activities.PlannedWave, mayStick bool, wait func() error) error {
	if !s.searchable {
		return wait()
	}
	timing, stop := workflow.WithCancel(ctx)
	marked := false
	workflow.Go(timing, func(ctx workflow.Context) {
		pause := workflow.TimerOptions{Summary: wave.Name() + ": a wait that lasts is marked in the search attributes"}
		if workflow.NewTimerWithOptions(ctx, markAfter, pause).Get(ctx, nil) != nil {
			return
		}
		marked = true
		s.mark(ctx, &wave.Number, release.WaitingForWave, false)
		pause.Summary = wave.Name() + ": from then on the sync counts as stuck"
		if mayStick && workflow.NewTimerWithOptions(ctx, max(s.plan.StuckAfter-markAfter, 0), pause).Get(ctx, nil) == nil {
			s.mark(ctx, &wave.Number, release.WaitingForWave, true)
		}
	})
	err := wait()
	stop()
	if marked && err == nil {
		s.upsert(ctx, attributeStep.ValueUnset(), attributeWave.ValueUnset(), attributeReason.ValueUnset(), attributeStalled.ValueUnset())
	}
	return err
}

// markEnd lets the search attributes tell how the sync ends, when it does not succeed.
func (s *sync) markEnd(ctx workflow.Context, reason string) {
	if !s.searchable || reason == activities.Refused || reason == activities.Fenced {
		return
	}
	stalled := release.Reason(reason) != release.Superseded
	if release.Retries(release.Reason(reason), s.outcome.Sync.Unreachable) {
		stalled = s.in.Loop != nil && s.in.Loop.Failures+1 >= release.StuckFailures
	}
	s.mark(ctx, s.outcome.FailedWave, release.Reason(reason), stalled)
}

func (s *sync) mark(ctx workflow.Context, wave *int32, reason release.Reason, stalled bool) {
	number := attributeWave.ValueUnset()
	if wave != nil {
		number = attributeWave.ValueSet(int64(*wave))
	}
	s.upsert(ctx, attributeStep.ValueSet(s.status.Step), number, attributeReason.ValueSet(string(reason)), attributeStalled.ValueSet(stalled))
}

func (s *sync) upsert(ctx workflow.Context, updates ...temporal.SearchAttributeUpdate) {
	if err := workflow.UpsertTypedSearchAttributes(ctx, updates...); err != nil {
		workflow.GetLogger(ctx).Warn("search attributes not set", "error", err)
	}
}
