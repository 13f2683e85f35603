package k8s

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"convoy.dev/convoy/internal/release"
)

var (
	aConfigMap = release.ObjectRef{Kind: "ConfigMap", Namespace: "shop", Name: "settings"}
	aSecret    = release.ObjectRef{Kind: "Secret", Namespace: "shop", Name: "login"}
	aBinding   = release.ObjectRef{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding", Namespace: "shop", Name: "b"}
)

// says is an answer with a Status.
func says(code int, reason metav1.StatusReason, message string, causes ...metav1.StatusCause) answer {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Code:     int32(code), Reason: reason, Message: message, //nolint:gosec // HTTP codes
		Details: &metav1.StatusDetails{Kind: "configmaps", Name: "settings", Causes: causes},
	}
	body, err := json.Marshal(status)
	if err != nil {
		panic(err)
	}
	return answer{code: code, body: body, header: http.Header{}}
}

func plain(code int, text string) answer {
	return answer{code: code, body: []byte(text), header: http.Header{}}
}

func TestClassify_D7(t *testing.T) {
	const (
		verdict  = release.Verdict
		accident = release.Accident
		unknown  = release.UnknownKind
	)
	for name, c := range map[string]struct {
		reply answer
		class release.FailureClass
	}{
		"400":                              {says(400, "BadRequest", "managedFields must be nil"), verdict},
		"401":                              {says(401, "Unauthorized", "Unauthorized"), accident},
		"403 RBAC":                         {says(403, "Forbidden", `User "x" cannot patch resource "configmaps"`), verdict},
		"403 quota":                        {says(403, "Forbidden", "exceeded quota: q"), verdict},
		"403 quota without status":         {says(403, "Forbidden", "status unknown for quota: q, resources: count/configmaps"), accident},
		"403 terminating namespace, cause": {says(403, "Forbidden", "no", metav1.StatusCause{Type: "NamespaceTerminating"}), accident},
		"403 terminating namespace, text":  {says(403, "Forbidden", "unable to create new content in namespace a because it is being terminated"), accident},
		"403 terminating definition":       {says(403, "Forbidden", "create not allowed while custom resource definition is terminating"), accident},
		"403 server is starting":           {says(403, "Forbidden", "not yet ready to handle request"), accident},
		"403 ServiceAccount of the render": {says(403, "Forbidden", `error looking up service account shop/web: serviceaccount "web" not found`), verdict},
		"403 ServiceAccount default":       {says(403, "Forbidden", `error looking up service account shop/default: serviceaccount "default" not found`), accident},
		"404 another object":               {says(404, "NotFound", `namespaces "x" not found`), verdict},
		"404 plain":                        {plain(404, "404 page not found\n"), unknown},
		"405":                              {says(405, "MethodNotAllowed", "no"), verdict},
		"406":                              {says(406, "NotAcceptable", "no"), verdict},
		"408":                              {says(408, "Timeout", "no"), accident},
		"409 conflict":                     {says(409, "Conflict", "the object has been modified"), accident},
		"410":                              {says(410, "Gone", "no"), verdict},
		"413":                              {says(413, "RequestEntityTooLarge", "limit is 3145728"), verdict},
		"413 of a proxy":                   {plain(413, "<html>too large"), verdict},
		"415":                              {says(415, "UnsupportedMediaType", "no"), verdict},
		"422":                              {says(422, "Invalid", "no"), verdict},
		"429":                              {says(429, "TooManyRequests", "no"), accident},
		"403 of a proxy":                   {plain(403, "<html>Forbidden"), accident},
		"302":                              {plain(302, ""), accident},

		"500 unknown field":                {says(500, "", "failed to create typed patch object (a/b; /v1, Kind=ConfigMap): .dato: field not declared in schema"), verdict},
		"500 wrong type":                   {says(500, "", "failed to create typed patch object (a/b; /v1, Kind=ConfigMap): .data.x: expected string, got &value.valueUnstructured{Value:true}"), verdict},
		"500 duplicate":                    {says(500, "", `.spec.containers[name="c"].env: duplicate entries for key [name="MODE"]`), verdict},
		"500 defaulted field":              {says(500, "", ".spec.access: field not declared in schema"), verdict},
		"500 removed version":              {says(500, "", "request to convert CR from an invalid group/version: a/v1alpha1"), verdict},
		"500 etcd":                         {says(500, "", "etcdserver: request timed out"), accident},
		"500 conversion":                   {says(500, "", `conversion webhook for a/v1, Kind=B failed: Post "https://x": connect: connection refused`), accident},
		"500 conversion of a typed object": {says(500, "", "failed to convert new object (a/b; a/v1, Kind=B) to proper version: conversion webhook for a/v1, Kind=B failed: EOF"), accident},
		"500 unknown text":                 {says(500, "", "boom"), accident},
		"500 webhook not there":            {says(500, "InternalError", `Internal error occurred: failed calling webhook "w.example.test": dial tcp: refused`), accident},
		"500 plain":                        {plain(500, "panic"), accident},
		"502":                              {plain(502, "bad gateway"), accident},
		"503 aggregated API":               {plain(503, "service unavailable\n"), accident},
		"504":                              {says(504, "Timeout", "Timeout: request did not complete"), accident},

		"webhook denies with 400": {says(400, "", `admission webhook "w.example.test" denied the request: no`), verdict},
		"webhook denies with 409": {says(409, "Conflict", `admission webhook "w.example.test" denied the request: no`), verdict},
		"webhook denies with 429": {says(429, "TooManyRequests", `admission webhook "w.example.test" denied the request: no`), verdict},
		"webhook denies with 500": {says(500, "", `admission webhook "w.example.test" denied the request: no`), accident},
		"webhook, no dry run":     {says(400, "BadRequest", `admission webhook "w.example.test" does not support dry run`), verdict},
	} {
		t.Run(name, func(t *testing.T) {
			failure := classify(aConfigMap, nil, c.reply)
			require.Equal(t, c.class, failure.Class)
			require.Equal(t, c.reply.code, failure.Code)
			require.NotEmpty(t, failure.Message)
		})
	}
}

func TestClassify_D7_uncertain_effect(t *testing.T) {
	require.True(t, classify(aConfigMap, nil, says(504, "Timeout", "")).Uncertain)
	require.True(t, classify(aConfigMap, nil, plain(502, "")).Uncertain)
	require.True(t, classify(aConfigMap, nil, says(500, "", "etcdserver: request timed out")).Uncertain)
	require.False(t, classify(aConfigMap, nil, plain(503, "service unavailable")).Uncertain)
	require.False(t, classify(aConfigMap, nil, says(429, "TooManyRequests", "")).Uncertain)
	require.False(t, classify(aConfigMap, nil, says(422, "Invalid", "")).Uncertain)
}

func TestClassify_D9_webhooks_and_hints(t *testing.T) {
	failure := classify(aConfigMap, nil, says(400, "BadRequest", `admission webhook "w.example.test" does not support dry run`))
	require.Equal(t, "w.example.test", failure.Webhook)
	require.Contains(t, failure.Message, "force")
	failure = classify(aConfigMap, nil, says(422, "Invalid", "x: Invalid value: 1: field is immutable", metav1.StatusCause{Field: "spec.template"}, metav1.StatusCause{Field: "spec.template"}))
	require.Equal(t, []string{"spec.template"}, failure.Fields)
	require.Contains(t, failure.Message, "hint: spec.template cannot change")
}

func TestClassify_D8_missing_objects(t *testing.T) {
	missingStatus := func(group, kind, name string) answer {
		body, err := json.Marshal(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status"}, Reason: "NotFound", Message: "not found",
			Details: &metav1.StatusDetails{Group: group, Kind: kind, Name: name},
		})
		require.NoError(t, err)
		return answer{code: 404, body: body}
	}
	const rbac = "rbac.authorization.k8s.io"
	for name, c := range map[string]struct {
		ref      release.ObjectRef
		document string
		reply    answer
		want     release.MissingObject
	}{
		"namespace":                  {aConfigMap, "{}", missingStatus("", "namespaces", "shop"), release.MissingObject{Resource: "namespaces", Name: "shop"}},
		"Role of a binding":          {aBinding, `{"roleRef":{"kind":"Role"}}`, missingStatus(rbac, "rolebindings", "r"), release.MissingObject{Group: rbac, Resource: "roles", Name: "r"}},
		"ClusterRole of a binding":   {aBinding, `{"roleRef":{"kind":"ClusterRole"}}`, missingStatus(rbac, "rolebindings", "r"), release.MissingObject{Group: rbac, Resource: "clusterroles", Name: "r"}},
		"ClusterRole of a cluster's": {release.ObjectRef{Group: rbac, Kind: "ClusterRoleBinding", Name: "b"}, `{"roleRef":{"kind":"ClusterRole"}}`, missingStatus(rbac, "clusterrolebindings", "r"), release.MissingObject{Group: rbac, Resource: "clusterroles", Name: "r"}},
		"named as such":              {aBinding, `{"roleRef":{"kind":"Role"}}`, missingStatus(rbac, "roles", "r"), release.MissingObject{Group: rbac, Resource: "roles", Name: "r"}},
		"service account":            {aConfigMap, "{}", says(403, "Forbidden", `error looking up service account shop/web: serviceaccount "web" not found`), release.MissingObject{Resource: "serviceaccounts", Name: "web"}},
	} {
		t.Run(name, func(t *testing.T) {
			failure := classify(c.ref, []byte(c.document), c.reply)
			require.Equal(t, release.Verdict, failure.Class)
			require.Equal(t, &c.want, failure.Missing)
		})
	}
}

func TestScrub_D10_no_value_of_a_Secret(t *testing.T) {
	const plainValue, base64Value = "hunter2", "aHVudGVyMg=="
	const typed = "failed to create typed patch object (shop/login; /v1, Kind=Secret): "
	for name, c := range map[string]struct {
		reply answer
		keeps []string
	}{
		"invalid value": {
			says(422, "Invalid", `Secret "login" is invalid: data[password]: Invalid value: "`+base64Value+`": must be short`, metav1.StatusCause{Field: "data[password]", Message: `Invalid value: "` + base64Value + `"`}),
			[]string{"data[password]"},
		},
		"immutable": {
			says(422, "Invalid", `Secret "login" is invalid: data: Forbidden: field is immutable when `+"`immutable`"+` is set`, metav1.StatusCause{Field: "data"}),
			[]string{"data", "immutable"},
		},
		"wrong type of a value":     {says(500, "", typed+".data.password: expected string, got &value.valueUnstructured{Value:"+plainValue+"}"), []string{".data.password"}},
		"several faults":            {says(500, "", typed+"errors:\n  .data.a: expected string, got "+plainValue+"\n  .stringData.b: expected string, got "+plainValue), []string{".data.a", ".stringData.b"}},
		"value that looks like one": {says(500, "", typed+".data.password: expected string, got [\n"+plainValue+": "+base64Value+"\n.hunter2: x"), []string{".data.password"}},
		"not base64":                {says(400, "BadRequest", `Secret in version "v1" cannot be handled as a Secret: illegal base64 data at input byte 4 in `+plainValue), []string{"not base64"}},
		"webhook echoes":            {says(403, "Forbidden", `admission webhook "w.example.test" denied the request: password `+plainValue+" is weak", metav1.StatusCause{Field: plainValue}), []string{"webhook denied"}},
		"policy echoes":             {says(422, "Invalid", "ValidatingAdmissionPolicy 'p' denied request: "+plainValue), []string{"ValidatingAdmissionPolicy"}},
		"plain text":                {plain(500, "panic: "+plainValue+base64Value), nil},
		"stringData in an apply":    {says(500, "", `last applied {"stringData":{"password":"`+plainValue+`"},"data":{"password":"`+base64Value+`"}}`), nil},
	} {
		t.Run(name, func(t *testing.T) {
			failure := classify(aSecret, []byte(`{"data":{"password":"`+base64Value+`"}}`), c.reply)
			everything, err := json.Marshal(failure)
			require.NoError(t, err)
			require.NotContains(t, string(everything), plainValue)
			require.NotContains(t, string(everything), base64Value)
			for _, kept := range c.keeps {
				require.Contains(t, failure.Message, kept)
			}
		})
	}
}

func TestScrub_D10_other_messages_are_cut(t *testing.T) {
	long := make([]byte, 5000)
	for i := range long {
		long[i] = 'x'
	}
	failure := classify(aConfigMap, nil, says(422, "Invalid", "spec.template: Invalid value:\n\t{"+string(long)+"}: field is immutable"))
	require.LessOrEqual(t, len([]rune(failure.Message)), messageLimit)
	require.Contains(t, failure.Message, "spec.template: Invalid value: {xxx")
	require.Contains(t, failure.Message, "field is immutable", "the end says what is wrong")
}

func TestWarnings_D10_of_a_Secret_are_counted_only(t *testing.T) {
	header := http.Header{"Warning": {`299 - "a: hunter2"`, `299 - "a: hunter2"`, `299 - "b"`}}
	require.Equal(t, []string{"a: hunter2", "b"}, warnings(aConfigMap, answer{header: header}))
	require.Equal(t, []string{"the API server gave 2 warnings about this Secret, which are not shown"}, warnings(aSecret, answer{header: header}))
	require.Empty(t, warnings(aSecret, answer{}))
}

// D7, case 63: a quota that is used up says nothing about the object, and neither does it pass within a step.
func TestClassify_D7_a_full_quota_is_no_verdict_on_the_object(t *testing.T) {
	of := func(message string) *release.Failure {
		body := `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"` + message + `","reason":"Forbidden","details":{"name":"n2","kind":"configmaps"},"code":403}`
		return classify(release.ObjectRef{Kind: "ConfigMap", Namespace: "tight", Name: "n2"}, nil, answer{code: 403, body: []byte(body)})
	}
	full := of(`configmaps \"n2\" is forbidden: exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=3, limited: count/configmaps=3`)
	require.True(t, full.Quota)
	require.Equal(t, release.Verdict, full.Class, "it is not tried again inside the step")
	denied := of(`configmaps \"n2\" is forbidden: User \"x\" cannot patch resource \"configmaps\"`)
	require.False(t, denied.Quota)
}
