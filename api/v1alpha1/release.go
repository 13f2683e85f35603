package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Release says what to deploy, where, and how. convoy renders its source, applies the objects wave by wave with
// Server-Side Apply to the target cluster, and prunes what an earlier render brought and this one no longer holds.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=rel,categories=convoy
// +kubebuilder:printcolumn:name="Applied",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].status`,description="True: the last render is applied. Unknown: a sync runs. False: see Reason."
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].reason`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.conditions[?(@.type=="Applied")].lastTransitionTime`
// +kubebuilder:printcolumn:name="Doing",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Reconciling")].message`
// +kubebuilder:printcolumn:name="Next",type=string,priority=1,JSONPath=`.status.nextReconcileAt`,description="When convoy looks at the Release again by itself."
// +kubebuilder:printcolumn:name="Suspended",type=boolean,priority=1,JSONPath=`.spec.suspend`
// +kubebuilder:printcolumn:name="Stalled",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Stalled")].status`,description="True: a person has to act."
// +kubebuilder:printcolumn:name="Succeeded",type=date,JSONPath=`.status.lastSuccessful.finishedAt`,description="When a render was last applied whole."
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Applied")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 180",message="a Release's name has at most 180 characters: its workflows are named after it"
type Release struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ReleaseSpec   `json:"spec"`
	Status ReleaseStatus `json:"status,omitempty"`
}

// What people and programs write on a Release to ask for a sync (SPEC 4), and what convoy writes there.
const (
	// AnnotationSyncRequested asks for a sync when its value is new; the value is the id of the request.
	AnnotationSyncRequested = "convoy.dev/sync-requested"
	// AnnotationSyncForce "true" makes that request a forced one.
	AnnotationSyncForce = "convoy.dev/sync-force"
	// FinalizerPrune keeps a Release with the deletion policy Prune until its objects are pruned.
	FinalizerPrune = "convoy.dev/prune"
)

// ReleaseList is a list of Releases.
//
// +kubebuilder:object:root=true
type ReleaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Release `json:"items"`
}

// ReleaseSpec is what a person asks for.
type ReleaseSpec struct {
	// ClusterRef names the Cluster, in the namespace of the Release, that the objects go to. Without it they go to
	// the cluster that holds the Release. It cannot change while the ReleaseInventory lists objects: the objects on
	// the old cluster would be left behind unseen.
	// +optional
	ClusterRef *ClusterReference `json:"clusterRef,omitempty"`

	// ServiceAccountName is the ServiceAccount that convoy acts as on the target cluster, in the namespace there that has
	// the name of the Release's own: a Release can then do no more than it. The identity that convoy has on the cluster
	// needs the right to impersonate it. Without it convoy acts as the operator's default (worker flag
	// --default-service-account), or with that identity itself.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// Source is where the manifests come from: exactly one of inline, path and url.
	Source Source `json:"source"`

	// Interval is the cadence of the reconcile: how often the source is rendered and the cluster is compared. A changed
	// Release, its inline manifests included, and a request are acted upon at once; a new render of a path or a url is
	// found with the next look. It is shortened by up to a tenth, so that Releases do not wake together. Default: 5m.
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('720h')",message="interval is between 1s and 720h"
	// +optional
	Interval *metav1.Duration `json:"interval,omitempty"`

	// Suspend stops new syncs. A sync that runs is left to its end; requests are kept until it is lifted. Default: false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// DeletionPolicy says what happens to the objects on the cluster when the Release is deleted: Orphan leaves them,
	// Prune deletes everything in the inventory by the rules of the prune before the Release goes; what those protect
	// stays. A change counts once a worker has seen it. A Release that hangs because its cluster is gone is let go by
	// changing this to Orphan. Default: Orphan.
	// +kubebuilder:default=Orphan
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// SyncPolicy says when and how a render is applied and what is pruned.
	// +optional
	SyncPolicy SyncPolicy `json:"syncPolicy,omitzero"`

	// Pin holds the Release at a render of the render store, whatever the source has. Drift is still corrected. It needs
	// a render store (worker flag --render-store-url).
	// +optional
	Pin *Pin `json:"pin,omitempty"`

	// Hooks run before the first object is applied and after the last one is pruned.
	// +optional
	Hooks Hooks `json:"hooks,omitzero"`

	// RevisionHistoryLimit bounds status.history: how many applied renders are remembered. Default: 10.
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	// +optional
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
}

// Pin names the render that a Release is held at.
type Pin struct {
	// Digest of the render, as status.history has it.
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	Digest string `json:"digest"`
}

// ClusterReference names a Cluster in the namespace of the Release.
type ClusterReference struct {
	// Name of the Cluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// Source is where the manifests of a Release come from. Exactly one member is set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.inline), has(self.path), has(self.url)].filter(set, set).size() == 1",message="set exactly one of inline, path and url"
type Source struct {
	// Inline holds the manifests themselves: YAML or JSON, several documents separated by a line of three dashes.
	// +optional
	Inline *string `json:"inline,omitempty"`

	// Path is a file, or a directory that is read recursively (*.yaml, *.yml, *.json; hidden files skipped; in path
	// order), on the worker. It has to lie below a directory that the operator allows (worker flag --path-root).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^/`
	// +optional
	Path *string `json:"path,omitempty"`

	// URL of a file with manifests, fetched with http or https. The ETag of the answer is its revision.
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^https?://`
	// +optional
	URL *string `json:"url,omitempty"`
}

// DeletionPolicy is what the deletion of a Release does to its objects.
//
// +kubebuilder:validation:Enum=Orphan;Prune
type DeletionPolicy string

// The deletion policies.
const (
	// DeletionOrphan leaves the objects on the cluster; the inventory goes with the Release.
	DeletionOrphan DeletionPolicy = "Orphan"
	// DeletionPrune deletes everything in the inventory, by the rules of the prune, before the Release goes.
	DeletionPrune DeletionPolicy = "Prune"
)

// SyncMode is what starts a sync.
//
// +kubebuilder:validation:Enum=Auto;Manual
type SyncMode string

// The sync modes (S4).
const (
	// SyncAuto syncs new renders, changed Releases and drift by itself.
	SyncAuto SyncMode = "Auto"
	// SyncManual syncs on request only; the reconcile says what it would do.
	SyncManual SyncMode = "Manual"
)

// SyncPolicy says when and how a render is applied and what is pruned.
type SyncPolicy struct {
	// Mode is Auto (new renders, changed Releases and drift are synced by themselves) or Manual (only a request starts
	// a sync; the reconcile renders, compares and reports OutOfSync). Default: Auto.
	// +kubebuilder:default=Auto
	// +optional
	Mode SyncMode `json:"mode,omitempty"`

	// ResyncInterval is after what time a whole sync runs even when nothing seems to have changed. In mode Manual there
	// is none. Default: 1h.
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="resyncInterval is at least 1s"
	// +optional
	ResyncInterval *metav1.Duration `json:"resyncInterval,omitempty"`

	// Retry bounds the exponential backoff between the syncs after a DeployFailed, PruneFailed or HookFailed, or after a
	// RenderFailed whose source could not be reached.
	// +optional
	Retry RetryPolicy `json:"retry,omitzero"`

	// Prune says what happens to objects that an earlier render brought and this one no longer holds.
	// +optional
	Prune PrunePolicy `json:"prune,omitzero"`

	// Waves lists the waves that wait before they begin. A wave that is not listed begins as soon as the wave before
	// it is applied.
	// +listType=map
	// +listMapKey=wave
	// +kubebuilder:validation:MaxItems=200
	// +optional
	Waves []WavePolicy `json:"waves,omitempty"`

	// FinalGate is what a sync waits for once its last wave is applied and before it prunes. Where there is none it goes on at
	// once.
	// +optional
	FinalGate *FinalGate `json:"finalGate,omitempty"`
}

// RetryPolicy is the backoff between syncs that failed.
type RetryPolicy struct {
	// InitialInterval is the pause after the first failure. It doubles with each further one. Default: 10s.
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="initialInterval is at least 1s"
	// +optional
	InitialInterval *metav1.Duration `json:"initialInterval,omitempty"`

	// MaxInterval bounds the pause. Default: 5m.
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="maxInterval is at least 1s"
	// +optional
	MaxInterval *metav1.Duration `json:"maxInterval,omitempty"`
}

// PrunePolicy says what is deleted from the target cluster after every wave was applied.
type PrunePolicy struct {
	// Orphaned switches the prune on: objects in the inventory that the render no longer holds are deleted. Off, which is
	// the default, they stay on the cluster and convoy forgets them; status.orphaned names them.
	// +optional
	Orphaned bool `json:"orphaned,omitempty"`

	// Namespaces lifts the protection of Namespaces. One that still holds an object of any inventory stays all the
	// same. Default: false.
	// +optional
	Namespaces bool `json:"namespaces,omitempty"`

	// CustomResourceDefinitions lifts the protection of CustomResourceDefinitions. Deleting one deletes every custom
	// resource of its kind, also those that no inventory lists. Default: false.
	// +optional
	CustomResourceDefinitions bool `json:"customResourceDefinitions,omitempty"`

	// AllowEmpty lets a render without any object prune everything. Without it an empty render is refused, because it
	// is far more often a fault of the source than a wish. Default: false.
	// +optional
	AllowEmpty bool `json:"allowEmpty,omitempty"`

	// PropagationPolicy of the deletes: what happens to the dependents of a deleted object. Default: Background.
	// +kubebuilder:validation:Enum=Background;Foreground;Orphan
	// +kubebuilder:default=Background
	// +optional
	PropagationPolicy metav1.DeletionPropagation `json:"propagationPolicy,omitempty"`
}
