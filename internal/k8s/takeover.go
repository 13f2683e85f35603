package k8s

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"convoy.dev/convoy/internal/release"
)

// clientSideApply is kubectl's field manager of `kubectl apply` without --server-side.
const clientSideApply = "kubectl-client-side-apply"

// clientSideManagers names the managers of an earlier client-side apply (D15): kubectl's own, and those that own the
// annotation which only a client-side apply writes (kubectl apply --field-manager, and before-first-apply where the
// object is older than managedFields). All others, such as kubectl-create, are left alone.
func clientSideManagers(meta *metav1.ObjectMeta) []string {
	var managers []string
	for i := range meta.ManagedFields {
		entry := &meta.ManagedFields[i]
		if entry.Operation != metav1.ManagedFieldsOperationUpdate || entry.Subresource != "" {
			continue
		}
		if entry.Manager == clientSideApply || ownsLastApplied(entry) {
			managers = append(managers, entry.Manager)
		}
	}
	return unique(managers)
}

var lastAppliedPath = fieldpath.MakePathOrDie("metadata", "annotations", lastApplied)

func ownsLastApplied(entry *metav1.ManagedFieldsEntry) bool {
	if entry.FieldsV1 == nil {
		return false
	}
	raw := entry.FieldsV1.GetRawBytes()
	if !bytes.Contains(raw, []byte(lastApplied)) {
		return false
	}
	var owned fieldpath.Set
	return owned.FromJSON(bytes.NewReader(raw)) == nil && owned.Has(lastAppliedPath)
}

// takeOver makes convoy the owner of what an earlier client-side apply owned, and applies again, so that fields which
// the render does not have go (D15). The apply's own answer tells whether there is anything to take over, so objects
// that never saw a client-side apply cost nothing.
func (s *Session) takeOver(ctx context.Context, obj *release.Object, ref release.ObjectRef, meta **metav1.ObjectMeta, applied *release.Applied) error {
	managers := clientSideManagers(*meta)
	if len(managers) == 0 {
		return nil
	}
	if _, err := s.moveOwnership(ctx, obj, ref, *meta, managers); err != nil {
		return err
	}
	before := *applied
	after, again, err := s.patch(ctx, obj, ref, false)
	if err != nil {
		return err
	}
	again.Created, again.Changed, again.TakenOver = before.Created, true, managers
	again.Warnings = unique(append(before.Warnings, again.Warnings...))
	*meta, *applied = after, again
	return nil
}

// applyAfterTakeOver tries a refused apply once more after a take-over, when left-over fields may be what makes it
// invalid (D15). Does it fail all the same, the ownership is put back: an object that convoy could not apply must not
// bear its apply entry (D13).
func (s *Session) applyAfterTakeOver(
	ctx context.Context, obj *release.Object, ref release.ObjectRef, refused error, meta **metav1.ObjectMeta, applied *release.Applied,
) error {
	failure := asFailure(refused)
	if failure == nil || !mayBeLeftOver(failure) {
		return refused
	}
	live, err := s.readOnce(ctx, ref)
	if err != nil && asFailure(err) == nil {
		return err
	}
	if err != nil || live == nil || len(clientSideManagers(live)) == 0 {
		return refused
	}
	managers := clientSideManagers(live)
	moved, err := s.moveOwnership(ctx, obj, ref, live, managers)
	if err != nil {
		return err
	}
	after, again, err := s.patch(ctx, obj, ref, false)
	if err != nil {
		if failure := asFailure(err); failure != nil && failure.Class == release.Verdict {
			_ = s.putBackOwnership(ctx, obj, ref, live.ManagedFields, moved)
		}
		return err
	}
	again.Changed, again.TakenOver = true, managers
	*meta, *applied = after, again
	return nil
}

// moveOwnership sends client-go's own patch for this purpose; it replaces managedFields alone and holds only while
// the object has the same resourceVersion. Returns the metadata afterwards.
func (s *Session) moveOwnership(
	ctx context.Context, obj *release.Object, ref release.ObjectRef, live *metav1.ObjectMeta, managers []string,
) (*metav1.ObjectMeta, error) {
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(&metav1.PartialObjectMetadata{ObjectMeta: *live}, sets.New(managers...), FieldManager)
	if err != nil {
		return nil, unreadable("managedFields of "+ref.String(), err)
	}
	return s.patchManagedFields(ctx, obj, ref, patch)
}

// putBackOwnership undoes moveOwnership.
func (s *Session) putBackOwnership(
	ctx context.Context, obj *release.Object, ref release.ObjectRef, fields []metav1.ManagedFieldsEntry, moved *metav1.ObjectMeta,
) error {
	patch, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/managedFields", "value": fields},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": moved.ResourceVersion},
	})
	if err != nil {
		return err
	}
	_, err = s.patchManagedFields(ctx, obj, ref, patch)
	return err
}

func (s *Session) patchManagedFields(ctx context.Context, obj *release.Object, ref release.ObjectRef, patch []byte) (*metav1.ObjectMeta, error) {
	reply, err := s.atResource(ctx, ref, s.resolver(obj), func(path string) (answer, error) {
		return s.request(ctx, ref, nil, request{
			method: http.MethodPatch, path: path, query: url.Values{"fieldManager": {FieldManager}},
			accept: acceptMetadata, contentType: contentJSONPatch, body: patch,
		})
	})
	if err != nil {
		return nil, err
	}
	return decodeMetadata(reply.body)
}
