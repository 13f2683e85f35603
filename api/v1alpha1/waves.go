package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// WavePolicy says what a wave waits for before it begins: first for the health of the wave before, then for a person.
type WavePolicy struct {
	// Wave is the number of the wave: the value of the annotation convoy.dev/sync-wave of its objects.
	Wave int32 `json:"wave"`

	// Health is what the next lower wave that has objects must show before this one begins.
	// +optional
	Health *WaveHealth `json:"health,omitempty"`

	// Approval makes the wave wait for a person, once Health is given.
	// +optional
	Approval *Approval `json:"approval,omitempty"`
}

// FinalGate stands behind the last wave, in front of the prune.
type FinalGate struct {
	// Health is what the last wave that has objects must show.
	// +optional
	Health *WaveHealth `json:"health,omitempty"`

	// Approval makes the sync wait for a person, once Health is given.
	// +optional
	Approval *Approval `json:"approval,omitempty"`
}

// Approval is the word of a person, given for one render: `convoy approve`, or the update approve of the SyncWorkflow.
type Approval struct {
	// Required switches it on.
	Required bool `json:"required"`

	// Expires ends the wait for the approval with reason WaveTimeout, counted from when that wait began. Without it the
	// sync waits on, for days if need be.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="expires is at least 1s"
	// +optional
	Expires *metav1.Duration `json:"expires,omitempty"`
}

// HealthStrategy is how a gate judges the wave before it.
//
// +kubebuilder:validation:Enum=Ready;Delay;Expression
type HealthStrategy string

// The health strategies (D24).
const (
	// HealthReady waits until every object of the wave before is Current by the rules of kstatus; a Failed one ends
	// the sync at once.
	HealthReady HealthStrategy = "Ready"
	// HealthDelay waits a number of seconds after the wave before was applied.
	HealthDelay HealthStrategy = "Delay"
	// HealthExpression waits until a CEL expression is true for every object of the wave before.
	HealthExpression HealthStrategy = "Expression"
)

// WaveHealth is the gate in front of a wave.
//
// +kubebuilder:validation:XValidation:rule="(self.strategy == 'Delay') == has(self.seconds)",message="seconds belongs to the strategy Delay: set it there and only there"
// +kubebuilder:validation:XValidation:rule="(self.strategy == 'Expression') == has(self.current)",message="current belongs to the strategy Expression: set it there and only there"
// +kubebuilder:validation:XValidation:rule="self.strategy == 'Expression' || !has(self.failed)",message="failed belongs to the strategy Expression: set it only there"
type WaveHealth struct {
	// Strategy is Ready (every object of the wave before is Current by the rules of kstatus), Delay (a number of
	// seconds has passed since it was applied) or Expression (a CEL expression is true for every object of it).
	Strategy HealthStrategy `json:"strategy"`

	// Timeout ends the wait with reason WaveTimeout. Without it the wave waits on, for days if need be. The wait for an
	// approval does not count.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// Seconds to wait with the strategy Delay.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2592000
	// +optional
	Seconds *int32 `json:"seconds,omitempty"`

	// Current is a CEL expression, with the strategy Expression. The wave begins once it is true for every object of the
	// wave before that does not opt out (convoy.dev/wait: disabled). It sees object, the object as it is on the cluster;
	// objects, all of them; and the object's own apiVersion, kind, metadata, spec, status and data. What an expression
	// asks for and the object does not have yet makes the wave wait. Of a Secret it sees the metadata only.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Current string `json:"current,omitempty"`

	// Failed is a CEL expression over the same, with the strategy Expression. Once it is true for any object the sync
	// ends as DeployFailed.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	Failed string `json:"failed,omitempty"`
}
