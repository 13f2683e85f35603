package activities

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"
)

// WriteInventory writes the exact inventory: what this sync applied, in the order of application, and nothing else
// (S21). Records that leave with it are protected, pruned, or, with the prune off, forgotten (D21, S25). After an
// attempt that may have left a request in flight what was pruned stays pending: an apply that lands late would bring it
// back unseen, and the next sync looks (D16). It also looks which objects of status.terminating are still there (D18).
//
// Idempotent: nothing is written when the inventory is exact already.
// Fails with: DeployFailed (D34).
// Heartbeat: the step's name.
func (a *Activities) WriteInventory(ctx context.Context, in InventoryInput) (InventoryResult, error) {
	return perform(ctx, a, "inventory", release.DeployFailed, func(ctx context.Context, _ *lease) (InventoryResult, error) {
		st, err := a.open(ctx, in.Sync)
		if err != nil {
			return InventoryResult{}, err
		}
		uid, err := st.target.Identity(ctx)
		if err != nil {
			return InventoryResult{}, err
		}
		terminating, err := st.stillHeld(ctx)
		if err != nil {
			return InventoryResult{}, err
		}
		result, err := a.writeExact(ctx, st, in, uid)
		result.Terminating = terminating
		return result, err
	})
}

// stillHeld looks at the objects that status.terminating names: a sync that prunes nothing more does not forget them
// while finalizers hold them (D18). What the render brings again was applied, so it is another object.
func (s *step) stillHeld(ctx context.Context) (Named, error) {
	return stillHeld(ctx, s.target, s.rel.Status.Terminating, s.plan.Refs())
}

// stillHeld are those entries of status.terminating whose objects finalizers hold to this day, as they are now. What the
// cluster does not tell counts as held; applied objects are other ones than those that were pruned.
func stillHeld(ctx context.Context, target Target, entries []string, applied []release.ObjectRef) (Named, error) {
	var out Named
	for _, entry := range entries {
		held, ok := release.ParseHeld(entry)
		if !ok || release.Contains(applied, held.Ref) {
			continue
		}
		live, err := target.Read(ctx, held.Ref)
		var failure *release.Failure
		switch {
		case errors.As(err, &failure):
			out.add(entry)
		case err != nil:
			return Named{}, err
		case live != nil && live.DeletionTimestamp != nil && len(live.Finalizers) > 0:
			out.add(release.Held{Ref: held.Ref, Finalizers: live.Finalizers}.String())
		}
	}
	return out, nil
}

func (a *Activities) writeExact(ctx context.Context, st *step, in InventoryInput, uid string) (InventoryResult, error) {
	applied := st.plan.Refs()
	for {
		inv, err := a.control.Inventory(ctx, st.rel)
		if err != nil {
			return InventoryResult{}, err
		}
		recorded := release.RefsOf(inv.Spec.Objects)
		result := InventoryResult{Objects: len(applied)}
		left := release.Minus(recorded, applied)
		for _, ref := range left {
			result.Left.add(ref.String())
		}
		var pending []release.ObjectRef
		if in.Recheck {
			pending = release.Union(left, release.Minus(release.RefsOf(inv.Spec.Pending), applied))
		}
		exact := release.Equal(recorded, applied) && release.Equal(release.RefsOf(inv.Spec.Pending), pending) && describes(inv, uid, st.target.Address())
		if exact && inv.ResourceVersion != "" {
			return result, nil
		}
		release.SetObjects(inv, applied, release.FactsOf(inv))
		inv.Spec.Pending = release.Records(pending)
		describe(inv, uid, st.target.Address())
		err = a.control.SaveInventory(ctx, inv)
		if err == nil {
			return result, nil
		}
		if !errors.Is(err, release.ErrConflict) {
			return InventoryResult{}, inventoryFailure(err)
		}
		if _, err := a.fenced(ctx, in.Sync); err != nil {
			return InventoryResult{}, err
		}
	}
}

// saveInventory writes an inventory that was just read; somebody else's write in between ends the step, and its next
// attempt reads again.
func (a *Activities) saveInventory(ctx context.Context, inv *v1alpha1.ReleaseInventory) error {
	err := a.control.SaveInventory(ctx, inv)
	if errors.Is(err, release.ErrConflict) {
		return &waitError{message: err.Error(), after: 0}
	}
	return inventoryFailure(err)
}

func inventoryFailure(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the inventory was not written, so nothing more is applied or pruned: %w", err)
}

// describe notes which cluster the records are about (D31), and by which address: an identity that may not read the uid
// knows the cluster by its address alone (D27).
func describe(inv *v1alpha1.ReleaseInventory, uid, address string) {
	inv.Spec.ClusterUID = uid
	annotate(inv, release.AnnotationClusterAddress, address)
}

// describes reports whether describe would change nothing.
func describes(inv *v1alpha1.ReleaseInventory, uid, address string) bool {
	return inv.Spec.ClusterUID == uid && inv.Annotations[release.AnnotationClusterAddress] == address
}

func annotate(inv *v1alpha1.ReleaseInventory, name, value string) {
	if inv.Annotations == nil {
		inv.Annotations = map[string]string{}
	}
	inv.Annotations[name] = value
}

// touch makes sure that a write of the inventory moves its resourceVersion.
func touch(inv *v1alpha1.ReleaseInventory, ref SyncRef) {
	annotate(inv, "convoy.dev/fence", strconv.FormatInt(ref.Fence, 10))
}
