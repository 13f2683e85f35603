package k8s

import (
	"context"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"convoy.dev/convoy/internal/release"
)

// Read returns the live object's metadata, nil when it is absent: not found, or of a kind that fresh discovery does
// not know (S26, D17). A group whose discovery fails is an accident, not absence. Live.Annotations lack kubectl's
// copy of the object (D10). Accidents are retried within the session's budget.
//
// Fails with a *release.Failure of class Accident or Verdict (RBAC), or with the guard's or the context's error.
func (s *Session) Read(ctx context.Context, ref release.ObjectRef) (*release.Live, error) {
	meta, err := s.readMetadata(ctx, ref)
	if err != nil || meta == nil {
		return nil, err
	}
	return liveObject(ref, meta), nil
}

func (s *Session) readMetadata(ctx context.Context, ref release.ObjectRef) (*metav1.ObjectMeta, error) {
	var meta *metav1.ObjectMeta
	err := s.retry(ctx, nil, func(ctx context.Context) (err error) {
		meta, err = s.readOnce(ctx, ref)
		return err
	})
	return meta, err
}

// readOnce is one try of readMetadata.
func (s *Session) readOnce(ctx context.Context, ref release.ObjectRef) (*metav1.ObjectMeta, error) {
	reply, err := s.get(ctx, ref, acceptMetadata)
	if err != nil {
		return nil, absentOr(ref, err)
	}
	return decodeMetadata(reply.body)
}

// get reads one object in the preferred version of its kind.
func (s *Session) get(ctx context.Context, ref release.ObjectRef, accept string) (answer, error) {
	return s.atKind(ctx, ref, func(path string) (answer, error) {
		return s.request(ctx, ref, nil, request{method: http.MethodGet, path: path, accept: accept})
	})
}

// atKind is atResource for a reference, which has no version (S19).
func (s *Session) atKind(ctx context.Context, ref release.ObjectRef, do func(path string) (answer, error)) (answer, error) {
	resolve := func(ctx context.Context) (Mapping, error) { return s.cluster.ResolveKind(ctx, ref.GroupKind()) }
	return s.atResource(ctx, ref, resolve, do)
}

// absentOr is nil when err says that ref's object does not exist, else err. A kind that discovery lists but the
// cluster does not serve, as around a change of its definition, is an accident: absence would lose a record.
func absentOr(ref release.ObjectRef, err error) error {
	failure := asFailure(err)
	switch {
	case failure == nil:
		return err
	case failure.Code == http.StatusNotFound && failure.Class == release.UnknownKind:
		failure.Class = release.Accident
		failure.Message = fmt.Sprintf("%s cannot be looked up: %s, although discovery lists it", ref, failure.Message)
		return err
	case failure.Class == release.UnknownKind, failure.Code == http.StatusNotFound, failure.Reason == scopeMismatchReason:
		return nil
	}
	return err
}
