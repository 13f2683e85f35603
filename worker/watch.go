package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/loops"
	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/workflows"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// watch starts the loops of Releases and wakes them when their Release changes. Any number of workers may watch at
// once: a loop is started under one id, and a change that a loop has seen costs it no look.
//
// It keeps of each Release what it needs to tell news from what is known, and nothing of its spec.
type watch struct {
	loops loops.Loops
	log   *slog.Logger
	cache cache.Cache
	queue workqueue.TypedRateLimitingInterface[types.NamespacedName]
	// told is what a loop was told last of its Release. Only the queue's keys in work touch their entry.
	told toldMap
}

// sweepEvery is how often a loop is looked for that should be there: one that was terminated comes back.
const sweepEvery = 10 * time.Minute

// How fast loops are started and woken: a fleet of Releases must not come as one burst.
const (
	wakesPerSecond = 100
	wakers         = 8
)

func newWatch(cfg *rest.Config, namespace string, l loops.Loops, log *slog.Logger) (*watch, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	period := sweepEvery
	options := cache.Options{Scheme: scheme, SyncPeriod: &period, DefaultTransform: sketch}
	if namespace != "" {
		options.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	c, err := cache.New(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("watch the Releases: %w", err)
	}
	limiter := workqueue.NewTypedMaxOfRateLimiter(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](200*time.Millisecond, time.Minute),
		&workqueue.TypedBucketRateLimiter[types.NamespacedName]{Limiter: rate.NewLimiter(wakesPerSecond, wakesPerSecond)},
	)
	return &watch{loops: l, log: log, cache: c, queue: workqueue.NewTypedRateLimitingQueue(limiter)}, nil
}

// sketch drops what the watch does not need: a Release may hold a megabyte of manifests.
func sketch(object any) (any, error) {
	rel, ok := object.(*v1alpha1.Release)
	if !ok {
		return object, nil
	}
	small := &v1alpha1.Release{ObjectMeta: metav1.ObjectMeta{
		Namespace: rel.Namespace, Name: rel.Name, UID: rel.UID, ResourceVersion: rel.ResourceVersion, Generation: rel.Generation,
		DeletionTimestamp: rel.DeletionTimestamp,
	}}
	if id := release.RequestID(rel.Annotations[v1alpha1.AnnotationSyncRequested]); id != "" {
		small.Annotations = map[string]string{v1alpha1.AnnotationSyncRequested: id}
		if release.Handled(rel.Status.LastHandledRequests, id) {
			small.Status.LastHandledRequests = []v1alpha1.HandledRequest{{ID: id}}
		}
	}
	small.Status.ObservedGeneration = rel.Status.ObservedGeneration
	return small, nil
}

// watchAgain is the pause before a watch that could not begin is tried again.
const watchAgain = 5 * time.Second

// keepWatching watches a namespace, or all where it is empty, until ctx ends. A control cluster that is out of reach, or lacks the CRDs, is waited for.
func keepWatching(ctx context.Context, cfg *rest.Config, namespace string, l loops.Loops, log *slog.Logger) {
	for ctx.Err() == nil {
		w, err := newWatch(cfg, namespace, l, log)
		if err == nil {
			err = w.run(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		log.Error("Releases are not watched, so none starts by itself; trying again. Are the CRDs there (convoy install)?", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(watchAgain):
		}
	}
}

// run watches until ctx ends.
func (w *watch) run(ctx context.Context) error {
	informer, err := w.cache.GetInformer(ctx, &v1alpha1.Release{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch the Releases: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    w.enqueue,
		UpdateFunc: w.updated,
		DeleteFunc: w.enqueue,
	})
	if err != nil {
		return fmt.Errorf("watch the Releases: %w", err)
	}
	defer w.queue.ShutDown()
	for range wakers {
		go func() {
			for w.handleNext(ctx) {
			}
		}()
	}
	return w.cache.Start(ctx)
}

// updated takes a change of a Release. The informer also sends each one unchanged at times: that is the sweep.
func (w *watch) updated(before, object any) {
	old, isOld := before.(*v1alpha1.Release)
	rel, ok := object.(*v1alpha1.Release)
	if isOld && ok && old.ResourceVersion == rel.ResourceVersion {
		w.told.sweep(types.NamespacedName{Namespace: rel.Namespace, Name: rel.Name})
	}
	w.enqueue(object)
}

func (w *watch) enqueue(object any) {
	if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	if rel, ok := object.(*v1alpha1.Release); ok {
		w.queue.Add(types.NamespacedName{Namespace: rel.Namespace, Name: rel.Name})
	}
}

func (w *watch) handleNext(ctx context.Context) bool {
	key, shutdown := w.queue.Get()
	if shutdown {
		return false
	}
	defer w.queue.Done(key)
	if err := w.handle(ctx, key); err != nil && ctx.Err() == nil {
		w.log.Warn("the loop of a Release could not be reached; trying again", "release", key.String(), "error", err)
		w.queue.AddRateLimited(key)
		return true
	}
	w.queue.Forget(key)
	return true
}

// handle tells the loop what is new of its Release, and starts it where it is missing.
func (w *watch) handle(ctx context.Context, key types.NamespacedName) error {
	if err := release.CheckNames(key.Namespace, key.Name); err != nil {
		w.log.Error("a Release that cannot be synced: make it anew under a shorter name", "release", key.String(), "error", err)
		return nil
	}
	rel := &v1alpha1.Release{}
	err := w.cache.Get(ctx, key, rel)
	told, known := w.told.get(key)
	switch {
	case err != nil:
		if !known {
			return nil
		}
		if err := w.loops.Gone(ctx, key, told); err != nil {
			return err
		}
		w.told.drop(key)
		return nil
	}
	now := workflows.Changed{UID: string(rel.UID), Generation: rel.Generation, AnnotationID: rel.Annotations[v1alpha1.AnnotationSyncRequested]}
	switch {
	case known && now == told: // a status was written, or the sweep comes by
		if !w.told.due(key) {
			return nil
		}
		err = w.loops.Ensure(ctx, key)
	case !known && seen(rel): // the first list of this worker: the loop has seen this, if it is there
		err = w.loops.Ensure(ctx, key)
	default:
		err = w.loops.Changed(ctx, key, now)
	}
	if err != nil {
		return err
	}
	w.told.put(key, now)
	return nil
}

// seen reports whether the status shows that a loop has acted upon this state of the Release.
func seen(rel *v1alpha1.Release) bool {
	id := rel.Annotations[v1alpha1.AnnotationSyncRequested]
	return rel.DeletionTimestamp == nil && rel.Status.ObservedGeneration == rel.Generation &&
		(id == "" || release.Handled(rel.Status.LastHandledRequests, id))
}
