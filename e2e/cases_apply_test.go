package e2e

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// S5 S6 S7 S29 S30 D7 D9
func TestCase_01_dup_env_is_a_500(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("r", w.caseRender("01-dup-env-is-a-500", "render1.yaml"), nil)

	for range 2 { // at once, and by the next periodic reconcile
		since := w.mark()
		message := w.isRejected("r")
		require.Contains(t, message, "Deployment "+w.ns+"/dup-env")
		require.Contains(t, message, `.spec.template.spec.containers[name="c"].env: duplicate entries for key [name="MODE"]`)
		require.Nil(t, w.configMap("beside"))
		require.Empty(t, w.inventory("r"))
		require.Nil(t, w.get("r").Status.LastSuccessful)
		require.ElementsMatch(t, []string{
			"patch configmaps/beside dry run 201", "patch deployments/dup-env dry run 500",
		}, said(writes(w.requests(since))))
	}
}

// S6 D7 D9
func TestCase_03_unquoted_bool_annotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.release("r", w.caseRender("03-unquoted-bool-annotation", "render1.yaml"), nil)

	message := w.isRejected("r")
	require.Contains(t, message, "ConfigMap "+w.ns+"/ann")
	require.Contains(t, message, ".metadata.annotations.feature: expected string")
	require.Nil(t, w.configMap("ann"))
	require.Empty(t, w.inventory("r"))
}

// S6 S7 S9 S18 S23 S30 D9
func TestCase_04_immutable_job_next_to_good_change(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "04-immutable-job-next-to-good-change"
	w.release("r", w.caseRender(name, "render1.yaml"), nil)
	first := w.succeeds("r").Digest
	records := []string{w.cm("knob"), w.cm("old"), "batch/Job/" + w.ns + "/migrate"}
	require.Equal(t, records, w.inventory("r"))
	job := w.object("batch/v1", "Job", w.ns, "migrate")

	w.render("r", w.caseRender(name, "render2.yaml"))
	message := w.isRejected("r")
	require.Contains(t, message, "Job "+w.ns+"/migrate")
	require.Contains(t, message, "field is immutable")
	require.Contains(t, message, "spec.template")
	require.Equal(t, "1", w.configMap("knob").Data["v"])
	require.NotNil(t, w.configMap("old"))
	require.Equal(t, records, w.inventory("r"))
	require.Equal(t, first, w.get("r").Status.LastSuccessful.Digest)

	since := w.mark()
	message = w.fails("r", "DeployFailed", force)
	require.Contains(t, message, "Job "+w.ns+"/migrate")
	require.Contains(t, message, "field is immutable")
	w.willRetry("r", "DeployFailed")
	require.Equal(t, []string{"patch configmaps/knob 200", "patch jobs/migrate 422"}, said(writes(w.requests(since))))
	require.Equal(t, "2", w.configMap("knob").Data["v"])
	require.NotNil(t, w.configMap("old"))
	require.Equal(t, records, w.inventory("r"))
	require.Equal(t, first, w.get("r").Status.LastSuccessful.Digest)
	require.Equal(t, job.GetUID(), w.object("batch/v1", "Job", w.ns, "migrate").GetUID())
}

// S5 S6 D7 D9
func TestCase_06_admission_policy_says_no(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "06-admission-policy-says-no"
	w.byHand(w.caseRender(name, "before.yaml", "lab-size", w.ns, // and no other test's ConfigMaps
		"'size' in object.data", fmt.Sprintf("'size' in object.data && object.metadata.namespace == '%s'", w.ns)))
	w.eventually("the policy is active", func() error {
		probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "probe"}, Data: map[string]string{"size": "9"}}
		err := w.kube.Create(w.Context(), probe, kube.DryRunAll)
		if err != nil && strings.Contains(err.Error(), "size must stay below 3") {
			return nil
		}
		return fmt.Errorf("the policy does not deny: %w", err)
	})

	w.release("r", w.caseRender(name, "render1.yaml"), nil)
	since := w.mark()
	message := w.isRejected("r")
	require.Contains(t, message, "ConfigMap "+w.ns+"/toobig")
	require.Contains(t, message, "size must stay below 3")
	require.ElementsMatch(t, []string{
		"patch configmaps/fine dry run 201", "patch configmaps/toobig dry run 422",
	}, said(writes(w.requests(since))))
	require.Nil(t, w.configMap("fine"))
	require.Nil(t, w.configMap("toobig"))

	w.render("r", w.caseRender(name, "render2.yaml"))
	w.succeeds("r")
	require.NotNil(t, w.configMap("fine"))
	require.NotNil(t, w.configMap("toobig"))
}

// S6 S10 S20 D7 D9
func TestCase_07_identity_may_not_patch_one_kind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "07-identity-may-not-patch-one-kind"
	user := "limited-" + w.ns
	own := []string{"name: lab-limited", "name: lab-" + w.ns, "name: limited", "name: " + user}
	before := w.caseRender(name, "before.yaml", own...)
	w.byHand(before)
	w.awaitRight(user, "patch", "", "configmaps")
	w.cluster("limited", user)
	w.release("r", w.caseRender(name, "render1.yaml"), onCluster("limited"))

	since := w.mark()
	message := w.isRejected("r")
	require.Contains(t, message, "Deployment "+w.ns+"/second")
	require.Contains(t, message, `cannot patch resource "deployments"`)
	require.Nil(t, w.configMap("first"))
	require.Empty(t, w.inventory("r"))
	tried := writes(w.requests(since))
	require.ElementsMatch(t, []string{
		"patch configmaps/first dry run 201", "patch deployments/second dry run 403",
	}, said(tried))
	for _, r := range tried {
		require.Equal(t, user, r.User)
	}

	w.byHand(strings.Replace(before, "rules:\n", `rules:
- {apiGroups: [apps], resources: [deployments], verbs: [get, list, watch, create, patch, update, delete]}
`, 1))
	w.awaitRight(user, "patch", "apps", "deployments")
	w.succeeds("r")
	require.Equal(t, []string{w.cm("first"), "apps/Deployment/" + w.ns + "/second"}, w.inventory("r"))
}

// S6 S7 S19 D7 D8
func TestCase_08_new_api_version_has_a_defaulted_field(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "08-new-api-version-has-a-defaulted-field"
	group, own := w.ownGroup("lab.example.test")
	door := func() *unstructured.Unstructured { return w.object(group+"/v1beta1", "Door", w.ns, "d") }
	w.byHand(w.caseRender(name, "before.yaml", own...))
	w.awaitEstablished("doors." + group)
	w.release("r", w.caseRender(name, "render1.yaml", own...), nil)
	w.succeeds("r")
	live := version(door())
	records := []string{group + "/Door/" + w.ns + "/d"}
	require.Equal(t, records, w.inventory("r"))

	w.render("r", w.caseRender(name, "render2.yaml", own...))
	since := w.mark()
	message := w.isRejected("r")
	require.Contains(t, message, "Door "+w.ns+"/d")
	require.Contains(t, message, ".spec.access: field not declared in schema")
	require.Contains(t, message, "this is not about a field that the render sets")
	require.Equal(t, []string{"patch doors/d dry run 500"}, said(writes(w.requests(since))))
	require.Equal(t, live, version(door()))
	require.Equal(t, records, w.inventory("r"))

	w.render("r", w.caseRender(name, "render1.yaml", own...))
	w.succeeds("r")
	require.Equal(t, live, version(door()))
	require.Equal(t, records, w.inventory("r"))
}

// S18 S20 D7 D8 D11: the variant of case 08, where the render brings the new version itself.
func TestCase_08_new_api_version_comes_in_the_render(t *testing.T) {
	t.Parallel()
	const name = "08-new-api-version-has-a-defaulted-field"

	// The Door is stored in v1 with its default, as a CustomResourceDefinition does it that does not serve v1 yet.
	t.Run("the cluster stores it already", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		group, own := w.ownGroup("lab.example.test")
		upgraded := w.caseRender(name, "before.yaml", own...)
		door := func() *unstructured.Unstructured { return w.object(group+"/v1beta1", "Door", w.ns, "d") }
		w.byHand(strings.Replace(upgraded, "- name: v1\n    served: true", "- name: v1\n    served: false", 1))
		w.awaitEstablished("doors." + group)
		w.release("r", w.caseRender(name, "render1.yaml", own...), nil)
		w.succeeds("r")
		live := version(door())

		w.render("r", upgraded+"\n---\n"+w.caseRender(name, "render2.yaml", own...))
		message := w.fails("r", "DeployFailed")
		w.willRetry("r", "DeployFailed")
		require.Contains(t, message, "Door "+w.ns+"/d")
		require.Contains(t, message, ".spec.access: field not declared in schema")
		require.Equal(t, live, version(door()))
		require.True(t, w.serves(group, "v1", "Door"))
		require.Equal(t, []string{
			"apiextensions.k8s.io/CustomResourceDefinition//doors." + group, group + "/Door/" + w.ns + "/d",
		}, w.inventory("r"))
	})

	// As the case is written. The API server gives its 500 only once the Door was written with v1's default, so this
	// apply succeeds: measured with kubectl as well.
	t.Run("the cluster has the old one alone", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		group, own := w.ownGroup("lab.example.test")
		upgraded := w.caseRender(name, "before.yaml", own...)
		w.byHand(w.onlyVersion(upgraded, "v1beta1"))
		w.awaitEstablished("doors." + group)
		w.release("r", w.caseRender(name, "render1.yaml", own...), nil)
		w.succeeds("r")

		w.render("r", upgraded+"\n---\n"+w.caseRender(name, "render2.yaml", own...))
		w.succeeds("r")
		require.Equal(t, []string{
			fmt.Sprintf("Door %s/d: the cluster does not know the kind Door.%s yet", w.ns, group),
		}, w.get("r").Status.Unverified)
		require.Equal(t, "deny", w.text(w.object(group+"/v1", "Door", w.ns, "d"), "spec", "access"))
		require.Equal(t, []string{
			"apiextensions.k8s.io/CustomResourceDefinition//doors." + group, group + "/Door/" + w.ns + "/d",
		}, w.inventory("r"))
	})
}

// S5 S6 S8 S16 D8 D11
func TestCase_10_namespace_in_the_same_render(t *testing.T) {
	t.Parallel()
	const name = "10-namespace-in-the-same-render"

	t.Run("an earlier wave brings it", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		ns := w.ns + "-team-a"
		w.removeAtEnd("v1", "Namespace", "", ns)
		w.release("r", w.caseRender(name, "render1.yaml", "team-a", ns), nil)

		since := w.mark()
		w.succeeds("r")
		require.ElementsMatch(t, []string{"patch namespaces/" + ns + " dry run 201", "patch configmaps/settings dry run 404"},
			said(dryRuns(w.requests(since, within(ns)))))
		require.Equal(t, []string{
			fmt.Sprintf("ConfigMap %s/settings: it needs Namespace %s, which this render brings first", ns, ns),
		}, w.get("r").Status.Unverified)
		require.Equal(t, []string{"/ConfigMap/" + ns + "/settings", "/Namespace//" + ns}, w.inventory("r"))
	})

	// D8 wins over the expectation of the case: what comes too late is refused before anything is applied.
	t.Run("it comes later in the order", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		ns := w.ns + "-team-b"
		w.removeAtEnd("v1", "Namespace", "", ns)
		w.release("r", w.caseRender(name, "render2.yaml", "team-b", ns), nil)

		message := w.isRejected("r", within(ns))
		require.Contains(t, message, fmt.Sprintf("ConfigMap %s/settings at position 1", ns))
		require.Contains(t, message, fmt.Sprintf("Namespace %s at position 2", ns))
		require.Contains(t, message, fmt.Sprintf("give Namespace %s an earlier wave (convoy.dev/sync-wave)", ns))
		require.Nil(t, w.object("v1", "Namespace", "", ns))
		require.Empty(t, w.inventory("r"))
	})

	t.Run("nobody brings it", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		ns := w.ns + "-nowhere"
		w.release("r", w.caseRender(name, "render3.yaml", "nowhere", ns), nil)

		message := w.isRejected("r", within(ns))
		require.Contains(t, message, fmt.Sprintf("ConfigMap %s/settings", ns))
		require.Contains(t, message, fmt.Sprintf("namespaces %q not found", ns))
		require.Empty(t, w.inventory("r"))
	})
}

// S5 S6 S8 D8 D11
func TestCase_12_crd_gains_a_field_and_cr_uses_it(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "12-crd-gains-a-field-and-cr-uses-it"
	group, own := w.ownGroup("lab.example.test")
	w.removeAtEnd("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "lamps."+group)
	definition := func() *unstructured.Unstructured {
		return w.object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "lamps."+group)
	}
	lamp := func() *unstructured.Unstructured { return w.object(group+"/v1", "Lamp", w.ns, "l") }
	ofDefinition := about("customresourcedefinitions", "", "lamps."+group)
	w.release("r", w.caseRender(name, "render1.yaml", own...), nil)
	w.succeeds("r")
	require.EqualValues(t, 1, definition().GetGeneration())

	w.render("r", w.caseRender(name, "render2.yaml", own...))
	since := w.mark()
	w.succeeds("r")
	require.ElementsMatch(t, []string{"patch customresourcedefinitions/lamps." + group + " dry run 200", "patch lamps/l dry run 500"},
		said(dryRuns(w.requests(since, ofDefinition))))
	require.Equal(t, []string{
		fmt.Sprintf("Lamp %s/l: this render changes CustomResourceDefinition lamps.%s first", w.ns, group),
	}, w.get("r").Status.Unverified)
	require.EqualValues(t, 2, definition().GetGeneration())
	require.Equal(t, "red", w.text(lamp(), "spec", "color"))
	before := []string{version(definition()), version(lamp())}

	w.succeeds("r")
	require.Empty(t, w.get("r").Status.Unverified)
	require.Equal(t, []string{version(definition()), version(lamp())}, before)

	w.render("r", w.caseRender(name, "render3.yaml", own...))
	message := w.isRejected("r", ofDefinition)
	require.Contains(t, message, "Lamp "+w.ns+"/l")
	require.Contains(t, message, ".spec.colour: field not declared in schema")
	require.Equal(t, "red", w.text(lamp(), "spec", "color"))
	require.Equal(t, []string{version(definition()), version(lamp())}, before)
}

// S8 S15 S19 D4 D8 D11
func TestCase_14_crd_and_its_resource_on_first_install(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	group, own := w.ownGroup("lab.example.test")
	definition := about("customresourcedefinitions", "", "pumps."+group)
	pump := about("pumps", "default", "p")
	w.removeAtEnd("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "pumps."+group)
	w.release("warm", manifest(w.ns, "warm", 0, "1"), nil)
	w.succeeds("warm") // the worker's discovery cache is filled now

	w.release("r", w.caseRender("14-crd-and-its-resource-on-first-install", "render1.yaml", own...), nil)
	since := w.mark()
	w.succeeds("r")
	require.Equal(t, []string{
		"patch customresourcedefinitions/pumps." + group + " dry run 201",
		"patch customresourcedefinitions/pumps." + group + " 201",
		"patch pumps/p 201",
	}, said(writes(w.requests(since, definition, pump))))
	require.Equal(t, []string{
		fmt.Sprintf("Pump default/p: the cluster does not know the kind Pump.%s yet", group),
	}, w.get("r").Status.Unverified)
	require.NotNil(t, w.object(group+"/v1", "Pump", "default", "p"))
	require.Equal(t, []string{
		"apiextensions.k8s.io/CustomResourceDefinition//pumps." + group, group + "/Pump/default/p",
	}, w.inventory("r"))
}

// S8 S26 D7 D17
func TestCase_16_dead_aggregated_api(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "16-dead-aggregated-api"
	group, own := w.ownGroup("down.example.test")
	w.byHand(w.caseRender(name, "before.yaml", own...))
	w.eventually("the group is registered", func() error {
		api := w.object("apiregistration.k8s.io/v1", "APIService", "", "v1."+group)
		if _, found, _ := unstructured.NestedSlice(api.Object, "status", "conditions"); !found {
			return errors.New("no condition yet")
		}
		return nil
	})

	w.release("r", w.caseRender(name, "render1.yaml"), nil)
	w.succeeds("r")
	w.render("r", w.caseRender(name, "render2.yaml"))
	require.Equal(t, 1, w.succeeds("r").Pruned)
	require.Nil(t, w.configMap("b"))
	require.Equal(t, []string{w.cm("a")}, w.inventory("r"))

	thing := fmt.Sprintf("---\napiVersion: %s/v1\nkind: Thing\nmetadata: {name: t, namespace: %s}\n", group, w.ns)
	w.render("r", thing+manifest(w.ns, "a", 0, "2"))
	since := w.mark()
	message := w.fails("r", "DeployFailed")
	w.willRetry("r", "DeployFailed")
	require.Contains(t, message, "the cluster cannot tell now whether it knows the kind Thing."+group)
	require.Contains(t, message, "(tried for ") // inside the step first
	require.Empty(t, said(changes(w.requests(since))))
	require.Equal(t, "1", w.configMap("a").Data["v"])
	require.Equal(t, []string{w.cm("a")}, w.inventory("r"))
}

// S8 S18 S20 S23 S30 D8 D13 D22
func TestCase_18_kind_that_never_comes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "18-kind-that-never-comes"
	group, own := w.ownGroup("nowhere.example.test")
	w.release("r", w.caseRender(name, "render1.yaml"), nil)
	first := w.succeeds("r").Digest

	w.render("r", w.caseRender(name, "render2.yaml", own...))
	since := w.mark()
	message := w.fails("r", "DeployFailed")
	w.willRetry("r", "DeployFailed")
	require.Contains(t, message, "Ghost "+w.ns+"/g")
	require.Contains(t, message, fmt.Sprintf("the cluster does not know the kind Ghost.%s in version v1", group))
	list := writes(w.requests(since))
	require.ElementsMatch(t, []string{"patch configmaps/keep dry run 200", "patch configmaps/new dry run 201"}, said(dryRuns(list)))
	require.Equal(t, []string{"patch configmaps/keep 200", "patch configmaps/new 201"}, said(changes(list)))
	require.NotNil(t, w.configMap("new"))
	require.NotNil(t, w.configMap("old"))
	require.Equal(t, []string{w.cm("keep"), w.cm("new"), w.cm("old")}, w.inventory("r"))
	require.Equal(t, first, w.get("r").Status.LastSuccessful.Digest)

	w.byHand(openDefinition(group, "ghosts", "Ghost"))
	w.awaitEstablished("ghosts." + group)
	require.Equal(t, 1, w.succeeds("r").Pruned)
	require.Nil(t, w.configMap("old"))
	require.Equal(t, []string{w.cm("keep"), w.cm("new"), group + "/Ghost/" + w.ns + "/g"}, w.inventory("r"))
}

// S13
func TestCase_19_same_port_tcp_and_udp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "19-same-port-tcp-and-udp"
	w.release("r", w.caseRender(name, "render1.yaml"), nil)
	w.succeeds("r")
	require.Equal(t, []string{"dns-tcp 53/TCP", "dns-udp 53/UDP"}, w.ports("dns"))
	live := version(w.object("v1", "Service", w.ns, "dns"))
	w.succeeds("r")
	require.Equal(t, live, version(w.object("v1", "Service", w.ns, "dns")))

	w.render("r", w.caseRender(name, "render2.yaml"))
	w.succeeds("r")
	require.Equal(t, []string{"dns-udp 53/UDP"}, w.ports("dns"))
}

// S6 S13 D9 D15
func TestCase_21_port_number_changes_name_stays(t *testing.T) {
	t.Parallel()
	const name = "21-port-number-changes-name-stays"

	t.Run("convoy made it", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.release("r", w.caseRender(name, "render1.yaml"), nil)
		w.succeeds("r")
		require.Equal(t, []string{"http 80/TCP"}, w.ports("web"))
		w.render("r", w.caseRender(name, "render2.yaml"))
		w.succeeds("r")
		require.Equal(t, []string{"http 8080/TCP"}, w.ports("web"))
	})

	t.Run("kubectl create made it", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.kubectl(w.caseRender(name, "render1.yaml"), "create", "-f", "-")
		w.release("r", w.caseRender(name, "render1.yaml"), nil)
		first := w.succeeds("r").Digest
		w.render("r", w.caseRender(name, "render2.yaml"))

		message := w.isRejected("r")
		require.Contains(t, message, "Service "+w.ns+"/web")
		require.Contains(t, message, "spec.ports[1].name: Duplicate value")
		require.Equal(t, []string{"http 80/TCP"}, w.ports("web"))
		require.Equal(t, first, w.get("r").Status.LastSuccessful.Digest)
	})
}

// S13
func TestCase_23_init_container_put_in_front(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "23-init-container-put-in-front"
	w.release("r", w.caseRender(name, "render1.yaml"), nil)
	w.succeeds("r")
	w.render("r", w.caseRender(name, "render2.yaml"))
	w.succeeds("r")
	containers := w.list(w.deployment("ordered"), "spec", "template", "spec", "initContainers")
	require.Len(t, containers, 2)
	require.Equal(t, "first", containers[0]["name"])
	require.Equal(t, "second", containers[1]["name"])
}

// S13
func TestCase_25_live_duplicates_are_healed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "25-live-duplicates-are-healed"
	w.kubectl(w.caseRender(name, "before.yaml"), "create", "-f", "-")
	env := func() []map[string]any {
		containers := w.list(w.deployment("healed"), "spec", "template", "spec", "containers")
		return w.list(&unstructured.Unstructured{Object: containers[0]}, "env")
	}
	require.Len(t, env(), 2)
	w.release("r", w.caseRender(name, "render1.yaml"), nil)
	w.succeeds("r")
	require.Equal(t, []map[string]any{{"name": "LEVEL", "value": "warn"}}, env())
}

// S13 D15
func TestCase_26_field_left_over_from_client_side_apply(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "26-field-left-over-from-client-side-apply"
	w.kubectl(w.caseRender(name, "render1.yaml"), "apply", "-f", "-")
	w.kubectl("", "label", "-n", w.ns, "cm", "adopted", "keep=me", "--field-manager=somebody")
	somebody := entries(w.configMap("adopted"), "somebody")
	require.Len(t, somebody, 1)

	w.release("r", w.caseRender(name, "render1.yaml"), nil)
	w.succeeds("r")
	live := w.configMap("adopted")
	own := entries(live, "convoy")
	require.Len(t, own, 1)
	require.Equal(t, metav1.ManagedFieldsOperationApply, own[0].Operation)
	require.Contains(t, string(own[0].FieldsV1.GetRawBytes()), `"f:key"`)
	require.Contains(t, string(own[0].FieldsV1.GetRawBytes()), `"f:legacy"`)
	require.Empty(t, entries(live, "kubectl-client-side-apply"))
	require.Equal(t, somebody, entries(live, "somebody"))
	require.Contains(t, w.events("r"),
		fmt.Sprintf("TookOver: took over fields of an earlier client-side apply: ConfigMap %s/adopted from kubectl-client-side-apply", w.ns))

	since := w.mark()
	w.succeeds("r") // taking over happens once
	require.Equal(t, []string{"patch configmaps/adopted dry run 200", "patch configmaps/adopted 200"}, said(writes(w.requests(since))))
	require.Equal(t, live.ResourceVersion, w.configMap("adopted").ResourceVersion)

	w.render("r", w.caseRender(name, "render2.yaml"))
	w.succeeds("r")
	live = w.configMap("adopted")
	require.Equal(t, map[string]string{"key": "1"}, live.Data)
	require.Equal(t, "me", live.Labels["keep"])
	require.Equal(t, somebody, entries(live, "somebody"))
	require.Len(t, entries(live, "convoy"), 1)
}

// S13
func TestCase_28_volume_changes_its_type(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "28-volume-changes-its-type"
	w.release("r", w.caseRender(name, "render1.yaml"), nil)
	w.succeeds("r")
	uid := w.deployment("vol").GetUID()

	w.render("r", w.caseRender(name, "render2.yaml"))
	since := w.mark()
	w.succeeds("r")
	require.Equal(t, []string{"patch deployments/vol dry run 200", "patch deployments/vol 200"}, said(writes(w.requests(since))))
	live := w.deployment("vol")
	require.Equal(t, uid, live.GetUID())
	volumes := w.list(live, "spec", "template", "spec", "volumes")
	require.Len(t, volumes, 1)
	require.Equal(t, "data", volumes[0]["name"])
	require.ElementsMatch(t, []string{"name", "configMap"}, slices.Collect(maps.Keys(volumes[0])))
}

// S6 S7
func TestCase_30_rollingupdate_default_blocks_recreate(t *testing.T) {
	t.Parallel()
	const name = "30-rollingupdate-default-blocks-recreate"

	t.Run("the server's default", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.release("r", w.caseRender(name, "render1.yaml"), nil)
		w.succeeds("r")
		uid := w.deployment("strat").GetUID()
		for _, file := range []string{"render2.yaml", "render3.yaml"} {
			w.render("r", w.caseRender(name, file))
			message := w.isRejected("r")
			require.Contains(t, message, "Deployment "+w.ns+"/strat")
			require.Contains(t, message, "spec.strategy.rollingUpdate: Forbidden")
			require.Contains(t, message, "HTTP 422")
			live := w.deployment("strat")
			require.Equal(t, "RollingUpdate", w.text(live, "spec", "strategy", "type"))
			require.EqualValues(t, 1, live.GetGeneration())
			require.Equal(t, uid, live.GetUID())
		}
	})

	t.Run("convoy's own field", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.release("r", w.caseRender(name, "render4.yaml"), nil)
		w.succeeds("r")
		w.render("r", w.caseRender(name, "render2.yaml"))
		w.succeeds("r")
		require.Equal(t, "Recreate", w.text(w.deployment("strat"), "spec", "strategy", "type"))
	})
}

// S13
func TestCase_31_autoscaled_deployment_without_replicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	worker := w.worker()
	w.release("r", w.caseRender("31-autoscaled-deployment-without-replicas", "render1.yaml"), nil)
	w.succeeds("r")
	w.kubectl("", "scale", "-n", w.ns, "deploy/auto", "--replicas=5")
	generation := w.deployment("auto").GetGeneration()

	untouched := func() {
		t.Helper()
		live := w.deployment("auto")
		require.EqualValues(t, 5, w.number(live, "spec", "replicas"))
		require.Equal(t, generation, live.GetGeneration())
		for _, entry := range entries(live, "convoy") {
			require.NotContains(t, string(entry.FieldsV1.GetRawBytes()), `"f:replicas"`)
		}
	}
	w.succeeds("r")
	untouched()
	worker.stop()
	w.worker()
	w.succeeds("r")
	untouched()
	w.succeeds("r")
	untouched()
	w.succeeds("r", force)
	untouched()
}

// S13
func TestCase_32_replicas_dropped_without_another_owner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "32-replicas-dropped-without-another-owner"
	replicas := func() int64 { return w.number(w.deployment("rep"), "spec", "replicas") }
	scale := func() { w.kubectl("", "scale", "-n", w.ns, "deploy/rep", "--replicas=5") }

	w.release("r", w.caseRender(name, "render1.yaml"), nil)
	w.succeeds("r")
	require.EqualValues(t, 3, replicas())
	w.render("r", w.caseRender(name, "render2.yaml"))
	w.succeeds("r")
	require.EqualValues(t, 1, replicas()) // the server's default: convoy does not protect the 3

	w.render("r", w.caseRender(name, "render1.yaml"))
	w.succeeds("r")
	scale()
	w.succeeds("r")
	require.EqualValues(t, 3, replicas()) // force
	scale()
	w.render("r", w.caseRender(name, "render2.yaml"))
	w.succeeds("r")
	require.EqualValues(t, 5, replicas()) // another manager took the field
}

// awaitEstablished waits until a CustomResourceDefinition that was applied by hand is served.
func (w *world) awaitEstablished(name string) {
	w.Helper()
	w.kubectl("", "wait", "--for=condition=Established", "--timeout=60s", "crd/"+name)
	plural, group, _ := strings.Cut(name, ".")
	client, err := discovery.NewDiscoveryClientForConfig(w.cfg)
	require.NoError(w, err)
	w.eventually("discovery knows "+name, func() error { // the API server says Established a moment before
		_, lists, err := client.ServerGroupsAndResources() // an error is about other groups, and the lists are there
		for _, list := range lists {
			for _, resource := range list.APIResources {
				if strings.HasPrefix(list.GroupVersion, group+"/") && resource.Name == plural {
					return nil
				}
			}
		}
		return errors.Join(errors.New("not yet"), err)
	})
}

// serves reports whether a version of a CustomResourceDefinition is to be served.
func (w *world) serves(group, version, kind string) bool {
	w.Helper()
	live := w.object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", strings.ToLower(kind)+"s."+group)
	for _, v := range w.list(live, "spec", "versions") {
		if v["name"] == version {
			return v["served"] == true
		}
	}
	return false
}

// openDefinition is a CustomResourceDefinition whose resources may have any fields.
func openDefinition(group, plural, kind string) string {
	return fmt.Sprintf(`---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s.%s}
spec:
  group: %s
  scope: Namespaced
  names: {plural: %s, singular: %s, kind: %s}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, plural, group, group, plural, strings.ToLower(kind), kind)
}

// onlyVersion is a CustomResourceDefinition with one of its versions left.
func (w *world) onlyVersion(manifest, version string) string {
	w.Helper()
	crd := &unstructured.Unstructured{}
	require.NoError(w, yaml.Unmarshal([]byte(manifest), &crd.Object))
	var kept []any
	for _, served := range w.list(crd, "spec", "versions") {
		if served["name"] == version {
			served["storage"] = true
			kept = append(kept, served)
		}
	}
	require.NoError(w, unstructured.SetNestedSlice(crd.Object, kept, "spec", "versions"))
	out, err := yaml.Marshal(crd.Object)
	require.NoError(w, err)
	return string(out)
}

func (w *world) deployment(name string) *unstructured.Unstructured {
	w.Helper()
	live := w.object("apps/v1", "Deployment", w.ns, name)
	require.NotNil(w, live)
	return live
}

// ports of a Service, as "name port/protocol".
func (w *world) ports(name string) []string {
	w.Helper()
	service := &corev1.Service{}
	require.NoError(w, w.kube.Get(w.Context(), kube.ObjectKey{Namespace: w.ns, Name: name}, service))
	var list []string
	for _, port := range service.Spec.Ports {
		list = append(list, fmt.Sprintf("%s %d/%s", port.Name, port.Port, port.Protocol))
	}
	return list
}
