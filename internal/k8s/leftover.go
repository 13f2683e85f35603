package k8s

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"convoy.dev/convoy/internal/release"
)

// hintLeftOver looks at the live object after an Invalid answer: fields that a client-side apply still owns merge
// with the render and can be all that is wrong with it (D15). An object that is being deleted is no verdict (D14).
func (s *Session) hintLeftOver(ctx context.Context, obj *release.Object, ref release.ObjectRef, causes []metav1.StatusCause, err error) error {
	failure := asFailure(err)
	if failure == nil || !mayBeLeftOver(failure) {
		return err
	}
	meta, readErr := s.readOnce(ctx, ref)
	if readErr != nil && asFailure(readErr) == nil {
		return readErr
	}
	if readErr != nil || meta == nil {
		return failure
	}
	if meta.DeletionTimestamp != nil && refusesFinalizers(failure) {
		failure.Class = release.Accident
	}
	if managers := clientSideManagers(meta); len(managers) > 0 && explains(leftOver(meta, managers, obj), causes) {
		failure.Message += fmt.Sprintf("; hint: fields are still owned by %s from an earlier kubectl apply; "+
			"a forced sync (force) takes them over", strings.Join(managers, ", "))
	}
	return failure
}

// mayBeLeftOver: a verdict on fields that left-over ownership could cause.
func mayBeLeftOver(failure *release.Failure) bool {
	return failure.Code == http.StatusUnprocessableEntity && failure.Class == release.Verdict &&
		failure.Reason == string(metav1.StatusReasonInvalid) && len(failure.Fields) > 0 && failure.Webhook == ""
}

// leftOver are the fields that a take-over would remove: these managers alone own them, and the render does not set them.
func leftOver(meta *metav1.ObjectMeta, managers []string, obj *release.Object) []fieldpath.Path {
	var render any
	if json.Unmarshal(obj.JSON, &render) != nil {
		return nil
	}
	owned, others := fieldpath.NewSet(), fieldpath.NewSet()
	for i := range meta.ManagedFields {
		entry := &meta.ManagedFields[i]
		var set fieldpath.Set
		if entry.FieldsV1 == nil || set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())) != nil {
			continue
		}
		switch {
		case entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == "" && contains(managers, entry.Manager):
			owned = owned.Union(&set)
		case entry.Manager != FieldManager: // what convoy owned goes when the render drops it
			others = others.Union(&set)
		}
	}
	var left []fieldpath.Path
	owned.Leaves().Iterate(func(path fieldpath.Path) {
		if !path.Equals(lastAppliedPath) && !others.Has(path) && !isSet(render, path) {
			left = append(left, path.Copy())
		}
	})
	return left
}

// isSet reports whether a document has something at a path.
func isSet(document any, path fieldpath.Path) bool {
	for _, element := range path {
		var found bool
		if document, found = step(document, element); !found {
			return false
		}
	}
	return true
}

func step(document any, element fieldpath.PathElement) (any, bool) {
	if element.FieldName != nil {
		object, _ := document.(map[string]any)
		inside, found := object[*element.FieldName]
		return inside, found
	}
	list, _ := document.([]any)
	i := slices.IndexFunc(list, func(item any) bool { return isItem(item, element) })
	if element.Index != nil {
		i = *element.Index
	}
	if i < 0 || i >= len(list) {
		return nil, false
	}
	return list[i], true
}

// isItem reports whether an item of a list is the one that a path means. A key that the item leaves out has its default.
func isItem(item any, element fieldpath.PathElement) bool {
	if element.Value != nil {
		return value.Equals(value.NewValueInterface(item), *element.Value)
	}
	object, isObject := item.(map[string]any)
	if element.Key == nil || !isObject {
		return false
	}
	same := 0
	for _, key := range *element.Key {
		inside, found := object[key.Name]
		if found && !value.Equals(value.NewValueInterface(inside), key.Value) {
			return false
		}
		if found {
			same++
		}
	}
	return same > 0
}

// explains reports whether left-over fields alone can be behind an Invalid answer: behind each of its causes.
func explains(left []fieldpath.Path, causes []metav1.StatusCause) bool {
	return len(causes) > 0 && !slices.ContainsFunc(causes, func(cause metav1.StatusCause) bool { return !explainsCause(left, cause) })
}

// changes are the words of a refusal to change a live object. To take fields over does not undo the change.
var changes = regexp.MustCompile(`immutable|[Uu]pdates? to |may not (?:be )?change|cannot change`)

// explainsCause: what is there twice, too often, beside what excludes it, or lacks what more items need, is explained by
// a left-over field beside it. A value that is wrong in itself is not, unless the words name the left-over field.
func explainsCause(left []fieldpath.Path, cause metav1.StatusCause) bool {
	names := fieldNames(cause.Field)
	if changes.MatchString(cause.Message) || len(names) == 0 {
		return false
	}
	switch string(cause.Type) {
	case "FieldValueDuplicate", "FieldValueForbidden", "FieldValueTooMany", "FieldValueRequired":
		parent := names[:len(names)-1]
		return len(parent) > 0 && slices.ContainsFunc(left, func(path fieldpath.Path) bool { return within(pathNames(path), parent) })
	}
	return slices.ContainsFunc(left, func(path fieldpath.Path) bool { return isNamed(path, cause.Message) })
}

// isNamed reports whether a message names a field, which is no item of a list: their fields have everyday names.
func isNamed(path fieldpath.Path, message string) bool {
	names := pathNames(path)
	if len(names) != len(path) {
		return false
	}
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(names[len(names)-1]) + `\b`).MatchString(message)
}

var subscript = regexp.MustCompile(`\[[^\]]*\]`)

// fieldNames are the names in a cause's path: spec, ports, name of "spec.ports[1].name".
func fieldNames(field string) []string {
	return strings.FieldsFunc(subscript.ReplaceAllString(field, ""), func(r rune) bool { return r == '.' })
}

// pathNames are the names in a path, without the items of lists.
func pathNames(path fieldpath.Path) []string {
	var names []string
	for _, element := range path {
		if element.FieldName != nil {
			names = append(names, *element.FieldName)
		}
	}
	return names
}

func within(names, parent []string) bool {
	return len(names) >= len(parent) && slices.Equal(names[:len(parent)], parent)
}
