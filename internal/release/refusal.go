package release

import (
	"errors"
	"fmt"

	"convoy.dev/convoy/api/v1alpha1"

	"k8s.io/apimachinery/pkg/types"
)

// What refuses a sync before it asks the cluster about any object: an inventory that it would lose or endanger, and
// objects of other Releases. The sync and its preview decide here, and each says it in its own words.

// DescribesAnother reports whether an inventory lists objects of another cluster than the one with this uid (D31). An
// inventory written by an identity that could not read the uid knows its cluster by the address.
func DescribesAnother(inv v1alpha1.InventorySpec, uid, address string) bool {
	return Listed(inv) > 0 && inv.ClusterUID != "" && inv.ClusterUID != uid && inv.ClusterUID != address
}

// WouldEmpty reports whether an empty render meets an inventory with objects, and the policy does not allow that (D19).
func WouldEmpty(inv v1alpha1.InventorySpec, plan *Plan, policy v1alpha1.PrunePolicy) bool {
	return Listed(inv) > 0 && len(plan.Items) == 0 && !policy.AllowEmpty
}

// Listed is how many records an inventory holds, pending ones too.
func Listed(inv v1alpha1.InventorySpec) int { return len(inv.Objects) + len(inv.Pending) }

// CheckGrowth refuses a plan under which the inventory would become larger than the API server takes (D34).
func CheckGrowth(inv v1alpha1.InventorySpec, plan *Plan) error {
	recorded := RefsOf(inv.Objects)
	return CheckSize(Union(recorded, RefsOf(inv.Pending)), Minus(plan.Refs(), recorded))
}

// Claims are the objects that other Releases' inventories on the same cluster list or have pending, with the Release.
type Claims = map[ObjectRef]types.NamespacedName

// Clash is an object of another Release that may not move here (D27).
type Clash struct {
	Object ObjectRef
	Owner  types.NamespacedName
}

// String is for people: "ConfigMap team-a/a belongs to Release team-b/other".
func (c Clash) String() string { return fmt.Sprintf("%s belongs to Release %s", c.Object, c.Owner) }

// Clashes are the items that other Releases have and that may not move to the Release self, in the order of
// application (D27). What is recorded is self's own. annotationsOf reads the annotations of a Release, and fails with
// ErrNotFound when there is none; it is asked only where the owner has a say.
func Clashes(self types.NamespacedName, items []Item, recorded []ObjectRef, others Claims,
	annotationsOf func(types.NamespacedName) (map[string]string, error),
) ([]Clash, error) {
	var found []Clash
	for _, item := range items {
		owner, claimed := others[item.Ref]
		if !claimed || Contains(recorded, item.Ref) {
			continue
		}
		moves, err := mayMove(self, item, owner, annotationsOf)
		if err != nil {
			return nil, err
		}
		if !moves {
			found = append(found, Clash{item.Ref, owner})
		}
	}
	return found, nil
}

// mayMove decides whether an object may move from its owner to self. An owner that is gone has nothing to say.
func mayMove(self types.NamespacedName, item Item, owner types.NamespacedName,
	annotationsOf func(types.NamespacedName) (map[string]string, error),
) (bool, error) {
	if item.Object.Annotations[AnnotationAdopt] != "enabled" {
		return false, nil
	}
	if owner.Namespace == self.Namespace {
		return true, nil
	}
	annotations, err := annotationsOf(owner)
	if errors.Is(err, ErrNotFound) {
		return true, nil
	}
	return err == nil && annotations[AnnotationHandOver] == self.String(), err
}

// HowToMove is the remedy for clashes of the Release self (D27).
func HowToMove(self types.NamespacedName) string {
	return fmt.Sprintf("To move an object here, annotate it with %s: enabled; from another namespace that Release also has to carry %s: %s",
		AnnotationAdopt, AnnotationHandOver, self)
}
