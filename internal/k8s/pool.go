// Package k8s is the target cluster: dry run, apply, read, delete, health, discovery, and the Jobs of hooks.
//
// It alone knows what the API server's answers mean (D7): every answer that is no success leaves this package as a
// *release.Failure with its class, scrubbed of Secret values (D10). It decides nothing about a sync: order, reasons,
// what is protected and what is excused (D8) are decided in internal/release by its callers. It knows nothing of
// Temporal, and it logs nothing.
//
// Every request asks the guard of its context first (D16, release.WithGuard). An error of the guard, or of the ended
// context, comes back wrapped and is never a *release.Failure.
package k8s

import (
	"bytes"
	"container/list"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// FieldManager is convoy's field manager (S13).
const FieldManager = "convoy"

// maxClusters bounds a Pool. Least recently used clusters lose their connections and their discovery cache.
const maxClusters = 256

// Pool keeps one Cluster per distinct credentials, so that all Releases that go to one cluster in one identity share
// connections and a discovery cache. It is safe for concurrent use.
type Pool struct {
	mu       sync.Mutex
	size     int
	clusters map[string]*list.Element // of *pooled
	recent   *list.List               // most recent first
	limits   map[string]*limit        // by the cluster's address: see Limit
}

type pooled struct {
	key     string
	cluster *Cluster
}

// NewPool makes an empty Pool.
func NewPool() *Pool {
	return &Pool{size: maxClusters, clusters: map[string]*list.Element{}, recent: list.New(), limits: map[string]*limit{}}
}

// Connect returns the Cluster of these credentials; it sends no request. The same contents of cfg give the same
// Cluster. Functions in cfg (WrapTransport, Dial, Proxy, …) are used but not compared. Client-side rate limits of cfg
// are ignored: the API server has its own.
func (p *Pool) Connect(cfg *rest.Config) (*Cluster, error) {
	key, err := credentialsKey(cfg)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.clusters[key]; ok {
		p.recent.MoveToFront(known)
		return known.Value.(*pooled).cluster, nil
	}
	cluster, err := newCluster(cfg)
	if err != nil {
		return nil, err
	}
	p.clusters[key] = p.recent.PushFront(&pooled{key: key, cluster: cluster})
	for p.recent.Len() > p.size {
		p.evict(p.recent.Back())
	}
	return cluster, nil
}

// evict forgets a cluster. Who still holds it can go on using it.
func (p *Pool) evict(oldest *list.Element) {
	gone := p.recent.Remove(oldest).(*pooled)
	delete(p.clusters, gone.key)
	utilnet.CloseIdleConnectionsFor(gone.cluster.client.Transport)
}

// newCluster makes the client. Redirects are not followed: a redirected PATCH would become a GET.
func newCluster(cfg *rest.Config) (*Cluster, error) {
	own := rest.CopyConfig(cfg)
	own.UserAgent = "convoy"
	own.QPS = -1
	own.Timeout = 0
	own.Wrap(func(next http.RoundTripper) http.RoundTripper { return guardTransport{next} })
	base, _, err := rest.DefaultServerUrlFor(own)
	if err != nil {
		return nil, fmt.Errorf("address of the target cluster: %w", err)
	}
	client, err := rest.HTTPClientFor(own)
	if err != nil {
		return nil, fmt.Errorf("credentials of the target cluster: %w", err)
	}
	shared := *client
	shared.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Cluster{base: base, client: &shared, address: clusterAddress(base, own), discovery: &discovery{}}, nil
}

// credentialsKey is a hash over everything in cfg that says where to and as whom.
func credentialsKey(cfg *rest.Config) (string, error) {
	tls := cfg.TLSClientConfig
	contents, err := json.Marshal([]any{
		cfg.Host, cfg.APIPath, cfg.Username, cfg.Password, cfg.BearerToken, cfg.BearerTokenFile,
		cfg.Impersonate.UserName, cfg.Impersonate.UID, cfg.Impersonate.Groups, cfg.Impersonate.Extra,
		cfg.AuthProvider, execKey(cfg), cfg.DisableCompression,
		tls.Insecure, tls.ServerName, tls.CertFile, tls.KeyFile, tls.CAFile,
		tls.CertData, tls.KeyData, tls.CAData, tls.NextProtos,
	})
	if err != nil {
		return "", fmt.Errorf("credentials of the target cluster: %w", err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(contents)), nil
}

func execKey(cfg *rest.Config) []any {
	if cfg.ExecProvider == nil {
		return nil
	}
	return []any{cfg.ExecProvider.Command, cfg.ExecProvider.Args, cfg.ExecProvider.Env, cfg.ExecProvider.APIVersion}
}

// clusterAddress is a hash that stands for the cluster where its identity cannot be read (see Identity). A certificate
// authority counts by its contents: one kubeconfig holds it, another names its file.
func clusterAddress(base *url.URL, cfg *rest.Config) string {
	authority := cfg.CAData
	if len(authority) == 0 && cfg.CAFile != "" {
		authority, _ = os.ReadFile(cfg.CAFile) // the client could not have been made of a file that cannot be read
	}
	h := sha256.New()
	h.Write([]byte(strings.TrimSuffix(base.String(), "/")))
	h.Write([]byte{0})
	h.Write(bytes.TrimSpace(authority))
	return fmt.Sprintf("server:%x", h.Sum(nil)[:16])
}
