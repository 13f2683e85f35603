package activities

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// renderCache keeps the last renders in memory, bounded by bytes, so that the steps of a sync on one worker read the
// source once.
type renderCache struct {
	mu    sync.Mutex
	limit int
	size  int
	order *list.List // of *release.Render, newest first
	byKey map[string]*list.Element
}

func newRenderCache(limit int) *renderCache {
	return &renderCache{limit: limit, order: list.New(), byKey: map[string]*list.Element{}}
}

func (c *renderCache) get(digest string) *release.Render {
	c.mu.Lock()
	defer c.mu.Unlock()
	element := c.byKey[digest]
	if element == nil {
		return nil
	}
	c.order.MoveToFront(element)
	return element.Value.(*release.Render)
}

// put keeps a render and drops the oldest ones beyond the limit; the newest is always kept.
func (c *renderCache) put(render *release.Render) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.byKey[render.Digest]; old != nil {
		c.order.MoveToFront(old)
		return
	}
	c.byKey[render.Digest] = c.order.PushFront(render)
	c.size += render.Size()
	for c.size > c.limit && c.order.Len() > 1 {
		oldest := c.order.Remove(c.order.Back()).(*release.Render)
		delete(c.byKey, oldest.Digest)
		c.size -= oldest.Size()
	}
}

// fetchFor is how long an unreachable or incomplete source is tried again inside a step (D22).
const fetchFor = 40 * time.Second

// fetch reads the source of a Release, and tries again while it is out of reach. A bad source comes as a
// *release.Problem at once.
func (a *Activities) fetch(ctx context.Context, src v1alpha1.Source) (files []release.File, revision string, err error) {
	until := a.now().Add(fetchFor)
	for pause := 500 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		files, revision, err = a.source.Fetch(ctx, src)
		var bad *release.Problem
		if err == nil || errors.As(err, &bad) || a.now().Add(pause).After(until) {
			return files, revision, err
		}
		select {
		case <-ctx.Done():
			return nil, "", context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// renderSource fetches and parses the source of a Release. A bad render is a RenderFailed (D1).
func (a *Activities) renderSource(ctx context.Context, rel *v1alpha1.Release) (*release.Render, error) {
	files, revision, err := a.fetch(ctx, rel.Spec.Source)
	if err != nil {
		return nil, err
	}
	return a.parse(files, revision)
}

func (a *Activities) parse(files []release.File, revision string) (*release.Render, error) {
	render, err := release.Parse(files)
	if err != nil {
		return nil, release.Problemf(release.RenderFailed, "%s", shorten(err.Error()))
	}
	render.Revision = revision
	a.renders.put(render)
	return render, nil
}

// loadRender returns the render of a sync on any worker: from memory, from the render store, or rendered again from
// the source. A source that no longer gives the same render fails the sync: nothing may be applied that was not
// checked (D5).
func (a *Activities) loadRender(ctx context.Context, rel *v1alpha1.Release, ref SyncRef) (*release.Render, error) {
	if render := a.renders.get(ref.Digest); render != nil {
		return render, nil
	}
	if a.store != nil {
		render, err := a.store.Get(ctx, ref.Digest)
		if err == nil {
			a.renders.put(render)
			return render, nil
		}
		if ref.Stored {
			return nil, release.Problemf(release.RenderFailed, "render %s: %v", ref.Digest, err)
		}
	}
	render, err := a.renderSource(ctx, rel)
	var problem *release.Problem
	switch {
	case err != nil && !errors.As(err, &problem):
		return nil, err
	case err == nil && render.Digest == ref.Digest:
		return render, nil
	case rel.Generation != ref.Generation:
		return nil, release.Problemf(release.Superseded,
			"the Release changed while the sync ran (generation %d, now %d): start the sync again", ref.Generation, rel.Generation)
	}
	return nil, release.Problemf(release.DeployFailed,
		"the step went on at another worker, and the source no longer gives the render that the sync began with (%s, revision %q): "+
			"start the sync again; a render store (worker flag --render-store-url) lets any worker go on with the same render",
		release.ShortDigest(ref.Digest), ref.Revision)
}

// step is what most activities begin with: the Release under this sync's fence, its render, its target and plan.
type step struct {
	rel    *v1alpha1.Release
	target Target
	plan   *release.Plan
}

// open loads what a step works on, and fails with errFenced when another sync has begun.
func (a *Activities) open(ctx context.Context, ref SyncRef) (*step, error) {
	rel, err := a.fenced(ctx, ref)
	if err != nil {
		return nil, err
	}
	if ref.Deleting {
		return a.locate(ctx, rel, &release.Render{})
	}
	render, err := a.loadRender(ctx, rel, ref)
	if err != nil {
		return nil, err
	}
	return a.locate(ctx, rel, render)
}

// locate connects to the target cluster and gives each object of the render its identity there.
func (a *Activities) locate(ctx context.Context, rel *v1alpha1.Release, render *release.Render) (*step, error) {
	target, err := a.targets.Connect(ctx, rel, release.RenderCRDs(render))
	if err != nil {
		return nil, err
	}
	if err := a.enter(ctx, rel, target); err != nil {
		return nil, err
	}
	scopes := map[schema.GroupVersionKind]scope{}
	for i := range render.Objects {
		gvk := render.Objects[i].GVK
		if _, seen := scopes[gvk]; seen {
			continue
		}
		namespaced, known, err := target.Scope(ctx, gvk)
		if err != nil {
			return nil, err
		}
		scopes[gvk] = scope{namespaced, known}
	}
	plan, err := release.Locate(render, func(gvk schema.GroupVersionKind) (bool, bool) {
		return scopes[gvk].namespaced, scopes[gvk].known
	})
	if err != nil {
		return nil, err
	}
	return &step{rel: rel, target: target, plan: plan}, nil
}

type scope struct{ namespaced, known bool }
