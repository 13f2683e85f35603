package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"go.temporal.io/sdk/activity"
)

// PrepareSync makes sure that this sync may run, takes the fence, renders, and settles what an earlier sync left open.
// In the world it writes the Release's status (fence and lastAttempted, in one write) and, where an earlier sync left
// pending records, the ReleaseInventory.
//
// Idempotent: a second attempt of the same run keeps its fence, and settling twice finds nothing pending.
// Fails with: Refused (wrong workflow id, no such Release, another sync runs), RenderFailed (D1, D3, D19, D27, D31),
// DeployFailed (target or control cluster out of reach, D34). Once the fence is taken the failure's detail is the
// SyncRef, so that the end can be recorded. Waiting while an unacknowledged sync may still have a request in flight.
// Heartbeat: the step's name.
func (a *Activities) PrepareSync(ctx context.Context, in PrepareInput) (Prepared, error) {
	p := &preparation{Activities: a, in: in, info: activity.GetInfo(ctx)}
	return perform(ctx, a, "prepare", release.DeployFailed, p.run, &p.ref)
}

// preparation is one run of PrepareSync.
type preparation struct {
	*Activities
	in   PrepareInput
	info activity.Info
	rel  *v1alpha1.Release
	ref  SyncRef
	// orphans are the records that the render does not hold.
	orphans []release.ObjectRef
	// unsure: an earlier attempt or sync may have left a request in flight.
	unsure bool
	// unreachable: the source could not be read, so the failure is tried again (D1).
	unreachable bool
	// stored: the render comes from the render store.
	stored bool
	// deletion: the Release is being deleted, and everything is to be pruned.
	deletion bool
	// clean: the sync before succeeded, so what it left pending was only to be looked at once more.
	clean bool
}

func (p *preparation) run(ctx context.Context, _ *lease) (Prepared, error) {
	if err := p.admit(ctx); err != nil {
		return Prepared{}, err
	}
	if err := p.guardDeletion(ctx); err != nil {
		return Prepared{}, err
	}
	render, renderErr := p.render(ctx)
	var refused *refusal
	if errors.As(renderErr, &refused) {
		return Prepared{}, renderErr
	}
	p.unreachable = renderErr != nil && !isProblem(renderErr)
	if err := p.takeFence(ctx, render); err != nil {
		return Prepared{}, err
	}
	if renderErr != nil {
		return Prepared{}, asRenderFailure(renderErr)
	}
	if err := checkGates(p.rel.Spec.SyncPolicy); err != nil {
		return Prepared{}, err
	}
	st, err := p.locate(ctx, p.rel, render)
	if err != nil {
		return Prepared{}, err
	}
	if err := p.settle(ctx, st); err != nil {
		return Prepared{}, err
	}
	p.warn(ctx, st.plan.Warnings)
	return p.prepared(ctx, st), nil
}

// admit decides whether the sync may begin.
func (p *preparation) admit(ctx context.Context) error {
	if err := release.CheckNames(p.in.Namespace, p.in.Name); err != nil {
		return &refusal{err.Error()}
	}
	if id := release.SyncWorkflowID(p.in.Namespace, p.in.Name); p.info.WorkflowExecution.ID != id {
		return &refusal{fmt.Sprintf("this SyncWorkflow runs as %q, and the only id under which a sync of Release %s/%s runs is %q: start it with --workflow-id %s",
			p.info.WorkflowExecution.ID, p.in.Namespace, p.in.Name, id, id)}
	}
	rel, err := p.control.Release(ctx, p.in.Namespace, p.in.Name)
	if errors.Is(err, release.ErrNotFound) {
		return &refusal{fmt.Sprintf("there is no Release %q in namespace %q: create it, or correct the input", p.in.Name, p.in.Namespace)}
	}
	if err != nil {
		return err
	}
	p.rel = rel
	if err := p.open(); err != nil {
		return err
	}
	last := rel.Status.LastAttempted
	p.clean = last == nil || last.Result == v1alpha1.ResultSucceeded
	return p.quarantine(ctx)
}

// open refuses what the state of the Release does not allow. A sync that has begun is let go on.
func (p *preparation) open() error {
	rel, id := p.rel, p.rel.Namespace+"/"+p.rel.Name
	switch deleted := rel.DeletionTimestamp != nil; {
	case p.deletion && !deleted:
		return &refusal{fmt.Sprintf("Release %s is not being deleted: delete it with kubectl, and its objects go by spec.deletionPolicy", id)}
	case !p.deletion && deleted:
		return &refusal{fmt.Sprintf("Release %s is being deleted: no sync of it begins any more", id)}
	case !p.deletion && rel.Spec.Suspend && (rel.Status.Fence == nil || !p.mine(rel.Status.Fence)):
		return &refusal{fmt.Sprintf("Release %s is suspended: lift spec.suspend first (convoy resume %s)", id, id)}
	}
	return nil
}

// quarantine keeps this sync apart from the one that holds the fence (D16): a running one refuses, and one that ended
// without saying so may have a request in flight until its heartbeat timeout is over.
func (p *preparation) quarantine(ctx context.Context) error {
	fence := p.rel.Status.Fence
	if fence == nil || fence.Acknowledged {
		return nil
	}
	p.unsure = true
	if p.mine(fence) {
		return nil
	}
	running, closedAt, err := p.runs.Running(ctx, fence.WorkflowID, fence.RunID)
	if err != nil {
		return fmt.Errorf("look at the sync that holds the fence (%s, run %s): %w", fence.WorkflowID, fence.RunID, err)
	}
	if running {
		return &refusal{fmt.Sprintf("another sync of Release %s/%s is running (%s, run %s): wait for it or cancel it",
			p.in.Namespace, p.in.Name, fence.WorkflowID, fence.RunID)}
	}
	if left := closedAt.Add(p.info.HeartbeatTimeout).Sub(p.now()); left > 0 {
		return &waitError{
			message: fmt.Sprintf("run %s ended without a goodbye: waiting %s, until no request of it can be on its way", fence.RunID, left.Round(time.Second)),
			after:   left,
		}
	}
	return nil
}

func (p *preparation) mine(fence *v1alpha1.Fence) bool {
	return fence.WorkflowID == p.info.WorkflowExecution.ID && fence.RunID == p.info.WorkflowExecution.RunID
}

// guardDeletion puts the finalizer on a Release whose objects are to go with it, before any of them is applied.
func (p *preparation) guardDeletion(ctx context.Context) error {
	if p.rel.Spec.DeletionPolicy != v1alpha1.DeletionPrune || slices.Contains(p.rel.Finalizers, v1alpha1.FinalizerPrune) {
		return nil
	}
	err := p.hold(ctx, p.rel, true)
	if errors.Is(err, release.ErrConflict) {
		return &waitError{message: "the Release was changed while its sync began: beginning again", after: 100 * time.Millisecond}
	}
	return err
}

func isProblem(err error) bool {
	var problem *release.Problem
	return errors.As(err, &problem)
}

// render produces the render of this sync: from the source, the stored one that the Release is pinned to, or the stored
// one that was asked for. Where that last one does not exist the sync is refused: what is applied is as good as before,
// and so is the status of the Release.
func (p *preparation) render(ctx context.Context) (*release.Render, error) {
	digest, pinned := p.in.Digest, p.in.Digest == "" && p.rel.Spec.Pin != nil
	if pinned {
		digest = p.rel.Spec.Pin.Digest
	}
	if digest == "" {
		return p.renderSource(ctx, p.rel)
	}
	if p.store == nil {
		return nil, p.noRender(pinned, digest, errors.New("this worker has no render store: start it with --render-store-url"))
	}
	render, err := p.store.Get(ctx, digest)
	if errors.Is(err, release.ErrNotFound) {
		return nil, p.noRender(pinned, digest, err)
	}
	if err != nil {
		return nil, release.Problemf(release.RenderFailed, "render %s: %v", digest, err)
	}
	p.stored = true
	p.renders.put(render)
	return render, nil
}

// noRender is the error of a stored render that cannot be had.
func (p *preparation) noRender(pinned bool, digest string, why error) error {
	if !pinned {
		return &refusal{fmt.Sprintf("render %s was asked for: %v", digest, why)}
	}
	return release.Problemf(release.RenderFailed, "spec.pin holds the Release at render %s: %v. To go on with the source: convoy unpin %s/%s",
		digest, why, p.rel.Namespace, p.rel.Name)
}

// asRenderFailure gives an error of the source its reason: no render is a RenderFailed, whatever kept it away (D1).
func asRenderFailure(err error) error {
	if isProblem(err) || errors.Is(err, ErrLeaseLost) || errors.Is(err, context.Canceled) {
		return err
	}
	return release.Problemf(release.RenderFailed, "%s", shorten(err.Error()))
}

// takeFence raises the fence, and records the attempt, in one write by compare-and-swap (D16, D33).
func (p *preparation) takeFence(ctx context.Context, render *release.Render) error {
	for {
		number := int64(1)
		if fence := p.rel.Status.Fence; fence != nil {
			number = fence.Number + 1
			if p.mine(fence) {
				number = fence.Number
			}
		}
		p.ref = SyncRef{
			Namespace: p.in.Namespace, Name: p.in.Name, UID: string(p.rel.UID), Generation: p.rel.Generation, Spec: release.SpecSum(p.rel.Spec),
			Fence: number, Stored: p.stored, Deleting: p.deletion, Unreachable: p.unreachable,
		}
		if render != nil {
			p.ref.Digest, p.ref.Revision = render.Digest, render.Revision
		}
		err := p.control.PatchStatus(ctx, p.rel, p.begin)
		if !errors.Is(err, release.ErrConflict) {
			return err
		}
		generation := p.rel.Generation
		if p.rel, err = p.control.Release(ctx, p.in.Namespace, p.in.Name); err != nil {
			return err
		}
		if fence := p.rel.Status.Fence; fence != nil && fence.Number >= number && !p.mine(fence) {
			return errFenced
		}
		if p.rel.Generation != generation {
			return &waitError{message: "the Release was changed while its sync began: beginning again", after: 100 * time.Millisecond}
		}
	}
}

// begin writes the start of the attempt.
func (p *preparation) begin(status *v1alpha1.ReleaseStatus) {
	status.Fence = &v1alpha1.Fence{
		Number: p.ref.Fence, WorkflowID: p.info.WorkflowExecution.ID, RunID: p.info.WorkflowExecution.RunID,
	}
	status.ObservedGeneration = p.rel.Generation
	kept := release.KeepApprovals(*status, p.ref.Digest, p.ref.Spec)
	status.Conditions = release.Conditions(status.Conditions, release.Outcome{
		Reason: release.Progressing, Generation: p.rel.Generation, Message: p.doing(),
		NewRender: !p.deletion && release.IsNewRender(*status, p.ref.Digest),
	}, p.now())
	started := *p.timestamp()
	if last := status.LastAttempted; last != nil && last.RunID == p.info.WorkflowExecution.RunID {
		started = last.StartedAt
	}
	status.LastAttempted = &v1alpha1.Attempt{
		Digest: p.ref.Digest, Revision: p.ref.Revision, StartedAt: started, Result: v1alpha1.ResultRunning,
		Force: p.in.Force, RequestedBy: p.in.RequestedBy,
		WorkflowID: p.info.WorkflowExecution.ID, RunID: p.info.WorkflowExecution.RunID,
	}
	status.Waves, status.WavesTotal = kept, int32(len(kept))
}

// doing says what begins.
func (p *preparation) doing() string {
	if p.deletion {
		return "deleting: pruning what the inventory lists"
	}
	message := "syncing render " + release.ShortDigest(p.ref.Digest)
	if p.rel.Spec.Pin != nil && p.in.Digest == "" {
		message += ", which spec.pin holds"
	}
	if p.in.Cause != "" {
		message += " (" + p.in.Cause + ")"
	}
	return message
}

// settle checks the render against the inventory, and settles what is pending there (D13, D19, D27, D31, D34).
func (p *preparation) settle(ctx context.Context, st *step) error {
	inv, err := p.control.Inventory(ctx, p.rel)
	if err != nil {
		return err
	}
	uid, err := st.target.Identity(ctx)
	if err != nil {
		return err
	}
	recorded, pending := release.RefsOf(inv.Spec.Objects), release.RefsOf(inv.Spec.Pending)
	if inv.Spec.ClusterUID == st.target.Address() {
		inv.Spec.ClusterUID = uid // the identity could not read the uid before, and now it can
	}
	if err := p.checkInventory(inv, uid, st); err != nil {
		return err
	}
	others, err := p.checkClaims(ctx, st.plan, uid, recorded, pending)
	if err != nil {
		return err
	}
	p.unsure = p.unsure || len(pending) > 0 && !p.clean
	found, absent, err := settlePending(ctx, st.target, release.Minus(pending, recorded), others)
	if err != nil {
		return err
	}
	recorded = release.Union(recorded, found)
	p.orphans = release.Minus(recorded, st.plan.Refs())
	if len(pending) == 0 && !(p.unsure && inv.ResourceVersion != "") {
		return nil
	}
	if !p.unsure {
		absent = nil
	}
	release.SetObjects(inv, recorded, release.FactsOf(inv))
	inv.Spec.Pending = release.Records(release.Minus(absent, st.plan.Refs()))
	touch(inv, p.ref)
	return p.saveInventory(ctx, inv)
}

// settlePending looks which pending objects exist and bear convoy's own apply entry: those were applied (D13). Absent
// ones may still come, while a request may be on its way; what somebody else made is no concern of this Release.
func settlePending(ctx context.Context, target Target, pending []release.ObjectRef, others claims) (found, absent []release.ObjectRef, err error) {
	for _, ref := range pending {
		if _, taken := others[ref]; taken {
			continue
		}
		live, err := target.Read(ctx, ref)
		switch {
		case err != nil:
			return nil, nil, err
		case live == nil:
			absent = append(absent, ref)
		case live.OwnedByConvoy:
			found = append(found, ref)
		}
	}
	return found, absent, nil
}

// checkInventory refuses what would lose or endanger records (D19, D31, D34).
func (p *preparation) checkInventory(inv *v1alpha1.ReleaseInventory, uid string, st *step) error {
	switch listed := release.Listed(inv.Spec); {
	case release.DescribesAnother(inv.Spec, uid, st.target.Address()):
		return release.Problemf(release.RenderFailed,
			"the inventory of Release %s/%s lists %s on the cluster %s, and the Release now leads to the cluster %s: "+
				"lead it back, or empty the Release there first (a render without objects and spec.syncPolicy.prune.allowEmpty)",
			p.rel.Namespace, p.rel.Name, release.Count(listed, "object"), inv.Spec.ClusterUID, uid)
	case !p.deletion && release.WouldEmpty(inv.Spec, st.plan, p.rel.Spec.SyncPolicy.Prune):
		return release.Problemf(release.RenderFailed,
			"the render is empty and the inventory lists %s: nothing was changed. If everything is to go, set spec.syncPolicy.prune.allowEmpty to true",
			release.Count(listed, "object"))
	}
	return release.CheckGrowth(inv.Spec, st.plan)
}

// checkClaims refuses a render that brings objects of another Release, unless they may be taken over (D27). It returns
// what others have, where that matters.
func (p *preparation) checkClaims(ctx context.Context, plan *release.Plan, uid string, recorded, pending []release.ObjectRef) (claims, error) {
	if len(pending) == 0 && len(release.Minus(plan.Refs(), recorded)) == 0 {
		return nil, nil
	}
	others, err := p.control.Claims(ctx, key(p.rel), uid)
	if err != nil {
		return nil, err
	}
	clashes, err := p.clashes(ctx, p.rel, plan.Items, recorded, others)
	if err != nil {
		return nil, err
	}
	return others, refuse(p.rel, clashes, "Nothing was applied")
}

// warn records what the author of the manifests should know (D4, D36).
func (p *preparation) warn(ctx context.Context, warnings []string) {
	if len(warnings) == 0 {
		return
	}
	p.event(ctx, p.rel, p.ref, "Warning", "RenderWarning", "%s", strings.Join(warnings, "; "))
}

// prepared is the plan that the workflow follows.
func (p *preparation) prepared(ctx context.Context, st *step) Prepared {
	spec := p.rel.Spec
	out := Prepared{
		Sync: p.ref, Objects: len(st.plan.Items), Orphans: len(p.orphans), Unsure: p.unsure || p.info.Attempt > 1, Prune: spec.SyncPolicy.Prune, HasStore: p.store != nil,
		Pinned:     p.rel.Spec.Pin != nil && p.in.Digest == "",
		Searchable: p.runs.Searchable(ctx), StuckAfter: p.stuckAfter,
		PreSync:  p.plannedHooks("preSync", spec.Hooks.PreSync),
		PostSync: p.plannedHooks("postSync", spec.Hooks.PostSync),
	}
	if spec.ClusterRef != nil {
		out.Cluster = spec.ClusterRef.Name
	}
	if !spec.SyncPolicy.Prune.Orphaned {
		for _, orphan := range p.orphans {
			out.OrphanNames.add(orphan.String())
		}
	}
	for _, wave := range st.plan.Waves {
		planned := PlannedWave{Number: wave.Number, Objects: wave.Count}
		if gate, gated := release.GateFor(wave.Number, spec.SyncPolicy.Waves, st.plan.Waves); gated {
			p.planGate(&planned, gate)
		}
		out.Waves = append(out.Waves, planned)
	}
	if gate, gated := release.FinalGateFor(spec.SyncPolicy.FinalGate, st.plan.Waves); gated {
		out.FinalGate = &PlannedWave{Number: gate.Before.Number, Final: true}
		p.planGate(out.FinalGate, gate)
	}
	return out
}

// plannedHooks are the hooks that are to run in this sync (D25).
func (p *preparation) plannedHooks(phase string, hooks []v1alpha1.Hook) []PlannedHook {
	asked := (p.in.Force || p.in.RequestedBy != "") && !p.in.Retry
	var out []PlannedHook
	for _, hook := range hooks {
		definition := release.HookDefinition(hook)
		if !asked && hook.Run != v1alpha1.HookAlways && hookSucceeded(p.rel.Status.Hooks, phase, hook.Name, p.ref.Digest, definition) {
			continue
		}
		planned := PlannedHook{Name: hook.Name, Type: release.TypeOfHook(hook), Definition: definition, Retries: hook.Retries, Timeout: 10 * time.Minute}
		if hook.Timeout != nil {
			planned.Timeout = hook.Timeout.Duration
		}
		out = append(out, planned)
	}
	return out
}

func hookSucceeded(hooks []v1alpha1.HookStatus, phase, name, digest, definition string) bool {
	for _, h := range hooks {
		if h.Phase == phase && h.Name == name {
			return h.Result == string(v1alpha1.ResultSucceeded) && h.Digest == digest && h.Definition == definition
		}
	}
	return false
}
