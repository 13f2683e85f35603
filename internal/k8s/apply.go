package k8s

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"convoy.dev/convoy/internal/release"
)

// Apply applies obj as ref with Server-Side Apply, field manager convoy, force (S13): one request, no GET before it.
// ref is obj.Ref for the scope of its kind (D4, S14).
//
//   - Accidents are retried within the session's budget (D22). Answers that deny a kind whose definition is part of
//     this render are retried for a while too (D11), and before the first object of a kind whose definition was
//     applied in this session that definition is awaited.
//   - An object that is being deleted is awaited and applied anew (D14); in the end a *release.Failure of class
//     Accident names the finalizers.
//   - Fields that a client-side apply left behind are taken over (D15, Applied.TakenOver).
//
// Applied.Changed is read from the time of convoy's own entry in managedFields, which moves only when the apply
// changed something; an object that convoy changed in the two seconds before reads as changed again.
//
// Fails with a *release.Failure of any class, or with the guard's or the context's error.
func (s *Session) Apply(ctx context.Context, obj *release.Object, ref release.ObjectRef) (release.Applied, error) {
	if err := s.awaitDefinition(ctx, ref); err != nil {
		return release.Applied{}, err
	}
	deadline := time.Now().Add(s.options.DeletingFor)
	for {
		meta, applied, err := s.patchWithRetry(ctx, obj, ref)
		if refusesFinalizers(asFailure(err)) {
			meta, err = s.readDeleting(ctx, ref, err)
			applied.Deleting = true
		}
		if err != nil {
			return release.Applied{}, err
		}
		if !applied.Deleting {
			s.noteDefinition(ref, applied)
			return applied, nil
		}
		if err := s.awaitGone(ctx, ref, meta, deadline); err != nil {
			return applied, err
		}
	}
}

// patchWithRetry is one apply with its take-over, retried.
func (s *Session) patchWithRetry(ctx context.Context, obj *release.Object, ref release.ObjectRef) (*metav1.ObjectMeta, release.Applied, error) {
	var meta *metav1.ObjectMeta
	var applied release.Applied
	err := s.retry(ctx, s.excuses(ref), func(ctx context.Context) (err error) {
		meta, applied, err = s.patch(ctx, obj, ref, false)
		if err != nil {
			return s.applyAfterTakeOver(ctx, obj, ref, err, &meta, &applied)
		}
		if applied.Deleting {
			return nil
		}
		return s.takeOver(ctx, obj, ref, &meta, &applied)
	})
	return meta, applied, err
}

// patch sends one apply patch, or its dry run.
func (s *Session) patch(ctx context.Context, obj *release.Object, ref release.ObjectRef, dryRun bool) (*metav1.ObjectMeta, release.Applied, error) {
	body, err := documentFor(obj, ref)
	if err != nil {
		return nil, release.Applied{}, err
	}
	query := url.Values{"fieldManager": {FieldManager}, "force": {"true"}}
	if dryRun {
		query.Set("dryRun", "All")
	}
	resolve := s.resolver(obj)
	if !dryRun {
		resolve = s.sureResolver(obj)
	}
	reply, err := s.atResource(ctx, ref, resolve, func(path string) (answer, error) {
		return s.request(ctx, ref, body, request{
			method: http.MethodPatch, path: path, query: query,
			accept: acceptMetadata, contentType: contentApplyPatch, body: body,
		})
	})
	if err != nil {
		return nil, release.Applied{}, err
	}
	meta, err := decodeMetadata(reply.body)
	if err != nil {
		return nil, release.Applied{}, err
	}
	return meta, readApplied(ref, meta, reply), nil
}

func (s *Session) resolver(obj *release.Object) func(context.Context) (Mapping, error) {
	return func(ctx context.Context) (Mapping, error) { return s.cluster.Resolve(ctx, obj.GVK) }
}

// sureResolver does not take a discovery's word for it that was asked for before the call: an apply of a kind that came a
// moment ago would fail the sync. It fails at most once in a wave, so it may cost a question of its own.
func (s *Session) sureResolver(obj *release.Object) func(context.Context) (Mapping, error) {
	return func(ctx context.Context) (Mapping, error) {
		began := time.Now()
		mapping, err := s.cluster.Resolve(ctx, obj.GVK)
		failure := asFailure(err)
		if failure == nil || failure.Class != release.UnknownKind {
			return mapping, err
		}
		if _, err := s.cluster.fresh(ctx, began); err != nil {
			return Mapping{}, err
		}
		return s.cluster.Resolve(ctx, obj.GVK)
	}
}

// atResource calls do with the path of ref's object, as atMapping does.
func (s *Session) atResource(
	ctx context.Context, ref release.ObjectRef, resolve func(context.Context) (Mapping, error), do func(path string) (answer, error),
) (answer, error) {
	return s.atMapping(ctx, ref.GroupKind(), resolve, func(mapping Mapping) (answer, error) {
		if mapping.Namespaced != (ref.Namespace != "") {
			return answer{}, scopeMismatch(ref, mapping)
		}
		return do(resourcePath(mapping.Resource, ref.Namespace, ref.Name))
	})
}

// atMapping calls do with where the kind lives. When the cluster answers that it does not serve that path, discovery
// was too old: it is refreshed once. A kind that even fresh discovery does not know fails as UnknownKind with code 0,
// one that discovery lists but the cluster does not serve as UnknownKind with code 404.
func (s *Session) atMapping(
	ctx context.Context, kind schema.GroupKind, resolve func(context.Context) (Mapping, error), do func(Mapping) (answer, error),
) (answer, error) {
	for again := false; ; again = true {
		asked := time.Now()
		mapping, err := resolve(ctx)
		if err != nil {
			return answer{}, err
		}
		reply, err := do(mapping)
		failure := asFailure(err)
		if failure == nil || failure.Class != release.UnknownKind {
			return reply, err
		}
		if again {
			failure.Message = fmt.Sprintf("the cluster does not serve the kind %s at %s", kind, mapping.Resource.GroupVersion())
			return reply, err
		}
		if _, err := s.cluster.fresh(ctx, asked); err != nil {
			return answer{}, err
		}
	}
}

// scopeMismatchReason marks a failure that comes from convoy's own comparison.
const scopeMismatchReason = "ScopeMismatch"

func scopeMismatch(ref release.ObjectRef, mapping Mapping) *release.Failure {
	scope := "cluster-scoped"
	if mapping.Namespaced {
		scope = "namespaced"
	}
	return &release.Failure{
		Class:   release.Verdict,
		Reason:  scopeMismatchReason,
		Message: fmt.Sprintf("%s cannot be applied: the cluster serves its kind %s, which this sync did not expect", ref, scope),
	}
}

// documentFor is the document to send: obj.JSON as it stands, unless the namespace differs (S14, D4) or the object is
// bare. Then only the members of metadata are put together anew; every other byte, number and list stays.
//
// A bare object gets empty labels and annotations. They change nothing of it, but convoy owns them: without an entry in
// managedFields it would look made by somebody else, and be lost to the prune (D13, D17). Both, because who sets the
// first label takes the empty map over.
func documentFor(obj *release.Object, ref release.ObjectRef) ([]byte, error) {
	if obj.Namespace == ref.Namespace && !obj.Bare {
		return obj.JSON, nil
	}
	var document, metadata map[string]json.RawMessage
	if err := json.Unmarshal(obj.JSON, &document); err != nil {
		return nil, fmt.Errorf("%s: document: %w", ref, err)
	}
	if err := json.Unmarshal(document["metadata"], &metadata); err != nil {
		return nil, fmt.Errorf("%s: metadata: %w", ref, err)
	}
	delete(metadata, "namespace")
	if ref.Namespace != "" {
		namespace, err := json.Marshal(ref.Namespace)
		if err != nil {
			return nil, fmt.Errorf("%s: namespace: %w", ref, err)
		}
		metadata["namespace"] = namespace
	}
	if obj.Bare {
		metadata["labels"], metadata["annotations"] = json.RawMessage("{}"), json.RawMessage("{}")
	}
	var err error
	if document["metadata"], err = encode(metadata); err != nil {
		return nil, fmt.Errorf("%s: metadata: %w", ref, err)
	}
	return encode(document)
}

// encode writes members without escaping them for HTML.
func encode(members map[string]json.RawMessage) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(members); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// sameMoment allows for the whole seconds of the Date header and of managedFields.
const sameMoment = 2 * time.Second

func readApplied(ref release.ObjectRef, meta *metav1.ObjectMeta, reply answer) release.Applied {
	applied := release.Applied{
		UID:             string(meta.UID),
		ResourceVersion: meta.ResourceVersion,
		Generation:      meta.Generation,
		Created:         reply.code == http.StatusCreated,
		Deleting:        meta.DeletionTimestamp != nil,
		Warnings:        warnings(ref, reply),
		Fact:            factOf(meta),
	}
	if applied.Deleting {
		applied.Finalizers = meta.Finalizers
	}
	entry := ownEntry(meta)
	applied.Changed = applied.Created || entry == nil || entry.Time == nil || !entry.Time.Time.Before(reply.arrived().Add(-sameMoment))
	return applied
}

// warnings are the API server's, each once. About a Secret only their number is told (D10).
func warnings(ref release.ObjectRef, reply answer) []string {
	parsed, _ := utilnet.ParseWarningHeaders(reply.header["Warning"])
	var texts []string
	for _, warning := range parsed {
		texts = append(texts, cut(warning.Text, messageLimit))
	}
	texts = unique(texts)
	if ref.IsSecret() && len(texts) > 0 {
		return []string{fmt.Sprintf("the API server gave %d warnings about this Secret, which are not shown", len(texts))}
	}
	return texts
}

// refusesFinalizers: the API server lets nobody add a finalizer to an object that is being deleted (D14). The same
// answer can have other causes, so the live object decides.
func refusesFinalizers(failure *release.Failure) bool {
	return failure != nil && failure.Code == http.StatusUnprocessableEntity && slices.Equal(failure.Fields, []string{"metadata.finalizers"})
}

func (s *Session) readDeleting(ctx context.Context, ref release.ObjectRef, applyErr error) (*metav1.ObjectMeta, error) {
	meta, err := s.readMetadata(ctx, ref)
	if err != nil {
		return nil, err
	}
	if meta == nil || meta.DeletionTimestamp == nil {
		return nil, applyErr
	}
	return meta, nil
}

// awaitGone waits until the object that is being deleted has gone, whoever makes it anew (D14).
func (s *Session) awaitGone(ctx context.Context, ref release.ObjectRef, deleting *metav1.ObjectMeta, deadline time.Time) error {
	for n := 0; ; n++ {
		wait := min(backoff(n), 2*time.Second)
		if time.Now().Add(wait).After(deadline) {
			return stillDeleting(ref, deleting, s.options.DeletingFor)
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
		now, err := s.readMetadata(ctx, ref)
		if err != nil {
			return err
		}
		if now == nil || now.UID != deleting.UID {
			return nil
		}
		deleting = now
	}
}

func stillDeleting(ref release.ObjectRef, meta *metav1.ObjectMeta, waited time.Duration) *release.Failure {
	held := "it is still there"
	if len(meta.Finalizers) > 0 {
		held = "finalizers hold it: " + strings.Join(meta.Finalizers, ", ")
	}
	return &release.Failure{
		Class: release.Accident,
		Message: fmt.Sprintf("%s is being deleted since %s, so applying it does not count; %s. Tried for %s. "+
			"Remedy: let the owner of each finalizer finish, or remove the finalizers; convoy then makes the object anew",
			ref, meta.DeletionTimestamp.UTC().Format(time.RFC3339), cut(held, messageLimit), waited),
	}
}
