package main

import (
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func after(d time.Duration) *metav1.Time {
	at := metav1.NewTime(noon.Add(d))
	return &at
}

var (
	loopRuns = &loopState{running: true, queue: "convoy"}
	openRun  = openSync{runID: "run-2", startedAt: noon.Add(-2 * time.Minute)}
)

// running is waitingRelease seen with its sync open and a worker there.
func running(change func(*v1alpha1.Release, *openSync)) facts {
	rel, open := waitingRelease(), openRun
	rel.Status.ObservedGeneration, rel.Generation = 3, 4
	for i := range rel.Status.Conditions {
		rel.Status.Conditions[i].ObservedGeneration = 4
	}
	if change != nil {
		change(rel, &open)
	}
	return facts{rel: rel, now: noon, loop: loopRuns, sync: &open, syncKnown: true}
}

// rests is a Release whose last sync has ended with a reason.
func rests(reason, message string, change func(*v1alpha1.Release)) facts {
	rel := waitingRelease()
	rel.Generation = 3
	rel.Status.Waves = nil
	rel.Status.Terminating = nil
	rel.Status.NextReconcileAt = after(3 * time.Minute)
	last := rel.Status.LastAttempted
	last.Result, last.Reason, last.Message, last.FinishedAt = v1alpha1.ResultFailed, reason, message, beforeP(time.Minute)
	applied := metav1.Condition{Type: "Applied", Status: "False", Reason: reason, Message: message, LastTransitionTime: before(time.Minute)}
	if reason == "Succeeded" {
		last.Result, applied.Status = v1alpha1.ResultSucceeded, "True"
	}
	rel.Status.Conditions = []metav1.Condition{applied}
	if change != nil {
		change(rel)
	}
	return facts{rel: rel, now: noon, loop: loopRuns, syncKnown: true}
}

func withCondition(rel *v1alpha1.Release, kind, status, reason, message string) {
	rel.Status.Conditions = append(rel.Status.Conditions, metav1.Condition{
		Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: message, LastTransitionTime: before(time.Minute),
	})
}

func retryDue(rel *v1alpha1.Release) {
	withCondition(rel, "Reconciling", "True", "x", "to be synced again")
}

func fresh(change func(*v1alpha1.Release)) facts {
	rel := &v1alpha1.Release{}
	rel.Namespace, rel.Name, rel.CreationTimestamp = "team-a", "shop", before(3*time.Minute)
	if change != nil {
		change(rel)
	}
	return facts{rel: rel, now: noon, loop: loopRuns, syncKnown: true}
}

func approvalAt(final bool) func(*v1alpha1.Release, *openSync) {
	return func(rel *v1alpha1.Release, _ *openSync) {
		wave := &rel.Status.Waves[1]
		wave.BlockedBy = []v1alpha1.Blocker{{Object: "approval", Message: "convoy approve …", Since: before(5 * time.Minute)}}
		wave.BlockedByTotal = 1
		wave.Approval = &v1alpha1.ApprovalStatus{Digest: digestB}
		if final {
			wave.Phase, wave.Approval, wave.FinalApproval = v1alpha1.WaveApplied, nil, &v1alpha1.ApprovalStatus{Digest: digestB, ExpiresAt: after(time.Hour)}
		}
	}
}

// SPEC 4, D10: what is waited for, since when, what happens next, and who can unblock it, for each state of a Release.
func TestWhyAnswersInEveryState(t *testing.T) {
	for _, tc := range []struct {
		name  string
		facts facts
		says  []string
		not   []string
	}{
		{"never synced", fresh(nil),
			[]string{"team-a/shop was never synced, and the Release is 3m old.", "its loop starts the first sync by itself"}, nil},
		{"never synced, Manual", fresh(func(rel *v1alpha1.Release) { rel.Spec.SyncPolicy.Mode = v1alpha1.SyncManual }),
			[]string{"Its mode is Manual, so it waits for a request: `convoy sync team-a/shop`"}, nil},
		{"no loop", func() facts { f := fresh(nil); f.loop = &loopState{end: "not found"}; return f }(),
			[]string{"Its loop does not run (not found)", "within ten minutes, or now `convoy reconcile team-a/shop`."}, []string{"by itself, in seconds"}},
		{"no worker", func() facts { f := fresh(nil); f.silent = "convoy"; return f }(),
			[]string{"No worker polls task queue convoy, so nothing goes on until one is started: `worker --task-queue convoy`."}, []string{"in seconds"}},
		{"a worker that has gone", func() facts { f := running(nil); f.mute = "convoy"; return f }(),
			[]string{"wave 1 waits for", "No worker answered within 2s: where that stays so, none serves task queue convoy any more", "`worker --task-queue convoy`"}, nil},
		{"no Temporal", facts{rel: fresh(nil).rel, now: noon, noTemporal: "it cannot be reached"},
			[]string{"was never synced", "Temporal was not asked (it cannot be reached): this is what the Release says"}, nil},
		{"suspended", rests("Succeeded", "", func(rel *v1alpha1.Release) {
			rel.Spec.Suspend = true
			withCondition(rel, "Reconciling", "False", "Suspended", "")
		}), []string{"team-a/shop is suspended, for 60s (since 2026-11-30T11:59:00Z)", "Applied is render aaaaaaaaaaaa, revision v1", "`convoy resume team-a/shop`"}, nil},
		{"idle", rests("Succeeded", "applied", nil),
			[]string{"team-a/shop waits for nothing: it is applied, for 60s", "It is looked at next in 3m (2026-11-30T12:03:00Z)"}, []string{"pinned"}},
		{"idle, pinned", rests("Succeeded", "applied", func(rel *v1alpha1.Release) { rel.Spec.Pin = &v1alpha1.Pin{Digest: digestA} }),
			[]string{"It is pinned to render aaaaaaaaaaaa, whatever its source has, until `convoy unpin team-a/shop`."}, nil},
		{"idle, worker down", func() facts { f := rests("Succeeded", "", nil); f.silent = "convoy"; return f }(),
			[]string{"it is applied", "No worker polls task queue convoy"}, []string{"looked at next"}},
		{"idle, finalizers", rests("Succeeded", "", func(rel *v1alpha1.Release) {
			rel.Status.Terminating = []string{"PersistentVolumeClaim shop/data (finalizers: x)"}
		}),
			[]string{"Finalizers still hold PersistentVolumeClaim shop/data (finalizers: x): the controller behind them has to act."}, nil},
		{"changed", rests("Succeeded", "", func(rel *v1alpha1.Release) { rel.Generation = 9 }),
			[]string{"The Release was changed since that sync, and the loop syncs it in a moment."}, nil},
		{"out of sync", rests("Succeeded", "", func(rel *v1alpha1.Release) {
			rel.Spec.SyncPolicy.Mode = v1alpha1.SyncManual
			withCondition(rel, "Ready", "False", "OutOfSync", "applied is a, the source has b")
		}), []string{"is out of sync, for 60s", "applied is a, the source has b.", "`convoy diff team-a/shop` shows", "`convoy sync team-a/shop` starts it."}, nil},
		{"unappliable", rests("Unappliable", "Deployment x: spec.replicas: bad", nil),
			[]string{"ended as Unappliable 60s ago (2026-11-30T11:59:00Z)", "spec.replicas: bad.", "Nothing was applied.", "tries again by itself in 3m (2026-11-30T12:03:00Z), and at once after a change of the Release.", "correct them; `convoy diff team-a/shop`", "`convoy sync team-a/shop`"}, nil},
		{"bad render", rests("RenderFailed", "line 3: no kind", nil),
			[]string{"RenderFailed", "line 3: no kind.", "correct the source (spec.source.inline)"}, []string{"hunter2"}},
		{"pinned to what is not stored", rests("RenderFailed", "the render store does not hold this render", func(rel *v1alpha1.Release) {
			rel.Spec.Pin = &v1alpha1.Pin{Digest: digestA}
		}), []string{"`convoy unpin team-a/shop`", "`convoy history team-a/shop`"}, []string{"correct the source"}},
		{"health, and then a person", running(func(rel *v1alpha1.Release, _ *openSync) {
			rel.Spec.SyncPolicy.Waves = []v1alpha1.WavePolicy{{Wave: 1, Approval: &v1alpha1.Approval{Required: true}}}
		}), []string{"wave 1 waits for an approval, which may be given now: `convoy approve team-a/shop --wave 1 --digest " + digestB + "`"}, []string{"by itself"}},
		{"source out of reach", rests("RenderFailed", "503", func(rel *v1alpha1.Release) {
			retryDue(rel)
			url := "https://user:pass@example.com"
			rel.Spec.Source = v1alpha1.Source{URL: &url}
		}), []string{"convoy tries again by itself in 3m", "the source (spec.source.url) has to make it reachable"}, []string{"user:pass"}},
		{"deploy failed", func() facts {
			f := rests("DeployFailed", "Service shop/web: no answer", retryDue)
			f.doing = &workflows.LoopStatus{Failures: 5, Waiting: []string{"r-1", "r-2"}}
			return f
		}(), []string{"DeployFailed", "convoy tries again by itself in 3m (2026-11-30T12:03:00Z), after 5 failures in a row.", "to try at once: `convoy sync team-a/shop`", "2 requests wait for the next sync."}, nil},
		{"prune failed", rests("PruneFailed", "m", retryDue), []string{"Everything was applied;", "tries again by itself"}, nil},
		{"hook failed", rests("HookFailed", "m", retryDue), []string{"whoever owns the hook has to mend it", "tries again by itself"}, nil},
		{"stuck", rests("DeployFailed", "m", func(rel *v1alpha1.Release) {
			retryDue(rel)
			withCondition(rel, "Stalled", "True", "Stuck", "m")
		}), []string{"convoy calls that stuck, for 60s", "docs/stuck.md"}, nil},
		{"wave timeout", rests("WaveTimeout", "too late", func(rel *v1alpha1.Release) {
			rel.Status.Waves = waitingRelease().Status.Waves
			rel.Status.Waves[1].Phase = v1alpha1.WaveFailed
		}), []string{"ended as WaveTimeout", "It waited for Deployment shop/web (1/3[31m available) and 22 more objects.", "To wait once more: `convoy sync team-a/shop`."}, nil},
		{"rejected", rests("Superseded", "m", func(rel *v1alpha1.Release) {
			rel.Status.LastAttempted.Result = v1alpha1.ResultSuperseded
			rel.Status.Waves = []v1alpha1.WaveStatus{{Wave: 1, Approval: &v1alpha1.ApprovalStatus{Decision: v1alpha1.Rejected, By: "alice", Reason: "too late in the day", Digest: digestB}}}
		}), []string{"Render bbbbbbbbbbbb of team-a/shop was rejected by alice at wave 1: too late in the day.", "no sync of this render starts by itself", "Applied is render aaaaaaaaaaaa"}, nil},
		{"deleting", rests("PruneFailed", "Job x: forbidden", func(rel *v1alpha1.Release) {
			rel.DeletionTimestamp, rel.Finalizers = beforeP(time.Hour), []string{v1alpha1.FinalizerPrune}
		}), []string{"is being deleted, for 60m", "deletionPolicy is Prune", "Job x: forbidden.", `kubectl patch release shop -n team-a --type=merge -p '{"spec":{"deletionPolicy":"Orphan"}}'`}, nil},
		{"held by others", fresh(func(rel *v1alpha1.Release) {
			rel.DeletionTimestamp, rel.Finalizers = beforeP(time.Hour), []string{"acme/x"}
		}),
			[]string{"the finalizers acme/x: whoever set them has to act"}, nil},
		{"terminated", func() facts { f := running(nil); f.sync = nil; return f }(),
			[]string{"(run run-2) has ended in Temporal without saying so", "`convoy sync team-a/shop`"}, nil},

		{"waits for health", running(func(rel *v1alpha1.Release, _ *openSync) {
			rel.Spec.SyncPolicy.Waves = []v1alpha1.WavePolicy{{Wave: 1, Health: &v1alpha1.WaveHealth{Timeout: &metav1.Duration{Duration: 10 * time.Minute}}}}
			rel.Status.Waves = append(rel.Status.Waves, v1alpha1.WaveStatus{Wave: 2, Phase: v1alpha1.WavePending})
		}), []string{
			"team-a/shop: wave 1 waits for Deployment shop/web (1/3[31m available) and 22 more objects, for 95s (since 2026-11-30T11:58:25Z).",
			"once it is healthy, wave 1 begins by itself (1 more wave follows), or the sync ends as WaveTimeout about in 8m20s",
			"`kubectl describe deployment web -n shop` on cluster prod-eu", "a change of the Release or another render ends the wait",
			"`temporal activity complete --workflow-id sync:team-a:shop --activity-id await-wave-1 --result null",
		}, nil},
		{"waits, Temporal down", func() facts {
			f := running(nil)
			return facts{rel: f.rel, now: noon, noTemporal: "it cannot be reached"}
		}(), []string{"22 more objects, for 95s", "Temporal was not asked"}, nil},
		{"waits, worker down", func() facts { f := running(nil); f.silent = "convoy"; return f }(),
			[]string{"22 more objects, for 95s", "No worker polls task queue convoy"}, []string{"by itself"}},
		{"waits for time", running(func(rel *v1alpha1.Release, _ *openSync) {
			rel.Status.Waves[1].BlockedBy = []v1alpha1.Blocker{{Object: "wave 0", Message: "waits until 2026-11-30T12:05:00Z after wave 0 was applied", Since: before(time.Minute)}}
		}), []string{"wave 1 waits for time, for 60s", "it waits until 2026-11-30T12:05:00Z", "Then wave 1 begins by itself.", "Nobody has to act"}, nil},
		{"waits for a person", running(approvalAt(false)), []string{
			"wave 1 waits for a person, for 5m (since 2026-11-30T11:55:00Z), for as long as it takes.", "Once render bbbbbbbbbbbb is approved, wave 1 begins by itself;",
			"`convoy approve team-a/shop --wave 1 --digest " + digestB + "`, or `convoy reject`",
		}, nil},
		{"final gate", running(approvalAt(true)), []string{
			"the final gate waits for a person, for 5m (since 2026-11-30T11:55:00Z), until 2026-11-30T13:00:00Z: then", "the sync goes on to its prune",
			"`convoy approve team-a/shop --final --digest " + digestB + "`",
		}, nil},
		{"approved a moment ago", running(func(rel *v1alpha1.Release, open *openSync) {
			approvalAt(false)(rel, open)
			rel.Status.Waves[1].Approval.Decision = v1alpha1.Approved
		}), []string{"a sync runs", "of render bbbbbbbbbbbb", "It goes on by itself"}, []string{"waits for a person"}},
		{"paused", running(func(_ *v1alpha1.Release, open *openSync) {
			open.step = &pendingStep{id: "await-wave-1", attempt: 3, paused: &pause{by: "ann", reason: "maintenance", at: noon.Add(-time.Minute)}}
		}), []string{
			"its step await-wave-1 is paused in Temporal by ann, for 60s", "The reason given: maintenance.", "wave 1 waited for Deployment shop/web",
			"`temporal activity unpause --workflow-id sync:team-a:shop --activity-id await-wave-1`",
		}, nil},
		{"runs, asked", running(func(rel *v1alpha1.Release, open *openSync) {
			rel.Status.Waves[1].Phase, rel.Status.Waves[1].BlockedBy = v1alpha1.WaveApplying, nil
			open.query = &workflows.SyncStatus{Step: "apply"}
			open.step = &pendingStep{id: "apply-wave-1", attempt: 1, progress: activities.Progress{Wave: int32p(1), Done: 3, Total: 12}}
		}), []string{"a sync runs, for 2m (since 2026-11-30T11:58:00Z), of render bbbbbbbbbbbb, revision v2, asked for by alice, forced", "at: apply, wave 1, 3 of 12 objects.", "`convoy status team-a/shop --watch`"}, nil},
		{"runs, tries again", running(func(rel *v1alpha1.Release, open *openSync) {
			rel.Status.LastAttempted.RunID = "run-1" // status is about the sync before
			open.step = &pendingStep{id: "dry-run", attempt: 4, lastFailure: "no answer", nextTry: noon.Add(8 * time.Second)}
		}), []string{"team-a/shop: a sync runs, for 2m", "at: dry-run.", "Try 3 of the step dry-run failed: no answer.", "The next is due in 8s", "`temporal activity reset --workflow-id sync:team-a:shop --activity-id dry-run`"}, nil},
		{"runs, suspended and changed", running(func(rel *v1alpha1.Release, _ *openSync) {
			rel.Spec.Suspend = true
		}), []string{"no further sync starts after this one until `convoy resume team-a/shop`"}, nil},
		{"runs, changed", running(func(rel *v1alpha1.Release, _ *openSync) { rel.Generation = 5 }),
			[]string{"The Release was changed since this sync began"}, []string{"WaveTimeout"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := why(tc.facts)
			for _, text := range tc.says {
				require.Contains(t, got, text)
			}
			for _, text := range append(tc.not, "\n", "  ", "..", "\x1b") {
				require.NotContains(t, got, text)
			}
			require.True(t, strings.HasSuffix(got, "."), got)
		})
	}
}

// A message of a condition may have 16 KiB: the answer stays a paragraph.
func TestWhyStaysAParagraph(t *testing.T) {
	got := why(rests("DeployFailed", strings.Repeat("a long story ", 1000), retryDue))
	require.Less(t, len(got), 1500)
	require.Contains(t, got, "… convoy tries again by itself")
}

func TestDescribeNamesTheObject(t *testing.T) {
	require.Equal(t, "kubectl describe deployment web -n shop", describe("Deployment shop/web"))
	require.Equal(t, "kubectl describe namespace shop", describe("Namespace shop"))
}
