//go:build bench

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/internal/k8s"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// TestBench compares whole syncs with the floor, one sequential apply PATCH for each object with client-go and no rate
// limit, on the same API server in the same run. Ratios are what counts: the machine sets the seconds.
//
//	make bench
func TestBench(t *testing.T) {
	patience = 15 * time.Minute
	fmt.Printf("%16s %10s %8s %8s %6s %9s %8s %6s %9s %6s %11s\n",
		"objects", "pass", "floor", "sync", "ratio", "requests", "dry run", "apply", "get+list", "other", "worker MiB")
	for _, row := range []struct {
		name    string
		objects int
		render  func(ns string, n int) string
	}{
		{"100 mixed", 100, mixedObjects},
		{"1000 mixed", 1000, mixedObjects},
		{"5000 ConfigMaps", 5000, manyConfigMaps},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			worker, user := w.countedWorker("--path-root", w.TempDir())
			floorNS := newWorld(t).ns
			w.release("bench", row.render(w.ns, row.objects), nil)
			for _, pass := range []string{"first", "unchanged"} {
				floor := floorOf(t, w, row.render(floorNS, row.objects))
				since := w.mark()
				began := time.Now()
				w.succeeds("bench")
				took := time.Since(began)
				sent := of(w.allRequests(since), user)
				dry, applied, reads := len(dryRuns(sent)), len(changes(sent)), count(sent, "get", "list")
				fmt.Printf("%16s %10s %7.2fs %7.2fs %6.2f %9d %8d %6d %9d %6d %11d\n", row.name, pass,
					floor.Seconds(), took.Seconds(), took.Seconds()/floor.Seconds(), len(sent), dry, applied, reads,
					len(sent)-dry-applied-reads, procStatus(t, worker.command.Process.Pid, "VmHWM")/1024)
			}
		})
	}
}

func count(list []request, verbs ...string) int {
	return len(filter(list, func(r request) bool { return slices.Contains(verbs, r.Verb) }))
}

func manyConfigMaps(ns string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d, namespace: %s}\ndata: {v: \"%d\"}\n", i, ns, i)
	}
	return b.String()
}

// floorOf applies the objects one after the other with client-go and returns how long that took.
func floorOf(t *testing.T, w *world, manifests string) time.Duration {
	t.Helper()
	render, err := release.Parse([]release.File{{Name: "floor", Data: []byte(manifests)}})
	require.NoError(t, err)
	cfg := rest.CopyConfig(w.cfg)
	cfg.QPS = -1
	cfg.UserAgent = "floor"
	cfg.GroupVersion = &schema.GroupVersion{}
	cfg.NegotiatedSerializer = serializer.WithoutConversionCodecFactory{CodecFactory: scheme.Codecs}
	client, err := rest.UnversionedRESTClientFor(cfg)
	require.NoError(t, err)
	cluster, err := k8s.NewPool().Connect(w.cfg)
	require.NoError(t, err)
	paths := make([]string, len(render.Objects))
	for i := range render.Objects {
		o := &render.Objects[i]
		mapping, err := cluster.Resolve(t.Context(), o.GVK)
		require.NoError(t, err)
		paths[i] = "/apis/" + o.GVK.Group + "/" + o.GVK.Version
		if o.GVK.Group == "" {
			paths[i] = "/api/" + o.GVK.Version
		}
		paths[i] += "/namespaces/" + o.Namespace + "/" + mapping.Resource.Resource + "/" + o.Name
	}
	began := time.Now()
	for i := range render.Objects {
		apply(t, client, paths[i], render.Objects[i].JSON)
	}
	return time.Since(began)
}

func apply(t *testing.T, client *rest.RESTClient, path string, body []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	result := client.Patch(types.ApplyPatchType).AbsPath(path).Param("fieldManager", "floor").Param("force", "true").Body(body).Do(ctx)
	_, err := result.Raw()
	require.NoError(t, err)
	code := 0
	result.StatusCode(&code)
	require.Contains(t, []int{http.StatusOK, http.StatusCreated}, code)
}

// procStatus reads a value in KiB of /proc/PID/status.
func procStatus(t *testing.T, pid int, field string) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		var kib int
		if n, _ := fmt.Sscanf(line, field+": %d kB", &kib); n == 1 {
			return kib
		}
	}
	require.Fail(t, "no "+field+" in /proc/PID/status")
	return 0
}
