package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
)

var workflowsResult = workflows.SyncResult{Digest: digestB, Objects: 16, Changed: 4, Pruned: 1}

// fakeRun is a sync that shows one look a second and then ends.
type fakeRun struct {
	looks   []look
	seen    int
	err     error
	workers int
}

func (f *fakeRun) look(context.Context) look {
	l := f.looks[min(f.seen, len(f.looks)-1)]
	f.seen++
	return l
}

func (f *fakeRun) result(ctx context.Context) (workflows.SyncResult, error) {
	select {
	case <-time.After(time.Duration(len(f.looks))*lookEvery - lookEvery/2):
		return workflowsResult, f.err
	case <-ctx.Done():
		return workflows.SyncResult{}, ctx.Err()
	}
}

func (f *fakeRun) pollers(context.Context) (int, error) { return f.workers, nil }

// watchFake watches a run in a bubble of its own time.
func watchFake(t *testing.T, run *fakeRun, made func(*bytes.Buffer) screen, cancelAfter time.Duration) (out string, err error) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if cancelAfter > 0 {
			time.AfterFunc(cancelAfter, cancel)
		}
		var buffer bytes.Buffer
		w := &watcher{run: run, screen: made(&buffer), taskQueue: "convoy"}
		_, err = w.watch(ctx)
		out = buffer.String()
	})
	return out, err
}

func asLines(w *bytes.Buffer) screen { return &lines{w: w, now: time.Now, start: time.Now()} }

func TestWatchingPrintsALineForEachChange(t *testing.T) {
	out, err := watchFake(t, &fakeRun{looks: []look{{}, waitingLook(), applyingLook()}, workers: 1}, asLines, 0)
	require.NoError(t, err)
	require.Equal(t, `    0s  step starting
    1s  render bbbbbbbbbbbb
    1s  step apply: wave 1: wait for wave 0 to be healthy
    1s  wave 0 applied (12/12 objects applied)
    1s  wave 1 waiting (0/4 objects applied)
    1s  wave 1 is blocked by Deployment shop/web: 1/3[31m available
    2s  step apply
    2s  wave 1 applying (2/4 objects applied)
`, out)
}

func TestWatchingInATerminalRedrawsInPlace(t *testing.T) {
	made := func(w *bytes.Buffer) screen {
		return &live{w: w, title: "t", now: time.Now, start: time.Now(), size: func() (int, int) { return 80, 24 }}
	}
	out, err := watchFake(t, &fakeRun{looks: []look{{}, waitingLook(), applyingLook()}, workers: 1}, made, 0)
	require.NoError(t, err)
	frames := strings.Split(out, clearDown)
	require.Len(t, frames, 5, "nothing, three looks, and the last one at the end")
	for i := 1; i < len(frames)-1; i++ {
		drawn := strings.Count(frames[i], "\n")
		require.True(t, strings.HasSuffix(frames[i], fmt.Sprintf(cursorUp, drawn)), "frame %d: %q", i, frames[i])
	}
	require.NotContains(t, frames[4], "\x1b", "the end leaves the cursor below the last frame")
}

func TestWatchingReturnsTheEndOfTheSync(t *testing.T) {
	_, err := watchFake(t, &fakeRun{looks: []look{{}}, err: errors.New("boom"), workers: 1}, asLines, 0)
	require.ErrorContains(t, err, "boom")
}

func TestCtrlCEndsTheWatching(t *testing.T) {
	run := &fakeRun{looks: make([]look, 100), workers: 1}
	_, err := watchFake(t, run, asLines, 2500*time.Millisecond)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 3, run.seen)
}

func TestWatchingSaysThatNoWorkerIsThere(t *testing.T) {
	out, err := watchFake(t, &fakeRun{looks: []look{{}, {}, {}}}, asLines, 0)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(out, "no worker polls task queue convoy"))
	require.Contains(t, out, "worker --task-queue convoy")
}

func TestTheSummaryInTemporalNamesWhereAndHow(t *testing.T) {
	rel := waitingRelease()
	require.Equal(t, "team-a/shop -> prod-eu (manual)", staticSummary(rel, syncFlags{}))
	rel.Spec.ClusterRef = nil
	require.Equal(t, "team-a/shop -> control cluster (manual, force, render aaaaaaaaaaaa)",
		staticSummary(rel, syncFlags{force: true, digest: digestA}))
	require.Contains(t, staticDetails(rel, syncFlags{requestedBy: "alice\x1b", force: true}), "asked for by alice\n")
}
