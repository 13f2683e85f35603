package preview

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &out))
	return out
}

func TestCompareTellsFieldsByPath(t *testing.T) {
	for _, tc := range []struct {
		name       string
		live, next string
		want       []Field
	}{
		{"nothing", `{"a":1}`, `{"a":1}`, nil},
		{"a value", `{"spec":{"replicas":1}}`, `{"spec":{"replicas":3}}`, []Field{{Path: "spec.replicas", Old: "1", New: "3"}}},
		{"null is a value", `{"a":null}`, `{}`, []Field{{Path: "a", Old: "null"}}},
		{"a new map, whole", `{}`, `{"a":{"b":"c"}}`, []Field{{Path: "a", New: `{"b":"c"}`}}},
		{"an odd key", `{"data":{"tls.crt":"a"}}`, `{"data":{}}`, []Field{{Path: `data["tls.crt"]`, Old: `"a"`}}},
		{"lists by name", `{"c":[{"name":"a","image":"1"},{"name":"b"}]}`, `{"c":[{"name":"b"},{"name":"a","image":"2"}]}`,
			[]Field{{Path: "c[name=a].image", Old: `"1"`, New: `"2"`}}},
		{"order alone", `{"c":[{"name":"a"},{"name":"b"}]}`, `{"c":[{"name":"b"},{"name":"a"}]}`,
			[]Field{{Path: "c", Old: `["a","b"]`, New: `["b","a"]`}}},
		{"lists by position", `{"l":[1,2]}`, `{"l":[1,3,4]}`, []Field{{Path: "l[1]", Old: "2", New: "3"}, {Path: "l[2]", New: "4"}}},
		{"what a server writes", `{"metadata":{"resourceVersion":"1","generation":1,"managedFields":[],"uid":"x","name":"n"},"status":{"a":1}}`,
			`{"metadata":{"resourceVersion":"2","generation":2,"name":"n"},"status":{"a":2}}`, nil},
		{"kubectl's copy", `{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"x"}}}`, `{"metadata":{}}`, nil},
		{"another type", `{"a":{"b":1}}`, `{"a":[1]}`, []Field{{Path: "a", Old: `{"b":1}`, New: "[1]"}}},
		{"control characters", `{"a":"x"}`, `{"a":"\u001b[31m"}`, []Field{{Path: "a", Old: `"x"`, New: `"\u001b[31m"`}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, Compare(object(t, tc.live), object(t, tc.next), false))
		})
	}
}

func TestCompareTellsTheChangedLinesOfLongTexts(t *testing.T) {
	got := Compare(map[string]any{"a": "1\n2\n3\n4"}, map[string]any{"a": "1\ntwo\n3\nfour\n4"}, false)
	require.Equal(t, []string{"-2", "-3", "+two", "+3", "+four"}, got[0].Lines)
	got = Compare(map[string]any{"a": strings.Repeat("a\n", 50)}, map[string]any{"a": "b"}, false)
	require.Len(t, got[0].Lines, maxLines+1)
	require.Equal(t, "… and 32 more lines", got[0].Lines[maxLines])
}

func TestCompareCutsLongValues(t *testing.T) {
	got := Compare(map[string]any{}, map[string]any{"a": strings.Repeat("ä", 500)}, false)
	require.Len(t, []rune(got[0].New), maxValue)
}

// D10: of a Secret the keys are told and no value, wherever it stands.
func TestCompareHidesEveryValueOfASecret(t *testing.T) {
	live := object(t, `{"data":{"password":"b25l","same":"c2FtZQ==","gone":"Z29uZQ=="},"type":"Opaque"}`)
	next := object(t, `{"data":{"password":"dHdv","same":"c2FtZQ==","tls.crt":"bmV3"},"type":"Opaque","metadata":{"annotations":{"token":"hunter2"},"finalizers":["hunter2"]}}`)
	require.Equal(t, []Field{
		{Path: "data.gone", Old: Hidden},
		{Path: "data.password", Old: Hidden, New: Hidden},
		{Path: `data["tls.crt"]`, New: Hidden},
		{Path: "metadata.annotations.token", New: Hidden},
		{Path: "metadata.finalizers", New: Hidden},
	}, Compare(live, next, true))
	require.Equal(t, []Field{{Path: "data.a", New: Hidden}}, Compare(map[string]any{}, object(t, `{"data":{"a":"multi\nline"}}`), true))
}
