package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/workflows"

	sdk "go.temporal.io/sdk/temporal"
	"golang.org/x/term"
)

// lookEvery is how often a running sync is looked at; workersEvery how often, in looks, its workers are counted while
// none answers.
const (
	lookEvery    = time.Second
	workersEvery = 5
)

// follow shows a sync until it ends, and returns its end as a failure with the code of its reason. When ctx ends the
// watching stops, and the sync goes on.
func (p *program) follow(ctx context.Context, run *temporalRun, rel *v1alpha1.Release) error {
	title := fmt.Sprintf("%s/%s -> %s", rel.Namespace, rel.Name, targetName(rel))
	p.printf("sync %s, workflow %s, run %s", title, run.workflowID, run.runID)
	w := &watcher{run: run, screen: p.screen(title), taskQueue: run.taskQueue}
	result, err := w.watch(ctx)
	if err != nil && ctx.Err() != nil {
		return failf(exitInterrupted, "stopped watching; the sync goes on. Look at it with `convoy status %s/%s`, stop it with `%s`",
			rel.Namespace, rel.Name, cancelCommand(run.workflowID))
	}
	return p.finish(result, err)
}

// finish prints the end of a sync.
func (p *program) finish(result workflows.SyncResult, err error) error {
	if err == nil {
		p.printf("%s: %s", release.Succeeded, resultText(result))
		return nil
	}
	reason, message, ended := endOf(err)
	if !ended {
		return fmt.Errorf("the end of the sync is not known: %w", err)
	}
	return failf(exitOfReason(reason), "%s: %s", reason, message)
}

func resultText(result workflows.SyncResult) string {
	text := fmt.Sprintf("applied %s of render %s, %d changed, %d pruned",
		release.Count(result.Objects, "object"), release.ShortDigest(result.Digest), result.Changed, result.Pruned)
	if result.HookFailed != "" {
		text += "; a postSync hook failed, which changes nothing in the result: " + result.HookFailed
	}
	return text
}

// endOf is the reason of a sync that did not succeed, and what it says. ended is false when the error is about the
// connection and not about the sync.
func endOf(err error) (reason, message string, ended bool) {
	var failed *sdk.ApplicationError
	var cancelled *sdk.CanceledError
	var terminated *sdk.TerminatedError
	switch {
	case errors.As(err, &failed) && failed.Type() == activities.Fenced:
		return activities.Refused, failed.Message(), true
	case errors.As(err, &failed):
		return failed.Type(), failed.Message(), true
	case errors.As(err, &cancelled):
		return string(release.Superseded), "the sync was cancelled", true
	case errors.As(err, &terminated):
		return string(release.Superseded), "the sync was terminated in Temporal: the next one repairs what it left open", true
	}
	return "", "", false
}

// watcher looks at a run until it ends.
type watcher struct {
	run       syncRun
	screen    screen
	taskQueue string
	looks     int
	silent    bool // nobody serves the task queue
}

// screen shows progress.
type screen interface {
	show(p progress)
}

type ending struct {
	result workflows.SyncResult
	err    error
}

func (w *watcher) watch(ctx context.Context) (workflows.SyncResult, error) {
	ended := make(chan ending, 1)
	go func() {
		result, err := w.run.result(ctx)
		ended <- ending{result, err}
	}()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		w.lookOnce(ctx)
		select {
		case end := <-ended:
			if ctx.Err() == nil {
				w.lookOnce(ctx)
			}
			return end.result, end.err
		case <-ctx.Done():
			return workflows.SyncResult{}, ctx.Err()
		case <-ticker.C:
		}
	}
}

func (w *watcher) lookOnce(ctx context.Context) {
	seen := w.run.look(ctx)
	if ctx.Err() != nil {
		return
	}
	if seen.answers() {
		w.silent = false
	} else if w.looks%workersEvery == 0 {
		pollers, err := w.run.pollers(ctx)
		w.silent = err == nil && pollers == 0
	}
	w.looks++
	shown := progressOf(seen)
	if w.silent {
		shown.note = noWorker(w.taskQueue)
	}
	w.screen.show(shown)
}

// screen is the live view in a terminal, and lines elsewhere.
func (p *program) screen(title string) screen {
	file, ok := p.stdout.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || p.env.get("TERM") == "dumb" {
		return &lines{w: p.stdout, now: p.now, start: p.now()}
	}
	size := func() (width, height int) {
		width, height, err := term.GetSize(int(file.Fd()))
		if err != nil {
			return 80, 24
		}
		return width, height
	}
	return &live{w: p.stdout, title: title, now: p.now, start: p.now(), size: size}
}

// lines prints one line for each change.
type lines struct {
	w      io.Writer
	now    func() time.Time
	start  time.Time
	before progress
}

func (l *lines) show(p progress) {
	for _, change := range p.changes(l.before) {
		fmt.Fprintf(l.w, "%6s  %s\n", l.now().Sub(l.start).Round(time.Second), oneLine(change))
	}
	l.before = p
}

// live redraws one block of lines in place.
type live struct {
	w     io.Writer
	title string
	now   func() time.Time
	start time.Time
	size  func() (width, height int)
	drawn int
}

// Control sequences: to the start of the line n lines up, and clear to the end of the screen.
const (
	cursorUp  = "\x1b[%dF"
	clearDown = "\x1b[J"
)

func (l *live) show(p progress) {
	width, height := l.size()
	block := p.draw(l.title, l.now().Sub(l.start), width, height-1)
	var out strings.Builder
	if l.drawn > 0 {
		fmt.Fprintf(&out, cursorUp, l.drawn)
	}
	out.WriteString(clearDown)
	for _, line := range block {
		out.WriteString(line + "\n")
	}
	l.drawn = len(block)
	_, _ = io.WriteString(l.w, out.String())
}
