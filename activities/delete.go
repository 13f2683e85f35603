package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"go.temporal.io/sdk/activity"
)

// PrepareDeletion takes the fence for the deletion of a Release whose policy is Prune, and settles what an earlier sync
// left pending, so that everything convoy applied is pruned (D13, D16). In the world it writes status and, where records
// were pending, the ReleaseInventory. The source is not read.
//
// Idempotent: a second attempt of the same run keeps its fence.
// Fails with: Refused (wrong workflow id, the Release is not being deleted, a sync runs), PruneFailed (target or control
// cluster out of reach), RenderFailed (the Release leads to another cluster than the inventory is about, D31).
// Heartbeat: the step's name.
func (a *Activities) PrepareDeletion(ctx context.Context, in PrepareInput) (Prepared, error) {
	p := &preparation{Activities: a, in: in, info: activity.GetInfo(ctx), deletion: true}
	return perform(ctx, a, "prepare", release.PruneFailed, p.runDeletion, &p.ref)
}

func (p *preparation) runDeletion(ctx context.Context, _ *lease) (Prepared, error) {
	if err := p.admit(ctx); err != nil {
		return Prepared{}, err
	}
	if err := p.takeFence(ctx, nil); err != nil {
		return Prepared{}, err
	}
	st, err := p.locate(ctx, p.rel, &release.Render{})
	if err != nil {
		return Prepared{}, err
	}
	if err := p.settle(ctx, st); err != nil {
		return Prepared{}, err
	}
	return Prepared{Sync: p.ref, Orphans: len(p.orphans), Prune: p.rel.Spec.SyncPolicy.Prune}, nil
}

// FinishDeletion lets a Release go whose objects are pruned: it tells what became of them in an event, and removes
// convoy's finalizer. The inventory goes with the Release, and with it the records of protected objects, which stay.
//
// Idempotent: a Release that is gone, or has no such finalizer, is left alone.
// Fails with: Waiting while the control cluster is out of reach.
// Heartbeat: the step's name.
func (a *Activities) FinishDeletion(ctx context.Context, in FinishInput) error {
	_, err := perform(ctx, a, "finish", release.PruneFailed, func(ctx context.Context, _ *lease) (struct{}, error) {
		rel, err := a.fenced(ctx, in.Sync)
		var gone *release.Problem
		if errors.As(err, &gone) {
			return struct{}{}, nil
		}
		if err == nil && slices.Contains(rel.Finalizers, v1alpha1.FinalizerPrune) {
			a.event(ctx, rel, SyncRef{Digest: strconv.FormatInt(in.Sync.Fence, 10)}, "Normal", "Deleted", "%s", in.says())
			err = a.hold(ctx, rel, false)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, errFenced) {
			err = &waitError{message: "the Release is not let go yet: " + shorten(err.Error()), after: recordAgain}
		}
		return struct{}{}, err
	})
	return err
}

// hold makes a Release and its inventory wait for the prune at their end, or lets them go. The inventory comes first: a
// Release that is held has an inventory that is.
func (a *Activities) hold(ctx context.Context, rel *v1alpha1.Release, held bool) error {
	if err := a.control.HoldInventory(ctx, rel, v1alpha1.FinalizerPrune, held); err != nil {
		return err
	}
	return a.control.SetFinalizer(ctx, rel, v1alpha1.FinalizerPrune, held)
}

// says tells what became of the objects of a deleted Release.
func (in FinishInput) says() string {
	text := fmt.Sprintf("the Release goes, and %d of its objects %s deleted", in.Deleted, release.Verb(in.Deleted, "is", "are"))
	if in.Kept.Total > 0 {
		text += fmt.Sprintf("; %d %s: %s", in.Kept.Total, release.Verb(in.Kept.Total, "stays", "stay"), strings.Join(in.Kept.Objects, ", "))
	}
	if in.Terminating.Total > 0 {
		text += fmt.Sprintf("; %d %s held by finalizers: %s", in.Terminating.Total, release.Verb(in.Terminating.Total, "is", "are"), strings.Join(in.Terminating.Objects, ", "))
	}
	return text
}
