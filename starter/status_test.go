package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-d)) }

func beforeP(d time.Duration) *metav1.Time {
	at := before(d)
	return &at
}

const (
	digestA = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	digestB = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// waitingRelease waits at wave 1 after a success of another render.
func waitingRelease() *v1alpha1.Release {
	rel := &v1alpha1.Release{}
	rel.Namespace, rel.Name, rel.Generation = "team-a", "shop", 4
	rel.Spec.ClusterRef = &v1alpha1.ClusterReference{Name: "prod-eu"}
	secret := "stringData: {password: hunter2}"
	rel.Spec.Source.Inline = &secret
	rel.Status = v1alpha1.ReleaseStatus{
		ObservedGeneration: 3,
		Conditions: []metav1.Condition{
			{Type: "Applied", Status: "False", Reason: "WaitingForWave", Message: "wave 1 waits for wave 0", LastTransitionTime: before(90 * time.Second)},
			{Type: "Reconciling", Status: "True", Reason: "WaitingForWave", Message: "waiting for wave 0\nto be healthy", LastTransitionTime: before(90 * time.Second)},
			{Type: "Stalled", Status: "False", Reason: "WaitingForWave", LastTransitionTime: before(time.Hour)},
		},
		LastAttempted: &v1alpha1.Attempt{
			Digest: digestB, Revision: "v2", StartedAt: before(2 * time.Minute), Result: v1alpha1.ResultRunning, Force: true, RequestedBy: "alice",
			WorkflowID: "sync:team-a:shop", RunID: "run-2",
		},
		LastSuccessful: &v1alpha1.Success{Digest: digestA, Revision: "v1", FinishedAt: before(26 * time.Hour)},
		Waves: []v1alpha1.WaveStatus{
			{Wave: 0, Phase: v1alpha1.WaveApplied, Objects: 12, Applied: 12, StartedAt: beforeP(110 * time.Second), FinishedAt: beforeP(100 * time.Second)},
			{Wave: 1, Phase: v1alpha1.WaveWaiting, Objects: 3, StartedAt: beforeP(100 * time.Second), BlockedByTotal: 23,
				BlockedBy: []v1alpha1.Blocker{{Object: "Deployment shop/web", Message: "1/3\x1b[31m available", Since: before(95 * time.Second)}}},
		},
		WavesTotal: 5,
		Hooks:      []v1alpha1.HookStatus{{Name: "migrate", Phase: "preSync", Result: "Succeeded", Digest: digestB, FinishedAt: before(112 * time.Second)}},
		Unverified: []string{"Foo shop/f: the cluster does not know the kind yet"}, UnverifiedTotal: 1,
		Orphaned: []string{"ConfigMap shop/old"}, OrphanedTotal: 30,
		Terminating: []string{"PersistentVolumeClaim shop/data (finalizers: kubernetes.io/pvc-protection)"}, TerminatingTotal: 1,
		History: []v1alpha1.HistoryEntry{{Digest: digestA, Revision: "v1", FirstAppliedAt: before(50 * time.Hour), LastAppliedAt: before(26 * time.Hour),
			Result: v1alpha1.ResultSucceeded, RunID: "run-1"}},
	}
	return rel
}

// The page of a Release that the loop looks after (SPEC 4, D26).
func TestStatusTellsWhatTheLoopDoes(t *testing.T) {
	rel := waitingRelease()
	rel.Status.Conditions[1] = metav1.Condition{Type: "Reconciling", Status: "False", Reason: "Suspended", Message: "spec.suspend is set; 1 sync request waits"}
	rel.Status.Conditions = append(rel.Status.Conditions,
		metav1.Condition{Type: "Ready", Status: "False", Reason: "OutOfSync", Message: "applied is a, the source has b"})
	next := metav1.NewTime(noon.Add(3 * time.Minute))
	rel.Status.NextReconcileAt = &next
	rel.Status.HandledRequestsTotal = 40
	for _, id := range []string{"r-6", "r-5", "r-4", "r-3", "r-2", "r-1"} {
		rel.Status.LastHandledRequests = append(rel.Status.LastHandledRequests,
			v1alpha1.HandledRequest{ID: id, Result: "Failed", Reason: "PruneFailed", Digest: digestA, RunID: "run-1"})
	}
	loop := loopView{status: &workflows.LoopStatus{Doing: "next reconcile", Failures: 2, Waiting: []string{"r-7", "r-8"}}}
	var out bytes.Buffer
	printStatus(&out, rel, loop, noon)
	require.Contains(t, out.String(), `Out of sync applied is a, the source has b
Next look   in 3m (2026-11-30T12:03:00Z)
Loop        waits for the next reconcile, after 2 failures in a row
            requests that wait: r-7, r-8
`)
	require.Contains(t, out.String(), `Requests (5 of 40)
  REQUEST   RESULT                 RENDER         RUN
  r-6       Failed (PruneFailed)   aaaaaaaaaaaa   run-1
`)
	require.NotContains(t, out.String(), "r-1 ")
	rel.Spec.Suspend = true
	out.Reset()
	printStatus(&out, rel, loopView{trouble: "not asked"}, noon)
	require.Contains(t, out.String(), "Suspended   spec.suspend is set; 1 sync request waits\n")
	require.Contains(t, out.String(), "Loop        not asked\n")
	require.NotContains(t, out.String(), "Next look")
	rel.Spec.Suspend = false
	out.Reset()
	printStatus(&out, rel, loopView{ended: true, trouble: "not running"}, noon)
	require.NotContains(t, out.String(), "Next look", "nobody looks")
}

func TestTheLoopsWordsAreSentences(t *testing.T) {
	for says, status := range map[string]workflows.LoopStatus{
		"is there":                                              {},
		"waits for the next reconcile":                          {Doing: "next reconcile"},
		"waits for the suspension to be lifted":                 {Doing: "suspended"},
		"looks at the Release":                                  {Doing: "looking at the Release"},
		"waits for the next try, after 1 failure in a row":      {Doing: "retry after 1 failures in a row", Failures: 1},
		"looks at the Release, after 2 failures in a row":       {Doing: "looking at the Release", Failures: 2},
		"a sync runs: next look whether it is still up to date": {Doing: "a sync runs: next look whether it is still up to date"},
	} {
		require.Equal(t, says, loopDoing(&status))
	}
}

const waitingPage = `Release     team-a/shop -> prod-eu
Applied     False, WaitingForWave, for 90s (since 2026-11-30T11:58:30Z)
            wave 1 waits for wave 0
Doing       waiting for wave 0
            to be healthy
Changed     the Release is at generation 4, and the last sync was of generation 3
Attempted   Running, started 2m ago (2026-11-30T11:58:00Z)
            render bbbbbbbbbbbb, revision v2, asked for by alice, forced
Succeeded   26h ago (2026-11-29T10:00:00Z)
            render aaaaaaaaaaaa, revision v1

Waves (2 of 5)
  WAVE   PHASE     APPLIED   STARTED    TOOK
  0      Applied   12/12     110s ago   10s
  1      Waiting   0/3       100s ago   -

Wave 1 waits for (1 of 23)
  Deployment shop/web: 1/3[31m available (for 95s)

Hooks
  PHASE     HOOK      RESULT      RENDER         ENDED      MESSAGE
  preSync   migrate   Succeeded   bbbbbbbbbbbb   112s ago

Unverified by the dry run
  Foo shop/f: the cluster does not know the kind yet

Left the inventory, stay on the cluster (1 of 30)
  ConfigMap shop/old

Pruned, held by finalizers
  PersistentVolumeClaim shop/data (finalizers: kubernetes.io/pvc-protection)

History
  RENDER         REVISION   APPLIED    LAST      ASKED BY   RUN
  aaaaaaaaaaaa   v1         2d2h ago   26h ago   -          run-1

In Temporal
  workflow sync:team-a:shop, run run-2
  temporal workflow show --workflow-id sync:team-a:shop --run-id run-2
`

func TestStatusTellsTheWholeStory(t *testing.T) {
	var out bytes.Buffer
	printStatus(&out, waitingRelease(), loopView{}, noon)
	require.Equal(t, waitingPage, out.String())
}

func TestStatusOfAFailedReleaseSaysThatAPersonIsNeeded(t *testing.T) {
	rel := waitingRelease()
	rel.Status.Conditions = []metav1.Condition{
		{Type: "Applied", Status: "False", Reason: "Unappliable", Message: "the target cluster rejects 1 object", LastTransitionTime: before(time.Minute)},
		{Type: "Stalled", Status: "True", Reason: "Unappliable"},
	}
	rel.Status.LastAttempted.Result, rel.Status.LastAttempted.Reason = v1alpha1.ResultFailed, "Unappliable"
	rel.Status.LastAttempted.FinishedAt = beforeP(time.Minute)
	rel.Status.LastSuccessful = nil
	var out bytes.Buffer
	printStatus(&out, rel, loopView{}, noon)
	require.Contains(t, out.String(), "it needs a person: correct what Applied says, and a changed Release or render is synced by itself")
	require.Contains(t, out.String(), "Attempted   Failed (Unappliable), started 2m ago (2026-11-30T11:58:00Z), took 1m0s")
	require.Contains(t, out.String(), "Succeeded   never")
	require.NotContains(t, out.String(), "Doing")
	rel.Spec.SyncPolicy.Mode = v1alpha1.SyncManual
	out.Reset()
	printStatus(&out, rel, loopView{}, noon)
	require.Contains(t, out.String(), "correct what Applied says, then ask for a sync: `convoy sync team-a/shop`\n")
	rel.Spec.Suspend = true
	out.Reset()
	printStatus(&out, rel, loopView{}, noon)
	require.Contains(t, out.String(), "correct what Applied says, and lift the suspension\n")
}

func TestStatusBeforeTheFirstSyncSaysHowToBegin(t *testing.T) {
	rel := &v1alpha1.Release{}
	rel.Namespace, rel.Name = "team-a", "shop"
	var out bytes.Buffer
	printStatus(&out, rel, loopView{}, noon)
	require.Equal(t, "Release     team-a/shop -> control cluster\n"+
		"Applied     not yet, no sync has begun: its loop will sync it\n", out.String())
	rel.Spec.SyncPolicy.Mode = v1alpha1.SyncManual
	require.Equal(t, "no sync has begun: mode Manual waits for a request, `convoy sync team-a/shop`", firstSync(rel))
	rel.Spec.Suspend = true
	require.Equal(t, "no sync has begun, and the Release is suspended (`convoy resume team-a/shop`)", firstSync(rel))
	rel.DeletionTimestamp = beforeP(0)
	require.Equal(t, "no sync has begun, and the Release is being deleted", firstSync(rel))
}

// D10: the source may hold Secrets, so no output shows it.
func TestStatusAsDataLeavesTheSpecOut(t *testing.T) {
	for _, format := range []string{"json", "yaml"} {
		var out bytes.Buffer
		require.NoError(t, encode(&out, format, plainStatus(waitingRelease())))
		require.NotContains(t, out.String(), "hunter2")
		require.Contains(t, out.String(), digestA)
		if format == "json" {
			var read v1alpha1.Release
			require.NoError(t, json.Unmarshal(out.Bytes(), &read))
			require.Equal(t, waitingRelease().Status.LastSuccessful.Digest, read.Status.LastSuccessful.Digest)
		}
	}
}

func TestInventoryMarksWhatIsPending(t *testing.T) {
	inv := &v1alpha1.ReleaseInventory{Spec: v1alpha1.InventorySpec{
		Objects: []v1alpha1.ObjectRecord{{Kind: "Namespace", Name: "shop"}, {Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}},
		Pending: []v1alpha1.ObjectRecord{{Kind: "ConfigMap", Namespace: "shop", Name: "new"}},
	}}
	var out bytes.Buffer
	printInventory(&out, inv)
	require.Equal(t, `GROUP   KIND         NAMESPACE   NAME   STATE
-       Namespace    -           shop   applied
apps    Deployment   shop        web    applied
-       ConfigMap    shop        new    pending
`, out.String())
}
