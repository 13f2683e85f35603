package preview

import (
	"context"
	"maps"
	"slices"

	"convoy.dev/convoy/internal/release"
)

// prune decides about each orphan as the prune of a sync would (S24, S25, D12, D17, D28).
func (l *look) prune(ctx context.Context) error {
	orphans := release.Orphans(l.recorded, l.plan.Refs())
	var kept []release.ObjectRef
	for i, orphan := range orphans {
		live, err := l.session.Read(ctx, orphan)
		if err != nil {
			return err
		}
		if live == nil {
			continue
		}
		change, err := l.decide(ctx, *live, orphans[i+1:], kept)
		if err != nil {
			return err
		}
		if change.Action == Keep {
			kept = append(kept, orphan)
		}
		l.preview.Changes = append(l.preview.Changes, change)
	}
	return nil
}

// pruneOff is why orphans stay when the prune is off (D21).
const pruneOff = "spec.syncPolicy.prune.orphaned is not true: convoy forgets it"

func (l *look) decide(ctx context.Context, live release.Live, later, kept []release.ObjectRef) (Change, error) {
	policy := l.Release.Spec.SyncPolicy.Prune
	if !policy.Orphaned {
		return Change{Action: Keep, Ref: live.Ref, Detail: pruneOff}, nil
	}
	view := release.PruneView{Policy: policy, Claims: map[release.ObjectRef]string{}}
	if owner, claimed := l.claims[live.Ref]; claimed {
		view.Claims[live.Ref] = owner.String()
	}
	if live.Ref.IsNamespace() {
		view.InUse = release.NamespacesInUse(l.plan.Refs(), slices.Collect(maps.Keys(l.claims)), later, kept)
	}
	var err error
	if view.AppliedUIDs, err = l.aliases(ctx, live.Ref); err != nil {
		return Change{}, err
	}
	if stay, stays := release.Protection(live, view); stays {
		return Change{Action: Keep, Ref: live.Ref, Detail: stay.Reason}, nil
	}
	change := Change{Action: Prune, Ref: live.Ref}
	if live.DeletionTimestamp != nil {
		change.Detail = "it is being deleted already"
	}
	return change, nil
}

// aliases are objects of the render that may be the same object, served under another group (D17).
func (l *look) aliases(ctx context.Context, orphan release.ObjectRef) (map[string]release.ObjectRef, error) {
	uids := map[string]release.ObjectRef{}
	for _, ref := range l.plan.Refs() {
		if ref.Kind != orphan.Kind || ref.Name != orphan.Name || ref.Namespace != orphan.Namespace || ref.Group == orphan.Group {
			continue
		}
		live, err := l.session.Read(ctx, ref)
		if err != nil {
			return nil, err
		}
		if live != nil {
			uids[live.UID] = ref
		}
	}
	return uids, nil
}
