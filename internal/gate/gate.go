// Package gate judges the objects of a wave by CEL expressions: the health strategy Expression (S17, D24). It reads
// nothing itself: whoever calls it has looked at the objects.
package gate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"convoy.dev/convoy/internal/release"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
)

const (
	// evalLimit bounds one evaluation of one expression, in CEL's own units: about a fifth of a second. An API server
	// allows as much for a rule of a CustomResourceDefinition.
	evalLimit = 1_000_000
	// lookLimit bounds all evaluations of one Judge: about a second.
	lookLimit = 5 * evalLimit
	// checkEvery is after how many turns of a macro an evaluation looks whether its context has ended.
	checkEvery = 100
)

// fields are the top-level fields of an object that have a variable of their own beside apiVersion and kind.
var fields = []string{"metadata", "spec", "status", "data"}

// Variables lists what an expression may refer to, for messages.
const Variables = "object, objects, apiVersion, kind, metadata, spec, status and data"

// environment is what every expression is compiled in. It is made once: that takes longer than compiling.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	options := []cel.EnvOption{
		ext.Strings(),
		cel.Variable("object", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("objects", cel.ListType(cel.MapType(cel.StringType, cel.DynType))),
		cel.Variable("apiVersion", cel.StringType),
		cel.Variable("kind", cel.StringType),
	}
	for _, field := range fields {
		options = append(options, cel.Variable(field, cel.MapType(cel.StringType, cel.DynType)))
	}
	return cel.NewEnv(options...)
})

// Gate is a pair of expressions, ready to judge. It is safe for concurrent use.
type Gate struct {
	current, failed *expression // failed is nil where there is none
}

// expression is one compiled expression.
type expression struct {
	name    string // "current" or "failed"
	source  string
	program cel.Program
}

// Fault is an expression that cannot be evaluated at all. Field is "current" or "failed"; Line and Column count from 1.
type Fault struct {
	Field        string
	Line, Column int
	Message      string
}

// Error says where the fault is, and what it is.
func (f *Fault) Error() string {
	where := fmt.Sprintf("column %d", f.Column)
	if f.Line > 1 {
		where = fmt.Sprintf("line %d, %s", f.Line, where)
	}
	return where + ": " + f.Message
}

// Compile makes a gate of its expressions; failed may be empty. It fails with a *Fault.
func Compile(current, failed string) (*Gate, error) {
	var g Gate
	var err error
	if g.current, err = compile("current", current); err != nil {
		return nil, err
	}
	if failed == "" {
		return &g, nil
	}
	if g.failed, err = compile("failed", failed); err != nil {
		return nil, err
	}
	return &g, nil
}

func compile(name, source string) (*expression, error) {
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("CEL environment: %w", err)
	}
	ast, issues := env.Compile(source)
	if issues != nil && len(issues.Errors()) > 0 {
		return nil, faultOf(name, issues.Errors()[0])
	}
	if out := ast.OutputType(); !out.IsExactType(cel.BoolType) {
		return nil, &Fault{Field: name, Line: 1, Column: 1, Message: fmt.Sprintf(
			"the expression gives %s, and has to give true or false: compare it with something (%s)", describe(out), "status.phase == 'Ready'")}
	}
	program, err := env.Program(ast, cel.CostLimit(evalLimit), cel.InterruptCheckFrequency(checkEvery))
	if err != nil {
		return nil, &Fault{Field: name, Line: 1, Column: 1, Message: err.Error()}
	}
	return &expression{name, source, program}, nil
}

func faultOf(name string, first *common.Error) *Fault {
	message := strings.Replace(first.Message, " (in container '')", "", 1)
	return &Fault{Field: name, Line: first.Location.Line(), Column: first.Location.Column() + 1, Message: message}
}

// describe names a type for people: what is not known before the objects are is dyn in CEL.
func describe(t *types.Type) string {
	if t.IsExactType(types.DynType) {
		return "whatever the object holds there"
	}
	return "a value of type " + t.String()
}

// Judge judges the objects (D24). The gate is failed as soon as failed is true for one of them, healthy when current is
// true for each, and else in progress; failed wins. An object that is absent, or that is not to be trusted yet, is in
// progress, and so is one for which an expression has no answer: a field that is not there, a cost beyond the limit. Such
// objects are the blockers, in the order given. objects in an expression are those that are to be trusted.
//
// A message holds words of the expression only, never a value of an object. Judge fails with the error of ctx alone.
func (g *Gate) Judge(ctx context.Context, looked []release.Looked) (release.Health, error) {
	objects := make([]any, 0, len(looked))
	for _, one := range looked {
		if one.Unsettled == "" {
			objects = append(objects, one.Content)
		}
	}
	health := release.Health{}
	left := int64(lookLimit)
	for _, one := range looked {
		blocker, cost := g.judge(ctx, one, objects, left)
		if ctx.Err() != nil {
			return release.Health{}, context.Cause(ctx)
		}
		left -= cost
		if blocker != nil {
			health.Blockers = append(health.Blockers, *blocker)
		}
	}
	health.Healthy = len(health.Blockers) == 0
	return health, nil
}

// judge judges one object, nil when it does not block, and tells what that cost.
func (g *Gate) judge(ctx context.Context, one release.Looked, objects []any, left int64) (blocker *release.Unhealthy, cost int64) {
	waits := func(message string) *release.Unhealthy {
		return &release.Unhealthy{Ref: one.Ref, Message: message}
	}
	switch {
	case one.Unsettled != "":
		return waits(one.Unsettled), 0
	case left <= 0:
		return waits("the expressions cost more than is allowed for so many objects: use a simpler one, or smaller waves"), 0
	}
	known := variables(one.Content, objects)
	if g.failed != nil {
		failed, why, spent := g.failed.eval(ctx, known)
		cost += spent
		switch {
		case why != "":
			return waits(why), cost
		case failed:
			return &release.Unhealthy{Ref: one.Ref, Message: "its failed expression is true: " + clip(g.failed.source), Failed: true}, cost
		}
	}
	current, why, spent := g.current.eval(ctx, known)
	cost += spent
	switch {
	case why != "":
		return waits(why), cost
	case !current:
		return waits("not true yet: " + clip(g.current.source)), cost
	}
	return nil, cost
}

// variables are what an expression sees. A field that the object does not have is empty.
func variables(object map[string]any, objects []any) map[string]any {
	known := map[string]any{"object": object, "objects": objects, "apiVersion": "", "kind": ""}
	for _, name := range []string{"apiVersion", "kind"} {
		if text, ok := object[name].(string); ok {
			known[name] = text
		}
	}
	for _, name := range fields {
		known[name] = map[string]any{}
		if value, ok := object[name].(map[string]any); ok {
			known[name] = value
		}
	}
	return known
}

// eval evaluates the expression; why says what kept it from an answer.
func (e *expression) eval(ctx context.Context, known map[string]any) (answer bool, why string, cost int64) {
	value, details, err := e.program.ContextEval(ctx, known)
	cost = costOf(details)
	if err != nil {
		return false, e.name + ": " + e.explain(err), max(cost, 1)
	}
	answer, ok := value.Value().(bool)
	if !ok {
		return false, e.name + ": it gives neither true nor false", cost
	}
	return answer, "", cost
}

func costOf(details *cel.EvalDetails) int64 {
	if details == nil || details.ActualCost() == nil {
		return evalLimit // it was cut off
	}
	return int64(min(*details.ActualCost(), lookLimit))
}

const noSuchKey = "no such key: "

// explain says why an evaluation failed without a value of the object: CEL's own text may quote one (D10).
func (e *expression) explain(err error) string {
	text := err.Error()
	var internal *types.Err
	if errors.As(err, &internal) {
		text = internal.String()
	}
	key, missing := strings.CutPrefix(text, noSuchKey)
	switch {
	case missing && key != "" && strings.Contains(e.source, key):
		return clip(text)
	case missing:
		return "no such key"
	case strings.Contains(text, "cost limit exceeded"):
		return "it costs more than is allowed: use fewer or smaller macros"
	case strings.HasPrefix(text, "no such overload"):
		return "no such overload: an operator or function is used on a value of the wrong type"
	case strings.HasPrefix(text, "index out of bounds"):
		return "index out of bounds"
	case strings.HasPrefix(text, "division by zero"), strings.HasPrefix(text, "divide by zero"):
		return "division by zero"
	}
	return "it cannot be evaluated on this object"
}

// shown is how many characters of an expression a message shows.
const shown = 200

func clip(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > shown {
		return string(runes[:shown]) + "…"
	}
	return text
}
