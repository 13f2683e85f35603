package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
)

// endsWith runs a sync to its end, requires its reason, and returns the run.
func (w *world) endsWith(name, reason string) client.WorkflowRun {
	w.Helper()
	run := w.start(workflows.SyncInput{Name: name})
	_, got := w.await(run)
	require.Equal(w, reason, got, w.message(name))
	return run
}

// must reads an object that has to be there.
func (w *world) must(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	w.Helper()
	o := w.object(apiVersion, kind, namespace, name)
	require.NotNil(w, o, "%s %s/%s", kind, namespace, name)
	return o
}

// reads is the answer of the API server to a GET, byte for byte.
func (w *world) reads(path string) string {
	w.Helper()
	return w.kubectl("", "get", "--raw", path)
}

// secret reads the data of a Secret in the world's namespace.
func (w *world) secret(name string) map[string]string {
	w.Helper()
	secret := &corev1.Secret{}
	require.NoError(w, w.kube.Get(w.Context(), types.NamespacedName{Namespace: w.ns, Name: name}, secret))
	data := map[string]string{}
	for key, value := range secret.Data {
		data[key] = string(value)
	}
	return data
}

// owned is the entry of a field manager in managedFields.
func owned(t *testing.T, o *unstructured.Unstructured, manager string, operation metav1.ManagedFieldsOperationType) metav1.ManagedFieldsEntry {
	t.Helper()
	entries := o.GetManagedFields()
	at := slices.IndexFunc(entries, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == manager && e.Operation == operation && e.Subresource == ""
	})
	require.GreaterOrEqual(t, at, 0, "%s has no entry of %s in managedFields", o.GetName(), manager)
	return entries[at]
}

// passes waits until the clock is so much later than a moment: for timestamps of whole seconds that could differ.
func (w *world) passes(d time.Duration, since time.Time) {
	w.Helper()
	w.eventually(fmt.Sprintf("%s pass", d), func() error {
		if left := d - time.Since(since); left > 0 {
			return fmt.Errorf("%s are left", left)
		}
		return nil
	})
}

// events are the reasons and messages of the events about a Release.
func (w *world) events(name string) []string {
	w.Helper()
	list := &corev1.EventList{}
	require.NoError(w, w.kube.List(w.Context(), list, kube.InNamespace(w.ns)))
	said := []string{}
	for i := range list.Items {
		if event := &list.Items[i]; event.InvolvedObject.Kind == "Release" && event.InvolvedObject.Name == name {
			said = append(said, event.Reason+": "+event.Message)
		}
	}
	return said
}

// S13 D10 D29
func TestCase_34_secret_string_data_key_renamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "34-secret-string-data-key-renamed"
	w.release("r", w.caseRender(name, "render1.yaml"), nil)
	runs := []client.WorkflowRun{w.endsWith("r", "Succeeded")}
	require.Equal(t, map[string]string{"user": "alpha", "pass": "beta"}, w.secret("login"))

	w.render("r", w.caseRender(name, "render2.yaml"))
	runs = append(runs, w.endsWith("r", "Succeeded"))
	require.Equal(t, "True/Succeeded", w.applied("r"))
	require.Equal(t, map[string]string{"login": "alpha", "pass": "beta"}, w.secret("login"))
	live := version(w.must("v1", "Secret", w.ns, "login"))

	runs = append(runs, w.endsWith("r", "Succeeded"))
	require.Equal(t, live, version(w.must("v1", "Secret", w.ns, "login")))

	// A key that is in both takes the value of stringData.
	w.render("r", strings.Replace(w.caseRender(name, "render2.yaml"), "stringData:", "data: {pass: b2xkZXI=, rest: cmVzdA==}\nstringData:", 1))
	runs = append(runs, w.endsWith("r", "Succeeded"))
	require.Equal(t, map[string]string{"login": "alpha", "pass": "beta", "rest": "rest"}, w.secret("login"))

	for _, run := range runs {
		history := strings.Join(w.history(run), "\n")
		for _, value := range []string{"alpha", "YWxwaGE", "beta", "YmV0YQ", "older", "b2xkZXI"} {
			require.NotContains(t, history, value)
		}
	}
}

// S13
func TestCase_35_crd_list_turns_from_atomic_into_map(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "35-crd-list-turns-from-atomic-into-map"
	group, own := w.ownGroup("lab.example.test")
	w.removeAtEnd("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "rulebooks."+group)
	rules := func() string {
		spec, err := json.Marshal(w.must(group+"/v1", "Rulebook", w.ns, "r").Object["spec"])
		require.NoError(t, err)
		return string(spec)
	}
	w.release("r", w.caseRender(name, "render1.yaml", own...), nil)
	w.succeeds("r")
	require.JSONEq(t, `{"rules": [{"name": "a", "v": "1"}, {"name": "b", "v": "2"}]}`, rules())

	w.render("r", w.caseRender(name, "render2.yaml", own...))
	w.succeeds("r")
	require.JSONEq(t, `{"rules": [{"name": "a", "v": "1"}, {"name": "b", "v": "2"}]}`, rules())
	book := w.must(group+"/v1", "Rulebook", w.ns, "r")
	require.Contains(t, string(owned(t, book, "convoy", "Apply").FieldsV1.GetRawBytes()), `"k:{\"name\":\"a\"}"`)
	for _, entry := range book.GetManagedFields() {
		require.NotContains(t, string(entry.FieldsV1.GetRawBytes()), `"k:{\"name\":\"b\"}"`, "owned by %s", entry.Manager)
	}
	for range 2 {
		w.succeeds("r")
		require.Equal(t, version(book), version(w.must(group+"/v1", "Rulebook", w.ns, "r")))
	}

	w.kubectl("", "patch", "rulebooks."+group, "r", "-n", w.ns, "--type=json", "-p", `[{"op":"remove","path":"/spec/rules/1"}]`)
	w.succeeds("r")
	require.JSONEq(t, `{"rules": [{"name": "a", "v": "1"}]}`, rules())
}

// S5 S11 S13 D5
func TestCase_38_large_integers_keep_every_digit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "38-large-integers-keep-every-digit"
	group, own := w.ownGroup("lab.example.test")
	w.byHand(w.caseRender(name, "before.yaml", own...))
	store := t.TempDir()
	worker := w.worker("--render-store-url", "file://"+store)
	w.release("r", w.caseRender(name, "render1.yaml", own...), nil)
	result := w.succeeds("r")

	const digits = `"free":{"big":9007199254740993,"ms":3600000},"id":9007199254740993,"ratio":0.1`
	require.Contains(t, w.reads("/apis/"+group+"/v1/namespaces/"+w.ns+"/meters/m"), `"spec":{`+digits+`}`)
	stored, err := os.ReadFile(filepath.Join(store, "renders", "sha256", strings.TrimPrefix(result.Digest, "sha256:")))
	require.NoError(t, err)
	require.Contains(t, string(stored), `"spec":{`+digits+`}`)
	require.NotContains(t, string(stored), "e+06")
	require.Contains(t, string(stored), `"digest":"`+result.Digest+`"`)

	worker.stop()
	w.worker("--render-store-url", "file://"+store)
	require.Equal(t, result.Digest, w.succeeds("r").Digest)
	require.Equal(t, result.Digest, w.get("r").Status.LastSuccessful.Digest)
}

// S13 S21 D2
func TestCase_40_nulls_and_empties_are_a_no_op(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("r", w.caseRender("40-nulls-and-empties-are-a-no-op", "render1.yaml"), nil)
	w.succeeds("r")
	w.eventually("the Deployment is rolled out", func() error {
		deployment := &appsv1.Deployment{}
		if err := w.kube.Get(w.Context(), types.NamespacedName{Namespace: w.ns, Name: "tmpl-null"}, deployment); err != nil {
			return err
		}
		for _, condition := range deployment.Status.Conditions {
			if condition.Reason == "NewReplicaSetAvailable" && deployment.Status.AvailableReplicas == 1 {
				return nil
			}
		}
		return errors.New("not available yet")
	})
	state := func() []string {
		var all []string
		for _, o := range []*unstructured.Unstructured{
			w.must("v1", "Service", w.ns, "headless"), w.must("v1", "ConfigMap", w.ns, "empties"), w.must("apps/v1", "Deployment", w.ns, "tmpl-null"),
		} {
			fields, err := json.Marshal(o.GetManagedFields())
			require.NoError(t, err)
			all = append(all, o.GetName(), version(o), string(fields))
		}
		return append(all, "inventory "+w.rawInventory("r").ResourceVersion)
	}
	first, events := state(), w.events("r")

	for range 4 {
		last := time.Now()
		w.passes(2*time.Second, last)
		w.succeeds("r")
		require.Equal(t, first, state())
		require.Equal(t, events, w.events("r"))
		require.Len(t, w.get("r").Status.History, 1)
	}
}

// S16 S19 S24 D1
func TestCase_42_list_kind_and_empty_documents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "42-list-kind-and-empty-documents"
	w.release("r", w.caseRender(name, "render1.yaml"), nil)
	since := w.mark()
	w.succeeds("r")
	require.Equal(t, []string{w.cm("one"), w.cm("three"), w.cm("two")}, w.inventory("r"))
	require.Equal(t, []string{"patch configmaps/one 201", "patch configmaps/two 201", "patch configmaps/three 201"},
		said(changes(w.requests(since))))

	w.render("r", w.caseRender(name, "render2.yaml"))
	since = w.mark()
	w.succeeds("r")
	require.Nil(t, w.configMap("two"))
	require.Equal(t, []string{w.cm("one"), w.cm("three")}, w.inventory("r"))
	require.Equal(t, []string{"patch configmaps/one 200", "patch configmaps/three 200", "delete configmaps/two 200"},
		said(changes(w.requests(since))))
}

// D1 S19
func TestCase_43_generate_name_has_no_identity(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	store := t.TempDir()
	w.worker("--render-store-url", "file://"+store)
	w.release("r", w.caseRender("43-generate-name-has-no-identity", "render1.yaml"), nil)
	since := w.mark()
	for range 3 {
		message := w.fails("r", "RenderFailed")
		require.Contains(t, message, "inline, document 2, line 6: ConfigMap: the object has no metadata.name")
		require.NotContains(t, message, "document 1")
		require.NotContains(t, w.kubectl("", "get", "configmaps", "-n", w.ns, "-o", "name"), "configmap/gen-")
	}
	require.Nil(t, w.configMap("named"))
	require.Empty(t, said(writes(w.requests(since))))
	require.Nil(t, w.rawInventory("r"))
	stored, err := os.ReadDir(store)
	require.NoError(t, err)
	require.Empty(t, stored)
}

// D2 S13
func TestCase_44_exported_object_with_managed_fields(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "44-exported-object-with-managed-fields"
	w.release("r", w.caseRender(name, "render1.yaml"), nil)
	first := w.succeeds("r")
	live := version(w.must("v1", "ConfigMap", w.ns, "exported"))
	since := w.mark()
	for range 2 {
		w.succeeds("r")
		require.Equal(t, live, version(w.must("v1", "ConfigMap", w.ns, "exported")))
	}

	w.render("r", w.caseRender(name, "render2.yaml"))
	require.Equal(t, first.Digest, w.succeeds("r").Digest)
	require.Equal(t, live, version(w.must("v1", "ConfigMap", w.ns, "exported")))
	require.Len(t, w.get("r").Status.History, 1)
	for _, r := range w.requests(since) {
		require.Equal(t, 200, r.Code, r)
	}
}
