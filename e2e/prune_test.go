package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/internal/teststack"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
)

// annotated is the manifest of a ConfigMap with an annotation.
func (w *world) annotated(name, annotation, value string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s, annotations: {%s: %q}}\ndata: {v: \"1\"}\n",
		name, w.ns, annotation, value)
}

// plain is the manifest of a ConfigMap in the world's namespace.
func (w *world) plain(name, value string) string { return manifest(w.ns, name, 0, value) }

// clusterUID is the identity of the cluster (D31).
func (w *world) clusterUID() string {
	w.Helper()
	return string(w.must("v1", "Namespace", "", "kube-system").GetUID())
}

// elsewhere is another namespace with the same helpers.
func (w *world) elsewhere() *world {
	w.Helper()
	other := *w
	other.ns = teststack.Namespace(w.T, w.cfg)
	return &other
}

// lists makes an inventory as a sync of another Release would have written it.
func (w *world) lists(name, clusterUID string, objects, pending []string) {
	w.Helper()
	records := func(names []string) []v1alpha1.ObjectRecord {
		list := []v1alpha1.ObjectRecord{}
		for _, name := range names {
			list = append(list, v1alpha1.ObjectRecord{Kind: "ConfigMap", Namespace: w.ns, Name: name})
		}
		return list
	}
	inv := &v1alpha1.ReleaseInventory{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	inv.Spec = v1alpha1.InventorySpec{Objects: records(objects), Pending: records(pending), ClusterUID: clusterUID}
	require.NoError(w, w.kube.Create(w.Context(), inv))
}

// editInventory changes an inventory by hand.
func (w *world) editInventory(name string, change func(*v1alpha1.InventorySpec)) {
	w.Helper()
	inv := w.rawInventory(name)
	require.NotNil(w, inv)
	change(&inv.Spec)
	require.NoError(w, w.kube.Update(w.Context(), inv))
}

// answers is the HTTP code of the API server's answer to a GET.
func (w *world) answers(path string) (code int) {
	w.Helper()
	client, err := kubernetes.NewForConfig(w.cfg)
	require.NoError(w, err)
	client.RESTClient().Get().AbsPath(path).Do(w.Context()).StatusCode(&code)
	return code
}

// S25 D12
func TestPrune_marks_on_the_live_object_protect_it(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const argo = "argocd.argoproj.io/sync-options"
	w.release("r", w.plain("base", "1")+w.annotated("own", "convoy.dev/prune", "disabled")+w.annotated("helm", "helm.sh/resource-policy", "keep")+
		w.annotated("flux", "kustomize.toolkit.fluxcd.io/prune", "disabled")+w.annotated("argo", argo, "Validate=false,Prune=false")+
		w.annotated("pruned", "convoy.dev/prune", "enabled")+w.annotated("validated", argo, "Validate=false"), nil)
	w.succeeds("r")

	w.render("r", w.plain("base", "1"))
	require.Equal(t, 2, w.succeeds("r").Pruned)
	for _, name := range []string{"own", "helm", "flux", "argo"} {
		require.NotNil(t, w.configMap(name), name)
	}
	require.Nil(t, w.configMap("pruned"))
	require.Nil(t, w.configMap("validated"))
	require.Equal(t, []string{w.cm("base")}, w.inventory("r"))
	status := w.get("r").Status
	require.EqualValues(t, 4, status.OrphanedTotal)
	require.ElementsMatch(t, []string{
		"ConfigMap " + w.ns + "/own: it carries the annotation convoy.dev/prune: disabled",
		"ConfigMap " + w.ns + "/helm: it carries the annotation helm.sh/resource-policy: keep",
		"ConfigMap " + w.ns + "/flux: it carries the annotation kustomize.toolkit.fluxcd.io/prune: disabled",
		"ConfigMap " + w.ns + "/argo: it carries the annotation argocd.argoproj.io/sync-options: Prune=false",
	}, status.Orphaned)

	// From then on convoy does not manage them: nothing is asked about them any more.
	since := w.mark()
	w.succeeds("r")
	require.Equal(t, []string{"patch configmaps/base 200"}, said(changes(w.requests(since))))
	for _, r := range w.requests(since) {
		require.Equal(t, "base", r.Name, r)
	}
}

// S25 D12 D27: an inventory on the same cluster that lists an object, or has it pending, keeps it.
func TestPrune_leaves_what_another_Release_has(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("r", w.plain("base", "1")+w.plain("listed", "1")+w.plain("pending", "1")+w.plain("elsewhere", "1"), nil)
	w.succeeds("r")
	w.lists("winner", w.clusterUID(), []string{"listed"}, []string{"pending"})
	w.lists("far", "11111111-2222-4333-8444-555555555555", []string{"elsewhere"}, nil)

	w.render("r", w.plain("base", "1"))
	require.Equal(t, 1, w.succeeds("r").Pruned)
	require.NotNil(t, w.configMap("listed"))
	require.NotNil(t, w.configMap("pending"))
	require.Nil(t, w.configMap("elsewhere"), "another cluster's object is another object")
	require.Equal(t, []string{w.cm("base")}, w.inventory("r"))
	require.ElementsMatch(t, []string{
		"ConfigMap " + w.ns + "/listed: it belongs to the Release " + w.ns + "/winner now",
		"ConfigMap " + w.ns + "/pending: it belongs to the Release " + w.ns + "/winner now",
	}, w.get("r").Status.Orphaned)
}

// S25 D17
func TestPrune_leaves_what_somebody_else_made_anew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("r", w.plain("base", "1")+w.plain("remade", "1"), nil)
	w.succeeds("r")
	w.kubectl("", "delete", "configmap", "remade", "-n", w.ns)
	w.kubectl("", "create", "configmap", "remade", "-n", w.ns, "--from-literal=v=mine")
	remade := w.must("v1", "ConfigMap", w.ns, "remade")

	w.render("r", w.plain("base", "1"))
	since := w.mark()
	require.Zero(t, w.succeeds("r").Pruned)
	require.Equal(t, version(remade), version(w.must("v1", "ConfigMap", w.ns, "remade")))
	require.Empty(t, said(deletes(w.requests(since))))
	require.Equal(t, []string{w.cm("base")}, w.inventory("r"))
	require.Equal(t, []string{"ConfigMap " + w.ns + "/remade: it bears no apply entry of convoy: somebody else has made it anew"},
		w.get("r").Status.Orphaned)
	require.Contains(t, strings.Join(w.events("r"), "\n"), "Orphaned: 1 object left the inventory and stays on the cluster: ConfigMap "+w.ns+"/remade")
}

// D13 D17: an object that sets no field is convoy's all the same, also after others have labelled it.
func TestPrune_knows_its_own_bare_objects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	account := func(name string) string {
		return fmt.Sprintf("---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: %s, namespace: %s}\n", name, w.ns)
	}
	w.release("r", w.plain("base", "1")+account("a")+account("b")+account("c"), nil)
	w.succeeds("r")
	live := version(w.must("v1", "ServiceAccount", w.ns, "a"))
	w.succeeds("r")
	require.Equal(t, live, version(w.must("v1", "ServiceAccount", w.ns, "a")))
	require.Empty(t, w.must("v1", "ServiceAccount", w.ns, "a").GetAnnotations())
	require.Empty(t, w.must("v1", "ServiceAccount", w.ns, "a").GetLabels())
	w.kubectl("", "label", "serviceaccount", "b", "-n", w.ns, "by=hand")
	w.kubectl("", "delete", "serviceaccount", "c", "-n", w.ns)
	w.kubectl("", "create", "serviceaccount", "c", "-n", w.ns)

	// A field of its own later: the label of others stays.
	w.render("r", w.plain("base", "1")+account("a")+account("b")+"automountServiceAccountToken: false\n")
	require.Zero(t, w.succeeds("r").Pruned)
	require.Equal(t, map[string]string{"by": "hand"}, w.must("v1", "ServiceAccount", w.ns, "b").GetLabels())
	require.NotNil(t, w.object("v1", "ServiceAccount", w.ns, "c"), "somebody else has made it anew")

	// A sync that ended without a goodbye had left them pending.
	w.editInventory("r", func(spec *v1alpha1.InventorySpec) { spec.Objects, spec.Pending = nil, spec.Objects })
	w.render("r", w.plain("base", "1"))
	require.Equal(t, 2, w.succeeds("r").Pruned)
	require.Nil(t, w.object("v1", "ServiceAccount", w.ns, "a"))
	require.Nil(t, w.object("v1", "ServiceAccount", w.ns, "b"))
	require.Equal(t, []string{w.cm("base")}, w.inventory("r"))
}

// S24 D17: the same object under another group is no orphan. Events are served by two groups.
func TestPrune_leaves_what_was_applied_under_another_group(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("r", fmt.Sprintf(`
apiVersion: v1
kind: Event
metadata: {name: e, namespace: %[1]s}
involvedObject: {kind: ConfigMap, namespace: %[1]s, name: x, apiVersion: v1}
reason: Tested
type: Normal
message: by hand
eventTime: "2026-01-01T00:00:00.000000Z"
action: Test
reportingComponent: example.test/a
reportingInstance: a
`, w.ns), nil)
	w.succeeds("r")
	event := w.must("v1", "Event", w.ns, "e")

	w.render("r", fmt.Sprintf(`
apiVersion: events.k8s.io/v1
kind: Event
metadata: {name: e, namespace: %[1]s}
regarding: {kind: ConfigMap, namespace: %[1]s, name: x, apiVersion: v1}
reason: Tested
type: Normal
note: by hand
eventTime: "2026-01-01T00:00:00.000000Z"
action: Test
reportingController: example.test/a
reportingInstance: a
`, w.ns))
	require.Zero(t, w.succeeds("r").Pruned)
	w.alive(event)
	require.Equal(t, []string{"events.k8s.io/Event/" + w.ns + "/e"}, w.inventory("r"))
	require.Equal(t, []string{"Event " + w.ns + `/e: this sync has applied the same object as Event ` + w.ns + `/e of the group "events.k8s.io"`},
		w.get("r").Status.Orphaned)
}

// S27 D17: a group whose discovery fails is no absence, and matters to its own objects alone.
func TestPrune_of_a_group_whose_discovery_fails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dead := "dead-" + w.ns + ".example.test"
	w.release("r", w.plain("base", "1")+w.plain("gone", "1"), nil)
	w.release("other", w.plain("kept", "1")+w.plain("dropped", "1"), nil)
	w.succeeds("r")
	w.succeeds("other")
	record := v1alpha1.ObjectRecord{Group: dead, Kind: "Ghost", Namespace: w.ns, Name: "g"}
	w.editInventory("r", func(spec *v1alpha1.InventorySpec) { spec.Objects = append(spec.Objects, record) })
	w.byHand(fmt.Sprintf(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.%s}
spec: {group: %s, version: v1, groupPriorityMinimum: 1000, versionPriority: 10, insecureSkipTLSVerify: true, service: {name: nobody, namespace: %s}}
`, dead, dead, w.ns))
	w.eventually("the group answers with an error", func() error {
		if code := w.answers("/apis/" + dead + "/v1"); code < 500 {
			return fmt.Errorf("still HTTP %d", code)
		}
		return nil
	})

	w.render("other", w.plain("kept", "1"))
	require.Equal(t, 1, w.succeeds("other").Pruned)

	w.render("r", w.plain("base", "1"))
	message := w.fails("r", "PruneFailed")
	require.Contains(t, message, "1 of 2 objects could not be deleted: Ghost "+w.ns+"/g")
	require.Nil(t, w.configMap("gone"))
	require.Equal(t, []string{w.cm("base"), w.cm("gone"), dead + "/Ghost/" + w.ns + "/g"}, w.inventory("r"))

	w.kubectl("", "delete", "apiservice", "v1."+dead)
	w.eventually("the group is gone", func() error {
		if code := w.answers("/apis/" + dead + "/v1"); code != 404 {
			return fmt.Errorf("still HTTP %d", code)
		}
		return nil
	})
	require.Zero(t, w.succeeds("r").Pruned)
	require.Equal(t, []string{w.cm("base")}, w.inventory("r"))
}

// S24 S27 D18
func TestPrune_held_by_a_finalizer_is_no_failure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("r", w.plain("base", "1")+w.plain("held", "1"), nil)
	w.succeeds("r")
	finalizers := func(list string) {
		w.kubectl("", "patch", "configmap", "held", "-n", w.ns, "--type=merge", "-p", `{"metadata":{"finalizers":`+list+`}}`)
	}
	finalizers(`["example.test/hold","example.test/also"]`)
	held := []string{"ConfigMap " + w.ns + "/held (finalizers: example.test/hold, example.test/also)"}

	w.render("r", w.plain("base", "1"))
	since := w.mark()
	w.succeeds("r")
	require.Equal(t, []string{"delete configmaps/held 200"}, said(deletes(w.requests(since))))
	require.Equal(t, held, w.get("r").Status.Terminating)
	require.EqualValues(t, 1, w.get("r").Status.TerminatingTotal)
	require.Equal(t, []string{w.cm("base")}, w.inventory("r"))
	require.NotNil(t, w.configMap("held").DeletionTimestamp)

	// A later sync that prunes something else, or nothing, does not forget it.
	w.render("r", w.plain("base", "2")+w.plain("other", "1"))
	w.succeeds("r")
	require.Equal(t, held, w.get("r").Status.Terminating)
	finalizers(`["example.test/hold"]`)
	held[0] = strings.Replace(held[0], ", example.test/also", "", 1)
	w.render("r", w.plain("base", "2"))
	require.Equal(t, 1, w.succeeds("r").Pruned)
	require.Equal(t, held, w.get("r").Status.Terminating)
	require.EqualValues(t, 1, w.get("r").Status.TerminatingTotal)
	require.Equal(t, []string{w.cm("base")}, w.inventory("r"))

	// A later prune that meets it on its way out says so again, and asks for nothing.
	w.editInventory("r", func(spec *v1alpha1.InventorySpec) {
		spec.Objects = append(spec.Objects, v1alpha1.ObjectRecord{Kind: "ConfigMap", Namespace: w.ns, Name: "held"})
	})
	since = w.mark()
	w.succeeds("r")
	require.Empty(t, said(deletes(w.requests(since))))
	require.Equal(t, held, w.get("r").Status.Terminating)

	finalizers("null")
	require.Nil(t, w.configMap("held"))
	w.succeeds("r")
	require.Empty(t, w.get("r").Status.Terminating)
}

// S24 D19: force does not lift it, and neither does an inventory of which only the pending list is left.
func TestPrune_by_an_empty_render_needs_a_word(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("r", "# nothing", nil)
	w.succeeds("r")
	require.Equal(t, []string{}, w.inventory("r"), "an empty render over an empty inventory is fine")

	w.render("r", w.plain("a", "1"))
	w.succeeds("r")
	since := w.mark()
	w.render("r", "---\n")
	for _, change := range [][]func(*workflows.SyncInput){nil, {force}} {
		message := w.fails("r", "RenderFailed", change...)
		require.Contains(t, message, "the render is empty and the inventory lists 1 object: nothing was changed")
		require.Contains(t, message, "spec.syncPolicy.prune.allowEmpty")
	}
	w.editInventory("r", func(spec *v1alpha1.InventorySpec) { spec.Objects, spec.Pending = spec.Pending, spec.Objects })
	require.Contains(t, w.fails("r", "RenderFailed"), "the inventory lists 1 object")
	require.Empty(t, said(writes(w.requests(since))))
	require.NotNil(t, w.configMap("a"))

	w.update("r", func(rel *v1alpha1.Release) { rel.Spec.SyncPolicy.Prune.AllowEmpty = true })
	require.Equal(t, 1, w.succeeds("r").Pruned)
	require.Nil(t, w.configMap("a"))
	require.Equal(t, []string{}, w.inventory("r"))
}

// D18 D20
func TestPrune_propagates_as_the_policy_says(t *testing.T) {
	t.Parallel()
	for policy, finalizer := range map[metav1.DeletionPropagation]string{"": "", "Background": "", "Orphan": "orphan", "Foreground": "foregroundDeletion"} {
		t.Run("policy "+string(policy), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.release("r", w.plain("base", "1")+fmt.Sprintf(`
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: %s}
spec:
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: "registry.example/web:1"}]}}
`, w.ns), func(rel *v1alpha1.Release) { rel.Spec.SyncPolicy.Prune.PropagationPolicy = policy })
			w.succeeds("r")
			sets := func() []appsv1.ReplicaSet {
				list := &appsv1.ReplicaSetList{}
				require.NoError(t, w.kube.List(t.Context(), list, kube.InNamespace(w.ns)))
				return list.Items
			}
			w.eventually("the ReplicaSet is there", func() error {
				if len(sets()) != 1 {
					return errors.New("not yet")
				}
				return nil
			})

			w.render("r", w.plain("base", "1"))
			since := w.mark()
			require.Equal(t, 1, w.succeeds("r").Pruned)
			require.Equal(t, []string{"delete deployments/web 200"}, said(deletes(w.requests(since))))
			var terminating []string
			if finalizer != "" {
				terminating = []string{"Deployment.apps " + w.ns + "/web (finalizers: " + finalizer + ")"}
			}
			require.Equal(t, terminating, w.get("r").Status.Terminating)
			w.eventually("the Deployment goes", func() error {
				if w.object("apps/v1", "Deployment", w.ns, "web") != nil {
					return errors.New("it is still there")
				}
				return nil
			})
			if policy == "Orphan" {
				require.Len(t, sets(), 1)
				require.Empty(t, sets()[0].OwnerReferences)
				return
			}
			w.eventually("the ReplicaSet goes", func() error {
				if left := sets(); len(left) > 0 {
					require.NotEmpty(t, left[0].OwnerReferences, "it was orphaned")
					return errors.New("it is still there")
				}
				return nil
			})
		})
	}
}

// S21 S22 D21 D35
func TestPrune_off_forgets_the_orphans_and_names_them(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var all strings.Builder
	for i := range 25 {
		all.WriteString(w.plain(fmt.Sprintf("orphan-%02d", i), "1"))
	}
	w.release("r", w.plain("base", "1")+all.String(), func(rel *v1alpha1.Release) { rel.Spec.SyncPolicy.Prune.Orphaned = false })
	w.succeeds("r")
	w.render("r", w.plain("base", "1"))
	since := w.mark()
	w.succeeds("r")
	require.Equal(t, []string{"patch configmaps/base 200"}, said(changes(w.requests(since))))
	require.Equal(t, []string{w.cm("base")}, w.inventory("r"))
	status := w.get("r").Status
	require.Len(t, status.Orphaned, 20)
	require.Equal(t, "ConfigMap "+w.ns+"/orphan-00", status.Orphaned[0])
	require.EqualValues(t, 25, status.OrphanedTotal)
	require.Contains(t, strings.Join(w.events("r"), "\n"), "Orphaned: 25 objects left the inventory and stay on the cluster: ConfigMap "+w.ns+"/orphan-00")
}

// D12 D28
func TestPrune_of_Namespaces_takes_only_those_that_are_left_by_all(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spaces := map[string]string{}
	for _, use := range []string{"empty", "shared", "marked"} {
		spaces[use] = use + "-" + w.ns
		w.removeAtEnd("v1", "Namespace", "", spaces[use])
	}
	namespace := func(use string) string {
		return "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: " + spaces[use] + "}\n"
	}
	marked := strings.ReplaceAll(w.annotated("kept", "convoy.dev/prune", "disabled"), "namespace: "+w.ns, "namespace: "+spaces["marked"])
	w.release("r", w.plain("base", "1")+namespace("empty")+manifest(spaces["empty"], "content", 0, "1")+namespace("shared")+
		manifest(spaces["shared"], "content", 0, "1")+namespace("marked")+marked,
		func(rel *v1alpha1.Release) { rel.Spec.SyncPolicy.Prune.Namespaces = true })
	w.succeeds("r")
	w.release("other", manifest(spaces["shared"], "theirs", 0, "1"), nil)
	w.succeeds("other")

	w.render("r", w.plain("base", "1"))
	since := w.mark()
	require.Equal(t, 3, w.succeeds("r").Pruned)
	require.Equal(t, []string{w.cm("base")}, w.inventory("r"))
	require.Equal(t, []string{"delete configmaps/content 200", "delete configmaps/content 200", "delete namespaces/" + spaces["empty"] + " 200"},
		said(deletes(w.requests(since, within(spaces["empty"]), within(spaces["shared"]), within(spaces["marked"]),
			isNamespace(spaces["empty"]), isNamespace(spaces["shared"]), isNamespace(spaces["marked"])))))
	if gone := w.object("v1", "Namespace", "", spaces["empty"]); gone != nil {
		require.NotNil(t, gone.GetDeletionTimestamp())
	}
	for _, use := range []string{"shared", "marked"} {
		require.Nil(t, w.must("v1", "Namespace", "", spaces[use]).GetDeletionTimestamp(), use)
	}
	require.ElementsMatch(t, []string{
		"Namespace " + spaces["shared"] + ": it still holds ConfigMap " + spaces["shared"] + "/theirs",
		"Namespace " + spaces["marked"] + ": it still holds ConfigMap " + spaces["marked"] + "/kept",
		"ConfigMap " + spaces["marked"] + "/kept: it carries the annotation convoy.dev/prune: disabled",
	}, w.get("r").Status.Orphaned)
	require.Empty(t, w.get("r").Status.Terminating)
}

// D12 D13 D27
func TestAdoption_in_one_namespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("old", w.plain("x", "old")+w.plain("mine", "1"), nil)
	w.succeeds("old")
	uid := w.configMap("x").UID

	// Without the mark: refused before anything is applied, forced or not.
	w.release("new", w.plain("first", "1")+w.plain("x", "new"), nil)
	since := w.mark()
	for _, change := range [][]func(*workflows.SyncInput){nil, {force}} {
		message := w.fails("new", "RenderFailed", change...)
		require.Contains(t, message, "ConfigMap "+w.ns+"/x belongs to Release "+w.ns+"/old")
		require.Contains(t, message, "convoy.dev/adopt: enabled")
	}
	require.Empty(t, said(writes(w.requests(since))))
	require.Nil(t, w.rawInventory("new"))
	require.Equal(t, "old", w.configMap("x").Data["v"])

	// With it: claimed, handed over, applied, in this order.
	adopted := strings.Replace(w.annotated("x", "convoy.dev/adopt", "enabled"), `v: "1"`, `v: "new"`, 1)
	w.render("new", w.plain("first", "1")+adopted)
	since = w.mark()
	w.succeeds("new")
	require.Equal(t, []string{w.cm("first"), w.cm("x")}, w.inventory("new"))
	require.Equal(t, []string{w.cm("mine")}, w.inventory("old"))
	require.Equal(t, uid, w.configMap("x").UID)
	require.Equal(t, "new", w.configMap("x").Data["v"])
	var order []string
	for _, r := range changes(w.allRequests(since)) {
		if r.Namespace == w.ns && r.Subresource == "" && r.Resource != "events" {
			order = append(order, r.String())
		}
	}
	require.Equal(t, []string{
		"create releaseinventories/new 201", "update releaseinventories/old 200", "patch configmaps/first 201", "patch configmaps/x 200",
		"update releaseinventories/new 200",
	}, order)

	// The old Release still brings it: refused, hands off.
	since = w.mark()
	require.Contains(t, w.fails("old", "RenderFailed"), "ConfigMap "+w.ns+"/x belongs to Release "+w.ns+"/new")
	require.Empty(t, said(writes(w.requests(since))))
	// It has dropped it: it is not deleted.
	w.render("old", w.plain("mine", "1"))
	require.Zero(t, w.succeeds("old").Pruned)
	require.Equal(t, uid, w.configMap("x").UID)
	require.Equal(t, "new", w.configMap("x").Data["v"])
	require.Empty(t, said(deletes(w.requests(since))))
	require.Equal(t, []string{w.cm("first"), w.cm("x")}, w.inventory("new"))

	// The new one owns it: it prunes it.
	w.render("new", w.plain("first", "1"))
	require.Equal(t, 1, w.succeeds("new").Pruned)
	require.Nil(t, w.configMap("x"))
}

// D12 D27
func TestAdoption_across_namespaces_needs_the_loser_to_agree(t *testing.T) {
	t.Parallel()
	loser := newWorld(t)
	winner := loser.elsewhere()
	loser.release("old", loser.plain("x", "old"), nil)
	loser.succeeds("old")
	uid := loser.configMap("x").UID
	adopted := strings.Replace(loser.annotated("x", "convoy.dev/adopt", "enabled"), `v: "1"`, `v: "new"`, 1)
	winner.release("new", adopted, nil)

	agree := func(word string) {
		loser.update("old", func(rel *v1alpha1.Release) { rel.Annotations = map[string]string{"convoy.dev/hand-over": word} })
	}
	since := loser.mark()
	for _, word := range []string{"", loser.ns + "/new", winner.ns + "/other"} {
		agree(word)
		message := winner.fails("new", "RenderFailed")
		require.Contains(t, message, "ConfigMap "+loser.ns+"/x belongs to Release "+loser.ns+"/old")
		require.Contains(t, message, "convoy.dev/hand-over: "+winner.ns+"/new")
	}
	require.Empty(t, said(writes(loser.requests(since))))
	require.Equal(t, "old", loser.configMap("x").Data["v"])

	agree(winner.ns + "/new")
	winner.succeeds("new")
	require.Equal(t, []string{loser.cm("x")}, winner.inventory("new"))
	require.Empty(t, loser.inventory("old"))
	require.Equal(t, uid, loser.configMap("x").UID)
	require.Equal(t, "new", loser.configMap("x").Data["v"])
	require.Contains(t, loser.fails("old", "RenderFailed"), "belongs to Release "+winner.ns+"/new")
	require.Equal(t, "new", loser.configMap("x").Data["v"])
}

// D12 D27 D31: one that may not read which cluster it is on, and one that may, know each other's objects all the same.
func TestAdoption_between_identities_that_name_the_cluster_differently(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	user := "blind-" + w.ns
	w.byHand(fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: blind, namespace: %s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{kind: User, name: %s, apiGroup: rbac.authorization.k8s.io}]
`, w.ns, user))
	w.awaitRight(user, "delete", "", "configmaps")
	w.cluster("blind", user)
	w.release("seeing", w.plain("x", "seeing")+w.plain("base", "1"), nil)
	w.succeeds("seeing")

	w.release("blind", w.plain("x", "blind"), onCluster("blind"))
	require.Contains(t, w.fails("blind", "RenderFailed"), "ConfigMap "+w.ns+"/x belongs to Release "+w.ns+"/seeing")
	w.render("blind", w.plain("z", "blind"))
	w.succeeds("blind")
	require.Equal(t, w.clusterUID(), w.rawInventory("seeing").Spec.ClusterUID)
	require.Regexp(t, "^server:", w.rawInventory("blind").Spec.ClusterUID)
	w.render("seeing", w.plain("x", "seeing")+w.plain("base", "1")+w.plain("z", "seeing"))
	require.Contains(t, w.fails("seeing", "RenderFailed"), "ConfigMap "+w.ns+"/z belongs to Release "+w.ns+"/blind")

	// It moves: the old one's prune hands over.
	w.render("blind", w.annotated("x", "convoy.dev/adopt", "enabled")+w.plain("z", "blind"))
	w.succeeds("blind")
	require.Equal(t, []string{w.cm("base")}, w.inventory("seeing"))
	w.editInventory("seeing", func(spec *v1alpha1.InventorySpec) {
		spec.Objects = append(spec.Objects, v1alpha1.ObjectRecord{Kind: "ConfigMap", Namespace: w.ns, Name: "x"})
	})
	w.render("seeing", w.plain("base", "1"))
	require.Zero(t, w.succeeds("seeing").Pruned)
	require.NotNil(t, w.configMap("x"))
	require.Equal(t, []string{"ConfigMap " + w.ns + "/x: it belongs to the Release " + w.ns + "/blind now"}, w.get("seeing").Status.Orphaned)

	// It may see the cluster later: that is no other cluster.
	w.update("blind", func(rel *v1alpha1.Release) { rel.Spec.ClusterRef = nil })
	w.succeeds("blind")
	require.Equal(t, w.clusterUID(), w.rawInventory("blind").Spec.ClusterUID)
}

// D13 D27: what another Release takes while this one waits at a gate stays with it.
func TestAdoption_is_looked_at_again_before_each_wave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seconds := int32(15)
	w.release("slow", w.plain("first", "1")+manifest(w.ns, "x", 1, "slow"), func(rel *v1alpha1.Release) {
		rel.Spec.SyncPolicy.Waves = []v1alpha1.WavePolicy{{Wave: 1, Health: &v1alpha1.WaveHealth{Strategy: v1alpha1.HealthDelay, Seconds: &seconds}}}
	})
	run := w.start(workflows.SyncInput{Name: "slow"})
	w.eventually("the wave waits", func() error {
		if applied := w.applied("slow"); applied != "False/WaitingForWave" {
			return errors.New(applied)
		}
		return nil
	})
	w.release("fast", w.plain("x", "fast"), nil)
	w.succeeds("fast")

	_, reason := w.await(run)
	require.Equal(t, "RenderFailed", reason)
	require.Equal(t, "False/RenderFailed", w.applied("slow"))
	require.Contains(t, w.message("slow"), "ConfigMap "+w.ns+"/x belongs to Release "+w.ns+"/fast. Wave 1 was not begun.")
	require.Equal(t, v1alpha1.WaveFailed, w.get("slow").Status.Waves[1].Phase)
	require.Equal(t, "fast", w.configMap("x").Data["v"])
	require.Equal(t, []string{w.cm("first")}, w.inventory("slow"))
	require.Equal(t, []string{w.cm("x")}, w.inventory("fast"))

	// Its claim is withdrawn: the other Release goes on as if nothing had been.
	w.render("fast", w.plain("other", "1"))
	require.Equal(t, 1, w.succeeds("fast").Pruned)
	require.Nil(t, w.configMap("x"))
	w.update("slow", func(rel *v1alpha1.Release) { rel.Spec.SyncPolicy.Waves = nil })
	w.succeeds("slow")
	require.Equal(t, "slow", w.configMap("x").Data["v"])
	require.Equal(t, []string{w.cm("first"), w.cm("x")}, w.inventory("slow"))
}

// D31
func TestInventory_of_another_cluster_is_refused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("r", w.plain("a", "1")+w.plain("b", "1"), nil)
	w.succeeds("r")
	require.Equal(t, w.clusterUID(), w.rawInventory("r").Spec.ClusterUID)
	const other = "11111111-2222-4333-8444-555555555555"
	w.editInventory("r", func(spec *v1alpha1.InventorySpec) { spec.ClusterUID = other })

	w.render("r", w.plain("a", "2"))
	since := w.mark()
	for _, change := range [][]func(*workflows.SyncInput){nil, {force}} {
		message := w.fails("r", "RenderFailed", change...)
		require.Contains(t, message, "lists 2 objects on the cluster "+other)
		require.Contains(t, message, "now leads to the cluster "+w.clusterUID())
		require.Contains(t, message, "lead it back, or empty the Release there first")
	}
	require.Empty(t, said(writes(w.requests(since))))
	require.Equal(t, other, w.rawInventory("r").Spec.ClusterUID)
	require.Equal(t, "1", w.configMap("a").Data["v"])

	w.editInventory("r", func(spec *v1alpha1.InventorySpec) { spec.ClusterUID = w.clusterUID() })
	require.Equal(t, 1, w.succeeds("r").Pruned)

	// An identity that may not look who the cluster is does not pass for the same cluster.
	w.cluster("blind", "blind-"+w.ns)
	w.update("r", onCluster("blind"))
	require.Contains(t, w.fails("r", "RenderFailed"), "lists 1 object on the cluster "+w.clusterUID())

	// An inventory without objects describes no cluster.
	w.update("r", func(rel *v1alpha1.Release) {
		rel.Spec.ClusterRef, rel.Spec.SyncPolicy.Prune.AllowEmpty = nil, true
	})
	w.render("r", "# nothing")
	w.succeeds("r")
	w.editInventory("r", func(spec *v1alpha1.InventorySpec) { spec.ClusterUID = other })
	w.render("r", w.plain("a", "3"))
	w.succeeds("r")
	require.Equal(t, w.clusterUID(), w.rawInventory("r").Spec.ClusterUID)
}

// D34
func TestInventory_too_large_is_refused_before_the_first_request(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := t.TempDir()
	w.worker("--path-root", root)
	write := w.path("r", root)
	var all strings.Builder
	for i := range 5000 {
		all.WriteString(manifest(w.ns, fmt.Sprintf("%s-%04d", strings.Repeat("long", 60), i), 0, "1"))
	}
	write(all.String())
	since := w.mark()
	for _, change := range [][]func(*workflows.SyncInput){nil, {force}} {
		message := w.fails("r", "DeployFailed", change...)
		require.Regexp(t, `the inventory would hold 5000 records and take about 1\.\d\d MB, and the API server takes 1\.40 MB: nothing was applied; split the Release`, message)
	}
	require.Empty(t, said(writes(w.requests(since))))
	require.Nil(t, w.rawInventory("r"))

	// What convoy lets through the API server takes.
	inv := &v1alpha1.ReleaseInventory{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "full"}}
	var refs []release.ObjectRef
	for release.CheckSize(refs, refs) == nil {
		for range 50 {
			refs = append(refs, release.ObjectRef{Kind: "ConfigMap", Namespace: w.ns, Name: fmt.Sprintf("object-%05d", len(refs))})
		}
	}
	refs = refs[:len(refs)-50]
	inv.Spec.Objects, inv.Spec.Pending = release.Records(refs), release.Records(refs)
	require.NoError(t, w.kube.Create(w.Context(), inv))
	require.NoError(t, w.kube.Update(w.Context(), inv))
}

// S20 S23 D34
func TestInventory_that_cannot_be_written_stops_the_sync_before_the_prune(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("r", w.plain("a", "1")+w.plain("b", "1"), nil)
	first := w.succeeds("r")
	w.byHand(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: read-only-%[1]s}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [convoy.dev], apiVersions: ["*"], resources: [releaseinventories], operations: [CREATE, UPDATE]}
  validations: [{expression: "false", message: inventories are read-only}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: read-only-%[1]s}
spec: {policyName: read-only-%[1]s, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}}}
`, w.ns))
	w.eventually("the policy is active", func() error {
		err := w.kube.Update(w.Context(), w.rawInventory("r"), kube.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "read-only") {
			return fmt.Errorf("not yet: %w", err)
		}
		return nil
	})

	// New objects: nothing is applied before the claim on them is written.
	w.render("r", w.plain("a", "1")+w.plain("c", "1"))
	since := w.mark()
	require.Contains(t, w.fails("r", "DeployFailed"), "inventories are read-only")
	require.Empty(t, said(changes(w.requests(since))))
	// None: the sync gets as far as the exact inventory, and the record that it could not drop is pruned again.
	w.render("r", w.plain("a", "2"))
	require.Contains(t, w.fails("r", "DeployFailed"), "inventories are read-only")
	require.Equal(t, first.Digest, w.get("r").Status.LastSuccessful.Digest)
	require.Equal(t, []string{w.cm("a"), w.cm("b")}, w.inventory("r"))

	w.kubectl("", "delete", "validatingadmissionpolicybinding/read-only-"+w.ns, "validatingadmissionpolicy/read-only-"+w.ns)
	w.eventually("the API server has forgotten the policy", func() error {
		return w.kube.Update(w.Context(), w.rawInventory("r"), kube.DryRunAll)
	})
	w.succeeds("r")
	require.Equal(t, []string{w.cm("a")}, w.inventory("r"))
	require.Nil(t, w.configMap("b"))
}
