package k8s

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"convoy.dev/convoy/internal/release"
)

const (
	establishedFor     = 40 * time.Second
	shortestLook       = 100 * time.Millisecond
	longestLook        = time.Second
	establishedMessage = "CustomResourceDefinition %s is not usable after %s: %s"
)

// crdGroup is the group of CustomResourceDefinitions.
const crdGroup = "apiextensions.k8s.io"

// definition is what matters here of a CustomResourceDefinition.
type definition struct {
	Spec struct {
		Group string `json:"group"`
		Names struct {
			Kind string `json:"kind"`
		} `json:"names"`
		Versions []struct {
			Name   string `json:"name"`
			Served bool   `json:"served"`
		} `json:"versions"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type    string `json:"type"`
			Status  string `json:"status"`
			Message string `json:"message"`
		} `json:"conditions"`
	} `json:"status"`
}

// AwaitEstablished waits until each of the named CustomResourceDefinitions is Established and discovery shows all its
// served versions (D11). It looks every 100ms to 1s, for at most 40s for all of them together. Apply does the same by
// itself for the kinds of SessionOptions.RenderCRDs, before the first object of a kind.
//
// Fails with a *release.Failure of class Accident, or with the guard's or the context's error.
func (s *Session) AwaitEstablished(ctx context.Context, crds []string) error {
	deadline := time.Now().Add(establishedFor)
	for _, name := range crds {
		if err := s.awaitOne(ctx, name, deadline); err != nil {
			return err
		}
		s.mu.Lock()
		delete(s.defined, name)
		s.mu.Unlock()
	}
	return nil
}

func (s *Session) awaitOne(ctx context.Context, name string, deadline time.Time) error {
	wait := shortestLook
	for {
		why, err := s.whyNotEstablished(ctx, name)
		if err != nil || why == "" {
			return err
		}
		if time.Now().Add(wait).After(deadline) {
			return &release.Failure{
				Class:   release.Accident,
				Message: cut(fmt.Sprintf(establishedMessage, name, establishedFor, why), messageLimit),
			}
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, longestLook)
	}
}

// whyNotEstablished is empty when the definition can be used.
func (s *Session) whyNotEstablished(ctx context.Context, name string) (string, error) {
	ref := release.ObjectRef{Group: crdGroup, Kind: "CustomResourceDefinition", Name: name}
	var reply answer
	err := s.retry(ctx, nil, func(ctx context.Context) (err error) {
		reply, err = s.get(ctx, ref, acceptJSON)
		return err
	})
	if failure := asFailure(err); failure != nil && failure.Code == http.StatusNotFound {
		return "it does not exist", nil
	}
	if err != nil {
		return "", err
	}
	var defined definition
	if err := json.Unmarshal(reply.body, &defined); err != nil {
		return "", unreadable(ref.String(), err)
	}
	if why := defined.notEstablished(); why != "" {
		return why, nil
	}
	return s.whyNotDiscovered(ctx, &defined)
}

func (d *definition) notEstablished() string {
	why := "no condition Established yet"
	for _, condition := range d.Status.Conditions {
		switch {
		case condition.Type == "NamesAccepted" && condition.Status == "False":
			return "its names are not accepted: " + condition.Message
		case condition.Type == "Terminating" && condition.Status == "True":
			return "it is being deleted: " + condition.Message
		case condition.Type == "Established" && condition.Status == "True":
			why = ""
		case condition.Type == "Established":
			why = "it is not established: " + condition.Message
		}
	}
	return why
}

// whyNotDiscovered looks into the discovery at hand first, then into one that is at most 100ms old.
func (s *Session) whyNotDiscovered(ctx context.Context, d *definition) (string, error) {
	if known := s.cluster.discovery.current(); known != nil && d.undiscovered(known) == "" {
		return "", nil
	}
	known, err := s.cluster.fresh(ctx, time.Now().Add(-shortestLook))
	if err != nil {
		return "", err
	}
	return d.undiscovered(known), nil
}

func (d *definition) undiscovered(known *catalog) string {
	for _, version := range d.Spec.Versions {
		gvk := schema.GroupVersionKind{Group: d.Spec.Group, Version: version.Name, Kind: d.Spec.Names.Kind}
		if _, ok := known.find(gvk); version.Served && !ok {
			return "discovery does not show version " + version.Name + " yet"
		}
	}
	return ""
}

// noteDefinition remembers a definition that this session has applied, so that its first object awaits it.
func (s *Session) noteDefinition(ref release.ObjectRef, applied release.Applied) {
	if !ref.IsCRD() || !applied.Changed {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.defined[ref.Name] = true
}

// awaitDefinition waits for the definition of ref's kind when this session has applied it (D11).
func (s *Session) awaitDefinition(ctx context.Context, ref release.ObjectRef) error {
	name, ours := s.options.RenderCRDs[ref.GroupKind()]
	s.mu.Lock()
	pending := ours && s.defined[name]
	s.mu.Unlock()
	if !pending {
		return nil
	}
	return s.AwaitEstablished(ctx, []string{name})
}

// excuses tells which failures of an apply of ref are worth another try although they are no accidents: for kinds
// that this render defines, denials within 10s after the first one (D11).
func (s *Session) excuses(ref release.ObjectRef) func(*release.Failure) bool {
	gk := ref.GroupKind()
	if _, ours := s.options.RenderCRDs[gk]; !ours {
		return nil
	}
	return func(failure *release.Failure) bool {
		if failure.Class != release.UnknownKind && !failure.Schema {
			return false
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		first, again := s.denied[gk]
		if !again {
			first = time.Now()
			s.denied[gk] = first
		}
		return time.Since(first) < graceFor
	}
}
