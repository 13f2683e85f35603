package preview

import (
	"context"
	"errors"
	"slices"
	"strings"

	"convoy.dev/convoy/internal/release"

	"k8s.io/apimachinery/pkg/types"
)

// self is the name of the Release.
func (l *look) self() types.NamespacedName {
	return types.NamespacedName{Namespace: l.Release.Namespace, Name: l.Release.Name}
}

// readClaims reads what other Releases' inventories on this cluster list (D12, D27).
func (l *look) readClaims(ctx context.Context) error {
	var err error
	l.claims, err = l.Control.Claims(ctx, l.self(), l.clusterUID)
	return err
}

// refusal is why a sync would end before it asks the cluster about any object (D19, D27, D31, D34).
func (l *look) refusal(ctx context.Context) (*release.Problem, error) {
	inv := l.inventory.Spec
	switch listed := release.Listed(inv); {
	case release.DescribesAnother(inv, l.clusterUID, l.session.Address()):
		return release.Problemf(release.RenderFailed,
			"the inventory lists %s on the cluster %s, and the Release leads to the cluster %s now: lead it back, or empty the Release there first",
			release.Count(listed, "object"), inv.ClusterUID, l.clusterUID), nil
	case release.WouldEmpty(inv, l.plan, l.Release.Spec.SyncPolicy.Prune):
		return release.Problemf(release.RenderFailed,
			"the render is empty and the inventory lists %s: if everything is to go, set spec.syncPolicy.prune.allowEmpty to true", release.Count(listed, "object")), nil
	}
	var problem *release.Problem
	if errors.As(release.CheckGrowth(inv, l.plan), &problem) {
		return problem, nil
	}
	return l.claimed(ctx)
}

// claimed refuses objects of other Releases that may not move here (D27).
func (l *look) claimed(ctx context.Context) (*release.Problem, error) {
	clashes, err := release.Clashes(l.self(), l.plan.Items, l.recorded, l.claims, func(owner types.NamespacedName) (map[string]string, error) {
		loser, err := l.Control.Release(ctx, owner.Namespace, owner.Name)
		if err != nil {
			return nil, err
		}
		return loser.Annotations, nil
	})
	if err != nil || len(clashes) == 0 {
		return nil, err
	}
	refused := make([]string, len(clashes))
	for i, clash := range clashes {
		refused[i] = clash.String()
	}
	slices.Sort(refused)
	return release.Problemf(release.RenderFailed, "%s. %s", strings.Join(refused, "; "), release.HowToMove(l.self())), nil
}
