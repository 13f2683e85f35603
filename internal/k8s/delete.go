package k8s

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"convoy.dev/convoy/internal/release"
)

// ErrChanged says that the live object is no longer the one that was looked at: another uid or resourceVersion. The
// caller takes a fresh look (D17).
var ErrChanged = errors.New("the object has changed since it was read")

// Deletion is what became of a delete.
type Deletion struct {
	// Gone: the object does not exist any more.
	Gone bool
	// Terminating: the delete was accepted, but the object still exists (D18).
	Terminating bool
	// Finalizers are what holds a terminating object; empty where it only takes its time (Pods, Namespaces).
	Finalizers []string
}

// Delete deletes the object as it was read: uid and resourceVersion of live are preconditions (D17), so nothing that
// was made or changed meanwhile is deleted. propagation is sent always; without it a Job would orphan its Pods (D20).
// An object that is already gone is no error (S26).
//
// Fails with ErrChanged, with a *release.Failure (S27), or with the guard's or the context's error. Accidents are
// retried within the session's budget; after one whose effect was uncertain the answer may be ErrChanged.
func (s *Session) Delete(ctx context.Context, live *release.Live, propagation metav1.DeletionPropagation) (Deletion, error) {
	body, err := deleteOptions(live.UID, live.ResourceVersion, propagation)
	if err != nil {
		return Deletion{}, fmt.Errorf("%s: %w", live.Ref, err)
	}
	var deletion Deletion
	err = s.retry(ctx, nil, func(ctx context.Context) (err error) {
		deletion, err = s.deleteOnce(ctx, live, body)
		return err
	})
	return deletion, err
}

func deleteOptions(uid, resourceVersion string, propagation metav1.DeletionPropagation) ([]byte, error) {
	options := metav1.DeleteOptions{
		TypeMeta:          metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions:     &metav1.Preconditions{},
		PropagationPolicy: &propagation,
	}
	if uid != "" {
		typed := types.UID(uid)
		options.Preconditions.UID = &typed
	}
	if resourceVersion != "" {
		options.Preconditions.ResourceVersion = &resourceVersion
	}
	return json.Marshal(options)
}

func (s *Session) deleteOnce(ctx context.Context, live *release.Live, body []byte) (Deletion, error) {
	reply, err := s.atKind(ctx, live.Ref, func(path string) (answer, error) {
		return s.request(ctx, live.Ref, nil, request{
			method: http.MethodDelete, path: path, accept: acceptMetadata, contentType: contentJSON, body: body,
		})
	})
	if failure := asFailure(err); failure != nil && failure.Code == http.StatusConflict {
		return Deletion{}, fmt.Errorf("%s: %w", live.Ref, ErrChanged)
	}
	if err != nil {
		if err := absentOr(live.Ref, err); err != nil {
			return Deletion{}, err
		}
		return Deletion{Gone: true}, nil
	}
	return s.readDeletion(ctx, live, reply)
}

// readDeletion reads the answer to an accepted delete. The API server answers with a Status, or with the object as it
// was, when it is gone, and with the object and its deletionTimestamp when it stays for now. Only a deletionTimestamp
// without finalizers leaves it open, and the object is looked at once more.
func (s *Session) readDeletion(ctx context.Context, live *release.Live, reply answer) (Deletion, error) {
	if readStatus(reply.body) != nil {
		return Deletion{Gone: true}, nil
	}
	meta, err := decodeMetadata(reply.body)
	if err != nil {
		return Deletion{}, err
	}
	if meta.DeletionTimestamp == nil {
		return Deletion{Gone: true}, nil
	}
	if len(meta.Finalizers) == 0 {
		if meta, err = s.readOnce(ctx, live.Ref); err != nil {
			return Deletion{}, err
		}
	}
	if meta == nil || string(meta.UID) != live.UID {
		return Deletion{Gone: true}, nil
	}
	return Deletion{Terminating: true, Finalizers: meta.Finalizers}, nil
}
