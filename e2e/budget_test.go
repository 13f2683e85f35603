package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// countedWorker starts a worker that acts under a user name of its own, so that the audit log tells its requests from
// all others.
func (w *world) countedWorker(args ...string) (worker *workerProcess, user string) {
	w.Helper()
	user = "counted-" + w.ns
	cfg, err := clientcmd.LoadFromFile(w.info.Kubeconfig)
	require.NoError(w, err)
	require.NotEmpty(w, cfg.AuthInfos)
	for _, auth := range cfg.AuthInfos {
		asUser(auth, user)
	}
	file := filepath.Join(w.TempDir(), "kubeconfig")
	require.NoError(w, clientcmd.WriteToFile(*cfg, file))
	w.taskQueue = "convoy-" + w.ns
	worker, err = startWorkerAt(file, w.info.TemporalAddress, w.taskQueue, args...)
	require.NoError(w, err)
	w.Cleanup(worker.stop)
	return worker, user
}

func asUser(auth *clientcmdapi.AuthInfo, user string) {
	auth.Impersonate, auth.ImpersonateGroups = user, []string{"system:masters"}
}

// of keeps the requests of a user.
func of(list []request, user string) []request {
	return filter(list, func(r request) bool { return r.User == user })
}

// mixedObjects is a render of n objects of eight kinds, with a ServiceAccount, roles, workloads and so on in the
// order in which charts bring them.
func mixedObjects(ns string, n int) string {
	kinds := []string{
		"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: o%[2]d, namespace: %[1]s, labels: {app: o%[2]d}}\n",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: o%[2]d, namespace: %[1]s, labels: {app: o%[2]d}}\ndata: {a: \"1\", b: two, c: three}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: o%[2]d, namespace: %[1]s, labels: {app: o%[2]d}}\nstringData: {token: t%[2]d}\n",
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: o%[2]d, namespace: %[1]s}\nrules: [{apiGroups: [\"\"], resources: [configmaps], verbs: [get, list]}]\n",
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: o%[2]d, namespace: %[1]s}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\nsubjects: [{kind: ServiceAccount, name: o%[2]d, namespace: %[1]s}]\n",
		"apiVersion: v1\nkind: Service\nmetadata: {name: o%[2]d, namespace: %[1]s}\nspec: {selector: {app: o%[2]d}, clusterIP: None, ports: [{name: http, port: 80}]}\n",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: o%[2]d, namespace: %[1]s, labels: {app: o%[2]d}}\nspec:\n  replicas: 0\n  selector: {matchLabels: {app: o%[2]d}}\n  template:\n    metadata: {labels: {app: o%[2]d}}\n    spec: {containers: [{name: c, image: registry.example/app:1, ports: [{containerPort: 80}], env: [{name: A, value: \"1\"}]}]}\n",
		"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: o%[2]d, namespace: %[1]s}\nspec: {podSelector: {matchLabels: {app: o%[2]d}}, policyTypes: [Ingress]}\n",
	}
	var b strings.Builder
	for i := range n {
		b.WriteString("---\n")
		fmt.Fprintf(&b, kinds[i%len(kinds)], ns, i)
	}
	return b.String()
}

// overhead is how many requests a sync may send beside one dry run and one apply for each object.
const overhead = 25

// A sync costs one dry run and one apply for each object, and little else: no GET before a PATCH. The worker is cold,
// so discovery is part of it (S5 S13 S16).
func TestBudget_requests_of_a_sync(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, user := w.countedWorker()
	const objects = 120
	w.release("budget", mixedObjects(w.ns, objects), nil)
	since := w.mark()
	w.succeeds("budget")
	// What other tests' Releases list is read once for each change there, and is no part of this sync.
	sent := filter(of(w.allRequests(since), user), func(r request) bool {
		return r.Resource != "releaseinventories" || r.Verb != "get" || r.Namespace == w.ns
	})
	require.Len(t, dryRuns(sent), objects)
	require.LessOrEqual(t, len(sent), 2*objects+overhead, "requests: %v", said(filter(sent, func(r request) bool {
		return r.Namespace != w.ns || r.isBookkeeping() || !r.isWrite()
	})))
}

// A history holds references, counts and digests: no payload above 64 KiB, and no more events than the steps need.
func TestBudget_events_of_a_sync(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("budget", mixedObjects(w.ns, 40), nil)
	run := w.start(syncOf("budget"))
	_, reason := w.await(run)
	require.Equal(t, "Succeeded", reason, w.message("budget"))
	events := w.history(run)
	require.Less(t, len(events), 60)
	for _, event := range events {
		require.Less(t, len(event), 64<<10)
	}
}
