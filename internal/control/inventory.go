package control

import (
	"context"
	"fmt"
	"reflect"
	"slices"

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
	if rel.UID != "" { // one that outlived its Release belongs to this one from its next write on
		inv.OwnerReferences = ownedBy(rel)
	}
	return inv, nil
}

func newInventory(rel *v1alpha1.Release) *v1alpha1.ReleaseInventory {
	inv := &v1alpha1.ReleaseInventory{
		ObjectMeta: metav1.ObjectMeta{Namespace: rel.Namespace, Name: rel.Name, OwnerReferences: ownedBy(rel)},
		Spec:       v1alpha1.InventorySpec{Objects: []v1alpha1.ObjectRecord{}},
	}
	if rel.Spec.DeletionPolicy == v1alpha1.DeletionPrune {
		inv.Finalizers = []string{v1alpha1.FinalizerPrune}
	}
	return inv
}

func ownedBy(rel *v1alpha1.Release) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Release", Name: rel.Name, UID: rel.UID}}
}

// HoldInventory puts a finalizer on the inventory of a Release, so that it outlives the prune that needs it, or takes it
// off. A garbage collector that deletes in the foreground, the deletion of the namespace, or a person would else take
// the records away first. Where there is no inventory, it does nothing.
func (c *Client) HoldInventory(ctx context.Context, rel *v1alpha1.Release, finalizer string, held bool) error {
	for {
		inv, err := c.Inventory(ctx, rel)
		if err != nil || inv.ResourceVersion == "" || slices.Contains(inv.Finalizers, finalizer) == held || held && inv.DeletionTimestamp != nil {
			return err
		}
		inv.Finalizers = slices.DeleteFunc(inv.Finalizers, func(f string) bool { return f == finalizer })
		if held {
			inv.Finalizers = append(inv.Finalizers, finalizer)
		}
		err = retry(ctx, func() error { return c.client.Update(ctx, inv) })
		switch {
		case apierrors.IsConflict(err):
			continue
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("write the finalizers of ReleaseInventory %s/%s: %w", inv.Namespace, inv.Name, err)
		}
		return nil
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
		return fmt.Errorf("write ReleaseInventory %s/%s (%s): %w", inv.Namespace, inv.Name,
			release.Count(len(inv.Spec.Objects), "object"), err)
	}
	return nil
}

func same(a, b any) bool { return reflect.DeepEqual(a, b) }
