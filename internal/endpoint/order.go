package endpoint

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"convoy.dev/convoy/internal/release"
)

// maxBody bounds the body of a call, in bytes.
const maxBody = 64 << 10

// order is what a caller wants.
type order struct {
	id    string
	force bool
}

// body of a call. It is optional, and so is each of its members.
type body struct {
	ID    *string `json:"id"`
	Force *bool   `json:"force"`
}

// readOrder reads what a call asks for: from its query, its body and its headers, which may not contradict each other.
// A word that convoy does not know is refused rather than passed over.
func readOrder(rw http.ResponseWriter, req *http.Request, verb string) (order, error) {
	said, err := readBody(rw, req)
	if err != nil {
		return order{}, err
	}
	var ids []string
	if said.ID != nil {
		ids = append(ids, *said.ID)
	}
	if key := req.Header.Get("Idempotency-Key"); key != "" {
		ids = append(ids, strings.Trim(key, `"`))
	}
	asked, more, err := readQuery(req.URL.RawQuery)
	if err != nil {
		return order{}, err
	}
	out := order{}
	for _, id := range append(ids, more...) {
		if err := release.CheckRequestID(id); err != nil {
			return order{}, badRequest(err.Error())
		}
		if out.id != "" && out.id != id {
			return order{}, badRequest("the call names two ids: name one, in the query, the body or Idempotency-Key")
		}
		out.id = id
	}
	if asked != nil && said.Force != nil && *asked != *said.Force {
		return order{}, badRequest("query and body contradict each other about force")
	}
	out.force = asked != nil && *asked || said.Force != nil && *said.Force
	if out.force && verb != VerbSync {
		return order{}, badRequest("force belongs to a sync: a reconcile decides itself whether one is due")
	}
	return out, nil
}

func badRequest(message string) *Refusal {
	return refuse(http.StatusBadRequest, "BadRequest", "%s", message)
}

func readBody(rw http.ResponseWriter, req *http.Request) (body, error) {
	var said body
	raw, err := io.ReadAll(http.MaxBytesReader(rw, req.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return said, refuse(http.StatusRequestEntityTooLarge, "TooLarge", "the body has at most %d bytes", maxBody)
	case err != nil:
		return said, badRequest("the body did not arrive whole")
	case len(strings.TrimSpace(string(raw))) == 0:
		return said, nil
	}
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&said); err != nil {
		return said, badRequest(`the body is {"id":"…","force":true}, both optional: ` + err.Error())
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return said, badRequest("the body is one JSON object, and something follows it")
	}
	return said, nil
}

// readQuery reads ?force=true&id=….
func readQuery(raw string) (force *bool, ids []string, err error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, nil, badRequest("the query cannot be read")
	}
	for name, all := range values {
		switch {
		case len(all) > 1:
			return nil, nil, badRequest("the query names something twice: " + name)
		case name == "id":
			ids = all
		case name == "force" && (all[0] == "true" || all[0] == "false"):
			yes := all[0] == "true"
			force = &yes
		case name == "force":
			return nil, nil, badRequest("force is true or false")
		default:
			return nil, nil, badRequest("the query may hold id and force, and nothing else")
		}
	}
	return force, ids, nil
}

// bearer is the token of a call.
func bearer(header http.Header) (token string, ok bool) {
	lines := header.Values("Authorization")
	if len(lines) != 1 {
		return "", false
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	token = strings.TrimSpace(token)
	return token, strings.EqualFold(scheme, "Bearer") && token != ""
}
