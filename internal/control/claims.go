package control

import (
	"context"
	"fmt"
	"slices"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// claim is what one ReleaseInventory lists or has pending, kept between syncs so that only changed inventories are
// read again.
type claim struct {
	resourceVersion string
	clusterUID      string
	address         string
	objects         map[release.ObjectRef]struct{}
}

// pageSize bounds how many inventories one answer holds; relistAbove is from how many changed ones a whole list is
// cheaper than single reads.
const (
	pageSize    = 200
	relistAbove = 20
)

// Claims reads which objects of a target cluster the inventories of other Releases list or have pending (D12, D27).
// It costs one metadata list plus a read for each inventory that changed since the last call of this worker.
func (c *Client) Claims(ctx context.Context, self types.NamespacedName, clusterUID string) (map[release.ObjectRef]types.NamespacedName, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed, err := c.changedInventories(ctx)
	if err != nil {
		return nil, err
	}
	if len(changed) > relistAbove {
		err = c.relist(ctx)
	} else {
		err = c.reread(ctx, changed)
	}
	if err != nil {
		return nil, err
	}
	owners := map[release.ObjectRef]types.NamespacedName{}
	same := c.namesOf(clusterUID)
	for key, claim := range c.claims {
		if key == self || !same[claim.clusterUID] {
			continue
		}
		for ref := range claim.objects {
			owners[ref] = key
		}
	}
	return owners, nil
}

// namesOf are the names that inventories have for a cluster: its uid, and its address where an identity may not read
// that. Inventories that know both relate the two.
func (c *Client) namesOf(clusterUID string) map[string]bool {
	names := map[string]bool{clusterUID: true}
	for _, claim := range c.claims {
		switch {
		case claim.address == "":
		case claim.clusterUID == clusterUID:
			names[claim.address] = true
		case claim.address == clusterUID:
			names[claim.clusterUID] = true
		}
	}
	return names
}

// changedInventories names the inventories that are new or differ from what is kept, and forgets those that are gone.
func (c *Client) changedInventories(ctx context.Context) ([]types.NamespacedName, error) {
	seen := map[types.NamespacedName]bool{}
	var changed []types.NamespacedName
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ReleaseInventoryList"))
	for {
		err := retry(ctx, func() error {
			return c.client.List(ctx, list, client.Limit(10*pageSize), client.Continue(list.Continue))
		})
		if err != nil {
			return nil, fmt.Errorf("list ReleaseInventories: %w", err)
		}
		for i := range list.Items {
			key := client.ObjectKeyFromObject(&list.Items[i])
			seen[key] = true
			if kept := c.claims[key]; kept == nil || kept.resourceVersion != list.Items[i].ResourceVersion {
				changed = append(changed, key)
			}
		}
		if list.Continue == "" {
			break
		}
	}
	for key := range c.claims {
		if !seen[key] {
			delete(c.claims, key)
		}
	}
	return changed, nil
}

func (c *Client) reread(ctx context.Context, keys []types.NamespacedName) error {
	for _, key := range keys {
		inv := &v1alpha1.ReleaseInventory{}
		err := retry(ctx, func() error { return c.client.Get(ctx, key, inv) })
		if apierrors.IsNotFound(err) {
			delete(c.claims, key)
			continue
		}
		if err != nil {
			return fmt.Errorf("read ReleaseInventory %s: %w", key, err)
		}
		c.keep(inv)
	}
	return nil
}

func (c *Client) relist(ctx context.Context) error {
	list := &v1alpha1.ReleaseInventoryList{}
	for {
		err := retry(ctx, func() error {
			return c.client.List(ctx, list, client.Limit(pageSize), client.Continue(list.Continue))
		})
		if err != nil {
			return fmt.Errorf("list ReleaseInventories: %w", err)
		}
		for i := range list.Items {
			c.keep(&list.Items[i])
		}
		if list.Continue == "" {
			return nil
		}
	}
}

func (c *Client) keep(inv *v1alpha1.ReleaseInventory) {
	kept := &claim{
		resourceVersion: inv.ResourceVersion,
		clusterUID:      inv.Spec.ClusterUID,
		address:         inv.Annotations[release.AnnotationClusterAddress],
		objects:         make(map[release.ObjectRef]struct{}, len(inv.Spec.Objects)+len(inv.Spec.Pending)),
	}
	for _, records := range [][]v1alpha1.ObjectRecord{inv.Spec.Objects, inv.Spec.Pending} {
		for _, record := range records {
			kept.objects[release.ObjectRef(record)] = struct{}{}
		}
	}
	c.claims[client.ObjectKeyFromObject(inv)] = kept
}

// Disclaim removes objects from the inventory of another Release, whether listed or pending, because they have moved
// away from it (D27).
func (c *Client) Disclaim(ctx context.Context, from types.NamespacedName, moved map[release.ObjectRef]bool) error {
	for {
		inv := &v1alpha1.ReleaseInventory{}
		err := retry(ctx, func() error { return c.client.Get(ctx, from, inv) })
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read ReleaseInventory %s: %w", from, err)
		}
		if !disclaim(inv, moved) {
			return nil
		}
		err = retry(ctx, func() error { return c.client.Update(ctx, inv) })
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("take over objects from ReleaseInventory %s: %w", from, err)
		}
		return nil
	}
}

// disclaim reports whether the inventory held any of what moved. What stays keeps its fact (D30).
func disclaim(inv *v1alpha1.ReleaseInventory, moved map[release.ObjectRef]bool) bool {
	objects, pending := without(inv.Spec.Objects, moved), without(inv.Spec.Pending, moved)
	if len(objects) == len(inv.Spec.Objects) && len(pending) == len(inv.Spec.Pending) {
		return false
	}
	release.SetObjects(inv, objects, release.FactsOf(inv))
	inv.Spec.Pending = release.Records(pending)
	return true
}

func without(records []v1alpha1.ObjectRecord, moved map[release.ObjectRef]bool) []release.ObjectRef {
	return slices.DeleteFunc(release.RefsOf(records), func(ref release.ObjectRef) bool { return moved[ref] })
}
