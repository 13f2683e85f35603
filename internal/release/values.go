package release

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"

	yamlv2 "go.yaml.in/yaml/v2"
	yamlv3 "go.yaml.in/yaml/v3"
)

// maxExpanded bounds what one document may grow to: a handful of YAML aliases can stand for gigabytes.
const maxExpanded = 128 << 20

// maxDepth bounds how deep values may be nested.
const maxDepth = 1000

// document is one parsed document. Its value is made of map[string]any, []any, string, bool, nil and json.Number.
type document struct {
	number int
	line   int
	value  any
	// items are the lines of the elements of the top-level list "items", as far as they are known.
	items []int
}

// lineError is an error at a line of the file. It never holds a value, only keys: the document may be a Secret (D10).
type lineError struct {
	document int
	line     int
	message  string
}

// decodeChunk reads the documents of a chunk: one of YAML, or one or more of JSON.
func decodeChunk(c chunk, preferJSON bool) ([]document, []lineError) {
	if line, message := badText(c.text); message != "" {
		return nil, []lineError{{c.number, c.line + line, message}}
	}
	body, line := c.body()
	if !looksLikeJSON(body) {
		return decodeYAML(c)
	}
	documents, problems, syntax := decodeJSON(body, line, c.number)
	if syntax == nil {
		return documents, problems
	}
	documents, problems = decodeYAML(c)
	if len(problems) > 0 && preferJSON {
		return nil, []lineError{*syntax}
	}
	return documents, problems
}

func looksLikeJSON(text []byte) bool {
	text = bytes.TrimSpace(text)
	return len(text) > 0 && (text[0] == '{' || text[0] == '[')
}

// decodeYAML reads a document as kubectl does, which is what sigs.k8s.io/yaml makes of YAML 1.1: yes is true, 010 is
// eight. It goes its own way in two things: a repeated key is an error, unless it overrides a merged one (<<), and an
// integer keeps all its digits.
func decodeYAML(c chunk) ([]document, []lineError) {
	at := func(line int, message string) []lineError {
		return []lineError{{c.number, c.line + line, message}}
	}
	start, _ := firstContent(c.text)
	raw, err := unmarshalYAML(c.text, true)
	if repeated, ok := errors.AsType[*yamlv2.TypeError](err); ok {
		if problems := repeatedKeys(c, repeated); len(problems) > 0 {
			return nil, problems
		}
		raw, err = unmarshalYAML(c.text, false)
	}
	if err != nil {
		line, message := yamlMessage(err, start)
		return nil, at(min(line, bytes.Count(bytes.TrimSpace(c.text), []byte("\n"))), "is not valid YAML: "+message)
	}
	converted, err := (&converter{}).convert(raw, 0)
	if err != nil {
		return nil, at(start, err.Error())
	}
	d := document{number: c.number, line: c.contentLine(), value: converted}
	if hasItems(converted) {
		d.items = itemLines(c)
	}
	return []document{d}, nil
}

// unmarshalYAML reads one document, and makes sure that it is the only one: the parser stops after the first, and what
// follows would be lost without a word.
func unmarshalYAML(data []byte, strict bool) (any, error) {
	decoder := yamlv2.NewDecoder(bytes.NewReader(data))
	decoder.SetStrict(strict)
	var value, more any
	if err := decoder.Decode(&value); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch err := decoder.Decode(&more); {
	case errors.Is(err, io.EOF):
		return value, nil
	case err != nil && !errors.As(err, new(*yamlv2.TypeError)):
		return nil, err
	default:
		return nil, errors.New("a second document follows the first: separate them by a line of three dashes")
	}
}

var (
	yamlLine     = regexp.MustCompile(`^(?:yaml: )?line (\d+): (.*)$`)
	yamlRepeated = regexp.MustCompile(`^key (.*) already set in map$`)
	yamlQuoted   = regexp.MustCompile("`[^`]*`|'[^']*'")
	// yamlHarmless are messages of the parser that quote its own grammar and nothing of the document.
	yamlHarmless = regexp.MustCompile(`^(did not find expected|could not find expected|mapping values are not allowed|found (a tab )?character that cannot start|found unexpected|found a tab|found invalid|found unknown escape|control characters|block |a second document|exceeded max depth)`)
)

// yamlMessage is what the YAML parser says, without values of the document, and the line in the chunk.
func yamlMessage(err error, start int) (int, string) {
	message, line := err.Error(), start
	if m := yamlLine.FindStringSubmatch(strings.SplitN(message, "\n", 2)[0]); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil && n > 0 {
			line = n - 1
		}
		message = m[2]
	}
	message = strings.TrimPrefix(message, "yaml: ")
	if m := yamlRepeated.FindStringSubmatch(message); m != nil {
		return line, repeatedKey(strings.Trim(m[1], `"`))
	}
	if !yamlHarmless.MatchString(message) {
		message, _, _ = strings.Cut(yamlQuoted.ReplaceAllString(message, "…"), ": ")
	}
	return line, message
}

// repeatedKeys lists the keys that stand twice in one map. The parser of kubectl also complains about a key that
// overrides a merged one, which is what merging is for; so the tree of nodes decides.
func repeatedKeys(c chunk, found *yamlv2.TypeError) []lineError {
	var root yamlv3.Node
	walk := keyWalk{chunk: c}
	if err := yamlv3.Unmarshal(c.text, &root); err == nil {
		walk.visit(&root)
	}
	if len(walk.problems) > 0 || walk.merges {
		return walk.problems
	}
	for _, message := range found.Errors {
		line, message := yamlMessage(errors.New(message), 0)
		walk.problems = append(walk.problems, lineError{c.number, c.line + line, message})
	}
	return walk.problems
}

type keyWalk struct {
	chunk    chunk
	merges   bool
	problems []lineError
}

func (w *keyWalk) visit(n *yamlv3.Node) {
	for _, child := range n.Content {
		w.visit(child)
	}
	if n.Kind != yamlv3.MappingNode {
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		switch {
		case key.Tag == "!!merge":
			w.merges = true
		case key.Kind == yamlv3.ScalarNode && seen[key.Value]:
			w.problems = append(w.problems, lineError{w.chunk.number, w.chunk.line + key.Line - 1, repeatedKey(key.Value)})
		case key.Kind == yamlv3.ScalarNode:
			seen[key.Value] = true
		}
	}
}

func repeatedKey(key string) string {
	return fmt.Sprintf("key %q stands twice in one map: one of the two would be lost", clip(key, 100))
}

// converter turns what the YAML parser returns into JSON values.
type converter struct{ size int }

func (c *converter) convert(v any, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("is nested deeper than %d levels", maxDepth)
	}
	switch v := v.(type) {
	case map[any]any:
		return c.convertMap(v, depth)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			var err error
			if out[i], err = c.convert(v[i], depth+1); err != nil {
				return nil, err
			}
		}
		return out, c.grow(2 + len(v))
	case string:
		return v, c.grow(2 + len(v))
	case nil, bool:
		return v, c.grow(5)
	default:
		return number(v)
	}
}

func (c *converter) convertMap(m map[any]any, depth int) (any, error) {
	out := make(map[string]any, len(m))
	for k, v := range m {
		key, err := keyString(k)
		if err != nil {
			return nil, err
		}
		if _, twice := out[key]; twice {
			return nil, errors.New(repeatedKey(key))
		}
		if err := c.grow(4 + len(key)); err != nil {
			return nil, err
		}
		if out[key], err = c.convert(v, depth+1); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (c *converter) grow(n int) error {
	if c.size += n; c.size > maxExpanded {
		return fmt.Errorf("grows to more than %d MiB when its aliases are resolved", maxExpanded>>20)
	}
	return nil
}

// keyString is the key as sigs.k8s.io/yaml spells it.
func keyString(k any) (string, error) {
	switch k := k.(type) {
	case string:
		return k, nil
	case int:
		return strconv.Itoa(k), nil
	case int64:
		return strconv.FormatInt(k, 10), nil
	case bool:
		return strconv.FormatBool(k), nil
	case float64:
		s := strconv.FormatFloat(k, 'g', -1, 32)
		special := map[string]string{"+Inf": ".inf", "-Inf": "-.inf", "NaN": ".nan"}
		if out, ok := special[s]; ok {
			return out, nil
		}
		return s, nil
	default:
		return "", errors.New("has a key that is neither a string nor a number nor a boolean: quote it")
	}
}

// number keeps every digit of an integer; what YAML reads as a float is spelled as encoding/json spells it.
func number(v any) (any, error) {
	switch v := v.(type) {
	case int:
		return json.Number(strconv.Itoa(v)), nil
	case int64:
		return json.Number(strconv.FormatInt(v, 10)), nil
	case uint64:
		return json.Number(strconv.FormatUint(v, 10)), nil
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return nil, errors.New("holds .inf or .nan, which JSON cannot express")
		}
		text, err := json.Marshal(v)
		return json.Number(text), err
	default:
		return nil, errors.New("holds a value that JSON cannot express")
	}
}

func hasItems(v any) bool {
	m, ok := v.(map[string]any)
	if !ok {
		return false
	}
	_, ok = m["items"].([]any)
	return ok
}

// itemLines are the lines of the elements of the top-level list "items".
func itemLines(c chunk) []int {
	var root yamlv3.Node
	if err := yamlv3.Unmarshal(c.text, &root); err != nil || len(root.Content) != 1 {
		return nil
	}
	var lines []int
	top := root.Content[0]
	for i := 0; i+1 < len(top.Content); i += 2 {
		if top.Content[i].Value != "items" {
			continue
		}
		for _, item := range top.Content[i+1].Content {
			lines = append(lines, c.line+item.Line-1)
		}
	}
	return lines
}

// decodeJSON reads JSON documents that follow each other. The third result is a syntax error.
func decodeJSON(text []byte, line, number int) ([]document, []lineError, *lineError) {
	d := jsonReader{decoder: json.NewDecoder(bytes.NewReader(text)), text: text, firstLine: line, number: number}
	d.decoder.UseNumber()
	var documents []document
	for {
		d.items = nil
		token, err := d.decoder.Token()
		if errors.Is(err, io.EOF) {
			return documents, d.problems, nil
		}
		start := d.line()
		var value any
		if err == nil {
			value, err = d.value(token, 0, false)
		}
		if err != nil {
			return nil, nil, &lineError{d.number, d.line(), "is not valid JSON: " + jsonMessage(err)}
		}
		documents = append(documents, document{number: d.number, line: start, value: value, items: d.items})
		d.number++
	}
}

type jsonReader struct {
	decoder   *json.Decoder
	text      []byte
	counted   int // bytes of text whose line breaks are in lines
	lines     int
	firstLine int
	number    int
	items     []int
	problems  []lineError
}

// line of the end of the last token.
func (d *jsonReader) line() int {
	end := min(int(d.decoder.InputOffset()), len(d.text))
	if end > d.counted {
		d.lines += bytes.Count(d.text[d.counted:end], []byte("\n"))
		d.counted = end
	}
	return d.firstLine + d.lines
}

func (d *jsonReader) value(token json.Token, depth int, listed bool) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested deeper than %d levels", maxDepth)
	}
	switch token {
	case json.Delim('{'):
		return d.object(depth)
	case json.Delim('['):
		return d.array(depth, listed)
	default:
		return token, nil
	}
}

func (d *jsonReader) object(depth int) (any, error) {
	out := map[string]any{}
	for d.decoder.More() {
		token, err := d.decoder.Token()
		if err != nil {
			return nil, err
		}
		key, _ := token.(string)
		if _, twice := out[key]; twice {
			d.problems = append(d.problems, lineError{d.number, d.line(), repeatedKey(key)})
		}
		if token, err = d.decoder.Token(); err != nil {
			return nil, err
		}
		if out[key], err = d.value(token, depth+1, depth == 0 && key == "items"); err != nil {
			return nil, err
		}
	}
	_, err := d.decoder.Token()
	return out, err
}

func (d *jsonReader) array(depth int, listed bool) (any, error) {
	out := []any{}
	for d.decoder.More() {
		token, err := d.decoder.Token()
		if err != nil {
			return nil, err
		}
		if listed {
			d.items = append(d.items, d.line())
		}
		value, err := d.value(token, depth+1, false)
		if err != nil {
			return nil, err
		}
		out = append(out, value)
	}
	_, err := d.decoder.Token()
	return out, err
}

// jsonMessage is what the JSON parser says. It quotes single characters of the document at most.
func jsonMessage(err error) string {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return "it ends in the middle"
	}
	return err.Error()
}

// clip cuts a text to a number of bytes, at a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
