package e2e

import (
	"fmt"
	"testing"

	"convoy.dev/convoy/api/v1alpha1"

	"github.com/stretchr/testify/require"
)

// deployer makes a ServiceAccount that may do everything with ConfigMaps in the world's namespace, and nothing else.
func (w *world) deployer(name string) {
	w.Helper()
	w.byHand(fmt.Sprintf(`---
{apiVersion: v1, kind: ServiceAccount, metadata: {namespace: %[1]s, name: %[2]s}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {namespace: %[1]s, name: %[2]s}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, create, patch, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: %[1]s, name: %[2]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %[2]s}
subjects: [{kind: ServiceAccount, namespace: %[1]s, name: %[2]s}]
`, w.ns, name))
	w.awaitRight(w.userOf(name), "patch", "", "configmaps")
}

func (w *world) userOf(name string) string {
	return "system:serviceaccount:" + w.ns + ":" + name
}

func actsAs(name string) func(*v1alpha1.Release) {
	return func(rel *v1alpha1.Release) { rel.Spec.ServiceAccountName = name }
}

// clusterRole is more than a tenant may create.
func clusterRole(name string) string {
	return fmt.Sprintf("---\n{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: %s}, rules: []}\n", name)
}

// S10: a Release acts as its ServiceAccount and can do no more than it: what that may not create is Unappliable, with the
// reason, and nothing of the render is applied; what it may is applied and pruned.
func TestTenants_S10_a_release_can_do_no_more_than_its_service_account(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deployer("deployer")
	w.release("shop", manifest(w.ns, "a", 0, "1")+manifest(w.ns, "b", 0, "1"), actsAs("deployer"))
	w.succeeds("shop")
	w.render("shop", manifest(w.ns, "a", 0, "2")+clusterRole(w.ns))
	message := w.fails("shop", "Unappliable")
	require.Contains(t, message, w.userOf("deployer"))
	require.Contains(t, message, "clusterroles")
	require.Equal(t, "1", w.configMap("a").Data["v"])
	require.Nil(t, w.object("rbac.authorization.k8s.io/v1", "ClusterRole", "", w.ns))

	w.render("shop", manifest(w.ns, "a", 0, "2"))
	require.Equal(t, 1, w.succeeds("shop").Pruned)
	require.Nil(t, w.configMap("b"))
}

// S10: with a default of the operator no Release goes without; one of its own takes its place.
func TestTenants_S10_the_operators_default(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deployer("deployer")
	w.worker("--default-service-account", "nobody")
	w.release("shop", manifest(w.ns, "a", 0, "1"), nil)
	require.Contains(t, w.fails("shop", "Unappliable"), w.userOf("nobody"))
	w.update("shop", actsAs("deployer"))
	w.succeeds("shop")
}

// A kubeconfig that acts as somebody already cannot act as a ServiceAccount too: neither is ignored in silence.
func TestTenants_one_identity_cannot_act_as_two(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cluster("far", "somebody")
	w.release("shop", manifest(w.ns, "a", 0, "1"), func(rel *v1alpha1.Release) {
		onCluster("far")(rel)
		actsAs("deployer")(rel)
	})
	require.Contains(t, w.fails("shop", "DeployFailed"), `acts as user "somebody" already`)
}
