package e2e

import (
	"fmt"
	"testing"
	"time"

	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
)

// What an idle pass of the loop may cost (D30): events of its history, and requests beside one LIST for each kind.
const (
	eventsOfAnIdlePass = 11
	// The Release and its inventory; and one write of the status, unless the next reconcile stays in the same second.
	readsBesideLists, writesOfAnIdlePass = 2, 1
)

// at are the positions of the events of one type.
func at(events []*historypb.HistoryEvent, kind enumspb.EventType) []int {
	var found []int
	for i, event := range events {
		if event.GetEventType() == kind {
			found = append(found, i)
		}
	}
	return found
}

// looks are how often the loop has looked at its Release.
func (w *world) looks(loop client.WorkflowRun) int {
	w.Helper()
	return len(at(w.eventsOf(loop), enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED))
}

// reconcile asks a loop that rests for a pass, waits for its end, and returns how long it took, from the signal to the
// next rest, by Temporal's clock.
func (w *world) reconcile(loop client.WorkflowRun) time.Duration {
	w.Helper()
	before := len(w.eventsOf(loop))
	require.NoError(w, w.temporal.SignalWorkflow(w.Context(), loop.GetID(), "", workflows.SignalReconcile, nil))
	var took time.Duration
	w.eventually("the pass ends", func() error {
		events := w.eventsOf(loop)[before:]
		looked, rests := at(events, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED), at(events, enumspb.EVENT_TYPE_TIMER_STARTED)
		if len(looked) == 0 || len(rests) == 0 || rests[len(rests)-1] < looked[0] {
			return fmt.Errorf("%d events", len(events))
		}
		took = events[rests[len(rests)-1]].GetEventTime().AsTime().Sub(events[0].GetEventTime().AsTime())
		return nil
	})
	return took
}

// D30: an idle pass adds at most eleven events to the history of its loop: a timer, one activity, and the workflow tasks
// around them.
func TestBudget_events_of_an_idle_pass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("idle", mixedObjects(w.ns, 16), every(time.Second))
	loop := w.loop("idle")
	w.becomes("idle", "True/Succeeded")
	const passes = 4
	first := len(at(w.eventsOf(loop), enumspb.EVENT_TYPE_TIMER_FIRED))
	var events []*historypb.HistoryEvent
	w.is("some idle passes", func() bool {
		events = w.eventsOf(loop)
		return len(at(events, enumspb.EVENT_TYPE_TIMER_FIRED)) > first+passes
	})
	fired := at(events, enumspb.EVENT_TYPE_TIMER_FIRED)[first:]
	require.Len(t, at(events, enumspb.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED), 1, "an idle pass starts no sync")
	perPass := float64(fired[passes]-fired[0]) / passes
	t.Logf("events of an idle pass: %.1f, at most %d", perPass, eventsOfAnIdlePass)
	require.LessOrEqual(t, perPass, float64(eventsOfAnIdlePass))
}

// D30: an idle pass over a thousand objects of eight kinds sends one LIST for each kind (and page) and at most three
// requests more, no dry run and no apply, and costs a small part of one apply patch for each object.
//
// It does not run beside the other tests of this package: it measures.
func TestBudget_idle_pass_over_a_thousand_objects(t *testing.T) {
	w := newWorld(t)
	const objects, kinds, rounds, passes = 1000, 8, 2, 4
	_, user := w.countedWorker()
	render := mixedObjects(w.ns, objects)
	w.release("idle", render, every(time.Hour))
	loop := w.loop("idle")
	w.becomes("idle", "True/Succeeded")
	attempt := w.get("idle").Status.LastAttempted.RunID
	w.reconcile(loop) // the connections are warm from here on

	since := w.mark()
	w.reconcile(loop)
	sent := of(w.allRequests(since), user)
	require.Empty(t, dryRuns(sent))
	require.Len(t, filter(sent, func(r request) bool { return r.Verb == "list" }), kinds, "%v", said(sent))
	t.Logf("requests of an idle pass over %d objects: %v", objects, said(sent))
	written := changes(sent)
	require.Len(t, sent, kinds+readsBesideLists+len(written), "%v", said(sent))
	require.LessOrEqual(t, len(written), writesOfAnIdlePass, "the status alone is written: %v", said(written))

	// With convoy's own field manager the floor changes nothing, so the passes stay idle.
	apply, server := floorOf(t, w, "convoy", render), w.apiServerPID()
	type cost struct{ took, cpu time.Duration }
	idle, floor := cost{time.Hour, time.Hour}, cost{time.Hour, time.Hour}
	for range rounds { // the least of each: other processes only ever add
		before := cpuOf(t, server)
		took := apply.run(t)
		between := cpuOf(t, server)
		pass := time.Duration(0)
		for range passes {
			pass += w.reconcile(loop)
		}
		after := cpuOf(t, server)
		floor = cost{min(floor.took, took), min(floor.cpu, between-before)}
		idle = cost{min(idle.took, pass/passes), min(idle.cpu, (after-between)/passes)}
	}
	require.Equal(t, attempt, w.get("idle").Status.LastAttempted.RunID, "an idle pass starts no sync")
	time, cpu := idle.took.Seconds()/floor.took.Seconds(), idle.cpu.Seconds()/floor.cpu.Seconds()
	t.Logf("idle pass %v, floor %v: %.3f of the time; API server CPU %v of %v: %.3f", idle.took, floor.took, time, idle.cpu, floor.cpu, cpu)
	require.LessOrEqual(t, time, 0.05)
	require.LessOrEqual(t, cpu, 0.10, "aimed at 0.05; the API server serves other tests meanwhile")
}
