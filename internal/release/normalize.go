package release

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// The annotations that convoy reads on objects (SPEC 4, D6).
const (
	AnnotationSyncWave     = "convoy.dev/sync-wave"
	AnnotationArgoSyncWave = "argocd.argoproj.io/sync-wave"
	AnnotationPrune        = "convoy.dev/prune"
	AnnotationAdopt        = "convoy.dev/adopt"
	AnnotationWait         = "convoy.dev/wait"
	AnnotationHandOver     = "convoy.dev/hand-over"
)

// serverFields are the members of metadata that only a server sets (D2).
var serverFields = []string{"managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink"}

// dropServerFields removes what only a server sets: an exported object is applied like one written by hand (D2).
func dropServerFields(m map[string]any) {
	delete(m, "status")
	metadata, _ := m["metadata"].(map[string]any)
	for _, field := range serverFields {
		delete(metadata, field)
	}
}

// foldStringData moves a Secret's stringData into data, where it wins. Sent as it stands, a key that is renamed would
// stay on the cluster for ever: the API server records convoy as owner of stringData, not of data (D29).
func foldStringData(o *Object, m map[string]any) (fault string) {
	if o.GVK.Group != "" || o.GVK.Kind != "Secret" || m["stringData"] == nil {
		if o.GVK.Group == "" && o.GVK.Kind == "Secret" {
			delete(m, "stringData")
		}
		return ""
	}
	clear, ok := m["stringData"].(map[string]any)
	if !ok {
		return fmt.Sprintf("%s: stringData is %s, not a map", o, typeName(m["stringData"]))
	}
	data, ok := m["data"].(map[string]any)
	if !ok && m["data"] != nil {
		return fmt.Sprintf("%s: data is %s, not a map", o, typeName(m["data"]))
	}
	delete(m, "stringData")
	if len(clear) == 0 {
		return ""
	}
	folded := make(map[string]any, len(data)+len(clear))
	for key, value := range data {
		folded[key] = value
	}
	var wrong []string
	for key, value := range clear {
		s, ok := value.(string)
		if !ok {
			wrong = append(wrong, fmt.Sprintf("%q is %s", clip(key, 100), typeName(value)))
			continue
		}
		folded[key] = base64.StdEncoding.EncodeToString([]byte(s))
	}
	m["data"] = folded
	if len(wrong) == 0 {
		return ""
	}
	sort.Strings(wrong)
	return fmt.Sprintf("%s: values of stringData must be strings, quote them: %s", o, strings.Join(wrong, ", "))
}

// isBare reports whether an object sets no field beside its identity.
func isBare(m map[string]any) bool {
	metadata, _ := m["metadata"].(map[string]any)
	return !setsFields(m, "apiVersion", "kind", "metadata") && !setsFields(metadata, "name", "namespace")
}

func setsFields(m map[string]any, except ...string) bool {
	for key, value := range m {
		if !slices.Contains(except, key) && setsField(value) {
			return true
		}
	}
	return false
}

// setsField reports whether a value makes its manager own a field. A null and an empty map do, an empty list need not.
func setsField(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return len(value) == 0 || setsFields(value)
	case []any:
		return slices.ContainsFunc(value, setsField)
	default:
		return true
	}
}

func rawAnnotations(m map[string]any) map[string]any {
	metadata, _ := m["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	return annotations
}

// annotations are those with a string as value. The others stay in the document: the API server judges them.
func annotations(m map[string]any) map[string]string {
	var out map[string]string
	for key, value := range rawAnnotations(m) {
		if s, ok := value.(string); ok {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = s
		}
	}
	return out
}

var decimal = regexp.MustCompile(`^-?[0-9]+$`)

// waveOf reads the sync wave: convoy's annotation, else Argo CD's, else 0 (D6). A fault does not show what a Secret's
// annotation holds (D10).
func waveOf(m map[string]any, secret bool) (wave int32, fault string) {
	all := rawAnnotations(m)
	for _, name := range []string{AnnotationSyncWave, AnnotationArgoSyncWave} {
		value, ok := all[name]
		if !ok {
			continue
		}
		s, ok := value.(string)
		if !ok {
			return 0, fmt.Sprintf("the annotation %s is %s, not a string: quote the number", name, typeName(value))
		}
		n, err := strconv.ParseInt(s, 10, 32)
		switch bad := err != nil || !decimal.MatchString(s); {
		case bad && secret:
			return 0, fmt.Sprintf("the value of annotation %s is no whole number from -2147483648 to 2147483647", name)
		case bad:
			return 0, fmt.Sprintf("the annotation %s is %q: it must be a decimal integer from -2147483648 to 2147483647", name, clip(s, 40))
		}
		return int32(n), ""
	}
	return 0, ""
}

// hookAnnotation is the first annotation, by name, that makes the object a hook for Argo CD or Helm (D36).
func hookAnnotation(m map[string]any) string {
	first := ""
	for key := range rawAnnotations(m) {
		hook := key == "argocd.argoproj.io/hook" || key == "helm.sh/hook" ||
			strings.HasPrefix(key, "argocd.argoproj.io/hook-") || strings.HasPrefix(key, "helm.sh/hook-")
		if hook && (first == "" || key < first) {
			first = key
		}
	}
	return first
}
