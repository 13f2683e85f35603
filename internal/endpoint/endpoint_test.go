package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// surroundings are what the endpoint asks and tells: a control cluster that knows the token "good" and the Release
// team-a/shop, and loops that keep what they are asked for.
type surroundings struct {
	release    *v1alpha1.Release
	allowed    []string // verbs
	down       map[string]bool
	requests   []workflows.SyncRequest
	reconciles int
}

func newSurroundings() *surroundings {
	rel := &v1alpha1.Release{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "shop"}}
	return &surroundings{release: rel, allowed: []string{VerbSync, VerbReconcile}, down: map[string]bool{}}
}

var errDown = errors.New("connection refused, and the token was good")

func (s *surroundings) Who(_ context.Context, token string) (*User, error) {
	if s.down["reviews"] {
		return nil, errDown
	}
	if token != "good" {
		return nil, nil
	}
	return &User{Name: "ci"}, nil
}

func (s *surroundings) May(_ context.Context, _ *User, verb string, _ types.NamespacedName) (bool, error) {
	return strings.Contains(strings.Join(s.allowed, ","), verb), nil
}

func (s *surroundings) Release(_ context.Context, namespace, name string) (*v1alpha1.Release, error) {
	switch {
	case s.down["releases"]:
		return nil, errDown
	case namespace != s.release.Namespace || name != s.release.Name:
		return nil, release.ErrNotFound
	}
	return s.release, nil
}

func (s *surroundings) Sync(_ context.Context, _ types.NamespacedName, request workflows.SyncRequest) error {
	if s.down["temporal"] {
		return errDown
	}
	s.requests = append(s.requests, request)
	return nil
}

func (s *surroundings) Reconcile(context.Context, types.NamespacedName) error {
	s.reconciles++
	return nil
}

// send sends a call, with the good token unless headers say otherwise.
func (s *surroundings) send(t *testing.T, method, target, body string, headers ...string) (*httptest.ResponseRecorder, map[string]string) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer good")
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		req.Header.Set(name, value)
	}
	var log strings.Builder
	recorder := httptest.NewRecorder()
	New(s, s, s, slog.New(slog.NewJSONHandler(&log, nil))).ServeHTTP(recorder, req)
	require.NotContains(t, log.String(), "Bearer")
	answer := map[string]string{}
	require.NoError(t, json.Unmarshal(recorder.Body.Bytes(), &answer), recorder.Body.String())
	require.Equal(t, "application/json", recorder.Header().Get("Content-Type"))
	return recorder, answer
}

const (
	syncPath      = "/namespaces/team-a/releases/shop/sync"
	reconcilePath = "/namespaces/team-a/releases/shop/reconcile"
)

// SPEC 4: the id and force come from the query, the body or a header; who asks comes from the control cluster.
func TestARequestIsReadFromQueryBodyAndHeader(t *testing.T) {
	for _, tc := range []struct {
		name, query, body, header string
		want                      workflows.SyncRequest
	}{
		{name: "query", query: "?id=a-1&force=true", want: workflows.SyncRequest{ID: "a-1", Force: true}},
		{name: "body", body: `{"id":"a-1","force":true}`, want: workflows.SyncRequest{ID: "a-1", Force: true}},
		{name: "header", header: "Idempotency-Key: a-1", want: workflows.SyncRequest{ID: "a-1"}},
		{name: "quoted header", header: `Idempotency-Key: "a-1"`, want: workflows.SyncRequest{ID: "a-1"}},
		{name: "all alike", query: "?id=a-1&force=true", body: `{"id":"a-1","force":true}`, header: "Idempotency-Key: a-1",
			want: workflows.SyncRequest{ID: "a-1", Force: true}},
		{name: "not forced", query: "?force=false", body: ` {"id":"a-1"} `, want: workflows.SyncRequest{ID: "a-1"}},
		{name: "128 bytes", query: "?id=" + strings.Repeat("x", 128), want: workflows.SyncRequest{ID: strings.Repeat("x", 128)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSurroundings()
			recorder, answer := s.send(t, http.MethodPost, syncPath+tc.query, tc.body, tc.header)
			require.Equal(t, http.StatusAccepted, recorder.Code, answer)
			tc.want.RequestedBy = "ci"
			require.Equal(t, []workflows.SyncRequest{tc.want}, s.requests)
			require.Equal(t, tc.want.ID, answer["id"])
			require.Equal(t, "release:team-a:shop", answer["workflowID"])
		})
	}
}

func TestARequestWithoutAnIDGetsOne(t *testing.T) {
	s := newSurroundings()
	_, first := s.send(t, http.MethodPost, syncPath, "")
	_, second := s.send(t, http.MethodPost, syncPath, "{}")
	require.Regexp(t, `^req-[0-9a-f]{12}$`, first["id"])
	require.NotEqual(t, first["id"], second["id"])
	require.Equal(t, first["id"], s.requests[0].ID)
}

func TestARequestThatStatusAnswersIsNotAskedForAgain(t *testing.T) {
	s := newSurroundings()
	s.release.Status.LastHandledRequests = []v1alpha1.HandledRequest{{ID: "a-1", Result: "Succeeded"}}
	recorder, answer := s.send(t, http.MethodPost, syncPath+"?id=a-1", "")
	require.Equal(t, http.StatusAccepted, recorder.Code)
	require.Contains(t, answer["message"], "answered already: Succeeded")
	require.Empty(t, s.requests)
}

func TestAReconcileHasNoForce(t *testing.T) {
	s := newSurroundings()
	recorder, _ := s.send(t, http.MethodPost, reconcilePath, "")
	require.Equal(t, http.StatusAccepted, recorder.Code)
	require.Equal(t, 1, s.reconciles)
	recorder, answer := s.send(t, http.MethodPost, reconcilePath+"?force=true", "")
	require.Equal(t, http.StatusBadRequest, recorder.Code)
	require.Contains(t, answer["error"], "force belongs to a sync")
	require.Empty(t, s.requests)
}

func TestRefusalsSayWhatIsWrong(t *testing.T) {
	suspended := func(s *surroundings) { s.release.Spec.Suspend = true }
	deleting := func(s *surroundings) { s.release.DeletionTimestamp = &metav1.Time{} }
	down := func(what string) func(*surroundings) { return func(s *surroundings) { s.down[what] = true } }
	for _, tc := range []struct {
		name, method, target, body, header string
		with                               func(*surroundings)
		status                             int
		reason, says                       string
	}{
		{name: "no token", header: "Authorization: ", status: 401, reason: "Unauthorized", says: "Authorization: Bearer TOKEN"},
		{name: "another scheme", header: "Authorization: Basic good", status: 401, reason: "Unauthorized", says: "Bearer"},
		{name: "bad token", header: "Authorization: Bearer bad", status: 401, reason: "Unauthorized", says: "does not accept the token"},
		{name: "not allowed", with: func(s *surroundings) { s.allowed = []string{VerbReconcile} }, status: 403, reason: "Forbidden",
			says: "ci may not sync Release team-a/shop: a Role in namespace team-a has to allow it, with apiGroups [convoy.dev], resources [releases], verbs [sync]"},
		{name: "not allowed comes before not there", target: "/namespaces/team-a/releases/nope/sync", with: func(s *surroundings) { s.allowed = nil },
			status: 403, reason: "Forbidden"},
		{name: "no Release", target: "/namespaces/team-a/releases/nope/sync", status: 404, reason: "NotFound", says: "team-a/nope"},
		{name: "no path", target: "/namespaces/team-a/releases/shop", status: 404, reason: "NotFound", says: "POST /namespaces/"},
		{name: "no name", target: "/namespaces/team-a/releases/a:b/sync", status: 400, reason: "BadRequest", says: "no colon"},
		{name: "a path for a name", target: "/namespaces/team-a/releases/..%2f..%2fx/sync", with: down("releases"), status: 400, reason: "BadRequest",
			says: `"../../x" cannot be the name of a Release: a lowercase RFC 1123 subdomain`},
		{name: "a path for a namespace", target: "/namespaces/..%2fkube-system/releases/shop/sync", with: down("releases"), status: 400, reason: "BadRequest",
			says: `"../kube-system" cannot be a namespace: a lowercase RFC 1123 label`},
		{name: "a namespace with a dot", target: "/namespaces/team.a/releases/shop/reconcile", status: 400, reason: "BadRequest", says: "cannot be a namespace"},
		{name: "capitals", target: "/namespaces/team-a/releases/Shop/sync", status: 400, reason: "BadRequest", says: "cannot be the name"},
		{name: "a name with a dot", target: "/namespaces/team-a/releases/shop.v2/sync", status: 404, reason: "NotFound", says: "team-a/shop.v2"},
		{name: "suspended", with: suspended, status: 409, reason: "Suspended", says: "convoy resume team-a/shop"},
		{name: "deleting", with: deleting, status: 409, reason: "Deleting", says: "being deleted"},
		{name: "get", method: http.MethodGet, status: 405, reason: "MethodNotAllowed"},
		{name: "no cluster for the token", with: down("reviews"), status: 503, reason: "Unavailable", says: "try again"},
		{name: "no cluster for the Release", with: down("releases"), status: 503, reason: "Unavailable"},
		{name: "no Temporal", with: down("temporal"), status: 503, reason: "Unavailable"},
		{name: "large body", body: `{"id":"` + strings.Repeat("x", maxBody) + `"}`, status: 413, reason: "TooLarge", says: "65536"},
		{name: "no JSON", body: "force=true", status: 400, reason: "BadRequest", says: `{"id":"…","force":true}`},
		{name: "unknown member", body: `{"requestedBy":"root"}`, status: 400, reason: "BadRequest", says: "requestedBy"},
		{name: "two objects", body: `{}{}`, status: 400, reason: "BadRequest", says: "something follows"},
		{name: "unknown query", target: syncPath + "?forced=true", status: 400, reason: "BadRequest", says: "id and force"},
		{name: "force is no yes", target: syncPath + "?force=yes", status: 400, reason: "BadRequest", says: "true or false"},
		{name: "force twice", target: syncPath + "?force=true&force=false", status: 400, reason: "BadRequest", says: "twice"},
		{name: "contradicting force", target: syncPath + "?force=false", body: `{"force":true}`, status: 400, reason: "BadRequest", says: "contradict"},
		{name: "two ids", target: syncPath + "?id=a", body: `{"id":"b"}`, status: 400, reason: "BadRequest", says: "two ids"},
		{name: "empty id", target: syncPath + "?id=", status: 400, reason: "BadRequest", says: "not empty"},
		{name: "long id", target: syncPath + "?id=" + strings.Repeat("x", 129), status: 400, reason: "BadRequest", says: "128 bytes"},
		{name: "control characters", body: `{"id":"a\u001b[31m"}`, status: 400, reason: "BadRequest", says: "control characters"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSurroundings()
			if tc.with != nil {
				tc.with(s)
			}
			method, target := http.MethodPost, syncPath
			if tc.method != "" {
				method = tc.method
			}
			if tc.target != "" {
				target = tc.target
			}
			recorder, answer := s.send(t, method, target, tc.body, tc.header)
			require.Equal(t, tc.status, recorder.Code, answer)
			require.Equal(t, tc.reason, answer["reason"])
			require.Contains(t, answer["error"], tc.says)
			require.NotContains(t, answer["error"], "connection refused")
			require.Equal(t, tc.status == http.StatusUnauthorized, strings.HasPrefix(recorder.Header().Get("WWW-Authenticate"), "Bearer"))
			require.Equal(t, tc.status == http.StatusMethodNotAllowed, recorder.Header().Get("Allow") == "POST")
			require.Empty(t, s.requests)
		})
	}
}
