package release

import (
	"testing"

	"github.com/stretchr/testify/require"

	"convoy.dev/convoy/api/v1alpha1"
)

// D30: a Fact is about the uid and the own entry, and about nothing else.
func TestFactOf_D30(t *testing.T) {
	fields := []byte(`{"f:data":{"f:key":{}}}`)
	fact := FactOf("u1", "v1", "", fields)
	require.Len(t, fact, 8)
	require.Equal(t, fact, FactOf("u1", "v1", "", append([]byte(nil), fields...)))
	for name, other := range map[string]Fact{
		"made anew":             FactOf("u2", "v1", "", fields),
		"a field less":          FactOf("u1", "v1", "", []byte(`{"f:data":{}}`)),
		"another version":       FactOf("u1", "v2", "", fields),
		"no own entry any more": FactOf("u1", "", "", nil),
		"another time":          FactOf("u1", "v1", "2026-01-01T00:00:00Z", fields),
		"borders do count":      FactOf("u", "1v1", "", fields),
	} {
		require.NotEqual(t, fact, other, name)
		require.Len(t, other, 8, name)
	}
	require.Empty(t, FactOf("", "v1", "", fields), "without a uid nothing is known")
}

// D13 D30: convoy sets empty labels and annotations on bare objects, and the first label of somebody else takes the
// empty map over. That is no drift; losing the whole entry is.
func TestFactOf_D30_empty_maps(t *testing.T) {
	of := func(fields string) Fact { return FactOf("u", "v1", "", []byte(fields)) }
	data := of(`{"f:data":{"f:key":{}},"f:metadata":{"f:annotations":{},"f:labels":{"f:a":{}}}}`)
	for name, c := range map[string]struct {
		fields string
		same   bool
	}{
		"the empty map is taken":     {`{"f:data":{"f:key":{}},"f:metadata":{"f:labels":{"f:a":{}}}}`, true},
		"a label is taken":           {`{"f:data":{"f:key":{}},"f:metadata":{"f:annotations":{},"f:labels":{}}}`, false},
		"all of metadata is taken":   {`{"f:data":{"f:key":{}}}`, false},
		"a key of data is taken":     {`{"f:metadata":{"f:annotations":{},"f:labels":{"f:a":{}}}}`, false},
		"a key with the name of one": {`{"f:data":{"f:labels":{}},"f:metadata":{"f:annotations":{},"f:labels":{"f:a":{}}}}`, false},
		"the same":                   {`{"f:data":{"f:key":{}},"f:metadata":{"f:annotations":{},"f:labels":{"f:a":{}}}}`, true},
	} {
		require.Equal(t, c.same, of(c.fields) == data, name)
	}
	require.Equal(t, of(`{"f:data":{"f:key":{}},"f:metadata":{"f:labels":{}},"f:type":{}}`), of(`{"f:data":{"f:key":{}},"f:type":{}}`))
	bare := of(`{"f:metadata":{"f:annotations":{},"f:labels":{}}}`)
	require.Equal(t, bare, of(`{"f:metadata":{"f:annotations":{}}}`), "somebody's first label")
	require.Equal(t, bare, of(`{"f:metadata":{"f:labels":{}}}`), "somebody's first annotation")
	require.NotEqual(t, bare, FactOf("u", "", "", nil), "the entry is gone")
	require.NotEqual(t, of(`{"f:data":{"f:labels":{}}}`), of(`{"f:data":{}}`), "a key of data is no empty map")
	require.Equal(t, of(`{"f:labels":{}`), of(`{"f:labels":{}`), "what cannot be read counts as it stands")
}

// D30: rows are read back as they were written, and never beside other records.
func TestPackFacts_D30(t *testing.T) {
	a, b := FactOf("a", "v1", "", nil), FactOf("b", "v1", "", nil)
	require.NotEqual(t, a, b)
	for name, c := range map[string]struct {
		facts  []Fact
		packed string
	}{
		"none":             {[]Fact{}, ""},
		"known":            {[]Fact{a, b}, string(a + b)},
		"one unknown":      {[]Fact{a, "", b}, string(a) + "........" + string(b)},
		"all unknown":      {[]Fact{"", ""}, ""},
		"what looks empty": {[]Fact{"--------", "AAAAAAAA"}, "--------AAAAAAAA"},
	} {
		require.Equal(t, c.packed, PackFacts(c.facts), name)
		require.Equal(t, c.facts, UnpackFacts(c.packed, len(c.facts)), name)
	}
	require.Equal(t, []Fact{"", ""}, UnpackFacts(string(a), 2), "too short")
	require.Equal(t, []Fact{"", ""}, UnpackFacts(string(a+b+a), 2), "too long")
	require.Equal(t, []Fact{a, ""}, UnpackFacts(string(a)+"12 45 78", 2), "a row that is no sum")
	require.Equal(t, "........"+string(a), PackFacts([]Fact{"short", a}), "no row moves another")
}

// D30: what counts as drift, and in which words.
func TestDrift_D30(t *testing.T) {
	one, two := FactOf("1", "v1", "", nil), FactOf("2", "v1", "", nil)
	for name, c := range map[string]struct {
		recorded Fact
		seen     Seen
		what     string
	}{
		"as it was":              {one, Seen{Present: true, Fact: one}, ""},
		"gone":                   {one, Seen{}, "is gone"},
		"gone, and not recorded": {"", Seen{}, "is gone"},
		"being deleted":          {one, Seen{Present: true, Deleting: true, Fact: one}, "is being deleted"},
		"changed":                {one, Seen{Present: true, Fact: two}, "was changed or replaced by another writer"},
		"not recorded":           {"", Seen{Present: true, Fact: one}, "has no recorded state"},
		"neither is known":       {"", Seen{Present: true}, "has no recorded state"},
	} {
		ref := ObjectRef{"", "ConfigMap", "shop", "settings"}
		var want []Drifted
		if c.what != "" {
			want = []Drifted{{ref, c.what}}
		}
		require.Equal(t, want, Drift([]ObjectRef{ref}, []Fact{c.recorded}, []Seen{c.seen}), name)
	}
	refs := []ObjectRef{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	got := Drift(refs, []Fact{one, two, one}, []Seen{{}, {Present: true, Fact: two}, {Present: true, Fact: two}})
	require.Equal(t, []Drifted{{refs[0], "is gone"}, {refs[2], "was changed or replaced by another writer"}}, got)
	require.Empty(t, Drift(nil, nil, nil))
}

// D30: the facts of an inventory follow its objects wherever they go.
func TestSetObjects_D30_keeps_rows_and_records_together(t *testing.T) {
	a, b, c := ObjectRef{Kind: "A", Name: "a"}, ObjectRef{Kind: "B", Name: "b"}, ObjectRef{Kind: "C", Name: "c"}
	facts := map[ObjectRef]Fact{a: FactOf("a", "", "", nil), b: FactOf("b", "", "", nil)}
	inv := &v1alpha1.ReleaseInventory{}
	require.True(t, SetObjects(inv, []ObjectRef{a, b, c}, facts))
	require.Equal(t, facts, FactsOf(inv), "c is unknown")
	require.False(t, SetObjects(inv, []ObjectRef{a, b, c}, facts), "the same again")

	require.True(t, SetObjects(inv, []ObjectRef{c, b, a}, FactsOf(inv)), "another order")
	require.Equal(t, facts, FactsOf(inv))
	require.Equal(t, []Fact{"", facts[b], facts[a]}, UnpackFacts(inv.Spec.Facts, 3))

	require.True(t, SetObjects(inv, []ObjectRef{c, a}, FactsOf(inv)), "one leaves")
	require.Equal(t, map[ObjectRef]Fact{a: facts[a]}, FactsOf(inv))

	require.True(t, SetObjects(inv, []ObjectRef{c, a}, nil), "only the facts changed")
	require.Empty(t, inv.Spec.Facts)
	require.False(t, SetObjects(inv, []ObjectRef{c, a}, nil))

	inv.Spec.Facts = string(facts[a])
	require.Empty(t, FactsOf(inv), "a string about other records says nothing")
}
