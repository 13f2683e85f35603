package preview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"convoy.dev/convoy/internal/release"

	"k8s.io/apimachinery/pkg/types"
)

// readClaims reads what other Releases' inventories on this cluster list (D12, D27).
func (l *look) readClaims(ctx context.Context) error {
	self := types.NamespacedName{Namespace: l.Release.Namespace, Name: l.Release.Name}
	claims, err := l.Control.Claims(ctx, self, l.clusterUID)
	if err != nil {
		return err
	}
	l.claims = make(map[release.ObjectRef]string, len(claims))
	for ref, owner := range claims {
		l.claims[ref] = owner.String()
	}
	return nil
}

// refusal is why a sync would end before it asks the cluster about any object (D19, D27, D31, D34).
func (l *look) refusal(ctx context.Context) (*release.Problem, error) {
	inv := l.inventory
	pending := release.RefsOf(inv.Spec.Pending)
	listed := len(inv.Spec.Objects) + len(pending)
	switch {
	case listed > 0 && inv.Spec.ClusterUID != "" && inv.Spec.ClusterUID != l.clusterUID && inv.Spec.ClusterUID != l.cluster.Address():
		return release.Problemf(release.RenderFailed,
			"the inventory lists %d objects on the cluster %s, and the Release leads to the cluster %s now: lead it back, or empty the Release there first",
			listed, inv.Spec.ClusterUID, l.clusterUID), nil
	case listed > 0 && len(l.plan.Items) == 0 && !l.Release.Spec.SyncPolicy.Prune.AllowEmpty:
		return release.Problemf(release.RenderFailed,
			"the render is empty and the inventory lists %d objects: if everything is to go, set spec.syncPolicy.prune.allowEmpty to true", listed), nil
	}
	var problem *release.Problem
	err := release.CheckSize(release.Union(l.recorded, pending), release.Minus(l.plan.Refs(), l.recorded))
	if errors.As(err, &problem) {
		return problem, nil
	}
	return l.claimed(ctx)
}

// claimed refuses objects of other Releases that may not move here (D27).
func (l *look) claimed(ctx context.Context) (*release.Problem, error) {
	var refused []string
	for _, item := range l.plan.Items {
		owner, claimed := l.claims[item.Ref]
		if !claimed || release.Contains(l.recorded, item.Ref) {
			continue
		}
		allowed, err := l.mayAdopt(ctx, item, owner)
		if err != nil {
			return nil, err
		}
		if !allowed {
			refused = append(refused, fmt.Sprintf("%s belongs to Release %s", item.Ref, owner))
		}
	}
	if len(refused) == 0 {
		return nil, nil
	}
	slices.Sort(refused)
	return release.Problemf(release.RenderFailed, "%s. To move an object here, annotate it with %s: enabled; from another namespace that Release also has to carry %s: %s/%s",
		strings.Join(refused, "; "), release.AnnotationAdopt, release.AnnotationHandOver, l.Release.Namespace, l.Release.Name), nil
}

func (l *look) mayAdopt(ctx context.Context, item release.Item, owner string) (bool, error) {
	if item.Object.Annotations[release.AnnotationAdopt] != "enabled" {
		return false, nil
	}
	namespace, name, _ := strings.Cut(owner, string(types.Separator))
	if namespace == l.Release.Namespace {
		return true, nil
	}
	loser, err := l.Control.Release(ctx, namespace, name)
	if errors.Is(err, release.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return loser.Annotations[release.AnnotationHandOver] == l.Release.Namespace+"/"+l.Release.Name, nil
}
