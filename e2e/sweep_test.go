package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
)

// The kill sweep: one fixed sync (hooks on both sides, two waves, a prune) is run again and again, and each time the
// worker is killed at another of its requests: once before the request is sent, once when its answer has come to the
// proxy and not to the worker. CONVOY_SWEEP=all (make sweep) visits every position, otherwise a few are chosen;
// CONVOY_SWEEP_SEED chooses the same ones again.
const (
	sweepSample = 6
	sweepLanes  = 6
)

// D13 D16 D22 D25 S20 S21 S24: wherever a worker dies, the sync finishes on another one as if nothing had happened: the
// inventory and the cluster agree exactly, no hook ran twice, and nothing was pruned that convoy had not applied.
func TestSweep_a_worker_killed_at_any_request_changes_nothing_in_the_result(t *testing.T) {
	t.Parallel()
	first := newSweepLane(t)
	requests := first.requestsOfOneSync()
	positions := sweepPositions(t, requests)
	todo := make(chan position, len(positions))
	for _, at := range positions {
		todo <- at
	}
	close(todo)
	lanes := min(sweepLanes, (len(positions)+1)/2)
	var done, missed atomic.Int32
	var running sync.WaitGroup
	for i := range lanes { // they wait most of the time: go test -parallel does not count them
		running.Go(func() {
			t.Run(fmt.Sprintf("lane %d", i), func(t *testing.T) {
				lane := newSweepLane(t)
				for at := range todo {
					began := time.Now()
					outcome := "killed"
					if !lane.sync(at) {
						missed.Add(1)
						outcome = "the sync had fewer requests"
					}
					t.Logf("%d/%d: %s: %s, %s", done.Add(1), len(positions), at, outcome, time.Since(began).Round(100*time.Millisecond))
				}
			})
		})
	}
	running.Wait()
	t.Logf("%d positions of %d requests, %d not reached", len(positions), requests, missed.Load())
}

// position is where the worker is killed: at the n-th request of the sync, from 1.
type position struct {
	n        int
	answered bool // after the answer, not before the request
}

func (p position) String() string {
	if p.answered {
		return fmt.Sprintf("after the answer to request %d", p.n)
	}
	return fmt.Sprintf("before request %d", p.n)
}

// sweepPositions are all positions, or a sample. How often hooks are looked at varies, so a few more are tried.
func sweepPositions(t *testing.T, requests int) []position {
	var all []position
	for n := 1; n <= requests+4; n++ {
		all = append(all, position{n, false}, position{n, true})
	}
	if os.Getenv("CONVOY_SWEEP") == "all" {
		return all
	}
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("CONVOY_SWEEP_SEED"); given != "" {
		var err error
		seed, err = strconv.ParseUint(given, 10, 64)
		require.NoError(t, err, "CONVOY_SWEEP_SEED")
	}
	t.Logf("the sample of CONVOY_SWEEP_SEED=%d; CONVOY_SWEEP=all visits all %d positions", seed, len(all))
	all = all[:2*requests]
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] }) //nolint:gosec // positions
	return all[:sweepSample]
}

// sweepLane is one Release that is synced again and again. The worker that finished one sync is the next one's victim.
type sweepLane struct {
	*world
	proxy     *proxy
	victim    *workerProcess
	round     int
	bystander string // resourceVersion
}

func newSweepLane(t *testing.T) *sweepLane {
	l := &sweepLane{world: newWorld(t)}
	l.byHand(manifest(l.ns, "bystander", 0, "by hand"))
	l.bystander = l.configMap("bystander").ResourceVersion
	l.proxy = l.world.proxy()
	l.startWorker()
	l.release("shop", l.manifests(), func(rel *v1alpha1.Release) {
		rel.Spec.Hooks.PreSync = []v1alpha1.Hook{jobHook(l.ns, "pre", "1")}
		rel.Spec.Hooks.PostSync = []v1alpha1.Hook{jobHook(l.ns, "post", "1")}
	})
	l.succeeds("shop")
	return l
}

func (l *sweepLane) startWorker() {
	l.victim = l.workerAt(l.proxy, nil, "--heartbeat-timeout", "2s")
}

// manifests of a round: two waves of three objects; one of each is new and gone in the next round.
func (l *sweepLane) manifests() string {
	v := strconv.Itoa(l.round)
	return manifest(l.ns, "a", 0, v) + manifest(l.ns, "b", 0, "same") + manifest(l.ns, "new-"+v, 0, v) +
		manifest(l.ns, "c", 1, v) + manifest(l.ns, "d", 1, "same") + manifest(l.ns, "late-"+v, 1, v)
}

func (l *sweepLane) expected() []string {
	v := strconv.Itoa(l.round)
	return []string{l.cm("a"), l.cm("b"), l.cm("new-" + v), l.cm("c"), l.cm("d"), l.cm("late-" + v)}
}

// isOurs leaves out reads of inventories of other tests' Releases: how many there are is not up to this sync.
func (l *sweepLane) isOurs(call *apiCall) bool {
	return !strings.Contains(call.path, "/releaseinventories/") || strings.Contains(call.path, "/"+l.ns+"/")
}

// requestsOfOneSync counts the requests of an undisturbed sync.
func (l *sweepLane) requestsOfOneSync() int {
	l.Helper()
	before := l.proxy.count(l.isOurs)
	require.False(l, l.sync(position{}))
	return l.proxy.count(l.isOurs) - before
}

// sync runs the next round, kills the worker at a position, and lets a new one go on. It reports whether the position
// was reached.
func (l *sweepLane) sync(at position) (reached bool) {
	l.Helper()
	l.round++
	l.render("shop", l.manifests())
	sent := l.proxy.count(nil)
	killed := l.killAt(at)
	run := l.start(workflows.SyncInput{Name: "shop"})
	ended := make(chan struct{})
	go func() {
		_ = run.Get(l.Context(), nil)
		close(ended)
	}()
	select {
	case <-killed:
		reached = true
		l.proxy.around(nil, nil)
		l.nothingIsForgotten(at)
		l.startWorker()
	case <-ended:
		l.proxy.around(nil, nil)
	case <-time.After(patience):
		require.Fail(l, "neither killed nor ended", at.String())
	}
	result, reason := l.await(run)
	require.Equal(l, "Succeeded", reason, "%s: %s", at, l.message("shop"))
	l.isWhole(at, result, l.proxy.list(nil)[sent:])
	return reached
}

// killAt makes the proxy kill the worker at a position; the channel is closed then.
func (l *sweepLane) killAt(at position) <-chan struct{} {
	killed := make(chan struct{})
	victim, counted := l.victim, counter(l.isOurs)
	kill := func() bool {
		victim.kill()
		close(killed)
		return false
	}
	var target atomic.Pointer[apiCall]
	l.proxy.around(func(call *apiCall) bool {
		if counted(call) != at.n || at.n == 0 {
			return true
		}
		target.Store(call)
		return at.answered || kill()
	}, func(call *apiCall) bool {
		return target.Load() != call || !at.answered || kill()
	})
	return killed
}

// nothingIsForgotten: at the moment of the death every object that convoy applied is recorded or pending (D13).
func (l *sweepLane) nothingIsForgotten(at position) {
	l.Helper()
	objects, pending := l.listed("shop")
	for _, record := range l.appliedByConvoy() {
		require.Contains(l, append(objects, pending...), record, "killed %s", at)
	}
}

// isWhole checks everything that a sync promises.
func (l *sweepLane) isWhole(at position, result workflows.SyncResult, sent []apiCall) {
	l.Helper()
	l.agrees("shop", l.expected()...)
	_, pending := l.listed("shop") // what was pruned may stay pending: a later sync looks at it again (D16)
	for _, record := range pending {
		require.Regexp(l, "/(new|late)-", record, at)
	}
	for _, name := range []string{"a", "c", "new-" + strconv.Itoa(l.round), "late-" + strconv.Itoa(l.round)} {
		require.Equal(l, strconv.Itoa(l.round), l.configMap(name).Data["v"], "%s: %s", at, name)
	}
	require.Equal(l, l.bystander, l.configMap("bystander").ResourceVersion, "%s: the bystander was touched", at)
	require.Equal(l, "True/Succeeded", l.applied("shop"), at)
	status := l.get("shop").Status
	require.Equal(l, result.Digest, status.LastSuccessful.Digest, at)
	require.True(l, status.Fence.Acknowledged, at)
	require.Len(l, status.Hooks, 2, at)
	for _, hook := range status.Hooks {
		require.Equal(l, "Succeeded", hook.Result, "%s: %s", at, hook.Name)
		require.Equal(l, result.Digest, hook.Digest, "%s: %s", at, hook.Name)
	}
	l.isInOrder(at, sent)
}

// isInOrder: one Job for each hook (D25), the first before anything is applied, the second after the prune (S1).
func (l *sweepLane) isInOrder(at position, sent []apiCall) {
	l.Helper()
	var jobs, applies, deletes []int
	for i := range sent {
		call := &sent[i]
		switch {
		case call.method == http.MethodPost && strings.HasSuffix(call.path, "/jobs") && call.code == http.StatusCreated:
			jobs = append(jobs, i)
		case isApply(call):
			applies = append(applies, i)
		case isDelete(call) && strings.Contains(call.path, "/configmaps/"):
			deletes = append(deletes, i)
		}
	}
	require.Len(l, jobs, 2, "%s: hooks ran %d times", at, len(jobs))
	require.Less(l, jobs[0], applies[0], at)
	require.Less(l, slices.Max(applies), deletes[0], at)
	require.Less(l, slices.Max(deletes), jobs[1], at)
}
