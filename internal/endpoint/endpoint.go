// Package endpoint takes requests for syncs and reconciles over HTTP (SPEC 4) and hands them to the loops of Releases.
// Who calls, and whether he may, is asked of the control cluster. It waits for no sync, and decides nothing about one.
package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/loops"
	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/workflows"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// askFor bounds how long the control cluster and Temporal may take for one call.
const askFor = 20 * time.Second

// The verbs that a caller needs on the Release (resource releases of the group convoy.dev); they are the last part of
// the paths as well.
const (
	VerbSync      = "sync"
	VerbReconcile = "reconcile"
)

// gate is the control cluster's word on callers. It is a Gate outside of tests.
type gate interface {
	Who(ctx context.Context, token string) (*User, error)
	May(ctx context.Context, user *User, verb string, key types.NamespacedName) (bool, error)
}

// releases reads Releases; release.ErrNotFound says that there is none.
type releases interface {
	Release(ctx context.Context, namespace, name string) (*v1alpha1.Release, error)
}

// reach brings requests to the loops of Releases.
type reach interface {
	Sync(ctx context.Context, key types.NamespacedName, request workflows.SyncRequest) error
	Reconcile(ctx context.Context, key types.NamespacedName) error
}

// endpoint answers the calls.
type endpoint struct {
	gate     gate
	releases releases
	loops    reach
	log      *slog.Logger
}

// New makes the handler of
//
//	POST /namespaces/{namespace}/releases/{name}/sync?force=true
//	POST /namespaces/{namespace}/releases/{name}/reconcile
//
// A call carries a bearer token of the control cluster. The id of a request stands in the query (id), in the body
// ({"id":"…","force":true}) or in the header Idempotency-Key; without one it gets one. An accepted call is answered
// with 202 and an Accepted, any other with a Refusal.
func New(gate gate, releases releases, loops reach, log *slog.Logger) http.Handler {
	e := &endpoint{gate: gate, releases: releases, loops: loops, log: log}
	mux := http.NewServeMux()
	mux.HandleFunc("/namespaces/{namespace}/releases/{name}/sync", e.serve(VerbSync))
	mux.HandleFunc("/namespaces/{namespace}/releases/{name}/reconcile", e.serve(VerbReconcile))
	mux.HandleFunc("/", func(rw http.ResponseWriter, _ *http.Request) {
		refuse(http.StatusNotFound, "NotFound", "there is nothing here: POST /namespaces/{namespace}/releases/{name}/sync or …/reconcile").write(rw)
	})
	return mux
}

// Accepted is the answer to a call that was taken.
type Accepted struct {
	// ID of the request: status.lastHandledRequests of the Release will have its answer. A reconcile has none.
	ID         string `json:"id,omitempty"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	WorkflowID string `json:"workflowID"`
	Message    string `json:"message"`
}

// call is one call.
type call struct {
	*endpoint
	verb  string
	key   types.NamespacedName
	user  *User
	order order
}

func (e *endpoint) serve(verb string) http.HandlerFunc {
	return func(rw http.ResponseWriter, req *http.Request) {
		ctx, cancel := context.WithTimeout(req.Context(), askFor)
		defer cancel()
		c := &call{endpoint: e, verb: verb, key: types.NamespacedName{Namespace: req.PathValue("namespace"), Name: req.PathValue("name")}}
		accepted, err := c.take(ctx, rw, req)
		var refusal *Refusal
		switch {
		case err == nil:
			e.log.Info("request over HTTP", "verb", verb, "release", c.key.String(), "id", accepted.ID, "user", c.user.Name)
			writeJSON(rw, http.StatusAccepted, accepted)
		case errors.As(err, &refusal):
			refusal.write(rw)
		default:
			e.log.Warn("request over HTTP could not be served", "verb", verb, "release", c.key.String(), "error", err)
			rw.Header().Set("Retry-After", "5")
			refuse(http.StatusServiceUnavailable, "Unavailable", "the control cluster or Temporal cannot be asked now: try again").write(rw)
		}
	}
}

// take asks in this order: is it a call at all, who calls, may he, what does he want, and can that be.
func (c *call) take(ctx context.Context, rw http.ResponseWriter, req *http.Request) (*Accepted, error) {
	if req.Method != http.MethodPost {
		rw.Header().Set("Allow", http.MethodPost)
		return nil, refuse(http.StatusMethodNotAllowed, "MethodNotAllowed", "use POST")
	}
	if err := checkKey(c.key); err != nil {
		return nil, err
	}
	if err := c.authenticate(ctx, rw, req); err != nil {
		return nil, err
	}
	if err := c.authorize(ctx); err != nil {
		return nil, err
	}
	var err error
	if c.order, err = readOrder(rw, req, c.verb); err != nil {
		return nil, err
	}
	rel, err := c.find(ctx)
	if err != nil {
		return nil, err
	}
	return c.send(ctx, rel)
}

// checkKey refuses what no Release can be called, before the control cluster is asked about it: it refuses such a name
// with an error of its own, which would read as if another try could help.
func checkKey(key types.NamespacedName) error {
	if err := release.CheckNames(key.Namespace, key.Name); err != nil {
		return badRequest(err.Error())
	}
	if faults := validation.IsDNS1123Label(key.Namespace); len(faults) > 0 {
		return badRequest(fmt.Sprintf("%q cannot be a namespace: %s", key.Namespace, faults[0]))
	}
	if faults := validation.IsDNS1123Subdomain(key.Name); len(faults) > 0 {
		return badRequest(fmt.Sprintf("%q cannot be the name of a Release: %s", key.Name, faults[0]))
	}
	return nil
}

func (c *call) authenticate(ctx context.Context, rw http.ResponseWriter, req *http.Request) error {
	token, ok := bearer(req.Header)
	if !ok {
		rw.Header().Set("WWW-Authenticate", `Bearer realm="convoy"`)
		return refuse(http.StatusUnauthorized, "Unauthorized", "send a token of the control cluster: Authorization: Bearer TOKEN")
	}
	var err error
	if c.user, err = c.gate.Who(ctx, token); err != nil {
		return err
	}
	if c.user == nil {
		rw.Header().Set("WWW-Authenticate", `Bearer realm="convoy", error="invalid_token"`)
		return refuse(http.StatusUnauthorized, "Unauthorized", "the control cluster does not accept the token: it may have expired, or be for another audience")
	}
	return nil
}

func (c *call) authorize(ctx context.Context) error {
	allowed, err := c.gate.May(ctx, c.user, c.verb, c.key)
	if err != nil || allowed {
		return err
	}
	return refuse(http.StatusForbidden, "Forbidden",
		"%s may not %s Release %s: a Role in namespace %s has to allow it, with apiGroups [%s], resources [releases], verbs [%s]",
		c.user.Name, c.verb, c.key, c.key.Namespace, v1alpha1.GroupVersion.Group, c.verb)
}

// find reads the Release, and refuses where no sync would come of the request soon.
func (c *call) find(ctx context.Context) (*v1alpha1.Release, error) {
	rel, err := c.releases.Release(ctx, c.key.Namespace, c.key.Name)
	switch {
	case errors.Is(err, release.ErrNotFound):
		return nil, refuse(http.StatusNotFound, "NotFound", "there is no Release %s", c.key)
	case err != nil:
		return nil, err
	case rel.DeletionTimestamp != nil:
		return nil, refuse(http.StatusConflict, "Deleting", "Release %s is being deleted: no sync starts any more", c.key)
	case rel.Spec.Suspend:
		return nil, refuse(http.StatusConflict, "Suspended", "Release %s is suspended: lift spec.suspend first (convoy resume %s)", c.key, c.key)
	}
	return rel, nil
}

// send hands the request to the loop. One that status shows to be answered is not asked for again.
func (c *call) send(ctx context.Context, rel *v1alpha1.Release) (*Accepted, error) {
	accepted := &Accepted{
		ID: c.order.id, Namespace: c.key.Namespace, Name: c.key.Name, WorkflowID: release.ReleaseWorkflowID(c.key.Namespace, c.key.Name),
		Message: "the Release is looked at now",
	}
	if c.verb == VerbReconcile {
		return accepted, c.loops.Reconcile(ctx, c.key)
	}
	if accepted.ID == "" {
		accepted.ID = loops.NewID()
	}
	for _, answer := range rel.Status.LastHandledRequests {
		if answer.ID == accepted.ID {
			accepted.Message = "this request was answered already: " + answer.Result
			return accepted, nil
		}
	}
	accepted.Message = "a sync will serve this request; status.lastHandledRequests of the Release will have its answer"
	return accepted, c.loops.Sync(ctx, c.key, workflows.SyncRequest{ID: accepted.ID, Force: c.order.force, RequestedBy: c.user.Name})
}

// Refusal is the answer to a call that was not taken.
type Refusal struct {
	// Message says what is wrong and what to do.
	Message string `json:"error"`
	// Reason is one word for programs: Unauthorized, Forbidden, NotFound, Suspended, Deleting, BadRequest, TooLarge,
	// MethodNotAllowed or Unavailable.
	Reason string `json:"reason"`
	status int
}

func (r *Refusal) Error() string { return r.Message }

func refuse(status int, reason, format string, args ...any) *Refusal {
	return &Refusal{Message: fmt.Sprintf(format, args...), Reason: reason, status: status}
}

func (r *Refusal) write(rw http.ResponseWriter) { writeJSON(rw, r.status, r) }

func writeJSON(rw http.ResponseWriter, status int, body any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.Header().Set("X-Content-Type-Options", "nosniff")
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(body)
}
