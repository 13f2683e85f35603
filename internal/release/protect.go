package release

import (
	"fmt"
	"strings"

	"convoy.dev/convoy/api/v1alpha1"
)

// StayKind is why an orphan is not deleted.
type StayKind string

// The kinds. Each of them leaves the inventory.
const (
	// Protected: its kind or a mark on it keeps it (D12, D28).
	Protected StayKind = "Protected"
	// Foreign: it bears no apply entry of convoy, so somebody else made it anew (D17).
	Foreign StayKind = "Foreign"
	// Moved: another Release has it now, or this one under another group (D12, D17, D27).
	Moved StayKind = "Moved"
)

// Stay says that an orphan stays on the cluster, and why.
type Stay struct {
	Kind StayKind
	// Reason is for people: "it carries convoy.dev/prune: disabled".
	Reason string
}

// PruneView is what the decision about an orphan rests on, besides the orphan itself.
type PruneView struct {
	Policy v1alpha1.PrunePolicy
	// Claims: objects that another Release's inventory on the same cluster lists or has pending, with that Release as
	// "namespace/name". Read them right before each delete (D27).
	Claims map[ObjectRef]string
	// InUse: Namespaces that still hold something, with an example: see NamespacesInUse (D28).
	InUse map[string]ObjectRef
	// AppliedUIDs: what this sync has applied, by uid (D17).
	AppliedUIDs map[string]ObjectRef
}

// NamespacesInUse are the Namespaces that hold one of the objects, with the first of them (D28). Give it the applied
// set, the records of every other inventory on the cluster, and the orphans that have not been deleted.
func NamespacesInUse(lists ...[]ObjectRef) map[string]ObjectRef {
	out := map[string]ObjectRef{}
	for _, list := range lists {
		for _, ref := range list {
			if _, known := out[ref.Namespace]; !known && ref.Namespace != "" {
				out[ref.Namespace] = ref
			}
		}
	}
	return out
}

// protection is one rule that keeps an orphan.
type protection func(Live, PruneView) (Stay, bool)

// protections in the order in which they are asked: whose it is, then what it is, then what it says.
var protections = []protection{
	movedToAnotherRelease,
	appliedUnderAnotherGroup,
	madeAnew,
	protectedKind,
	namespaceInUse,
	keepMark,
}

// Protection decides whether an orphan stays on the cluster. live was read right before.
func Protection(live Live, view PruneView) (Stay, bool) {
	for _, protects := range protections {
		if stay, ok := protects(live, view); ok {
			return stay, true
		}
	}
	return Stay{}, false
}

func movedToAnotherRelease(live Live, view PruneView) (Stay, bool) {
	owner, ok := view.Claims[live.Ref]
	return Stay{Moved, fmt.Sprintf("it belongs to the Release %s now", owner)}, ok
}

func appliedUnderAnotherGroup(live Live, view PruneView) (Stay, bool) {
	ref, ok := view.AppliedUIDs[live.UID]
	return Stay{Moved, fmt.Sprintf("this sync has applied the same object as %s of the group %q", ref, ref.Group)}, ok && live.UID != ""
}

func madeAnew(live Live, _ PruneView) (Stay, bool) {
	return Stay{Foreign, "it bears no apply entry of convoy: somebody else has made it anew"}, !live.OwnedByConvoy
}

func protectedKind(live Live, view PruneView) (Stay, bool) {
	switch {
	case live.Ref.IsNamespace() && !view.Policy.Namespaces:
		return Stay{Protected, "Namespaces are not pruned unless spec.syncPolicy.prune.namespaces is true"}, true
	case live.Ref.IsCRD() && !view.Policy.CustomResourceDefinitions:
		return Stay{Protected, "CustomResourceDefinitions are not pruned unless spec.syncPolicy.prune.customResourceDefinitions is true"}, true
	default:
		return Stay{}, false
	}
}

func namespaceInUse(live Live, view PruneView) (Stay, bool) {
	if !live.Ref.IsNamespace() {
		return Stay{}, false
	}
	held, ok := view.InUse[live.Ref.Name]
	return Stay{Protected, fmt.Sprintf("it still holds %s", held)}, ok
}

// keepMark looks for the annotations that keep an object, on the live object: the render no longer holds it (D12).
func keepMark(live Live, _ PruneView) (Stay, bool) {
	for _, mark := range []struct{ name, value string }{
		{AnnotationPrune, "disabled"},
		{"helm.sh/resource-policy", "keep"},
		{"kustomize.toolkit.fluxcd.io/prune", "disabled"},
	} {
		if strings.EqualFold(strings.TrimSpace(live.Annotations[mark.name]), mark.value) {
			return Stay{Protected, fmt.Sprintf("it carries the annotation %s: %s", mark.name, mark.value)}, true
		}
	}
	return argoMark(live)
}

// argoMark reads Argo CD's list of options. Prune=confirm asks for a person's word before a prune; there is none to be
// had here, so it keeps the object too.
func argoMark(live Live) (Stay, bool) {
	const name = "argocd.argoproj.io/sync-options"
	for option := range strings.SplitSeq(live.Annotations[name], ",") {
		option = strings.TrimSpace(option)
		if option == "Prune=false" || option == "Prune=confirm" {
			return Stay{Protected, fmt.Sprintf("it carries the annotation %s: %s", name, option)}, true
		}
	}
	return Stay{}, false
}
