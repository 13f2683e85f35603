package release

import (
	"fmt"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// MaxWaves is how many waves a render may have (D6).
const MaxWaves = 200

// maxListed is how many errors a message lists by name (D9, D35).
const maxListed = 20

// File is one file of a source.
type File struct {
	Name string
	Data []byte
}

// ParseError is one fault of the manifests. Message holds no value of an object (D10).
type ParseError struct {
	Place   Place
	Message string
}

// Error is the place and the message.
func (e ParseError) Error() string {
	if e.Place == (Place{}) {
		return e.Message
	}
	return e.Place.String() + ": " + e.Message
}

// ParseErrors are all faults of the manifests, in the order of the files (D1).
type ParseErrors []ParseError

// Error lists the first 20 and the total.
func (e ParseErrors) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the manifests have %s:", Count(len(e), "error"))
	for i, one := range e {
		if i == maxListed {
			fmt.Fprintf(&b, "\n… and %d more", len(e)-i)
			break
		}
		b.WriteString("\n" + clip(one.Error(), 500))
	}
	return b.String()
}

// Problem is the error as the reason RenderFailed.
func (e ParseErrors) Problem() *Problem { return Problemf(RenderFailed, "%s", e.Error()) }

// Parse makes the render of manifests: multi-document YAML or JSON, values read as kubectl reads them, Lists
// flattened, empty documents dropped, fields that only a server sets dropped, stringData folded (D1, D2, D5, D6, D29,
// D36). A bad manifest makes the whole render fail with ParseErrors that hold every fault: a render error never looks
// like a smaller render. The caller sets Revision.
func Parse(files []File) (*Render, error) {
	p := parser{}
	for _, file := range files {
		p.file(file)
	}
	p.checkWaves()
	if len(p.errors) > 0 {
		return nil, p.errors
	}
	p.render.Digest = digest(p.render.Objects)
	return &p.render, nil
}

type parser struct {
	render Render
	errors ParseErrors
}

func (p *parser) fail(place Place, format string, args ...any) {
	p.errors = append(p.errors, ParseError{place, fmt.Sprintf(format, args...)})
}

func (p *parser) file(f File) {
	shift := 0 // documents beyond one per chunk, as concatenated JSON has them
	for _, c := range splitDocuments(f.Data) {
		c.number += shift
		documents, problems := decodeChunk(c, path.Ext(f.Name) == ".json")
		for _, problem := range problems {
			p.fail(Place{f.Name, problem.document, problem.line}, "%s", problem.message)
		}
		if len(documents) > 1 {
			shift += len(documents) - 1
		}
		if len(problems) > 0 {
			continue
		}
		for _, d := range documents {
			p.document(f.Name, d)
		}
	}
}

func (p *parser) document(file string, d document) {
	if d.value == nil {
		return
	}
	line := func(i int) int {
		if i < len(d.items) {
			return d.items[i]
		}
		return d.line
	}
	place := Place{file, d.number, d.line}
	m, ok := d.value.(map[string]any)
	switch {
	case !ok:
		p.fail(place, "the document is %s, not an object with apiVersion, kind and metadata", typeName(d.value))
	case isList(m):
		p.list(m, place, "", line)
	default:
		p.object(m, place, "")
	}
}

// isList reports whether a document is a list of objects rather than an object: a v1 List, or a typed list as an API
// server prints it, which has items and no name. A custom resource whose kind happens to end in List has a name.
func isList(m map[string]any) bool {
	kind, _ := m["kind"].(string)
	if kind == "List" && m["apiVersion"] == "v1" {
		return true
	}
	if !strings.HasSuffix(kind, "List") || named(m) {
		return false
	}
	items, ok := m["items"].([]any)
	for _, item := range items {
		if _, isObject := item.(map[string]any); !isObject {
			return false
		}
	}
	return ok
}

func named(m map[string]any) bool {
	metadata, _ := m["metadata"].(map[string]any)
	return metadata["name"] != nil
}

// list flattens a list. The items of a typed list carry no kind when an API server printed it: they get the list's.
func (p *parser) list(m map[string]any, place Place, prefix string, line func(int) int) {
	items, ok := m["items"].([]any)
	if !ok && m["items"] != nil {
		p.fail(place, "%sitems of the List is %s, not a list", prefix, typeName(m["items"]))
	}
	for i, item := range items {
		where := fmt.Sprintf("%sitems[%d]: ", prefix, i)
		place := Place{place.File, place.Document, line(i)}
		object, ok := item.(map[string]any)
		switch {
		case !ok:
			p.fail(place, "%sis %s, not an object", where, typeName(item))
		case isList(object):
			p.list(object, place, where, func(int) int { return place.Line })
		default:
			inheritKind(object, m)
			p.object(object, place, where)
		}
	}
}

func inheritKind(item, list map[string]any) {
	kind := strings.TrimSuffix(text(list["kind"]), "List")
	if kind == "" || item["kind"] != nil || item["apiVersion"] != nil {
		return
	}
	item["kind"], item["apiVersion"] = kind, list["apiVersion"]
}

func (p *parser) object(m map[string]any, place Place, prefix string) {
	object, faults := newObject(m)
	for _, fault := range faults {
		p.fail(place, "%s%s", prefix, fault)
	}
	if len(faults) > 0 {
		return
	}
	object.Place = place
	p.render.add(object, m)
}

// add appends an object and the warnings about it.
func (r *Render) add(object Object, m map[string]any) {
	r.Objects = append(r.Objects, object)
	if hook := hookAnnotation(m); hook != "" {
		r.Warnings = append(r.Warnings, fmt.Sprintf(
			"%s carries the hook annotation %s, which means nothing to convoy: it is applied as an ordinary object; spec.hooks holds convoy's hooks", &object, hook))
	}
}

func (p *parser) checkWaves() {
	waves := map[int32]bool{}
	for i := range p.render.Objects {
		object := &p.render.Objects[i]
		waves[object.Wave] = true
		if len(waves) > MaxWaves {
			p.fail(object.Place, "%s brings wave number %d of the render, and at most %d are allowed: give several objects the same sync wave", object, len(waves), MaxWaves)
			return
		}
	}
}

// newObject checks and normalises one document (D1, D2, D6, D29). It changes m. The faults hold no value but names.
func newObject(m map[string]any) (Object, []string) {
	object, faults := identify(m)
	if len(faults) > 0 {
		return object, faults
	}
	dropServerFields(m)
	if fault := foldStringData(&object, m); fault != "" {
		faults = append(faults, fault)
	}
	wave, fault := waveOf(m, object.Ref(true).IsSecret())
	if fault != "" {
		faults = append(faults, fmt.Sprintf("%s: %s", &object, fault))
	}
	object.Wave, object.Annotations, object.Bare = wave, annotations(m), isBare(m)
	object.JSON = canonical(m)
	return object, faults
}

// identify reads apiVersion, kind, namespace and name, and lists all that is wrong with them.
func identify(m map[string]any) (Object, []string) {
	var object Object
	var faults []string
	field := func(m map[string]any, name, path string, required bool) string {
		s, ok := m[name].(string)
		switch {
		case m[name] != nil && !ok:
			faults = append(faults, fmt.Sprintf("%s is %s, not a string: quote it", path, typeName(m[name])))
		case required && s == "":
			faults = append(faults, "the object has no "+path)
		}
		return s
	}
	apiVersion := field(m, "apiVersion", "apiVersion", true)
	kind := field(m, "kind", "kind", true)
	metadata, ok := m["metadata"].(map[string]any)
	if !ok && m["metadata"] != nil {
		return object, append(faults, fmt.Sprintf("metadata is %s, not a map", typeName(m["metadata"])))
	}
	object.Name = field(metadata, "name", "metadata.name", true)
	object.Namespace = field(metadata, "namespace", "metadata.namespace", false)
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		faults = append(faults, fmt.Sprintf("apiVersion %q is not GROUP/VERSION", clip(apiVersion, 100)))
	}
	object.GVK = gv.WithKind(kind)
	faults = append(faults, badSegments(object)...)
	return object, explain(faults, kind, object.Name, metadata)
}

// badSegments refuses names that would lead a request to another object than they say.
func badSegments(o Object) []string {
	var faults []string
	for _, s := range []struct{ field, value string }{{"metadata.name", o.Name}, {"metadata.namespace", o.Namespace}} {
		if s.value == "." || s.value == ".." || strings.ContainsAny(s.value, "/%") || strings.ContainsFunc(s.value, isControl) {
			faults = append(faults, fmt.Sprintf("%s %q is no name: it must not be . or .. or hold / or %%", s.field, clip(s.value, 100)))
		}
	}
	return faults
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// explain adds what the object is, and that generateName does not count.
func explain(faults []string, kind, name string, metadata map[string]any) []string {
	if len(faults) == 0 {
		return nil
	}
	for i, fault := range faults {
		if strings.HasSuffix(fault, "no metadata.name") && metadata["generateName"] != nil {
			faults[i] += " (generateName does not count: each sync would create one more object)"
		}
	}
	if what := strings.TrimSpace(clip(kind, 100) + " " + clip(name, 253)); what != "" {
		faults[0] = what + ": " + faults[0]
	}
	return []string{strings.Join(faults, "; ")}
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// typeName says what a value is, without its content.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case []any:
		return "a list"
	case map[string]any:
		return "a map"
	default:
		return "a number"
	}
}
