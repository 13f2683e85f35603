package workflows

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// act names the activities. It is nil: only its methods' names are used.
var act *activities.Activities

// sync is the state of one SyncWorkflow.
type sync struct {
	in         SyncInput
	heartbeat  time.Duration
	plan       activities.Prepared
	outcome    activities.Outcome
	result     SyncResult
	status     SyncStatus
	root       workflow.Context
	searchable bool      // Temporal knows convoy's search attributes
	unsure     bool      // an attempt may have left a request in flight (D16)
	appliedAt  time.Time // when the last wave was applied
	// superseding is where the loop says that something newer is to be synced, order what it said, and supersededBy the
	// same once the sync ends for it (D23).
	superseding         workflow.ReceiveChannel
	order, supersededBy string
	// gates are the approvals of the plan, atGate the one whose gate the sync is at; vetoed wakes a wait there once it is
	// rejected, and rejection says who did when the sync ends for it.
	gates     []*approval
	atGate    *approval
	vetoed    workflow.Channel
	rejection string
	// closed: the sync ends, and no approval counts any more.
	closed bool
}

// SyncStatus is the answer to the query "status" (SPEC 4).
type SyncStatus struct {
	Step   string       `json:"step"`
	Digest string       `json:"digest,omitempty"`
	Waves  []WaveStatus `json:"waves,omitempty"`
	// WaitingFor says what a waiting sync waits for.
	WaitingFor string `json:"waitingFor,omitempty"`
	// Approvals are those that the plan asks for, in their order.
	Approvals []GateStatus `json:"approvals,omitempty"`
}

// WaveStatus is one wave in SyncStatus.
type WaveStatus struct {
	Wave    int32              `json:"wave"`
	Objects int                `json:"objects"`
	Phase   v1alpha1.WavePhase `json:"phase"`
}

// begin registers the query and the updates before anything blocks.
func (w *Workflows) begin(ctx workflow.Context, in SyncInput) (*sync, error) {
	s := &sync{in: in, heartbeat: w.HeartbeatTimeout, superseding: openSupersede(ctx), vetoed: workflow.NewBufferedChannel(ctx, 1)}
	s.outcome.Loop, s.root = in.Loop, ctx
	s.searchable = in.Loop != nil && in.Loop.Searchable
	if parent := workflow.GetInfo(ctx).ParentWorkflowExecution; parent != nil {
		s.outcome.ParentRunID = parent.RunID
	}
	err := workflow.SetQueryHandlerWithOptions(ctx, "status", func() (SyncStatus, error) { return s.shown(), nil },
		workflow.QueryHandlerOptions{Description: "step, waves, and what the sync waits for"})
	if err != nil {
		return s, err
	}
	return s, s.handleApprovals(ctx)
}

// end turns the end of the steps into the end of the workflow, and records it.
func (s *sync) end(ctx workflow.Context, err error) (SyncResult, error) {
	s.closed = true
	if err == nil {
		s.enter("done")
		s.result.Unsure = s.unsure
		return s.result, nil
	}
	reason := reasonOf(err)
	message := messageOf(err)
	cancelled := ctx.Err() != nil || s.supersededBy != "" || s.rejection != ""
	if cancelled {
		s.outcome.FailedWave, s.outcome.Rejected = nil, s.rejection != ""
		reason, message = string(release.Superseded), s.whyCancelled()
	}
	s.markEnd(ctx, reason)
	recorded := false
	if s.outcome.Sync.Fence > 0 && reason != activities.Fenced && s.outcome.Reason == "" {
		s.outcome.Reason, s.outcome.Message, s.outcome.Decisions = reason, message, s.early()
		detached, cancel := workflow.NewDisconnectedContext(ctx)
		defer cancel()
		if recordErr := s.writeRecord(detached); recordErr != nil {
			message += "; and the end could not be recorded: " + messageOf(recordErr)
		} else {
			recorded = true
		}
	}
	detail := SyncFailure{Digest: s.outcome.Sync.Digest, Unreachable: s.outcome.Sync.Unreachable, Recorded: recorded}
	if cancelled {
		return SyncResult{}, temporal.NewCanceledError(message, detail)
	}
	return SyncResult{}, temporal.NewNonRetryableApplicationError(message, reason, nil, detail)
}

func (s *sync) whyCancelled() string {
	if s.rejection != "" {
		return s.rejection
	}
	if s.supersededBy != "" {
		return fmt.Sprintf("superseded by %s while it was at: %s", s.supersededBy, s.status.Step)
	}
	return "the sync was cancelled while it was at: " + s.status.Step
}

func (s *sync) writeRecord(ctx workflow.Context) error {
	return callOnly(ctx, s.option("record: "+s.outcome.Reason, "record", time.Minute), act.RecordSync, s.outcome)
}

// gate waits until a wave may begin (S17, D23, D24): for the health of the wave before, and then for a person. It holds
// no worker: the waiting is a timer, an update, or an activity that looks and gives its slot back.
func (s *sync) gate(ctx workflow.Context, wave activities.PlannedWave) error {
	in := s.atWave(wave)
	s.atGate = s.approvalAt(wave)
	defer func() { s.atGate = nil }()
	if s.veto() == nil {
		err := s.marking(ctx, wave, wave.Strategy != v1alpha1.HealthDelay, func() error { return s.health(ctx, wave, in) })
		if err != nil && !errors.Is(err, errVetoed) {
			return err
		}
	}
	if veto := s.veto(); veto != nil {
		return s.refuse(ctx, veto)
	}
	return s.marking(ctx, wave, false, func() error { return s.approval(ctx, wave, in) })
}

// atWave is what the activities of a gate need to know of it.
func (s *sync) atWave(wave activities.PlannedWave) activities.WaveInput {
	return activities.WaveInput{
		Sync: s.plan.Sync, Wave: wave.After, Blocks: wave.Number, Final: wave.Final, Current: wave.Current, Failed: wave.Failed,
	}
}

// health waits for the wave before.
func (s *sync) health(ctx workflow.Context, wave activities.PlannedWave, in activities.WaveInput) error {
	switch wave.Strategy {
	case v1alpha1.HealthDelay:
		return s.delay(ctx, wave, in)
	case v1alpha1.HealthReady, v1alpha1.HealthExpression:
		return s.awaitHealth(ctx, wave, in)
	}
	return nil
}

// gateID names a gate in the ids of its activities.
func gateID(wave activities.PlannedWave) string {
	if wave.Final {
		return "final-gate"
	}
	return fmt.Sprintf("wave-%d", wave.Number)
}

// delay waits a number of seconds after the wave before was applied.
func (s *sync) delay(ctx workflow.Context, wave activities.PlannedWave, in activities.WaveInput) error {
	until := s.appliedAt.Add(wave.Delay)
	left := until.Sub(workflow.Now(ctx))
	if left <= 0 {
		return nil
	}
	s.wait(fmt.Sprintf("%s waits %s after wave %d", wave.Name(), wave.Delay, wave.After))
	err := callOnly(ctx, s.option(wave.Name()+": announce the delay", "delay-"+gateID(wave), time.Minute),
		act.AnnounceDelay, activities.DelayInput{WaveInput: in, Until: until})
	if err != nil {
		return err
	}
	if wave.Timeout > 0 && wave.Timeout < left {
		if err := s.sleep(ctx, wave.Timeout, wave.Name()+": timeout of the wait"); err != nil {
			return err
		}
		return timedOut(wave)
	}
	return s.sleep(ctx, until.Sub(workflow.Now(ctx)), fmt.Sprintf("%s: wait %s after wave %d", wave.Name(), wave.Delay, wave.After))
}

// sleep waits, unless the sync is superseded (D23) or rejected.
func (s *sync) sleep(ctx workflow.Context, d time.Duration, summary string) error {
	timing, stop := workflow.WithCancel(ctx)
	defer stop()
	if s.hearOrder() {
		return s.giveWay()
	}
	timer := workflow.NewTimerWithOptions(timing, d, workflow.TimerOptions{Summary: summary})
	var err error
	selector := workflow.NewSelector(ctx)
	selector.AddReceive(s.superseding, func(workflow.ReceiveChannel, bool) { s.hearOrder(); err = s.giveWay() })
	selector.AddReceive(s.vetoed, func(c workflow.ReceiveChannel, _ bool) { c.ReceiveAsync(nil); err = errVetoed })
	selector.AddFuture(timer, func(f workflow.Future) { err = f.Get(ctx, nil) })
	selector.Select(ctx)
	return err
}

// errSuperseded ends a sync at its wait; errVetoed ends a wait for health or time whose gate was rejected meanwhile.
var (
	errSuperseded = errors.New("superseded")
	errVetoed     = errors.New("rejected")
)

func openSupersede(ctx workflow.Context) workflow.ReceiveChannel {
	return workflow.GetSignalChannelWithOptions(ctx, SignalSupersede, workflow.SignalChannelOptions{
		Description: "end at the wait at a wave, because something newer is to be synced",
	})
}

// hearOrder reports whether the loop has said that something newer is to be synced.
func (s *sync) hearOrder() bool {
	var order Supersede
	for s.superseding.ReceiveAsync(&order) {
		if s.order = order.By; s.order == "" {
			s.order = "something newer"
		}
	}
	return s.order != ""
}

// giveWay ends the sync for something newer.
func (s *sync) giveWay() error {
	s.supersededBy = s.order
	return errSuperseded
}

// awaitHealth polls until the wave before is healthy. Its timeout is a timer of the workflow, so the wait survives
// everything and costs nothing.
func (s *sync) awaitHealth(ctx workflow.Context, wave activities.PlannedWave, in activities.WaveInput) error {
	summary := fmt.Sprintf("%s: wait for wave %d to be healthy", wave.Name(), wave.After)
	s.wait(summary)
	looking, stop := workflow.WithCancel(ctx)
	defer stop()
	options := s.option(summary, "await-"+gateID(wave), time.Minute)
	options.ScheduleToCloseTimeout = 0
	look := workflow.ExecuteActivity(workflow.WithActivityOptions(looking, options), act.AwaitWave, in)
	end, err := s.firstOf(ctx, look, wave.Timeout, summary)
	if end == ended {
		return err
	}
	stop()
	if look.Get(ctx, nil) == nil { // it was healthy after all
		return nil
	}
	switch end {
	case superseded:
		return s.giveWay()
	case rejected:
		return errVetoed
	}
	return timedOut(wave)
}

// waitEnd is what ended the wait for a wave's health.
type waitEnd int

const (
	ended waitEnd = iota
	late
	superseded
	rejected
)

// firstLook is how long the first look at a wave may take. Until then a sync does not count as waiting: one that is
// superseded at every gate would otherwise never come to its prune.
const firstLook = 3 * time.Second

// firstOf waits for the health, the timeout, or the end of a superseded sync's patience.
func (s *sync) firstOf(ctx workflow.Context, look workflow.Future, timeout time.Duration, summary string) (end waitEnd, err error) {
	timing, stopTimers := workflow.WithCancel(ctx)
	defer stopTimers()
	began, decided := workflow.Now(ctx), false
	decide := func(e waitEnd) { end, decided = e, true }
	selector := workflow.NewSelector(ctx)
	selector.AddFuture(look, func(f workflow.Future) { err = f.Get(ctx, nil); decide(ended) })
	if timeout > 0 {
		timer := workflow.NewTimerWithOptions(timing, timeout, workflow.TimerOptions{Summary: summary + ": timeout"})
		selector.AddFuture(timer, func(f workflow.Future) {
			if f.Get(ctx, nil) == nil {
				decide(late)
			}
		})
	}
	giveWay := func(workflow.ReceiveChannel, bool) {
		if !s.hearOrder() {
			return
		}
		left := firstLook - workflow.Now(ctx).Sub(began)
		if left <= 0 {
			decide(superseded)
			return
		}
		patience := workflow.NewTimerWithOptions(timing, left, workflow.TimerOptions{Summary: "superseded, if it is not healthy at once"})
		selector.AddFuture(patience, func(f workflow.Future) {
			if f.Get(ctx, nil) == nil {
				decide(superseded)
			}
		})
	}
	giveWay(nil, false)
	selector.AddReceive(s.superseding, giveWay)
	selector.AddReceive(s.vetoed, func(c workflow.ReceiveChannel, _ bool) { c.ReceiveAsync(nil); decide(rejected) })
	for !decided {
		selector.Select(ctx)
	}
	return end, err
}

func timedOut(wave activities.PlannedWave) error {
	return temporal.NewNonRetryableApplicationError(
		fmt.Sprintf("%s waited for wave %d longer than its timeout of %s; status.waves says for what", wave.Name(), wave.After, wave.Timeout),
		string(release.WaveTimeout), nil)
}

// call runs an activity with the types of its method.
func call[In, Out any](ctx workflow.Context, options workflow.ActivityOptions, activity func(context.Context, In) (Out, error), in In) (Out, error) {
	var out Out
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), activity, in).Get(ctx, &out)
	return out, err
}

// callOnly runs an activity that has no result.
func callOnly[In any](ctx workflow.Context, options workflow.ActivityOptions, activity func(context.Context, In) error, in In) error {
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), activity, in).Get(ctx, nil)
}

// option is how every step is run. A worker's death is no failure of the Release, so attempts are unlimited, and only
// Waiting and Interrupted are retried at all: faults of the world are retried inside an attempt (D22).
func (s *sync) option(summary, id string, attempt time.Duration) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		ActivityID:             id,
		Summary:                summary,
		StartToCloseTimeout:    attempt,
		ScheduleToCloseTimeout: max(time.Hour, 2*attempt),
		HeartbeatTimeout:       s.heartbeat,
		WaitForCancellation:    true,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    500 * time.Millisecond,
			BackoffCoefficient: 2,
			MaximumInterval:    10 * time.Second,
			NonRetryableErrorTypes: []string{
				string(release.Unappliable), string(release.DeployFailed), string(release.PruneFailed),
				string(release.RenderFailed), string(release.HookFailed), string(release.Superseded),
				activities.Refused, activities.Fenced, "PanicError", "payloadSizeError",
			},
		},
	}
}

// fencedBy reads the SyncRef out of a failed PrepareSync: set once it had taken the fence.
func fencedBy(err error) activities.SyncRef {
	var failure *temporal.ApplicationError
	var ref activities.SyncRef
	if errors.As(err, &failure) && failure.HasDetails() && failure.Details(&ref) != nil {
		return activities.SyncRef{}
	}
	return ref
}

// reasonOf is the reason that an error gives the Release.
func reasonOf(err error) string {
	var failure *temporal.ApplicationError
	if errors.As(err, &failure) && known(failure.Type()) {
		return failure.Type()
	}
	return string(release.DeployFailed)
}

func known(kind string) bool {
	switch kind {
	case string(release.Unappliable), string(release.DeployFailed), string(release.PruneFailed), string(release.RenderFailed),
		string(release.HookFailed), string(release.WaveTimeout), string(release.Superseded), activities.Refused, activities.Fenced:
		return true
	}
	return false
}

// messageOf is the message of the application error, or says which step timed out.
func messageOf(err error) string {
	var failure *temporal.ApplicationError
	if errors.As(err, &failure) {
		return failure.Message()
	}
	var step *temporal.ActivityError
	var timeout *temporal.TimeoutError
	if errors.As(err, &step) && errors.As(err, &timeout) {
		if timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE {
			return fmt.Sprintf("step %s did not end in time, on any worker", step.ActivityID())
		}
		return fmt.Sprintf("step %s: %s", step.ActivityID(), timeout.Error())
	}
	return err.Error()
}

// success is one line about a sync that succeeded.
func (s *sync) success() string {
	parts := []string{fmt.Sprintf("applied %s of render %s", release.Count(s.plan.Objects, "object"), release.ShortDigest(s.plan.Sync.Digest))}
	if s.plan.Pinned {
		parts[0] += ", which spec.pin holds"
	}
	if s.result.Pruned > 0 {
		parts = append(parts, fmt.Sprintf("pruned %d", s.result.Pruned))
	}
	if s.result.HookFailed != "" {
		parts = append(parts, s.result.HookFailed)
	}
	return strings.Join(parts, "; ")
}
