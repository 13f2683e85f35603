package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
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

// floor applies objects one after the other with client-go: the least that a sync of them can cost.
type floor struct {
	client *rest.RESTClient
	paths  []string
	render *release.Render
	// manager is the field manager. With convoy's own, objects that convoy applied stay as they are.
	manager string
}

// floorOf prepares the floor of some manifests.
func floorOf(t *testing.T, w *world, manager, manifests string) floor {
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
	return floor{client: client, paths: paths, render: render, manager: manager}
}

// run applies them all, and returns how long that took.
func (f floor) run(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	for i := range f.render.Objects {
		f.apply(t, f.paths[i], f.render.Objects[i].JSON)
	}
	return time.Since(began)
}

func (f floor) apply(t *testing.T, path string, body []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	result := f.client.Patch(types.ApplyPatchType).AbsPath(path).Param("fieldManager", f.manager).Param("force", "true").Body(body).Do(ctx)
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

// apiServerPID finds the process of the stack's API server: the one that serves the port of the kubeconfig.
func (w *world) apiServerPID() int {
	w.Helper()
	address, err := url.Parse(w.cfg.Host)
	require.NoError(w, err)
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(w, err)
	for _, file := range files {
		arguments, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(arguments, []byte("kube-apiserver\x00")) ||
			!bytes.Contains(arguments, []byte("--secure-port="+address.Port()+"\x00")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		require.NoError(w, err)
		return pid
	}
	require.Fail(w, "no process serves "+w.cfg.Host)
	return 0
}

// cpuOf is the processor time that a process has used, in steps of 10 ms.
func cpuOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:])) // from the third field on
	ticks := 0
	for _, field := range fields[11:13] { // utime, stime
		n, err := strconv.Atoi(field)
		require.NoError(t, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
