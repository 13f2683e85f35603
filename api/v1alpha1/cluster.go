package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Cluster is a target cluster and the identity that convoy uses there. Releases in the same namespace refer to it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=cvcluster,categories=convoy
// +kubebuilder:printcolumn:name="Secret",type=string,JSONPath=`.spec.kubeconfigSecretRef.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterSpec `json:"spec"`
}

// ClusterList is a list of Clusters.
//
// +kubebuilder:object:root=true
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Cluster `json:"items"`
}

// ClusterSpec says how a cluster is reached.
type ClusterSpec struct {
	// KubeconfigSecretRef names a Secret, in the namespace of the Cluster, that holds a kubeconfig. Only credentials
	// that stand in it count: tokens, client certificates, passwords. Files and exec plugins are refused, since they
	// would run on the worker.
	KubeconfigSecretRef SecretKeyReference `json:"kubeconfigSecretRef"`

	// MaxConcurrentRequests bounds how many requests one worker has under way to this cluster, all its Releases together;
	// others wait. Clusters that lead to one API server should name the same number. Without it there is no bound: the API
	// server has its own.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	MaxConcurrentRequests *int32 `json:"maxConcurrentRequests,omitempty"`
}

// SecretKeyReference names a key of a Secret.
type SecretKeyReference struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Key in the Secret that holds the kubeconfig. Default: kubeconfig.
	// +kubebuilder:default=kubeconfig
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Key string `json:"key,omitempty"`
}
