package release

import (
	"fmt"
	"regexp"
	"strings"
)

// Held is a pruned object that finalizers hold on the cluster (D18).
type Held struct {
	Ref        ObjectRef
	Finalizers []string
}

// String is the object's entry in status.terminating: "Deployment.apps shop/web (finalizers: foregroundDeletion)". The
// group is in it because the entry is all that a later sync knows about the object.
func (h Held) String() string {
	kind := h.Ref.GroupKind().String()
	return fmt.Sprintf("%s (finalizers: %s)", strings.Replace(h.Ref.String(), h.Ref.Kind, kind, 1), strings.Join(h.Finalizers, ", "))
}

var heldEntry = regexp.MustCompile(`^([^ .]+)(?:\.([^ ]+))? (?:([^ /]+)/)?([^ /]+) \(finalizers: (.+)\)$`)

// ParseHeld reads an entry of status.terminating; ok is false for a text that is none.
func ParseHeld(entry string) (held Held, ok bool) {
	parts := heldEntry.FindStringSubmatch(entry)
	if parts == nil {
		return Held{}, false
	}
	return Held{
		Ref:        ObjectRef{Kind: parts[1], Group: parts[2], Namespace: parts[3], Name: parts[4]},
		Finalizers: strings.Split(parts[5], ", "),
	}, true
}
