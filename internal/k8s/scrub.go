package k8s

import (
	"regexp"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"convoy.dev/convoy/internal/release"
)

// messageLimit is how many characters of an API server message are kept (D10).
const messageLimit = 400

// scrub makes an API server message about ref fit for status, events, logs and histories (D10). For a Secret nothing
// of the server's own wording is kept: what stays are field paths and, in convoy's words, what kind of fault it is.
// Messages about other objects are cut and put on one line.
func scrub(ref release.ObjectRef, status *metav1.Status, text string) string {
	if !ref.IsSecret() {
		return cutMiddle(text, messageLimit)
	}
	said := secretFault(text)
	if fields := secretFields(status, text); len(fields) > 0 {
		said += ": " + strings.Join(fields, ", ")
	}
	return cut(said+" (the API server's message is not shown, since it can hold values of the Secret)", messageLimit)
}

// secretFaults are the faults that are told apart for Secrets, by words of the API server that hold no value. The
// first that fits counts.
var secretFaults = []struct{ says, fault string }{
	{"does not support dry run", "an admission webhook does not support dry run"},
	{"failed calling webhook", "an admission webhook could not be called"},
	{"admission webhook", "an admission webhook denied the request"},
	{"ValidatingAdmissionPolicy", "a ValidatingAdmissionPolicy denied the request"},
	{"exceeded quota", "a quota is exceeded"},
	{"because it is being terminated", "its namespace is being terminated"},
	{"object is being deleted", "the object is being deleted"},
	{"cannot patch resource", "the identity may not patch Secrets here"},
	{"cannot create resource", "the identity may not create Secrets here"},
	{"cannot delete resource", "the identity may not delete Secrets here"},
	{"cannot get resource", "the identity may not get Secrets here"},
	{"not declared in schema", "a field is not declared in the schema"},
	{"duplicate entries for key", "a list has two entries of the same key"},
	{"illegal base64", "a value of data is not base64"},
	{"typed patch object", "a field has the wrong type"},
	{"field is immutable", "a field is immutable"},
	{"Too long", "it is too long"},
	{"etcdserver", "etcd failed"},
}

func secretFault(text string) string {
	for _, known := range secretFaults {
		if strings.Contains(text, known.says) {
			return known.fault
		}
	}
	return "the API server refused the Secret"
}

// secretPath is a path that the typed schema names at the start of a fault, such as `.data.password: expected string`.
// It admits the top fields of a Secret and key characters only, so that no value passes for a path.
var secretPath = regexp.MustCompile(`^\.(?:data|stringData|metadata|type|immutable|kind|apiVersion|status)(?:\.[A-Za-z0-9._-]{1,80})?$`)

// secretCause is the same for the fields of causes: `data[password]`, `metadata.annotations`.
var secretCause = regexp.MustCompile(`^(?:data|stringData|metadata|type|immutable|kind|apiVersion)(?:[.\[][A-Za-z0-9._/\[\]-]{1,100})?$`)

// secretFields are the paths of the status' causes and of the typed schema's faults.
func secretFields(status *metav1.Status, text string) []string {
	var fields []string
	for _, field := range causeFields(status) {
		if secretCause.MatchString(field) {
			fields = append(fields, field)
		}
	}
	if _, faults, ok := strings.Cut(text, "Kind=Secret): "); ok {
		text = faults
	}
	for _, line := range strings.Split(text, "\n") {
		path, _, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if ok && secretPath.MatchString(path) {
			fields = append(fields, path)
		}
	}
	return unique(fields)
}

// causeFields are the field paths of the status' causes.
func causeFields(status *metav1.Status) []string {
	if status == nil || status.Details == nil {
		return nil
	}
	var fields []string
	for _, cause := range status.Details.Causes {
		if cause.Field != "" {
			fields = append(fields, cut(cause.Field, 200))
		}
	}
	return unique(fields)
}

func unique(list []string) []string {
	var kept []string
	for _, one := range list {
		if !contains(kept, one) {
			kept = append(kept, one)
		}
	}
	return kept
}

// cutMiddle is cut for messages whose end says most: "spec.template: Invalid value: {…}: field is immutable".
func cutMiddle(text string, limit int) string {
	const tail = 120
	whole := []rune(cut(text, len(text)))
	if len(whole) <= limit {
		return string(whole)
	}
	return string(whole[:limit-tail-3]) + " … " + string(whole[len(whole)-tail:])
}

// cut puts text on one line of at most limit characters.
func cut(text string, limit int) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	runes := []rune(text)
	if len(runes) <= limit {
		return text
	}
	return string(runes[:limit-1]) + "…"
}
