package k8s

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/internal/teststack"
)

func TestMain(m *testing.M) { teststack.Main(m) }

// patience bounds what a test waits for on a loaded machine.
const patience = 60 * time.Second

// server is a real API server as one test uses it: a namespace of its own, and a record of convoy's requests.
type server struct {
	t         *testing.T
	cfg       *rest.Config
	namespace string
	requests  *recorder
	cluster   *Cluster
	raw       *dynamic.DynamicClient // what other people do to the cluster
}

func newServer(t *testing.T) *server {
	t.Helper()
	cfg := teststack.Kubernetes(t)
	return newServerAs(t, cfg, teststack.Namespace(t, cfg), "")
}

// newServerAs is a server in the same namespace, seen through another user.
func newServerAs(t *testing.T, cfg *rest.Config, namespace, user string) *server {
	t.Helper()
	raw, err := dynamic.NewForConfig(cfg)
	require.NoError(t, err)
	requests := &recorder{}
	own := rest.CopyConfig(cfg)
	own.Impersonate.UserName = user
	own.Wrap(func(next http.RoundTripper) http.RoundTripper { return requests.under(next) })
	cluster, err := NewPool().Connect(own)
	require.NoError(t, err)
	return &server{t: t, cfg: cfg, namespace: namespace, requests: requests, cluster: cluster, raw: raw}
}

// as is the same server for another user.
func (s *server) as(user string) *server { return newServerAs(s.t, s.cfg, s.namespace, user) }

// impatient is a session that retries nothing.
func (s *server) impatient() *Session { return s.cluster.Session(SessionOptions{RetryFor: -1}) }

// object parses a manifest; NS in it stands for the test's namespace.
func (s *server) object(manifest string) *release.Object {
	s.t.Helper()
	return parseObject(s.t, strings.ReplaceAll(manifest, "NS", s.namespace))
}

func parseObject(t *testing.T, manifest string) *release.Object {
	t.Helper()
	document, err := yaml.YAMLToJSONStrict([]byte(manifest))
	require.NoError(t, err)
	var head metav1.PartialObjectMetadata
	_ = json.Unmarshal(document, &head) // a manifest may be wrong on purpose
	gv, err := schema.ParseGroupVersion(head.APIVersion)
	require.NoError(t, err)
	return &release.Object{
		GVK: gv.WithKind(head.Kind), Namespace: head.Namespace, Name: head.Name, JSON: document,
	}
}

// ref is the identity of a namespaced object.
func ref(obj *release.Object) release.ObjectRef { return obj.Ref(true) }

// global is the identity of a cluster-scoped object.
func global(obj *release.Object) release.ObjectRef { return obj.Ref(false) }

// create is what another client does: POST.
func (s *server) create(manifest string) *unstructured.Unstructured {
	s.t.Helper()
	made, err := s.client(s.object(manifest)).Create(s.t.Context(), s.content(manifest), metav1.CreateOptions{FieldManager: "kubectl-create"})
	require.NoError(s.t, err)
	return made
}

// createGlobal creates a cluster-scoped object and deletes it when the test ends.
func (s *server) createGlobal(manifest string) *unstructured.Unstructured {
	s.t.Helper()
	made := s.create(manifest)
	s.deleteLater(s.object(manifest))
	return made
}

func (s *server) deleteLater(obj *release.Object) {
	client := s.client(obj)
	s.t.Cleanup(func() {
		_ = client.Delete(context.Background(), obj.Name, metav1.DeleteOptions{})
	})
}

func (s *server) content(manifest string) *unstructured.Unstructured {
	s.t.Helper()
	content := &unstructured.Unstructured{}
	require.NoError(s.t, content.UnmarshalJSON(s.object(manifest).JSON))
	return content
}

// client is the other client for the kind of obj.
func (s *server) client(obj *release.Object) dynamic.ResourceInterface {
	s.t.Helper()
	mapping, err := s.cluster.Resolve(s.t.Context(), obj.GVK)
	require.NoError(s.t, err)
	if mapping.Namespaced {
		return s.raw.Resource(mapping.Resource).Namespace(obj.Ref(true).Namespace)
	}
	return s.raw.Resource(mapping.Resource)
}

// live reads the whole object.
func (s *server) live(obj *release.Object) *unstructured.Unstructured {
	s.t.Helper()
	live, err := s.client(obj).Get(s.t.Context(), obj.Name, metav1.GetOptions{})
	require.NoError(s.t, err)
	return live
}

// apply applies through convoy and requires success.
func (s *server) apply(session *Session, obj *release.Object) release.Applied {
	s.t.Helper()
	applied, err := session.Apply(s.t.Context(), obj, ref(obj))
	require.NoError(s.t, err)
	return applied
}

// eventually waits for what becomes true by itself, such as a policy that gets active.
func (s *server) eventually(what string, holds func() bool) {
	s.t.Helper()
	require.Eventually(s.t, holds, patience, 100*time.Millisecond, what)
}

// failure requires that err is a failure of the target cluster.
func failureOf(t *testing.T, err error) *release.Failure {
	t.Helper()
	var failure *release.Failure
	require.ErrorAs(t, err, &failure)
	return failure
}

// recorder counts the requests that reach the wire.
type recorder struct {
	mu   sync.Mutex
	seen []string
}

type recordingTransport struct {
	recorder *recorder
	next     http.RoundTripper
}

func (r *recorder) under(next http.RoundTripper) http.RoundTripper {
	return recordingTransport{r, next}
}

func (t recordingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	t.recorder.mu.Lock()
	t.recorder.seen = append(t.recorder.seen, request.Method+" "+request.URL.RequestURI())
	t.recorder.mu.Unlock()
	return t.next.RoundTrip(request)
}

// take returns the requests since the last call.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.seen
	r.seen = nil
	return seen
}

func replace(manifest, old, replacement string) string {
	return strings.ReplaceAll(manifest, old, replacement)
}

// setStatus does a controller's work.
func (s *server) setStatus(obj *release.Object, status map[string]any) {
	s.t.Helper()
	patch, err := json.Marshal(map[string]any{"status": status})
	require.NoError(s.t, err)
	_, err = s.client(obj).Patch(s.t.Context(), obj.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "controller"}, "status")
	require.NoError(s.t, err)
}

// dropFinalizers lets an object go; it is used at the end of a test.
func (s *server) dropFinalizers(obj *release.Object) {
	_, _ = s.client(obj).Patch(context.Background(), obj.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
}

func (s *server) delete(obj *release.Object) {
	s.t.Helper()
	require.NoError(s.t, s.client(obj).Delete(s.t.Context(), obj.Name, metav1.DeleteOptions{}))
}
