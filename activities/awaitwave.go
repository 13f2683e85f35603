package activities

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/gate"
	"convoy.dev/convoy/internal/release"

	"go.temporal.io/sdk/activity"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AwaitWave looks once whether a wave is healthy, by kstatus or by the expressions of the gate, so that the wave that it
// blocks may begin (S17, D24). While it is not, status names the blocking objects, and the activity fails as Waiting: it gives its slot back and is run again
// after 2 to 15 seconds (D23).
//
// Idempotent: it changes nothing but status.
// Fails with: Waiting; DeployFailed when an object of the wave has failed for good.
// Heartbeat: the wave.
func (a *Activities) AwaitWave(ctx context.Context, in WaveInput) error {
	attempt := activity.GetInfo(ctx).Attempt
	_, err := perform(ctx, a, "await health", release.DeployFailed, func(ctx context.Context, l *lease) (struct{}, error) {
		l.record(func(p *Progress) { p.Wave = &in.Wave })
		return struct{}{}, a.lookAtWave(ctx, in, attempt)
	})
	return err
}

func (a *Activities) lookAtWave(ctx context.Context, in WaveInput, attempt int32) error {
	st, err := a.open(ctx, in.Sync)
	if err != nil {
		return err
	}
	health, err := st.assess(ctx, in)
	if err != nil {
		return err
	}
	if health.Healthy {
		return nil
	}
	for _, blocker := range health.Blockers {
		if blocker.Failed {
			return release.Problemf(release.DeployFailed, "%s: %s of wave %d has failed: %s",
				in.cannotBegin(), blocker.Ref, in.Wave, blocker.Message)
		}
	}
	first := health.Blockers[0]
	message := fmt.Sprintf("%s: %s", first.Ref, first.Message)
	if more := len(health.Blockers) - 1; more > 0 {
		message += fmt.Sprintf(" (and %d more)", more)
	}
	blockers := make([]v1alpha1.Blocker, 0, listLimit)
	for _, blocker := range health.Blockers[:min(len(health.Blockers), listLimit)] {
		blockers = append(blockers, v1alpha1.Blocker{Object: blocker.Ref.String(), Message: blocker.Message})
	}
	message = fmt.Sprintf("%s waits for wave %d: %s", in.gate(), in.Wave, message)
	if err := a.showWaiting(ctx, st, in, waiting{message: message, blockers: blockers, total: len(health.Blockers), health: true}); err != nil {
		return err
	}
	return &waitError{message: message + st.waitsSince(in, first.Ref.String(), a.now()), after: backoff(attempt)}
}

// waitsSince says since when an object blocks, for who reads the failure of the look in Temporal. Status has it beside
// the message, which stays the same from look to look.
func (s *step) waitsSince(in WaveInput, object string, now time.Time) string {
	for _, wave := range s.rel.Status.Waves {
		for _, blocker := range wave.BlockedBy {
			if wave.Wave == in.Blocks && blocker.Object == object {
				now = blocker.Since.Time
			}
		}
	}
	return ", since " + now.UTC().Format(time.RFC3339)
}

func (w WaveInput) cannotBegin() string {
	if w.Final {
		return "the final gate stays shut"
	}
	return fmt.Sprintf("wave %d cannot begin", w.Blocks)
}

// assess judges the objects of a wave, by the expressions of the gate where it has some.
func (s *step) assess(ctx context.Context, in WaveInput) (release.Health, error) {
	refs := s.awaited(in.Wave)
	if in.Current == "" {
		return s.target.Health(ctx, refs)
	}
	expressions, err := gate.Compile(in.Current, in.Failed)
	if err != nil {
		return release.Health{}, err
	}
	looked, err := s.target.Inspect(ctx, refs)
	if err != nil {
		return release.Health{}, err
	}
	return expressions.Judge(ctx, looked)
}

// backoff between looks: 2 s growing to 15 s (D23).
func backoff(attempt int32) time.Duration {
	seconds := 2 * math.Pow(1.3, float64(attempt-1))
	return time.Duration(math.Min(seconds, 15) * float64(time.Second))
}

// awaited are the objects of a wave whose health counts.
func (s *step) awaited(number int32) []release.ObjectRef {
	var refs []release.ObjectRef
	for _, wave := range s.plan.Waves {
		if wave.Number != number {
			continue
		}
		for _, item := range s.plan.InWave(wave) {
			if item.Object.Annotations[release.AnnotationWait] != "disabled" {
				refs = append(refs, item.Ref)
			}
		}
	}
	return refs
}

// DelayInput announces the wait of a wave for time.
type DelayInput struct {
	WaveInput
	Until time.Time `json:"until"`
}

// AnnounceDelay shows in status that a wave waits until a point in time (D24, D33). The waiting is a timer of the
// workflow.
//
// Idempotent: it writes the same status.
// Fails with: DeployFailed when the control cluster is out of reach.
// Heartbeat: the wave.
func (a *Activities) AnnounceDelay(ctx context.Context, in DelayInput) error {
	return a.atGate(ctx, "delay", in.WaveInput, func(st *step) error {
		message := fmt.Sprintf("waits until %s after wave %d was applied", in.Until.UTC().Format(time.RFC3339), in.Wave)
		blocker := v1alpha1.Blocker{Object: fmt.Sprintf("wave %d", in.Wave), Message: message}
		return a.showWaiting(ctx, st, in.WaveInput, waiting{
			message: fmt.Sprintf("%s waits for wave %d: %s", in.gate(), in.Wave, message), blockers: []v1alpha1.Blocker{blocker}, total: 1,
		})
	})
}

// stuck reports whether a gate has waited longer than the operator thinks right, and says so once in an event.
func (a *Activities) stuck(ctx context.Context, st *step, in WaveInput, first v1alpha1.Blocker) bool {
	i := slices.IndexFunc(st.rel.Status.Waves, func(w v1alpha1.WaveStatus) bool { return w.Wave == in.Blocks })
	if i < 0 {
		return false
	}
	began := waitBegan(st.rel.Status.Waves[i], in.Final)
	if began == nil {
		return false
	}
	waited := a.now().Sub(began.Time)
	stuck := waited >= a.stuckAfter
	if stuck && !release.IsStuck(st.rel.Status.Conditions) {
		each := in.Sync // each wait is told of, also a later one of the same render
		each.Digest += "/" + activity.GetInfo(ctx).WorkflowExecution.RunID + "/" + in.gate()
		a.event(ctx, st.rel, each, "Warning", release.Stuck, "%s has waited for %s: %s", in.gate(), waited.Round(time.Second), first.Object+": "+first.Message)
	}
	return stuck
}

// waitBegan is when a gate began to wait; nil when that is not known. The last wave has begun long before the final gate.
func waitBegan(wave v1alpha1.WaveStatus, final bool) *metav1.Time {
	if !final {
		return wave.StartedAt
	}
	var began *metav1.Time
	for _, blocker := range wave.BlockedBy {
		if began == nil || blocker.Since.Before(began) {
			began = &blocker.Since
		}
	}
	return began
}

// waiting is what status says of a gate that waits.
type waiting struct {
	message  string
	blockers []v1alpha1.Blocker
	total    int
	// health: it waits for health, and not for time or for a person.
	health bool
	// approval that is waited for.
	approval *v1alpha1.ApprovalStatus
}

// showWaiting writes the gate to status. A blocker keeps the time since when it blocks. A wait for health may be stuck;
// one for time or for a person is not.
func (a *Activities) showWaiting(ctx context.Context, st *step, in WaveInput, w waiting) error {
	now := a.timestamp()
	stuck := w.health && a.stuck(ctx, st, in, w.blockers[0])
	_, err := a.writeStatus(ctx, st.rel, in.Sync, func(status *v1alpha1.ReleaseStatus) {
		showWaves(status, st.plan, in.Blocks)
		setGate(status, in, func(wave *v1alpha1.WaveStatus) {
			if !in.Final {
				wave.Phase = v1alpha1.WaveWaiting
			}
			if wave.StartedAt == nil {
				wave.StartedAt = now
			}
			wave.BlockedBy, wave.BlockedByTotal = since(wave.BlockedBy, w.blockers, *now), int32(w.total)
			if w.approval != nil {
				*release.ApprovalAt(wave, in.Final) = w.approval
			}
		})
		status.Conditions = release.Conditions(status.Conditions, release.Outcome{
			Reason: release.WaitingForWave, Generation: in.Sync.Generation, Stuck: stuck, Message: w.message,
		}, a.now())
	})
	return err
}

// setGate changes the status of the wave where a gate is shown. A render without objects has no wave: one of number 0
// stands for the end that the final gate is about.
func setGate(status *v1alpha1.ReleaseStatus, in WaveInput, change func(*v1alpha1.WaveStatus)) {
	if in.Final && len(status.Waves) == 0 {
		status.Waves = []v1alpha1.WaveStatus{{Wave: in.Blocks, Phase: v1alpha1.WaveApplied}}
	}
	setWave(status, in.Blocks, change)
}

func since(before, blockers []v1alpha1.Blocker, now metav1.Time) []v1alpha1.Blocker {
	known := map[string]metav1.Time{}
	for _, blocker := range before {
		known[blocker.Object] = blocker.Since
	}
	for i := range blockers {
		blockers[i].Since = now
		if began, found := known[blockers[i].Object]; found {
			blockers[i].Since = began
		}
	}
	return blockers
}
