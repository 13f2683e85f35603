package k8s

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"convoy.dev/convoy/internal/release"
)

// fakeAPI plays an API server that fails as told. It knows ConfigMaps, by discovery of the old kind.
type fakeAPI struct {
	mu       sync.Mutex
	requests []string
	// answers are given to requests for objects in order; the last one stays.
	answers []func(http.ResponseWriter)
	// groups is the body of /apis.
	groups string
}

func newFakeAPI(t *testing.T, answers ...func(http.ResponseWriter)) (*fakeAPI, *Cluster) {
	t.Helper()
	fake := &fakeAPI{answers: answers, groups: `{"kind":"APIGroupList","groups":[]}`}
	listening := httptest.NewServer(fake)
	t.Cleanup(listening.Close)
	cluster, err := NewPool().Connect(&rest.Config{Host: listening.URL})
	require.NoError(t, err)
	return fake, cluster
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.requests = append(f.requests, r.Method+" "+r.URL.Path)
	var next func(http.ResponseWriter)
	groups := f.groups
	discovery := !strings.Contains(r.URL.Path, "/namespaces/")
	if !discovery {
		next = f.answers[0]
		if len(f.answers) > 1 {
			f.answers = f.answers[1:]
		}
	}
	f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case !discovery:
		next(w)
	case r.URL.Path == "/api":
		_, _ = w.Write([]byte(`{"kind":"APIVersions","versions":["v1"]}`))
	case r.URL.Path == "/api/v1":
		_, _ = w.Write([]byte(`{"kind":"APIResourceList","resources":[{"name":"configmaps","kind":"ConfigMap","namespaced":true,"verbs":["patch"]},{"name":"configmaps/status","kind":"ConfigMap","namespaced":true}]}`))
	case r.URL.Path == "/apis":
		_, _ = w.Write([]byte(groups))
	case strings.HasPrefix(r.URL.Path, "/apis/down"):
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
	default:
		http.NotFound(w, r)
	}
}

func (f *fakeAPI) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.requests...)
}

func good(w http.ResponseWriter) {
	_, _ = w.Write([]byte(`{"kind":"PartialObjectMetadata","metadata":{"name":"settings","namespace":"shop","uid":"u","resourceVersion":"7"}}`))
}

func refuse(code int, reason, message string, header ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","code":%d,"reason":%q,"message":%q,"details":{"name":"settings","kind":"configmaps"}}`, code, reason, message)
	}
}

// hangUp ends the connection without an answer.
func hangUp(http.ResponseWriter) { panic(http.ErrAbortHandler) }

func settings(t *testing.T) *release.Object {
	t.Helper()
	return parseObject(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}, data: {key: value}}")
}

func TestSession_D22_retries_accidents_until_they_pass(t *testing.T) {
	fake, cluster := newFakeAPI(t, refuse(429, "TooManyRequests", "later"), refuse(503, "ServiceUnavailable", "no"), hangUp, good)
	applied, err := cluster.Session(SessionOptions{}).Apply(t.Context(), settings(t), aConfigMap)
	require.NoError(t, err)
	require.Equal(t, "7", applied.ResourceVersion)
	require.Len(t, patches(fake), 4)
}

func patches(fake *fakeAPI) []string {
	var found []string
	for _, one := range fake.seen() {
		if strings.HasPrefix(one, "PATCH") {
			found = append(found, one)
		}
	}
	return found
}

func TestSession_D22_budget_is_one_for_all_calls(t *testing.T) {
	fake, cluster := newFakeAPI(t, hangUp, refuse(503, "ServiceUnavailable", "no"))
	session := cluster.Session(SessionOptions{RetryFor: 1500 * time.Millisecond})
	start := time.Now()
	_, err := session.Apply(t.Context(), settings(t), aConfigMap)
	failure := failureOf(t, err)
	require.Equal(t, release.Accident, failure.Class)
	require.Equal(t, http.StatusServiceUnavailable, failure.Code, "the last answer")
	require.True(t, failure.Uncertain, "the first try may have taken effect")
	require.Less(t, time.Since(start), 10*time.Second)
	tries := len(patches(fake))
	require.Greater(t, tries, 1)

	_, err = session.Read(t.Context(), aConfigMap)
	require.Equal(t, release.Accident, failureOf(t, err).Class)
	_, err = session.Apply(t.Context(), settings(t), aConfigMap)
	require.Error(t, err)
	require.LessOrEqual(t, len(patches(fake)), tries+2, "little of the budget is left")
}

// D22 D14: what holds where nobody says otherwise.
func TestSession_D22_default_budgets(t *testing.T) {
	session := (&Cluster{}).Session(SessionOptions{})
	require.Equal(t, 40*time.Second, session.left())
	require.Equal(t, 2*time.Minute, session.options.DeletingFor)
}

func TestSession_D22_calls_side_by_side_spend_the_budget_once(t *testing.T) {
	session := (&Cluster{}).Session(SessionOptions{RetryFor: time.Minute})
	began := time.Now()
	for range 8 {
		session.stumbled(began)
	}
	for range 8 {
		session.recovered(began)
	}
	require.Greater(t, session.left(), 59*time.Second)
}

func TestSession_verdicts_are_not_retried(t *testing.T) {
	fake, cluster := newFakeAPI(t, refuse(500, "", "failed to create typed patch object: .dato: field not declared in schema"))
	_, err := cluster.Session(SessionOptions{}).Apply(t.Context(), settings(t), aConfigMap)
	require.Equal(t, release.Verdict, failureOf(t, err).Class)
	require.Len(t, patches(fake), 1)
}

func TestSession_honours_Retry_After_within_the_budget(t *testing.T) {
	_, cluster := newFakeAPI(t, refuse(429, "TooManyRequests", "later", "Retry-After", "1"), good)
	start := time.Now()
	_, err := cluster.Session(SessionOptions{}).Apply(t.Context(), settings(t), aConfigMap)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(start), time.Second)

	fake, cluster := newFakeAPI(t, refuse(429, "TooManyRequests", "later", "Retry-After", "600"), good)
	_, err = cluster.Session(SessionOptions{}).Apply(t.Context(), settings(t), aConfigMap)
	require.Equal(t, release.Accident, failureOf(t, err).Class)
	require.Len(t, patches(fake), 1, "no try before the time that was asked for")
}

func TestSession_D16_guard_stops_between_two_tries(t *testing.T) {
	fake, cluster := newFakeAPI(t, refuse(503, "ServiceUnavailable", "no"))
	lost := errors.New("lost")
	ctx := release.WithGuard(t.Context(), func() error {
		if len(patches(fake)) > 0 {
			return lost
		}
		return nil
	})
	_, err := cluster.Session(SessionOptions{}).Apply(ctx, settings(t), aConfigMap)
	require.ErrorIs(t, err, lost)
	require.Len(t, patches(fake), 1)
}

func TestSession_cancellation_is_no_accident(t *testing.T) {
	_, cluster := newFakeAPI(t, refuse(503, "ServiceUnavailable", "no"))
	gone := errors.New("the worker stops")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(100*time.Millisecond, func() { cancel(gone) })
	_, err := cluster.Session(SessionOptions{}).Apply(ctx, settings(t), aConfigMap)
	require.ErrorIs(t, err, gone)
	require.Nil(t, asFailure(err))
}

func TestSession_D11_denied_kind_of_the_render_gets_a_grace(t *testing.T) {
	notDeclared := refuse(500, "", ".spec.color: field not declared in schema")
	gk := schema.GroupKind{Kind: "ConfigMap"}
	options := SessionOptions{RenderCRDs: map[schema.GroupKind]string{gk: "configmaps"}}
	_, cluster := newFakeAPI(t, notDeclared, notDeclared, good)
	_, err := cluster.Session(options).Apply(t.Context(), settings(t), aConfigMap)
	require.NoError(t, err)

	_, cluster = newFakeAPI(t, notDeclared, good)
	_, err = cluster.Session(options).DryRun(t.Context(), settings(t), aConfigMap)
	require.Equal(t, release.Verdict, failureOf(t, err).Class, "a dry run excuses nothing by itself")

	_, cluster = newFakeAPI(t, notDeclared)
	session := cluster.Session(options)
	session.denied[gk] = time.Now().Add(-graceFor)
	_, err = session.Apply(t.Context(), settings(t), aConfigMap)
	require.Equal(t, release.Verdict, failureOf(t, err).Class, "the grace is over")
}

func TestDryRunAll_stops_asking_a_cluster_that_does_not_answer(t *testing.T) {
	fake, cluster := newFakeAPI(t, hangUp)
	_, err := cluster.Resolve(t.Context(), settings(t).GVK)
	require.NoError(t, err)
	items := make([]DryRunItem, 100)
	for i := range items {
		items[i] = DryRunItem{Object: settings(t), Ref: aConfigMap}
	}
	answers := 0
	err = cluster.Session(SessionOptions{RetryFor: -1}).DryRunAll(t.Context(), items, 8, func(_ int, _ release.Applied, err error) {
		answers++
		require.Equal(t, release.Accident, failureOf(t, err).Class)
	})
	require.NoError(t, err)
	require.Equal(t, 100, answers)
	require.Less(t, len(patches(fake)), 100)
}

func TestDiscovery_plain_404_refreshes_once(t *testing.T) {
	fake, cluster := newFakeAPI(t, func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("404 page not found\n"))
	})
	_, err := cluster.Resolve(t.Context(), settings(t).GVK)
	require.NoError(t, err)
	_, err = cluster.Session(SessionOptions{}).DryRun(t.Context(), settings(t), aConfigMap)
	require.Equal(t, release.UnknownKind, failureOf(t, err).Class)
	require.Len(t, patches(fake), 2)

	_, err = cluster.Session(SessionOptions{RetryFor: -1}).Read(t.Context(), aConfigMap)
	require.Equal(t, release.Accident, failureOf(t, err).Class, "discovery lists the kind: that is no absence")
}

func TestDiscovery_without_aggregation(t *testing.T) {
	fake, cluster := newFakeAPI(t, good)
	fake.groups = `{"kind":"APIGroupList","groups":[{"name":"down.example.test","versions":[{"version":"v1"}],"preferredVersion":{"version":"v1"}}]}`
	mapping, err := cluster.ResolveKind(t.Context(), schema.GroupKind{Kind: "ConfigMap"})
	require.NoError(t, err)
	require.Equal(t, Mapping{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespaced: true}, mapping)
	_, err = cluster.ResolveKind(t.Context(), schema.GroupKind{Group: "down.example.test", Kind: "Thing"})
	require.Equal(t, release.Accident, failureOf(t, err).Class)
	_, err = cluster.ResolveKind(t.Context(), schema.GroupKind{Group: "nowhere.example.test", Kind: "Thing"})
	require.Equal(t, release.UnknownKind, failureOf(t, err).Class)
}

func TestDiscovery_many_misses_fetch_once(t *testing.T) {
	fake, cluster := newFakeAPI(t, good)
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			_, _ = cluster.Resolve(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "Ghost"})
		})
	}
	callers.Wait()
	require.LessOrEqual(t, len(fake.seen()), 6, "one fetch, or two when a second goes by: %v", fake.seen())
}

func TestDelete_uncertain_delete_that_took_effect(t *testing.T) {
	_, cluster := newFakeAPI(t, hangUp, refuse(404, "NotFound", "not found"))
	live := &release.Live{Ref: aConfigMap, UID: "u", ResourceVersion: "7"}
	got, err := cluster.Session(SessionOptions{}).Delete(t.Context(), live, metav1.DeletePropagationBackground)
	require.NoError(t, err)
	require.Equal(t, Deletion{Gone: true}, got)
}

func TestSession_D22_hanging_cluster_is_noticed_within_the_budget(t *testing.T) {
	session := (&Cluster{}).Session(SessionOptions{})
	require.Equal(t, requestTimeout, session.requestLimit())
	session.stumbled(time.Now().Add(-requestTimeout))
	require.LessOrEqual(t, session.requestLimit(), 10*time.Second, "30s of 40s are gone")
	session.stumbled(time.Now())
	require.GreaterOrEqual(t, (&Cluster{}).Session(SessionOptions{RetryFor: time.Second}).requestLimit(), shortestTimeout)
}

func TestSession_request_without_an_answer_is_uncertain(t *testing.T) {
	blocked := make(chan struct{})
	_, cluster := newFakeAPI(t, func(http.ResponseWriter) { <-blocked })
	defer close(blocked)
	_, err := cluster.Resolve(t.Context(), settings(t).GVK)
	require.NoError(t, err)
	_, err = cluster.send(withLimit(t.Context(), 50*time.Millisecond), request{method: http.MethodPatch, path: "/api/v1/namespaces/a/configmaps/b", accept: acceptJSON})
	failure := failureOf(t, err)
	require.Equal(t, release.Accident, failure.Class)
	require.True(t, failure.Uncertain)
	require.Contains(t, failure.Message, "gave no answer to PATCH")
}
