package k8s

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"convoy.dev/convoy/internal/release"
)

// Inspect reads objects for an expression to judge (D24): whole, except Secrets, of which it reads the metadata. Each one
// says whether its status is about what was applied, by the checks of Health. It takes as many requests as Health. The
// answer is aligned with refs.
//
// Fails with a *release.Failure of class Accident or Verdict (RBAC), or with the guard's or the context's error.
func (s *Session) Inspect(ctx context.Context, refs []release.ObjectRef) ([]release.Looked, error) {
	found, err := s.look(ctx, refs, acceptWhole)
	if err != nil {
		return nil, err
	}
	looked := make([]release.Looked, len(refs))
	for i, ref := range refs {
		looked[i] = inspected(ref, found[ref])
	}
	return looked, nil
}

func inspected(ref release.ObjectRef, object *unstructured.Unstructured) release.Looked {
	if object == nil {
		return release.Looked{Ref: ref, Unsettled: "not found"}
	}
	forget(object)
	return release.Looked{Ref: ref, Content: object.Object, Unsettled: unsettled(object)}
}

// forget drops kubectl's copy of the object, which holds the values of Secrets too (D10).
func forget(object *unstructured.Unstructured) {
	unstructured.RemoveNestedField(object.Object, "metadata", "annotations", lastApplied)
}

// unsettled says why a status is not about the object as it was applied.
func unsettled(object *unstructured.Unstructured) string {
	if object.GetDeletionTimestamp() != nil {
		return "it is being deleted"
	}
	seen, given, _ := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
	if generation := object.GetGeneration(); given && seen != generation {
		return fmt.Sprintf("its status is about generation %d, not %d", seen, generation)
	}
	return unobserved(object)
}
