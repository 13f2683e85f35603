package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The condition types of a Release.
const (
	// ConditionApplied says whether the last render is applied: see the reasons (SPEC 4).
	ConditionApplied = "Applied"
	// ConditionReady, ConditionReconciling and ConditionStalled follow the rules of kstatus.
	ConditionReady       = "Ready"
	ConditionReconciling = "Reconciling"
	ConditionStalled     = "Stalled"
)

// ReleaseStatus is what convoy reports. Lists hold at most 20 entries, with the total beside them.
type ReleaseStatus struct { // D35
	// ObservedGeneration is the generation of the Release that convoy has acted upon: the last sync worked on it, or
	// there was nothing to sync in it.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions: Applied (is the last render applied), and Ready, Reconciling and Stalled by the rules of kstatus.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// LastAttempted is the last sync, whatever became of it.
	// +optional
	LastAttempted *Attempt `json:"lastAttempted,omitempty"`

	// LastSuccessful is the last render that was applied whole.
	// +optional
	LastSuccessful *Success `json:"lastSuccessful,omitempty"`

	// Waves is the progress of the last sync, wave by wave; of more than 20 waves those around the current one.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +optional
	Waves []WaveStatus `json:"waves,omitempty"`

	// WavesTotal is the number of waves of the render.
	// +optional
	WavesTotal int32 `json:"wavesTotal,omitempty"`

	// Hooks holds the last outcome of each hook.
	// +listType=atomic
	// +optional
	Hooks []HookStatus `json:"hooks,omitempty"`

	// Unverified names objects that the dry run could not judge, because it needs something that the same render
	// brings first.
	// +listType=atomic
	// +optional
	Unverified []string `json:"unverified,omitempty"`

	// UnverifiedTotal is the number of such objects.
	// +optional
	UnverifiedTotal int32 `json:"unverifiedTotal,omitempty"`

	// Orphaned names objects that left the inventory and stay on the cluster, because the prune is off or does not
	// touch them.
	// +listType=atomic
	// +optional
	Orphaned []string `json:"orphaned,omitempty"`

	// OrphanedTotal is the number of such objects.
	// +optional
	OrphanedTotal int32 `json:"orphanedTotal,omitempty"`

	// Terminating names pruned objects that finalizers still hold, with the finalizers.
	// +listType=atomic
	// +optional
	Terminating []string `json:"terminating,omitempty"`

	// TerminatingTotal is the number of such objects.
	// +optional
	TerminatingTotal int32 `json:"terminatingTotal,omitempty"`

	// LastHandledRequests lists the sync requests that were answered, newest first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +optional
	LastHandledRequests []HandledRequest `json:"lastHandledRequests,omitempty"`

	// HandledRequestsTotal is the number of sync requests that were ever answered.
	// +optional
	HandledRequestsTotal int64 `json:"handledRequestsTotal,omitempty"`

	// NextReconcileAt is about when convoy looks at the Release again by itself. Empty while it is suspended.
	// +optional
	NextReconcileAt *metav1.Time `json:"nextReconcileAt,omitempty"`

	// History lists the renders that were applied, newest first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +optional
	History []HistoryEntry `json:"history,omitempty"`

	// Fence keeps two syncs of one Release apart. Only convoy writes it.
	// +optional
	Fence *Fence `json:"fence,omitempty"`
}

// HandledRequest is the answer to one sync request.
type HandledRequest struct {
	// ID of the request: the caller's own, the value of the annotation, or one that convoy gave it.
	ID string `json:"id"`
	// Result of the sync that served it: Succeeded, Failed or Superseded; Refused when none could.
	Result string `json:"result"`
	// Reason is the reason of the condition Applied, or why the request was refused.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message says more.
	// +optional
	Message string `json:"message,omitempty"`
	// Digest of the render that was synced.
	// +optional
	Digest string `json:"digest,omitempty"`
	// RunID of the sync in Temporal.
	// +optional
	RunID string `json:"runID,omitempty"`
}

// AttemptResult is what became of a sync.
type AttemptResult string

// The results of a sync.
const (
	ResultRunning    AttemptResult = "Running"
	ResultSucceeded  AttemptResult = "Succeeded"
	ResultFailed     AttemptResult = "Failed"
	ResultSuperseded AttemptResult = "Superseded"
)

// Attempt is one sync.
type Attempt struct {
	// Digest of the render, empty when there was none.
	// +optional
	Digest string `json:"digest,omitempty"`
	// Revision of the source that the render came from.
	// +optional
	Revision string `json:"revision,omitempty"`
	// StartedAt is when the sync began.
	StartedAt metav1.Time `json:"startedAt"`
	// FinishedAt is when it ended.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// Result is Running, Succeeded, Failed or Superseded.
	Result AttemptResult `json:"result"`
	// Reason is the reason of the condition Applied.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message says what happened and what to do.
	// +optional
	Message string `json:"message,omitempty"`
	// Force: the dry run was skipped.
	// +optional
	Force bool `json:"force,omitempty"`
	// RequestedBy names who asked for the sync, empty when nobody did.
	// +optional
	RequestedBy string `json:"requestedBy,omitempty"`
	// WorkflowID and RunID find the sync in Temporal.
	// +optional
	WorkflowID string `json:"workflowID,omitempty"`
	// +optional
	RunID string `json:"runID,omitempty"`
}

// Success is a render that was applied whole.
type Success struct {
	// Digest of the render.
	Digest string `json:"digest"`
	// Revision of the source that it came from.
	// +optional
	Revision string `json:"revision,omitempty"`
	// FinishedAt is when it was last applied whole.
	FinishedAt metav1.Time `json:"finishedAt"`
}

// WavePhase is the state of a wave.
type WavePhase string

// The phases of a wave (SPEC 4).
const (
	WavePending  WavePhase = "Pending"
	WaveWaiting  WavePhase = "Waiting"
	WaveApplying WavePhase = "Applying"
	WaveApplied  WavePhase = "Applied"
	WaveFailed   WavePhase = "Failed"
)

// WaveStatus is the progress of one wave.
type WaveStatus struct {
	// Wave is its number.
	Wave int32 `json:"wave"`
	// Phase is Pending, Waiting, Applying, Applied or Failed.
	Phase WavePhase `json:"phase"`
	// Objects is how many objects it has.
	Objects int32 `json:"objects"`
	// Applied is how many of them this sync has applied.
	Applied int32 `json:"applied"`
	// StartedAt is when its wait or its first request began.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// FinishedAt is when its last object was applied, or when it failed.
	// +optional
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// BlockedBy names what a waiting wave waits for.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +optional
	BlockedBy []Blocker `json:"blockedBy,omitempty"`
	// BlockedByTotal is the number of such objects.
	// +optional
	BlockedByTotal int32 `json:"blockedByTotal,omitempty"`
	// Approval is the approval in front of it, once it was asked for or given.
	// +optional
	Approval *ApprovalStatus `json:"approval,omitempty"`
	// FinalApproval is the approval of the final gate, on the last wave.
	// +optional
	FinalApproval *ApprovalStatus `json:"finalApproval,omitempty"`
}

// ApprovalDecision is what became of an approval. It travels in workflow histories: never rename one.
type ApprovalDecision string

// The decisions.
const (
	Approved ApprovalDecision = "Approved"
	Rejected ApprovalDecision = "Rejected"
	Expired  ApprovalDecision = "Expired"
)

// ApprovalStatus is an approval that is waited for, or what became of it.
type ApprovalStatus struct {
	// Decision is Approved, Rejected or Expired; empty while it is waited for.
	// +optional
	Decision ApprovalDecision `json:"decision,omitempty"`
	// By is who decided.
	// +optional
	By string `json:"by,omitempty"`
	// Reason is why, in that person's words.
	// +optional
	Reason string `json:"reason,omitempty"`
	// At is when it was decided.
	// +optional
	At *metav1.Time `json:"at,omitempty"`
	// Digest of the render that it is about.
	Digest string `json:"digest"`
	// ExpiresAt is until when it is waited for.
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
	// Spec is a sum over what a sync of the Release depended on then: the decision holds while that is the same.
	// +optional
	Spec string `json:"spec,omitempty"`
}

// Blocker is an object that a wave waits for.
type Blocker struct {
	// Object is its kind, namespace and name.
	Object string `json:"object"`
	// Message is what it lacks.
	Message string `json:"message"`
	// Since is when the wave was first seen waiting for it.
	Since metav1.Time `json:"since"`
}

// HookStatus is the last outcome of a hook.
type HookStatus struct {
	// Name of the hook.
	Name string `json:"name"`
	// Phase is preSync or postSync.
	Phase string `json:"phase"`
	// Type is job, http or workflow.
	// +optional
	Type string `json:"type,omitempty"`
	// Result is Succeeded or Failed.
	Result string `json:"result"`
	// Message says why it failed.
	// +optional
	Message string `json:"message,omitempty"`
	// Digest of the render that it ran for.
	// +optional
	Digest string `json:"digest,omitempty"`
	// Definition is a hash of the hook's definition.
	// +optional
	Definition string `json:"definition,omitempty"`
	// StartedAt is when its last try began.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// FinishedAt is when it ended.
	FinishedAt metav1.Time `json:"finishedAt"`
}

// HistoryEntry is a render that was applied.
type HistoryEntry struct {
	// Digest of the render.
	Digest string `json:"digest"`
	// Revision of the source that it came from.
	// +optional
	Revision string `json:"revision,omitempty"`
	// FirstAppliedAt and LastAppliedAt are when it was applied whole for the first and for the last time in a row.
	FirstAppliedAt metav1.Time `json:"firstAppliedAt"`
	LastAppliedAt  metav1.Time `json:"lastAppliedAt"`
	// Result is Succeeded.
	Result AttemptResult `json:"result"`
	// RequestedBy names who asked for the sync, empty when nobody did.
	// +optional
	RequestedBy string `json:"requestedBy,omitempty"`
	// WorkflowID and RunID find the sync in Temporal.
	// +optional
	WorkflowID string `json:"workflowID,omitempty"`
	// +optional
	RunID string `json:"runID,omitempty"`
}

// Fence numbers the syncs of a Release. A sync may write only while the number is its own (D16, D35).
type Fence struct {
	// Number grows by one with each sync.
	Number int64 `json:"number"`
	// WorkflowID and RunID of the sync that holds it.
	WorkflowID string `json:"workflowID"`
	RunID      string `json:"runID"`
	// Acknowledged: that sync has ended and said so.
	// +optional
	Acknowledged bool `json:"acknowledged,omitempty"`
}
