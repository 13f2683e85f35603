package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/workflows"

	"go.temporal.io/api/serviceerror"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// loopFor bounds how long `convoy status` waits for Temporal: what the Release says itself must not wait for it.
const loopFor = 2 * time.Second

// loopView is the loop of a Release, as far as it could be asked: trouble says why not.
type loopView struct {
	status  *workflows.LoopStatus
	trouble string
}

// askLoop asks the loop of a Release what it does.
func (p *program) askLoop(ctx context.Context, rel *v1alpha1.Release) loopView {
	dialing, cancel := context.WithTimeout(ctx, loopFor)
	defer cancel()
	t, err := p.dialTemporal(dialing)
	if err != nil {
		return loopView{trouble: "not asked: Temporal cannot be reached (--temporal-address)"}
	}
	defer t.Close()
	status, err := t.loopStatus(ctx, types.NamespacedName{Namespace: rel.Namespace, Name: rel.Name})
	var unknown *serviceerror.NotFound
	switch {
	case errors.As(err, &unknown):
		return loopView{trouble: "none runs: a worker that watches (worker --watch), a sync or a reconcile starts it"}
	case err != nil:
		return loopView{trouble: "it does not answer: does a worker run? (" + oneLine(err.Error()) + ")"}
	}
	return loopView{status: status}
}

// cadence says when convoy looks at the Release again, and what keeps it from syncing.
func (s statusPage) cadence() {
	conditions := s.rel.Status.Conditions
	if s.rel.DeletionTimestamp != nil {
		s.line("Deleting", "since %s", since(*s.rel.DeletionTimestamp, s.now))
	}
	if s.rel.Spec.Suspend {
		message := "spec.suspend is set: no sync starts until it is lifted (convoy resume)"
		if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReconciling); c != nil && c.Reason == release.Suspended {
			message = c.Message
		}
		s.line("Suspended", "%s", message)
	}
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); c != nil && c.Reason == release.OutOfSync && c.Status == metav1.ConditionFalse {
		s.line("Out of sync", "%s", c.Message)
	}
	if next := nextCell(s.rel, s.now); next != "" {
		s.line("Next look", "%s (%s)", next, s.rel.Status.NextReconcileAt.UTC().Format(time.RFC3339))
	}
}

// loopLines say what the loop does, and which requests wait for it.
func (s statusPage) loopLines(loop loopView) {
	if loop.status == nil {
		if loop.trouble != "" {
			s.line("Loop", "%s", loop.trouble)
		}
		return
	}
	s.line("Loop", "%s", orElse(loop.status.Doing, "is there"))
	if loop.status.Failures > 0 {
		s.line("", "%s in a row", plural(loop.status.Failures, "failure"))
	}
	if len(loop.status.Waiting) > 0 {
		s.line("", "requests that wait: %s", strings.Join(loop.status.Waiting, ", "))
	}
}

// shownRequests is how many answered requests the page shows.
const shownRequests = 5

// requests shows what requests came to.
func (s statusPage) requests() {
	handled := s.rel.Status.LastHandledRequests
	if len(handled) == 0 {
		return
	}
	shown := handled[:min(len(handled), shownRequests)]
	s.title("Requests", len(shown), max(int(s.rel.Status.HandledRequestsTotal), len(handled)))
	rows := [][]string{{"REQUEST", "RESULT", "RENDER", "RUN"}}
	for _, answer := range shown {
		result := answer.Result
		if answer.Reason != "" && answer.Reason != result {
			result = fmt.Sprintf("%s (%s)", result, answer.Reason)
		}
		rows = append(rows, []string{answer.ID, result, orDash(release.ShortDigest(answer.Digest)), orDash(answer.RunID)})
	}
	table(s.w, "  ", rows)
}
