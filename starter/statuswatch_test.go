package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/control"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// S31: waves with bars, and what blocks them since when, from the status of the Release alone.
func TestWatchDrawsWhatTheReleaseSays(t *testing.T) {
	rel := waitingRelease()
	got := progressOfRelease(rel, noon).draw("team-a/shop -> prod-eu", 0, 120, 40)
	require.Equal(t, []string{
		"team-a/shop -> prod-eu  render bbbbbbbbbbbb  0s",
		"  Running: waiting for wave 0 to be healthy",
		"  wave 0    [########################] 12/12  Applied",
		"  wave 1    [------------------------] 0/3  Waiting",
		"            blocked by Deployment shop/web: 1/3[31m available (for 95s)",
		"            and 18 more",
	}, got)
	later := progressOfRelease(rel, noon.Add(time.Minute))
	require.Empty(t, later.changes(progressOfRelease(rel, noon)), "that time passes is no news")

	wave := &rel.Status.Waves[1]
	wave.Phase, wave.BlockedByTotal = v1alpha1.WaveApplied, 1
	wave.BlockedBy = []v1alpha1.Blocker{{Object: "approval", Message: "convoy approve", Since: before(time.Minute)}}
	require.Contains(t, strings.Join(progressOfRelease(rel, noon).draw("t", 0, 120, 40), "\n"), "final gate blocked by approval: convoy approve (for 60s)")
	require.Contains(t, progressOfRelease(rel, noon).changes(progress{}), "the final gate is blocked by approval: convoy approve (for 60s)")
}

func TestWatchNamesTheState(t *testing.T) {
	rel := waitingRelease()
	rel.Status.LastAttempted.Result, rel.Status.LastAttempted.Reason = v1alpha1.ResultFailed, "DeployFailed"
	require.Equal(t, "Failed (DeployFailed)", stateOf(rel))
	withCondition(rel, "Ready", "False", "OutOfSync", "m")
	require.Equal(t, "Out of sync", stateOf(rel))
	rel.Spec.Suspend = true
	require.Equal(t, "Suspended", stateOf(rel))
	rel.DeletionTimestamp = beforeP(0)
	require.Equal(t, "Deleting", stateOf(rel))
	require.Equal(t, "Never synced", stateOf(&v1alpha1.Release{}))
}

// The time that a wave is blocked goes on between two states, and a control cluster out of reach is told.
func TestWatchGoesOnBetweenStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := &program{stdout: &out, now: time.Now}
		states, ended := make(chan releaseView), make(chan error)
		go func() {
			states <- releaseView{rel: waitingRelease()}
			<-time.After(5 * lookEvery)
			states <- releaseView{lost: errors.New("refused")}
			ended <- io.EOF
		}()
		last, err := p.showStates(t.Context(), states, ended)
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, "shop", last.Name)
		require.Equal(t, 1, strings.Count(out.String(), "Running"))
		require.Contains(t, out.String(), "5s  the control cluster gives no answer")
	})
}

// watching is a `convoy status --watch` that runs.
type watching struct {
	t     *testing.T
	lines *bufio.Scanner
	stop  context.CancelFunc
	code  chan int
}

func (s *stack) watch(arg string) *watching {
	ctx, cancel := context.WithCancel(s.t.Context())
	reader, writer := io.Pipe()
	w := &watching{t: s.t, lines: bufio.NewScanner(reader), stop: cancel, code: make(chan int, 1)}
	s.t.Cleanup(cancel)
	go func() {
		w.code <- run(ctx, []string{"status", arg, "--watch"}, strings.NewReader(""), writer, writer, s.env)
		_ = writer.Close()
	}()
	return w
}

// says reads on until a line holds a text.
func (w *watching) says(text string) {
	w.t.Helper()
	for w.lines.Scan() {
		if strings.Contains(w.lines.Text(), text) {
			return
		}
	}
	require.Fail(w.t, "it ended without saying", text)
}

// ends reads the rest, and requires the exit code.
func (w *watching) ends(code int) {
	w.t.Helper()
	for w.lines.Scan() {
		continue
	}
	require.Equal(w.t, code, <-w.code)
}

// status writes the status of a Release as convoy does: waiting at wave 1, and then as change says.
func (s *stack) status(name string, change func(*v1alpha1.ReleaseStatus)) {
	s.t.Helper()
	rel := &v1alpha1.Release{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	require.NoError(s.t, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(rel), rel))
	if rel.Status.LastAttempted == nil {
		rel.Status = waitingRelease().Status
		for i := range rel.Status.Conditions {
			rel.Status.Conditions[i].ObservedGeneration = rel.Generation
		}
		rel.Status.ObservedGeneration = rel.Generation
	}
	change(&rel.Status)
	require.NoError(s.t, s.client.Status().Update(s.t.Context(), rel))
}

func unchanged(*v1alpha1.ReleaseStatus) {}

// It works without Temporal and without a worker, and ends well.
func TestWatchFollowsTheReleaseUntilItIsGone(t *testing.T) {
	s := newStack(t)
	s.env = append(s.env, "TEMPORAL_ADDRESS=127.0.0.1:1")
	arg := s.release("shop", configMap("a", ""), pruning)
	w := s.watch(arg)
	w.says("Never synced")
	s.status("shop", unchanged)
	w.says("Running: waiting for wave 0")
	w.says("wave 1 waiting (0/3 objects applied)")
	w.says("wave 1 is blocked by Deployment shop/web: 1/3[31m available (for ")
	s.status("shop", func(status *v1alpha1.ReleaseStatus) {
		status.Waves[1].Phase, status.Waves[1].Applied, status.Waves[1].BlockedBy = v1alpha1.WaveApplied, 3, nil
	})
	w.says("wave 1 applied (3/3 objects applied)")
	require.NoError(t, s.client.Delete(t.Context(), &v1alpha1.Release{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "shop"}}))
	w.says("Release " + arg + " is deleted")
	w.ends(exitDone)
}

func TestWatchEndsWellOnCtrlC(t *testing.T) {
	s := newStack(t)
	w := s.watch(s.release("shop", configMap("a", ""), pruning))
	w.says("Never synced")
	w.stop()
	w.ends(exitDone)
	require.Equal(t, exitNotFound, s.run("status", s.namespace+"/nope", "--watch").code)
	require.Equal(t, exitUsage, s.run("status", s.namespace+"/nope", "--watch", "-o", "json").code)
}

// flaky refuses the first watch and the read after it, and ends the second watch at once.
type flaky struct {
	reads, watches  atomic.Int32
	refused, closed atomic.Int32
}

func (f *flaky) send(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	watches := req.URL.Query().Has("watch")
	switch {
	case watches && f.watches.Add(1) == 1, !watches && strings.Contains(req.URL.Path, "/releases/") && f.reads.Add(1) == 2:
		f.refused.Add(1)
		return nil, syscall.ECONNREFUSED
	}
	answer, err := next.RoundTrip(req)
	if watches && err == nil && f.watches.Load() == 2 {
		f.closed.Add(1)
		_ = answer.Body.Close()
		answer.Body = http.NoBody
	}
	return answer, err
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A watch goes on after the control cluster was out of reach, and after the API server has ended it.
func TestWatchSurvivesItsConnection(t *testing.T) {
	s := newStack(t)
	s.release("shop", configMap("a", ""), pruning)
	broken := &flaky{}
	s.cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(req *http.Request) (*http.Response, error) { return broken.send(next, req) })
	})
	cluster, err := control.New(s.cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	seen, lost, ended := make(chan *v1alpha1.Release, 10), make(chan error, 10), make(chan error, 1)
	go func() {
		ended <- cluster.Watch(ctx, s.namespace, "shop", func(rel *v1alpha1.Release) { seen <- rel }, func(err error) { lost <- err })
	}()
	require.Nil(t, (<-seen).Status.LastAttempted)
	require.ErrorIs(t, <-lost, syscall.ECONNREFUSED)
	require.ErrorIs(t, <-lost, syscall.ECONNREFUSED)
	s.status("shop", unchanged)
	for (<-seen).Status.LastAttempted == nil {
		continue
	}
	s.status("shop", func(status *v1alpha1.ReleaseStatus) { status.WavesTotal = 7 })
	for (<-seen).Status.WavesTotal != 7 {
		continue
	}
	s.status("shop", func(status *v1alpha1.ReleaseStatus) { status.WavesTotal = 8 })
	for (<-seen).Status.WavesTotal != 8 {
		continue
	}
	require.EqualValues(t, 2, broken.refused.Load())
	require.Positive(t, broken.closed.Load())
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}
