package release

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"convoy.dev/convoy/api/v1alpha1"
)

func replaced(text, scope string) string { return strings.ReplaceAll(text, "SCOPE", scope) }

// refs are ConfigMaps in default, by name.
func refs(names string) []ObjectRef {
	out := []ObjectRef{}
	for name := range strings.FieldsSeq(names) {
		out = append(out, ObjectRef{Kind: "ConfigMap", Namespace: "default", Name: name})
	}
	return out
}

// S20: the union loses no record, and keeps what was applied first in front.
func TestUnion(t *testing.T) {
	for _, c := range []struct{ previous, applied, want string }{
		{"", "", ""},
		{"", "a b", "a b"},
		{"a b c", "", "a b c"},
		{"a b c", "b d", "a b c d"},
		{"a b", "b a", "a b"},
		{"a a", "b b", "a b"},
	} {
		require.Equal(t, refs(c.want), Union(refs(c.previous), refs(c.applied)), "%+v", c)
	}
}

// S24, D17: orphans are what is left of the inventory, in the reverse of the order of application.
func TestOrphans(t *testing.T) {
	for _, c := range []struct{ inventory, applied, want string }{
		{"a b c", "a", "c b"},
		{"a b c", "", "c b a"},
		{"a b", "b a x", ""},
		{"", "a", ""},
		{"a b b", "a", "b"},
	} {
		require.ElementsMatch(t, refs(c.want), Orphans(refs(c.inventory), refs(c.applied)), "%+v", c)
		require.Equal(t, fmt.Sprint(refs(c.want)), fmt.Sprint(append([]ObjectRef{}, Orphans(refs(c.inventory), refs(c.applied))...)))
	}
}

// S19: group, kind, namespace and name make the identity; nothing else does.
func TestIdentityInSets(t *testing.T) {
	ingress := ObjectRef{"networking.k8s.io", "Ingress", "default", "web"}
	old := ObjectRef{"extensions", "Ingress", "default", "web"}
	require.Equal(t, []ObjectRef{old}, Orphans([]ObjectRef{old, ingress}, []ObjectRef{ingress}))
	require.True(t, Contains([]ObjectRef{old}, old))
	require.False(t, Contains([]ObjectRef{old}, ingress))
	require.False(t, Equal(refs("a b"), refs("b a")), "order counts")
	require.True(t, Equal(nil, refs("")))
	require.Equal(t, refs("a"), RefsOf(Records(refs("a"))))
	require.NotNil(t, Records(nil), "spec.objects is a list also when it is empty")
}

// D34: 10000 records pass, 18000 do not, and the message has the numbers.
func TestInventorySize(t *testing.T) {
	many := func(n int) []ObjectRef {
		out := make([]ObjectRef, n)
		for i := range out {
			out[i] = ObjectRef{"apps", "Deployment", "team-a", fmt.Sprintf("component-%05d", i)}
		}
		return out
	}
	require.NoError(t, CheckSize(many(10000), nil))
	require.GreaterOrEqual(t, EstimateSize(many(100), nil)-EstimateSize(nil, nil), 100*(len(`{"group":"apps","kind":"Deployment","namespace":"team-a","name":"component-00000"},`)+8),
		"D30: a fact for each record")
	err := CheckSize(many(10000), many(9000))
	problem := &Problem{}
	require.ErrorAs(t, err, &problem)
	require.Equal(t, DeployFailed, problem.Reason)
	require.Regexp(t, `19000 records and take about 1\.\d\d MB, and the API server takes 1\.40 MB`, problem.Message)
}

// S17, D24: which gate stands in front of a wave.
func TestGateFor(t *testing.T) {
	waves := []Wave{{-1, 0, 1}, {2, 1, 1}, {9, 2, 3}}
	ready := &v1alpha1.WaveHealth{Strategy: v1alpha1.HealthReady}
	policies := []v1alpha1.WavePolicy{{Wave: -1, Health: ready}, {Wave: 3, Health: ready}, {Wave: 9, Health: ready}, {Wave: 2, Approval: &v1alpha1.Approval{}}}
	for wave, before := range map[int32]*int32{
		-1: nil,           // the lowest wave: satisfied at once
		2:  nil,           // a policy without health, whose approval is switched off
		3:  nil,           // a wave without objects is no wave
		9:  new(int32(2)), // the next lower wave that has objects
	} {
		gate, ok := GateFor(wave, policies, waves)
		require.Equal(t, before != nil, ok, "wave %d", wave)
		if ok {
			require.Equal(t, *before, gate.Before.Number)
			require.Equal(t, wave, gate.Wave.Number)
			require.Equal(t, ready, gate.Health)
		}
	}
}

// D24: a person is asked in front of the lowest wave too, and where there is no wave at all.
func TestGateFor_an_approval_is_always_asked_for(t *testing.T) {
	ready, person := &v1alpha1.WaveHealth{Strategy: v1alpha1.HealthReady}, &v1alpha1.Approval{Required: true}
	waves := []Wave{{-1, 0, 1}, {2, 1, 1}}
	gate, ok := GateFor(-1, []v1alpha1.WavePolicy{{Wave: -1, Health: ready, Approval: person}}, waves)
	require.True(t, ok)
	require.Equal(t, Gate{Wave: waves[0], Approval: person}, gate)

	final := &v1alpha1.FinalGate{Health: ready, Approval: person}
	gate, ok = FinalGateFor(final, waves)
	require.True(t, ok)
	require.Equal(t, Gate{Before: waves[1], Health: ready, Approval: person}, gate)
	gate, ok = FinalGateFor(final, nil)
	require.True(t, ok)
	require.Equal(t, Gate{Approval: person}, gate)
	for _, none := range []*v1alpha1.FinalGate{nil, {}, {Approval: &v1alpha1.Approval{}}} {
		_, ok = FinalGateFor(none, waves)
		require.False(t, ok)
	}
	_, ok = FinalGateFor(&v1alpha1.FinalGate{Health: ready}, nil)
	require.False(t, ok)
}

// D35: at most 20 waves, the current one among them, with its neighbours.
func TestWindowWaves(t *testing.T) {
	waves := make([]v1alpha1.WaveStatus, 200)
	for i := range waves {
		waves[i].Wave = int32(i * 10)
	}
	for current, first := range map[int32]int32{0: 0, 40: 0, 50: 0, 60: 10, 1000: 950, 1005: 960, 1990: 1800, 5000: 1800} {
		window := WindowWaves(waves, current)
		require.Len(t, window, 20)
		require.Equal(t, first, window[0].Wave, "current %d", current)
	}
	require.Len(t, WindowWaves(waves[:7], 60), 7)
}

// Newest first, one entry per render, bounded.
func TestRecordSuccess(t *testing.T) {
	at := func(minute int) metav1.Time {
		return metav1.NewTime(time.Unix(0, 0).Add(time.Duration(minute) * time.Minute))
	}
	entry := func(digest string, minute int) v1alpha1.HistoryEntry {
		return v1alpha1.HistoryEntry{Digest: digest, FirstAppliedAt: at(minute), LastAppliedAt: at(minute)}
	}
	var history []v1alpha1.HistoryEntry
	for minute, digest := range []string{"a", "a", "b", "a", "c", "c"} {
		history = RecordSuccess(history, entry(digest, minute), 3)
	}
	require.Equal(t, []string{"c", "a", "b"}, []string{history[0].Digest, history[1].Digest, history[2].Digest})
	require.Equal(t, at(4), history[0].FirstAppliedAt, "the same render again is no new entry (case 44)")
	require.Equal(t, at(5), history[0].LastAppliedAt)
	require.Len(t, RecordSuccess(history, entry("d", 9), 0), 1)
	require.Len(t, RecordSuccess(history, entry("c", 9), 1), 1)
}

func TestWorkflowIDs(t *testing.T) {
	require.Equal(t, "sync:team-a:shop", SyncWorkflowID("team-a", "shop"))
	require.Equal(t, "release:team-a:shop", ReleaseWorkflowID("team-a", "shop"))
	require.NoError(t, CheckNames("team-a", strings.Repeat("x", 194)))
	require.ErrorContains(t, CheckNames("team-a", strings.Repeat("x", 195)), "201 bytes")
	require.Error(t, CheckNames("", "x"))
	require.Error(t, CheckNames("a:b", "x"), "a:b/c and a/b:c would share an id")
}
