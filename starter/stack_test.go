package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/k8s"
	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/internal/teststack"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// stack is the embedded stack with convoy installed, and a Kubernetes namespace of the test's own.
type stack struct {
	t         *testing.T
	env       []string
	cfg       *rest.Config
	client    client.Client
	namespace string
}

var installOnce sync.Once

func newStack(t *testing.T) *stack {
	s := &stack{t: t, cfg: teststack.Kubernetes(t)}
	s.env = []string{
		"HOME=" + t.TempDir(), "USER=tester",
		"KUBECONFIG=" + teststack.Endpoints(t).Kubeconfig, "TEMPORAL_ADDRESS=" + teststack.Endpoints(t).TemporalAddress,
	}
	installOnce.Do(func() { require.Equal(t, exitDone, s.run("install").code) })
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	var err error
	s.client, err = client.New(s.cfg, client.Options{Scheme: scheme})
	require.NoError(t, err)
	s.namespace = teststack.Namespace(t, s.cfg)
	return s
}

func (s *stack) run(args ...string) outcome { return convoy(s.t.Context(), s.env, args...) }

// manifests puts the test's namespace in the place of NS.
func (s *stack) manifests(text string) string { return strings.ReplaceAll(text, "NS", s.namespace) }

// release makes or changes a Release with inline manifests, and returns its argument.
func (s *stack) release(name, manifests string, prune v1alpha1.PrunePolicy) string {
	s.t.Helper()
	manifests = s.manifests(manifests)
	rel := &v1alpha1.Release{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	found := s.client.Get(s.t.Context(), client.ObjectKeyFromObject(rel), rel) == nil
	rel.Spec.Source = v1alpha1.Source{Inline: &manifests}
	rel.Spec.SyncPolicy.Prune = prune
	write := func() error { return s.client.Create(s.t.Context(), rel) }
	if found {
		write = func() error { return s.client.Update(s.t.Context(), rel) }
	}
	require.NoError(s.t, write())
	return s.namespace + "/" + name
}

// synced does what a sync leaves behind: the objects, applied by convoy, and the inventory.
func (s *stack) synced(name, manifests string) {
	s.t.Helper()
	cluster, err := k8s.NewPool().Connect(s.cfg)
	require.NoError(s.t, err)
	session := cluster.Session(k8s.SessionOptions{})
	render, err := release.Parse([]release.File{{Name: "inline", Data: []byte(s.manifests(manifests))}})
	require.NoError(s.t, err)
	var refs []release.ObjectRef
	for i := range render.Objects {
		mapping, err := cluster.Resolve(s.t.Context(), render.Objects[i].GVK)
		require.NoError(s.t, err)
		ref := render.Objects[i].Ref(mapping.Namespaced)
		_, err = session.Apply(s.t.Context(), &render.Objects[i], ref)
		require.NoError(s.t, err)
		refs = append(refs, ref)
	}
	uid, err := cluster.Identity(s.t.Context())
	require.NoError(s.t, err)
	require.NoError(s.t, s.client.Create(s.t.Context(), &v1alpha1.ReleaseInventory{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec:       v1alpha1.InventorySpec{Objects: release.Records(refs), ClusterUID: uid},
	}))
}

func configMap(name, more string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: NS%s}\ndata: {x: \"1\"}\n", name, more)
}

var pruning = v1alpha1.PrunePolicy{Orphaned: true}

func TestStatusAndInventoryOfAReleaseOnTheCluster(t *testing.T) {
	s := newStack(t)
	arg := s.release("shop", configMap("a", ""), pruning)

	got := s.run("inventory", arg)
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Contains(t, got.stdout, "convoy manages no object for Release "+arg)
	got = s.run("status", arg)
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Contains(t, got.stdout, "no sync has begun")

	s.synced("shop", configMap("a", "")+configMap("b", ""))
	require.Regexp(t, `-\s+ConfigMap\s+`+s.namespace+`\s+a\s+applied\n`, s.run("inventory", arg).stdout)
	require.Contains(t, s.run("inventory", arg, "-o", "yaml").stdout, "kind: ReleaseInventory")
	got = s.run("status", arg, "-o", "json")
	require.Contains(t, got.stdout, `"name": "shop"`)
	require.NotContains(t, got.stdout, "spec")
}

func TestAReleaseThatIsNotThereIsNamed(t *testing.T) {
	s := newStack(t)
	for _, command := range []string{"status", "inventory", "diff", "sync", "reconcile", "suspend", "resume"} {
		got := s.run(command, s.namespace+"/nope")
		require.Equal(t, exitNotFound, got.code, got.stderr)
		require.Contains(t, got.stderr, s.namespace+"/nope: not found")
		require.Empty(t, got.stdout)
	}
}

func TestAClusterOutOfReachIsNamed(t *testing.T) {
	kubeconfig := t.TempDir() + "/kubeconfig"
	writeFile(t, kubeconfig, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]}`)
	got := convoy(t.Context(), nil, "status", "a/b", "--kubeconfig", kubeconfig)
	require.Equal(t, exitUnreachable, got.code)
	require.Contains(t, got.stderr, "127.0.0.1:1")
	require.Contains(t, got.stderr, "check --kubeconfig, --context")
	got = convoy(t.Context(), nil, "install", "--kubeconfig", kubeconfig)
	require.Equal(t, exitUnreachable, got.code, got.stderr)
	got = convoy(t.Context(), nil, "status", "a/b", "--kubeconfig", kubeconfig, "--context", "other")
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.stderr, "other")
}

func TestReleasesAreCompletedFromTheCluster(t *testing.T) {
	s := newStack(t)
	arg := s.release("shop", configMap("a", ""), pruning)
	for _, command := range []string{"status", "inventory", "diff", "sync", "reconcile", "suspend", "resume"} {
		require.Contains(t, s.run("__complete", command, "").stdout, arg+"\n", command)
	}
	require.Contains(t, s.run("__complete", "list", "-n", "").stdout, s.namespace+"\n")
	require.Contains(t, s.run("__complete", "list", "-o", "").stdout, "wide\n")
	require.NotContains(t, s.run("__complete", "status", arg, "").stdout, arg)
	require.Contains(t, s.run("__complete", "status", "-o", "").stdout, "yaml\n")
	got := convoy(context.Background(), []string{"HOME=/nope"}, "__complete", "diff", "")
	require.NotContains(t, got.stdout, "/")
}
