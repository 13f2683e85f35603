package k8s

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"convoy.dev/convoy/internal/release"
)

// facts looks at objects and requires success.
func (s *server) facts(refs ...release.ObjectRef) []release.Seen {
	s.t.Helper()
	seen, err := s.impatient().Facts(s.t.Context(), refs)
	require.NoError(s.t, err)
	require.Len(s.t, seen, len(refs))
	return seen
}

// patch is what another manager does: a merge patch.
func (s *server) patch(obj *release.Object, patch string) {
	s.t.Helper()
	_, err := s.client(obj).Patch(s.t.Context(), obj.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "somebody"})
	require.NoError(s.t, err)
}

// configMaps applies ConfigMaps of these names and returns their identities, and the facts that the applies gave.
func (s *server) configMaps(names ...string) (refs []release.ObjectRef, facts []release.Fact) {
	s.t.Helper()
	refs, facts = make([]release.ObjectRef, len(names)), make([]release.Fact, len(names))
	session := s.impatient()
	err := inFlight(s.t.Context(), looksAtOnce, len(names), func(ctx context.Context, i int) error {
		obj := s.object(replace(configMap, "settings", names[i]))
		refs[i] = ref(obj)
		applied, err := session.Apply(ctx, obj, refs[i])
		facts[i] = applied.Fact
		return err
	})
	require.NoError(s.t, err)
	return refs, facts
}

// numbered are names "prefix0001", in alphabetical order.
func numbered(prefix string, count int) []string {
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("%s%04d", prefix, i)
	}
	return names
}

func present(facts []release.Fact) []release.Seen {
	seen := make([]release.Seen, len(facts))
	for i, fact := range facts {
		seen[i] = release.Seen{Present: true, Fact: fact}
	}
	return seen
}

// deployment has names that JSON may write in two ways.
const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS, labels: {convoy: "yes"}, annotations: {}}
spec:
  replicas: 2
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: web, image: "web:1", env: [{name: "A<&>", value: x}]}]}
`

// D30: what an apply gave is seen again, by GET and by LIST, of every sort of kind, also when others have added what is
// theirs, and the next apply of the same gives the same.
func TestFacts_D30_unchanged_is_equal(t *testing.T) {
	s := newServer(t)
	session := s.cluster.Session(SessionOptions{RenderCRDs: s.lampKinds()})
	definition := s.object(replace(crd, "FIELDS", ""))
	s.deleteLater(definition)
	_, err := session.Apply(t.Context(), definition, global(definition))
	require.NoError(t, err)
	bare := s.object("{apiVersion: v1, kind: ServiceAccount, metadata: {name: bare, namespace: NS}}")
	bare.Bare = true
	webs := []*release.Object{s.object(deployment)}
	for _, name := range []string{"web1", "web2", "web3"} {
		webs = append(webs, s.object(strings.Replace(deployment, "name: web,", "name: "+name+",", 1)))
	}
	objects := slices.Concat(webs, []*release.Object{
		s.object(configMap), s.object(lamp), bare,
		s.object("{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: NS}, data: {a: YQ==}}"),
	})
	var refs []release.ObjectRef
	var facts []release.Fact
	for _, obj := range objects {
		refs = append(refs, ref(obj))
		facts = append(facts, s.apply(session, obj).Fact)
	}
	s.requests.take()
	require.Equal(t, present(facts), s.facts(refs...))
	require.Len(t, s.requests.take(), 5, "one list for the Deployments, and one get for each of the others")

	for _, obj := range objects {
		s.patch(obj, `{"metadata":{"labels":{"theirs":"1"}}}`)
		if obj != bare {
			s.patch(obj, `{"metadata":{"annotations":{"theirs":"1"}}}`)
		}
	}
	s.patch(webs[0], `{"spec":{"minReadySeconds":5}}`)
	s.patch(s.object(configMap), `{"data":{"more":"theirs"}}`)
	s.setStatus(webs[1], map[string]any{"observedGeneration": 1})
	s.setStatus(s.object(lamp), map[string]any{"lit": true})
	s.patch(webs[2], `{"spec":{"replicas":2}}`)
	require.Equal(t, present(facts), s.facts(refs...), "what others add is theirs")

	for i, obj := range objects {
		if obj != bare { // which others have taken a map from: an apply takes it back, and its entry gets another time
			require.Equal(t, facts[i], s.apply(session, obj).Fact, "the same again: %s", obj)
		}
	}
}

// D13 D30: an object of which convoy set nothing bears its entry for two empty maps. When others have taken both, the
// entry is gone: that is drift, once, and the next apply brings it back for good.
func TestFacts_D30_bare_object_that_lost_its_entry(t *testing.T) {
	s := newServer(t)
	bare := s.object("{apiVersion: v1, kind: ServiceAccount, metadata: {name: bare, namespace: NS}}")
	bare.Bare = true
	fact := s.apply(s.impatient(), bare).Fact
	s.patch(bare, `{"metadata":{"annotations":{"theirs":"1"}}}`)
	require.Equal(t, present([]release.Fact{fact}), s.facts(ref(bare)))
	s.patch(bare, `{"metadata":{"labels":{"theirs":"1"}}}`)
	require.NotEqual(t, present([]release.Fact{fact}), s.facts(ref(bare)))
	fact = s.apply(s.impatient(), bare).Fact
	s.patch(bare, `{"metadata":{"labels":{"more":"1"},"annotations":{"more":"1"}}}`)
	require.Equal(t, present([]release.Fact{fact}), s.facts(ref(bare)))
}

// D30: each way in which others can undo what convoy set.
func TestFacts_D30_finds_what_drifted(t *testing.T) {
	const was = "was changed or replaced by another writer"
	for name, c := range map[string]struct {
		drift func(s *server, obj *release.Object)
		what  string
	}{
		"a changed value":  {func(s *server, obj *release.Object) { s.patch(obj, `{"data":{"key":"theirs"}}`) }, was},
		"a removed field":  {func(s *server, obj *release.Object) { s.patch(obj, `{"data":{"key":null}}`) }, was},
		"a deleted object": {func(s *server, obj *release.Object) { s.delete(obj) }, "is gone"},
		"made anew": {func(s *server, obj *release.Object) {
			s.delete(obj)
			s.apply(s.impatient(), obj)
		}, was},
		"made anew by others": {func(s *server, obj *release.Object) {
			s.delete(obj)
			s.create(configMap)
		}, was},
		"held by a finalizer": {func(s *server, obj *release.Object) {
			s.patch(obj, `{"metadata":{"finalizers":["example.test/hold"]}}`)
			s.t.Cleanup(func() { s.dropFinalizers(obj) })
			s.delete(obj)
		}, "is being deleted"},
		"ownership removed": {func(s *server, obj *release.Object) { s.patch(obj, `{"metadata":{"managedFields":[{}]}}`) }, was},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			obj := s.object(configMap)
			// By GET alone, and in a LIST among others.
			refs, facts := s.configMaps("settings", "a", "b", "c")
			require.Empty(t, release.Drift(refs, facts, s.facts(refs...)))
			c.drift(s, obj)
			want := []release.Drifted{{Ref: ref(obj), What: c.what}}
			require.Equal(t, want, release.Drift(refs[:1], facts[:1], s.facts(refs[0])))
			require.Equal(t, want, release.Drift(refs, facts, s.facts(refs...)))
		})
	}
}

// D15 D30: after a take-over the last apply counts.
func TestFacts_D30_after_a_take_over(t *testing.T) {
	s := newServer(t)
	s.clientSide(service)
	for _, port := range []string{"port: 80", "port: 8080"} {
		obj := s.object(replace(service, "port: 80", port))
		applied := s.apply(s.impatient(), obj)
		require.Equal(t, present([]release.Fact{applied.Fact}), s.facts(ref(obj)))
	}
	other := newServer(t)
	other.clientSide(service)
	obj := other.object(replace(service, "port: 80", "port: 8080")) // invalid without the take-over
	applied := other.apply(other.impatient(), obj)
	require.NotEmpty(t, applied.TakenOver)
	require.Equal(t, present([]release.Fact{applied.Fact}), other.facts(ref(obj)))
}

// D30: what a look costs. 1000 objects take a few lists; a few objects in a crowd are read one by one, as soon as the
// list shows how long it is.
func TestFacts_D30_requests_of_a_large_namespace(t *testing.T) {
	s := newServer(t)
	refs, facts := s.configMaps(numbered("cm", 1000)...)
	s.requests.take()
	require.Equal(t, present(facts), s.facts(refs...))
	requests := s.requests.take()
	require.LessOrEqual(t, len(requests), 3, "%v", requests)

	require.Equal(t, present(facts[995:]), s.facts(refs[995:]...))
	requests = s.requests.take()
	require.Len(t, requests, 6, "one page of the list, and five gets: %v", requests)

	require.Equal(t, present(facts[:5]), s.facts(refs[:5]...))
	require.Len(t, s.requests.take(), 1, "all stand on the first page")

	require.Equal(t, present(facts[997:]), s.facts(refs[997:]...))
	require.Len(t, s.requests.take(), 3, "three are read one by one")

	absent := append([]release.ObjectRef{{Kind: "ConfigMap", Namespace: s.namespace, Name: "zz"}}, refs...)
	require.Equal(t, append([]release.Seen{{}}, present(facts)...), s.facts(absent...))
	require.LessOrEqual(t, len(s.requests.take()), 4, "an absent one makes no more of it")
}

// lamps applies Lamps, one definition of which the cluster gets, in further namespaces of the test's own.
func (s *server) lamps(namespaces, each int) (refs []release.ObjectRef, facts []release.Fact) {
	s.t.Helper()
	session := s.cluster.Session(SessionOptions{RenderCRDs: s.lampKinds()})
	definition := s.object(replace(crd, "FIELDS", ""))
	s.deleteLater(definition)
	_, err := session.Apply(s.t.Context(), definition, global(definition))
	require.NoError(s.t, err)
	for n := range namespaces {
		namespace := fmt.Sprintf("%s-%d", s.namespace, n)
		s.createGlobal("{apiVersion: v1, kind: Namespace, metadata: {name: " + namespace + "}}")
		for i := range each {
			obj := s.object(strings.NewReplacer("name: l,", fmt.Sprintf("name: l%d,", i), "namespace: NS", "namespace: "+namespace).Replace(lamp))
			refs, facts = append(refs, ref(obj)), append(facts, s.apply(session, obj).Fact)
		}
	}
	return refs, facts
}

// S10 D30: a kind in many namespaces is one list; an identity that may not list it reads it namespace by namespace, and
// one that may not list at all object by object. What is denied is asked for once.
func TestFacts_D30_many_namespaces_and_denied_lists(t *testing.T) {
	s := newServer(t)
	refs, facts := s.lamps(4, 4)
	s.requests.take()
	require.Equal(t, present(facts), s.facts(refs...))
	require.Len(t, s.requests.take(), 1, "one list over all namespaces")
	require.Equal(t, present(facts[:12]), s.facts(refs[:12]...))
	require.Len(t, s.requests.take(), 3, "three namespaces: one list each")
	few := []release.ObjectRef{refs[0], refs[4], refs[8], refs[12]}
	require.Equal(t, present([]release.Fact{facts[0], facts[4], facts[8], facts[12]}), s.facts(few...))
	require.Len(t, s.requests.take(), 4, "four objects are no reason for a wide list")

	reader := s.as(s.namespace + "-reader")
	s.allowLamps("reader", "", "get")
	s.allowLamps("reader", refs[0].Namespace, "list")
	s.eventually("the roles count", func() bool {
		_, err := reader.impatient().Read(t.Context(), refs[0])
		return err == nil && reader.mayList(refs[0])
	})
	reader.requests.take()
	require.Equal(t, present(facts), reader.facts(refs...))
	requests := reader.requests.take()
	require.Equal(t, 1, count(requests, "/lamps?", "/apis/"+refs[0].Group+"/v1/lamps"), "the wide list is denied: %v", requests)
	require.Equal(t, 4, count(requests, "/lamps?", "/namespaces/"), "one is given, three are denied")
	require.Equal(t, 12, count(requests, "/lamps/l"), "gets")

	require.Equal(t, present(facts), reader.facts(refs...))
	requests = reader.requests.take()
	require.Len(t, requests, 13, "no denied list is asked for again: %v", requests)

	_, err := s.as("nobody").impatient().Facts(t.Context(), refs)
	require.Equal(t, release.Verdict, failureOf(t, err).Class, "who may not even read finds out")
	require.Equal(t, http.StatusForbidden, failureOf(t, err).Code)
}

// count is how many requests hold all the parts.
func count(requests []string, parts ...string) int {
	found := 0
	for _, one := range requests {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(one, part)
		}
		if all {
			found++
		}
	}
	return found
}

// mayList asks the API server past Facts.
func (s *server) mayList(of release.ObjectRef) bool {
	collection := of
	collection.Name = ""
	_, err := s.impatient().get(s.t.Context(), collection, acceptMetadataList)
	return err == nil
}

// allowLamps lets a user of the test's own use a verb on Lamps, in one namespace or everywhere.
func (s *server) allowLamps(user, namespace, verb string) {
	s.t.Helper()
	scope, where := "Cluster", ""
	if namespace != "" {
		scope, where = "", ", namespace: "+namespace
	}
	name := fmt.Sprintf("{name: NS-%s-%s%s}", user, verb, where)
	rules := fmt.Sprintf("[{apiGroups: [NS.example.test], resources: [lamps], verbs: [%s]}]", verb)
	s.createGlobal(fmt.Sprintf("{apiVersion: rbac.authorization.k8s.io/v1, kind: %sRole, metadata: %s, rules: %s}", scope, name, rules))
	s.createGlobal(fmt.Sprintf("{apiVersion: rbac.authorization.k8s.io/v1, kind: %[1]sRoleBinding, metadata: %[2]s, "+
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: %[1]sRole, name: NS-%[3]s-%[4]s}, subjects: [{kind: User, name: NS-%[3]s}]}", scope, name, user, verb))
}

// D17 D30: a kind that the cluster does not know is absent, be it looked for by GET or by LIST.
func TestFacts_D30_unknown_kinds_are_absent(t *testing.T) {
	s := newServer(t)
	var refs []release.ObjectRef
	for _, name := range numbered("g", 10) {
		refs = append(refs, release.ObjectRef{Group: "nowhere.example.test", Kind: "Ghost", Namespace: s.namespace, Name: name})
	}
	require.Equal(t, make([]release.Seen, 10), s.facts(refs...))
	for i := range refs {
		refs[i].Namespace = fmt.Sprintf("%s-%d", s.namespace, i)
	}
	require.Equal(t, make([]release.Seen, 10), s.facts(refs...), "over all namespaces")
	require.Equal(t, make([]release.Seen, 2), s.facts(refs[:2]...))
	require.Empty(t, s.facts())
}

// D4 D30: cluster-scoped kinds have a list of their own; an object of another scope than the kind has now is absent.
func TestFacts_D30_cluster_scoped_kinds(t *testing.T) {
	s := newServer(t)
	var refs []release.ObjectRef
	var facts []release.Fact
	for i := range 4 {
		obj := s.object(fmt.Sprintf("{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: NS-%d}, value: 7}", i))
		s.deleteLater(obj)
		applied, err := s.impatient().Apply(t.Context(), obj, global(obj))
		require.NoError(t, err)
		refs, facts = append(refs, global(obj)), append(facts, applied.Fact)
	}
	s.requests.take()
	require.Equal(t, present(facts), s.facts(refs...))
	require.Len(t, s.requests.take(), 1)
	for i := range refs {
		refs[i].Namespace = s.namespace
	}
	require.Equal(t, make([]release.Seen, 4), s.facts(refs...), "of another scope than was recorded")
}

// pageOf is a page of a list of ConfigMaps in the namespace shop, of which more follow.
func pageOf(more int64, token string, names ...string) func(http.ResponseWriter) {
	list := metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{Continue: token}}
	if more > 0 {
		list.RemainingItemCount = &more
	}
	for _, name := range names {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: "u"}})
	}
	return func(w http.ResponseWriter) { _ = json.NewEncoder(w).Encode(list) }
}

func shopMaps(names ...string) []release.ObjectRef {
	var refs []release.ObjectRef
	for _, name := range names {
		refs = append(refs, release.ObjectRef{Kind: "ConfigMap", Namespace: "shop", Name: name})
	}
	return refs
}

// D30: when a list is left for single reads, and what an API server may answer on the way.
func TestFacts_D30_lists_that_are_given_up(t *testing.T) {
	u := release.Seen{Present: true, Fact: release.FactOf("u", "", "", nil)}
	for name, c := range map[string]struct {
		answers  []func(http.ResponseWriter)
		requests int
	}{
		"the rest is as long as it may be": {[]func(http.ResponseWriter){pageOf(20, "x", "a", "b", "c"), pageOf(0, "", "d")}, 2},
		"the rest is too long":             {[]func(http.ResponseWriter){pageOf(21, "x", "a", "b", "c"), good}, 2},
		"nobody says how long the rest is": {[]func(http.ResponseWriter){pageOf(0, "x", "a", "b", "c"), good}, 2},
		"the next page is no longer kept":  {[]func(http.ResponseWriter){pageOf(20, "x", "a", "b", "c"), refuse(410, "Expired", "too old"), good}, 3},
		"the kind has no list":             {[]func(http.ResponseWriter){refuse(405, "MethodNotAllowed", "no"), good, good, good, good}, 5},
		"accidents are retried":            {[]func(http.ResponseWriter){refuse(503, "ServiceUnavailable", "no"), pageOf(0, "", "a", "b", "c", "d")}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			fake, cluster := newFakeAPI(t, c.answers...)
			seen, err := cluster.Session(SessionOptions{}).Facts(t.Context(), shopMaps("a", "b", "c", "d"))
			require.NoError(t, err)
			require.Equal(t, []release.Seen{u, u, u, u}, seen)
			require.Equal(t, c.requests, count(fake.seen(), "/namespaces/shop/"))
		})
	}
}

// D16 D22 D30: an accident that stays is an error, never absence, and the guard is asked before each request.
func TestFacts_D30_errors(t *testing.T) {
	_, cluster := newFakeAPI(t, refuse(503, "ServiceUnavailable", "no"))
	for _, refs := range [][]release.ObjectRef{shopMaps("a"), shopMaps("a", "b", "c", "d")} {
		_, err := cluster.Session(SessionOptions{RetryFor: -1}).Facts(t.Context(), refs)
		require.Equal(t, release.Accident, failureOf(t, err).Class)
	}
	fake, cluster := newFakeAPI(t, pageOf(0, "", "a"))
	lost := errors.New("lost")
	guarded := release.WithGuard(t.Context(), func() error {
		if count(fake.seen(), "/namespaces/shop/") > 0 {
			return lost
		}
		return nil
	})
	refs := append(shopMaps("a", "b", "c", "d"), release.ObjectRef{Kind: "ConfigMap", Namespace: "shop2", Name: "x"})
	_, err := cluster.Session(SessionOptions{}).Facts(guarded, refs)
	require.ErrorIs(t, err, lost)
}

// S10: a denial is believed for a while.
func TestDeniedLists_S10_are_forgotten(t *testing.T) {
	var denied deniedLists
	at, old := place{namespace: "a"}, place{namespace: "b"}
	require.False(t, denied.denied(at))
	denied.deny(old)
	denied.since[old] = time.Now().Add(-deniedFor)
	require.False(t, denied.denied(old))
	denied.deny(at)
	require.True(t, denied.denied(at))
	require.Len(t, denied.since, 1)
}
