package activities

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"convoy.dev/convoy/internal/release"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
)

// ErrLeaseLost says that another attempt of this step may be running: stop, and leave no further trace.
var ErrLeaseLost = errors.New("the worker lost touch with Temporal for half a heartbeat timeout: another attempt may run")

// errWorkerStopping says that the worker shuts down: the step goes on elsewhere.
var errWorkerStopping = errors.New("the worker is stopping")

// lease proves that the server still counts on this attempt (D16). One goroutine records heartbeats synchronously;
// a beat is confirmed only when its answer came. The guard of the context lets requests start only within half a
// heartbeat timeout after the last confirmed beat was sent, so a frozen or cut off worker starts none once the server
// could have given the step to another attempt. activity.RecordHeartbeat is no substitute: it confirms nothing.
type lease struct {
	runs  Runs
	token []byte
	valid time.Duration
	every time.Duration
	now   func() time.Time

	mu        sync.Mutex
	confirmed time.Time
	lost      bool // the server said so: another attempt runs, or the workflow has ended
	progress  Progress
}

// underLease runs do while beats are confirmed. Its context ends when the workflow cancels the step, when the lease
// is lost, and when the worker stops; context.Cause tells which.
func (a *Activities) underLease(ctx context.Context, step string, do func(context.Context, *lease) error) error {
	info := activity.GetInfo(ctx)
	timeout := info.HeartbeatTimeout
	if timeout == 0 {
		timeout = 15 * time.Second
	}
	before := progressBefore(ctx)
	l := &lease{
		runs: a.runs, token: info.TaskToken, valid: timeout / 2, every: timeout / 5, now: a.now,
		progress: Progress{Step: step, Job: before.Job, Answer: before.Answer},
	}
	leased, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := l.confirm(leased, func(*Progress) {}); err != nil {
		return a.leaseEnd(ctx, err)
	}
	beating := make(chan struct{})
	go func() {
		defer close(beating)
		l.run(leased, cancel, activity.GetWorkerStopChannel(ctx))
	}()
	err := do(release.WithGuard(leased, l.guard), l)
	cause := context.Cause(leased)
	cancel(nil)
	<-beating
	switch {
	case err == nil:
		return nil
	case cause != nil:
		return a.leaseEnd(ctx, cause)
	case endsLease(err):
		return a.leaseEnd(ctx, err)
	case l.guard() != nil: // whatever the step makes of it, its last request was not allowed to start
		return ErrLeaseLost
	}
	return err
}

// progressBefore is what the last beat of an earlier attempt said. A beat without it would erase it.
func progressBefore(ctx context.Context) Progress {
	var progress Progress
	if !activity.HasHeartbeatDetails(ctx) || activity.GetHeartbeatDetails(ctx, &progress) != nil {
		return Progress{}
	}
	return progress
}

// endsLease reports whether an error is the server's word that the step has to stop. Any other failure of a beat says
// nothing, and the next one may be heard.
func endsLease(err error) bool {
	return temporal.IsCanceledError(err) || errors.Is(err, ErrLeaseLost) ||
		errors.Is(err, activity.ErrActivityPaused) || errors.Is(err, activity.ErrActivityReset)
}

// leaseEnd turns the cause of a lease's end into the error of the step. A cancellation is reported to the SDK through
// its own heartbeat, because only then does it answer the server with "cancelled".
func (a *Activities) leaseEnd(ctx context.Context, cause error) error {
	if temporal.IsCanceledError(cause) {
		activity.RecordHeartbeat(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second):
		}
		return temporal.NewCanceledError()
	}
	return cause
}

// run beats until the context ends.
func (l *lease) run(ctx context.Context, cancel context.CancelCauseFunc, stopping <-chan struct{}) {
	ticker := time.NewTicker(l.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-stopping:
			cancel(errWorkerStopping)
			return
		case <-ticker.C:
		}
		err := l.beat(ctx)
		switch {
		case err == nil:
		case endsLease(err):
			cancel(err)
			return
		case l.guard() != nil:
			cancel(ErrLeaseLost)
			return
		}
	}
}

// beat sends one heartbeat with the whole progress record and waits for the answer. An order to stop confirms the
// lease too: the workflow waits for the step's end.
func (l *lease) beat(ctx context.Context) error {
	l.mu.Lock()
	progress := l.progress
	l.mu.Unlock()
	sent := l.now()
	beatCtx, cancel := context.WithTimeout(ctx, l.valid)
	defer cancel()
	err := l.runs.Beat(beatCtx, l.token, progress)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(err, ErrLeaseLost):
		l.lost = true
	case err != nil && !endsLease(err):
	case sent.After(l.confirmed):
		l.confirmed = sent
	}
	return err
}

// guard is the guard of the step's context.
func (l *lease) guard() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost || elapsed(l.confirmed, l.now()) >= l.valid {
		return ErrLeaseLost
	}
	return nil
}

// elapsed is the longer of what two clocks say: the monotonic one stands still while a machine sleeps, and the wall
// clock may be set back.
func elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// record changes the progress record that the next beat carries.
func (l *lease) record(change func(*Progress)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.progress)
}

// confirm sends the progress record now and waits until the server has it. A step that needs a confirmed beat and does
// not get it has lost touch.
func (l *lease) confirm(ctx context.Context, change func(*Progress)) error {
	l.record(change)
	err := l.beat(ctx)
	if err == nil || endsLease(err) {
		return err
	}
	return fmt.Errorf("%w: %s", ErrLeaseLost, err.Error())
}
