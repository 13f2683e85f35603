package e2e

import (
	"errors"
	"fmt"

	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
)

// run is one run of a workflow id.
type run struct {
	id, runID string
	status    enumspb.WorkflowExecutionStatus
}

// runs lists all runs of a workflow id. It waits until the newest one that Temporal knows is listed.
func (w *world) runs(id string) []run {
	w.Helper()
	latest, err := w.temporal.DescribeWorkflowExecution(w.Context(), id, "")
	var none *serviceerror.NotFound
	if errors.As(err, &none) {
		return nil
	}
	require.NoError(w, err)
	newest := latest.GetWorkflowExecutionInfo().GetExecution().GetRunId()
	var found []run
	w.eventually("the runs of "+id+" are listed", func() error {
		found = nil
		listed := false
		var page []byte
		for {
			answer, err := w.temporal.ListWorkflow(w.Context(), &workflowservice.ListWorkflowExecutionsRequest{
				Query: fmt.Sprintf("WorkflowId = '%s'", id), PageSize: 1000, NextPageToken: page,
			})
			if err != nil {
				return err
			}
			for _, execution := range answer.GetExecutions() {
				found = append(found, run{id, execution.GetExecution().GetRunId(), execution.GetStatus()})
				listed = listed || execution.GetExecution().GetRunId() == newest
			}
			if page = answer.GetNextPageToken(); len(page) == 0 {
				break
			}
		}
		if !listed {
			return fmt.Errorf("run %s is not listed yet", newest)
		}
		return nil
	})
	return found
}

// syncInput is what a sync was started with.
func (w *world) syncInput(r run) workflows.SyncInput {
	w.Helper()
	iterator := w.temporal.GetWorkflowHistory(w.Context(), r.id, r.runID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	require.True(w, iterator.HasNext())
	event, err := iterator.Next()
	require.NoError(w, err)
	var in workflows.SyncInput
	require.NoError(w, converter.GetDefaultDataConverter().FromPayloads(event.GetWorkflowExecutionStartedEventAttributes().GetInput(), &in))
	return in
}

// loopStatus is what the loop of a Release says about itself.
func (w *world) loopStatus(name string) workflows.LoopStatus {
	w.Helper()
	var status workflows.LoopStatus
	answer, err := w.temporal.QueryWorkflow(w.Context(), "release:"+w.ns+":"+name, "", workflows.QueryStatus)
	if err == nil {
		require.NoError(w, answer.Get(&status))
	}
	return status
}

// dryRunDelete asks whether a delete would be allowed.
var dryRunDelete = &kube.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
