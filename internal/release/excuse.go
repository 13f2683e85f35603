package release

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Rejection is a verdict that stands, or an accident: one object and what the target cluster said about it.
type Rejection struct {
	Ref ObjectRef
	// Index is the position in the render, from 1.
	Index   int
	Place   Place
	Message string
	// Hint says what to do, where the cause is known (D9).
	Hint string
}

// Unverified is an object that the dry run could not judge (D8).
type Unverified struct {
	Ref    ObjectRef
	Reason string
}

// String is the entry of status.unverified.
func (u Unverified) String() string { return u.Ref.String() + ": " + u.Reason }

// Judgement is what all answers of a dry run mean together. One rejection makes the render Unappliable, whatever
// accidents stand beside it (D7).
type Judgement struct {
	Rejections []Rejection
	Accidents  []Rejection
	Unverified []Unverified
}

// Judge sorts the failures of a dry run (D8); they are keyed by the index into plan.Items, from 0. crdChanged says
// whether the CustomResourceDefinition of a kind, which the plan brings, differs from the one on the cluster; a new
// one does.
func Judge(plan *Plan, failures map[int]*Failure, crdChanged func(schema.GroupKind) bool) Judgement {
	j := judge{plan: plan, crdChanged: crdChanged, custom: definitionsOf(plan)}
	var out Judgement
	for i := range plan.Items {
		failure := failures[i]
		if failure == nil {
			continue
		}
		switch reason, hint := j.excuse(i, failure); {
		case reason != "":
			out.Unverified = append(out.Unverified, Unverified{plan.Items[i].Ref, reason})
		case failure.Class == Accident || failure.Quota:
			out.Accidents = append(out.Accidents, rejection(plan.Items[i], failure, ""))
		default:
			out.Rejections = append(out.Rejections, rejection(plan.Items[i], failure, hint))
		}
	}
	return out
}

func rejection(item Item, failure *Failure, hint string) Rejection {
	if hint == "" && !strings.Contains(failure.Message, "; hint: ") {
		hint = knownHint(failure)
	}
	return Rejection{item.Ref, item.Index, item.Object.Place, failure.Error(), hint}
}

// definition is where the plan brings a CustomResourceDefinition.
type definition struct {
	index  int
	plural string
}

func definitionsOf(plan *Plan) map[schema.GroupKind]definition {
	out := map[schema.GroupKind]definition{}
	for i := range plan.Items {
		if gk, kind, ok := customKindOf(plan.Items[i].Object); ok {
			out[gk] = definition{i, kind.plural}
		}
	}
	return out
}

type judge struct {
	plan       *Plan
	crdChanged func(schema.GroupKind) bool
	custom     map[schema.GroupKind]definition
}

// excuse says why a failure is no verdict on the object, or what to do about it.
func (j judge) excuse(i int, failure *Failure) (reason, hint string) {
	switch failure.Class {
	case Accident:
		return "", ""
	case UnknownKind:
		return fmt.Sprintf("the cluster does not know the kind %s yet", j.plan.Items[i].Object.GVK.GroupKind()), ""
	}
	if reason, hint := j.excuseMissing(i, failure); reason != "" || hint != "" {
		return reason, hint
	}
	return j.excuseSchema(i, failure)
}

// excuseMissing excuses a verdict that says an object is missing which the plan brings earlier. Brought later it is
// still missing when its time comes, since order is never changed (S16): the hint names both places and the remedy.
func (j judge) excuseMissing(i int, failure *Failure) (reason, hint string) {
	wants := j.missing(i, failure)
	if wants == nil {
		return "", ""
	}
	for k := range j.plan.Items {
		if k == i || !wants(j.plan.Items[k]) {
			continue
		}
		if k < i {
			return fmt.Sprintf("it needs %s, which this render brings first", j.plan.Items[k].Ref), ""
		}
		if hint == "" {
			hint = laterHint(j.plan.Items[i], j.plan.Items[k])
		}
	}
	return "", hint
}

func laterHint(item, later Item) string {
	return fmt.Sprintf("the render brings %s only after it: %s at %s, %s at %s; give %s an earlier wave (%s) or put it before",
		later.Ref, item.Ref, position(item), later.Ref, position(later), later.Ref, AnnotationSyncWave)
}

// position of an item in the render, and in its source if that is known.
func position(item Item) string {
	place := item.Object.Place.String()
	if place == "" {
		return fmt.Sprintf("position %d", item.Index)
	}
	return fmt.Sprintf("position %d (%s)", item.Index, place)
}

// namedInText are objects whose absence an admission plugin tells in words only.
var namedInText = []struct {
	kind  schema.GroupKind
	words *regexp.Regexp
}{
	{schema.GroupKind{Kind: "ServiceAccount"}, regexp.MustCompile(`error looking up service account [^/\s]+/([^:\s]+): `)},
	{schema.GroupKind{Group: "scheduling.k8s.io", Kind: "PriorityClass"}, regexp.MustCompile(`no PriorityClass with name (\S+) was found`)},
	{schema.GroupKind{Group: "node.k8s.io", Kind: "RuntimeClass"}, regexp.MustCompile(`RuntimeClass "([^"]+)" not found`)},
}

// missing is a test for the object that a failure says is absent; nil when it says no such thing.
func (j judge) missing(i int, failure *Failure) func(Item) bool {
	item := j.plan.Items[i]
	for _, plugin := range namedInText {
		if m := plugin.words.FindStringSubmatch(failure.Message); m != nil {
			return func(other Item) bool {
				return other.Ref.GroupKind() == plugin.kind && other.Ref.Name == m[1] && near(item, other)
			}
		}
	}
	missing := failure.Missing
	switch {
	case missing == nil:
		return nil
	case isBinding(item.Ref):
		return roleOf(item, missing)
	default:
		return func(other Item) bool {
			return other.Ref.Group == missing.Group && other.Ref.Name == missing.Name &&
				j.plural(other) == missing.Resource && near(item, other)
		}
	}
}

// near reports whether other can be what item refers to by name: cluster-scoped, or in the same namespace.
func near(item, other Item) bool {
	return other.Ref.Namespace == "" || other.Ref.Namespace == item.Ref.Namespace
}

// plural is the resource of an item's kind: its CustomResourceDefinition's word if the plan has it, else the usual guess.
func (j judge) plural(item Item) string {
	if custom, ok := j.custom[item.Ref.GroupKind()]; ok && custom.plural != "" {
		return custom.plural
	}
	guess, _ := meta.UnsafeGuessKindToResource(item.Object.GVK)
	return guess.Resource
}

const rbacGroup = "rbac.authorization.k8s.io"

func isBinding(ref ObjectRef) bool {
	return ref.Group == rbacGroup && (ref.Kind == "RoleBinding" || ref.Kind == "ClusterRoleBinding")
}

// roleOf tests for the role of a binding. The API server's 404 names the role but calls it a binding.
func roleOf(binding Item, missing *MissingObject) func(Item) bool {
	if missing.Resource == "namespaces" {
		return func(other Item) bool { return other.Ref.IsNamespace() && other.Ref.Name == missing.Name }
	}
	m, err := readCanonical(binding.Object.JSON)
	if err != nil {
		return nil
	}
	role, _ := m["roleRef"].(map[string]any)
	if role["name"] != missing.Name {
		return nil
	}
	return func(other Item) bool {
		return other.Ref.Group == rbacGroup && other.Ref.Kind == role["kind"] && other.Ref.Name == missing.Name && near(binding, other)
	}
}

// excuseSchema excuses a custom resource that fails on schema or version while its CustomResourceDefinition, earlier
// in the plan, differs from the live one. An unchanged one excuses nothing.
func (j judge) excuseSchema(i int, failure *Failure) (reason, hint string) {
	definition, ok := j.custom[j.plan.Items[i].Ref.GroupKind()]
	if !ok || !aboutSchema(failure) || j.crdChanged == nil || !j.crdChanged(j.plan.Items[i].Ref.GroupKind()) {
		return "", ""
	}
	crd := j.plan.Items[definition.index]
	if definition.index > i {
		return "", laterHint(j.plan.Items[i], crd)
	}
	return fmt.Sprintf("this render changes %s first", crd.Ref), ""
}

// aboutSchema reports whether a verdict rests on the schema or the version of the kind, and not on a policy.
func aboutSchema(f *Failure) bool {
	if f.Webhook != "" || strings.Contains(f.Message, "ValidatingAdmissionPolicy") {
		return false
	}
	return f.Schema || f.Code == 500 && f.Reason == "" || f.Code == 422 || f.Code == 400
}

var dryRunWebhook = regexp.MustCompile(`admission webhook "([^"]+)" does not support dry run`)

// knownHint is what to do about a failure whose cause is known (D9).
func knownHint(f *Failure) string {
	switch {
	case strings.Contains(f.Message, "does not support dry run"):
		name := f.Webhook
		if m := dryRunWebhook.FindStringSubmatch(f.Message); m != nil {
			name = m[1]
		}
		return fmt.Sprintf("the webhook %s cannot be asked without effect; a forced sync (force) skips the dry run", name)
	case isImmutable(f):
		return fmt.Sprintf("%s cannot be changed on an existing object: delete the object, or give the changed one another name", immutableFields(f))
	default:
		return ""
	}
}

var immutableWords = regexp.MustCompile(`(?i)immutable|may not change once set|updates to \w+ spec for fields other than|forbid(s|den) .*updat`)

func isImmutable(f *Failure) bool { return f.Code == 422 && immutableWords.MatchString(f.Message) }

func immutableFields(f *Failure) string {
	if len(f.Fields) == 0 {
		return "this field"
	}
	fields := slices.Compact(slices.Sorted(slices.Values(f.Fields)))
	return strings.Join(fields[:min(len(fields), 5)], ", ")
}

// maxMessageBytes bounds a message about many objects (D9, D35): below what Temporal keeps of a failure.
const maxMessageBytes = 3600

// RejectionMessage tells which objects the target cluster rejects, and why: the first `limit` of them by name, in the
// order of the render, and the total (D9). The first line stands on its own.
func RejectionMessage(j Judgement, limit int) string {
	head := fmt.Sprintf("the target cluster rejects %s: ", Count(len(j.Rejections), "object"))
	return listFailures(head, j.Rejections, limit)
}

// AccidentMessage tells which objects the target cluster could not judge in time.
func AccidentMessage(j Judgement, limit int) string {
	head := fmt.Sprintf("the target cluster could not judge %s: ", Count(len(j.Accidents), "object"))
	return listFailures(head, j.Accidents, limit)
}

// listFailures shares the room among the objects it names: what short entries leave is for those after them, so a few
// rejections are told in full, and of many each keeps its name and the start and end of its reason.
func listFailures(head string, all []Rejection, limit int) string {
	named := min(limit, len(all))
	entries := make([]string, named)
	room := maxMessageBytes - len(head)
	for i := range entries {
		entries[i] = all[i].within(room / (named - i))
		room -= len(entries[i])
	}
	text := head + strings.Join(entries, "\n")
	if more := len(all) - named; more > 0 {
		text += fmt.Sprintf("\n… and %d more", more)
	}
	return text
}

// leastReason is how much of the API server's reason is kept, however little room there is.
const leastReason = 60

// within is the object, its place, what the API server said, and what to do, in about so many bytes. The hint goes
// first, then the middle of the reason: "spec.template: Invalid value: {…}: field is immutable".
func (r Rejection) within(room int) string {
	head := r.Ref.String()
	if place := r.Place.String(); place != "" {
		head += " (" + place + ")"
	}
	head += ": "
	if hint := " — " + r.Hint; r.Hint != "" && len(head)+len(r.Message)+len(hint) <= room {
		return head + r.Message + hint
	}
	return head + clipMiddle(r.Message, max(room-len(head), leastReason))
}

// clipMiddle cuts a text to a number of bytes, at characters, and keeps its end.
func clipMiddle(s string, n int) string {
	if len(s) <= n {
		return s
	}
	tail := n / 3
	return strings.ToValidUTF8(s[:n-tail], "") + " … " + strings.ToValidUTF8(s[len(s)-tail:], "")
}
