// Package release is convoy's model: pure data and rules about renders, waves, identities, inventories, protection
// and reasons. It decides and never acts: no I/O, no clock, nothing of Temporal, nothing of a Kubernetes client.
package release

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ObjectRef is the identity of an object (S19): the API version is no part of it. Namespace is empty for
// cluster-scoped kinds.
type ObjectRef struct {
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String prints the reference for people: "Deployment shop/web", "Namespace shop".
func (r ObjectRef) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// GroupKind of the object.
func (r ObjectRef) GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: r.Group, Kind: r.Kind}
}

// IsCRD reports whether the object is a CustomResourceDefinition.
func (r ObjectRef) IsCRD() bool {
	return r.Group == "apiextensions.k8s.io" && r.Kind == "CustomResourceDefinition"
}

// IsNamespace reports whether the object is a Namespace.
func (r ObjectRef) IsNamespace() bool { return r.Group == "" && r.Kind == "Namespace" }

// IsSecret reports whether the object is a Secret, of which no value may be shown (D10).
func (r ObjectRef) IsSecret() bool { return r.Group == "" && r.Kind == "Secret" }

// Place is where an object stands in its source. Document and Line count from 1; Line is the line in File.
type Place struct {
	File     string
	Document int
	Line     int
}

// Object is one object of a render, after D1, D2 and D29. It is never changed once it was parsed.
type Object struct {
	// GVK is the API version and kind as written.
	GVK schema.GroupVersionKind
	// Namespace and Name as written: Namespace may be empty, or stray on a cluster-scoped kind (see Locate).
	Namespace, Name string
	// Wave is the sync wave (D6).
	Wave int32
	// Annotations of the object; values that are no strings are left out.
	Annotations map[string]string
	// JSON is the canonical document: what the digest covers, what is stored, and what is sent, apart from S14.
	JSON json.RawMessage
	// Bare: the document sets no field beside its identity, as a plain Namespace or ServiceAccount does. For such an
	// apply the API server keeps no entry in managedFields, unless something is added to it (D13, D17).
	Bare bool
	// Place is where it stands in the source; the zero Place for a render from the store.
	Place Place
}

// Ref is the identity of the object, given the scope of its kind (D4, S14): cluster-scoped kinds lose a stray
// namespace, namespaced ones without a namespace go to "default".
func (o *Object) Ref(namespaced bool) ObjectRef {
	ref := ObjectRef{Group: o.GVK.Group, Kind: o.GVK.Kind, Name: o.Name}
	if !namespaced {
		return ref
	}
	ref.Namespace = o.Namespace
	if ref.Namespace == "" {
		ref.Namespace = "default"
	}
	return ref
}

// String prints the object for people, with the namespace as written.
func (o *Object) String() string {
	return ObjectRef{Kind: o.GVK.Kind, Namespace: o.Namespace, Name: o.Name}.String()
}

// Render is the full ordered set of objects of one Release.
type Render struct {
	// Digest is "sha256:" and 64 hex digits over the ordered canonical objects (D5).
	Digest string
	// Revision names the state of the source that the render came from.
	Revision string
	// Objects in the order of the source, before D3: identical copies are still there.
	Objects []Object
	// Warnings for the person who wrote the manifests (D4, D36).
	Warnings []string
}

// Size is the number of bytes of all objects.
func (r *Render) Size() int {
	n := 0
	for i := range r.Objects {
		n += len(r.Objects[i].JSON)
	}
	return n
}

// ShortDigest is the digest as people see it: twelve hex digits.
func ShortDigest(digest string) string {
	hex := strings.TrimPrefix(digest, "sha256:")
	if len(hex) > 12 {
		return hex[:12]
	}
	return hex
}
