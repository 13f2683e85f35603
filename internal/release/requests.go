package release

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"convoy.dev/convoy/api/v1alpha1"
)

// Request is one sync request, or several that became one (D26): they are served by one further sync, which is forced
// if one of them was.
type Request struct {
	IDs         []string `json:"ids,omitempty"`
	Force       bool     `json:"force,omitempty"`
	RequestedBy string   `json:"requestedBy,omitempty"`
}

// MaxRequestID bounds the id of a request, in bytes: it stands in status and in histories.
const MaxRequestID = 128

// RequestID is a request's id as convoy keeps it, where nobody can be told that it is no good: without control characters,
// and at most MaxRequestID bytes long. A longer one is cut and ends in a sum of the whole, so that different ids stay
// different; the same id always gives the same.
func RequestID(id string) string {
	clean := Printable(id)
	if clean == id && len(id) <= MaxRequestID {
		return id
	}
	sum := "-" + SumOf(id)
	return strings.ToValidUTF8(clean[:min(len(clean), MaxRequestID-len(sum))], "") + sum
}

// Printable is a text of somebody else's without what would spoil a line of a log or of a terminal.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
}

// CheckRequestID refuses what cannot be the id of a request that a caller names.
func CheckRequestID(id string) error {
	switch {
	case id == "":
		return errors.New("the id of a request is not empty")
	case len(id) > MaxRequestID:
		return fmt.Errorf("the id of a request has at most %d bytes, and this one has %d", MaxRequestID, len(id))
	case strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' }):
		return errors.New("the id of a request holds neither spaces nor control characters")
	}
	return nil
}

// maxRequestedBy bounds the names of those who asked, in bytes.
const maxRequestedBy = 200

// Join is both requests as one. A request that is there already is not counted twice.
func (r *Request) Join(other Request) *Request {
	if r == nil {
		r = &Request{}
	}
	joined := Request{IDs: slices.Clone(r.IDs), Force: r.Force || other.Force, RequestedBy: r.RequestedBy}
	for _, id := range other.IDs {
		if !slices.Contains(joined.IDs, id) {
			joined.IDs = append(joined.IDs, id)
		}
	}
	for name := range strings.SplitSeq(Printable(other.RequestedBy), ", ") {
		names := joined.RequestedBy
		if name == "" || slices.Contains(strings.Split(names, ", "), name) || len(names)+len(name)+2 > maxRequestedBy {
			continue
		}
		if names != "" {
			name = names + ", " + name
		}
		joined.RequestedBy = name
	}
	return &joined
}

// Split takes the first n requests out of many; the others keep what was asked of all. Either may be nil.
func (r *Request) Split(n int) (first, rest *Request) {
	if r == nil || len(r.IDs) <= n {
		return r, nil
	}
	taken, left := *r, *r
	taken.IDs, left.IDs = slices.Clone(r.IDs[:n]), slices.Clone(r.IDs[n:])
	return &taken, &left
}

// handledLimit bounds status.lastHandledRequests (D35).
const handledLimit = 20

// Handle puts answers at the head of the list of handled requests, the newest first. The list is bounded; the entry
// whose id is keep stays in any case: it is the value of the annotation that the Release still carries, and forgetting
// it would serve that request again.
func Handle(list, answers []v1alpha1.HandledRequest, keep string) []v1alpha1.HandledRequest {
	out := slices.Clone(answers)
	slices.Reverse(out)
	for _, old := range list {
		if !Handled(out, old.ID) {
			out = append(out, old)
		}
	}
	if len(out) <= handledLimit {
		return out
	}
	kept, rest := out[:handledLimit], out[handledLimit:]
	for _, old := range rest {
		if keep != "" && old.ID == keep {
			kept[handledLimit-1] = old
		}
	}
	return kept
}

// Handled reports whether a request was answered already.
func Handled(list []v1alpha1.HandledRequest, id string) bool {
	return slices.ContainsFunc(list, func(r v1alpha1.HandledRequest) bool { return r.ID == id })
}
