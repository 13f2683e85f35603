package activities

import (
	"context"
	"errors"
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
	progress  Progress
	kick      chan struct{}
}

// underLease runs do while beats are confirmed. Its context ends when the workflow cancels the step, when the lease
// is lost, and when the worker stops; context.Cause tells which.
func (a *Activities) underLease(ctx context.Context, step string, do func(context.Context, *lease) error) error {
	info := activity.GetInfo(ctx)
	timeout := info.HeartbeatTimeout
	if timeout == 0 {
		timeout = 15 * time.Second
	}
	l := &lease{
		runs: a.runs, token: info.TaskToken, valid: timeout / 2, every: timeout / 5, now: a.now,
		progress: Progress{Step: step}, kick: make(chan struct{}, 1),
	}
	leased, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := l.beat(leased); err != nil {
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
	if err != nil && cause != nil {
		return a.leaseEnd(ctx, cause)
	}
	return err
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
		case <-l.kick:
		case <-ticker.C:
		}
		err := l.beat(ctx)
		switch {
		case err == nil:
		case temporal.IsCanceledError(err), errors.Is(err, ErrLeaseLost),
			errors.Is(err, activity.ErrActivityPaused), errors.Is(err, activity.ErrActivityReset):
			cancel(err)
			return
		case l.guard() != nil:
			cancel(ErrLeaseLost)
			return
		}
	}
}

// beat sends one heartbeat with the whole progress record and waits for the answer.
func (l *lease) beat(ctx context.Context) error {
	l.mu.Lock()
	progress := l.progress
	l.mu.Unlock()
	sent := l.now()
	beatCtx, cancel := context.WithTimeout(ctx, l.valid)
	defer cancel()
	err := l.runs.Beat(beatCtx, l.token, progress)
	if err != nil {
		return err
	}
	l.mu.Lock()
	if sent.After(l.confirmed) {
		l.confirmed = sent
	}
	l.mu.Unlock()
	return nil
}

// guard is the guard of the step's context.
func (l *lease) guard() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now().Sub(l.confirmed) >= l.valid {
		return ErrLeaseLost
	}
	return nil
}

// record changes the progress record that the next beat carries.
func (l *lease) record(change func(*Progress)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.progress)
}

// confirm sends the progress record now and waits until the server has it.
func (l *lease) confirm(ctx context.Context, change func(*Progress)) error {
	l.record(change)
	return l.beat(ctx)
}
