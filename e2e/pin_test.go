package e2e

import (
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"

	"github.com/stretchr/testify/require"
)

// SPEC 4: a pinned Release goes back to the stored render, prune included, stays there whatever its source has, has drift
// corrected, says that it is pinned, and follows its source again when the pin is lifted.
func TestPin_holds_a_release_at_a_stored_render(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.worker("--render-store-url", "file://"+t.TempDir())
	w.release("shop", oneConfigMap(w.ns, "web", "1"), every(time.Second))
	w.loop("shop")
	w.becomes("shop", "True/Succeeded")
	first := w.get("shop").Status.LastSuccessful.Digest
	w.rendersAnew("shop", oneConfigMap(w.ns, "web", "2")+"---\n"+oneConfigMap(w.ns, "more", "2"))
	w.is("the second render is applied", func() bool { return w.configMap("more") != nil && w.applied("shop") == "True/Succeeded" })

	w.changes("shop", func(rel *v1alpha1.Release) { rel.Spec.Pin = &v1alpha1.Pin{Digest: first} })
	w.is("the first render is back", func() bool {
		last := w.get("shop").Status.LastSuccessful
		return last.Digest == first && w.applied("shop") == "True/Succeeded"
	})
	require.Equal(t, "1", w.configMap("web").Data["v"])
	require.Nil(t, w.configMap("more"), "what only the later render had is pruned")
	require.Contains(t, w.message("shop"), "which spec.pin holds")
	require.Equal(t, []string{w.cm("web")}, w.inventory("shop"))

	w.rendersAnew("shop", oneConfigMap(w.ns, "web", "3"))
	w.kubectl("{apiVersion: v1, kind: ConfigMap, metadata: {name: web}, data: {v: other}}", "-n", w.ns, "apply",
		"--server-side", "--force-conflicts", "--field-manager=meddler", "-f", "-")
	w.is("drift is corrected", func() bool { return w.configMap("web").Data["v"] == "1" })

	w.changes("shop", func(rel *v1alpha1.Release) { rel.Spec.Pin = nil })
	w.is("it follows its source again", func() bool { return w.configMap("web").Data["v"] == "3" })
}

// A pin that cannot be kept says what to do, and nothing is applied in its place.
func TestPin_without_its_render(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.worker("--render-store-url", "file://"+t.TempDir())
	w.release("shop", oneConfigMap(w.ns, "web", "1"), func(rel *v1alpha1.Release) {
		rel.Spec.Pin = &v1alpha1.Pin{Digest: "sha256:" + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
	})
	message := w.fails("shop", "RenderFailed")
	require.Contains(t, message, "does not hold this render")
	require.Contains(t, message, "convoy unpin "+w.ns+"/shop")
	require.Nil(t, w.configMap("web"))
}
