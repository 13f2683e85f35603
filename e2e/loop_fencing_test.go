package e2e

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// synced waits until the present generation of a Release is applied, and returns the digest of its render.
func (w *world) synced(name string) string {
	w.Helper()
	digest := ""
	w.eventually("the last change of "+name+" is applied", func() error {
		rel := w.get(name)
		applied := meta.FindStatusCondition(rel.Status.Conditions, v1alpha1.ConditionApplied)
		if applied == nil || applied.Status != metav1.ConditionTrue || applied.ObservedGeneration != rel.Generation {
			return fmt.Errorf("generation %d: %+v", rel.Generation, applied)
		}
		digest = rel.Status.LastSuccessful.Digest
		return nil
	})
	return digest
}

// Case 78, D16 D30, through the loop: a worker is cut off from Temporal with an apply on its way. It starts no further
// request, the other worker finishes this sync and the next one, and then the old request lands: one periodic reconcile
// later the cluster is as the last render says, and nothing else has changed.
func TestCase_78_late_write_is_put_right_by_the_next_periodic_reconcile(t *testing.T) {
	t.Parallel()
	const interval = 5 * time.Second
	w := newWorld(t)
	p, temporal := w.proxy(), w.link()
	w.workerAt(p, temporal)
	render := func(v string) string { return manifest(w.ns, "fenced", 0, v) + manifest(w.ns, "tail", 0, v) }
	w.release("shop", render("1"), every(interval))
	w.loop("shop")
	w.synced("shop")

	held := p.holdNth(1, isApplyOf("fenced"), 0)
	w.rendersAnew("shop", render("2"))
	call := take(w, "the apply of fenced", held.arrived)
	temporal.cut()
	other := w.proxy()
	w.workerAt(other, nil)
	second := w.synced("shop")
	overtaken := other.list(isApply)[0].at
	for _, sent := range p.list(func(call *apiCall) bool { return call.at.After(overtaken) }) {
		require.Fail(t, "the lost worker sent a request beside its successor", sent.String())
	}
	take(w, "the lost worker giving up", call.gone)
	w.rendersAnew("shop", render("3"))
	third := w.synced("shop")
	require.NotEqual(t, second, third)
	attempt, sent := w.get("shop").Status.LastAttempted.RunID, p.count(nil)

	held.release()
	w.is("the late write lands", func() bool {
		return p.count(func(c *apiCall) bool { return c.n == call.n && c.code == 200 }) == 1
	})
	landed := time.Now()
	w.is("the drift is healed", func() bool {
		rel := w.get("shop")
		return rel.Status.LastAttempted.RunID != attempt && w.applied("shop") == "True/Succeeded" && w.configMap("fenced").Data["v"] == "3"
	})
	t.Logf("put right %s after it landed, at an interval of %s", time.Since(landed).Round(100*time.Millisecond), interval)
	require.Equal(t, third, w.get("shop").Status.LastSuccessful.Digest)
	w.agrees("shop", w.cm("fenced"), w.cm("tail"))
	require.Equal(t, sent, p.count(nil), "the lost worker goes on")
}

// D16, through the loop: a worker is frozen in a sync, another one takes over, and once it is thawed it sends no request
// for what it lost. The next reconcile is a whole sync.
func TestLoop_D16_frozen_worker_sends_nothing_after_it_is_thawed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.proxy()
	frozen := w.workerAt(first, nil, "--log-level", "debug")
	w.release("shop", manifests(w.ns, "a", 12, 0, "1"), every(time.Hour))
	counted, reached := counter(isApply), make(chan struct{}, 1)
	first.around(func(call *apiCall) bool {
		if counted(call) == 4 {
			reached <- struct{}{}
		}
		return first.pass(300 * time.Millisecond)
	}, nil)
	w.loop("shop")
	take(w, "the fourth apply", reached)
	frozen.signal(syscall.SIGSTOP)

	second := w.proxy()
	w.workerAt(second, nil)
	w.synced("shop")
	sent := first.count(nil)
	require.Less(t, first.count(isApply), 6, "the frozen worker went on")
	require.Positive(t, second.count(isApply))

	attempt, printed := w.get("shop").Status.LastAttempted.RunID, len(frozen.logs.String())
	frozen.signal(syscall.SIGCONT)
	w.eventually("the thawed worker gives its step up", func() error {
		if said := frozen.logs.String()[printed:]; !strings.Contains(said, "Activity error") {
			return errors.New(said)
		}
		return nil
	})
	require.Equal(t, sent, first.count(nil), "the thawed worker sent %v", first.list(nil)[sent:])
	w.agrees("shop", w.records("a", 12)...)

	require.NoError(t, w.temporal.SignalWorkflow(w.Context(), "release:"+w.ns+":shop", "", workflows.SignalReconcile, nil))
	// A look that was handed to the worker while it was frozen has to time out first, which takes up to two minutes.
	require.Eventually(t, func() bool {
		return w.get("shop").Status.LastAttempted.RunID != attempt && w.applied("shop") == "True/Succeeded"
	}, 2*patience, 100*time.Millisecond, "the next pass is a whole sync")
	w.agrees("shop", w.records("a", 12)...)
}
