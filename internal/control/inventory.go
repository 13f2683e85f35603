package control

import (
	"context"
	"fmt"
	"reflect"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Inventory reads the ReleaseInventory of a Release. Where there is none it returns an empty one without
// resourceVersion, owned by the Release, that SaveInventory creates.
func (c *Client) Inventory(ctx context.Context, rel *v1alpha1.Release) (*v1alpha1.ReleaseInventory, error) {
	inv := &v1alpha1.ReleaseInventory{}
	err := retry(ctx, func() error {
		return c.client.Get(ctx, types.NamespacedName{Namespace: rel.Namespace, Name: rel.Name}, inv)
	})
	if apierrors.IsNotFound(err) {
		return newInventory(rel), nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ReleaseInventory %s/%s: %w", rel.Namespace, rel.Name, err)
	}
	return inv, nil
}

func newInventory(rel *v1alpha1.Release) *v1alpha1.ReleaseInventory {
	return &v1alpha1.ReleaseInventory{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: rel.Namespace,
			Name:      rel.Name,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(),
				Kind:       "Release",
				Name:       rel.Name,
				UID:        rel.UID,
			}},
		},
		Spec: v1alpha1.InventorySpec{Objects: []v1alpha1.ObjectRecord{}},
	}
}

// SaveInventory creates or replaces a ReleaseInventory. The resourceVersion of inv has to be that of the last read:
// else it fails with release.ErrConflict. On success inv carries the new one.
func (c *Client) SaveInventory(ctx context.Context, inv *v1alpha1.ReleaseInventory) error {
	if inv.Spec.Objects == nil {
		inv.Spec.Objects = []v1alpha1.ObjectRecord{}
	}
	err := retry(ctx, func() error {
		if inv.ResourceVersion == "" {
			return c.client.Create(ctx, inv)
		}
		return c.client.Update(ctx, inv)
	})
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("ReleaseInventory %s/%s: %w", inv.Namespace, inv.Name, release.ErrConflict)
	}
	if err != nil {
		return fmt.Errorf("write ReleaseInventory %s/%s (%d objects): %w", inv.Namespace, inv.Name,
			len(inv.Spec.Objects), err)
	}
	return nil
}

func same(a, b any) bool { return reflect.DeepEqual(a, b) }
