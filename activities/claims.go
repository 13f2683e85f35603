package activities

import (
	"context"
	"fmt"
	"sort"
	"strings"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"k8s.io/apimachinery/pkg/types"
)

// claims are the objects that other Releases' inventories on the same cluster list or have pending, with the Release.
type claims = release.Claims

// clashes are the objects of other Releases that may not move here (D27). What is recorded is this Release's own.
func (a *Activities) clashes(ctx context.Context, rel *v1alpha1.Release, items []release.Item, recorded []release.ObjectRef, others claims) ([]release.Clash, error) {
	return release.Clashes(key(rel), items, recorded, others, func(owner types.NamespacedName) (map[string]string, error) {
		loser, err := a.control.Release(ctx, owner.Namespace, owner.Name)
		if err != nil {
			return nil, err
		}
		return loser.Annotations, nil
	})
}

// refuse names the clashes and the remedy; nil where there are none. consequence says what was not done.
func refuse(rel *v1alpha1.Release, clashes []release.Clash, consequence string) error {
	if len(clashes) == 0 {
		return nil
	}
	names := make([]string, len(clashes))
	for i, c := range clashes {
		names[i] = c.String()
	}
	sort.Strings(names)
	if total := len(names); total > listLimit {
		names = append(names[:listLimit], fmt.Sprintf("and %d more", total-listLimit))
	}
	return release.Problemf(release.RenderFailed, "%s. %s. %s", strings.Join(names, "; "), consequence, release.HowToMove(key(rel)))
}
