package workflows

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"
)

// life is one run of a ReleaseWorkflow in the SDK's test environment, where time passes by itself. Observe and the
// syncs are played; every look and every sync is written down.
type life struct {
	*testsuite.TestWorkflowEnvironment
	t     *testing.T
	began time.Time
	looks []look
	syncs []started
	// until is when the Release goes away, which ends the loop.
	until time.Duration
	// sees changes what Observe finds: without it a Release that is synced once, when a request waits, when its sync
	// failed and the time has come, and when changed says so.
	sees    func(in activities.ObserveInput, seen *activities.Observation)
	changed bool
	cadence release.Cadence
	spec    string
	digest  string
	// syncing plays a sync; without it one succeeds after a second.
	syncing func(ctx workflow.Context, n int, in SyncInput) (SyncResult, error)
	// noLook fails the looks, each by its number from 1.
	noLook map[int]error
	last   *activities.Ended
	status []v1alpha1.HandledRequest
}

// look is one look at the Release, and started one sync or deletion.
type look struct {
	at time.Duration
	in activities.ObserveInput
}

type started struct {
	at       time.Duration
	in       SyncInput
	deletion bool
}

func newLife(t *testing.T) *life {
	t.Helper()
	suite := testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	l := &life{
		TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment(), t: t, until: 24 * time.Hour, spec: "s1", digest: "sha256:abc",
		cadence: release.Cadence{Interval: 5 * time.Minute, RetryInitial: 10 * time.Second, RetryMax: 5 * time.Minute},
	}
	unhurried(l.TestWorkflowEnvironment)
	l.began = l.Now()
	w := &Workflows{HeartbeatTimeout: 10 * time.Second}
	l.RegisterWorkflowWithOptions(w.ReleaseWorkflow, workflow.RegisterOptions{Name: "ReleaseWorkflow"})
	// No mocks of the environment: of those a parent hears that they have started when they have ended.
	for name, deletion := range map[string]bool{"SyncWorkflow": false, "DeleteWorkflow": true} {
		l.RegisterWorkflowWithOptions(func(ctx workflow.Context, in SyncInput) (SyncResult, error) {
			return l.sync(ctx, in, deletion)
		}, workflow.RegisterOptions{Name: name})
	}
	l.RegisterActivity(&activities.Activities{})
	l.OnActivity(act.Observe, mock.Anything, mock.Anything).Return(l.observe)
	return l
}

// passed is how long the loop has lived.
func (l *life) passed() time.Duration { return l.Now().Sub(l.began) }

func (l *life) observe(_ context.Context, in activities.ObserveInput) (activities.Observation, error) {
	l.looks = append(l.looks, look{l.passed(), in})
	if err := l.noLook[len(l.looks)]; err != nil {
		return activities.Observation{}, err
	}
	seen := activities.Observation{Action: release.ActNothing, UID: "u", Generation: 1, Spec: l.spec, Digest: l.digest, Cadence: l.cadence, Last: l.last}
	l.status = append(l.status, in.Answers...)
	for _, handled := range l.status {
		if in.First || slices.Contains(in.Requests, handled.ID) {
			seen.Handled = append(seen.Handled, handled)
		}
	}
	open := slices.DeleteFunc(slices.Clone(in.Requests), func(id string) bool { return release.Handled(l.status, id) })
	switch {
	case l.passed() >= l.until:
		seen = activities.Observation{Action: release.ActGone}
	case in.Running != nil:
		seen.Action = release.ActBusy
	case l.last == nil, len(open) > 0, l.changed, in.Due && l.last.Result != "Succeeded":
		seen.Action, l.changed = release.ActSync, false
	}
	if l.sees != nil {
		l.sees(in, &seen)
	}
	if seen.Action == release.ActNothing || seen.Action == release.ActOutOfSync {
		seen.NextAt = l.cadence.Next("u", l.Now(), 0)
		if seen.Action == release.ActNothing && !in.RetryAt.IsZero() {
			seen.NextAt = in.RetryAt
		}
	}
	return seen, nil
}

func (l *life) sync(ctx workflow.Context, in SyncInput, deletion bool) (SyncResult, error) {
	l.syncs = append(l.syncs, started{l.passed(), in, deletion})
	play := l.syncing
	if play == nil {
		play = takes(oneSync)
	}
	result, err := play(ctx, len(l.syncs), in)
	l.last = &activities.Ended{RunID: workflow.GetInfo(ctx).WorkflowExecution.RunID, Result: "Succeeded", Reason: "Succeeded", Digest: result.Digest}
	if err != nil {
		l.last.Result, l.last.Reason = "Failed", reasonOf(err)
	}
	return result, err
}

// lives runs the loop to its end, which has to be a good one.
func (l *life) lives() {
	l.t.Helper()
	l.runs(nil)
	require.NoError(l.t, l.GetWorkflowError())
}

func (l *life) runs(memory *Memory) {
	l.t.Helper()
	l.ExecuteWorkflow("ReleaseWorkflow", ReleaseInput{Namespace: "team-a", Name: "shop", Memory: memory})
	require.True(l.t, l.IsWorkflowCompleted())
}

// at does something when the loop has lived that long.
func (l *life) at(when time.Duration, do func()) { l.RegisterDelayedCallback(do, when) }

// asks sends a sync request.
func (l *life) asks(when time.Duration, request SyncRequest) {
	l.at(when, func() { l.SignalWorkflow(SignalSync, request) })
}

// started are the syncs as "0s 10s", and requested what they serve as "a,b | c".
func (l *life) started() string {
	var out []string
	for _, s := range l.syncs {
		out = append(out, s.at.Round(time.Second).String())
	}
	return strings.Join(out, " ")
}

func (l *life) requested() string {
	var out []string
	for _, s := range l.syncs {
		line := strings.Join(s.in.Loop.Requests, ",")
		if s.in.Force {
			line += "!"
		}
		out = append(out, line)
	}
	return strings.Join(out, " | ")
}

// looked are the looks after a time and before another, in seconds.
func (l *life) looked(from, to time.Duration) int {
	n := 0
	for _, look := range l.looks {
		if look.at >= from && look.at < to {
			n++
		}
	}
	return n
}

// updated is what became of an update.
type updated struct {
	rejected, failed error
	answer           *SyncAnswer
	at               time.Duration
}

func (l *life) update(when time.Duration, request SyncRequest) *updated {
	u := &updated{}
	l.at(when, func() {
		l.UpdateWorkflow(UpdateSync, fmt.Sprintf("update-%s", when), &testsuite.TestUpdateCallback{
			OnAccept: func() {},
			OnReject: func(err error) { u.rejected = err },
			OnComplete: func(answer any, err error) {
				u.at, u.failed = l.passed(), err
				if a, ok := answer.(SyncAnswer); ok && err == nil {
					u.answer = &a
				}
			},
		}, request)
	})
	return u
}

// query asks for the status of the loop.
func (l *life) query() LoopStatus {
	value, err := l.QueryWorkflow(QueryStatus)
	require.NoError(l.t, err)
	var status LoopStatus
	require.NoError(l.t, value.Get(&status))
	return status
}

// ends is a sync that ends so after a second.
func ends(reason string, detail SyncFailure) func(workflow.Context, int, SyncInput) (SyncResult, error) {
	return func(ctx workflow.Context, _ int, _ SyncInput) (SyncResult, error) {
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return SyncResult{}, err
		}
		return SyncResult{}, temporal.NewNonRetryableApplicationError("it went wrong", reason, nil, detail)
	}
}

// takes is a sync that succeeds after a while, unless it is cancelled.
func takes(d time.Duration) func(workflow.Context, int, SyncInput) (SyncResult, error) {
	return func(ctx workflow.Context, _ int, _ SyncInput) (SyncResult, error) {
		return SyncResult{Digest: "sha256:abc"}, workflow.Sleep(ctx, d)
	}
}

// thereafter plays the first sync in one way and the others in another.
func thereafter(first, others func(workflow.Context, int, SyncInput) (SyncResult, error)) func(workflow.Context, int, SyncInput) (SyncResult, error) {
	return func(ctx workflow.Context, n int, in SyncInput) (SyncResult, error) {
		if n == 1 {
			return first(ctx, n, in)
		}
		return others(ctx, n, in)
	}
}

// oneSync is how long a sync takes that a test says nothing about.
const oneSync = time.Second

// tick is a duration as the Release with the uid u spreads it.
func tick(d time.Duration) time.Duration { return release.Spread("u", d) }
