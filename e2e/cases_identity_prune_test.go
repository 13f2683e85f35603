package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// asWritten reads a file of a case with its namespaces as they are: for cases about the namespace "default" itself. The
// object gets a name of its own instead, and is deleted at the end.
func (w *world) asWritten(name, file, object string) (render, renamed string) {
	w.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "cases", name, file))
	require.NoError(w, err)
	renamed = object + "-" + w.ns
	w.removeAtEnd("v1", "ConfigMap", "default", renamed)
	return strings.ReplaceAll(string(data), "name: "+object, "name: "+renamed), renamed
}

// S19 D1 D3 D4
func TestCase_46_same_object_twice_in_one_render(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "46-same-object-twice-in-one-render"
	different, twin := w.asWritten(name, "render1.yaml", "twin")
	same, _ := w.asWritten(name, "render2.yaml", "twin")
	once, _ := w.asWritten(name, "render3.yaml", "twin")
	isTwin := about("configmaps", "default", twin)

	w.release("r", different, nil)
	since := w.mark()
	message := w.fails("r", "RenderFailed")
	require.Contains(t, message, "ConfigMap default/"+twin+" stands twice in the render with different content")
	require.Contains(t, message, "inline, document 1, line 1")
	require.Contains(t, message, "inline, document 2, line 6")
	require.Nil(t, w.object("v1", "ConfigMap", "default", twin))
	require.Empty(t, said(writes(w.requests(since, isTwin))))

	w.render("r", same)
	since = w.mark()
	w.succeeds("r")
	require.Equal(t, []string{"/ConfigMap/default/" + twin}, w.inventory("r"))
	require.Equal(t, []string{"patch configmaps/" + twin + " 201"}, said(changes(w.requests(since, isTwin))))
	uid := w.must("v1", "ConfigMap", "default", twin).GetUID()

	w.render("r", once)
	since = w.mark()
	w.succeeds("r")
	require.Equal(t, uid, w.must("v1", "ConfigMap", "default", twin).GetUID())
	require.Equal(t, []string{"/ConfigMap/default/" + twin}, w.inventory("r"))
	require.Equal(t, []string{"patch configmaps/" + twin + " 200"}, said(changes(w.requests(since, isTwin))))
}

// S14 S19 S24 D4
func TestCase_47_default_namespace_written_out_later(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "47-default-namespace-written-out-later"
	silent, plain := w.asWritten(name, "render1.yaml", "plain")
	written, _ := w.asWritten(name, "render2.yaml", "plain")
	since := w.mark()
	w.release("r", silent, nil)
	w.succeeds("r")
	uid := w.must("v1", "ConfigMap", "default", plain).GetUID()
	require.Equal(t, []string{"/ConfigMap/default/" + plain}, w.inventory("r"))

	for _, render := range []string{written, silent} {
		w.render("r", render)
		require.Zero(t, w.succeeds("r").Pruned)
		require.Equal(t, uid, w.must("v1", "ConfigMap", "default", plain).GetUID())
		require.Equal(t, []string{"/ConfigMap/default/" + plain}, w.inventory("r"))
	}
	require.Equal(t, []string{"patch configmaps/" + plain + " 201", "patch configmaps/" + plain + " 200", "patch configmaps/" + plain + " 200"},
		said(changes(w.requests(since, about("configmaps", "default", plain)))))
}

// S19 S24
func TestCase_49_api_version_bump_is_not_a_new_object(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "49-api-version-bump-is-not-a-new-object"
	since := w.mark()
	w.release("r", w.caseRender(name, "render1.yaml"), nil)
	w.succeeds("r")
	uid := w.must("autoscaling/v2", "HorizontalPodAutoscaler", w.ns, "web").GetUID()
	record := "autoscaling/HorizontalPodAutoscaler/" + w.ns + "/web"
	require.Equal(t, []string{record}, w.inventory("r"))
	for _, file := range []string{"render2.yaml", "render1.yaml"} {
		w.render("r", w.caseRender(name, file))
		w.succeeds("r")
		require.Equal(t, uid, w.must("autoscaling/v2", "HorizontalPodAutoscaler", w.ns, "web").GetUID())
		require.Equal(t, []string{record}, w.inventory("r"))
	}
	require.Empty(t, said(deletes(w.requests(since))))

	w.render("r", w.caseRender(name, "render3.yaml"))
	w.succeeds("r")
	require.Nil(t, w.object("autoscaling/v2", "HorizontalPodAutoscaler", w.ns, "web"))
	require.Equal(t, []string{w.cm("rest")}, w.inventory("r"))
	require.Equal(t, []string{"delete horizontalpodautoscalers/web 200"}, said(deletes(w.requests(since))))
}

// S1 S16
func TestCase_65_render_order_inside_a_wave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("r", w.caseRender("65-render-order-inside-a-wave", "render1.yaml"), nil)
	since := w.mark()
	w.succeeds("r")

	rbac := "rbac.authorization.k8s.io/v1"
	last := 0
	for _, o := range []*unstructured.Unstructured{
		w.must(rbac, "RoleBinding", w.ns, "ord"), w.must("v1", "Service", w.ns, "ord"), w.must("v1", "ConfigMap", w.ns, "z-first"),
		w.must(rbac, "Role", w.ns, "ord"), w.must("v1", "ConfigMap", w.ns, "a-last"),
	} {
		now, err := strconv.Atoi(o.GetResourceVersion())
		require.NoError(t, err)
		require.Greater(t, now, last, "%s %s", o.GetKind(), o.GetName())
		last = now
	}
	applied := changes(w.requests(since))
	require.Equal(t, []string{
		"patch rolebindings/ord 201", "patch services/ord 201", "patch configmaps/z-first 201", "patch roles/ord 201", "patch configmaps/a-last 201",
	}, said(applied))
	for i := 1; i < len(applied); i++ {
		require.False(t, applied[i].ReceivedAt.Before(applied[i-1].CompletedAt), "%s came before the answer to %s", applied[i], applied[i-1])
	}
}
