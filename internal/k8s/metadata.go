package k8s

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"convoy.dev/convoy/internal/release"
)

// lastApplied is where `kubectl apply` keeps a copy of the whole object, values of Secrets too.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// decodeMetadata reads the metadata of an answer's object.
func decodeMetadata(body []byte) (*metav1.ObjectMeta, error) {
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, unreadable("a request for one object", err)
	}
	if object.UID == types.UID("") && object.Name == "" {
		return nil, unreadable("a request for one object", errNoObject)
	}
	return &object.ObjectMeta, nil
}

type noObjectError struct{}

func (noObjectError) Error() string { return "it holds no object" }

var errNoObject = noObjectError{}

// ownEntry is convoy's apply entry in managedFields; nil when there is none.
func ownEntry(meta *metav1.ObjectMeta) *metav1.ManagedFieldsEntry {
	for i := range meta.ManagedFields {
		entry := &meta.ManagedFields[i]
		if entry.Manager == FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" {
			return entry
		}
	}
	return nil
}

// factOf sums up the object for a later look (D30).
func factOf(meta *metav1.ObjectMeta) release.Fact {
	entry := ownEntry(meta)
	if entry == nil {
		return release.FactOf(string(meta.UID), "", "", nil)
	}
	var fields []byte
	if entry.FieldsV1 != nil {
		fields = entry.FieldsV1.GetRawBytes()
	}
	at := ""
	if entry.Time != nil {
		at = entry.Time.UTC().Format(time.RFC3339)
	}
	return release.FactOf(string(meta.UID), entry.APIVersion, at, fields)
}

// liveObject is the metadata as the rest of convoy knows it. The copy of the object in an annotation stays behind
// (D10).
func liveObject(ref release.ObjectRef, meta *metav1.ObjectMeta) *release.Live {
	live := &release.Live{
		Ref:             ref,
		UID:             string(meta.UID),
		ResourceVersion: meta.ResourceVersion,
		Generation:      meta.Generation,
		Annotations:     meta.Annotations,
		Labels:          meta.Labels,
		OwnedByConvoy:   ownEntry(meta) != nil,
		Finalizers:      meta.Finalizers,
	}
	delete(live.Annotations, lastApplied)
	if meta.DeletionTimestamp != nil {
		live.DeletionTimestamp = &meta.DeletionTimestamp.Time
	}
	return live
}
