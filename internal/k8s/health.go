package k8s

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"convoy.dev/convoy/internal/release"
)

const (
	// listAbove is how many objects of one kind and namespace are looked at one by one; more are listed.
	listAbove = 10
	// looksAtOnce bounds the requests of one Health that are under way.
	looksAtOnce = 8
	// listPage is how many objects one answer of a list holds.
	listPage = "250"
	// healthLimit is how many characters of a blocker's message are kept (D10).
	healthLimit = 300
)

// HealthReport is the health of a wave's objects.
type HealthReport struct {
	// Healthy: every object is Current.
	Healthy bool
	// Blockers are the others, in the order in which they were asked for.
	Blockers []Blocker
}

// Blocker is an object that is not Current, and why.
type Blocker struct {
	Ref     release.ObjectRef
	Message string
	// Failed: it will not become Current by waiting (D24).
	Failed bool
}

// Health judges the live objects by kstatus (D24), each by its present generation: a status that has not observed it
// is not trusted, and neither is a missing status of a workload. A Job counts as Current once it runs, as kstatus has
// it, and as Failed once it failed. An absent object blocks. One look, with accidents retried in the session's budget.
//
// Fails with a *release.Failure of class Accident or Verdict (RBAC), or with the guard's or the context's error.
func (s *Session) Health(ctx context.Context, refs []release.ObjectRef) (HealthReport, error) {
	found, err := s.look(ctx, refs, acceptFor)
	if err != nil {
		return HealthReport{}, err
	}
	report := HealthReport{}
	for _, ref := range refs {
		if blocker := judge(ref, found[ref]); blocker != nil {
			report.Blockers = append(report.Blockers, *blocker)
		}
	}
	report.Healthy = len(report.Blockers) == 0
	return report, nil
}

// judge is nil for a healthy object.
func judge(ref release.ObjectRef, object *unstructured.Unstructured) *Blocker {
	if object == nil {
		return &Blocker{Ref: ref, Message: "not found"}
	}
	if why := unobserved(object); why != "" {
		return &Blocker{Ref: ref, Message: why}
	}
	result, err := status.Compute(object)
	if err != nil {
		return &Blocker{Ref: ref, Message: "its status cannot be read"}
	}
	if result.Status == status.CurrentStatus {
		return nil
	}
	message := result.Message
	if message == "" {
		message = string(result.Status)
	}
	return &Blocker{Ref: ref, Message: cut(message, healthLimit), Failed: result.Status == status.FailedStatus}
}

// unobserved says why the status is not about the present generation, beyond what kstatus checks itself: workloads
// without any status yet, and conditions that carry a generation of their own.
func unobserved(object *unstructured.Unstructured) string {
	generation := object.GetGeneration()
	if object.GetDeletionTimestamp() != nil || generation == 0 {
		return ""
	}
	_, observed, _ := unstructured.NestedFieldNoCopy(object.Object, "status", "observedGeneration")
	if !observed && isWorkload(object.GroupVersionKind().GroupKind()) {
		return fmt.Sprintf("its controller has not observed generation %d yet", generation)
	}
	conditions, _, _ := unstructured.NestedFieldNoCopy(object.Object, "status", "conditions")
	list, _ := conditions.([]any)
	for _, one := range list {
		condition, _ := one.(map[string]any)
		seen, given := condition["observedGeneration"].(int64)
		if given && seen < generation && condition["type"] == "Ready" {
			return fmt.Sprintf("its condition Ready is about generation %d, not %d", seen, generation)
		}
	}
	return ""
}

func isWorkload(gk schema.GroupKind) bool {
	if gk.Group != "apps" {
		return false
	}
	return gk.Kind == "Deployment" || gk.Kind == "StatefulSet" || gk.Kind == "DaemonSet" || gk.Kind == "ReplicaSet"
}

// place is what one LIST covers.
type place struct {
	kind      schema.GroupKind
	namespace string
}

// accept chooses in which form an object is asked for: whole, or its metadata only.
type accept func(ref release.ObjectRef, list bool) string

// look reads the objects; absent ones are missing from the result.
func (s *Session) look(ctx context.Context, refs []release.ObjectRef, as accept) (objects, error) {
	found := objects{}
	var mu sync.Mutex
	looks := s.looks(refs, as)
	err := inFlight(ctx, looksAtOnce, len(looks), func(ctx context.Context, i int) error {
		objects, err := looks[i](ctx)
		mu.Lock()
		defer mu.Unlock()
		maps.Copy(found, objects)
		return err
	})
	return found, err
}

// inFlight calls do for 0 to count-1, up to limit at a time. The first error ends the context of the others, and is
// returned when all have come back.
func inFlight(ctx context.Context, limit, count int, do func(ctx context.Context, i int) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var mu sync.Mutex
	var failed error
	var workers sync.WaitGroup
	slots := make(chan struct{}, limit)
	for i := range count {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		workers.Go(func() {
			defer func() { <-slots }()
			if err := do(ctx, i); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if failed == nil {
					failed = err
					stop(err)
				}
			}
		})
	}
	workers.Wait()
	if failed == nil && ctx.Err() != nil {
		return fmt.Errorf("looking at the target cluster: %w", context.Cause(ctx))
	}
	return failed
}

type objects = map[release.ObjectRef]*unstructured.Unstructured

// looks are the requests that show all refs: a LIST where more than listAbove share kind and namespace, else a GET.
func (s *Session) looks(refs []release.ObjectRef, as accept) []func(context.Context) (objects, error) {
	shared := map[place]int{}
	for _, ref := range refs {
		shared[place{ref.GroupKind(), ref.Namespace}]++
	}
	var looks []func(context.Context) (objects, error)
	listed := map[place]bool{}
	for _, ref := range refs {
		at := place{ref.GroupKind(), ref.Namespace}
		switch {
		case shared[at] <= listAbove:
			looks = append(looks, func(ctx context.Context) (objects, error) { return s.lookAt(ctx, ref, as) })
		case !listed[at]:
			listed[at] = true
			looks = append(looks, func(ctx context.Context) (objects, error) { return s.lookThrough(ctx, ref, as) })
		}
	}
	return looks
}

// acceptFor keeps contents out of memory where no status is: those of Secrets and ConfigMaps.
func acceptFor(ref release.ObjectRef, list bool) string {
	plain := ref.Group == "" && (ref.Kind == "Secret" || ref.Kind == "ConfigMap")
	switch {
	case plain && list:
		return acceptMetadataList
	case plain:
		return acceptMetadata
	}
	return acceptJSON
}

// acceptWhole is acceptFor where the contents of a ConfigMap count. Those of a Secret never do (D10).
func acceptWhole(ref release.ObjectRef, list bool) string {
	if ref.Group == "" && ref.Kind == "ConfigMap" {
		return acceptJSON
	}
	return acceptFor(ref, list)
}

func (s *Session) lookAt(ctx context.Context, ref release.ObjectRef, as accept) (objects, error) {
	var reply answer
	err := s.retry(ctx, nil, func(ctx context.Context) (err error) {
		reply, err = s.get(ctx, ref, as(ref, false))
		if err != nil {
			return absentOr(ref, err)
		}
		return nil
	})
	if err != nil || reply.code != http.StatusOK {
		return nil, err
	}
	var content map[string]any
	if err := utiljson.Unmarshal(reply.body, &content); err != nil {
		return nil, unreadable(ref.String(), err)
	}
	return objects{ref: withKind(ref, content)}, nil
}

// withKind restores group and kind, which items of a list and metadata-only answers lack.
func withKind(ref release.ObjectRef, content map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: content}
	version := object.GroupVersionKind().Version
	if object.GetKind() != ref.Kind || version == "" {
		version = "v1"
	}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: ref.Group, Version: version, Kind: ref.Kind})
	return object
}

// lookThrough lists the kind of sample in its namespace, page by page.
func (s *Session) lookThrough(ctx context.Context, sample release.ObjectRef, as accept) (objects, error) {
	found := objects{}
	collection := sample
	collection.Name = ""
	query := url.Values{"limit": {listPage}}
	for {
		var reply answer
		err := s.retry(ctx, nil, func(ctx context.Context) (err error) {
			reply, err = s.atKind(ctx, collection, func(path string) (answer, error) {
				return s.request(ctx, collection, nil, request{
					method: http.MethodGet, path: path, query: query, accept: as(sample, true),
				})
			})
			if err != nil {
				return absentOr(collection, err)
			}
			return nil
		})
		if err != nil || reply.code != http.StatusOK {
			return found, err
		}
		next, err := readPage(found, sample, reply)
		if err != nil || next == "" {
			return found, err
		}
		query.Set("continue", next)
	}
}

// readPage adds a page of a list and returns the token of the next one.
func readPage(into objects, sample release.ObjectRef, reply answer) (string, error) {
	var page struct {
		Metadata struct {
			Continue string `json:"continue"`
		} `json:"metadata"`
		Items []map[string]any `json:"items"`
	}
	if err := utiljson.Unmarshal(reply.body, &page); err != nil {
		return "", unreadable("a list of "+sample.Kind, err)
	}
	for _, item := range page.Items {
		object := withKind(sample, item)
		ref := sample
		ref.Name = object.GetName()
		into[ref] = object
	}
	return page.Metadata.Continue, nil
}
