package activities

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"k8s.io/apimachinery/pkg/types"
)

// claims are the objects that other Releases' inventories on the same cluster list or have pending, with the Release.
type claims = map[release.ObjectRef]types.NamespacedName

// clash is an object that another Release has and that may not move here.
type clash struct {
	object release.ObjectRef
	owner  types.NamespacedName
}

// clashes are the objects of other Releases that may not move here (D27). What is recorded is this Release's own.
func (a *Activities) clashes(ctx context.Context, rel *v1alpha1.Release, items []release.Item, recorded []release.ObjectRef, others claims) ([]clash, error) {
	var found []clash
	for i := range items {
		owner, claimed := others[items[i].Ref]
		if !claimed || release.Contains(recorded, items[i].Ref) {
			continue
		}
		allowed, err := a.mayAdopt(ctx, rel, items[i], owner)
		if err != nil {
			return nil, err
		}
		if !allowed {
			found = append(found, clash{items[i].Ref, owner})
		}
	}
	return found, nil
}

// mayAdopt decides whether an object of another Release may move here (D27).
func (a *Activities) mayAdopt(ctx context.Context, rel *v1alpha1.Release, item release.Item, owner types.NamespacedName) (bool, error) {
	if item.Object.Annotations[release.AnnotationAdopt] != "enabled" {
		return false, nil
	}
	if owner.Namespace == rel.Namespace {
		return true, nil
	}
	loser, err := a.control.Release(ctx, owner.Namespace, owner.Name)
	if errors.Is(err, release.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return loser.Annotations[release.AnnotationHandOver] == key(rel).String(), nil
}

// refuse names the clashes and the remedy; nil where there are none. consequence says what was not done.
func refuse(rel *v1alpha1.Release, clashes []clash, consequence string) error {
	if len(clashes) == 0 {
		return nil
	}
	names := make([]string, len(clashes))
	for i, c := range clashes {
		names[i] = fmt.Sprintf("%s belongs to Release %s", c.object, c.owner)
	}
	sort.Strings(names)
	if total := len(names); total > listLimit {
		names = append(names[:listLimit], fmt.Sprintf("and %d more", total-listLimit))
	}
	return release.Problemf(release.RenderFailed,
		"%s. %s. To move an object here, annotate it with %s: enabled; from another namespace that Release also has to carry %s: %s/%s",
		strings.Join(names, "; "), consequence, release.AnnotationAdopt, release.AnnotationHandOver, rel.Namespace, rel.Name)
}
