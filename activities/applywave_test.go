package activities

import (
	"errors"
	"strings"
	"testing"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// S15 S16 S20 S31 D13: the claim, the objects of the wave in the order of the render, the union, the status.
func TestApplyWave_claims_applies_in_order_and_records(t *testing.T) {
	w := newWorld(t, cm("z", 1), cm("other", 2), cm("kept", 1), cm("a", 1))
	w.lists("kept old", "left")
	var result ApplyWaveResult
	w.succeeds(w.a.ApplyWave, WaveInput{Sync: w.sync(), Wave: 1}, &result)
	require.Equal(t, "save kept old | left z a, apply z, apply kept, apply a, save kept old z a | left, status", strings.Join(w.calls, ", "))
	require.Equal(t, 3, result.Applied)
	require.Len(t, w.rel.Status.Waves, 2)
	wave := w.rel.Status.Waves[0]
	require.Equal(t, v1alpha1.WaveApplied, wave.Phase)
	require.EqualValues(t, 3, wave.Applied)
	require.NotNil(t, wave.FinishedAt)
	require.Equal(t, v1alpha1.WavePending, w.rel.Status.Waves[1].Phase)
}

// S18 S20 S31 D13: the first failure stops the wave. What was applied is recorded, and what may have been applied
// stays pending.
func TestApplyWave_S18_stops_at_the_first_failure(t *testing.T) {
	for name, c := range map[string]struct {
		failure error
		listed  string
	}{
		"a verdict":             {&release.Failure{Class: release.Verdict, Code: 403, Message: "exceeded quota"}, "old a | "},
		"an uncertain accident": {&release.Failure{Class: release.Accident, Message: "no answer", Uncertain: true}, "old a | b"},
		"another error":         {errors.New("who knows"), "old a | b"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cm("a", 0), cm("b", 0), cm("c", 0))
			w.lists("old", "")
			w.fail["apply b"] = c.failure
			message := w.fails(w.a.ApplyWave, WaveInput{Sync: w.sync()}, "DeployFailed")
			require.Contains(t, message, c.failure.Error()[:9])
			require.Equal(t, "apply a, apply b", w.changes("apply"))
			require.Equal(t, c.listed, w.listed())
			require.Equal(t, v1alpha1.WaveFailed, w.rel.Status.Waves[0].Phase)
			require.EqualValues(t, 1, w.rel.Status.Waves[0].Applied)
		})
	}
}

// D13 D34: without the claim nothing is applied.
func TestApplyWave_D34_applies_nothing_without_a_claim(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	w.fail["save  | a"] = errors.New("too large")
	require.Contains(t, w.fails(w.a.ApplyWave, WaveInput{Sync: w.sync()}, "DeployFailed"), "the inventory was not written")
	require.Empty(t, w.changes("apply"))
}

// D34: a union that cannot be written fails the wave.
func TestApplyWave_D34_fails_when_the_union_cannot_be_written(t *testing.T) {
	w := newWorld(t, cm("a", 0))
	w.fail["save a | "] = errors.New("too large")
	require.Contains(t, w.fails(w.a.ApplyWave, WaveInput{Sync: w.sync()}, "DeployFailed"), "the inventory was not written")
}

// D27: an object that another Release has taken since the sync began is not applied; one that may move here leaves the
// other inventory before it is applied.
func TestApplyWave_D27_looks_once_more_who_has_the_objects(t *testing.T) {
	old := types.NamespacedName{Namespace: "team-a", Name: "old"}
	t.Run("taken", func(t *testing.T) {
		w := newWorld(t, cm("a", 0), cm("b", 0))
		w.claims[cmRef("b")] = old
		require.Contains(t, w.fails(w.a.ApplyWave, WaveInput{Sync: w.sync()}, "RenderFailed"), "ConfigMap team-a/b belongs to Release team-a/old")
		require.Empty(t, w.changes("apply"))
		require.Equal(t, " | a", w.listed(), "the claim on it is given back")
	})
	t.Run("adopted", func(t *testing.T) {
		w := newWorld(t, cm("a", 0), cm("b", 0, "convoy.dev/adopt: enabled"))
		w.claims[cmRef("b")] = old
		w.succeeds(w.a.ApplyWave, WaveInput{Sync: w.sync()}, nil)
		require.Equal(t, "save  | a b, disclaim team-a/old 1, apply a, apply b, save a b | ", w.changes("save", "disclaim", "apply"))
	})
}

// D16 D35: a sync that lost its fence writes nothing, neither objects nor inventory nor status.
func TestApplyWave_D16_is_fenced(t *testing.T) {
	for name, take := range map[string]func(*world){
		"before the wave": func(w *world) { w.rel.Status.Fence.Number++ },
		"after the last apply": func(w *world) {
			w.onApply = func(name string) {
				if name == "b" {
					w.rel.Status.Fence.Number++
					w.rel.ResourceVersion += "other"
					w.inv.ResourceVersion += "other"
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cm("a", 0), cm("b", 0))
			w.lists("old", "")
			in := WaveInput{Sync: w.sync()}
			take(w)
			before := w.rel.DeepCopy()
			w.fails(w.a.ApplyWave, in, Fenced)
			require.Empty(t, w.changes("status"))
			require.Equal(t, before.Status.Waves, w.rel.Status.Waves)
			if name == "before the wave" {
				require.Empty(t, w.calls)
			}
			require.NotContains(t, w.listed(), "old a b |")
		})
	}
}

// D11: a wave that changed definitions ends when they can be used, and fails when they cannot.
func TestApplyWave_D11_awaits_the_definitions_that_it_changed(t *testing.T) {
	crd := "---\n{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: lamps.lab.example.test}}\n"
	w := newWorld(t, crd, cm("a", 0))
	w.succeeds(w.a.ApplyWave, WaveInput{Sync: w.sync()}, nil)
	require.Equal(t, "apply lamps.lab.example.test, apply a, await lamps.lab.example.test", w.changes("apply", "await"))

	w = newWorld(t, crd, cm("a", 0))
	w.fail["await lamps.lab.example.test"] = &release.Failure{Class: release.Accident, Message: "its names are not accepted"}
	require.Contains(t, w.fails(w.a.ApplyWave, WaveInput{Sync: w.sync()}, "DeployFailed"), "its names are not accepted")
	require.Equal(t, v1alpha1.WaveFailed, w.rel.Status.Waves[0].Phase)
}

// D30: the union holds the fact of each object that was applied, and what others hold keeps its own; the second sync of
// the same writes no inventory.
func TestApplyWave_D30_records_what_the_applies_left_behind(t *testing.T) {
	w := newWorld(t, cm("z", 1), cm("kept", 1), cm("a", 1))
	w.lists("kept old older", "left")
	w.knows("old")
	w.succeeds(w.a.ApplyWave, WaveInput{Sync: w.sync(), Wave: 1}, nil)
	require.Equal(t, "kept old older? z a", w.known())

	w.calls = nil
	w.succeeds(w.a.ApplyWave, WaveInput{Sync: w.sync(), Wave: 1}, nil)
	require.Empty(t, w.changes("save"))

	w.inv.Spec.Facts = ""
	w.succeeds(w.a.ApplyWave, WaveInput{Sync: w.sync(), Wave: 1}, nil)
	require.Equal(t, "save kept old older z a | left", w.changes("save"), "facts alone are worth a write")
	require.Equal(t, "kept old? older? z a", w.known())
}

// S18 S20 D30: a wave that stops half-way records the facts of what it applied; so does one that met another writer.
func TestApplyWave_D30_records_facts_whatever_the_end(t *testing.T) {
	t.Run("a failure", func(t *testing.T) {
		w := newWorld(t, cm("a", 0), cm("b", 0))
		w.lists("b", "")
		w.fail["apply b"] = &release.Failure{Class: release.Verdict, Code: 403, Message: "exceeded quota"}
		w.fails(w.a.ApplyWave, WaveInput{Sync: w.sync()}, "DeployFailed")
		require.Equal(t, "b? a", w.known())
	})
	t.Run("a conflict", func(t *testing.T) {
		w := newWorld(t, cm("a", 0), cm("b", 0))
		w.lists("old moved a", "")
		w.knows("old moved")
		w.onApply = func(name string) {
			if name == "b" { // another Release takes an object away
				release.SetObjects(w.inv, cmRefs("old a"), release.FactsOf(w.inv))
				w.inv.ResourceVersion += "other"
			}
		}
		w.succeeds(w.a.ApplyWave, WaveInput{Sync: w.sync()}, nil)
		require.Equal(t, "old a b", w.known())
	})
}
