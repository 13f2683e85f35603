package main

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/control"
	"convoy.dev/convoy/internal/preview"
	"convoy.dev/convoy/internal/source"
	"convoy.dev/convoy/internal/teststack"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
}

func TestDiffOfANewReleaseCreatesEverything(t *testing.T) {
	s := newStack(t)
	arg := s.release("shop", configMap("a", "")+configMap("b", ""), pruning)
	got := s.run("diff", arg)
	require.Equal(t, exitDifferent, got.code, got.stderr)
	require.Contains(t, got.stdout, s.manifests("+ create ConfigMap NS/a\n+ create ConfigMap NS/b\n"))
	require.Contains(t, got.stdout, ": 2 to create, 0 unchanged\n")
	require.Empty(t, got.stderr)

	var none corev1.ConfigMapList
	require.NoError(t, s.client.List(t.Context(), &none, client.InNamespace(s.namespace), client.MatchingFields{"metadata.name": "a"}))
	require.Empty(t, none.Items, "diff only looks")
}

func TestDiffOfWhatIsAppliedIsNone(t *testing.T) {
	s := newStack(t)
	arg := s.release("shop", configMap("a", ""), pruning)
	s.synced("shop", configMap("a", ""))
	got := s.run("diff", arg)
	require.Equal(t, exitDone, got.code, got.stdout+got.stderr)
	require.Regexp(t, `^render [0-9a-f]{12}: no difference, 1 object unchanged\n$`, got.stdout)
}

func TestDiffTellsChangesFieldByFieldAndWhatIsPruned(t *testing.T) {
	s := newStack(t)
	s.synced("shop", configMap("a", "")+configMap("gone", "")+configMap("kept", `, annotations: {convoy.dev/prune: disabled}`)+configMap("absent", ""))
	require.NoError(t, s.client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "absent"}}))
	arg := s.release("shop", strings.Replace(configMap("a", ", labels: {app: web}"), `"1"`, `"2"`, 1)+configMap("new", ""), pruning)
	got := s.run("diff", arg)
	require.Equal(t, exitDifferent, got.code, got.stderr)
	require.Contains(t, got.stdout, s.manifests(`~ change ConfigMap NS/a
    data.x: "1" -> "2"
    metadata.labels: + {"app":"web"}
+ create ConfigMap NS/new
= keep ConfigMap NS/kept (stays: it carries the annotation convoy.dev/prune: disabled)
- prune ConfigMap NS/gone
`))
	require.Contains(t, got.stdout, ": 1 to create, 1 to change, 1 to prune, 1 to keep, 0 unchanged\n")
	require.NotContains(t, got.stdout, "absent")
}

func TestDiffSaysWhatStaysWithThePruneOff(t *testing.T) {
	s := newStack(t)
	s.synced("shop", configMap("a", "")+configMap("gone", ""))
	arg := s.release("shop", configMap("a", ""), v1alpha1.PrunePolicy{})
	got := s.run("diff", arg)
	require.Equal(t, exitDifferent, got.code, got.stderr)
	require.Contains(t, got.stdout, s.manifests("= keep ConfigMap NS/gone (stays: spec.syncPolicy.prune.orphaned is not true: convoy forgets it)\n"))
}

func TestDiffProtectsNamespacesAndWhatOthersOwn(t *testing.T) {
	s := newStack(t)
	namespace := "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: NS-more, labels: {a: b}}\n"
	t.Cleanup(func() {
		_ = s.client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-more"}})
	})
	s.synced("shop", configMap("a", "")+configMap("moved", "")+namespace)
	s.synced("other", configMap("moved", ""))
	arg := s.release("shop", configMap("a", ""), pruning)
	got := s.run("diff", arg)
	require.Equal(t, exitDifferent, got.code, got.stderr)
	require.Contains(t, got.stdout, s.manifests("= keep Namespace NS-more (stays: Namespaces are not pruned unless spec.syncPolicy.prune.namespaces is true)\n"))
	require.Contains(t, got.stdout, s.manifests("= keep ConfigMap NS/moved (stays: it belongs to the Release NS/other now)\n"))

	s.release("shop", configMap("a", ""), v1alpha1.PrunePolicy{Orphaned: true, Namespaces: true})
	require.Contains(t, s.run("diff", arg).stdout, s.manifests("- prune Namespace NS-more\n"))
}

func TestDiffNamesEveryRejection(t *testing.T) {
	s := newStack(t)
	arg := s.release("shop", configMap("a", "")+
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad, namespace: NS}\ndataa: {}\n"+
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: lost, namespace: NS-nowhere}\n"+
		"---\napiVersion: example.com/v1\nkind: Unheard\nmetadata: {name: of, namespace: NS}\n", pruning)
	got := s.run("diff", arg)
	require.Equal(t, exitUnappliable, got.code, got.stdout)
	require.Contains(t, got.stdout, s.manifests("! rejected ConfigMap NS/bad: "))
	require.Contains(t, got.stdout, ".dataa: field not declared in schema")
	require.Contains(t, got.stdout, s.manifests("! rejected ConfigMap NS-nowhere/lost: "))
	require.Contains(t, got.stdout, s.manifests("? unverified Unheard NS/of (example.com): the cluster does not know the kind Unheard.example.com yet\n"))
	require.Contains(t, got.stderr, "the cluster rejects 2 objects: the next sync would end as Unappliable and change nothing")
}

// D10, and the same for base64.
func TestDiffShowsNoValueOfASecret(t *testing.T) {
	s := newStack(t)
	secret := func(first, second string) string {
		return "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: NS}\nstringData: {password: " + first + ", " + second + ": " + first + "}\n"
	}
	const live, next = "hunter2-live-value", "hunter2-next-value"
	s.synced("shop", secret(live, "old.key"))
	arg := s.release("shop", secret(next, "new.key")+
		"---\napiVersion: v1\nkind: Secret\nmetadata: {name: bad, namespace: NS}\ndata: [hunter2-bad-value]\n", pruning)
	got := s.run("diff", arg)
	require.Equal(t, exitUnappliable, got.code, got.stdout+got.stderr)
	require.Contains(t, got.stdout, s.manifests(`~ change Secret NS/s
    data["new.key"]: + (hidden)
    data["old.key"]: - (hidden)
    data.password: (hidden) -> (hidden)
`))
	require.Contains(t, got.stdout, s.manifests("! rejected Secret NS/bad"))
	for _, value := range []string{live, next, "hunter2"} {
		encoded := base64.StdEncoding.EncodeToString([]byte(value))
		for _, text := range []string{got.stdout, got.stderr} {
			require.NotContains(t, text, value)
			require.NotContains(t, text, encoded[:8])
		}
	}
}

// D15.
func TestDiffSaysWhatIsTakenOver(t *testing.T) {
	s := newStack(t)
	require.NoError(t, s.client.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "a", Annotations: map[string]string{
			"kubectl.kubernetes.io/last-applied-configuration": `{"secret":"copy"}`,
		}},
		Data: map[string]string{"x": "1", "extra": "2"},
	}, client.FieldOwner("kubectl-client-side-apply")))
	arg := s.release("shop", configMap("a", ""), pruning)
	got := s.run("diff", arg)
	require.Equal(t, exitDifferent, got.code, got.stderr)
	require.Contains(t, got.stdout, s.manifests("~ change ConfigMap NS/a\n    takes over the fields of kubectl-client-side-apply: those that the render does not have go\n"))
	require.NotContains(t, got.stdout, "copy")
}

func TestDiffSaysWhenOnlyTheOwnerChanges(t *testing.T) {
	s := newStack(t)
	require.NoError(t, s.client.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "a"}, Data: map[string]string{"x": "1"},
	}, client.FieldOwner("somebody")))
	got := s.run("diff", s.release("shop", configMap("a", ""), pruning))
	require.Equal(t, exitDifferent, got.code, got.stderr)
	require.Contains(t, got.stdout, "values stay, convoy becomes the owner of fields")
}

func TestDiffTellsWhyASyncWouldBeRefused(t *testing.T) {
	s := newStack(t)
	t.Run("bad render", func(t *testing.T) {
		got := s.run("diff", s.release("bad", "apiVersion: v1\nkind: ConfigMap\n", pruning))
		require.Equal(t, exitRenderFailed, got.code)
		require.Contains(t, got.stderr, "metadata.name")
	})
	t.Run("path that is not allowed", func(t *testing.T) {
		root := t.TempDir()
		writeFile(t, root+"/a.yaml", s.manifests(configMap("a", "")))
		rel := &v1alpha1.Release{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "path"}}
		rel.Spec.Source.Path = &root
		require.NoError(t, s.client.Create(t.Context(), rel))
		got := s.run("diff", s.namespace+"/path")
		require.Equal(t, exitUsage, got.code)
		require.Contains(t, got.stderr, "comes from the path "+root+" on the worker, and diff renders on this machine")
		require.Contains(t, got.stderr, "--path-root")
		got = s.run("diff", s.namespace+"/path", "--path-root", t.TempDir())
		require.Equal(t, exitRenderFailed, got.code)
		require.Contains(t, got.stderr, "(on this machine: the worker has files and a --path-root of its own)")
		got = s.run("diff", s.namespace+"/path", "--path-root", root)
		require.Equal(t, exitDifferent, got.code, got.stderr)
	})
	t.Run("objects of another Release", func(t *testing.T) {
		s.synced("owner", configMap("owned", ""))
		got := s.run("diff", s.release("thief", configMap("owned", ""), pruning))
		require.Equal(t, exitRenderFailed, got.code)
		require.Contains(t, got.stderr, s.manifests("ConfigMap NS/owned belongs to Release NS/owner"))
		got = s.run("diff", s.release("thief", configMap("owned", `, annotations: {convoy.dev/adopt: enabled}`), pruning))
		require.Equal(t, exitDifferent, got.code, got.stderr)
	})
	t.Run("empty render", func(t *testing.T) {
		s.synced("empty", configMap("last", ""))
		got := s.run("diff", s.release("empty", "---\n", pruning))
		require.Equal(t, exitRenderFailed, got.code)
		require.Contains(t, got.stderr, "allowEmpty")
		got = s.run("diff", s.release("empty", "---\n", v1alpha1.PrunePolicy{Orphaned: true, AllowEmpty: true}))
		require.Equal(t, exitDifferent, got.code, got.stderr)
		require.Contains(t, got.stdout, s.manifests("- prune ConfigMap NS/last\n"))
	})
}

func TestDiffGoesToTheClusterOfTheRelease(t *testing.T) {
	s := newStack(t)
	rel := &v1alpha1.Release{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "shop"}}
	manifests := s.manifests(configMap("a", ""))
	rel.Spec.Source.Inline, rel.Spec.ClusterRef = &manifests, &v1alpha1.ClusterReference{Name: "far"}
	require.NoError(t, s.client.Create(t.Context(), rel))
	got := s.run("diff", s.namespace+"/shop")
	require.Equal(t, exitDeployFailed, got.code)
	require.Contains(t, got.stderr, `names Cluster "far", which is not in namespace`)

	kubeconfig, err := os.ReadFile(teststack.Endpoints(t).Kubeconfig)
	require.NoError(t, err)
	require.NoError(t, s.client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "far"}, Data: map[string][]byte{"kubeconfig": kubeconfig},
	}))
	require.NoError(t, s.client.Create(t.Context(), &v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "far"},
		Spec:       v1alpha1.ClusterSpec{KubeconfigSecretRef: v1alpha1.SecretKeyReference{Name: "far", Key: "kubeconfig"}},
	}))
	got = s.run("diff", s.namespace+"/shop")
	require.Equal(t, exitDifferent, got.code, got.stderr)
}

// accidents are the paths to which the first request is answered as an API server does that is about to stop.
type accidents struct {
	mu   sync.Mutex
	left []string
}

// happens reports whether an accident is due at this path, which is then over.
func (a *accidents) happens(path string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.Index(a.left, path)
	if i >= 0 {
		a.left = slices.Delete(a.left, i, i+1)
	}
	return i >= 0
}

type accidentalTransport struct {
	accidents *accidents
	next      http.RoundTripper
}

func (t accidentalTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !t.accidents.happens(req.URL.Path) {
		return t.next.RoundTrip(req)
	}
	answer := httptest.NewRecorder()
	answer.WriteHeader(http.StatusServiceUnavailable)
	return answer.Result(), nil
}

// D22: discovery and the identity of the cluster are asked again, as a sync does.
func TestDiffSurvivesAnAccident(t *testing.T) {
	s := newStack(t)
	s.synced("shop", configMap("a", ""))
	between := &accidents{left: []string{"/api", "/apis", "/api/v1/namespaces/kube-system"}}
	cfg := rest.CopyConfig(s.cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return accidentalTransport{between, next} })
	cluster, err := control.New(cfg)
	require.NoError(t, err)
	manifests := s.manifests(configMap("a", "") + configMap("b", ""))
	rel := &v1alpha1.Release{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "shop"}}
	rel.Spec.Source.Inline = &manifests
	seen, err := preview.Look(t.Context(), preview.Input{Release: rel, Control: cluster, Source: source.New(source.Options{})})
	require.NoError(t, err)
	require.Empty(t, between.left)
	require.Nil(t, seen.Refusal)
	require.Equal(t, 1, seen.Count(preview.Create))
	require.Equal(t, 1, seen.Unchanged)
}
