package v1alpha1

import (
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Hooks are the lifecycle hooks of a Release.
type Hooks struct {
	// PreSync hooks run in order before the first object is applied. One that fails ends the sync (HookFailed).
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=20
	// +optional
	PreSync []Hook `json:"preSync,omitempty"`

	// PostSync hooks run in order after the prune. One that fails is reported and changes nothing in the result.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=20
	// +optional
	PostSync []Hook `json:"postSync,omitempty"`
}

// HookRun is when a hook runs.
//
// +kubebuilder:validation:Enum=OnChange;Always
type HookRun string

// When a hook runs (D25).
const (
	// HookOnChange runs a hook when the render or the hook differ from its last success, or when a person asked.
	HookOnChange HookRun = "OnChange"
	// HookAlways runs a hook in every sync.
	HookAlways HookRun = "Always"
)

// Hook is one lifecycle hook. Exactly one of job, http and workflow says what it does.
//
// +kubebuilder:validation:XValidation:rule="[has(self.job), has(self.http), has(self.workflow)].filter(set, set).size() == 1",message="a hook has exactly one of job, http and workflow"
type Hook struct {
	// Name of the hook, unique in its list.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=40
	Name string `json:"name"`

	// Run is OnChange (the render or the hook differ from the hook's last success, or a person asked for the sync) or
	// Always (in every sync). Default: OnChange.
	// +kubebuilder:default=OnChange
	// +optional
	Run HookRun `json:"run,omitempty"`

	// Timeout of one try of the hook. Default: 10m.
	// +kubebuilder:default="10m"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// Retries is how often a failed hook is tried again inside the same sync. Default: 0.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	// +optional
	Retries int32 `json:"retries,omitempty"`

	// Job is run in the target cluster. It belongs to one sync: the outcome of a Job of another sync never counts.
	// +optional
	Job *JobHook `json:"job,omitempty"`

	// HTTP is a request that the worker sends. An answer of 200 to 299 is success.
	// +optional
	HTTP *HTTPHook `json:"http,omitempty"`

	// Workflow is a Temporal workflow of any type, in any language, that runs as a child of the sync. Its result decides.
	// +optional
	Workflow *WorkflowHook `json:"workflow,omitempty"`
}

// JobHook is a batch/v1 Job, made from a template.
type JobHook struct {
	// Namespace of the Job on the target cluster. It has to exist before the sync. Default: default.
	// +kubebuilder:default=default
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Template is the Job to run, as a JobTemplate (batch/v1 JobTemplateSpec, like spec.jobTemplate of a CronJob):
	// metadata and spec of a Job, so its containers stand in template.spec.template.spec.containers. convoy chooses its
	// name; ttlSecondsAfterFinished is ignored, since convoy itself removes the Job when the hook runs the next time.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Template batchv1.JobTemplateSpec `json:"template"`
}

// HTTPHook is one request, sent until it is answered well or the hook's timeout is over.
type HTTPHook struct {
	// URL to call, with http or https. Like a url source it never leads to loopback, link-local or metadata addresses
	// unless the operator allows it. Redirects are not followed. User, password and query are shown nowhere; host and
	// path are.
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^https?://`
	URL string `json:"url"`

	// Method of the request. Default: POST.
	// +kubebuilder:validation:Enum=GET;POST;PUT;PATCH;DELETE
	// +kubebuilder:default=POST
	// +optional
	Method string `json:"method,omitempty"`

	// Headers of the request, by name. They are no place for credentials: who may read the Release reads them.
	// +kubebuilder:validation:MaxProperties=50
	// +optional
	Headers map[string]string `json:"headers,omitempty"`

	// Body of the request. Without it, POST, PUT and PATCH send a JSON object that names the Release, the hook, the
	// render and the sync; GET and DELETE send none.
	// +kubebuilder:validation:MaxLength=65536
	// +optional
	Body *string `json:"body,omitempty"`

	// SecretRef names the key of a Secret in the namespace of the Release. Its value signs each request, in the header
	// X-Convoy-Signature, and is never sent.
	// +optional
	SecretRef *HookSecretReference `json:"secretRef,omitempty"`

	// RetryOn lists the statuses that are tried again within the hook's timeout, in place of 408, 429 and 500 to 599.
	// A request without any answer is always tried again.
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:Minimum=400
	// +kubebuilder:validation:items:Maximum=599
	// +optional
	RetryOn []int32 `json:"retryOn,omitempty"`
}

// HookSecretReference names the key of a Secret in the namespace of the Release, on the control cluster.
type HookSecretReference struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Key of the value in the Secret's data. Every byte of it counts, a line break at its end too.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// WorkflowHook is a Temporal workflow in the Temporal namespace of convoy.
type WorkflowHook struct {
	// Type of the workflow, as its worker registers it. Those of convoy itself are refused.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:XValidation:rule="!(self in ['ReleaseWorkflow', 'SyncWorkflow', 'DeleteWorkflow'])",message="a workflow of convoy itself is no hook"
	Type string `json:"type"`

	// TaskQueue that a worker with this workflow polls. Without it, the one of the sync itself: that is of use only
	// where a worker of your own, which also knows convoy's workflows, polls it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	// +optional
	TaskQueue string `json:"taskQueue,omitempty"`

	// Input is any JSON object, at most 64 KiB; the workflow gets it beside what convoy says about the sync. It is seen
	// in Temporal: never put a Secret there.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	Input *runtime.RawExtension `json:"input,omitempty"`
}
