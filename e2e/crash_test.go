package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	corev1 "k8s.io/api/core/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
)

// configMaps lists the ConfigMaps in the world's namespace, apart from the one that Kubernetes puts there.
func (w *world) configMaps() []corev1.ConfigMap {
	w.Helper()
	list := &corev1.ConfigMapList{}
	require.NoError(w, w.kube.List(w.Context(), list, kube.InNamespace(w.ns)))
	return slices.DeleteFunc(list.Items, func(cm corev1.ConfigMap) bool { return cm.Name == "kube-root-ca.crt" })
}

// manifests are ConfigMaps NAME-00, NAME-01, … of one wave.
func manifests(ns, name string, n, wave int, value string) string {
	var all strings.Builder
	for i := range n {
		all.WriteString(manifest(ns, fmt.Sprintf("%s-%02d", name, i), wave, value))
	}
	return all.String()
}

// records are the inventory records of the ConfigMaps that manifests makes.
func (w *world) records(name string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, w.cm(fmt.Sprintf("%s-%02d", name, i)))
	}
	return all
}

// listed names the records of an inventory, and those that are pending.
func (w *world) listed(name string) (objects, pending []string) {
	w.Helper()
	inv := w.rawInventory(name)
	require.NotNil(w, inv)
	for _, list := range []struct {
		records []v1alpha1.ObjectRecord
		names   *[]string
	}{{inv.Spec.Objects, &objects}, {inv.Spec.Pending, &pending}} {
		for _, o := range list.records {
			*list.names = append(*list.names, strings.Join([]string{o.Group, o.Kind, o.Namespace, o.Name}, "/"))
		}
		slices.Sort(*list.names)
	}
	return objects, pending
}

// appliedByConvoy lists the ConfigMaps in the world's namespace that bear an apply entry of convoy, as records.
func (w *world) appliedByConvoy() []string {
	w.Helper()
	var names []string
	for _, cm := range w.configMaps() {
		for _, entry := range cm.ManagedFields {
			if entry.Manager == "convoy" && entry.Operation == "Apply" {
				names = append(names, w.cm(cm.Name))
			}
		}
	}
	slices.Sort(names)
	return names
}

// agrees requires that the inventory of a Release and the ConfigMaps that convoy applied are exactly these.
func (w *world) agrees(name string, want ...string) {
	w.Helper()
	slices.Sort(want)
	require.Equal(w, want, w.inventory(name), "inventory")
	require.Equal(w, want, w.appliedByConvoy(), "cluster")
}

// terminate ends a sync as an operator does who has no patience: no activity gets to clean up.
func (w *world) terminate(run client.WorkflowRun) {
	w.Helper()
	require.NoError(w, w.temporal.TerminateWorkflow(w.Context(), run.GetID(), run.GetRunID(), "by the test"))
}

// pendingActivity waits until a run has a pending activity that satisfies check.
func (w *world) pendingActivity(run client.WorkflowRun, what string, check func(*workflowpb.PendingActivityInfo) bool) *workflowpb.PendingActivityInfo {
	w.Helper()
	var found *workflowpb.PendingActivityInfo
	w.eventually(what, func() error {
		answer, err := w.temporal.DescribeWorkflowExecution(w.Context(), run.GetID(), run.GetRunID())
		if err != nil {
			return err
		}
		require.Equal(w, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, answer.GetWorkflowExecutionInfo().GetStatus(), what)
		for _, activity := range answer.GetPendingActivities() {
			if check(activity) {
				found = activity
				return nil
			}
		}
		return fmt.Errorf("pending activities: %v", answer.GetPendingActivities())
	})
	return found
}

// D13 D16: a sync is terminated while a request of it is on its way, and the next render lacks the whole wave. What
// had been applied is pruned, even what lands after the termination; what stood in the pending list and was never
// applied, but made by hand, stays.
func TestCrash_terminated_sync_leaves_nothing_behind_and_prunes_nothing_foreign(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.byHand(manifest(w.ns, "wave-05", 0, "by hand"))
	foreign := w.configMap("wave-05")
	p := w.proxy()
	w.workerAt(p, nil)
	base := manifest(w.ns, "base", 0, "1")
	w.release("shop", base+manifests(w.ns, "wave", 6, 1, "1"), nil)
	held := p.holdNth(1, isApplyOf("wave-03"), 0)
	run := w.start(workflows.SyncInput{Name: "shop"})
	call := take(w, "the apply of wave-03", held.arrived)
	w.terminate(run)
	take(w, "the worker giving up", call.gone)
	p.around(nil, nil)
	held.release() // the API server gets it now, after the sync and its activity have ended
	w.eventually("the late request lands", func() error {
		if w.configMap("wave-03") == nil {
			return errors.New("not there yet")
		}
		return nil
	})
	objects, pending := w.listed("shop")
	require.Equal(t, []string{w.cm("base")}, objects)
	require.Equal(t, w.records("wave", 6), pending)
	require.Equal(t, append([]string{w.cm("base")}, w.records("wave", 4)...), w.appliedByConvoy())

	w.render("shop", base)
	result := w.succeeds("shop")
	require.Equal(t, 4, result.Pruned)
	w.agrees("shop", w.cm("base"))
	left := w.configMap("wave-05")
	require.Equal(t, foreign.UID, left.UID)
	require.Equal(t, foreign.ResourceVersion, left.ResourceVersion, "an object that convoy never applied was touched")
}

// D13 D16: a sync ends while the apply of a new object is on its way, and the request lands only after the next sync,
// which no longer has the object. The sync after that looks once more, finds it and prunes it.
func TestCrash_request_that_lands_after_the_next_sync_is_found_by_the_one_after(t *testing.T) {
	t.Parallel()
	for _, end := range []struct {
		name string
		ends func(*world, client.WorkflowRun)
	}{
		{"terminated", (*world).terminate},
		{"cancelled", func(w *world, run client.WorkflowRun) {
			require.NoError(w, w.temporal.CancelWorkflow(w.Context(), run.GetID(), run.GetRunID()))
			_, reason := w.await(run)
			require.Equal(w, "Canceled", reason)
		}},
	} {
		t.Run(end.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := w.proxy()
			w.workerAt(p, nil)
			base := manifest(w.ns, "base", 0, "1")
			w.release("shop", base+manifest(w.ns, "late", 1, "1"), nil)
			held := p.holdNth(1, isApplyOf("late"), 0)
			run := w.start(workflows.SyncInput{Name: "shop"})
			call := take(w, "the apply of late", held.arrived)
			end.ends(w, run)
			take(w, "the worker giving up", call.gone)

			w.render("shop", strings.Replace(base, `"1"`, `"2"`, 1))
			w.succeeds("shop")
			require.Nil(t, w.configMap("late"))
			held.release()
			w.eventually("the late request lands", func() error {
				if w.configMap("late") == nil {
					return errors.New("not there yet")
				}
				return nil
			})
			result := w.succeeds("shop")
			require.Equal(t, 1, result.Pruned)
			w.agrees("shop", w.cm("base"))
			_, pending := w.listed("shop")
			require.Empty(t, pending)
		})
	}
}

// D16: a worker is frozen while it applies, and another one takes over. Once it is thawed it sends no request at all
// for the step that it lost.
func TestCrash_frozen_worker_sends_nothing_after_it_is_thawed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.proxy()
	frozen := w.workerAt(first, nil, "--log-level", "debug")
	w.release("shop", manifests(w.ns, "a", 12, 0, "1"), nil)
	counted, reached := counter(isApply), make(chan struct{}, 1)
	first.around(func(call *apiCall) bool {
		if counted(call) == 4 {
			reached <- struct{}{}
		}
		return first.pass(300 * time.Millisecond)
	}, nil)
	run := w.start(workflows.SyncInput{Name: "shop"})
	take(w, "the fourth apply", reached)
	frozen.signal(syscall.SIGSTOP)

	second := w.proxy()
	w.workerAt(second, nil)
	_, reason := w.await(run)
	require.Equal(t, "Succeeded", reason, w.message("shop"))
	sent := first.count(nil)
	require.Less(t, first.count(isApply), 6, "the frozen worker went on")
	require.Positive(t, second.count(isApply))

	printed := len(frozen.logs.String())
	frozen.signal(syscall.SIGCONT)
	w.eventually("the thawed worker gives its step up", func() error {
		if said := frozen.logs.String()[printed:]; !strings.Contains(said, "Activity error") {
			return errors.New(said)
		}
		return nil
	})
	require.Equal(t, sent, first.count(nil), "the thawed worker sent %v", first.list(nil)[sent:])
	w.agrees("shop", w.records("a", 12)...)

	frozen.stop() // it would have sent what it still wanted to send
	require.Equal(t, sent, first.count(nil))
	w.render("shop", manifests(w.ns, "a", 2, 0, "2"))
	w.succeeds("shop")
	w.agrees("shop", w.records("a", 2)...)
}

// Case 78, D16: a worker is cut off from Temporal with an apply on its way. It starts no further request, the other
// worker finishes this sync and the next one, and then the old request lands: one more sync puts that right.
func TestCrash_late_write_of_a_lost_attempt_is_put_right_by_the_next_sync(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, temporal := w.proxy(), w.link()
	w.workerAt(p, temporal)
	render := func(v string) string { return manifest(w.ns, "fenced", 0, v) + manifest(w.ns, "tail", 0, v) }
	w.release("shop", render("1"), nil)
	w.succeeds("shop")

	w.render("shop", render("2"))
	held := p.holdNth(1, isApplyOf("fenced"), 0)
	run := w.start(workflows.SyncInput{Name: "shop"})
	call := take(w, "the apply of fenced", held.arrived)
	temporal.cut()
	other := w.proxy()
	w.workerAt(other, nil)
	_, reason := w.await(run)
	require.Equal(t, "Succeeded", reason, w.message("shop"))
	overtaken := other.list(isApply)[0].at
	for _, sent := range p.list(func(call *apiCall) bool { return call.at.After(overtaken) }) {
		require.Fail(t, "the lost worker sent a request beside its successor", sent.String())
	}
	take(w, "the lost worker giving up", call.gone)
	w.render("shop", render("3"))
	w.succeeds("shop")

	sent := p.count(nil)
	held.release()
	w.eventually("the late write lands", func() error {
		if v := w.configMap("fenced").Data["v"]; v != "2" {
			return errors.New("v=" + v)
		}
		return nil
	})
	require.Equal(t, sent, p.count(nil))
	temporal.mend()
	w.succeeds("shop")
	require.Equal(t, "3", w.configMap("fenced").Data["v"])
	w.agrees("shop", w.cm("fenced"), w.cm("tail"))
}

// Case 80, S20 D13 D22: kill -9 in the middle of a wave, of the prune, and between the prune and the exact inventory.
// Another worker begins within some seconds, and the end is the same.
func TestCrash_killed_worker(t *testing.T) {
	t.Parallel()
	for _, at := range []struct {
		name  string
		prune bool // of 19 of 20 objects
		after func(*apiCall) bool
		n     int // kill when the n-th answer to these is on its way
	}{
		{"after the seventh apply", false, isApply, 7},
		{"during the prune", true, isDelete, 7},
		{"between the prune and the exact inventory", true, isDelete, 19},
	} {
		t.Run(at.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.release("shop", manifests(w.ns, "k", 20, 0, "1"), nil)
			want := w.records("k", 20)
			p := w.proxy()
			victim := w.workerAt(p, nil)
			if at.prune {
				w.succeeds("shop")
				w.render("shop", manifests(w.ns, "k", 1, 0, "1"))
				want = w.records("k", 1)
			}
			counted, killed := counter(at.after), make(chan time.Time, 1)
			p.around(func(*apiCall) bool { return p.pass(200 * time.Millisecond) }, func(call *apiCall) bool {
				if counted(call) == at.n {
					victim.kill()
					killed <- time.Now()
				}
				return true
			})
			run := w.start(workflows.SyncInput{Name: "shop"})
			died := take(w, "the kill", killed)
			next := w.proxy()
			w.workerAt(next, nil)
			_, reason := w.await(run)
			require.Equal(t, "Succeeded", reason, w.message("shop"))
			w.agrees("shop", want...)
			began := next.list(nil)[0].at
			require.Less(t, began.Sub(died), 20*time.Second, "the step went on too late: its heartbeat timeout is 3s")
		})
	}
}

// D13 S18: a worker dies in the middle of a wave, and the next attempt, which begins the wave again, fails before it has
// come as far. What the first attempt applied beyond that point is not forgotten.
func TestCrash_what_the_killed_attempt_applied_outlives_a_failure_of_the_next(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy()
	victim := w.workerAt(p, nil)
	w.release("shop", manifest(w.ns, "base", 0, "1")+manifests(w.ns, "a", 6, 1, "1"), nil)
	killed := make(chan struct{})
	p.around(nil, func(call *apiCall) bool {
		if !isApplyOf("a-04")(call) {
			return true
		}
		victim.kill()
		close(killed)
		return false
	})
	run := w.start(workflows.SyncInput{Name: "shop"})
	take(w, "the kill", killed)
	p.around(func(call *apiCall) bool {
		if isApplyOf("a-02")(call) {
			call.refuse = "not this one"
		}
		return true
	}, nil)
	w.workerAt(p, nil)
	_, reason := w.await(run)
	require.Equal(t, "DeployFailed", reason)
	require.Contains(t, w.message("shop"), "not this one")
	objects, pending := w.listed("shop")
	require.Equal(t, append(w.records("a", 2), w.cm("base")), objects)
	require.Equal(t, w.records("a", 6)[2:], pending)

	p.around(nil, nil)
	w.render("shop", manifest(w.ns, "base", 0, "1"))
	result := w.succeeds("shop")
	require.Equal(t, 5, result.Pruned)
	w.agrees("shop", w.cm("base"))
}

// D22: SIGTERM in the middle of a wave: the worker stops within its time, the inventory holds what was applied, and
// another worker goes on without waiting for a heartbeat timeout.
func TestCrash_terminated_worker_hands_its_wave_over(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy()
	leaving := w.workerAt(p, nil)
	w.release("shop", manifests(w.ns, "a", 12, 0, "1"), nil)
	held := p.holdNth(5, isApply, 200*time.Millisecond)
	run := w.start(workflows.SyncInput{Name: "shop"})
	call := take(w, "the fifth apply", held.arrived)
	told := time.Now()
	leaving.signal(syscall.SIGTERM)
	take(w, "the worker leaving its request", call.gone)
	held.release()
	take(w, "the end of the worker", leaving.ended)
	require.Less(t, time.Since(told), 10*time.Second)

	objects, pending := w.listed("shop")
	require.Equal(t, w.records("a", 4), objects, "the union after SIGTERM")
	require.Equal(t, []string{w.cm("a-04")}, pending, "the request that may have arrived")
	require.Equal(t, "Unknown/Progressing", w.applied("shop"))
	w.pendingActivity(run, "the step was handed back", func(activity *workflowpb.PendingActivityInfo) bool {
		return activity.GetLastFailure().GetApplicationFailureInfo().GetType() == "Interrupted"
	})

	w.workerAt(nil, nil)
	_, reason := w.await(run)
	require.Equal(t, "Succeeded", reason, w.message("shop"))
	w.agrees("shop", w.records("a", 12)...)
}

// S20 D13 D33: a cancelled sync ends as Canceled and Superseded; what it applied is in the inventory.
func TestCrash_cancelled_sync_keeps_what_it_applied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy()
	w.workerAt(p, nil)
	w.release("shop", manifests(w.ns, "a", 8, 0, "1"), nil)
	held := p.holdNth(4, isApply, 100*time.Millisecond)
	run := w.start(workflows.SyncInput{Name: "shop"})
	call := take(w, "the fourth apply", held.arrived)
	require.NoError(t, w.temporal.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
	take(w, "the worker leaving its request", call.gone)
	_, reason := w.await(run)
	require.Equal(t, "Canceled", reason)
	held.release()

	require.Equal(t, "False/Superseded", w.applied("shop"))
	status := w.get("shop").Status
	require.Equal(t, v1alpha1.ResultSuperseded, status.LastAttempted.Result)
	require.NotNil(t, status.LastAttempted.FinishedAt)
	require.Nil(t, status.LastSuccessful)
	require.True(t, status.Fence.Acknowledged)
	require.Equal(t, v1alpha1.WavePending, status.Waves[0].Phase, "nobody applies it any more")
	require.EqualValues(t, 3, status.Waves[0].Applied)
	objects, pending := w.listed("shop")
	require.Equal(t, w.records("a", 3), objects)
	require.Equal(t, []string{w.cm("a-03")}, pending)

	w.render("shop", manifest(w.ns, "other", 0, "1"))
	w.succeeds("shop")
	w.agrees("shop", w.cm("other"))
}

// D16: only one workflow id is right, and Temporal lets one run of it at a time.
func TestCrash_only_one_sync_of_a_release_can_run(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy()
	w.workerAt(p, nil)
	w.release("shop", manifest(w.ns, "a", 0, "1"), nil)
	held := p.holdNth(1, isApply, 0)
	run := w.start(workflows.SyncInput{Name: "shop"})
	take(w, "the apply", held.arrived)

	options := client.StartWorkflowOptions{ID: run.GetID(), TaskQueue: w.taskQueue, WorkflowExecutionErrorWhenAlreadyStarted: true}
	in := workflows.SyncInput{Namespace: w.ns, Name: "shop"}
	_, err := w.temporal.ExecuteWorkflow(t.Context(), options, "SyncWorkflow", in)
	var already *serviceerror.WorkflowExecutionAlreadyStarted
	require.ErrorAs(t, err, &already)

	options.ID = "mine:" + w.ns
	stray, err := w.temporal.ExecuteWorkflow(t.Context(), options, "SyncWorkflow", in)
	require.NoError(t, err)
	err = stray.Get(t.Context(), nil)
	require.ErrorContains(t, err, "Refused")
	require.ErrorContains(t, err, run.GetID(), "the message names the right id")
	require.Equal(t, run.GetRunID(), w.get("shop").Status.LastAttempted.RunID, "the stray sync wrote a status")

	held.release()
	_, reason := w.await(run)
	require.Equal(t, "Succeeded", reason)
}

// D16: the sync that holds the fence was terminated: it said no goodbye, so the next one waits until no request of it
// can start any more, says so, and goes on.
func TestCrash_sync_after_a_terminated_one_waits_one_heartbeat_timeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy()
	w.workerAt(p, nil, "--heartbeat-timeout", "6s")
	w.release("shop", manifest(w.ns, "a", 0, "1"), nil)
	held := p.holdNth(1, isApply, 0)
	run := w.start(workflows.SyncInput{Name: "shop"})
	take(w, "the apply", held.arrived)
	ended := time.Now()
	w.terminate(run)
	next := w.start(workflows.SyncInput{Name: "shop"})
	waiting := w.pendingActivity(next, "the next sync waits", func(activity *workflowpb.PendingActivityInfo) bool {
		return activity.GetActivityId() == "prepare" && activity.GetLastFailure() != nil
	})
	require.Equal(t, "Waiting", waiting.GetLastFailure().GetApplicationFailureInfo().GetType())
	require.Contains(t, waiting.GetLastFailure().GetMessage(), run.GetRunID())
	require.Contains(t, waiting.GetLastFailure().GetMessage(), "without a goodbye")
	_, reason := w.await(next)
	require.Equal(t, "Succeeded", reason, w.message("shop"))
	held.release()

	var first time.Time
	for _, call := range p.list(func(call *apiCall) bool { return call.method != http.MethodGet && call.at.After(ended) }) {
		first = call.at
		break
	}
	require.Greater(t, first.Sub(ended), 6*time.Second, "the next sync wrote before the heartbeat timeout was over")
	require.Less(t, first.Sub(ended), 30*time.Second)
}

// onPath makes a Release with a path source.
func onPath(file string) func(*v1alpha1.Release) {
	return func(rel *v1alpha1.Release) { rel.Spec.Source = v1alpha1.Source{Path: &file} }
}

// killedOnPath syncs a Release with a path source until its third apply, then kills the worker, changes the file, and
// lets a worker with the same arguments go on.
func (w *world) killedOnPath(args ...string) (before, after string, run client.WorkflowRun) {
	w.Helper()
	root := w.TempDir()
	file := filepath.Join(root, "render.yaml")
	before, after = manifests(w.ns, "a", 5, 0, "1"), manifests(w.ns, "a", 6, 0, "2")
	require.NoError(w, os.WriteFile(file, []byte(before), 0o600))
	args = append(args, "--path-root", root)
	p := w.proxy()
	victim := w.workerAt(p, nil, args...)
	w.release("shop", "", onPath(file))
	held := p.holdNth(3, isApply, 0)
	run = w.start(workflows.SyncInput{Name: "shop"})
	take(w, "the third apply", held.arrived)
	victim.kill()
	require.NoError(w, os.WriteFile(file, []byte(after), 0o600))
	p.around(nil, nil)
	held.release()
	w.workerAt(nil, nil, args...)
	return before, after, run
}

// D5 D13: without a render store a step that goes on elsewhere needs the source to give the same render. It does not:
// nothing of the new render is applied, and the message names the remedy.
func TestCrash_changed_path_without_a_render_store_ends_the_sync(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, _, run := w.killedOnPath()
	_, reason := w.await(run)
	require.Equal(t, "DeployFailed", reason)
	require.Equal(t, "False/DeployFailed", w.applied("shop"))
	require.Contains(t, w.message("shop"), "--render-store-url")
	require.Nil(t, w.configMap("a-05"))
	for _, record := range w.appliedByConvoy() {
		objects, pending := w.listed("shop")
		require.Contains(t, append(objects, pending...), record, "applied and neither recorded nor pending")
	}

	w.succeeds("shop")
	w.agrees("shop", w.records("a", 6)...)
	require.Equal(t, "2", w.configMap("a-00").Data["v"])
}

// S11: with a render store the other worker goes on with the render that the sync began with.
func TestCrash_changed_path_with_a_render_store_goes_on_with_the_stored_render(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, _, run := w.killedOnPath("--render-store-url", "file://"+w.TempDir())
	result, reason := w.await(run)
	require.Equal(t, "Succeeded", reason, w.message("shop"))
	w.agrees("shop", w.records("a", 5)...)
	require.Equal(t, "1", w.configMap("a-04").Data["v"])
	require.Equal(t, result.Digest, w.get("shop").Status.LastSuccessful.Digest)

	w.succeeds("shop")
	w.agrees("shop", w.records("a", 6)...)
	require.Equal(t, "2", w.configMap("a-04").Data["v"])
}
