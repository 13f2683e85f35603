package activities

import (
	"context"
	"fmt"

	"convoy.dev/convoy/internal/release"
)

// StoreRender writes the render to the render store before anything is applied (S11).
//
// Idempotent: the key is made of the digest, and a render that is there is not written again.
// Fails with: DeployFailed.
// Heartbeat: the step's name.
func (a *Activities) StoreRender(ctx context.Context, ref SyncRef) (string, error) {
	return perform(ctx, a, "store", release.DeployFailed, func(ctx context.Context, _ *lease) (string, error) {
		if a.store == nil {
			return "", release.Problemf(release.DeployFailed,
				"the sync began on a worker with a render store, and this worker has none: start every worker with the same --render-store-url")
		}
		rel, err := a.fenced(ctx, ref)
		if err != nil {
			return "", err
		}
		render, err := a.loadRender(ctx, rel, ref)
		if err != nil {
			return "", err
		}
		location, err := a.store.Put(ctx, render)
		if err != nil {
			return "", fmt.Errorf("the render was not stored, so nothing is applied: %w", err)
		}
		return location, nil
	})
}
