// Package workflows is the ORDER of a sync: what happens after what, what is waited for, and what an end means. It
// does no I/O: every touch of the world is an activity.
package workflows

import (
	"fmt"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"go.temporal.io/sdk/workflow"
)

// SyncInput starts a SyncWorkflow (SPEC 4). People type it:
//
//	temporal workflow start --type SyncWorkflow --task-queue convoy --workflow-id sync:team-a:shop \
//	  --input '{"namespace":"team-a","name":"shop"}'
type SyncInput struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Force skips the dry run (S9).
	Force bool `json:"force,omitempty"`
	// RequestedBy names the person who asks; hooks run again then (D25).
	RequestedBy string `json:"requestedBy,omitempty"`
	// Digest of a stored render to sync instead of the source.
	Digest string `json:"digest,omitempty"`
	// Loop is what the loop of the Release adds; people leave it out.
	Loop *activities.LoopRef `json:"loop,omitempty"`
}

// SyncResult is the result of a SyncWorkflow that succeeded.
type SyncResult struct {
	Digest     string `json:"digest"`
	Revision   string `json:"revision,omitempty"`
	Objects    int    `json:"objects"`
	Changed    int    `json:"changed"`
	Pruned     int    `json:"pruned"`
	HookFailed string `json:"hookFailed,omitempty"` // message of a postSync hook that failed (S3)
	// Unsure: a request of an attempt that was lost may still be in flight: the next pass is a whole sync (D16).
	Unsure bool `json:"unsure,omitempty"`
}

// Workflows holds what the worker decides about its workflows.
type Workflows struct {
	// HeartbeatTimeout of the activities: how long a worker may be silent before its step goes to another one.
	HeartbeatTimeout time.Duration
	// MaxLoopEvents bounds the history of a run of a ReleaseWorkflow, in events; 0: the default.
	MaxLoopEvents int
}

// SyncWorkflow runs one sync of a Release: the eight steps, in this order (S1). A step that fails ends the sync, and no
// later step runs (S2); what became of it is recorded whatever the end was (S29). A failed sync is a failed workflow,
// with an application error whose type is the reason (SPEC 4); a cancelled one is recorded as Superseded.
func (w *Workflows) SyncWorkflow(ctx workflow.Context, in SyncInput) (SyncResult, error) {
	s, err := w.begin(ctx, in)
	if err != nil {
		return SyncResult{}, err
	}
	err = s.steps(ctx)
	return s.end(ctx, err)
}

// steps are the eight steps; the eighth, history and status, is the record that every end writes.
func (s *sync) steps(ctx workflow.Context) error {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	if err := s.dryRun(ctx); err != nil { // 1
		return err
	}
	if err := s.store(ctx); err != nil { // 2
		return err
	}
	if err := s.preSync(ctx); err != nil { // 3
		return err
	}
	if err := s.apply(ctx); err != nil { // 4
		return err
	}
	if err := s.finalGate(ctx); err != nil {
		return err
	}
	if err := s.prune(ctx); err != nil { // 5
		return err
	}
	if err := s.inventory(ctx); err != nil { // 6
		return err
	}
	if err := s.postSync(ctx); err != nil { // 7
		return err
	}
	return s.record(ctx) // 8
}

// prepare takes the fence and makes the plan.
func (s *sync) prepare(ctx workflow.Context) error {
	s.enter("prepare")
	plan, err := call(ctx, s.option(fmt.Sprintf("render %s/%s", s.in.Namespace, s.in.Name), "prepare", 5*time.Minute),
		act.PrepareSync, s.prepareInput())
	if err != nil {
		s.outcome.Sync = fencedBy(err)
		return err
	}
	s.plan, s.outcome.Sync, s.unsure = plan, plan.Sync, plan.Unsure
	s.searchable = s.searchable || plan.Searchable
	s.result.Digest, s.result.Revision, s.result.Objects = plan.Sync.Digest, plan.Sync.Revision, plan.Objects
	s.planWaves()
	s.planApprovals()
	return nil
}

func (s *sync) prepareInput() activities.PrepareInput {
	in := activities.PrepareInput{
		Namespace: s.in.Namespace, Name: s.in.Name, Force: s.in.Force, RequestedBy: s.in.RequestedBy, Digest: s.in.Digest,
	}
	if s.in.Loop != nil {
		in.Retry, in.Cause = s.in.Loop.Retry, s.in.Loop.Cause
	}
	return in
}

// dryRun asks the target cluster about every object (S5). A forced sync does not ask (S9).
func (s *sync) dryRun(ctx workflow.Context) error {
	if s.in.Force {
		return nil
	}
	s.enter("dry run")
	result, err := call(ctx, s.option(fmt.Sprintf("dry run of %d objects", s.plan.Objects), "dry-run", 10*time.Minute),
		act.DryRun, s.plan.Sync)
	if err != nil {
		return err
	}
	s.outcome.DryRan, s.outcome.Unverified = true, result.Unverified
	return nil
}

// store writes the render to the render store (S11). Without one there is nothing to do (S12).
func (s *sync) store(ctx workflow.Context) error {
	if !s.plan.HasStore {
		return nil
	}
	s.enter("store")
	_, err := call(ctx, s.option("store render "+release.ShortDigest(s.plan.Sync.Digest), "store-render", 2*time.Minute),
		act.StoreRender, s.plan.Sync)
	return err
}

// preSync runs the preSync hooks in order. One that fails ends the sync (D25).
func (s *sync) preSync(ctx workflow.Context) error {
	for _, hook := range s.plan.PreSync {
		if err := s.runHook(ctx, "preSync", hook); err != nil {
			return err
		}
	}
	return nil
}

// apply applies the waves in ascending order, each whole before the next begins (S15).
func (s *sync) apply(ctx workflow.Context) error {
	for i, wave := range s.plan.Waves {
		s.enterWave(i, v1alpha1.WaveWaiting)
		if err := s.gate(ctx, wave); err != nil {
			s.outcome.FailedWave = &wave.Number
			return err
		}
		s.enterWave(i, v1alpha1.WaveApplying)
		result, err := call(ctx, s.option(fmt.Sprintf("wave %d: apply %d objects", wave.Number, wave.Objects),
			fmt.Sprintf("apply-wave-%d", wave.Number), time.Hour),
			act.ApplyWave, activities.WaveInput{Sync: s.plan.Sync, Wave: wave.Number})
		if err != nil {
			s.outcome.FailedWave = &wave.Number
			return err
		}
		s.result.Changed += result.Changed
		s.unsure = s.unsure || result.Unsure
		s.appliedAt = workflow.Now(ctx)
		s.enterWave(i, v1alpha1.WaveApplied)
	}
	return nil
}

// finalGate waits behind the last wave, where the Release asks for it: for the health of that wave, and for a person.
func (s *sync) finalGate(ctx workflow.Context) error {
	gate := s.plan.FinalGate
	if gate == nil {
		return nil
	}
	s.enter("final gate")
	if err := s.gate(ctx, *gate); err != nil {
		return err
	}
	return callOnly(ctx, s.option("leave the final gate", "leave-final-gate", time.Minute), act.LeaveGate,
		activities.WaveInput{Sync: s.plan.Sync, Wave: gate.After, Blocks: gate.Number, Final: true})
}

// prune deletes what the render no longer holds (S24), once every wave is applied (S23), if the Release asks for it
// (S22) and the inventory had such a record when the sync began: a sync adds none.
func (s *sync) prune(ctx workflow.Context) error {
	if !s.plan.Prune.Orphaned || s.plan.Orphans == 0 {
		return nil
	}
	s.enter("prune")
	result, err := call(ctx, s.option("prune what the render no longer holds", "prune", time.Hour),
		act.PruneOrphans, activities.PruneInput{Sync: s.plan.Sync, Policy: s.plan.Prune})
	if err != nil {
		return err
	}
	s.outcome.Orphaned, s.outcome.Terminating = result.Kept, result.Terminating
	s.result.Pruned = result.Deleted
	return nil
}

// inventory writes exactly what this sync applied (S21). With the prune off, what leaves the inventory stays on the
// cluster, and status names it (D21); an attempt that finds the inventory exact already cannot name it, so the plan does.
func (s *sync) inventory(ctx workflow.Context) error {
	s.enter("inventory")
	result, err := call(ctx, s.option(fmt.Sprintf("record %d objects", s.plan.Objects), "write-inventory", 2*time.Minute),
		act.WriteInventory, activities.InventoryInput{Sync: s.plan.Sync, Recheck: s.unsure && s.plan.Prune.Orphaned})
	if err != nil {
		return err
	}
	s.outcome.Exact = true
	s.outcome.Terminating = s.outcome.Terminating.WithHeld(result.Terminating)
	if !s.plan.Prune.Orphaned {
		s.outcome.Orphaned = result.Left
		if result.Left.Total < s.plan.OrphanNames.Total {
			s.outcome.Orphaned = s.plan.OrphanNames
		}
	}
	return nil
}

// postSync runs the postSync hooks in order. One that fails is reported and changes nothing in the result (S3).
func (s *sync) postSync(ctx workflow.Context) error {
	failed := 0
	for _, hook := range s.plan.PostSync {
		err := s.runHook(ctx, "postSync", hook)
		if err != nil && ctx.Err() != nil {
			return err
		}
		if err == nil {
			continue
		}
		if failed++; failed == 1 {
			s.result.HookFailed = messageOf(err)
		}
	}
	if failed > 1 {
		s.result.HookFailed += fmt.Sprintf(" (and %d more failed: status.hooks)", failed-1)
	}
	return nil
}

// record writes history and status (S29, S30).
func (s *sync) record(ctx workflow.Context) error {
	s.enter("record")
	s.outcome.Reason = string(release.Succeeded)
	s.outcome.Message = s.success()
	return s.writeRecord(ctx)
}
