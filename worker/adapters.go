package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/control"
	"convoy.dev/convoy/internal/k8s"
	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/internal/source"
	"convoy.dev/convoy/workflows"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// dryRunsInFlight is how many dry runs a sync has under way at once: more add nothing on a small API server.
const dryRunsInFlight = 8

// targets connects to target clusters with the credentials that the control cluster holds.
type targets struct {
	pool    *k8s.Pool
	control *control.Client
	// serviceAccount is who Releases act as that name nobody; empty: the Cluster's identity.
	serviceAccount string
}

func (t targets) Connect(ctx context.Context, rel *v1alpha1.Release, crds map[schema.GroupKind]string) (activities.Target, error) {
	cluster, err := t.cluster(ctx, rel)
	if err != nil {
		return nil, err
	}
	return target{cluster.Session(k8s.SessionOptions{RenderCRDs: crds})}, nil
}

func (t targets) cluster(ctx context.Context, rel *v1alpha1.Release) (*k8s.Cluster, error) {
	access, err := t.control.Access(ctx, rel)
	if err != nil {
		return nil, err
	}
	cfg := t.control.Config()
	if access.Kubeconfig != nil {
		if cfg, err = k8s.RestConfig(access.Kubeconfig); err != nil {
			return nil, fmt.Errorf("Cluster %s/%s: %w", rel.Namespace, rel.Spec.ClusterRef.Name, err)
		}
	}
	if cfg, err = k8s.ActAs(cfg, rel.Namespace, cmp.Or(rel.Spec.ServiceAccountName, t.serviceAccount)); err != nil {
		return nil, fmt.Errorf("Release %s/%s: %w", rel.Namespace, rel.Name, err)
	}
	cluster, err := t.pool.Connect(cfg)
	if err != nil {
		return nil, err
	}
	if rel.Spec.ClusterRef != nil {
		t.pool.Limit(cluster, access.MaxConcurrentRequests)
	}
	return cluster, nil
}

// target is a session in the words of the activities.
type target struct{ *k8s.Session }

func (t target) Scope(ctx context.Context, gvk schema.GroupVersionKind) (namespaced, known bool, err error) {
	mapping, err := t.Resolve(ctx, gvk)
	var failure *release.Failure
	switch {
	case err == nil:
		return mapping.Namespaced, true, nil
	case errors.As(err, &failure) && failure.Class == release.UnknownKind:
		return false, false, nil
	}
	return false, false, err
}

func (t target) DryRun(ctx context.Context, items []release.Item, done func(int, release.Applied, error)) error {
	all := make([]k8s.DryRunItem, len(items))
	for i := range items {
		all[i] = k8s.DryRunItem{Object: items[i].Object, Ref: items[i].Ref}
	}
	return t.DryRunAll(ctx, all, dryRunsInFlight, done)
}

func (t target) Delete(ctx context.Context, live *release.Live, propagation metav1.DeletionPropagation) (release.Deletion, error) {
	deletion, err := t.Session.Delete(ctx, live, propagation)
	if errors.Is(err, k8s.ErrChanged) {
		return release.Deletion{Changed: true}, nil
	}
	return release.Deletion{Terminating: deletion.Terminating, Finalizers: deletion.Finalizers}, err
}

func (t target) Health(ctx context.Context, refs []release.ObjectRef) (release.Health, error) {
	report, err := t.Session.Health(ctx, refs)
	health := release.Health{Healthy: report.Healthy}
	for _, blocker := range report.Blockers {
		health.Blockers = append(health.Blockers, release.Unhealthy(blocker))
	}
	return health, err
}

func (t target) JobState(ctx context.Context, namespace, name string) (release.JobState, error) {
	state, err := t.Session.JobState(ctx, namespace, name)
	return release.JobState(state), err
}

// sources fetches, and gives a bad source its reason.
type sources struct{ *source.Fetcher }

func (s sources) Fetch(ctx context.Context, src v1alpha1.Source) ([]release.File, string, error) {
	result, err := s.Fetcher.Fetch(ctx, src)
	var fault *source.Error
	if errors.As(err, &fault) && !fault.Retryable {
		return nil, "", fault.Problem()
	}
	return result.Files, result.Revision, err
}

// runs is what activities need of Temporal.
type runs struct {
	client     client.Client
	namespace  string
	searchable *searchable
}

// searchable remembers for a while whether Temporal knows convoy's search attributes. They count as known only some time
// after they were first seen: what was registered a moment ago is not known to every part of Temporal yet, and a
// workflow task with an unknown attribute fails.
type searchable struct {
	mu           sync.Mutex
	since, until time.Time
}

const (
	searchableAfter = 90 * time.Second
	searchableFor   = 5 * time.Minute
)

// Searchable asks Temporal for its custom search attributes. A worker that may not ask does without them.
func (r runs) Searchable(ctx context.Context) bool {
	known := r.searchable
	known.mu.Lock()
	defer known.mu.Unlock()
	now := time.Now()
	if now.After(known.until) {
		list, err := r.client.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: r.namespace})
		registered := list.GetCustomAttributes()
		switch {
		case err != nil || registered[release.AttributeRelease] != enumspb.INDEXED_VALUE_TYPE_KEYWORD ||
			registered[release.AttributeCluster] != enumspb.INDEXED_VALUE_TYPE_KEYWORD:
			known.since = time.Time{}
		case known.since.IsZero():
			known.since = now
		}
		known.until = now.Add(searchableFor)
	}
	return !known.since.IsZero() && now.Sub(known.since) >= searchableAfter
}

func (r runs) Running(ctx context.Context, workflowID, runID string) (running bool, closedAt time.Time, err error) {
	answer, err := r.client.DescribeWorkflowExecution(ctx, workflowID, runID)
	var unknown *serviceerror.NotFound
	if errors.As(err, &unknown) {
		return false, time.Time{}, nil
	}
	if err != nil {
		return false, time.Time{}, err
	}
	info := answer.GetWorkflowExecutionInfo()
	if info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING || info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED {
		return true, time.Time{}, nil
	}
	return false, info.GetCloseTime().AsTime(), nil
}

func (r runs) Beat(ctx context.Context, taskToken []byte, progress any) error {
	err := r.client.RecordActivityHeartbeat(ctx, taskToken, progress)
	var superseded *serviceerror.NotFound
	if errors.As(err, &superseded) {
		return activities.ErrLeaseLost
	}
	return err
}

// Ended signals the loop that a sync has ended. A loop whose run started the sync and is still open hears of it from
// Temporal.
func (r runs) Ended(ctx context.Context, loopID, parentRunID, syncRunID string) error {
	if parentRunID != "" {
		running, _, err := r.Running(ctx, loopID, parentRunID)
		if err != nil || running {
			return err
		}
	}
	err := r.client.SignalWorkflow(ctx, loopID, "", workflows.SignalSyncEnded, workflows.SyncEnded{RunID: syncRunID})
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) {
		return nil
	}
	return err
}
