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
	for name := range strings.SplitSeq(other.RequestedBy, ", ") {
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
