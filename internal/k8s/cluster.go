package k8s

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"convoy.dev/convoy/internal/release"
)

// identityFor is how long a cluster's identity is believed: another cluster may take over an address (D31).
const identityFor = time.Minute

// Cluster is one target cluster, seen through one identity. It is safe for concurrent use. What a step does there
// goes through a Session.
type Cluster struct {
	base      *url.URL
	client    *http.Client
	address   string
	discovery *discovery
	lists     deniedLists
	silence   silence
	limit     atomic.Pointer[limit]

	who        flight[string]
	identityMu sync.Mutex
	identity   string
	identityAt time.Time
}

// Address stands for the cluster where an identity may not read who it is: "server:" and a hash of address and
// certificate authority. It is the same for all identities that take the same way to the cluster.
func (c *Cluster) Address() string { return c.address }

// Identity names the cluster (D31): the uid of its namespace kube-system. An identity that may not read this
// namespace, or a cluster without it, gives its Address instead: then
// a cluster that is made anew behind the same address looks like the old one, and a changed address like another.
// The answer is kept for a minute. Fails with a *release.Failure of class Accident.
func (c *Cluster) Identity(ctx context.Context) (string, error) {
	if known := c.knownIdentity(); known != "" {
		return known, nil
	}
	return c.who.join(ctx, "the question who it is", func() (string, error) { return c.askIdentity(ctx) })
}

func (c *Cluster) knownIdentity() string {
	c.identityMu.Lock()
	defer c.identityMu.Unlock()
	if time.Since(c.identityAt) >= identityFor {
		return ""
	}
	return c.identity
}

func (c *Cluster) askIdentity(ctx context.Context) (string, error) {
	ref := release.ObjectRef{Kind: "Namespace", Name: "kube-system"}
	reply, err := c.send(ctx, request{method: http.MethodGet, path: "/api/v1/namespaces/kube-system", accept: acceptMetadata})
	if err != nil {
		return "", err
	}
	identity := c.address
	switch reply.code {
	case http.StatusOK:
		meta, err := decodeMetadata(reply.body)
		if err != nil {
			return "", err
		}
		identity = string(meta.UID)
	case http.StatusForbidden, http.StatusNotFound:
	default:
		failure := classify(ref, nil, reply)
		failure.Class = release.Accident
		return "", failure
	}
	c.identityMu.Lock()
	defer c.identityMu.Unlock()
	c.identity, c.identityAt = identity, time.Now()
	return identity, nil
}
