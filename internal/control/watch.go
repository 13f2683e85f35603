package control

import (
	"context"
	"fmt"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watchPause is how long a watch waits before it reads again, while the control cluster is out of reach or after a watch
// that ended.
const watchPause = time.Second

// Watch tells each state of a Release that it sees, the first one at once, until ctx ends or the Release is gone: then it
// fails with ctx's error or with release.ErrNotFound. While the control cluster gives no answer, which may last, lost is
// called with the error, and the watch goes on; only where the very first read gets none, that error is the end.
func (c *Client) Watch(ctx context.Context, namespace, name string, seen func(*v1alpha1.Release), lost func(error)) error {
	watching := rest.CopyConfig(c.guarded)
	watching.Timeout = 0 // it would end each watch
	w, err := client.NewWithWatch(watching, client.Options{Scheme: c.client.Scheme(), Mapper: c.client.RESTMapper()})
	if err != nil {
		return fmt.Errorf("control cluster at %s: %w", c.cfg.Host, err)
	}
	rel, err := c.Release(ctx, namespace, name)
	for first := true; ; first = false {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			seen(rel)
			err = watchOne(ctx, w, rel, seen)
		}
		if err != nil && (first && rel == nil || !unanswered(err)) && ctx.Err() == nil {
			return err
		}
		if err != nil {
			lost(err)
		}
		pause(ctx, watchPause)
		rel, err = c.read(ctx, namespace, name)
	}
}

// watchOne tells the states that follow one of a Release, until the API server ends the watch, which it does now and then.
func watchOne(ctx context.Context, w client.WithWatch, rel *v1alpha1.Release, seen func(*v1alpha1.Release)) error {
	stream, err := w.Watch(ctx, &v1alpha1.ReleaseList{}, client.InNamespace(rel.Namespace), client.MatchingFields{"metadata.name": rel.Name},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: rel.ResourceVersion}})
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch Release %s/%s: %w", rel.Namespace, rel.Name, err)
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		changed, ok := event.Object.(*v1alpha1.Release)
		switch {
		case !ok: // an error, such as a resourceVersion that is too old: it is read anew
			return nil
		case event.Type == watch.Deleted:
			return fmt.Errorf("Release %s/%s: %w", rel.Namespace, rel.Name, release.ErrNotFound)
		}
		seen(changed)
	}
	return nil
}

// read reads a Release once.
func (c *Client) read(ctx context.Context, namespace, name string) (*v1alpha1.Release, error) {
	rel := &v1alpha1.Release{}
	err := c.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, rel)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("Release %s/%s: %w", namespace, name, release.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read Release %s/%s: %w", namespace, name, err)
	}
	return rel, nil
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
