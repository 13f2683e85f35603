package release

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"convoy.dev/convoy/api/v1alpha1"
)

// Fact is what an apply left behind, as a short sum over the object's uid and convoy's own entry in its managedFields:
// 48 bits as 8 characters of base64url. Whoever changes or removes a field that convoy set takes it out of that entry,
// and who makes the object anew gives it another uid, so an equal Fact means that nothing of convoy's has drifted
// (D30). The entry's time counts too: it moves when a process under convoy's own name writes another value, as a
// request does that was in flight when its attempt was lost (D16); an apply that changes nothing leaves it. What others add to the object beside it does not count. The zero Fact is unknown.
type Fact string

// unknownFact stands for the zero Fact in a row. No sum holds a dot.
const unknownFact = "........"

// factBytes is how much of the hash a Fact keeps, and factSize how many characters that makes.
const (
	factBytes = 6
	factSize  = len(unknownFact)
)

// FactOf sums up an object. ownAPIVersion, ownTime and ownFields are those of convoy's apply entry, fields as the API
// server wrote them; they are empty where the API server keeps none, and then the uid alone counts. Empty labels and
// annotations are no part of it: who adds the first one takes the empty map over, and has changed nothing of convoy's.
// Without a uid the Fact is unknown.
func FactOf(uid, ownAPIVersion, ownTime string, ownFields []byte) Fact {
	if uid == "" {
		return ""
	}
	h := sha256.New()
	h.Write([]byte(uid + "\x00" + ownAPIVersion + "\x00" + ownTime + "\x00"))
	h.Write(withoutEmptyMaps(ownFields))
	return Fact(base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:factBytes]))
}

// withoutEmptyMaps leaves out that the metadata has empty labels or annotations. The rest stays as the API server writes
// it, members in the order of their names.
func withoutEmptyMaps(fields []byte) []byte {
	if !bytes.Contains(fields, []byte(`"f:labels":{}`)) && !bytes.Contains(fields, []byte(`"f:annotations":{}`)) {
		return fields
	}
	var top, metadata map[string]json.RawMessage
	if json.Unmarshal(fields, &top) != nil || json.Unmarshal(top["f:metadata"], &metadata) != nil {
		return fields
	}
	maps.DeleteFunc(metadata, func(name string, owned json.RawMessage) bool {
		return (name == "f:labels" || name == "f:annotations") && string(owned) == "{}"
	})
	if top["f:metadata"] = members(metadata); len(metadata) == 0 {
		delete(top, "f:metadata")
	}
	return members(top)
}

// members writes an object of JSON, each value as it stands.
func members(of map[string]json.RawMessage) []byte {
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(of)) {
		out.WriteString(`,"` + name + `":`)
		out.Write(of[name])
	}
	return append(append([]byte("{"), bytes.TrimPrefix(out.Bytes(), []byte(","))...), '}')
}

// PackFacts writes one row of 8 characters for each Fact, in order. Where all are unknown it is empty.
func PackFacts(facts []Fact) string {
	var out strings.Builder
	out.Grow(len(facts) * factSize)
	known := false
	for _, fact := range facts {
		if len(fact) != factSize {
			fact = unknownFact
		}
		known = known || fact != unknownFact
		out.WriteString(string(fact))
	}
	if !known {
		return ""
	}
	return out.String()
}

// UnpackFacts reads what PackFacts wrote beside that many records. A string of another length is about other records:
// then all are unknown.
func UnpackFacts(packed string, rows int) []Fact {
	facts := make([]Fact, rows)
	if len(packed) != rows*factSize {
		return facts
	}
	for i := range facts {
		row := packed[i*factSize : (i+1)*factSize]
		if _, err := base64.RawURLEncoding.DecodeString(row); err == nil {
			facts[i] = Fact(row)
		}
	}
	return facts
}

// FactsOf are the known facts of an inventory's objects.
func FactsOf(inv *v1alpha1.ReleaseInventory) map[ObjectRef]Fact {
	known := map[ObjectRef]Fact{}
	for i, fact := range UnpackFacts(inv.Spec.Facts, len(inv.Spec.Objects)) {
		if fact != "" {
			known[ObjectRef(inv.Spec.Objects[i])] = fact
		}
	}
	return known
}

// SetObjects makes the inventory list refs, each beside its fact, and reports whether that changes anything. Every
// writer of an inventory's objects goes this way, so that rows and records cannot part (D30).
func SetObjects(inv *v1alpha1.ReleaseInventory, refs []ObjectRef, facts map[ObjectRef]Fact) bool {
	rows := make([]Fact, len(refs))
	for i, ref := range refs {
		rows[i] = facts[ref]
	}
	packed := PackFacts(rows)
	changed := packed != inv.Spec.Facts || !Equal(refs, RefsOf(inv.Spec.Objects))
	inv.Spec.Objects, inv.Spec.Facts = Records(refs), packed
	return changed
}

// Seen is what a target cluster shows of one object.
type Seen struct {
	Present bool
	// Deleting: the object carries a deletionTimestamp.
	Deleting bool
	Fact     Fact
}

// Drifted is an object that is not as the last sync left it.
type Drifted struct {
	Ref ObjectRef
	// What happened to it, as the end of a sentence that begins with the object.
	What string
}

// Drift compares what was recorded with what the cluster shows (D30). The three lists are aligned; the result has the
// order of refs and is empty when nothing drifted.
func Drift(refs []ObjectRef, facts []Fact, seen []Seen) []Drifted {
	var drifted []Drifted
	for i, ref := range refs {
		if what := drift(facts[i], seen[i]); what != "" {
			drifted = append(drifted, Drifted{ref, what})
		}
	}
	return drifted
}

func drift(recorded Fact, seen Seen) string {
	switch {
	case !seen.Present:
		return "is gone"
	case seen.Deleting:
		return "is being deleted"
	case recorded == "":
		return "has no recorded state"
	case seen.Fact != recorded:
		return "was changed or replaced by another writer"
	}
	return ""
}
