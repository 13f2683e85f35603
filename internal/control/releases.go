package control

import (
	"context"
	"fmt"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// releasePage bounds how many Releases one answer holds: each may weigh a megabyte.
const releasePage = 100

// Releases lists the Releases of a Kubernetes namespace, or all where it is empty, without their inline manifests.
func (c *Client) Releases(ctx context.Context, namespace string) ([]v1alpha1.Release, error) {
	var all []v1alpha1.Release
	for page := ""; ; {
		var list v1alpha1.ReleaseList
		err := c.client.List(ctx, &list, client.InNamespace(namespace), client.Limit(releasePage), client.Continue(page))
		if err != nil {
			return nil, fmt.Errorf("list the Releases: %w", err)
		}
		for i := range list.Items {
			list.Items[i].Spec.Source.Inline = nil
		}
		all = append(all, list.Items...)
		if page = list.Continue; page == "" {
			return all, nil
		}
	}
}

// SetSuspend sets spec.suspend of a Release (SPEC 4), whatever else was written in between. On success rel is the new
// state.
func (c *Client) SetSuspend(ctx context.Context, rel *v1alpha1.Release, suspend bool) error {
	if rel.Spec.Suspend == suspend {
		return nil
	}
	return c.changeSpec(ctx, rel, "suspend", func(spec *v1alpha1.ReleaseSpec) { spec.Suspend = suspend })
}

// SetPin sets spec.pin of a Release (SPEC 4), or takes it away with an empty digest, whatever else was written in
// between. On success rel is the new state.
func (c *Client) SetPin(ctx context.Context, rel *v1alpha1.Release, digest string) error {
	return c.changeSpec(ctx, rel, "pin", func(spec *v1alpha1.ReleaseSpec) {
		spec.Pin = nil
		if digest != "" {
			spec.Pin = &v1alpha1.Pin{Digest: digest}
		}
	})
}

// changeSpec writes one field of a Release.
func (c *Client) changeSpec(ctx context.Context, rel *v1alpha1.Release, field string, change func(*v1alpha1.ReleaseSpec)) error {
	changed := rel.DeepCopy()
	change(&changed.Spec)
	err := retry(ctx, func() error {
		return c.client.Patch(ctx, changed, client.MergeFrom(rel.DeepCopy()), client.FieldOwner("convoy-cli"))
	})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("Release %s/%s: %w", rel.Namespace, rel.Name, release.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("write spec.%s of Release %s/%s: %w", field, rel.Namespace, rel.Name, err)
	}
	*rel = *changed
	return nil
}
