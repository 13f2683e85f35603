package release

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func missing(group, resource, name string) *Failure {
	return &Failure{Class: Verdict, Code: 404, Reason: "NotFound", Message: fmt.Sprintf("%s %q not found", resource, name), Missing: &MissingObject{group, resource, name}}
}

func undeclared() *Failure {
	return &Failure{Class: Verdict, Code: 500, Schema: true, Message: ".spec.color: field not declared in schema"}
}

const (
	namespaceOfTeam = "{apiVersion: v1, kind: Namespace, metadata: {name: team-a}}\n---\n"
	settings        = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: team-a}}\n---\n"
	role            = "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reader, namespace: team-a}}\n---\n"
	binding         = "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: readers, namespace: team-a}, roleRef: {kind: Role, name: reader}}\n---\n"
	clusterRole     = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: reader}}\n---\n"
	account         = "{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot, namespace: team-a}}\n---\n"
	pod             = "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: team-a}}\n---\n"
	lamp            = "{apiVersion: lab.example.test/v1, kind: Lamp, metadata: {name: l, namespace: team-a}}\n---\n"
	room            = "{apiVersion: lab.example.test/v1, kind: Room, metadata: {name: r, namespace: team-a}}\n---\n"
)

// D8: which verdicts are excused. The failure is about the object at `at` (from 0) of the plan.
func TestJudge(t *testing.T) {
	lamps := strings.TrimPrefix(replaced(lampDefinition, "Namespaced"), "\n")
	always := func(schema.GroupKind) bool { return true }
	never := func(schema.GroupKind) bool { return false }
	noAccount := &Failure{Class: Verdict, Code: 403, Reason: "Forbidden", Message: `pods "p" is forbidden: error looking up service account team-a/robot: serviceaccount "robot" not found`}
	for name, c := range map[string]struct {
		render  string
		at      int
		failure *Failure
		changed func(schema.GroupKind) bool
		want    string // "unverified: …", "rejected: …" or "accident"
	}{
		"S8 unknown kind":               {room, 0, &Failure{Class: UnknownKind, Code: 404}, never, "unverified: the cluster does not know the kind Room.lab.example.test yet"},
		"accident":                      {settings, 0, &Failure{Class: Accident, Code: 503}, never, "accident"},
		"accident with a missing thing": {namespaceOfTeam + settings, 1, &Failure{Class: Accident, Missing: &MissingObject{"", "namespaces", "team-a"}}, never, "accident"},
		"verdict":                       {settings, 0, undeclared(), always, "rejected: "},

		"case 10.1 Namespace comes earlier":   {namespaceOfTeam + settings, 1, missing("", "namespaces", "team-a"), never, "unverified: it needs Namespace team-a, which this render brings first"},
		"case 10.2 Namespace comes later":     {settings + namespaceOfTeam, 0, missing("", "namespaces", "team-a"), never, "rejected: the render brings Namespace team-a only after it: ConfigMap team-a/settings at position 1 (shop.yaml, document 1, line 1), Namespace team-a at position 2 (shop.yaml, document 2, line 3); give Namespace team-a an earlier wave"},
		"case 10.3 Namespace does not come":   {settings, 0, missing("", "namespaces", "team-a"), never, "rejected: "},
		"another Namespace comes earlier":     {strings.ReplaceAll(namespaceOfTeam, "team-a", "team-b") + settings, 1, missing("", "namespaces", "team-a"), never, "rejected: "},
		"the Namespace in an earlier wave":    {settings + "{apiVersion: v1, kind: Namespace, metadata: {name: team-a, annotations: {convoy.dev/sync-wave: '-1'}}}", 1, missing("", "namespaces", "team-a"), never, "unverified: "},
		"Role of a RoleBinding, by 404":       {role + binding, 1, missing(rbacGroup, "rolebindings", "reader"), never, "unverified: it needs Role team-a/reader"},
		"Role comes later":                    {binding + role, 0, missing(rbacGroup, "rolebindings", "reader"), never, "rejected: the render brings Role team-a/reader only after it"},
		"a ClusterRole is no Role":            {clusterRole + binding, 1, missing(rbacGroup, "rolebindings", "reader"), never, "rejected: "},
		"Role of another namespace":           {strings.ReplaceAll(role, "team-a", "team-b") + binding, 1, missing(rbacGroup, "rolebindings", "reader"), never, "rejected: "},
		"ClusterRole of a RoleBinding":        {clusterRole + strings.Replace(binding, "kind: Role,", "kind: ClusterRole,", 1), 1, missing(rbacGroup, "rolebindings", "reader"), never, "unverified: it needs ClusterRole reader"},
		"Namespace of a RoleBinding":          {namespaceOfTeam + binding, 1, missing("", "namespaces", "team-a"), never, "unverified: it needs Namespace team-a"},
		"ServiceAccount, in words":            {account + pod, 1, noAccount, never, "unverified: it needs ServiceAccount team-a/robot"},
		"ServiceAccount does not come":        {pod, 0, noAccount, never, "rejected: "},
		"any resource, by its plural":         {account + pod, 1, missing("", "serviceaccounts", "robot"), never, "unverified: it needs ServiceAccount team-a/robot"},
		"a custom resource, by its plural":    {lamps + lamp + room, 2, missing("lab.example.test", "lamps", "l"), never, "unverified: it needs Lamp team-a/l"},
		"an object does not excuse itself":    {account, 0, missing("", "serviceaccounts", "robot"), never, "rejected: "},
		"a namesake of another namespace":     {strings.ReplaceAll(account, "team-a", "team-b") + pod, 1, missing("", "serviceaccounts", "robot"), never, "rejected: "},
		"case 12.2 definition changes first":  {lamps + lamp, 1, undeclared(), always, "unverified: this render changes CustomResourceDefinition lamps.lab.example.test first"},
		"case 12.4 definition is unchanged":   {lamps + lamp, 1, undeclared(), never, "rejected: "},
		"definition changes, but later":       {lamp + lamps, 0, undeclared(), always, "rejected: the render brings CustomResourceDefinition lamps.lab.example.test only after it"},
		"another definition changes":          {lamps + room, 1, undeclared(), always, "rejected: "},
		"changed definition, invalid value":   {lamps + lamp, 1, &Failure{Class: Verdict, Code: 422, Reason: "Invalid", Message: `spec.mode: Unsupported value: "x"`}, always, "unverified: "},
		"changed definition, old version":     {lamps + lamp, 1, &Failure{Class: Verdict, Code: 500, Message: "cannot convert"}, always, "unverified: "},
		"changed definition, RBAC":            {lamps + lamp, 1, &Failure{Class: Verdict, Code: 403, Reason: "Forbidden"}, always, "rejected: "},
		"changed definition, webhook denies":  {lamps + lamp, 1, &Failure{Class: Verdict, Code: 400, Webhook: "w.example"}, always, "rejected: "},
		"changed definition, policy denies":   {lamps + lamp, 1, &Failure{Class: Verdict, Code: 422, Message: "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"}, always, "rejected: "},
		"the definition itself has a verdict": {lamps + lamp, 0, &Failure{Class: Verdict, Code: 422}, always, "rejected: "},
	} {
		t.Run(name, func(t *testing.T) {
			plan := locate(t, c.render)
			require.Equal(t, c.want, judged(Judge(plan, map[int]*Failure{c.at: c.failure}, c.changed), c.want))
		})
	}
}

// judged prints a judgement about one object, as far as it is wanted.
func judged(j Judgement, want string) string {
	var out string
	switch {
	case len(j.Rejections)+len(j.Accidents)+len(j.Unverified) != 1:
		return fmt.Sprintf("%+v", j)
	case len(j.Unverified) == 1:
		out = "unverified: " + j.Unverified[0].Reason
	case len(j.Accidents) == 1:
		return "accident"
	default:
		out = "rejected: " + j.Rejections[0].Hint
	}
	if strings.HasPrefix(out, want) && !strings.HasSuffix(want, "rejected: ") {
		return want
	}
	return out
}

// D7: one verdict is enough, whatever accidents stand beside it; nothing is lost.
func TestVerdictsAndAccidentsSideBySide(t *testing.T) {
	plan := locate(t, settings+pod+lamp)
	j := Judge(plan, map[int]*Failure{0: undeclared(), 1: {Class: Accident, Code: 503, Message: "service unavailable"}, 2: {Class: UnknownKind}}, nil)
	require.Len(t, j.Rejections, 1)
	require.Len(t, j.Accidents, 1)
	require.Equal(t, "Lamp team-a/l: the cluster does not know the kind Lamp.lab.example.test yet", j.Unverified[0].String())
	require.Equal(t, "the target cluster could not judge 1 object: Pod team-a/p (shop.yaml, document 2, line 3): service unavailable (HTTP 503)", AccidentMessage(j, 20))
}

// D9: the first 20 by name with the API server's own reason, and the total; bounded.
func TestRejectionMessage(t *testing.T) {
	var many Judgement
	for i := range 60 {
		many.Rejections = append(many.Rejections, Rejection{Ref: refs(fmt.Sprintf("c%d", i))[0], Message: strings.Repeat("é", 5000)})
	}
	message := RejectionMessage(many, 20)
	require.Contains(t, message, "the target cluster rejects 60 objects: ConfigMap default/c0: é")
	require.Contains(t, message, "\nConfigMap default/c19: ")
	require.True(t, strings.HasSuffix(message, "\n… and 40 more"), message[len(message)-40:])
	require.Less(t, len(message), 13<<10)

	one := Judge(locate(t, settings), map[int]*Failure{0: undeclared()}, nil)
	require.Equal(t, "the target cluster rejects 1 object: ConfigMap team-a/settings (shop.yaml, document 1, line 1): .spec.color: field not declared in schema (HTTP 500)", RejectionMessage(one, 20))
}

// D9: the end of the API server's reason says most; it stays, for one object (case 04) and for many.
func TestRejectionMessageKeepsTheEnd(t *testing.T) {
	reason := strings.Repeat("x", 900) + ": field is immutable"
	one := Judgement{Rejections: []Rejection{{Ref: refs("c0")[0], Message: reason, Hint: "delete it"}}}
	require.Equal(t, "the target cluster rejects 1 object: ConfigMap default/c0: "+reason+" — delete it", RejectionMessage(one, 20))

	var many Judgement
	for i := range 60 {
		many.Rejections = append(many.Rejections, Rejection{Ref: refs(fmt.Sprintf("c%d", i))[0], Message: reason, Hint: "delete it"})
	}
	message := RejectionMessage(many, 20)
	require.Equal(t, 20, strings.Count(message, ": field is immutable"))
	require.Less(t, len(message), 3800)
}

// D9: known causes get a hint.
func TestHints(t *testing.T) {
	for _, c := range []struct {
		failure Failure
		hint    string
	}{
		{Failure{Code: 400, Message: `admission webhook "guard.example" does not support dry run`}, "the webhook guard.example cannot be asked without effect; a forced sync (force) skips the dry run"},
		{Failure{Code: 400, Message: "does not support dry run", Webhook: "w"}, "the webhook w cannot"},
		{Failure{Code: 422, Message: "Job.batch \"j\" is invalid: spec.template: Invalid value: ...: field is immutable", Fields: []string{"spec.template"}}, "spec.template cannot be changed on an existing object"},
		{Failure{Code: 422, Message: "updates to statefulset spec for fields other than 'replicas' are forbidden", Fields: []string{"spec", "spec"}}, "spec cannot be changed"},
		{Failure{Code: 422, Message: "field is immutable"}, "this field cannot be changed"},
		{Failure{Code: 422, Message: "spec.replicas: must be positive"}, ""},
	} {
		require.True(t, strings.HasPrefix(knownHint(&c.failure), c.hint), "%q", knownHint(&c.failure))
		require.Equal(t, c.hint == "", knownHint(&c.failure) == "")
	}
}

// D7, case 63: an object that meets a full quota in the dry run is not rejected: it may fit when the sync is tried again.
func TestJudge_D7_a_full_quota_rejects_nothing(t *testing.T) {
	plan := &Plan{Items: []Item{{Object: &Object{}, Ref: ObjectRef{Kind: "ConfigMap", Namespace: "tight", Name: "n2"}}}}
	verdict := Judge(plan, map[int]*Failure{0: {Class: Verdict, Code: 403, Quota: true, Message: "exceeded quota"}}, nil)
	require.Empty(t, verdict.Rejections)
	require.Len(t, verdict.Accidents, 1)
}
