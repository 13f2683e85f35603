package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"convoy.dev/convoy/api/v1alpha1"

	"github.com/stretchr/testify/require"
)

// module is the folder of a Go module in the module cache; it is downloaded when it is not there.
func module(t *testing.T, version string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", version)
	command.Dir = os.TempDir()
	out, err := command.Output()
	require.NoError(t, err, "download module %s", version)
	var answer struct{ Dir string }
	require.NoError(t, json.Unmarshal(out, &answer))
	return answer.Dir
}

// copyFile copies a file of the module cache, where everything is read-only.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, data, 0o600))
}

// The renders of two projects that people really install: no force, an empty cluster, everything in one wave and in
// the order of the files (S1 S5 S8 S16 S19 S24 D8 D11 D15).
func TestSync_real_renders_of_prometheus_operator_and_metrics_server(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := t.TempDir()
	copyFile(t, filepath.Join(module(t, "github.com/prometheus-operator/prometheus-operator@v0.85.0"), "bundle.yaml"),
		filepath.Join(root, "bundle.yaml"))
	addon := filepath.Join(module(t, "k8s.io/kubernetes@v1.37.2"), "cluster/addons/metrics-server")
	files, err := filepath.Glob(filepath.Join(addon, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		copyFile(t, file, filepath.Join(root, filepath.Base(file)))
	}
	w.worker("--path-root", root)
	w.release("operators", "", func(rel *v1alpha1.Release) {
		rel.Spec.Source = v1alpha1.Source{Path: &root}
		rel.Spec.SyncPolicy.Prune.Namespaces = true
		rel.Spec.SyncPolicy.Prune.CustomResourceDefinitions = true
		rel.Spec.SyncPolicy.Prune.AllowEmpty = true
	})
	t.Cleanup(func() { removeEverything(t, root) })

	result := w.succeeds("operators")
	first := w.inventory("operators")
	require.Len(t, first, result.Objects)
	require.Contains(t, first, "apiextensions.k8s.io/CustomResourceDefinition//prometheuses.monitoring.coreos.com")
	require.Contains(t, first, "apiregistration.k8s.io/APIService//v1beta1.metrics.k8s.io")
	require.Empty(t, w.get("operators").Status.Unverified)

	require.NoError(t, os.Remove(filepath.Join(root, "metrics-server-service.yaml")))
	dropDocument(t, filepath.Join(root, "bundle.yaml"), "\nkind: Service\n")
	result = w.succeeds("operators")
	require.Equal(t, 2, result.Pruned)
	gone := []string{"/Service/default/prometheus-operator", "/Service/kube-system/metrics-server"}
	require.ElementsMatch(t, gone, minus(first, w.inventory("operators")))
	require.Nil(t, w.object("v1", "Service", "default", "prometheus-operator"))
	require.Nil(t, w.object("v1", "Service", "kube-system", "metrics-server"))
	require.NotNil(t, w.object("apps/v1", "Deployment", "default", "prometheus-operator"))

	// Nothing is left behind on the shared API server: an APIService without backend would hold every Namespace that
	// is being deleted.
	for _, file := range append(files, "bundle.yaml") {
		_ = os.Remove(filepath.Join(root, filepath.Base(file)))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "nothing.yaml"), []byte("# nothing\n"), 0o600))
	w.succeeds("operators")
	require.Empty(t, w.inventory("operators"))
	require.Nil(t, w.object("apiregistration.k8s.io/v1", "APIService", "", "v1beta1.metrics.k8s.io"))
}

// removeEverything deletes the APIService also when the test has failed half-way.
func removeEverything(t *testing.T, _ string) {
	t.Helper()
	command := exec.Command(shared.info.Kubectl, "--kubeconfig", shared.info.Kubeconfig, //nolint:gosec // our own kubectl
		"delete", "--ignore-not-found", "--wait=false", "apiservice", "v1beta1.metrics.k8s.io")
	require.NoError(t, command.Run())
}

// dropDocument removes the one document of a file that contains text.
func dropDocument(t *testing.T, file, text string) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var kept []string
	dropped := 0
	for _, document := range strings.Split("\n"+string(data), "\n---") {
		if strings.Contains(document, text) {
			dropped++
			continue
		}
		kept = append(kept, document)
	}
	require.Equal(t, 1, dropped)
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(kept, "\n---")), 0o600))
}

func minus(a, b []string) []string {
	in := map[string]bool{}
	for _, s := range b {
		in[s] = true
	}
	var out []string
	for _, s := range a {
		if !in[s] {
			out = append(out, s)
		}
	}
	return out
}
