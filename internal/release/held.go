package release

import (
	"fmt"
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

// ParseHeld reads an entry of status.terminating; ok is false for a text that is none. Workflows use it, so it takes no
// regular expression: what they use has to be plainly deterministic.
func ParseHeld(entry string) (held Held, ok bool) {
	object, rest, _ := strings.Cut(entry, " (finalizers: ")
	finalizers, closed := strings.CutSuffix(rest, ")")
	kind, name, _ := strings.Cut(object, " ")
	held.Ref.Kind, held.Ref.Group, _ = strings.Cut(kind, ".")
	namespace, inside, namespaced := strings.Cut(name, "/")
	if namespaced {
		held.Ref.Namespace, name = namespace, inside
	}
	held.Ref.Name, held.Finalizers = name, strings.Split(finalizers, ", ")
	ok = closed && finalizers != "" && held.Ref.Kind != "" && name != "" && !strings.ContainsAny(name, " /") && (namespace != "" || !namespaced)
	if !ok {
		return Held{}, false
	}
	return held, true
}
