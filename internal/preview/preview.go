// Package preview tells what the next sync of a Release would do to its target cluster: what it would create, change,
// prune and keep, what the cluster rejects, and why the sync would be refused as a whole. It only looks: dry runs and
// reads. What is right is decided in internal/release, as for the sync itself.
//
// It rests on what it sees now. Hooks, the render store and the health of waves are no part of it.
package preview

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/control"
	"convoy.dev/convoy/internal/k8s"
	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/internal/source"
)

// Action is what the next sync would do with an object.
type Action string

// The actions.
const (
	Create Action = "create"
	Update Action = "change"
	// Prune deletes the object.
	Prune Action = "prune"
	// Keep: the object leaves the inventory and stays on the cluster.
	Keep Action = "keep"
	// Reject: the target cluster refuses the object, so the sync would end as Unappliable.
	Reject Action = "rejected"
	// Unverified: it needs something that the render brings first (D8).
	Unverified Action = "unverified"
	// Unjudged: the cluster could not answer for now (D7).
	Unjudged Action = "unjudged"
)

// Change is one object that the next sync would do something with.
type Change struct {
	Action Action
	Ref    release.ObjectRef
	// Detail is the reason of a Keep, a Reject, an Unverified or an Unjudged.
	Detail string
	// Fields that an Update changes. None: only who owns the fields changes.
	Fields []Field
	// TakenOver names managers of a client-side apply whose fields the sync would take over (D15).
	TakenOver []string
}

// Preview is what the next sync would do.
type Preview struct {
	Digest   string
	Revision string
	// Changes in the order of application, then in that of the prune.
	Changes   []Change
	Unchanged int
	// Warnings for the author of the manifests (D4, D36).
	Warnings []string
	// Refusal: the sync would end before it asks the cluster about any object. Nil when it would not.
	Refusal *release.Problem
}

// Count is the number of changes of an action.
func (p *Preview) Count(action Action) int {
	n := 0
	for i := range p.Changes {
		if p.Changes[i].Action == action {
			n++
		}
	}
	return n
}

// Input of Look.
type Input struct {
	Release *v1alpha1.Release
	Control *control.Client
	Source  *source.Fetcher
}

// retryFor bounds retries of accidents: a person waits.
const retryFor = 8 * time.Second

// Look renders the Release here and asks its target cluster. The identity is that of the sync: the Cluster's
// kubeconfig, or the caller's own on the control cluster. A bad render is a *release.Problem or a *source.Error, a
// Cluster without credentials a *release.Problem, and an unreachable cluster a *release.Failure.
func Look(ctx context.Context, in Input) (*Preview, error) {
	render, err := Render(ctx, in.Source, in.Release)
	if err != nil {
		return nil, err
	}
	l := &look{Input: in, preview: &Preview{Digest: render.Digest, Revision: render.Revision}}
	if err := l.connect(ctx); err != nil {
		return nil, err
	}
	if l.plan, err = l.locate(ctx, render); err != nil {
		return nil, err
	}
	l.preview.Warnings = l.plan.Warnings
	if err := l.readInventory(ctx); err != nil {
		return nil, err
	}
	if l.preview.Refusal, err = l.refusal(ctx); err != nil || l.preview.Refusal != nil {
		return l.preview, err
	}
	if err := l.dryRun(ctx); err != nil {
		return nil, err
	}
	return l.preview, l.prune(ctx)
}

// Render fetches and parses the source of a Release.
func Render(ctx context.Context, fetcher *source.Fetcher, rel *v1alpha1.Release) (*release.Render, error) {
	fetched, err := fetcher.Fetch(ctx, rel.Spec.Source)
	if err != nil {
		return nil, err
	}
	render, err := release.Parse(fetched.Files)
	if err != nil {
		return nil, release.Problemf(release.RenderFailed, "%s", err.Error())
	}
	render.Revision = fetched.Revision
	return render, nil
}

// look is one Look.
type look struct {
	Input
	preview *Preview
	session *k8s.Session
	whole   *WholeObjects
	plan    *release.Plan

	clusterUID string
	inventory  *v1alpha1.ReleaseInventory
	recorded   []release.ObjectRef // with those pending that were applied (D13)
	claims     release.Claims
}

// connect makes the connection to the target cluster that a worker would make.
func (l *look) connect(ctx context.Context) error {
	cfg := l.Control.Config()
	access, err := l.Control.Access(ctx, l.Release)
	var missing *control.MissingError
	switch {
	case errors.As(err, &missing):
		return release.Problemf(release.DeployFailed, "%s", missing.Error())
	case err != nil:
		return err
	}
	if access.Kubeconfig != nil {
		if cfg, err = k8s.RestConfig(access.Kubeconfig); err != nil {
			return release.Problemf(release.DeployFailed, "Cluster %s/%s: %v", l.Release.Namespace, l.Release.Spec.ClusterRef.Name, err)
		}
	}
	if cfg, err = k8s.ActAs(cfg, l.Release.Namespace, l.Release.Spec.ServiceAccountName); err != nil {
		return release.Problemf(release.DeployFailed, "%v", err)
	}
	cluster, err := k8s.NewPool().Connect(cfg)
	if err != nil {
		return err
	}
	l.session = cluster.Session(k8s.SessionOptions{RetryFor: retryFor})
	l.whole, err = NewWholeObjects(cfg, l.session)
	return err
}

// locate gives each object its identity on the cluster.
func (l *look) locate(ctx context.Context, render *release.Render) (*release.Plan, error) {
	type scope struct{ namespaced, known bool }
	scopes := map[schema.GroupVersionKind]scope{}
	for i := range render.Objects {
		gvk := render.Objects[i].GVK
		if _, seen := scopes[gvk]; seen {
			continue
		}
		mapping, err := l.session.Resolve(ctx, gvk)
		if err != nil && !isUnknownKind(err) {
			return nil, err
		}
		scopes[gvk] = scope{mapping.Namespaced, err == nil}
	}
	return release.Locate(render, func(gvk schema.GroupVersionKind) (namespaced, known bool) {
		return scopes[gvk].namespaced, scopes[gvk].known
	})
}

func isUnknownKind(err error) bool {
	var failure *release.Failure
	return errors.As(err, &failure) && failure.Class == release.UnknownKind
}

// readInventory reads what earlier syncs applied, and settles in memory what is pending there (D13).
func (l *look) readInventory(ctx context.Context) error {
	var err error
	if l.inventory, err = l.Control.Inventory(ctx, l.Release); err != nil {
		return err
	}
	if l.clusterUID, err = l.session.Identity(ctx); err != nil {
		return err
	}
	if err := l.readClaims(ctx); err != nil {
		return err
	}
	l.recorded = release.RefsOf(l.inventory.Spec.Objects)
	for _, ref := range release.Minus(release.RefsOf(l.inventory.Spec.Pending), l.recorded) {
		if _, taken := l.claims[ref]; taken {
			continue
		}
		live, err := l.session.Read(ctx, ref)
		if err != nil {
			return err
		}
		if live != nil && live.OwnedByConvoy {
			l.recorded = append(l.recorded, ref)
		}
	}
	return nil
}

// NewWholeObjects connects with cfg, which leads to the cluster of session.
func NewWholeObjects(cfg *rest.Config, session *k8s.Session) (*WholeObjects, error) {
	own := rest.CopyConfig(cfg)
	own.QPS = -1
	own.UserAgent = "convoy"
	own.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("target cluster: %w", err)
	}
	return &WholeObjects{client: client, session: session}, nil
}
