package workflows

import (
	"time"

	"convoy.dev/convoy/activities"

	"go.temporal.io/sdk/workflow"
)

// DeleteWorkflow prunes everything that the inventory of a deleted Release lists, by the rules of the prune, and lets
// the Release go (deletionPolicy Prune). It runs under the id of the Release's syncs, so that it excludes them (D16). A
// failed one is recorded in status and changes nothing in the inventory: the loop runs it again.
func (w *Workflows) DeleteWorkflow(ctx workflow.Context, in SyncInput) (SyncResult, error) {
	s, err := w.begin(ctx, in)
	if err != nil {
		return SyncResult{}, err
	}
	err = s.deletion(ctx)
	return s.end(ctx, err)
}

// deletion is the three steps of a deletion.
func (s *sync) deletion(ctx workflow.Context) error {
	s.enter("prepare")
	plan, err := call(ctx, s.option("prepare the deletion", "prepare", 5*time.Minute), act.PrepareDeletion,
		activities.PrepareInput{Namespace: s.in.Namespace, Name: s.in.Name})
	if err != nil {
		s.outcome.Sync = fencedBy(err)
		return err
	}
	s.plan, s.outcome.Sync = plan, plan.Sync
	s.enter("prune")
	result, err := call(ctx, s.option("prune everything", "prune", time.Hour), act.PruneOrphans,
		activities.PruneInput{Sync: plan.Sync, Policy: plan.Prune})
	if err != nil {
		return err
	}
	s.result.Pruned = result.Deleted
	s.enter("finish")
	return callOnly(ctx, s.option("let the Release go", "finish", time.Minute), act.FinishDeletion, activities.FinishInput{
		Sync: plan.Sync, Deleted: result.Deleted, Kept: result.Kept, Terminating: result.Terminating,
	})
}
