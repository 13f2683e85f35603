package release

import (
	"encoding/json"
	"fmt"
	"slices"

	"convoy.dev/convoy/api/v1alpha1"
)

// Union is the previous inventory and what was applied since (S20). Records keep the place they had, so that an object
// stays after what it once needed; new ones follow in the order of application. The exact inventory at the end of a
// sync (S21) sets the order anew. Each identity occurs once.
func Union(previous, applied []ObjectRef) []ObjectRef {
	out := make([]ObjectRef, 0, len(previous)+len(applied))
	seen := make(map[ObjectRef]bool, len(previous)+len(applied))
	for _, list := range [][]ObjectRef{previous, applied} {
		for _, ref := range list {
			if !seen[ref] {
				seen[ref] = true
				out = append(out, ref)
			}
		}
	}
	return out
}

// Minus is what is in a and not in b, in the order of a.
func Minus(a, b []ObjectRef) []ObjectRef {
	drop := set(b)
	var out []ObjectRef
	for _, ref := range a {
		if !drop[ref] {
			out = append(out, ref)
		}
	}
	return out
}

// Orphans are in the inventory and not in the applied set (S24), in the reverse of the order of application (D17).
func Orphans(inventory, applied []ObjectRef) []ObjectRef {
	out := Minus(Union(inventory, nil), applied)
	slices.Reverse(out)
	return out
}

// Contains reports whether the inventory lists an object.
func Contains(inventory []ObjectRef, ref ObjectRef) bool { return slices.Contains(inventory, ref) }

// Equal reports whether two inventories list the same objects in the same order: then there is nothing to write.
func Equal(a, b []ObjectRef) bool { return slices.Equal(a, b) }

func set(refs []ObjectRef) map[ObjectRef]bool {
	out := make(map[ObjectRef]bool, len(refs))
	for _, ref := range refs {
		out[ref] = true
	}
	return out
}

// AnnotationClusterAddress on a ReleaseInventory is the address of its cluster, beside the uid in its spec. It relates
// the inventories of identities that may read that uid to those of identities that may not (D12, D27, D31).
const AnnotationClusterAddress = "convoy.dev/cluster-address"

// MaxInventoryBytes is what a ReleaseInventory may weigh: a little less than what etcd takes (D34).
const MaxInventoryBytes = 1_400_000

// inventoryOverhead is what a ReleaseInventory weighs without records: metadata, managedFields.
const inventoryOverhead = 2_000

// EstimateSize is about how many bytes a ReleaseInventory with these records takes in the API server, their facts (D30)
// included: those that are pending too get one once they are applied.
func EstimateSize(objects, pending []ObjectRef) int {
	size := inventoryOverhead
	for _, list := range [][]ObjectRef{objects, pending} {
		for _, ref := range list {
			record, err := json.Marshal(record(ref))
			if err != nil {
				panic(fmt.Sprintf("inventory record: %v", err)) // four strings: cannot happen
			}
			size += len(record) + 1 + factSize
		}
	}
	return size
}

// CheckSize refuses an inventory that the API server would not take (D34).
func CheckSize(objects, pending []ObjectRef) error {
	size := EstimateSize(objects, pending)
	if size <= MaxInventoryBytes {
		return nil
	}
	return Problemf(DeployFailed,
		"the inventory would hold %d records and take about %.2f MB, and the API server takes %.2f MB: nothing was applied; split the Release into several",
		len(objects)+len(pending), float64(size)/1e6, float64(MaxInventoryBytes)/1e6)
}

func record(ref ObjectRef) v1alpha1.ObjectRecord {
	return v1alpha1.ObjectRecord{Group: ref.Group, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}

// Records are the identities as a ReleaseInventory holds them.
func Records(refs []ObjectRef) []v1alpha1.ObjectRecord {
	out := make([]v1alpha1.ObjectRecord, len(refs))
	for i, ref := range refs {
		out[i] = record(ref)
	}
	return out
}

// RefsOf are the identities of the records of a ReleaseInventory.
func RefsOf(records []v1alpha1.ObjectRecord) []ObjectRef {
	out := make([]ObjectRef, len(records))
	for i, r := range records {
		out[i] = ObjectRef{Group: r.Group, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
	}
	return out
}
