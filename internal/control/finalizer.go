package control

import (
	"context"
	"fmt"
	"slices"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SetFinalizer adds a finalizer to a Release or removes it. Where that is so already, or the Release is gone, it does
// nothing. On success rel is the new state; it fails with release.ErrConflict when somebody else wrote the Release in
// between.
func (c *Client) SetFinalizer(ctx context.Context, rel *v1alpha1.Release, finalizer string, present bool) error {
	if slices.Contains(rel.Finalizers, finalizer) == present {
		return nil
	}
	patch := client.MergeFromWithOptions(rel.DeepCopy(), client.MergeFromWithOptimisticLock{})
	changed := rel.DeepCopy()
	changed.Finalizers = slices.DeleteFunc(changed.Finalizers, func(f string) bool { return f == finalizer })
	if present {
		changed.Finalizers = append(changed.Finalizers, finalizer)
	}
	err := retry(ctx, func() error { return c.client.Patch(ctx, changed, patch, client.FieldOwner("convoy")) })
	switch {
	case apierrors.IsNotFound(err) && !present:
		return nil
	case apierrors.IsConflict(err):
		return fmt.Errorf("finalizers of Release %s/%s: %w", rel.Namespace, rel.Name, release.ErrConflict)
	case err != nil:
		return fmt.Errorf("write the finalizers of Release %s/%s: %w", rel.Namespace, rel.Name, err)
	}
	*rel = *changed
	return nil
}
