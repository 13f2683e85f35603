// Package activities is the WORK of a sync: one exported method for each activity, one file for each step. What comes
// after what is decided in package workflows, what is right is decided in package internal/release, and the worlds
// outside are reached through the interfaces below, which adapters implement.
//
// Nothing of a manifest leaves an activity: results hold digests, counts and object references only (D10).
package activities

import (
	"context"
	"log/slog"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Activities holds what the activities need. Every exported method is an activity.
type Activities struct {
	control Control
	targets Targets
	source  Source
	store   Store // nil without a render store
	runs    Runs
	hooks   HookSender
	now     func() time.Time
	log     *slog.Logger
	// stuckAfter is how long a wave may wait before its Release counts as stuck.
	stuckAfter time.Duration

	renders *renderCache
	digests *digestCache
	shares  *shares
}

// Options of New. Store may be nil: then the store step is skipped and other workers render again.
type Options struct {
	Control Control
	Targets Targets
	Source  Source
	Store   Store
	Runs    Runs
	Hooks   HookSender
	Log     *slog.Logger
	// Now is the clock, time.Now when nil.
	Now func() time.Time
	// CacheBytes bounds the renders kept in memory, in bytes of canonical JSON. 64 MiB when 0.
	CacheBytes int
	// PerCluster bounds how many activities of this worker may work on one target cluster at a time, so that a dead or
	// slow one leaves slots for the others. 25 when 0.
	PerCluster int
	// StuckAfter is how long a wave may wait for health before its Release counts as stuck (condition Stalled, reason
	// Stuck). 30 minutes when 0.
	StuckAfter time.Duration
	// Slots is how many activities this worker runs at a time. 100 when 0.
	Slots int
}

// New makes the activities of a worker.
func New(o Options) *Activities {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 64 << 20
	}
	if o.PerCluster == 0 {
		o.PerCluster = 25
	}
	if o.StuckAfter == 0 {
		o.StuckAfter = 30 * time.Minute
	}
	if o.Slots == 0 {
		o.Slots = 100
	}
	return &Activities{
		control: o.Control, targets: o.Targets, source: o.Source, store: o.Store, runs: o.Runs,
		hooks: o.Hooks, now: o.Now, log: o.Log, stuckAfter: o.StuckAfter,
		renders: newRenderCache(o.CacheBytes), digests: newDigestCache(), shares: newShares(o.PerCluster, o.Slots),
	}
}

// Control is the control cluster, where Releases, Clusters and ReleaseInventories live.
type Control interface {
	// Release fails with release.ErrNotFound when there is none.
	Release(ctx context.Context, namespace, name string) (*v1alpha1.Release, error)
	// PatchStatus writes what mutate changes, if nobody else wrote rel in between (else release.ErrConflict).
	PatchStatus(ctx context.Context, rel *v1alpha1.Release, mutate func(*v1alpha1.ReleaseStatus)) error
	// SetFinalizer adds or removes a finalizer of a Release; it changes nothing where that is so already. On success rel
	// is the new state.
	SetFinalizer(ctx context.Context, rel *v1alpha1.Release, finalizer string, present bool) error
	// HoldInventory puts a finalizer on the inventory of a Release, or takes it off; without an inventory it does nothing.
	HoldInventory(ctx context.Context, rel *v1alpha1.Release, finalizer string, held bool) error
	// Inventory returns an empty one without resourceVersion where there is none.
	Inventory(ctx context.Context, rel *v1alpha1.Release) (*v1alpha1.ReleaseInventory, error)
	// SaveInventory fails with release.ErrConflict when somebody else wrote it in between.
	SaveInventory(ctx context.Context, inv *v1alpha1.ReleaseInventory) error
	// Claims returns which objects of a cluster other Releases' inventories list or have pending.
	Claims(ctx context.Context, self types.NamespacedName, clusterUID string) (map[release.ObjectRef]types.NamespacedName, error)
	// Disclaim removes objects from another Release's inventory.
	Disclaim(ctx context.Context, from types.NamespacedName, moved map[release.ObjectRef]bool) error
	// SecretValue reads the value of a key of a Secret. Its errors hold no value, and say what is missing.
	SecretValue(ctx context.Context, namespace, name, key string) ([]byte, error)
	// Event records an event once for each key and reason.
	Event(ctx context.Context, rel *v1alpha1.Release, key, eventType, reason, message string, now time.Time) error
}

// Targets connects to the target cluster of a Release.
type Targets interface {
	Connect(ctx context.Context, rel *v1alpha1.Release, crds map[schema.GroupKind]string) (Target, error)
}

// Target is one step's use of a target cluster: it retries accidents within a bound of its own (D22) and asks the
// context's guard before each request (D16). Errors about an object are *release.Failure.
type Target interface {
	// Identity is the uid of the Namespace kube-system (D31).
	Identity(ctx context.Context) (string, error)
	// Address stands for the cluster where its identity cannot be read: the same for all identities that take the same
	// way there.
	Address() string
	// Silent: the cluster answers nothing, as far as is known. Steps there are short then, and few at a time.
	Silent() bool
	// Scope of a kind: known is false when fresh discovery does not serve it (S8).
	Scope(ctx context.Context, gvk schema.GroupVersionKind) (namespaced, known bool, err error)
	// DryRun sends each item once and reports each answer by index (S5).
	DryRun(ctx context.Context, items []release.Item, done func(i int, answer release.Applied, err error)) error
	// Apply applies one object (S13).
	Apply(ctx context.Context, obj *release.Object, ref release.ObjectRef) (release.Applied, error)
	// AwaitEstablished waits until CustomResourceDefinitions are served (D11).
	AwaitEstablished(ctx context.Context, names []string) error
	// Read returns nil when the object is absent.
	Read(ctx context.Context, ref release.ObjectRef) (*release.Live, error)
	// Facts shows what is to be seen of each object, from metadata alone (D30). The answer is aligned with refs.
	Facts(ctx context.Context, refs []release.ObjectRef) ([]release.Seen, error)
	// Delete deletes exactly the object that was read (D17).
	Delete(ctx context.Context, live *release.Live, propagation metav1.DeletionPropagation) (release.Deletion, error)
	// Health judges objects by the rules of kstatus (D24).
	Health(ctx context.Context, refs []release.ObjectRef) (release.Health, error)
	// Inspect reads objects for an expression to judge, Secrets by their metadata alone (D24). The answer is aligned with
	// refs.
	Inspect(ctx context.Context, refs []release.ObjectRef) ([]release.Looked, error)
	// CreateJob creates a hook's Job, or finds the one of that name; it returns its uid.
	CreateJob(ctx context.Context, job *batchv1.Job) (string, error)
	// JobState looks at a hook's Job.
	JobState(ctx context.Context, namespace, name string) (release.JobState, error)
	// DeleteJobs deletes the Jobs of a label selector, except the one with uid keep.
	DeleteJobs(ctx context.Context, namespace, selector, keep string) error
}

// Source fetches the manifests of a Release.
type Source interface {
	// Fetch returns the files in their order and the revision that they are of.
	Fetch(ctx context.Context, src v1alpha1.Source) (files []release.File, revision string, err error)
}

// Store keeps renders by their digest (S11).
type Store interface {
	Put(ctx context.Context, render *release.Render) (key string, err error)
	// Get checks the digest of what it reads.
	Get(ctx context.Context, digest string) (*release.Render, error)
}

// HookSender sends the requests of http hooks. What it answers shows neither a value of the request nor of the answer.
type HookSender interface {
	Send(ctx context.Context, request release.HookRequest) release.HookAnswer
}

// Runs is what activities need of Temporal.
type Runs interface {
	// Running tells whether a workflow run is open, and when it closed. A run that Temporal does not know counts as
	// closed at the zero time.
	Running(ctx context.Context, workflowID, runID string) (running bool, closedAt time.Time, err error)
	// Beat records a heartbeat at once and returns when the server has confirmed it (D16). It fails with
	// *temporal.CanceledError when the activity is to stop, and with NotFound when another attempt took over.
	Beat(ctx context.Context, taskToken []byte, progress any) error
	// Searchable tells whether Temporal knows convoy's search attributes, as far as this worker may ask.
	Searchable(ctx context.Context) bool
	// Ended tells the loop of a Release that a sync has ended, unless the loop is the parent run and still open: then
	// Temporal itself does. A loop that is not there is no error.
	Ended(ctx context.Context, loopID, parentRunID, syncRunID string) error
}
