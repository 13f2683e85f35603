package release

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// canonical is the JSON of a document: keys sorted, no white space, no HTML escapes, numbers as they are. It is one
// line: JSON escapes line breaks.
func canonical(m map[string]any) json.RawMessage {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(m); err != nil {
		// Cannot happen: the parser builds m of JSON values alone.
		panic(fmt.Sprintf("canonical JSON: %v", err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// readCanonical reads canonical JSON back, every digit kept.
func readCanonical(data []byte) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var m map[string]any
	if err := decoder.Decode(&m); err != nil {
		return nil, err
	}
	if decoder.More() {
		return nil, errors.New("more than one value in a line")
	}
	return m, nil
}

// digest is over the canonical objects, each followed by a line break. Canonical JSON holds none, so no two renders
// share a framing (D5).
func digest(objects []Object) string {
	h := sha256.New()
	for i := range objects {
		h.Write(objects[i].JSON)
		h.Write([]byte("\n"))
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// storedFormat names the form that Encode writes. A reader refuses any other.
const storedFormat = "convoy.dev/render/v1"

type storedHeader struct {
	Format   string `json:"format"`
	Digest   string `json:"digest"`
	Objects  int    `json:"objects"`
	Revision string `json:"revision,omitempty"`
}

// Encode is the stored form of a render: one line of header, then one line of canonical JSON per object. What follows
// the header is what the digest covers, so `tail -n +2 FILE | sha256sum` checks a stored render.
func Encode(r *Render) []byte {
	header, err := json.Marshal(storedHeader{storedFormat, r.Digest, len(r.Objects), r.Revision})
	if err != nil {
		panic(fmt.Sprintf("header of a render: %v", err)) // strings and a number: cannot happen
	}
	var b bytes.Buffer
	b.Grow(len(header) + 1 + r.Size() + len(r.Objects))
	b.Write(header)
	b.WriteByte('\n')
	for i := range r.Objects {
		b.Write(r.Objects[i].JSON)
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// Decode reads what Encode wrote. It checks format, number of objects and digest: a cut or changed render is an error.
// The objects have no Place.
func Decode(stored []byte) (*Render, error) {
	head, body, _ := bytes.Cut(stored, []byte("\n"))
	var header storedHeader
	if err := json.Unmarshal(head, &header); err != nil {
		return nil, errors.New("not a stored render: the first line is no header")
	}
	if header.Format != storedFormat {
		return nil, fmt.Errorf("a stored render of the format %q, and this convoy reads %q", clip(header.Format, 100), storedFormat)
	}
	if sum := sha256.Sum256(body); header.Digest != "sha256:"+hex.EncodeToString(sum[:]) {
		return nil, fmt.Errorf("the content does not match its digest %s", clip(header.Digest, 80))
	}
	r := &Render{Digest: header.Digest, Revision: header.Revision}
	for len(body) > 0 {
		var line []byte
		line, body, _ = bytes.Cut(body, []byte("\n"))
		if err := r.addStored(line); err != nil {
			return nil, fmt.Errorf("object %d: %w", len(r.Objects)+1, err)
		}
	}
	if len(r.Objects) != header.Objects {
		return nil, fmt.Errorf("it holds %d objects, and its header says %d", len(r.Objects), header.Objects)
	}
	return r, nil
}

// addStored adds an object as it is stored. Its JSON stays as it is, so that the digest holds in later versions too.
func (r *Render) addStored(line []byte) error {
	m, err := readCanonical(line)
	if err != nil {
		return errors.New("is not JSON")
	}
	object, faults := newObject(m)
	if len(faults) > 0 {
		return errors.New(faults[0])
	}
	object.JSON = bytes.Clone(line)
	r.add(object, m)
	return nil
}
