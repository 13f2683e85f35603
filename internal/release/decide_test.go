package release

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"convoy.dev/convoy/api/v1alpha1"
)

// scene is a Release that was synced an hour ago as "abc", whose source and cluster have not changed since, and whose
// periodic pass is due. A test changes one thing about it.
type scene struct {
	Facts
	digest  string
	broken  error
	pending bool
	drift   []Drifted
	// blind fails the look at what is pending, and at drift.
	pendingErr, driftErr error
	asked                []string
}

func newScene() *scene {
	s := &scene{digest: "sha256:abc"}
	s.Facts = Facts{
		Now: start.Add(time.Hour), Due: true, Generation: 3, Spec: "s", SyncedSpec: "s", ResyncInterval: 2 * time.Hour,
		Status: &v1alpha1.ReleaseStatus{
			Conditions:     Conditions(nil, Outcome{Reason: Succeeded, Generation: 3}, start),
			LastAttempted:  &v1alpha1.Attempt{Digest: "sha256:abc", Result: v1alpha1.ResultSucceeded, Reason: string(Succeeded)},
			LastSuccessful: &v1alpha1.Success{Digest: "sha256:abc", FinishedAt: metav1.NewTime(start)},
		},
	}
	return s
}

// ended makes the last sync one that ended so.
func (s *scene) ended(reason Reason) {
	s.Status.LastAttempted.Result, s.Status.LastAttempted.Reason = v1alpha1.ResultFailed, string(reason)
	if reason == Superseded {
		s.Status.LastAttempted.Result = v1alpha1.ResultSuperseded
	}
}

func (s *scene) decide() (Decision, error) {
	s.asked = nil
	return Decide(s.Facts, Look{
		Render:  func() (string, error) { s.asked = append(s.asked, "render"); return s.digest, s.broken },
		Pending: func() (bool, error) { s.asked = append(s.asked, "pending"); return s.pending, s.pendingErr },
		Drift:   func() ([]Drifted, error) { s.asked = append(s.asked, "drift"); return s.drift, s.driftErr },
	})
}

// verdict is one line of a table of scenes: what is changed, what is decided, why, and which costly questions are asked.
type verdict struct {
	change func(*scene)
	action Action
	cause  string
	asked  string
}

func decides(t *testing.T, cases map[string]verdict) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			c.change(s)
			d, err := s.decide()
			require.NoError(t, err)
			require.Equal(t, c.action, d.Action, d.Cause)
			require.Contains(t, d.Cause, c.cause)
			require.Equal(t, c.asked, strings.Join(s.asked, " "))
		})
	}
}

const everything = "render pending drift"

// D30: each cause of a sync, and what is none. What needs no look at the source or the cluster is found without one.
func TestDecide_D30_what_starts_a_sync(t *testing.T) {
	drifted := []Drifted{{Ref: ObjectRef{Kind: "ConfigMap", Namespace: "shop", Name: "a"}, What: "is gone"}}
	decides(t, map[string]verdict{
		"nothing changed":       {func(*scene) {}, ActNothing, "nothing changed", everything},
		"the time has not come": {func(s *scene) { s.Due = false }, ActNothing, "nothing changed", everything},
		"a request":             {func(s *scene) { s.Requested, s.Due = true, false }, ActSync, "a sync was requested", ""},
		"never synced":          {func(s *scene) { s.Status = &v1alpha1.ReleaseStatus{} }, ActSync, "never synced", ""},
		"a changed Release":     {func(s *scene) { s.Spec, s.Due = "other", false }, ActSync, "the Release was changed", ""},
		"a generation that changes nothing of the sync": {func(s *scene) { s.Generation = 4 }, ActNothing, "", everything},
		"a generation, and the sum is not known":        {func(s *scene) { s.Generation, s.SyncedSpec = 4, "" }, ActSync, "the Release was changed", ""},
		"no generation, and the sum is not known":       {func(s *scene) { s.SyncedSpec = "" }, ActNothing, "", everything},
		"a sync that ended without a word":              {func(s *scene) { s.Due = false; s.Status.LastAttempted.Result = v1alpha1.ResultRunning }, ActSync, "without a word", ""},
		"a lost request, in time":                       {func(s *scene) { s.Whole = true }, ActSync, "a request in flight", ""},
		"a lost request, too early":                     {func(s *scene) { s.Whole, s.Due = true, false }, ActNothing, "", everything},
		"a new render":                                  {func(s *scene) { s.digest, s.Due = "sha256:def", false }, ActSync, "a new render, def", "render"},
		"something to settle, in time":                  {func(s *scene) { s.pending = true }, ActSync, "objects to settle", "render pending"},
		"something to settle, too early":                {func(s *scene) { s.pending, s.Due = true, false }, ActNothing, "", everything},
		"drift":                                         {func(s *scene) { s.drift, s.Due = drifted, false }, ActSync, "drift: ConfigMap shop/a is gone", everything},
		"a cluster that does not answer":                {func(s *scene) { s.driftErr = &Incomparable{Cause: "no route"} }, ActSync, "the cluster cannot be compared: no route", everything},
		"a source that gives nothing":                   {func(s *scene) { s.broken, s.Due = errors.New("no such file"), false }, ActSync, "no render", "render"},
	})
}

// D30: the backstop.
func TestDecide_D30_resyncs_after_resyncInterval(t *testing.T) {
	decides(t, map[string]verdict{
		"a moment before":           {func(s *scene) { s.Now = start.Add(2*time.Hour - time.Second) }, ActNothing, "", everything},
		"then":                      {func(s *scene) { s.Now = start.Add(2 * time.Hour) }, ActSync, "resyncInterval has passed", ""},
		"a look between two passes": {func(s *scene) { s.Now, s.Due = start.Add(9*time.Hour), false }, ActNothing, "", everything},
		"none is set":               {func(s *scene) { s.Now, s.ResyncInterval = start.Add(9*time.Hour), 0 }, ActNothing, "", everything},
		"nothing was ever applied":  {func(s *scene) { s.Now, s.Status.LastSuccessful = start.Add(9*time.Hour), nil }, ActNothing, "", everything},
	})
}

// D30: an error of the control cluster is no decision.
func TestDecide_D30_an_accident_decides_nothing(t *testing.T) {
	for _, manual := range []bool{false, true} {
		for _, fail := range []func(*scene){
			func(s *scene) { s.pendingErr = errors.New("no route") },
			func(s *scene) { s.driftErr = errors.New("no route") },
		} {
			s := newScene()
			s.Manual = manual
			fail(s)
			_, err := s.decide()
			require.EqualError(t, err, "no route")
		}
	}
}

// S7 D1 D22: what failed is tried again when its time has come, by a new render and by a request, and not before. When
// the time comes is the matter of Retries and Cadence.
func TestDecide_S7_what_failed_waits_for_its_time(t *testing.T) {
	for _, reason := range []Reason{Unappliable, DeployFailed, PruneFailed, RenderFailed, HookFailed, WaveTimeout, Superseded} {
		t.Run(string(reason), func(t *testing.T) {
			failed := func(due bool, more func(*scene)) func(*scene) {
				return func(s *scene) { s.ended(reason); s.Due = due; more(s) }
			}
			decides(t, map[string]verdict{
				"its time has come":     {failed(true, func(*scene) {}), ActSync, "ended as " + string(reason), ""},
				"its time has not come": {failed(false, func(*scene) {}), ActNothing, "ended as " + string(reason), "render"},
				"a new render":          {failed(false, func(s *scene) { s.digest = "sha256:def" }), ActSync, "a new render", "render"},
				"a request":             {failed(false, func(s *scene) { s.Requested = true }), ActSync, "requested", ""},
				"a changed Release":     {failed(false, func(s *scene) { s.Spec = "other" }), ActSync, "changed", ""},
			})
		})
	}
	broken := func(due bool) func(*scene) {
		return func(s *scene) { s.ended(RenderFailed); s.Due, s.broken = due, errors.New("no such file") }
	}
	decides(t, map[string]verdict{
		"the source still gives nothing":                           {broken(false), ActNothing, "no render", "render"},
		"the source still gives nothing, and the time has come":    {broken(true), ActSync, "ended as RenderFailed", ""},
		"the source gives nothing after a failure of another kind": {func(s *scene) { broken(false)(s); s.ended(DeployFailed) }, ActSync, "no render", "render"},
	})
}

// S4 D22: in manual mode only a request starts a sync; everything else is told.
func TestDecide_S4_manual_mode_only_tells(t *testing.T) {
	manual := func(change func(*scene)) func(*scene) {
		return func(s *scene) { s.Manual = true; change(s) }
	}
	decides(t, map[string]verdict{
		"nothing changed":         {manual(func(*scene) {}), ActNothing, "nothing changed", everything},
		"a request":               {manual(func(s *scene) { s.Requested = true }), ActSync, "a sync was requested", ""},
		"never synced":            {manual(func(s *scene) { s.Status = &v1alpha1.ReleaseStatus{} }), ActOutOfSync, "never synced", "render"},
		"a new render":            {manual(func(s *scene) { s.digest = "sha256:def" }), ActOutOfSync, "a new render", "render"},
		"a new render, too early": {manual(func(s *scene) { s.digest, s.Due = "sha256:def", false }), ActOutOfSync, "a new render", "render"},
		"a changed Release":       {manual(func(s *scene) { s.Spec = "other" }), ActOutOfSync, "the Release was changed", everything},
		"drift":                   {manual(func(s *scene) { s.drift = []Drifted{{What: "is gone"}} }), ActOutOfSync, "drift", everything},
		"a dark cluster":          {manual(func(s *scene) { s.driftErr = &Incomparable{} }), ActOutOfSync, "cannot be compared", everything},
		"no render":               {manual(func(s *scene) { s.broken = errors.New("x") }), ActOutOfSync, "no render", "render"},
		"still no render":         {manual(func(s *scene) { s.broken, s.Due = errors.New("x"), false; s.ended(RenderFailed) }), ActOutOfSync, "no render", "render"},
		"something to settle":     {manual(func(s *scene) { s.pending, s.Due = true, false }), ActOutOfSync, "objects to settle", "render pending"},
		"a lost request":          {manual(func(s *scene) { s.Whole = true }), ActNothing, "", everything},
		"the backstop":            {manual(func(s *scene) { s.Now = start.Add(9 * time.Hour) }), ActNothing, "", everything},
		"a failed sync":           {manual(func(s *scene) { s.ended(DeployFailed) }), ActNothing, "ended as DeployFailed", "render"},
	})
	s := newScene()
	s.Manual, s.Status.LastAttempted = true, nil
	d, err := s.decide()
	require.NoError(t, err)
	require.Equal(t, "sha256:abc", d.Digest, "the message names what a sync would bring")
}

// D22 D26: in manual mode a retry belongs to its request, and ends with a new render or a changed Release.
func TestDecide_D22_a_retry_in_manual_mode_belongs_to_its_request(t *testing.T) {
	succeeded := func(s *scene) { s.Status = newScene().Status }
	retry := func(change func(*scene)) func(*scene) {
		return func(s *scene) {
			s.Manual, s.Retry, s.RetryOf = true, true, "sha256:abc"
			s.ended(DeployFailed)
			change(s)
		}
	}
	unreadable := func(s *scene) { s.broken = errors.New("no route") }
	decides(t, map[string]verdict{
		"another sync has succeeded since":         {retry(succeeded), ActNothing, "nothing changed", everything},
		"in time":                                  {retry(func(*scene) {}), ActSync, "the requested sync ended as DeployFailed", "render"},
		"too early":                                {retry(func(s *scene) { s.Due = false }), ActNothing, "ended as DeployFailed", "render"},
		"a new render":                             {retry(func(s *scene) { s.digest = "sha256:def" }), ActOutOfSync, "a new render", "render"},
		"a changed Release":                        {retry(func(s *scene) { s.Spec = "other" }), ActOutOfSync, "the Release was changed", "render"},
		"the failed one had no render":             {retry(func(s *scene) { s.RetryOf, s.digest = "", "sha256:def"; s.ended(RenderFailed) }), ActSync, "ended as RenderFailed", "render"},
		"D1 the source is still out of reach":      {retry(func(s *scene) { s.RetryOf = ""; s.ended(RenderFailed); unreadable(s) }), ActSync, "ended as RenderFailed", "render"},
		"D1 the source has gone out of reach":      {retry(unreadable), ActSync, "ended as DeployFailed", "render"},
		"D1 the source is out of reach, too early": {retry(func(s *scene) { unreadable(s); s.Due = false }), ActNothing, "ended as DeployFailed", "render"},
		"D1 the source holds another, bad render":  {retry(func(s *scene) { s.broken = Problemf(RenderFailed, "line 3") }), ActOutOfSync, "no render", "render"},
	})
}

// D30 D33: the words for drift name the first objects and count the rest.
func TestDecide_D30_describes_drift(t *testing.T) {
	var drift []Drifted
	for _, name := range []string{"a", "b", "c"} {
		drift = append(drift, Drifted{Ref: ObjectRef{Kind: "Node", Name: name}, What: "is gone"})
	}
	require.Equal(t, "Node a is gone, Node b is gone, Node c is gone", DescribeDrift(drift))
	require.Equal(t, "Node a is gone, Node b is gone, Node c is gone, and 3 more", DescribeDrift(append(drift, drift...)))
}
