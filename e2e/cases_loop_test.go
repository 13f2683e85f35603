package e2e

import (
	"errors"
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The halves of the cases that speak of a cadence or of convoy's own retry: through the loop of a worker that watches.

// soon is an interval that never comes in a test, and a retry that comes soon.
func soon(rel *v1alpha1.Release) {
	every(10 * time.Minute)(rel)
	rel.Spec.SyncPolicy.Retry.InitialInterval = &metav1.Duration{Duration: time.Second}
	rel.Spec.SyncPolicy.Retry.MaxInterval = &metav1.Duration{Duration: 3 * time.Second}
}

// retried waits for a sync that failed with the reason and is another one than before.
func (w *world) retried(name, reason string) {
	w.Helper()
	before := ""
	if last := w.get(name).Status.LastAttempted; last != nil {
		before = last.RunID
	}
	w.eventually("another sync fails with "+reason, func() error {
		last := w.get(name).Status.LastAttempted
		if last == nil || last.RunID == before || last.Reason != reason {
			return errors.New("the last sync is the same")
		}
		return nil
	})
}

// Case 18, S18 D22: a kind that never comes is retried by itself, and once its definition is there the retry prunes.
func TestCase_18_through_the_loop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watcher()
	const name = "18-kind-that-never-comes"
	group, own := w.ownGroup("nowhere.example.test")
	w.release("r", w.caseRender(name, "render1.yaml"), soon)
	w.becomes("r", "True/Succeeded")
	w.render("r", w.caseRender(name, "render2.yaml", own...))
	w.becomes("r", "False/DeployFailed")
	w.retried("r", "DeployFailed")
	require.NotNil(t, w.configMap("old"))
	w.byHand(openDefinition(group, "ghosts", "Ghost"))
	w.becomes("r", "True/Succeeded")
	require.Nil(t, w.configMap("old"))
	require.Equal(t, []string{w.cm("keep"), w.cm("new"), group + "/Ghost/" + w.ns + "/g"}, w.inventory("r"))
}

// Case 51, S27 D22: a prune that is denied is retried by itself, and ends once the policy is gone.
func TestCase_51_through_the_loop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watcher()
	const name = "51-delete-denied-by-admission"
	w.byHand(w.caseRender(name, "before.yaml", "lab-hold", "lab-hold-"+w.ns,
		"validationActions:", "matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: "+w.ns+"}}}, validationActions:"))
	w.awaitDenial("hold")
	w.release("r", w.caseRender(name, "render1.yaml"), soon)
	w.becomes("r", "True/Succeeded")
	first := w.get("r").Status.LastSuccessful.Digest
	w.render("r", w.caseRender(name, "render2.yaml"))
	w.becomes("r", "False/PruneFailed")
	w.retried("r", "PruneFailed")
	require.Equal(t, []string{w.cm("gone1"), w.cm("gone2"), w.cm("kept")}, w.inventory("r"))
	require.Equal(t, first, w.get("r").Status.LastSuccessful.Digest)
	w.kubectl("", "delete", "validatingadmissionpolicybinding/lab-hold-"+w.ns, "validatingadmissionpolicy/lab-hold-"+w.ns)
	w.becomes("r", "True/Succeeded")
	require.Nil(t, w.configMap("gone1"))
	require.Equal(t, []string{w.cm("kept")}, w.inventory("r"))
}

// Case 63, S18 D22: a quota that stops the apply halfway is retried by itself.
func TestCase_63_through_the_loop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watcher()
	const name = "63-quota-stops-the-apply-halfway"
	tight := "tight-" + w.ns
	own := []string{"name: tight", "name: " + tight, "namespace: tight", "namespace: " + tight, `count/configmaps: "2"`, `count/configmaps: "3"`}
	w.settledNamespace(tight)
	w.byHand(w.caseRender(name, "before.yaml", own...))
	w.awaitQuota(tight, "3", "1")
	w.release("r", w.caseRender(name, "render1.yaml", own...), soon)
	w.becomes("r", "True/Succeeded")
	w.render("r", w.caseRender(name, "render2.yaml", own...))
	w.becomes("r", "False/DeployFailed")
	w.retried("r", "DeployFailed")
	require.NotNil(t, w.object("v1", "ConfigMap", tight, "old"))
	w.kubectl("", "patch", "resourcequota", "q", "-n", tight, "--type=merge", "-p", `{"spec":{"hard":{"count/configmaps":"6"}}}`)
	w.becomes("r", "True/Succeeded")
	require.Nil(t, w.object("v1", "ConfigMap", tight, "old"))
}

// Case 67, D23 D24: a sync that waits at a gate gives way to a new render at once, not after its timeout.
func TestCase_67_through_the_loop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watcher()
	const name = "67-gate-must-not-trust-an-old-status"
	w.release("r", w.caseRender(name, "render1.yaml"), func(rel *v1alpha1.Release) {
		soon(rel)
		gatedBy(1, ready(5*time.Minute))(rel)
	})
	w.becomes("r", "True/Succeeded")
	first := w.get("r").Status.LastSuccessful.Digest
	w.render("r", w.caseRender(name, "render2.yaml"))
	w.becomes("r", "False/WaitingForWave")
	w.eventually("status says what is waited for", func() error {
		wave := w.wave("r", 1)
		if wave.Phase != v1alpha1.WaveWaiting || len(wave.BlockedBy) != 1 || !strings.Contains(wave.BlockedBy[0].Object, "front") {
			return errors.New("not yet")
		}
		return nil
	})
	require.Equal(t, "1", w.configMap("gated").Data["v"])
	require.NotNil(t, w.configMap("old"))
	require.Equal(t, first, w.get("r").Status.LastSuccessful.Digest)
	began := time.Now()
	w.render("r", w.caseRender(name, "render3.yaml"))
	w.becomes("r", "True/Succeeded")
	require.Less(t, time.Since(began), time.Minute)
	require.Equal(t, "3", w.configMap("gated").Data["v"])
	require.Nil(t, w.configMap("old"))
}

// Case 70, D25: no periodic pass and no retry runs a hook again, and a person does.
func TestCase_70_through_the_loop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watcher()
	since := w.mark()
	const name = "70-hook-job-runs-again-for-a-new-render"
	w.release("r", w.caseRender(name, "render1.yaml"), func(rel *v1alpha1.Release) {
		preSync(w.caseHook(name, "hook1.yaml", "pre"))(rel)
		every(2 * time.Second)(rel)
		rel.Spec.SyncPolicy.ResyncInterval = &metav1.Duration{Duration: 2 * time.Second}
	})
	w.becomes("r", "True/Succeeded")
	w.is("two more syncs, as a backstop", func() bool { return len(w.runs("sync:"+w.ns+":r")) >= 3 })
	require.Equal(t, 1, w.hookRuns(since))
	w.update("r", func(rel *v1alpha1.Release) {
		render := w.caseRender(name, "render2.yaml")
		rel.Spec.Source.Inline = &render
		preSync(w.caseHook(name, "hook2.yaml", "pre"))(rel)
		every(10 * time.Minute)(rel)
		rel.Spec.SyncPolicy.ResyncInterval = nil
	})
	w.is("the new render is applied", func() bool { return w.configMap("app").Data["v"] == "2" && w.applied("r") == "True/Succeeded" })
	require.Equal(t, 2, w.hookRuns(since))
	w.asks("r", workflows.SyncRequest{ID: "person", RequestedBy: "ada"})
	w.answered("r", "person")
	require.Equal(t, 3, w.hookRuns(since))
}

// Case 83, S7 D22: a verdict ends the matter until the next interval, and an accident is retried with growing pauses.
func TestCase_83_through_the_loop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watcher()
	const name = "83-verdict-survives-wrapping"
	w.byHand(w.caseRender(name, "before.yaml"))
	w.release("rejected", w.caseRender(name, "render1.yaml"), soon)
	w.release("unknown", w.caseRender(name, "render2.yaml"), func(rel *v1alpha1.Release) {
		soon(rel)
		rel.Spec.SyncPolicy.Retry.MaxInterval = &metav1.Duration{Duration: time.Minute}
	})
	w.becomes("rejected", "False/Unappliable")
	w.becomes("unknown", "False/DeployFailed")
	w.is("four tries of the one", func() bool { return len(w.runs("sync:"+w.ns+":unknown")) >= 4 })
	runs := w.runs("sync:" + w.ns + ":unknown")
	var starts []time.Time
	for _, run := range runs {
		starts = append(starts, w.recording(run).GetEvents()[0].GetEventTime().AsTime())
	}
	last := len(starts) - 1 // newest first
	require.Greater(t, starts[last-2].Sub(starts[last-1]), starts[last-1].Sub(starts[last]), "growing pauses: %v", starts)
	require.Len(t, w.runs("sync:"+w.ns+":rejected"), 1, "and one of the other")
	require.Greater(t, time.Until(w.get("rejected").Status.NextReconcileAt.Time), 8*time.Minute)
}

// SPEC 4, D33: what other tools ask of a Release: kubectl wait, also after a change that needs no sync, and its events,
// which do not grow with the number of retries.
func TestLoop_kubectl_understands_a_release(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watcher()
	w.release("shop", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: "+w.ns+"}\ndata: {a: 1}\n", soon)
	wait := func(condition string) {
		w.kubectl("", "wait", "release/shop", "-n", w.ns, "--for=condition="+condition, "--timeout=60s")
	}
	wait("Stalled")
	w.render("shop", oneConfigMap(w.ns, "web", "1"))
	wait("Applied")
	wait("Ready")
	wait("Stalled=False")
	w.update("shop", every(time.Hour))
	wait("Applied")
	wait("Ready")
	require.Len(t, w.runs("sync:"+w.ns+":shop"), 2, "a longer interval needs no sync")
	w.is("the generation is observed", func() bool { return w.get("shop").Status.ObservedGeneration == w.get("shop").Generation })

	w.update("shop", func(rel *v1alpha1.Release) {
		rel.Spec.ClusterRef = &v1alpha1.ClusterReference{Name: "nowhere"}
		soon(rel)
	})
	w.becomes("shop", "False/DeployFailed")
	for range 3 {
		w.retried("shop", "DeployFailed")
	}
	out := w.kubectl("", "get", "events", "-n", w.ns, "--field-selector=involvedObject.name=shop", "-o", "custom-columns=R:.reason", "--no-headers")
	events := map[string]int{}
	for line := range strings.FieldsSeq(out) {
		events[line]++
	}
	require.Equal(t, 1, events["DeployFailed"], out)
	require.Equal(t, 1, events["Unappliable"], out)
	require.Equal(t, 1, events["Succeeded"], out)
}
