package preview

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Field is one field that differs. Old and New are JSON texts, cut to a line; an empty one says that the field is not
// there. Of a Secret both say only that there is something (D10).
type Field struct {
	Path string
	Old  string
	New  string
	// Lines replace Old and New for texts of several lines: what goes ("-…") and what comes ("+…").
	Lines []string
}

// Hidden stands for a value of a Secret.
const Hidden = "(hidden)"

// Bounds of what is shown of a value.
const (
	maxValue = 160
	maxLines = 20
)

// Compare lists the fields in which next differs from live, in the order of their paths. What only a server writes does
// not count. With hide no value is told, only which fields differ.
func Compare(live, next map[string]any, hide bool) []Field {
	c := comparison{hide: hide}
	c.values("", withoutServerFields(live), withoutServerFields(next))
	return c.fields
}

// serverFields of metadata are written by the API server alone.
var serverFields = []string{"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"}

// lastApplied is where a client-side apply keeps a copy of the whole object, values of Secrets too.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// withoutServerFields is a copy as far as it differs.
func withoutServerFields(object map[string]any) map[string]any {
	out := maps.Clone(object)
	delete(out, "status")
	metadata, ok := out["metadata"].(map[string]any)
	if !ok {
		return out
	}
	metadata = maps.Clone(metadata)
	for _, field := range serverFields {
		delete(metadata, field)
	}
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		annotations = maps.Clone(annotations)
		delete(annotations, lastApplied)
		metadata["annotations"] = annotations
		if len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
	out["metadata"] = metadata
	return out
}

// missing marks a field that is not there; nil is a value.
type missing struct{}

type comparison struct {
	hide   bool
	fields []Field
}

func (c *comparison) values(path string, a, b any) {
	if reflect.DeepEqual(a, b) {
		return
	}
	mapA, okA := c.asMap(a)
	mapB, okB := c.asMap(b)
	if okA && okB {
		c.maps(path, mapA, mapB)
		return
	}
	listA, okA := a.([]any)
	listB, okB := b.([]any)
	if okA && okB {
		c.lists(path, listA, listB)
		return
	}
	c.leaf(path, a, b)
}

// asMap reads a map. Where values are hidden a missing one is empty, so that the keys of the other are told.
func (c *comparison) asMap(v any) (map[string]any, bool) {
	if _, absent := v.(missing); absent && c.hide {
		return nil, true
	}
	m, ok := v.(map[string]any)
	return m, ok
}

func (c *comparison) maps(path string, a, b map[string]any) {
	if a == nil && b == nil {
		return
	}
	keys := slices.Collect(maps.Keys(a))
	for key := range b {
		if _, both := a[key]; !both {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		c.member(joined(path, key), a, b, key)
	}
}

func (c *comparison) member(path string, a, b map[string]any, key string) {
	valueA, okA := a[key]
	valueB, okB := b[key]
	if !okA {
		valueA = missing{}
	}
	if !okB {
		valueB = missing{}
	}
	if c.hide && !isMap(valueA) && !isMap(valueB) {
		if !reflect.DeepEqual(valueA, valueB) {
			c.leaf(path, valueA, valueB)
		}
		return
	}
	c.values(path, valueA, valueB)
}

func isMap(v any) bool {
	_, ok := v.(map[string]any)
	return ok
}

// lists compares element by element: by name where each element has one of its own, else by position.
func (c *comparison) lists(path string, a, b []any) {
	namedA, okA := byName(a)
	namedB, okB := byName(b)
	if !okA || !okB {
		for i := range max(len(a), len(b)) {
			c.values(fmt.Sprintf("%s[%d]", path, i), at(a, i), at(b, i))
		}
		return
	}
	names := slices.Collect(maps.Keys(namedA))
	for name := range namedB {
		if _, both := namedA[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	before := len(c.fields)
	for _, name := range names {
		c.member(fmt.Sprintf("%s[name=%s]", path, name), namedA, namedB, name)
	}
	if len(c.fields) == before {
		c.leaf(path, namesOf(a), namesOf(b))
	}
}

func byName(list []any) (map[string]any, bool) {
	out := make(map[string]any, len(list))
	for _, element := range list {
		m, _ := element.(map[string]any)
		name, ok := m["name"].(string)
		if _, twice := out[name]; !ok || twice {
			return nil, false
		}
		out[name] = element
	}
	return out, true
}

// namesOf tells a changed order.
func namesOf(list []any) any {
	names := make([]any, len(list))
	for i, element := range list {
		names[i] = element.(map[string]any)["name"]
	}
	return names
}

func at(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return missing{}
}

func (c *comparison) leaf(path string, a, b any) {
	field := Field{Path: path, Old: c.text(a), New: c.text(b)}
	textA, okA := a.(string)
	textB, okB := b.(string)
	if !c.hide && okA && okB && strings.Contains(textA+textB, "\n") {
		field.Lines = changedLines(textA, textB)
	}
	c.fields = append(c.fields, field)
}

func (c *comparison) text(v any) string {
	if _, absent := v.(missing); absent {
		return ""
	}
	if c.hide {
		return Hidden
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%q", fmt.Sprint(v))
	}
	return cut(string(raw))
}

func cut(text string) string {
	if runes := []rune(text); len(runes) > maxValue {
		return string(runes[:maxValue-1]) + "…"
	}
	return text
}

// changedLines are the lines between what two texts begin and end with.
func changedLines(a, b string) []string {
	linesA, linesB := strings.Split(a, "\n"), strings.Split(b, "\n")
	start := 0
	for start < min(len(linesA), len(linesB)) && linesA[start] == linesB[start] {
		start++
	}
	end := 0
	for end < min(len(linesA), len(linesB))-start && linesA[len(linesA)-1-end] == linesB[len(linesB)-1-end] {
		end++
	}
	var out []string
	for _, line := range linesA[start : len(linesA)-end] {
		out = append(out, "-"+cut(line))
	}
	for _, line := range linesB[start : len(linesB)-end] {
		out = append(out, "+"+cut(line))
	}
	if more := len(out) - maxLines; more > 0 {
		out = append(out[:maxLines], fmt.Sprintf("… and %d more lines", more))
	}
	return out
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// joined is the path of a member: spec.replicas, data["tls.crt"].
func joined(path, key string) string {
	switch {
	case !plainKey.MatchString(key):
		return fmt.Sprintf("%s[%q]", path, key)
	case path == "":
		return key
	}
	return path + "." + key
}
