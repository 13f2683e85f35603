package k8s

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"convoy.dev/convoy/internal/release"
)

// classify says what an answer that is no success means for the object ref (D7). document is the object as it was
// sent, nil when none was; it only serves to tell which object a 404 misses. It is a pure function.
//
// Codes alone do not decide: the API server reports every violation of the typed schema as a 500 without a reason,
// and so does it report errors of etcd and of conversion webhooks.
func classify(ref release.ObjectRef, document []byte, reply answer) *release.Failure {
	status := readStatus(reply.body)
	text := strings.TrimSpace(string(reply.body))
	failure := &release.Failure{Code: reply.code}
	if status != nil {
		text = status.Message
		failure.Reason = string(status.Reason)
		failure.Fields = causeFields(status)
	}
	failure.Webhook = webhookName(text)
	failure.Schema = isSchemaViolation(reply.code, status, text)
	failure.Missing = missing(ref, document, reply.code, status, text)
	failure.Quota = reply.code == http.StatusForbidden && failure.Webhook == "" && strings.Contains(text, " is forbidden: exceeded quota: ")
	failure.Class = class(reply.code, status, text, failure)
	failure.Uncertain = isUncertain(reply.code, status, text)
	failure.Message = explain(ref, status, text, failure)
	if ref.IsSecret() {
		failure.Fields = slices.DeleteFunc(failure.Fields, func(field string) bool { return !secretCause.MatchString(field) })
	}
	return failure
}

// readStatus is the metav1.Status of a body, nil when the body is something else: plain text of a proxy, of an
// aggregated API without backend, or of a path that is not served.
func readStatus(body []byte) *metav1.Status {
	var status metav1.Status
	if json.Unmarshal(body, &status) != nil || status.Kind != "Status" {
		return nil
	}
	return &status
}

func class(code int, status *metav1.Status, text string, failure *release.Failure) release.FailureClass {
	switch {
	case isUnknownPath(code, status):
		return release.UnknownKind
	case failure.Webhook != "" && strings.Contains(text, "denied the request") && code < 500:
		return release.Verdict
	case failure.Schema:
		return release.Verdict
	case code == http.StatusUnauthorized, code == http.StatusRequestTimeout, code == http.StatusConflict,
		code == http.StatusTooManyRequests, code >= 500, code < 400:
		return release.Accident
	case status == nil:
		return classOfPlainText(code)
	case code == http.StatusForbidden && isPassing(status, text, failure):
		return release.Accident
	}
	return release.Verdict
}

// classOfPlainText judges a 4xx that does not come from a Kubernetes API server, but from something before it. Only
// a size limit is about the object.
func classOfPlainText(code int) release.FailureClass {
	if code == http.StatusRequestEntityTooLarge {
		return release.Verdict
	}
	return release.Accident
}

// isUnknownPath: group, version or kind are not served. The body is then the plain "404 page not found", or a Status
// that names no object.
func isUnknownPath(code int, status *metav1.Status) bool {
	if code != http.StatusNotFound {
		return false
	}
	return status == nil || status.Details == nil || status.Details.Name == "" && status.Details.Kind == ""
}

// passingRefusals are the texts of 403 answers that pass by themselves. Apart from the first they carry no cause that
// tells them from RBAC.
var passingRefusals = []string{
	"because it is being terminated",
	"custom resource definition is terminating",
	"not yet ready to handle request",
	"status unknown for quota",
}

// isPassing: a 403 that is not about rights. The ServiceAccount "default" of a new namespace comes by itself.
func isPassing(status *metav1.Status, text string, failure *release.Failure) bool {
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			if string(cause.Type) == "NamespaceTerminating" {
				return true
			}
		}
	}
	if failure.Missing != nil && failure.Missing.Resource == "serviceaccounts" && failure.Missing.Name == "default" {
		return true
	}
	return containsAny(text, passingRefusals)
}

// schemaViolations are the texts of 500 answers without a reason that are verdicts on the object.
var schemaViolations = []string{
	"failed to create typed patch object",
	"failed to create typed live object",
	"field not declared in schema",
	"duplicate entries for key",
	"schema error: no type found matching",
	"request to convert CR",
	"failed to convert new object",
}

// passingFaults are the texts of 500 answers without a reason that are accidents, whatever else they say.
var passingFaults = []string{"etcdserver:", "conversion webhook for", "context deadline exceeded", "connection refused", "rpc error:"}

func isSchemaViolation(code int, status *metav1.Status, text string) bool {
	if code != http.StatusInternalServerError || status == nil || status.Reason != "" {
		return false
	}
	return containsAny(text, schemaViolations) && !containsAny(text, passingFaults)
}

// isUncertain: the API server, or something before it, gave up waiting: the request may have taken effect.
func isUncertain(code int, status *metav1.Status, text string) bool {
	switch code {
	case http.StatusGatewayTimeout, http.StatusBadGateway, http.StatusRequestTimeout:
		return true
	case http.StatusInternalServerError:
		return status == nil || strings.Contains(text, "etcdserver: request timed out") || strings.Contains(text, "etcdserver: leader changed")
	}
	return false
}

func containsAny(text string, words []string) bool {
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(text, word) })
}

// The three ways in which the API server names an admission webhook.
var webhookNames = []*regexp.Regexp{
	regexp.MustCompile(`admission webhook "([^"\s]{1,253})" (?:denied the request|does not support dry run)`),
	regexp.MustCompile(`failed calling webhook "([^"\s]{1,253})"`),
}

func webhookName(text string) string {
	for _, pattern := range webhookNames {
		if found := pattern.FindStringSubmatch(text); found != nil {
			return found[1]
		}
	}
	return ""
}

var missingAccount = regexp.MustCompile(`error looking up service account [^/\s]+/[^:\s]+: serviceaccount "([^"\s]+)" not found`)

// missing is the other object that an answer says is absent. A RoleBinding whose Role is absent is answered with the
// Role's name under the resource of the binding (FACTS), so the document says which kind of role it is.
func missing(ref release.ObjectRef, document []byte, code int, status *metav1.Status, text string) *release.MissingObject {
	if code == http.StatusForbidden {
		if found := missingAccount.FindStringSubmatch(text); found != nil {
			return &release.MissingObject{Resource: "serviceaccounts", Name: found[1]}
		}
		return nil
	}
	if code != http.StatusNotFound || isUnknownPath(code, status) {
		return nil
	}
	details := status.Details
	const rbac = "rbac.authorization.k8s.io"
	if details.Group == rbac && (details.Kind == "rolebindings" || details.Kind == "clusterrolebindings") && len(document) > 0 {
		return &release.MissingObject{Group: rbac, Resource: roleResource(ref, document), Name: details.Name}
	}
	return &release.MissingObject{Group: details.Group, Resource: details.Kind, Name: details.Name}
}

func roleResource(ref release.ObjectRef, document []byte) string {
	var binding struct {
		RoleRef struct {
			Kind string `json:"kind"`
		} `json:"roleRef"`
	}
	if json.Unmarshal(document, &binding) == nil && binding.RoleRef.Kind == "Role" && ref.Kind == "RoleBinding" {
		return "roles"
	}
	return "clusterroles"
}

// explain makes the message: the API server's own words, scrubbed, and a hint where the cause is known (D9).
func explain(ref release.ObjectRef, status *metav1.Status, text string, failure *release.Failure) string {
	if text == "" {
		text = "the API server gave no message"
	}
	message := scrub(ref, status, text)
	switch {
	case strings.Contains(text, "does not support dry run"):
		message += fmt.Sprintf("; hint: a forced sync (force) skips the dry run, or webhook %q declares sideEffects None", failure.Webhook)
	case strings.Contains(text, "field is immutable") && len(failure.Fields) > 0:
		message += fmt.Sprintf("; hint: %s cannot change on a live object: delete the object or give it another name", strings.Join(failure.Fields, ", "))
	case failure.Schema && strings.HasPrefix(text, "."):
		message += "; hint: this is not about a field that the render sets: the object's managedFields hold an entry in another version " +
			"of its kind, which the API server cannot compare. Keep the apiVersion that was applied before, or clear the object's metadata.managedFields"
	case failure.Missing != nil && isRole(failure.Missing):
		message += fmt.Sprintf("; hint: the binding refers to %s %q, which does not exist", failure.Missing.Resource, failure.Missing.Name)
	}
	return message
}

func isRole(object *release.MissingObject) bool {
	return object.Resource == "roles" || object.Resource == "clusterroles"
}
