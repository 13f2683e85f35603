package preview

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"convoy.dev/convoy/internal/k8s"
	"convoy.dev/convoy/internal/release"
)

// WholeObjects compares whole objects, which the sync itself never reads: the live one with the answer of a dry run.
type WholeObjects struct {
	client  dynamic.Interface
	session *k8s.Session
}

// Difference is what an apply would change on an object that exists.
type Difference struct {
	Fields []Field
	// Ownership: convoy would become the owner of fields, or give some up.
	Ownership bool
}

// Changed reports whether the apply would change anything.
func (d Difference) Changed() bool { return len(d.Fields) > 0 || d.Ownership }

// Difference asks what an apply of obj as ref would change. Of a Secret no value is told, nor what the API server says
// about it (D10).
func (w *WholeObjects) Difference(ctx context.Context, obj *release.Object, ref release.ObjectRef) (Difference, error) {
	mapping, err := w.session.Resolve(ctx, obj.GVK)
	if err != nil {
		return Difference{}, err
	}
	var resource dynamic.ResourceInterface = w.client.Resource(mapping.Resource)
	if mapping.Namespaced {
		resource = w.client.Resource(mapping.Resource).Namespace(ref.Namespace)
	}
	body, err := document(obj, ref)
	if err != nil {
		return Difference{}, err
	}
	live, err := resource.Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return Difference{}, readable(ref, err)
	}
	force := true
	next, err := resource.Patch(ctx, ref.Name, types.ApplyPatchType, body,
		metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: k8s.FieldManager, Force: &force})
	if err != nil {
		return Difference{}, readable(ref, err)
	}
	return Difference{
		Fields:    Compare(live.Object, next.Object, ref.IsSecret()),
		Ownership: ownedBy(live) != ownedBy(next),
	}, nil
}

// document is the object with its normalised namespace.
func document(obj *release.Object, ref release.ObjectRef) ([]byte, error) {
	var object unstructured.Unstructured
	if err := json.Unmarshal(obj.JSON, &object.Object); err != nil {
		return nil, fmt.Errorf("%s: document: %w", ref, err)
	}
	object.SetNamespace(ref.Namespace)
	return json.Marshal(object.Object)
}

// readable drops what the API server says about a Secret.
func readable(ref release.ObjectRef, err error) error {
	if !ref.IsSecret() {
		return fmt.Errorf("%s: %w", ref, err)
	}
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return fmt.Errorf("%s: %s (the API server's message is not shown, since it can hold values of the Secret)", ref, reason)
	}
	return errors.New(ref.String() + ": it could not be compared")
}

// ownedBy is the set of fields that convoy owns by apply, as the API server writes it.
func ownedBy(object *unstructured.Unstructured) string {
	entries := object.GetManagedFields()
	i := slices.IndexFunc(entries, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == k8s.FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == ""
	})
	if i < 0 || entries[i].FieldsV1 == nil {
		return ""
	}
	return string(entries[i].FieldsV1.GetRawBytes())
}
