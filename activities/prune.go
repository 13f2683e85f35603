package activities

import (
	"context"
	"fmt"
	"strings"

	"convoy.dev/convoy/internal/release"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PruneOrphans deletes what is in the inventory and not in the render, in the reverse of the order of application
// (S24, D17). Protected objects, objects that moved to another Release, and objects that somebody else made anew stay
// (S25, D12, D27, D28); one that is gone is no error (S26). Every orphan is tried, also after one has failed.
//
// Idempotent: what was deleted is absent the second time. The inventory is not touched: WriteInventory does that, so a
// prune that fails or is lost is tried again over the same records (S27).
// Fails with: PruneFailed, naming the objects.
// Heartbeat: how many orphans were handled, and the one at hand.
func (a *Activities) PruneOrphans(ctx context.Context, in PruneInput) (PruneResult, error) {
	p := &prune{Activities: a, in: in}
	return perform(ctx, a, "prune", release.PruneFailed, p.run)
}

// prune is one attempt at the prune.
type prune struct {
	*Activities
	in PruneInput
	*step
	clusterUID string
	orphans    []release.ObjectRef // not handled yet, next one first
	kept       []release.ObjectRef
	result     PruneResult
	failed     Named
}

func (p *prune) run(ctx context.Context, l *lease) (PruneResult, error) {
	var err error
	if p.step, err = p.open(ctx, p.in.Sync); err != nil {
		return PruneResult{}, err
	}
	inv, err := p.control.Inventory(ctx, p.rel)
	if err != nil {
		return PruneResult{}, err
	}
	p.orphans = release.Orphans(release.RefsOf(inv.Spec.Objects), p.plan.Refs())
	if len(p.orphans) == 0 {
		return PruneResult{}, nil
	}
	if p.clusterUID, err = p.target.Identity(ctx); err != nil {
		return PruneResult{}, err
	}
	total := len(p.orphans)
	for len(p.orphans) > 0 {
		orphan := p.orphans[0]
		p.orphans = p.orphans[1:]
		l.record(func(pr *Progress) { pr.Done, pr.Total, pr.Object = total-len(p.orphans)-1, total, orphan.String() })
		if err := p.handle(ctx, orphan); err != nil {
			if ctx.Err() != nil || release.CheckGuard(ctx) != nil {
				return PruneResult{}, err
			}
			p.failed.add(fmt.Sprintf("%s: %v", orphan, err))
			p.kept = append(p.kept, orphan)
		}
	}
	return p.result, p.failure()
}

func (p *prune) failure() error {
	if p.failed.Total == 0 {
		return nil
	}
	message := strings.Join(p.failed.Objects, "; ")
	if more := p.failed.Total - len(p.failed.Objects); more > 0 {
		message += fmt.Sprintf("; and %d more", more)
	}
	return release.Problemf(release.PruneFailed, "%d of %s could not be deleted: %s",
		p.failed.Total, release.Count(p.failed.Total+p.result.Deleted+p.result.Absent+p.result.Kept.Total, "object"), shorten(message))
}

// looks bounds how often an object that changes between the look and the delete is looked at again.
const looks = 5

// handle decides about one orphan on a fresh look, and deletes exactly what it saw (D17).
func (p *prune) handle(ctx context.Context, orphan release.ObjectRef) error {
	for range looks {
		live, err := p.target.Read(ctx, orphan)
		if err != nil {
			return err
		}
		if live == nil {
			p.result.Absent++
			return nil
		}
		view, err := p.view(ctx, orphan)
		if err != nil {
			return err
		}
		if stay, stays := release.Protection(*live, view); stays {
			p.keep(orphan, stay)
			return nil
		}
		if live.DeletionTimestamp != nil {
			p.terminating(orphan, live.Finalizers)
			return nil
		}
		deletion, err := p.target.Delete(ctx, live, p.propagation())
		if err != nil {
			return err
		}
		if deletion.Changed {
			continue
		}
		if deletion.Terminating {
			p.terminating(orphan, deletion.Finalizers)
			return nil
		}
		p.result.Deleted++
		return nil
	}
	return fmt.Errorf("it was changed by others between each look and the delete, %d times in a row", looks)
}

func (p *prune) propagation() metav1.DeletionPropagation {
	if p.in.Policy.PropagationPolicy == "" {
		return metav1.DeletePropagationBackground
	}
	return p.in.Policy.PropagationPolicy
}

func (p *prune) keep(orphan release.ObjectRef, stay release.Stay) {
	p.kept = append(p.kept, orphan)
	p.result.Kept.add(fmt.Sprintf("%s: %s", orphan, stay.Reason))
}

// terminating records a delete that finalizers hold (D18).
func (p *prune) terminating(orphan release.ObjectRef, finalizers []string) {
	p.result.Deleted++
	if len(finalizers) > 0 {
		p.result.Terminating.add(release.Held{Ref: orphan, Finalizers: finalizers}.String())
	}
}

// view is what the decision about an orphan rests on, read right before (D27).
func (p *prune) view(ctx context.Context, orphan release.ObjectRef) (release.PruneView, error) {
	view := release.PruneView{Policy: p.in.Policy, Claims: map[release.ObjectRef]string{}}
	claims, err := p.control.Claims(ctx, key(p.rel), p.clusterUID)
	if err != nil {
		return view, err
	}
	if owner, claimed := claims[orphan]; claimed {
		view.Claims[orphan] = owner.String()
	}
	if orphan.IsNamespace() {
		view.InUse = release.NamespacesInUse(p.plan.Refs(), refsClaimed(claims), p.orphans, p.kept)
	}
	view.AppliedUIDs, err = p.aliases(ctx, orphan)
	return view, err
}

func refsClaimed(claims map[release.ObjectRef]types.NamespacedName) []release.ObjectRef {
	refs := make([]release.ObjectRef, 0, len(claims))
	for ref := range claims {
		refs = append(refs, ref)
	}
	return refs
}

// aliases reads objects that this sync applied under another group with the same kind and name: the same object may be
// served by both (D17).
func (p *prune) aliases(ctx context.Context, orphan release.ObjectRef) (map[string]release.ObjectRef, error) {
	var uids map[string]release.ObjectRef
	for _, ref := range p.plan.Refs() {
		if ref.Kind != orphan.Kind || ref.Name != orphan.Name || ref.Namespace != orphan.Namespace || ref.Group == orphan.Group {
			continue
		}
		live, err := p.target.Read(ctx, ref)
		if err != nil {
			return nil, err
		}
		if live != nil {
			if uids == nil {
				uids = map[string]release.ObjectRef{}
			}
			uids[live.UID] = ref
		}
	}
	return uids, nil
}
