package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"convoy.dev/convoy/api/v1alpha1"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
)

// deletes keeps the requests that were to delete an object.
func deletes(list []request) []request {
	return filter(list, func(r request) bool { return !r.DryRun && (r.Verb == "delete" || r.Verb == "deletecollection") })
}

// alive requires that an object is there under a uid, and not being deleted.
func (w *world) alive(o *unstructured.Unstructured) {
	w.Helper()
	now := w.must(o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName())
	require.Equal(w, o.GetUID(), now.GetUID())
	require.Nil(w, now.GetDeletionTimestamp())
}

// S24 S26 S27 S30 D17 D22
func TestCase_51_delete_denied_by_admission(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "51-delete-denied-by-admission"
	// The policy holds in this world alone: it is the only thing of the case that is not in a namespace.
	w.byHand(w.caseRender(name, "before.yaml", "lab-hold", "lab-hold-"+w.ns,
		"validationActions:", "matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: "+w.ns+"}}}, validationActions:"))
	w.awaitDenial("hold")
	w.release("r", w.caseRender(name, "render1.yaml"), nil)
	first := w.succeeds("r")
	kept, gone1, gone2 := w.cm("kept"), w.cm("gone1"), w.cm("gone2")

	w.render("r", w.caseRender(name, "render2.yaml"))
	for try := range 2 {
		since := w.mark()
		message := w.fails("r", "PruneFailed")
		w.willRetry("r", "PruneFailed")
		require.Contains(t, message, "ConfigMap "+w.ns+"/gone1")
		require.Contains(t, message, "denied request: on hold")
		require.NotContains(t, message, "gone2")
		require.Equal(t, "2", w.configMap("kept").Data["v"])
		require.NotNil(t, w.configMap("gone1"))
		require.Nil(t, w.configMap("gone2"))
		require.Equal(t, []string{gone1, gone2, kept}, w.inventory("r"))
		status := w.get("r").Status
		require.Equal(t, first.Digest, status.LastSuccessful.Digest)
		require.NotEqual(t, first.Digest, status.LastAttempted.Digest)
		require.Equal(t, v1alpha1.ResultFailed, status.LastAttempted.Result)
		require.Equal(t, "PruneFailed", status.LastAttempted.Reason)
		deleted := []string{"delete configmaps/gone2 200", "delete configmaps/gone1 422"}
		require.Equal(t, deleted[try:], said(deletes(w.requests(since))))
	}

	w.kubectl("", "delete", "validatingadmissionpolicybinding/lab-hold-"+w.ns, "validatingadmissionpolicy/lab-hold-"+w.ns)
	w.eventually("the API server has forgotten the policy", func() error {
		_, reason := w.sync("r")
		if reason != "Succeeded" {
			return errors.New(reason)
		}
		return nil
	})
	require.Equal(t, "True/Succeeded", w.applied("r"))
	require.Nil(t, w.configMap("gone1"))
	require.Equal(t, []string{kept}, w.inventory("r"))
	status := w.get("r").Status
	require.Equal(t, status.LastAttempted.Digest, status.LastSuccessful.Digest)
	require.NotEqual(t, first.Digest, status.LastSuccessful.Digest)
}

// awaitDenial waits until a policy forbids to delete ConfigMaps of this world with a label: it becomes active a moment
// after it was made.
func (w *world) awaitDenial(label string) {
	w.Helper()
	probe := &corev1.ConfigMap{}
	probe.Namespace, probe.Name, probe.Labels = w.ns, "probe", map[string]string{label: "1"}
	require.NoError(w, w.kube.Create(w.Context(), probe))
	w.eventually("the policy is active", func() error {
		if err := w.kube.Delete(w.Context(), probe, kube.DryRunAll); err != nil && strings.Contains(err.Error(), "denied request") {
			return nil
		}
		return errors.New("not yet")
	})
}

// S10 S20 S27 D22
func TestCase_52_delete_not_allowed_by_rbac(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "52-delete-not-allowed-by-rbac"
	user, role := "no-delete-"+w.ns, "lab-no-delete-"+w.ns
	w.byHand(w.caseRender(name, "before.yaml", "lab-no-delete", role, "name: no-delete", "name: "+user))
	w.awaitRight(user, "patch", "", "configmaps")
	w.cluster("limited", user)
	worker := w.worker()
	w.release("r", w.caseRender(name, "render1.yaml"), onCluster("limited"))
	w.succeeds("r")
	a, b, c, d := w.cm("a"), w.cm("b"), w.cm("c"), w.cm("d")

	w.render("r", w.caseRender(name, "render2.yaml"))
	since := w.mark()
	require.Contains(t, w.fails("r", "PruneFailed"), "ConfigMap "+w.ns+"/c")
	require.Equal(t, []string{a, b, c}, w.inventory("r"))
	worker.kill()
	w.worker()
	require.Contains(t, w.fails("r", "PruneFailed"), "ConfigMap "+w.ns+"/c")
	require.Equal(t, []string{a, b, c}, w.inventory("r"))

	w.render("r", w.caseRender(name, "render3.yaml"))
	message := w.fails("r", "PruneFailed")
	require.Contains(t, message, "2 of 2 objects could not be deleted")
	require.Contains(t, message, "ConfigMap "+w.ns+"/b")
	require.Contains(t, message, "ConfigMap "+w.ns+"/c")
	require.NotNil(t, w.configMap("d"))
	require.Equal(t, []string{a, b, c, d}, w.inventory("r"))
	for _, r := range filter(w.requests(since), func(r request) bool { return r.Resource == "configmaps" }) {
		require.Equal(t, user, r.User, r)
		require.True(t, r.Verb != "delete" || r.Code == 403, r)
	}

	w.kubectl("", "patch", "clusterrole", role, "--type=json", "-p", `[{"op":"add","path":"/rules/0/verbs/-","value":"delete"}]`)
	w.awaitRight(user, "delete", "", "configmaps")
	require.Equal(t, 2, w.succeeds("r").Pruned)
	require.Nil(t, w.configMap("b"))
	require.Nil(t, w.configMap("c"))
	require.Equal(t, []string{a, d}, w.inventory("r"))
}

// S24 D20
func TestCase_54_pods_of_a_pruned_job(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "54-pods-of-a-pruned-job"
	w.release("r", w.caseRender(name, "render1.yaml"), nil)
	w.succeeds("r")
	pods := func() []corev1.Pod {
		list := &corev1.PodList{}
		require.NoError(t, w.kube.List(t.Context(), list, kube.InNamespace(w.ns), kube.MatchingLabels{"job-name": "batch"}))
		return list.Items
	}
	w.eventually("the Job has its Pod", func() error {
		if len(pods()) == 0 {
			return errors.New("no Pod yet")
		}
		return nil
	})
	w.eventually("the Job is done", func() error {
		_, done, _ := unstructured.NestedString(w.must("batch/v1", "Job", w.ns, "batch").Object, "status", "completionTime")
		if !done {
			return errors.New("not done yet")
		}
		return nil
	})

	w.render("r", w.caseRender(name, "render2.yaml"))
	since := w.mark()
	require.Equal(t, 1, w.succeeds("r").Pruned)
	require.Equal(t, []string{w.cm("base")}, w.inventory("r"))
	require.Equal(t, []string{"delete jobs/batch 200"}, said(deletes(w.requests(since))))
	require.Empty(t, w.get("r").Status.Terminating)
	require.Nil(t, w.object("batch/v1", "Job", w.ns, "batch"))
	w.eventually("the Pods go", func() error {
		if left := pods(); len(left) > 0 {
			require.NotEmpty(t, left[0].OwnerReferences, "Pod %s was orphaned", left[0].Name)
			return fmt.Errorf("%d Pods are left", len(left))
		}
		return nil
	})
}

// S21 S24 S25 S26 D12 D17
func TestCase_55_crd_and_resources_dropped_together(t *testing.T) {
	t.Parallel()
	const name = "55-crd-and-resources-dropped-together"
	installed := func(t *testing.T, change func(*v1alpha1.Release)) (w *world, group string, own []string) {
		t.Helper()
		w = newWorld(t)
		group, own = w.ownGroup("lab.example.test")
		w.removeAtEnd("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "hoses."+group)
		w.release("r", w.caseRender(name, "render1.yaml", own...), change)
		w.succeeds("r")
		require.Equal(t, []string{
			w.cm("base"), "apiextensions.k8s.io/CustomResourceDefinition//hoses." + group,
			group + "/Hose/" + w.ns + "/h1", group + "/Hose/" + w.ns + "/h2",
		}, w.inventory("r"))
		w.render("r", w.caseRender(name, "render2.yaml", own...))
		return w, group, own
	}
	pruneCRDs := func(rel *v1alpha1.Release) { rel.Spec.SyncPolicy.Prune.CustomResourceDefinitions = true }

	t.Run("the definition is protected", func(t *testing.T) {
		t.Parallel()
		w, group, _ := installed(t, nil)
		crd := w.must("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "hoses."+group)
		since := w.mark()
		require.Equal(t, 2, w.succeeds("r").Pruned)
		require.Nil(t, w.object(group+"/v1", "Hose", w.ns, "h1"))
		require.Nil(t, w.object(group+"/v1", "Hose", w.ns, "h2"))
		w.alive(crd)
		require.Equal(t, []string{w.cm("base")}, w.inventory("r"))
		require.Equal(t, []string{"delete hoses/h2 200", "delete hoses/h1 200"},
			said(deletes(w.requests(since, about("customresourcedefinitions", "", "hoses."+group)))))
	})

	t.Run("the definition goes too", func(t *testing.T) {
		t.Parallel()
		w, group, _ := installed(t, pruneCRDs)
		since := w.mark()
		require.Equal(t, 3, w.succeeds("r").Pruned)
		require.Equal(t, []string{"delete hoses/h2 200", "delete hoses/h1 200", "delete customresourcedefinitions/hoses." + group + " 200"},
			said(deletes(w.requests(since, about("customresourcedefinitions", "", "hoses."+group)))))
		require.Equal(t, []string{w.cm("base")}, w.inventory("r"))
		w.eventually("the definition goes", func() error {
			if w.object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "hoses."+group) != nil {
				return errors.New("it is still there")
			}
			return nil
		})
	})

	t.Run("the definition went first", func(t *testing.T) {
		t.Parallel()
		w, group, _ := installed(t, pruneCRDs)
		w.kubectl("", "delete", "customresourcedefinition", "hoses."+group)
		require.Zero(t, w.succeeds("r").Pruned)
		require.Equal(t, []string{w.cm("base")}, w.inventory("r"))
	})
}

// S22 S24 D1 D19
func TestCase_57_render_becomes_empty(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "57-render-becomes-empty"
	good := w.caseRender(name, "render1.yaml")
	w.release("r", good, nil)
	first := w.succeeds("r")
	unchanged := func(message string, since mark) {
		t.Helper()
		require.Equal(t, []string{w.cm("a"), w.cm("b")}, w.inventory("r"), message)
		require.NotNil(t, w.configMap("a"))
		require.NotNil(t, w.configMap("b"))
		require.Equal(t, first.Digest, w.get("r").Status.LastSuccessful.Digest)
		require.Empty(t, said(writes(w.requests(since))))
	}

	// 4, the render with one good and one broken document, before the switch is on: a render error is none too.
	since := w.mark()
	w.render("r", strings.Replace(good, "metadata: {name: b,", "metadata: {name: b", 1))
	message := w.fails("r", "RenderFailed")
	require.Contains(t, message, "inline, document 2, line 7")
	unchanged(message, since)

	since = w.mark()
	w.render("r", w.caseRender(name, "render2.yaml"))
	message = w.fails("r", "RenderFailed")
	require.Contains(t, message, "the inventory lists 2 objects")
	require.Contains(t, message, "spec.syncPolicy.prune.allowEmpty")
	unchanged(message, since)

	// Force does not lift it.
	unchanged(w.fails("r", "RenderFailed", force), since)

	w.update("r", func(rel *v1alpha1.Release) { rel.Spec.SyncPolicy.Prune.AllowEmpty = true })
	require.Equal(t, 2, w.succeeds("r").Pruned)
	require.Nil(t, w.configMap("a"))
	require.Nil(t, w.configMap("b"))
	require.Equal(t, []string{}, w.inventory("r"))

	// 4 again, with the switch on: it is about empty renders, not about broken ones.
	w.render("r", good)
	first = w.succeeds("r")
	since = w.mark()
	w.render("r", strings.Replace(good, "metadata: {name: b,", "metadata: {name: b", 1))
	unchanged(w.fails("r", "RenderFailed"), since)
}

// S24 S25 D12 D28
func TestCase_58_namespace_dropped_but_its_content_stays(t *testing.T) {
	t.Parallel()
	const name = "58-namespace-dropped-but-its-content-stays"
	for about, policy := range map[string]func(*v1alpha1.Release){
		"a Namespace is protected":     nil,
		"a Namespace in use is so too": func(rel *v1alpha1.Release) { rel.Spec.SyncPolicy.Prune.Namespaces = true },
	} {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			shop := "shop-" + w.ns
			own := []string{"name: shop", "name: " + shop, "namespace: shop", "namespace: " + shop}
			w.byHand(w.caseRender(name, "before.yaml", own...))
			w.release("r", w.caseRender(name, "render1.yaml", own...), policy)
			w.succeeds("r")
			w.byHand(fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: foreign, namespace: %s}}", shop))
			untouched := []*unstructured.Unstructured{
				w.must("v1", "Namespace", "", shop), w.must("v1", "ConfigMap", shop, "prices"), w.must("v1", "ConfigMap", shop, "foreign"),
			}

			w.render("r", w.caseRender(name, "render2.yaml", own...))
			since := w.mark()
			for range 3 {
				w.succeeds("r")
				for _, o := range untouched {
					now := w.must("v1", o.GetKind(), o.GetNamespace(), o.GetName())
					require.Equal(t, version(o), version(now))
					require.Nil(t, now.GetDeletionTimestamp())
				}
				phase, _, _ := unstructured.NestedString(w.must("v1", "Namespace", "", shop).Object, "status", "phase")
				require.Equal(t, "Active", phase)
				require.Equal(t, "a", w.must("v1", "Namespace", "", shop).GetLabels()["team"])
				require.Equal(t, []string{"/ConfigMap/" + shop + "/prices"}, w.inventory("r"))
			}
			require.Equal(t, []string{"patch configmaps/prices 200", "patch configmaps/prices 200", "patch configmaps/prices 200"},
				said(changes(w.requests(since, within(shop), isNamespace(shop)))))
		})
	}
}

// isNamespace accepts the requests about a Namespace itself, whose audit records name it in one field or in both.
func isNamespace(name string) func(request) bool {
	return func(r request) bool { return r.Resource == "namespaces" && r.Name == name }
}

// S21 S22 S24 D21
func TestCase_60_prune_switched_on_later(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "60-prune-switched-on-later"
	since := w.mark()
	w.release("r", w.caseRender(name, "render1.yaml"), func(rel *v1alpha1.Release) { rel.Spec.SyncPolicy.Prune.Orphaned = false })
	w.succeeds("r")
	w.render("r", w.caseRender(name, "render2.yaml"))
	w.succeeds("r")
	b := w.must("v1", "ConfigMap", w.ns, "b")
	require.Equal(t, []string{w.cm("a")}, w.inventory("r"))
	require.Equal(t, []string{"ConfigMap " + w.ns + "/b"}, w.get("r").Status.Orphaned)
	require.EqualValues(t, 1, w.get("r").Status.OrphanedTotal)
	require.Contains(t, strings.Join(w.events("r"), "\n"), "Orphaned: 1 object left the inventory and stays on the cluster: ConfigMap "+w.ns+"/b")

	w.update("r", func(rel *v1alpha1.Release) { rel.Spec.SyncPolicy.Prune.Orphaned = true })
	w.succeeds("r")
	require.Equal(t, version(b), version(w.must("v1", "ConfigMap", w.ns, "b")))
	require.Equal(t, []string{w.cm("a")}, w.inventory("r"))
	require.Empty(t, said(deletes(w.requests(since))))

	w.render("r", w.caseRender(name, "render3.yaml"))
	w.succeeds("r")
	w.alive(b)
	require.Nil(t, w.configMap("a"))
	require.Equal(t, []string{w.cm("b")}, w.inventory("r"))
	require.Equal(t, []string{"delete configmaps/a 200"}, said(deletes(w.requests(since))))
}

// S25 D12
func TestCase_61_protection_mark_lives_only_on_the_cluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "61-protection-mark-lives-only-on-the-cluster"
	w.release("r", w.caseRender(name, "render1.yaml"), nil)
	w.succeeds("r")
	w.kubectl("", "annotate", "configmap", "hand", "-n", w.ns, "convoy.dev/prune=disabled")
	keep, hand := w.must("v1", "ConfigMap", w.ns, "pv-keep"), w.must("v1", "ConfigMap", w.ns, "hand")

	w.render("r", w.caseRender(name, "render2.yaml"))
	for range 2 {
		w.succeeds("r")
		require.Equal(t, version(keep), version(w.must("v1", "ConfigMap", w.ns, "pv-keep")))
		require.Equal(t, version(hand), version(w.must("v1", "ConfigMap", w.ns, "hand")))
		require.Nil(t, w.configMap("free"))
		require.Equal(t, []string{w.cm("base")}, w.inventory("r"))
	}

	w.render("r", w.caseRender(name, "render3.yaml"))
	w.succeeds("r")
	require.Equal(t, []string{w.cm("base"), w.cm("pv-keep")}, w.inventory("r"))
	require.Equal(t, keep.GetUID(), w.configMap("pv-keep").UID)
	require.NotContains(t, w.configMap("pv-keep").Annotations, "convoy.dev/prune")
	w.render("r", w.caseRender(name, "render2.yaml"))
	require.Equal(t, 1, w.succeeds("r").Pruned)
	require.Nil(t, w.configMap("pv-keep"))
	require.Equal(t, version(hand), version(w.must("v1", "ConfigMap", w.ns, "hand")))
	require.Equal(t, []string{w.cm("base")}, w.inventory("r"))
}

// S18 S20 S23 S30 D13 D22
func TestCase_63_quota_stops_the_apply_halfway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "63-quota-stops-the-apply-halfway"
	tight := "tight-" + w.ns
	// Each namespace has kube-root-ca.crt, which counts: the quota is one more than in the case.
	own := []string{"name: tight", "name: " + tight, "namespace: tight", "namespace: " + tight, `count/configmaps: "2"`, `count/configmaps: "3"`}
	w.settledNamespace(tight)
	w.byHand(w.caseRender(name, "before.yaml", own...))
	w.awaitQuota(tight, "3", "1")
	record := func(object string) string { return "/ConfigMap/" + tight + "/" + object }
	w.release("r", w.caseRender(name, "render1.yaml", own...), nil)
	first := w.succeeds("r")

	w.render("r", w.caseRender(name, "render2.yaml", own...))
	since := w.mark()
	message := w.fails("r", "DeployFailed")
	w.willRetry("r", "DeployFailed")
	require.Contains(t, message, "ConfigMap "+tight+"/n2")
	require.Contains(t, message, "exceeded quota")
	requests := w.requests(since, within(tight))
	require.ElementsMatch(t, []string{"patch configmaps/n1 dry run 201", "patch configmaps/n2 dry run 201"}, said(dryRuns(requests)))
	require.Equal(t, []string{"patch configmaps/n1 201", "patch configmaps/n2 403"}, said(changes(requests)))
	require.NotNil(t, w.object("v1", "ConfigMap", tight, "old"))
	require.Equal(t, []string{record("n1"), record("old")}, w.inventory("r"))
	status := w.get("r").Status
	require.Equal(t, first.Digest, status.LastSuccessful.Digest)
	require.NotEqual(t, first.Digest, status.LastAttempted.Digest)
	require.Equal(t, "DeployFailed", status.LastAttempted.Reason)
	second := status.LastAttempted.Digest

	w.kubectl("", "patch", "resourcequota", "q", "-n", tight, "--type=merge", "-p", `{"spec":{"hard":{"count/configmaps":"6"}}}`)
	w.awaitQuota(tight, "6", "3")
	require.Equal(t, 1, w.succeeds("r").Pruned)
	require.Nil(t, w.object("v1", "ConfigMap", tight, "old"))
	require.Equal(t, []string{record("n1"), record("n2")}, w.inventory("r"))
	require.Equal(t, second, w.get("r").Status.LastSuccessful.Digest)
}

// settledNamespace makes a namespace and waits for the ConfigMap that every namespace gets: a quota that is made before
// it, or at the same moment, may never count it.
func (w *world) settledNamespace(name string) {
	w.Helper()
	w.byHand("{apiVersion: v1, kind: Namespace, metadata: {name: " + name + "}}")
	w.eventually("the namespace is settled", func() error {
		if w.object("v1", "ConfigMap", name, "kube-root-ca.crt") == nil {
			return errors.New("kube-root-ca.crt is not there")
		}
		return nil
	})
}

// awaitQuota waits until the controller has counted the ConfigMaps of a namespace.
func (w *world) awaitQuota(namespace, hard, used string) {
	w.Helper()
	w.eventually("the quota is counted", func() error {
		quota := &corev1.ResourceQuota{}
		if err := w.kube.Get(w.Context(), types.NamespacedName{Namespace: namespace, Name: "q"}, quota); err != nil {
			return err
		}
		limit, count := quota.Status.Hard["count/configmaps"], quota.Status.Used["count/configmaps"]
		if limit.String() != hard || count.String() != used {
			return fmt.Errorf("used %s of %s", &count, &limit)
		}
		return nil
	})
}
