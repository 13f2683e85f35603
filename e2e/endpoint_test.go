package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/endpoint"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// httpPort is the address of a worker's endpoint, from its log.
var httpPort = regexp.MustCompile(`"msg":"http endpoint","address":"[^"]*:(\d+)"`)

// watchingWorker starts a worker of this test alone that watches the test's namespace, and returns the root of its
// endpoint.
func (w *world) watchingWorker() (process *workerProcess, root string) {
	w.Helper()
	process = w.worker("--watch=true", "--watch-namespace", w.ns, "--listen-address", "127.0.0.1:0")
	return process, "http://127.0.0.1:" + httpPort.FindStringSubmatch(process.logs.String())[1]
}

// serviceAccount makes a ServiceAccount that may do the verbs on Releases of the test's namespace, and returns a token
// of its own.
func (w *world) serviceAccount(name string, audiences []string, verbs ...string) string {
	w.Helper()
	manifests := fmt.Sprintf("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: %s, namespace: %s}\n", name, w.ns)
	if len(verbs) > 0 {
		manifests += fmt.Sprintf(`---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: %[1]s, namespace: %[2]s}
rules:
- {apiGroups: [convoy.dev], resources: [releases], verbs: [%[3]s]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: %[1]s, namespace: %[2]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %[1]s}
subjects: [{kind: ServiceAccount, name: %[1]s, namespace: %[2]s}]
`, name, w.ns, strings.Join(verbs, ", "))
	}
	w.byHand(manifests)
	client, err := kubernetes.NewForConfig(w.cfg)
	require.NoError(w, err)
	made, err := client.CoreV1().ServiceAccounts(w.ns).CreateToken(w.Context(), name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: new(int64(600))},
	}, metav1.CreateOptions{})
	require.NoError(w, err)
	return made.Status.Token
}

// post calls the endpoint of a worker.
func (w *world) post(url, token string) (status int, answer map[string]string) {
	w.Helper()
	req, err := http.NewRequestWithContext(w.Context(), http.MethodPost, url, http.NoBody)
	require.NoError(w, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	got, err := http.DefaultClient.Do(req)
	require.NoError(w, err)
	defer got.Body.Close()
	raw, err := io.ReadAll(got.Body)
	require.NoError(w, err)
	require.NoError(w, json.Unmarshal(raw, &answer), string(raw))
	return got.StatusCode, answer
}

// SPEC 4, S4, D26: a CI asks over HTTP with the token of its ServiceAccount, and only where a Role lets it.
func TestHTTP_requests_of_a_service_account(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	process, root := w.watchingWorker()
	manual := func(rel *v1alpha1.Release) { rel.Spec.SyncPolicy.Mode = v1alpha1.SyncManual }
	w.release("shop", manifest(w.ns, "a", 0, "1"), manual)
	url := root + "/namespaces/" + w.ns + "/releases/shop"
	syncing := w.serviceAccount("ci", nil, endpoint.VerbSync)
	reconciling := w.serviceAccount("looker", []string{endpoint.Audience}, endpoint.VerbReconcile)
	nobody := w.serviceAccount("nobody", nil)

	t.Run("202 and a sync", func(t *testing.T) {
		status, answer := w.post(url+"/sync?id=build-1", syncing)
		require.Equal(t, http.StatusAccepted, status, answer)
		require.Equal(t, "release:"+w.ns+":shop", answer["workflowID"])
		require.Equal(t, "Succeeded", w.answered("shop", "build-1").Result)
		require.Equal(t, "system:serviceaccount:"+w.ns+":ci", w.get("shop").Status.LastAttempted.RequestedBy)
		require.False(t, w.get("shop").Status.LastAttempted.Force)
	})
	t.Run("the same id ten times is one request", func(t *testing.T) {
		for range 10 {
			status, answer := w.post(url+"/sync?id=build-2&force=true", syncing)
			require.Equal(t, http.StatusAccepted, status, answer)
		}
		run := w.answered("shop", "build-2").RunID
		w.post(url+"/sync?id=build-3", syncing)
		require.NotEqual(t, run, w.answered("shop", "build-3").RunID)
		require.Equal(t, int64(3), w.get("shop").Status.HandledRequestsTotal)
		require.Equal(t, int64(3), w.get("shop").Status.Fence.Number, "syncs")
	})
	t.Run("a token for convoy alone", func(t *testing.T) {
		status, answer := w.post(url+"/reconcile", reconciling)
		require.Equal(t, http.StatusAccepted, status, answer)
		require.Empty(t, answer["id"])
	})
	t.Run("refusals", func(t *testing.T) {
		foreign := w.serviceAccount("foreign", []string{"vault"}, endpoint.VerbSync)
		for name, tc := range map[string]struct {
			url, token string
			status     int
			reason     string
		}{
			"no token":                       {url + "/sync", "", 401, "Unauthorized"},
			"no token of the cluster":        {url + "/sync", "abc.def.ghi", 401, "Unauthorized"},
			"a token for somebody else":      {url + "/sync", foreign, 401, "Unauthorized"},
			"no Role":                        {url + "/sync", nobody, 403, "Forbidden"},
			"a Role for the other verb":      {url + "/sync", reconciling, 403, "Forbidden"},
			"a Role in another namespace":    {root + "/namespaces/default/releases/shop/sync", syncing, 403, "Forbidden"},
			"no such Release":                {root + "/namespaces/" + w.ns + "/releases/nope/sync", syncing, 404, "NotFound"},
			"not allowed to know of Release": {root + "/namespaces/" + w.ns + "/releases/nope/sync", nobody, 403, "Forbidden"},
		} {
			status, answer := w.post(tc.url, tc.token)
			require.Equal(t, tc.status, status, "%s: %v", name, answer)
			require.Equal(t, tc.reason, answer["reason"], name)
		}
	})
	t.Run("409 while suspended", func(t *testing.T) {
		w.update("shop", func(rel *v1alpha1.Release) { rel.Spec.Suspend = true })
		status, answer := w.post(url+"/sync", syncing)
		require.Equal(t, http.StatusConflict, status, answer)
		require.Equal(t, "Suspended", answer["reason"])
		require.Contains(t, answer["error"], "convoy resume "+w.ns+"/shop")
	})
	for _, token := range []string{syncing, reconciling, nobody} {
		require.NotContains(t, process.logs.String(), token)
	}
}

// D26: a Release that is being deleted takes no request.
func TestHTTP_a_release_that_is_being_deleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, root := w.watchingWorker()
	token := w.serviceAccount("ci", nil, endpoint.VerbSync)
	w.release("shop", manifest(w.ns, "a", 0, "1"), func(rel *v1alpha1.Release) { rel.Finalizers = []string{"example.com/hold"} })
	require.NoError(t, w.kube.Delete(t.Context(), w.get("shop")))
	defer w.update("shop", func(rel *v1alpha1.Release) { rel.Finalizers = nil })
	status, answer := w.post(root+"/namespaces/"+w.ns+"/releases/shop/sync", token)
	require.Equal(t, http.StatusConflict, status, answer)
	require.Equal(t, "Deleting", answer["reason"])
}
