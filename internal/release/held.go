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

// ParseHeld reads an entry of status.terminating; ok is false for a text that is none. It takes no regular expression:
// workflows use it, and what they use has to be plainly deterministic.
func ParseHeld(entry string) (held Held, ok bool) {
	object, rest, found := strings.Cut(entry, " (finalizers: ")
	finalizers, closed := strings.CutSuffix(rest, ")")
	kind, name, named := strings.Cut(object, " ")
	if !found || !closed || !named || kind == "" || name == "" || finalizers == "" {
		return Held{}, false
	}
	held.Ref.Kind, held.Ref.Group, _ = strings.Cut(kind, ".")
	if namespace, inside, namespaced := strings.Cut(name, "/"); namespaced {
		held.Ref.Namespace, name = namespace, inside
	}
	if strings.ContainsAny(name, " /") || name == "" || held.Ref.Kind == "" {
		return Held{}, false
	}
	held.Ref.Name, held.Finalizers = name, strings.Split(finalizers, ", ")
	return held, true
}
