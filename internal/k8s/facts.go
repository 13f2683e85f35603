package k8s

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"convoy.dev/convoy/internal/release"
)

const (
	// factsListAbove is how many objects of one kind and namespace are read one by one; more are listed.
	factsListAbove = 3
	// factsWideFrom is from how many namespaces on a kind is listed over all of them, if it has more than factsWideAbove
	// objects there.
	factsWideFrom, factsWideAbove = 4, 8
	// everywhere is the namespace of a list over all namespaces.
	everywhere = "*"
	// factsPage is how many objects one answer of a list holds.
	factsPage = 500
	// factsForeign is how many objects of others a list may still hold for each one of ours that is still missing.
	factsForeign = 20
)

// Facts shows what is to be seen of each object (D30): it is absent, or being deleted, or has this Fact. Only metadata
// is read. Objects of one kind are listed where that takes fewer requests, over all namespaces or in one, and read one
// by one where they are few, where the list turns out to be mostly about objects of others, and where the identity may
// not list (S10). An object of a kind that fresh discovery does not know is absent; a group whose discovery fails is an
// accident (D17). The answer is aligned with refs. Accidents are retried within the session's budget (D22).
//
// Fails with a *release.Failure of class Accident or Verdict (RBAC), or with the guard's or the context's error.
func (s *Session) Facts(ctx context.Context, refs []release.ObjectRef) ([]release.Seen, error) {
	v := &survey{session: s, seen: make(map[release.ObjectRef]release.Seen, len(refs))}
	open := release.Union(refs, nil)
	for _, plan := range []func([]release.ObjectRef) ([]listing, []release.ObjectRef){planWide, planNarrow} {
		lists, single := plan(open)
		left, err := v.list(ctx, lists)
		if err != nil {
			return nil, err
		}
		open = slices.Concat(single, left)
	}
	err := inFlight(ctx, looksAtOnce, len(open), func(ctx context.Context, i int) error { return v.readOne(ctx, open[i]) })
	if err != nil {
		return nil, err
	}
	found := make([]release.Seen, len(refs))
	for i, ref := range refs {
		found[i] = v.seen[ref]
	}
	return found, nil
}

// survey is one Facts.
type survey struct {
	session *Session
	mu      sync.Mutex
	seen    map[release.ObjectRef]release.Seen // absent objects are missing
}

// listing is one LIST, and what is looked for in it.
type listing struct {
	place
	refs []release.ObjectRef
}

// planWide lists those kinds over all namespaces that are spread over many; rest are the objects of other kinds.
func planWide(refs []release.ObjectRef) (lists []listing, rest []release.ObjectRef) {
	kinds := grouped(refs, func(ref release.ObjectRef) place { return place{kind: ref.GroupKind(), namespace: everywhere} })
	for _, kind := range kinds {
		namespaces := map[string]bool{}
		for _, ref := range kind.refs {
			namespaces[ref.Namespace] = true
		}
		if len(namespaces) >= factsWideFrom && len(kind.refs) > factsWideAbove {
			lists = append(lists, kind)
		} else {
			rest = append(rest, kind.refs...)
		}
	}
	return lists, rest
}

// planNarrow lists kinds in single namespaces; rest are the objects that are too few for that.
func planNarrow(refs []release.ObjectRef) (lists []listing, rest []release.ObjectRef) {
	places := grouped(refs, func(ref release.ObjectRef) place { return place{ref.GroupKind(), ref.Namespace} })
	for _, one := range places {
		if len(one.refs) > factsListAbove {
			lists = append(lists, one)
		} else {
			rest = append(rest, one.refs...)
		}
	}
	return lists, rest
}

// grouped gathers the refs of each place, in the order in which the places come up.
func grouped(refs []release.ObjectRef, where func(release.ObjectRef) place) []listing {
	var lists []listing
	index := map[place]int{}
	for _, ref := range refs {
		at := where(ref)
		i, known := index[at]
		if !known {
			i = len(lists)
			index[at] = i
			lists = append(lists, listing{place: at})
		}
		lists[i].refs = append(lists[i].refs, ref)
	}
	return lists
}

// list goes through the lists, and returns the objects that none of them could tell about.
func (v *survey) list(ctx context.Context, lists []listing) ([]release.ObjectRef, error) {
	lefts := make([][]release.ObjectRef, len(lists))
	err := inFlight(ctx, looksAtOnce, len(lists), func(ctx context.Context, i int) (err error) {
		lefts[i], err = v.through(ctx, lists[i])
		return err
	})
	return slices.Concat(lefts...), err
}

// through reads one list page by page until every object of ours has come up. It returns those that are still missing
// when the list is not worth it, or not to be had; those that a whole list does not hold are absent.
func (v *survey) through(ctx context.Context, l listing) ([]release.ObjectRef, error) {
	if v.session.cluster.lists.denied(l.place) {
		return l.refs, nil
	}
	missing := make(map[release.ObjectRef]bool, len(l.refs))
	for _, ref := range l.refs {
		missing[ref] = true
	}
	query := url.Values{"limit": {strconv.Itoa(factsPage)}}
	for pages := 1; ; pages++ {
		reply, err := v.page(ctx, l, query)
		if narrows(asFailure(err)) {
			if query.Get("continue") == "" {
				v.session.cluster.lists.deny(l.place)
			}
			return left(l, missing), nil
		}
		if err != nil || reply.code != http.StatusOK {
			return nil, err
		}
		if len(reply.body) == maxAnswer { // cut off: single objects are never that large
			return left(l, missing), nil
		}
		rest, err := v.note(l, reply, missing)
		if err != nil {
			return nil, err
		}
		switch {
		case rest.Continue == "" || len(missing) == 0:
			return nil, nil
		case remaining(rest, pages) > factsForeign*int64(len(missing)):
			return left(l, missing), nil
		}
		query.Set("continue", rest.Continue)
	}
}

// narrows: the list is not to be had, but its objects may be: the identity may not list (S10), the kind has no list, or
// the pages come so slowly that the next one is no longer kept.
func narrows(failure *release.Failure) bool {
	if failure == nil || failure.Class != release.Verdict {
		return false
	}
	return failure.Code == http.StatusForbidden || failure.Code == http.StatusMethodNotAllowed || failure.Code == http.StatusGone
}

// remaining is how many objects follow. Where the API server does not say it, they are taken to be as many as there
// were.
func remaining(rest *metav1.ListMeta, pages int) int64 {
	if rest.RemainingItemCount != nil {
		return *rest.RemainingItemCount
	}
	return int64(pages) * factsPage
}

// left are the refs that are missing, in their order.
func left(l listing, missing map[release.ObjectRef]bool) []release.ObjectRef {
	out := make([]release.ObjectRef, 0, len(missing))
	for _, ref := range l.refs {
		if missing[ref] {
			out = append(out, ref)
		}
	}
	return out
}

// page reads one page of a list. The zero answer says that the kind does not exist.
func (v *survey) page(ctx context.Context, l listing, query url.Values) (answer, error) {
	collection := release.ObjectRef{Group: l.kind.Group, Kind: l.kind.Kind, Namespace: l.namespace}
	var reply answer
	err := v.session.retry(ctx, nil, func(ctx context.Context) (err error) {
		reply, err = v.session.atCollection(ctx, collection, func(path string) (answer, error) {
			return v.session.request(ctx, collection, nil, request{
				method: http.MethodGet, path: path, query: query, accept: acceptMetadataList,
			})
		})
		if err != nil {
			reply = answer{}
			return absentOr(collection, err)
		}
		return nil
	})
	return reply, err
}

// atCollection is atKind for a collection, which may lie everywhere.
func (s *Session) atCollection(ctx context.Context, collection release.ObjectRef, do func(path string) (answer, error)) (answer, error) {
	if collection.Namespace != everywhere {
		return s.atKind(ctx, collection, do)
	}
	resolve := func(ctx context.Context) (Mapping, error) { return s.cluster.ResolveKind(ctx, collection.GroupKind()) }
	return s.atMapping(ctx, collection.GroupKind(), resolve, func(mapping Mapping) (answer, error) {
		return do(resourcePath(mapping.Resource, "", ""))
	})
}

// note keeps what a page shows of the objects that are missing.
func (v *survey) note(l listing, reply answer, missing map[release.ObjectRef]bool) (*metav1.ListMeta, error) {
	var page metav1.PartialObjectMetadataList
	if err := json.Unmarshal(reply.body, &page); err != nil {
		return nil, unreadable("a list of "+l.kind.Kind, err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range page.Items {
		meta := &page.Items[i].ObjectMeta
		ref := release.ObjectRef{Group: l.kind.Group, Kind: l.kind.Kind, Namespace: meta.Namespace, Name: meta.Name}
		if missing[ref] {
			delete(missing, ref)
			v.seen[ref] = seenOf(meta)
		}
	}
	return &page.ListMeta, nil
}

// readOne looks at one object.
func (v *survey) readOne(ctx context.Context, ref release.ObjectRef) error {
	meta, err := v.session.readMetadata(ctx, ref)
	if err != nil || meta == nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen[ref] = seenOf(meta)
	return nil
}

func seenOf(meta *metav1.ObjectMeta) release.Seen {
	return release.Seen{Present: true, Deleting: meta.DeletionTimestamp != nil, Fact: factOf(meta)}
}

// deniedFor is how long a list that was denied is not asked for again.
const deniedFor = 10 * time.Minute

// deniedLists remembers which lists this identity is denied, so that not every pass asks for them anew.
type deniedLists struct {
	mu    sync.Mutex
	since map[place]time.Time
}

func (d *deniedLists) denied(at place) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	since, known := d.since[at]
	return known && time.Since(since) < deniedFor
}

// deny notes a denial, and forgets those whose time is over.
func (d *deniedLists) deny(at place) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.since, func(_ place, since time.Time) bool { return time.Since(since) >= deniedFor })
	if d.since == nil {
		d.since = map[place]time.Time{}
	}
	d.since[at] = time.Now()
}
