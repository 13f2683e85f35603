package release

import (
	"context"
	"fmt"
	"time"
)

// FailureClass says what an answer of the target cluster means (D7). It is decided in internal/k8s alone.
type FailureClass string

// The classes.
const (
	// Verdict: the cluster judged the object and refuses it. Trying again does not help.
	Verdict FailureClass = "Verdict"
	// Accident: the cluster could not judge, for now. Trying again may help.
	Accident FailureClass = "Accident"
	// UnknownKind: fresh discovery does not know the kind or version of the object (S8).
	UnknownKind FailureClass = "UnknownKind"
)

// Failure is what the target cluster answered about one object. Message is ready for people: cut to a few hundred
// characters, and for a Secret reduced to code, reason and field paths (D10).
type Failure struct {
	Class  FailureClass
	Code   int    // HTTP status, 0 when there was no answer
	Reason string // the API server's own reason, often empty
	// Fields are the paths of the causes of an Invalid answer, e.g. "spec.template".
	Fields  []string
	Message string
	// Missing is the object that a 404 says is absent, when the answer names one: a Namespace, a Role, …
	// Kind holds the lower-case plural resource as the API server says it ("namespaces").
	Missing *MissingObject
	// Schema: the answer is a violation of the typed schema under Server-Side Apply ("field not declared in schema").
	Schema bool
	// Uncertain: no answer came, so the request may have taken effect all the same (D13).
	Uncertain bool
	// Quota: a quota is used up. It is the state of the namespace that is refused and not the object, so a dry run that
	// meets it rejects nothing; nor does trying again at once help (FACTS, D7).
	Quota bool
	// Webhook is the name of an admission webhook that the answer is about, if it is about one.
	Webhook string
}

// MissingObject is what a NotFound answer names.
type MissingObject struct {
	Group    string
	Resource string // "namespaces", "rolebindings"
	Name     string
}

// Error is the message.
func (f *Failure) Error() string {
	if f.Code == 0 {
		return f.Message
	}
	return fmt.Sprintf("%s (HTTP %d%s)", f.Message, f.Code, withReason(f.Reason))
}

func withReason(reason string) string {
	if reason == "" {
		return ""
	}
	return " " + reason
}

// Applied is the target cluster's answer to an apply or to a dry run of one.
type Applied struct {
	UID             string
	ResourceVersion string
	Generation      int64
	// Created: the object did not exist before (HTTP 201).
	Created bool
	// Changed: the apply changed something, or would. Known after a dry run; after an apply it is true when the
	// resourceVersion moved or the object was created, as far as the answer tells.
	Changed bool
	// Deleting: the object carries a deletionTimestamp, so the apply does not count (D14); Finalizers hold it.
	Deleting   bool
	Finalizers []string
	// TakenOver names managers of an earlier client-side apply whose fields convoy took over (D15).
	TakenOver []string
	// Warnings of the API server.
	Warnings []string
	// Fact is what the apply left behind (D30). After a dry run it means nothing.
	Fact Fact
}

// Live is an object as the target cluster has it, metadata only.
type Live struct {
	Ref             ObjectRef
	UID             string
	ResourceVersion string
	Generation      int64
	Annotations     map[string]string
	Labels          map[string]string
	// OwnedByConvoy: managedFields hold an Apply entry of the manager convoy.
	OwnedByConvoy bool
	// DeletionTimestamp is set once the object is being deleted; Finalizers may hold it.
	DeletionTimestamp *time.Time
	Finalizers        []string
}

type guardKey struct{}

// WithGuard returns a context whose guard is asked right before each request to a target cluster. An error of the
// guard means: start no further request (D16).
func WithGuard(ctx context.Context, guard func() error) context.Context {
	return context.WithValue(ctx, guardKey{}, guard)
}

// CheckGuard asks the guard of the context; nil without one.
func CheckGuard(ctx context.Context) error {
	if guard, ok := ctx.Value(guardKey{}).(func() error); ok {
		return guard()
	}
	return nil
}
