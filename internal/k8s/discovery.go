package k8s

import (
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"sort"
	"strings"
	"sync"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"convoy.dev/convoy/internal/release"
)

// freshFor is how long a discovery counts as fresh: a cluster is asked again at most this often, however many objects
// of unknown kinds there are.
const freshFor = time.Second

const acceptDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"

// Mapping says where objects of a kind live.
type Mapping struct {
	Resource   schema.GroupVersionResource
	Namespaced bool
}

// discovery is what a cluster serves, as seen at one time.
type discovery struct {
	fetch flight[*catalog]

	mu      sync.Mutex
	catalog *catalog // nil before the first fetch; never changed after it was stored, apart from probed
}

// catalog is one fetch.
type catalog struct {
	asked  time.Time // when the fetch began
	groups map[string]*groupVersions
	// probed remembers what the second look at a missing kind said: nil for "does not exist".
	probedMu sync.Mutex
	probed   map[string]*release.Failure
}

// groupVersions are the versions of one group, the server's preferred one first.
type groupVersions struct {
	versions []*servedVersion
}

type servedVersion struct {
	name  string
	kinds map[string]Mapping
	// stale: the server of this version did not answer the API server; kinds may be missing or old.
	stale bool
}

// Resolve finds the resource and the scope of a kind. A miss is looked up in fresh discovery (D11) before it counts.
// Fails with a *release.Failure: UnknownKind when the cluster does not serve this group, version and kind; Accident
// when it cannot tell because discovery fails. An aggregated API that is down is an accident for kinds of its own
// group alone (D17).
func (c *Cluster) Resolve(ctx context.Context, gvk schema.GroupVersionKind) (Mapping, error) {
	return c.lookUp(ctx, func(known *catalog) (Mapping, bool) { return known.find(gvk) }, func(known *catalog) error {
		return c.explainMiss(ctx, known, gvk.GroupKind(), gvk.Version)
	})
}

// ResolveKind is Resolve for a kind without a version, as inventories record it (S19): the server's preferred version
// among those that serve the kind.
func (c *Cluster) ResolveKind(ctx context.Context, gk schema.GroupKind) (Mapping, error) {
	return c.lookUp(ctx, func(known *catalog) (Mapping, bool) { return known.findKind(gk) }, func(known *catalog) error {
		return c.explainMiss(ctx, known, gk, "")
	})
}

// RefreshDiscovery fetches discovery, unless it was fetched within the last second.
func (c *Cluster) RefreshDiscovery(ctx context.Context) error {
	_, err := c.fresh(ctx, time.Now().Add(-freshFor))
	return err
}

func (c *Cluster) lookUp(ctx context.Context, find func(*catalog) (Mapping, bool), miss func(*catalog) error) (Mapping, error) {
	if known := c.discovery.current(); known != nil {
		if mapping, ok := find(known); ok {
			return mapping, nil
		}
	}
	known, err := c.fresh(ctx, time.Now().Add(-freshFor))
	if err != nil {
		return Mapping{}, err
	}
	if mapping, ok := find(known); ok {
		return mapping, nil
	}
	return Mapping{}, miss(known)
}

func (d *discovery) current() *catalog {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.catalog
}

// fresh returns a discovery that was asked for after since. Callers at the same time share one fetch.
func (c *Cluster) fresh(ctx context.Context, since time.Time) (*catalog, error) {
	for {
		if known := c.discovery.current(); known != nil && known.asked.After(since) {
			return known, nil
		}
		_, err := c.discovery.fetch.join(ctx, "discovery", func() (*catalog, error) {
			fetched, err := c.fetchCatalog(ctx)
			if err == nil {
				c.discovery.store(fetched)
			}
			return fetched, err
		})
		if err != nil {
			return nil, err
		}
	}
}

func (d *discovery) store(fetched *catalog) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.catalog = fetched
}

func (k *catalog) find(gvk schema.GroupVersionKind) (Mapping, bool) {
	if group := k.groups[gvk.Group]; group != nil {
		for _, version := range group.versions {
			if version.name == gvk.Version {
				mapping, ok := version.kinds[gvk.Kind]
				return mapping, ok
			}
		}
	}
	return Mapping{}, false
}

func (k *catalog) findKind(gk schema.GroupKind) (Mapping, bool) {
	if group := k.groups[gk.Group]; group != nil {
		for _, version := range group.versions {
			if mapping, ok := version.kinds[gk.Kind]; ok {
				return mapping, true
			}
		}
	}
	return Mapping{}, false
}

// explainMiss tells a kind that does not exist from one whose group cannot be discovered. It asks the group itself
// once more, because aggregated discovery is behind by a moment: a group that was just registered is not listed yet.
func (c *Cluster) explainMiss(ctx context.Context, known *catalog, gk schema.GroupKind, version string) error {
	var served []string
	if group := known.groups[gk.Group]; group != nil {
		for _, v := range group.versions {
			if v.stale && (version == "" || v.name == version) {
				return undiscovered(gk, fmt.Sprintf("discovery of %s/%s is stale: its API server does not answer", gk.Group, v.name))
			}
			if _, ok := v.kinds[gk.Kind]; ok {
				served = append(served, v.name)
			}
		}
	}
	if err := c.probe(ctx, known, gk, version); err != nil {
		return err
	}
	message := fmt.Sprintf("the cluster does not know the kind %s", gk)
	if version != "" {
		message = fmt.Sprintf("the cluster does not know the kind %s in version %s", gk, version)
	}
	if len(served) > 0 {
		sort.Strings(served)
		message += ", only in " + strings.Join(served, ", ")
	}
	return &release.Failure{Class: release.UnknownKind, Message: message}
}

// probe asks the versions of the group one by one, or the one version, what they serve. Nil means that the kind does
// not exist.
func (c *Cluster) probe(ctx context.Context, known *catalog, gk schema.GroupKind, version string) error {
	if gk.Group == "" {
		return nil
	}
	known.probedMu.Lock()
	defer known.probedMu.Unlock()
	key := gk.String() + "/" + version
	if failure, ok := known.probed[key]; ok {
		return asError(failure)
	}
	versions := []string{version}
	if version == "" {
		var err error
		if versions, err = c.probeGroup(ctx, gk); err != nil {
			return err
		}
	}
	for _, one := range versions {
		failure, err := c.probeVersion(ctx, gk, one)
		if err != nil {
			return err
		}
		known.probed[key] = failure
		if failure != nil {
			break
		}
	}
	return asError(known.probed[key])
}

func asError(failure *release.Failure) error {
	if failure == nil {
		return nil
	}
	copied := *failure
	return &copied
}

// probeGroup is the versions that the group has, none when it does not exist.
func (c *Cluster) probeGroup(ctx context.Context, gk schema.GroupKind) ([]string, error) {
	reply, err := c.send(ctx, request{method: http.MethodGet, path: "/apis/" + gk.Group, accept: acceptJSON})
	if err != nil {
		return nil, err
	}
	var group metav1.APIGroup
	switch {
	case reply.code == http.StatusNotFound:
		return nil, nil
	case reply.code != http.StatusOK, json.Unmarshal(reply.body, &group) != nil:
		return nil, undiscovered(gk, fmt.Sprintf("discovery of %s answers HTTP %d", gk.Group, reply.code))
	}
	var versions []string
	for _, version := range group.Versions {
		versions = append(versions, version.Version)
	}
	return versions, nil
}

func (c *Cluster) probeVersion(ctx context.Context, gk schema.GroupKind, version string) (*release.Failure, error) {
	gv := schema.GroupVersion{Group: gk.Group, Version: version}
	reply, err := c.send(ctx, request{method: http.MethodGet, path: groupVersionPath(gv), accept: acceptJSON})
	if err != nil {
		return nil, err
	}
	var list metav1.APIResourceList
	switch {
	case reply.code == http.StatusNotFound:
		return nil, nil
	case reply.code != http.StatusOK, json.Unmarshal(reply.body, &list) != nil:
		return undiscovered(gk, fmt.Sprintf("discovery of %s answers HTTP %d", gv, reply.code)), nil
	}
	for _, resource := range list.APIResources {
		if resource.Kind == gk.Kind {
			return undiscovered(gk, fmt.Sprintf("it has just appeared in %s", gv)), nil
		}
	}
	return nil, nil
}

func undiscovered(gk schema.GroupKind, why string) *release.Failure {
	return &release.Failure{
		Class:   release.Accident,
		Code:    http.StatusServiceUnavailable,
		Message: fmt.Sprintf("the cluster cannot tell now whether it knows the kind %s: %s", gk, why),
	}
}

// fetchCatalog asks with two requests; a server without aggregated discovery needs one more for each group version.
func (c *Cluster) fetchCatalog(ctx context.Context) (*catalog, error) {
	fetched := &catalog{asked: time.Now(), groups: map[string]*groupVersions{}, probed: map[string]*release.Failure{}}
	for _, path := range []string{"/api", "/apis"} {
		reply, err := c.send(ctx, request{method: http.MethodGet, path: path, accept: acceptDiscovery})
		if err != nil {
			return nil, err
		}
		if reply.code != http.StatusOK {
			failure := classify(release.ObjectRef{}, nil, reply)
			failure.Class = release.Accident
			failure.Message = cut("discovery of the target cluster failed: "+failure.Message, messageLimit)
			return nil, failure
		}
		if err := c.readGroups(ctx, fetched, path, reply); err != nil {
			return nil, err
		}
	}
	return fetched, nil
}

func (c *Cluster) readGroups(ctx context.Context, into *catalog, path string, reply answer) error {
	if !isAggregated(reply) {
		return c.readLegacyGroups(ctx, into, path, reply)
	}
	var aggregated apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(reply.body, &aggregated); err != nil {
		return unreadable("discovery", err)
	}
	for i := range aggregated.Items {
		into.groups[aggregated.Items[i].Name] = readAggregatedGroup(&aggregated.Items[i])
	}
	return nil
}

func isAggregated(reply answer) bool {
	_, parameters, err := mime.ParseMediaType(reply.header.Get("Content-Type"))
	return err == nil && parameters["as"] == "APIGroupDiscoveryList"
}

func readAggregatedGroup(group *apidiscoveryv2.APIGroupDiscovery) *groupVersions {
	read := &groupVersions{}
	for _, version := range group.Versions {
		served := &servedVersion{
			name:  version.Version,
			kinds: map[string]Mapping{},
			stale: version.Freshness == apidiscoveryv2.DiscoveryFreshnessStale,
		}
		gv := schema.GroupVersion{Group: group.Name, Version: version.Version}
		for _, resource := range version.Resources {
			if resource.ResponseKind != nil && resource.ResponseKind.Kind != "" {
				namespaced := resource.Scope == apidiscoveryv2.ScopeNamespace
				served.add(gv, resource.Resource, resource.ResponseKind.Kind, namespaced, resource.Verbs)
			}
		}
		read.versions = append(read.versions, served)
	}
	return read
}

// add notes a resource. Where two resources of a version share a kind, one that can be patched wins.
func (v *servedVersion) add(gv schema.GroupVersion, resource, kind string, namespaced bool, verbs []string) {
	_, taken := v.kinds[kind]
	if taken && !contains(verbs, "patch") {
		return
	}
	v.kinds[kind] = Mapping{Resource: gv.WithResource(resource), Namespaced: namespaced}
}

func contains(list []string, wanted string) bool {
	for _, one := range list {
		if one == wanted {
			return true
		}
	}
	return false
}

// readLegacyGroups serves API servers older than aggregated discovery, and proxies that drop the Accept header.
func (c *Cluster) readLegacyGroups(ctx context.Context, into *catalog, path string, reply answer) error {
	if path == "/api" {
		var core metav1.APIVersions
		if err := json.Unmarshal(reply.body, &core); err != nil {
			return unreadable("discovery", err)
		}
		return c.readLegacyVersions(ctx, into, "", core.Versions)
	}
	var list metav1.APIGroupList
	if err := json.Unmarshal(reply.body, &list); err != nil {
		return unreadable("discovery", err)
	}
	for _, group := range list.Groups {
		if err := c.readLegacyVersions(ctx, into, group.Name, legacyOrder(group)); err != nil {
			return err
		}
	}
	return nil
}

// legacyOrder puts the preferred version first.
func legacyOrder(group metav1.APIGroup) []string {
	ordered := []string{group.PreferredVersion.Version}
	for _, version := range group.Versions {
		if version.Version != group.PreferredVersion.Version {
			ordered = append(ordered, version.Version)
		}
	}
	return ordered
}

func (c *Cluster) readLegacyVersions(ctx context.Context, into *catalog, group string, versions []string) error {
	read := &groupVersions{}
	for _, name := range versions {
		gv := schema.GroupVersion{Group: group, Version: name}
		reply, err := c.send(ctx, request{method: http.MethodGet, path: groupVersionPath(gv), accept: acceptJSON})
		if err != nil {
			return err
		}
		served := &servedVersion{name: name, kinds: map[string]Mapping{}}
		var list metav1.APIResourceList
		if reply.code != http.StatusOK || json.Unmarshal(reply.body, &list) != nil {
			served.stale = true
		}
		for _, resource := range list.APIResources {
			if !strings.Contains(resource.Name, "/") {
				served.add(gv, resource.Name, resource.Kind, resource.Namespaced, resource.Verbs)
			}
		}
		read.versions = append(read.versions, served)
	}
	into.groups[group] = read
	return nil
}

// unreadable is an answer that is not what its code promises, such as a proxy's page.
func unreadable(what string, err error) *release.Failure {
	return &release.Failure{
		Class:   release.Accident,
		Message: cut(fmt.Sprintf("the target cluster's answer to %s cannot be read: %v", what, err), messageLimit),
	}
}
