package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
)

// The tests named TestCase_NN_… are cases from public bug reports; their manifests are in testdata/cases.

var writtenDefault = regexp.MustCompile(`\bnamespace: default([,}\s]|$)`)

// caseRender reads a file of a case. The namespace "default", where it is written out, becomes the world's namespace;
// replacements are pairs of old and new text beside that. Names of cluster-scoped objects stay as they are.
func (w *world) caseRender(name, file string, replacements ...string) string {
	w.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "cases", name, file))
	require.NoError(w, err)
	text := writtenDefault.ReplaceAllString(string(data), "namespace: "+w.ns+"$1")
	return strings.NewReplacer(replacements...).Replace(text)
}

// ownGroup is the replacement for caseRender that gives the world an API group of its own, so that a case which brings
// a CustomResourceDefinition meets nothing that another test or an earlier run has left. group is what it is called in
// expectations.
func (w *world) ownGroup(written string) (group string, replacement []string) {
	group = w.ns + "." + written
	return group, []string{written, group}
}

// removeAtEnd deletes a cluster-scoped object, or one in another namespace, when the test ends.
func (w *world) removeAtEnd(apiVersion, kind, namespace, name string) {
	w.Cleanup(func() {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
		o.SetNamespace(namespace)
		o.SetName(name)
		_ = w.kube.Delete(context.Background(), o) // the test's own context has ended by now
	})
}

// condition is a condition of a Release as "Status/Reason", empty when it has none of this type.
func (w *world) condition(name, kind string) string {
	w.Helper()
	condition := meta.FindStatusCondition(w.get(name).Status.Conditions, kind)
	if condition == nil {
		return ""
	}
	return string(condition.Status) + "/" + condition.Reason
}

// version is what changes when an object changes: its uid, resourceVersion and generation.
func version(o *unstructured.Unstructured) string {
	return fmt.Sprintf("uid %s, resourceVersion %s, generation %d", o.GetUID(), o.GetResourceVersion(), o.GetGeneration())
}

// steps are the activities of a run, with the attempts that each took, and how many timers it started.
func (w *world) steps(run client.WorkflowRun) (attempts map[string]int, timers int) {
	w.Helper()
	attempts = map[string]int{}
	ids := map[int64]string{}
	iterator := w.temporal.GetWorkflowHistory(w.Context(), run.GetID(), run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for iterator.HasNext() {
		event, err := iterator.Next()
		require.NoError(w, err)
		if scheduled := event.GetActivityTaskScheduledEventAttributes(); scheduled != nil {
			ids[event.GetEventId()] = scheduled.GetActivityId()
		}
		if started := event.GetActivityTaskStartedEventAttributes(); started != nil {
			attempts[ids[started.GetScheduledEventId()]] += int(started.GetAttempt())
		}
		if event.GetTimerStartedEventAttributes() != nil {
			timers++
		}
	}
	return attempts, timers
}

// isRejected syncs a Release and requires what a rejection means, whatever its cause: Unappliable, said after one
// attempt of the dry run without any backoff, no step after it, no request that could change an object, and nobody who
// would try it again by himself (S6 S7 S29 S30). It returns the message. requests are accepted beside those in the
// world's namespace.
func (w *world) isRejected(name string, also ...func(request) bool) string {
	w.Helper()
	before := w.get(name).Status
	since := w.mark()
	run := w.start(workflows.SyncInput{Name: name})
	_, reason := w.await(run)
	require.Equal(w, "Unappliable", reason, w.message(name))
	require.Equal(w, "False/Unappliable", w.applied(name))
	require.Equal(w, "True/Unappliable", w.condition(name, v1alpha1.ConditionStalled))
	require.Equal(w, "False/Unappliable", w.condition(name, v1alpha1.ConditionReconciling))

	attempts, timers := w.steps(run)
	require.Equal(w, map[string]int{"prepare": 1, "dry-run": 1, "record": 1}, attempts)
	require.Zero(w, timers)
	require.Empty(w, said(changes(w.requests(since, also...))))

	after := w.get(name).Status
	require.Equal(w, before.LastSuccessful, after.LastSuccessful)
	require.Equal(w, before.History, after.History)
	require.Equal(w, run.GetRunID(), after.LastAttempted.RunID)
	require.Equal(w, v1alpha1.ResultFailed, after.LastAttempted.Result)
	require.Equal(w, "Unappliable", after.LastAttempted.Reason)
	require.Equal(w, w.message(name), after.LastAttempted.Message)
	require.NotNil(w, after.LastAttempted.FinishedAt)
	return w.message(name)
}

// willRetry requires that a failed sync is an accident that convoy tries again by itself (D22).
func (w *world) willRetry(name, reason string) {
	w.Helper()
	require.Equal(w, "True/"+reason, w.condition(name, v1alpha1.ConditionReconciling))
	require.Equal(w, "False/"+reason, w.condition(name, v1alpha1.ConditionStalled))
}

// entries are the entries of one field manager.
func entries(o kube.Object, manager string) []metav1.ManagedFieldsEntry {
	var list []metav1.ManagedFieldsEntry
	for _, entry := range o.GetManagedFields() {
		if entry.Manager == manager {
			list = append(list, entry)
		}
	}
	return list
}

// text is a string in an object, number an integer; both fail when there is none.
func (w *world) text(o *unstructured.Unstructured, path ...string) string {
	w.Helper()
	value, found, err := unstructured.NestedString(o.Object, path...)
	require.NoError(w, err)
	require.True(w, found, "no %v", path)
	return value
}

func (w *world) number(o *unstructured.Unstructured, path ...string) int64 {
	w.Helper()
	value, found, err := unstructured.NestedInt64(o.Object, path...)
	require.NoError(w, err)
	require.True(w, found, "no %v", path)
	return value
}

// list is a list of maps in an object.
func (w *world) list(o *unstructured.Unstructured, path ...string) []map[string]any {
	w.Helper()
	values, found, err := unstructured.NestedSlice(o.Object, path...)
	require.NoError(w, err)
	require.True(w, found, "no %v", path)
	var list []map[string]any
	for _, value := range values {
		list = append(list, value.(map[string]any))
	}
	return list
}
