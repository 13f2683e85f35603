package gate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/require"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// looked makes objects of YAML, named a, b, c and so on.
func looked(t *testing.T, objects ...string) []release.Looked {
	t.Helper()
	out := make([]release.Looked, len(objects))
	for i, text := range objects {
		document, err := yaml.YAMLToJSON([]byte(text))
		require.NoError(t, err)
		out[i].Ref = release.ObjectRef{Kind: "Lamp", Name: string(rune('a' + i))}
		require.NoError(t, utiljson.Unmarshal(document, &out[i].Content))
	}
	return out
}

// verdict is what comes of a gate as "healthy", or as "a: message; b! message", where ! stands for failed.
func verdict(health release.Health) string {
	if health.Healthy {
		return "healthy"
	}
	var parts []string
	for _, b := range health.Blockers {
		mark := ":"
		if b.Failed {
			mark = "!"
		}
		parts = append(parts, b.Ref.Name+mark+" "+b.Message)
	}
	return strings.Join(parts, "; ")
}

const (
	lit    = "{apiVersion: lab/v1, kind: Lamp, metadata: {name: a, labels: {tier: web}}, spec: {watts: 9}, status: {phase: Lit, conditions: [{type: Ready, status: 'True'}]}}"
	dark   = "{apiVersion: lab/v1, kind: Lamp, metadata: {name: b}, spec: {watts: 9}, status: {phase: Dark}}"
	broken = "{apiVersion: lab/v1, kind: Lamp, metadata: {name: c}, spec: {watts: 9}, status: {phase: Broken}}"
	fresh  = "{apiVersion: lab/v1, kind: Lamp, metadata: {name: d}, spec: {watts: 9}}"
	config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: e}, data: {done: 'yes', count: '7'}}"
)

// D24: three outcomes, as in Flux; failed wins, and what cannot be told is in progress.
func TestJudge_D24_outcomes(t *testing.T) {
	const isLit, isBroken = "status.phase == 'Lit'", "status.phase == 'Broken'"
	for name, c := range map[string]struct {
		current, failed string
		objects         []string
		want            string
	}{
		"current":                          {isLit, "", []string{lit, lit}, "healthy"},
		"no object":                        {isLit, "", nil, "healthy"},
		"in progress":                      {isLit, isBroken, []string{lit, dark}, "b: not true yet: status.phase == 'Lit'"},
		"failed":                           {isLit, isBroken, []string{broken, lit}, "a! its failed expression is true: status.phase == 'Broken'"},
		"failed wins over current":         {"true", isBroken, []string{broken}, "a! its failed expression is true: status.phase == 'Broken'"},
		"failed beside one in progress":    {isLit, isBroken, []string{dark, broken}, "a: not true yet: status.phase == 'Lit'; b! its failed expression is true: status.phase == 'Broken'"},
		"no status yet":                    {isLit, "", []string{fresh}, "a: current: no such key: phase"},
		"no status yet, in failed":         {"true", isBroken, []string{fresh}, "a: failed: no such key: phase"},
		"has":                              {"has(status.phase) && status.phase == 'Lit'", "has(status.phase) && status.phase == 'Broken'", []string{fresh}, "a: not true yet: has(status.phase) && status.phase == 'Lit'"},
		"object":                           {"object.status.phase == 'Lit' && !has(object.data)", "", []string{lit}, "healthy"},
		"a field that the object lacks":    {"data.size() == 0 && object.kind == kind && apiVersion == 'lab/v1'", "", []string{lit}, "healthy"},
		"a macro over a list":              {"status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')", "", []string{lit}, "healthy"},
		"a list that is not there":         {"status.conditions.exists(c, c.type == 'Ready')", "", []string{dark}, "a: current: no such key: conditions"},
		"all objects":                      {"objects.filter(o, o.status.phase == 'Lit').size() * 2 >= objects.size()", "", []string{lit, dark}, "healthy"},
		"all objects, too few":             {"objects.all(o, o.status.phase == 'Lit')", "", []string{lit, dark}, "a: not true yet: objects.all(o, o.status.phase == 'Lit'); b: not true yet: objects.all(o, o.status.phase == 'Lit')"},
		"each kind its own":                {"kind != 'ConfigMap' || data.done == 'yes'", "", []string{lit, config}, "healthy"},
		"strings":                          {"data.done.upperAscii() == 'YES' && int(data.count) > 6", "", []string{config}, "healthy"},
		"numbers":                          {"spec.watts > 8", "", []string{lit}, "healthy"},
		"another type":                     {"spec.watts > 'a'", "", []string{lit}, "a: current: no such overload: an operator or function is used on a value of the wrong type"},
		"out of bounds":                    {"status.conditions[3].status == 'True'", "", []string{lit}, "a: current: index out of bounds"},
		"no number":                        {"int(data.done) > 1", "", []string{config}, "a: current: it cannot be evaluated on this object"},
		"a key that only the object names": {"object[data.done] == 1", "", []string{config}, "a: current: no such key"},
		"divided by zero":                  {"spec.watts / 0 == 1", "", []string{lit}, "a: current: division by zero"},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := Compile(c.current, c.failed)
			require.NoError(t, err)
			health, err := g.Judge(t.Context(), looked(t, c.objects...))
			require.NoError(t, err)
			require.Equal(t, c.want, verdict(health))
		})
	}
}

// D24: an object is judged as this sync left it. One that is absent or not observed yet waits, whatever it seems to say,
// and the others do not see it.
func TestJudge_D24_trusts_no_old_status(t *testing.T) {
	g, err := Compile("objects.size() == 1 && status.phase == 'Lit'", "status.phase == 'Broken'")
	require.NoError(t, err)
	all := looked(t, lit, broken, "{}")
	all[1].Unsettled = "its status is about generation 1, not 2"
	all[2].Content, all[2].Unsettled = nil, "not found"
	health, err := g.Judge(t.Context(), all)
	require.NoError(t, err)
	require.Equal(t, "b: its status is about generation 1, not 2; c: not found", verdict(health))
}

// D24: a mistake in an expression is found before anything is applied, and its place is told.
func TestCompile_tells_the_place_of_a_mistake(t *testing.T) {
	for name, c := range map[string]struct{ current, failed, field, want string }{
		"unknown variable": {"true && stauts.phase == 'Lit'", "", "current", "column 9: undeclared reference to 'stauts'"},
		"syntax":           {"status.phase ==", "", "current", "column 16: Syntax error"},
		"second line":      {"true &&\n  foo()", "", "current", "line 2, column 6: undeclared reference to 'foo'"},
		"no answer":        {"status.phase", "", "current", "column 1: the expression gives whatever the object holds there, and has to give true or false"},
		"a number":         {"1 + 1", "", "current", "gives a value of type int"},
		"in failed":        {"true", "kind == 1", "failed", "column 6: found no matching overload"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Compile(c.current, c.failed)
			var fault *Fault
			require.ErrorAs(t, err, &fault)
			require.Equal(t, c.field, fault.Field)
			require.Contains(t, err.Error(), c.want)
		})
	}
}

// An expression that would take for ever makes its wave wait, and takes no worker's time; many objects share a bound.
func TestJudge_bounds_its_cost(t *testing.T) {
	costly := strings.Repeat("objects.all(x, ", 5) + "true" + strings.Repeat(")", 5)
	g, err := Compile(costly, "")
	require.NoError(t, err)
	many := make([]string, 100)
	for i := range many {
		many[i] = lit
	}
	health, err := g.Judge(t.Context(), looked(t, many...))
	require.NoError(t, err)
	require.Len(t, health.Blockers, 100)
	require.Equal(t, "current: it costs more than is allowed: use fewer or smaller macros", health.Blockers[0].Message)
	require.Contains(t, health.Blockers[99].Message, "cost more than is allowed for so many objects")

	ended, stop := context.WithCancelCause(t.Context())
	stop(errors.New("the worker stops"))
	_, err = g.Judge(ended, looked(t, many...))
	require.EqualError(t, err, "the worker stops")
}

// D10: no message holds a value of an object, whatever an expression does with it.
func TestJudge_D10_tells_no_value(t *testing.T) {
	const value = "s3ntinel"
	object := fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {v: %[1]s, w: '1'}}", value)
	for _, current := range []string{
		"object[data.v] == 1", "int(data.v) == 1", "timestamp(data.v) < timestamp(data.v)", "data.v == '1'", "data.v.matches(data.v + '(')",
		"data[data.v] == ''", "duration(data.v) > duration('1s')", "data.v.substring(100) == ''", "bool(data.v)", "'%d'.format([data.v]) == ''",
		"{data.v: 1}[data.w] == 1", "metadata[data.v].x == 1",
	} {
		g, err := Compile(current, "")
		require.NoError(t, err, current)
		health, err := g.Judge(t.Context(), looked(t, object))
		require.NoError(t, err)
		require.False(t, health.Healthy, current)
		require.NotContains(t, verdict(health), value, current)
	}
}
