package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/api/workflowservice/v1"
)

// registered makes Temporal know convoy's search attributes, as `convoy install` does. Tests beside this one may do so too.
func (w *world) registered() {
	w.Helper()
	w.eventually("Temporal knows the search attributes", func() error {
		list, err := w.temporal.OperatorService().ListSearchAttributes(w.Context(), &operatorservice.ListSearchAttributesRequest{Namespace: "default"})
		if err != nil {
			return err
		}
		add := &operatorservice.AddSearchAttributesRequest{Namespace: "default", SearchAttributes: map[string]enumspb.IndexedValueType{}}
		for name, kind := range release.SearchAttributes() {
			if _, known := list.GetCustomAttributes()[name]; known {
				continue
			}
			if add.SearchAttributes[name], err = enumspb.IndexedValueTypeFromString(kind); err != nil {
				return err
			}
		}
		if len(add.SearchAttributes) == 0 {
			return nil
		}
		if _, err = w.temporal.OperatorService().AddSearchAttributes(w.Context(), add); err == nil {
			err = errors.New("they were not known yet")
		}
		return err
	})
}

// searchable is a sync that takes the search attributes for known from its start: a worker trusts them only 90 s after
// it has seen them.
func searchable(in *workflows.SyncInput) { in.Loop = &activities.LoopRef{Searchable: true} }

// found waits until a query over the search attributes finds just these runs of syncs of the world.
func (w *world) found(query string, runs ...string) {
	w.Helper()
	query = fmt.Sprintf(`%s AND WorkflowId IN ("sync:%s:shop", "sync:%[2]s:bad")`, query, w.ns)
	w.eventually(query, func() error {
		list, err := w.temporal.ListWorkflow(w.Context(), &workflowservice.ListWorkflowExecutionsRequest{Namespace: "default", Query: query})
		if err != nil {
			return err
		}
		got := map[string]bool{}
		for _, execution := range list.GetExecutions() {
			got[execution.GetExecution().GetRunId()] = true
		}
		if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, runs) {
			return fmt.Errorf("it finds %v, not %v", names, runs)
		}
		return nil
	})
}

// A sync that waits, one that is stuck and one that has failed are found in Temporal by wave and reason; one that goes on
// is not.
func TestSeen_syncs_in_trouble_are_found_by_search_attributes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.registered()
	w.worker("--stuck-after", "12s")
	w.release("shop", stuckPod(w.ns, "front", 0)+manifest(w.ns, "after", 1, "1"), gatedBy(1, ready(0)))
	in := workflows.SyncInput{Name: "shop"}
	searchable(&in)
	run := w.start(in)
	w.found(`ConvoyReason = "WaitingForWave" AND ConvoyWave = 1 AND ConvoyStalled = false`, run.GetRunID())
	w.found(`ConvoyStalled = true AND ConvoyStep = "apply"`, run.GetRunID())
	w.becomesReady("front")
	_, reason := w.await(run)
	require.Equal(t, "Succeeded", reason)
	w.found(`ConvoyReason = "WaitingForWave"`)

	w.release("bad", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: "+w.ns+"}\ndata: {v: 1}\n", nil)
	in = workflows.SyncInput{Name: "bad"}
	searchable(&in)
	run = w.start(in)
	_, reason = w.await(run)
	require.Equal(t, "Unappliable", reason)
	w.found(`ConvoyReason = "Unappliable" AND ConvoyStalled = true AND ConvoyStep = "dry run"`, run.GetRunID())
}

// The current details of a sync are a table of its waves, and name the Release and what is waited for; those of the loop
// say what it does. The Release's status leads to the workflow.
func TestSeen_current_details_and_links(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("shop", stuckPod(w.ns, "front", 0)+manifest(w.ns, "after", 1, "1"), gatedBy(1, ready(0)))
	w.loop("shop")
	w.is("the sync waits", func() bool { return w.applied("shop") == "False/WaitingForWave" })
	last := w.get("shop").Status.LastAttempted
	details := w.details(last.WorkflowID, last.RunID)
	require.Contains(t, details, "Release `"+w.ns+"/shop`, render `"+release.ShortDigest(last.Digest)+"`, at: apply\n")
	require.Contains(t, details, "It waits: wave 1: wait for wave 0 to be healthy\n")
	require.Contains(t, details, "| 0 | 1 | Applied |\n| 1 | 1 | Waiting |\n")
	require.Contains(t, w.details("release:"+w.ns+":shop", ""), "a sync runs")
	described, err := w.temporal.DescribeWorkflowExecution(t.Context(), last.WorkflowID, last.RunID)
	require.NoError(t, err)
	failure := described.GetPendingActivities()[0].GetLastFailure().GetMessage()
	since := w.wave("shop", 1).BlockedBy[0].Since.UTC().Format("2006-01-02T15:04:05Z")
	require.Contains(t, failure, "wave 1 waits for wave 0: Pod "+w.ns+"/front: ")
	require.Contains(t, failure, ", since "+since)
	require.Equal(t, v1alpha1.ResultRunning, last.Result)
}

// details are the current details that a worker gives of a workflow.
func (w *world) details(id, run string) string {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	answer, err := w.temporal.QueryWorkflow(ctx, id, run, "__temporal_workflow_metadata")
	require.NoError(w, err)
	var metadata sdkpb.WorkflowMetadata
	require.NoError(w, answer.Get(&metadata))
	return metadata.GetCurrentDetails()
}
