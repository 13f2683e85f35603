package release

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Scope says whether the objects of a kind are namespaced, and whether the answer is known at all.
type Scope func(schema.GroupVersionKind) (namespaced, known bool)

// CRDScopes are the scopes of the kinds whose CustomResourceDefinition is in the render (D4). Versions do not matter.
func CRDScopes(r *Render) Scope {
	definitions := customKinds(r)
	return func(gvk schema.GroupVersionKind) (namespaced, known bool) {
		definition, ok := definitions[gvk.GroupKind()]
		return definition.namespaced, ok
	}
}

// customKind is what a CustomResourceDefinition says about its kind.
type customKind struct {
	namespaced bool
	plural     string
}

func customKinds(r *Render) map[schema.GroupKind]customKind {
	out := map[schema.GroupKind]customKind{}
	for i := range r.Objects {
		if gk, kind, ok := customKindOf(&r.Objects[i]); ok {
			out[gk] = kind
		}
	}
	return out
}

// DefinedKind is the kind that a CustomResourceDefinition of the render defines; false for any other object.
func DefinedKind(o *Object) (schema.GroupKind, bool) {
	gk, _, ok := customKindOf(o)
	return gk, ok
}

func customKindOf(o *Object) (schema.GroupKind, customKind, bool) {
	if !(ObjectRef{Group: o.GVK.Group, Kind: o.GVK.Kind}).IsCRD() {
		return schema.GroupKind{}, customKind{}, false
	}
	m, err := readCanonical(o.JSON)
	if err != nil {
		return schema.GroupKind{}, customKind{}, false
	}
	spec, _ := m["spec"].(map[string]any)
	names, _ := spec["names"].(map[string]any)
	gk := schema.GroupKind{Group: text(spec["group"]), Kind: text(names["kind"])}
	kind := customKind{namespaced: spec["scope"] == "Namespaced", plural: text(names["plural"])}
	known := spec["scope"] == "Namespaced" || spec["scope"] == "Cluster"
	return gk, kind, known && gk.Kind != ""
}

// Item is an object of a plan.
type Item struct {
	Object *Object
	// Ref is the normalised identity (D4, S14).
	Ref ObjectRef
	// Index is the position in the render, from 1.
	Index int
	// ScopeUnknown: neither the cluster nor the render says whether the kind is namespaced; Ref is a guess.
	ScopeUnknown bool
}

// Plan is a render with the identities that its objects have on one cluster, in the order of application (S15, S16).
type Plan struct {
	// Items, by wave, and inside a wave in the order of the render. Identical copies are gone (D3).
	Items []Item
	// Waves that have objects, ascending.
	Waves []Wave
	// Unknown are the kinds whose scope nobody knows, each once.
	Unknown []schema.GroupVersionKind
	// Warnings: those of the render, and those that come up here (D4).
	Warnings []string
}

// Refs are the identities in the order of application.
func (p *Plan) Refs() []ObjectRef {
	refs := make([]ObjectRef, len(p.Items))
	for i := range p.Items {
		refs[i] = p.Items[i].Ref
	}
	return refs
}

// InWave are the items of a wave.
func (p *Plan) InWave(w Wave) []Item { return p.Items[w.First : w.First+w.Count] }

// Locate gives each object of the render its identity on a cluster (D3, D4). The scope of a kind is the cluster's
// answer, or that of the CustomResourceDefinition in the render; where both are silent, the namespace is taken as
// written, and "default" where there is none. Two different objects with one identity are a Problem (RenderFailed)
// that names both places; an object that stands there under another API version is a different one.
func Locate(r *Render, cluster Scope) (*Plan, error) {
	l := locator{scope: firstKnown(cluster, CRDScopes(r)), seen: map[ObjectRef]Item{}}
	l.plan.Warnings = slices.Clone(r.Warnings)
	for i := range r.Objects {
		l.add(&r.Objects[i], i+1)
	}
	if len(l.clashes) > 0 {
		return nil, clashes(l.clashes)
	}
	slices.SortStableFunc(l.plan.Items, func(a, b Item) int { return int(int64(a.Object.Wave) - int64(b.Object.Wave)) })
	l.plan.Waves = group(l.plan.Items)
	return &l.plan, nil
}

func firstKnown(scopes ...Scope) Scope {
	return func(gvk schema.GroupVersionKind) (namespaced, known bool) {
		for _, scope := range scopes {
			if scope == nil {
				continue
			}
			if namespaced, known := scope(gvk); known {
				return namespaced, true
			}
		}
		return false, false
	}
}

type locator struct {
	scope   Scope
	plan    Plan
	seen    map[ObjectRef]Item
	clashes []string
}

func (l *locator) add(o *Object, index int) {
	item := l.locate(o, index)
	first, twice := l.seen[item.Ref]
	switch {
	case !twice:
		l.seen[item.Ref] = item
		l.plan.Items = append(l.plan.Items, item)
	case !sameContent(first, item):
		l.clashes = append(l.clashes, fmt.Sprintf("%s stands twice in the render with different content: %s and %s",
			item.Ref, at(first.Object, first.Index), at(o, index)))
	}
}

func (l *locator) locate(o *Object, index int) Item {
	namespaced, known := l.scope(o.GVK)
	if !known && !slices.Contains(l.plan.Unknown, o.GVK) {
		l.plan.Unknown = append(l.plan.Unknown, o.GVK)
	}
	if known && !namespaced && o.Namespace != "" {
		l.plan.Warnings = append(l.plan.Warnings, fmt.Sprintf(
			"%s %s is cluster-scoped: its namespace %q is ignored (%s)", o.GVK.Kind, o.Name, o.Namespace, at(o, index)))
	}
	return Item{Object: o, Ref: o.Ref(namespaced || !known), Index: index, ScopeUnknown: !known}
}

// sameContent compares two documents as they are once their namespaces are normalised (D3).
func sameContent(a, b Item) bool {
	return bytes.Equal(a.Object.JSON, b.Object.JSON) || bytes.Equal(normalised(a), normalised(b))
}

func normalised(item Item) []byte {
	m, err := readCanonical(item.Object.JSON)
	if err != nil {
		return item.Object.JSON
	}
	metadata, _ := m["metadata"].(map[string]any)
	delete(metadata, "namespace")
	if item.Ref.Namespace != "" {
		metadata["namespace"] = item.Ref.Namespace
	}
	return canonical(m)
}

func clashes(all []string) *Problem {
	listed := all[:min(len(all), maxListed)]
	message := strings.Join(listed, "\n")
	if more := len(all) - len(listed); more > 0 {
		message += fmt.Sprintf("\n… and %d more", more)
	}
	return Problemf(RenderFailed, "%s", message)
}
