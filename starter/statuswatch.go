package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// watchStatus shows how a Release changes until the watching is stopped or the Release is gone. It reads nothing but the
// Release, so it needs neither Temporal nor a worker.
func (p *program) watchStatus(ctx context.Context, arg string) error {
	namespace, name, err := releaseName(arg)
	if err != nil {
		return err
	}
	cluster, err := p.controlCluster()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	states, ended := make(chan releaseView), make(chan error, 1)
	tell := func(view releaseView) {
		select {
		case states <- view:
		case <-ctx.Done():
		}
	}
	go func() {
		ended <- cluster.Watch(ctx, namespace, name, func(rel *v1alpha1.Release) { tell(releaseView{rel: rel}) },
			func(err error) { tell(releaseView{lost: err}) })
	}()
	last, err := p.showStates(ctx, states, ended)
	switch {
	case ctx.Err() != nil:
		return nil // Ctrl-C is how a watch ends
	case errors.Is(err, release.ErrNotFound) && last != nil:
		p.printf("Release %s is deleted", arg)
		return nil
	}
	return err
}

// releaseView is a state of the Release, or why none could be had.
type releaseView struct {
	rel  *v1alpha1.Release
	lost error
}

// showStates draws each state, and between them the time that passes.
func (p *program) showStates(ctx context.Context, states <-chan releaseView, ended <-chan error) (last *v1alpha1.Release, err error) {
	var shown screen
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	note := ""
	for {
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case err := <-ended:
			return last, err
		case view := <-states:
			note = ""
			if view.lost != nil {
				note = "the control cluster gives no answer: this may be out of date"
			} else {
				last = view.rel
			}
		case <-ticker.C:
		}
		if last == nil {
			continue
		}
		if shown == nil {
			shown = p.screen(fmt.Sprintf("%s/%s -> %s", last.Namespace, last.Name, targetName(last)))
		}
		drawn := progressOfRelease(last, p.now())
		drawn.note = note
		shown.show(drawn)
	}
}

// progressOfRelease is the progress of the last sync of a Release, as its status alone has it.
func progressOfRelease(rel *v1alpha1.Release, now time.Time) progress {
	out := progress{sentence: true, step: stateOf(rel), waiting: listMessage(rel)}
	if last := rel.Status.LastAttempted; last != nil {
		out.run = last.RunID
		// What runs is not told by how the sync before it ended.
		doing := meta.FindStatusCondition(rel.Status.Conditions, v1alpha1.ConditionReconciling)
		if last.Result == v1alpha1.ResultRunning && doing != nil {
			out.waiting = doing.Message
		}
		out.waiting = orElse(out.waiting, last.Message)
	}
	out.addStatus(&rel.Status, true)
	for i := range out.waves {
		wave := &out.waves[i]
		for _, blocker := range rel.Status.Waves[i].BlockedBy[:len(wave.blockers)] {
			wave.since = append(wave.since, fmt.Sprintf("for %s", since(blocker.Since, now)))
		}
	}
	return out
}

// stateOf is a Release in a word or two.
func stateOf(rel *v1alpha1.Release) string {
	last := rel.Status.LastAttempted
	switch {
	case rel.DeletionTimestamp != nil:
		return "Deleting"
	case last != nil && last.Result == v1alpha1.ResultRunning:
		return "Running"
	case rel.Spec.Suspend:
		return "Suspended"
	case last == nil:
		return "Never synced"
	}
	ready := meta.FindStatusCondition(rel.Status.Conditions, v1alpha1.ConditionReady)
	if ready != nil && ready.Reason == release.OutOfSync && ready.Status == metav1.ConditionFalse {
		return "Out of sync"
	}
	return attemptResult(last)
}
