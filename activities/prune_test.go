package activities

import (
	"errors"
	"strings"
	"testing"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// prunes runs a prune of a world that has applied "a" and whose inventory lists more.
func (w *world) prunes(policy v1alpha1.PrunePolicy) PruneResult {
	w.t.Helper()
	var result PruneResult
	w.succeeds(w.a.PruneOrphans, PruneInput{Sync: w.sync(), Policy: policy}, &result)
	return result
}

// S24 D17 D20: the orphans, in the reverse of the order of application, with background propagation.
func TestPruneOrphans_S24_deletes_what_the_render_no_longer_holds(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	w.lists("b a c d", "p")
	w.stands("a b c d p x")
	require.Equal(t, PruneResult{Deleted: 3}, w.prunes(v1alpha1.PrunePolicy{Orphaned: true}))
	require.Equal(t, "delete d Background, delete c Background, delete b Background", strings.Join(w.calls, ", "))
	require.Equal(t, "b a c d | p", w.listed(), "WriteInventory does that")
}

// D20
func TestPruneOrphans_D20_propagates_as_the_policy_says(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	w.lists("a b", "")
	w.stands("a b")
	w.prunes(v1alpha1.PrunePolicy{Orphaned: true, PropagationPolicy: metav1.DeletePropagationForeground})
	require.Equal(t, "delete b Foreground", strings.Join(w.calls, ", "))
}

// S25 S26 D12 D17 D27: protected, moved and foreign objects stay and are named; an absent one is no error.
func TestPruneOrphans_S25_leaves_what_is_protected(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	w.lists("a absent marked moved foreign pruned", "")
	w.stands("a marked moved pruned")
	w.foreign("foreign")
	w.live[cmRef("marked")].Annotations = map[string]string{"convoy.dev/prune": "disabled"}
	w.claims[cmRef("moved")] = types.NamespacedName{Namespace: "team-b", Name: "other"}
	result := w.prunes(v1alpha1.PrunePolicy{Orphaned: true})
	require.Equal(t, "delete pruned Background", strings.Join(w.calls, ", "))
	require.Equal(t, 1, result.Deleted)
	require.Equal(t, 1, result.Absent)
	require.Equal(t, 3, result.Kept.Total)
	require.Contains(t, result.Kept.Objects[2], "ConfigMap team-a/marked: it carries the annotation")
}

// S27: every orphan is tried, and a failed delete is PruneFailed.
func TestPruneOrphans_S27_fails_when_a_delete_failed(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	w.lists("a b c d", "")
	w.stands("a b c d")
	w.fail["delete c Background"] = &release.Failure{Class: release.Verdict, Code: 403, Message: "you may not"}
	message := w.fails(w.a.PruneOrphans, PruneInput{Sync: w.sync()}, "PruneFailed")
	require.Contains(t, message, "1 of 3 objects could not be deleted: ConfigMap team-a/c: you may not")
	require.Equal(t, "delete d Background, delete c Background, delete b Background", strings.Join(w.calls, ", "))
	require.Equal(t, "a b c d | ", w.listed())

	w.fail["delete c Background"] = errors.New("not understood")
	w.fails(w.a.PruneOrphans, PruneInput{Sync: w.sync()}, "PruneFailed")
}

// D18: what finalizers hold is no failure, and is named with them.
func TestPruneOrphans_D18_names_what_finalizers_hold(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	w.lists("a going held", "")
	w.stands("a going held")
	w.live[cmRef("going")].DeletionTimestamp, w.live[cmRef("going")].Finalizers = &w.now, []string{"x/hold"}
	w.deletion = []release.Deletion{{Terminating: true, Finalizers: []string{"y/hold", "z/hold"}}}
	result := w.prunes(v1alpha1.PrunePolicy{Orphaned: true})
	require.Equal(t, "delete held Background", strings.Join(w.calls, ", "))
	require.Equal(t, []string{"ConfigMap team-a/held (finalizers: y/hold, z/hold)", "ConfigMap team-a/going (finalizers: x/hold)"}, result.Terminating.Objects)
}

// D17: an object that changes between the look and the delete is looked at again, and not for ever.
func TestPruneOrphans_D17_looks_again_at_what_has_changed(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	w.lists("a b", "")
	w.stands("a b")
	w.deletion = []release.Deletion{{Changed: true}, {Changed: true}}
	require.Equal(t, 1, w.prunes(v1alpha1.PrunePolicy{Orphaned: true}).Deleted)
	require.Len(t, w.calls, 3)

	w.stands("b")
	w.deletion = []release.Deletion{{Changed: true}, {Changed: true}, {Changed: true}, {Changed: true}, {Changed: true}, {Changed: true}}
	require.Contains(t, w.fails(w.a.PruneOrphans, PruneInput{Sync: w.sync()}, "PruneFailed"), "changed by others")
}
