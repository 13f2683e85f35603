package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
)

// soakOf is how long and how much: a minute in make test, a quarter of an hour in make soak (CONVOY_SOAK=all). The memory
// of the worker after the last window may be that after the first one, times growth.
type soakOf struct {
	releases               int
	length, window, report time.Duration
	growth                 float64
}

func howMuchSoak() soakOf {
	if os.Getenv("CONVOY_SOAK") == "all" {
		return soakOf{releases: 300, length: 15 * time.Minute, window: 5 * time.Minute, report: 15 * time.Second, growth: 1.1}
	}
	return soakOf{releases: 50, length: time.Minute, window: 20 * time.Second, report: 10 * time.Second, growth: 1.5}
}

const (
	soakObjects  = 10
	soakInterval = 30 * time.Second
	// soakEvents bounds the history of a loop so low that loops continue as new while requests come.
	soakEvents = 100
)

// S20 D16 D26 D30: many Releases on one worker, with random drift and random requests: no request is lost, no two syncs
// of a Release overlap, drift is healed, and neither the worker's memory nor the loops' histories grow.
func TestSoak_many_releases_on_one_worker(t *testing.T) {
	t.Parallel()
	s := newSoak(t, howMuchSoak())
	s.allApplied()
	s.Logf("%d Releases of %d objects are applied after %s", s.releases, soakObjects, time.Since(s.began).Round(time.Second))
	first, last := s.run()
	s.allApplied()
	s.isHealed()
	s.isAnswered()
	runs := s.doNotOverlap()
	longest := s.isBounded()
	s.Logf("%d syncs, %d drifts, %d requests, %d reconciles; longest history %d events; memory %d MiB after the first %s, %d MiB after the last",
		runs, s.drifts, len(s.asked), s.reconciles, longest, first/1024, s.window, last/1024)
	require.LessOrEqual(t, float64(last), s.growth*float64(first), "memory of the worker")
}

// soak is one run. Each Release has a namespace of its own for its objects.
type soak struct {
	*world
	soakOf
	random *rand.Rand
	worker *workerProcess
	began  time.Time

	drifts, reconciles int
	asked              map[string]int // request ids, and the Release's number
}

func newSoak(t *testing.T, much soakOf) *soak {
	t.Helper()
	s := &soak{world: newWorld(t), soakOf: much, random: seeded(t), began: time.Now(), asked: map[string]int{}}
	s.worker = s.world.worker("--watch=true", "--watch-namespace", s.ns, "--loop-history-events", fmt.Sprint(soakEvents), "--heartbeat-timeout", "12s")
	s.Cleanup(func() { // before the worker stops: it is the first to be cleaned up after this
		for i := range s.releases {
			_ = s.temporal.TerminateWorkflow(context.Background(), s.loopID(i), "", "test is over")
			_ = s.kube.Delete(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.home(i)}})
		}
	})
	for i := range s.releases {
		require.NoError(t, s.kube.Create(s.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.home(i)}}))
		render := ""
		for n := range soakObjects {
			render += "---\n" + oneConfigMap(s.home(i), fmt.Sprintf("c%d", n), "1")
		}
		s.release(s.named(i), render, every(soakInterval))
	}
	return s
}

func (s *soak) named(i int) string  { return fmt.Sprintf("r%03d", i) }
func (s *soak) home(i int) string   { return s.ns + "-" + s.named(i) }
func (s *soak) loopID(i int) string { return release.ReleaseWorkflowID(s.ns, s.named(i)) }

// run disturbs the Releases for the length of the soak, and returns the worker's memory in KiB after the first and the
// last window.
func (s *soak) run() (first, last int) {
	s.Helper()
	pause := time.Minute / time.Duration(s.releases) // every Release about once a minute
	began := time.Now()
	disturb, report := time.NewTicker(pause), time.NewTicker(s.report)
	defer disturb.Stop()
	defer report.Stop()
	for time.Since(began) < s.length {
		select {
		case <-disturb.C:
			s.disturb(s.random.IntN(s.releases))
		case <-report.C:
			memory := procStatus(s.T, s.worker.command.Process.Pid, "VmRSS")
			since := time.Since(began)
			if first == 0 && since >= s.window-s.report/2 {
				first = memory
			}
			s.Logf("%s of %s: %d drifts, %d requests, memory %d MiB", since.Round(time.Second), s.length, s.drifts, len(s.asked), memory/1024)
		}
	}
	return first, procStatus(s.T, s.worker.command.Process.Pid, "VmRSS")
}

// disturb does one thing to a Release or to one of its objects.
func (s *soak) disturb(i int) {
	s.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.home(i), Name: fmt.Sprintf("c%d", s.random.IntN(soakObjects))}}
	id := fmt.Sprintf("ask-%d", len(s.asked))
	request := workflows.SyncRequest{ID: id, Force: s.random.IntN(4) == 0, RequestedBy: "soak"}
	var err error
	switch s.random.IntN(10) {
	case 0, 1, 2:
		err = s.kube.Patch(s.Context(), object, kube.RawPatch(types.MergePatchType, []byte(`{"data":{"v":"other"}}`)), kube.FieldOwner("meddler"))
		s.drifts++
	case 3, 4:
		err = s.kube.Delete(s.Context(), object)
		s.drifts++
	case 5:
		err = s.temporal.SignalWorkflow(s.Context(), s.loopID(i), "", workflows.SignalReconcile, nil)
		s.reconciles++
	case 6:
		_, err = s.temporal.UpdateWorkflow(s.Context(), client.UpdateWorkflowOptions{
			WorkflowID: s.loopID(i), UpdateName: workflows.UpdateSync, Args: []any{request}, WaitForStage: client.WorkflowUpdateStageAccepted,
		})
		s.asked[id] = i
	default:
		err = s.temporal.SignalWorkflow(s.Context(), s.loopID(i), "", workflows.SignalSync, request)
		s.asked[id] = i
	}
	if !apierrors.IsNotFound(err) { // an object may be gone since the last drift
		require.NoError(s, err, s.named(i))
	}
}

// list reads all Releases.
func (s *soak) list() ([]v1alpha1.Release, error) {
	list := &v1alpha1.ReleaseList{}
	err := s.kube.List(s.Context(), list, kube.InNamespace(s.ns))
	return list.Items, err
}

// each waits until a check holds for every Release, for as long as some of them get there.
func (s *soak) each(what string, check func(*v1alpha1.Release) error) {
	s.Helper()
	best, deadline := -1, time.Now().Add(patience)
	for {
		list, err := s.list()
		good := 0
		for i := range list {
			if bad := check(&list[i]); bad != nil {
				err = fmt.Errorf("%s: %w", list[i].Name, bad)
				continue
			}
			good++
		}
		if err == nil && good == s.releases {
			return
		}
		if good > best {
			best, deadline = good, time.Now().Add(patience)
		}
		if time.Now().After(deadline) {
			require.NoError(s, err, "%s: %d of %d", what, good, s.releases)
		}
		<-time.After(500 * time.Millisecond)
	}
}

func (s *soak) allApplied() {
	s.Helper()
	s.each("applied", func(rel *v1alpha1.Release) error {
		if c := meta.FindStatusCondition(rel.Status.Conditions, v1alpha1.ConditionApplied); c == nil || c.Status != metav1.ConditionTrue {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

// isHealed: every object is there, and as the render says (D30).
func (s *soak) isHealed() {
	s.Helper()
	s.each("healed", func(rel *v1alpha1.Release) error {
		list := &corev1.ConfigMapList{}
		if err := s.kube.List(s.Context(), list, kube.InNamespace(s.ns+"-"+rel.Name)); err != nil {
			return err
		}
		good := 0
		for i := range list.Items {
			if list.Items[i].Data["v"] == "1" {
				good++
			}
		}
		if good != soakObjects {
			return fmt.Errorf("%d of %d objects are as they should be", good, soakObjects)
		}
		return nil
	})
}

// isAnswered: every request has its answer in status, and no request was answered twice (D26).
func (s *soak) isAnswered() {
	s.Helper()
	asked := make(map[string][]string, s.releases)
	for id, i := range s.asked {
		asked[s.named(i)] = append(asked[s.named(i)], id)
	}
	s.each("answered", func(rel *v1alpha1.Release) error {
		handled := rel.Status.LastHandledRequests
		for _, id := range asked[rel.Name] {
			at := slices.IndexFunc(handled, func(h v1alpha1.HandledRequest) bool { return h.ID == id })
			if at < 0 && len(handled) < 20 {
				return fmt.Errorf("request %s has no answer", id)
			}
			if at >= 0 && handled[at].Result != string(v1alpha1.ResultSucceeded) {
				return fmt.Errorf("request %s: %+v", id, handled[at])
			}
		}
		if total := rel.Status.HandledRequestsTotal; total != int64(len(asked[rel.Name])) {
			return fmt.Errorf("%d requests, %d answers", len(asked[rel.Name]), total)
		}
		return nil
	})
}

// doNotOverlap: a sync of a Release begins after the end of the one before (D16). It returns how many there were.
func (s *soak) doNotOverlap() int {
	s.Helper()
	var runs map[string][]*workflowpb.WorkflowExecutionInfo
	total := 0
	s.eventually("all syncs have ended", func() error {
		runs, total = map[string][]*workflowpb.WorkflowExecutionInfo{}, 0
		var page []byte
		for {
			answer, err := s.temporal.ListWorkflow(s.Context(), &workflowservice.ListWorkflowExecutionsRequest{
				Query: fmt.Sprintf("WorkflowId STARTS_WITH 'sync:%s:'", s.ns), PageSize: 1000, NextPageToken: page,
			})
			if err != nil {
				return err
			}
			for _, run := range answer.GetExecutions() {
				if run.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
					return fmt.Errorf("%s runs", run.GetExecution().GetWorkflowId())
				}
				id := run.GetExecution().GetWorkflowId()
				runs[id] = append(runs[id], run)
				total++
			}
			if page = answer.GetNextPageToken(); len(page) == 0 {
				return nil
			}
		}
	})
	for id, list := range runs {
		slices.SortFunc(list, func(a, b *workflowpb.WorkflowExecutionInfo) int {
			return a.GetStartTime().AsTime().Compare(b.GetStartTime().AsTime())
		})
		for i := range len(list) - 1 {
			require.False(s, list[i+1].GetStartTime().AsTime().Before(list[i].GetCloseTime().AsTime()), "%s: %v and %v", id, list[i], list[i+1])
		}
	}
	require.Len(s, runs, s.releases)
	return total
}

// isBounded: loops continue as new in time. It returns the length of the longest history.
func (s *soak) isBounded() int64 {
	s.Helper()
	longest := int64(0)
	for i := range s.releases {
		answer, err := s.temporal.DescribeWorkflowExecution(s.Context(), s.loopID(i), "")
		require.NoError(s, err)
		require.Equal(s, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, answer.GetWorkflowExecutionInfo().GetStatus())
		longest = max(longest, answer.GetWorkflowExecutionInfo().GetHistoryLength())
	}
	require.LessOrEqual(s, longest, int64(2*soakEvents+50), "history of a loop")
	return longest
}
