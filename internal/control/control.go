// Package control is the control cluster: it reads Releases, Clusters and their credentials, writes status and
// ReleaseInventories, and records events. What is written, and when, is decided elsewhere.
//
// Every request asks the guard of its context first (D16), so a worker that lost its step writes nothing more here
// either.
package control

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Client talks to the control cluster. It is safe for concurrent use.
type Client struct {
	cfg     *rest.Config
	guarded *rest.Config // cfg with the guard
	client  client.Client

	mu     sync.Mutex
	claims map[types.NamespacedName]*claim
}

// New makes a Client. It sends no request yet, and limits no rate: the API server's fairness does that.
func New(cfg *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	guarded := rest.CopyConfig(cfg)
	guarded.QPS = -1
	guarded.UserAgent = "convoy"
	guarded.Wrap(func(next http.RoundTripper) http.RoundTripper { return guard{next} })
	c, err := client.New(guarded, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("control cluster at %s: %w", cfg.Host, err)
	}
	return &Client{cfg: cfg, guarded: guarded, client: c, claims: map[types.NamespacedName]*claim{}}, nil
}

// guard asks the guard of the request's context before the request is sent.
type guard struct{ next http.RoundTripper }

func (g guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := release.CheckGuard(req.Context()); err != nil {
		return nil, err
	}
	return g.next.RoundTrip(req)
}

// Release reads a Release. It fails with release.ErrNotFound when there is none.
func (c *Client) Release(ctx context.Context, namespace, name string) (*v1alpha1.Release, error) {
	var rel *v1alpha1.Release
	err := retry(ctx, func() (err error) {
		rel, err = c.read(ctx, namespace, name)
		return err
	})
	return rel, err
}

// PatchStatus changes the status of a Release by a merge patch that carries the resourceVersion of rel. It fails with
// release.ErrConflict when somebody else wrote the Release in between, and writes nothing when mutate changed nothing. On
// success rel is the new state.
func (c *Client) PatchStatus(ctx context.Context, rel *v1alpha1.Release, mutate func(*v1alpha1.ReleaseStatus)) error {
	before := rel.DeepCopy()
	mutate(&rel.Status)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if same(before.Status, rel.Status) {
		return nil
	}
	err := retry(ctx, func() error { return c.client.Status().Patch(ctx, rel, patch, client.FieldOwner("convoy")) })
	if apierrors.IsConflict(err) {
		return fmt.Errorf("status of Release %s/%s: %w", rel.Namespace, rel.Name, release.ErrConflict)
	}
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("Release %s/%s: %w", rel.Namespace, rel.Name, release.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("write the status of Release %s/%s: %w", rel.Namespace, rel.Name, err)
	}
	return nil
}
