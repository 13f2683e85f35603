package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ReleaseInventory lists what convoy has applied for the Release of the same name and namespace. The prune deletes
// what stands here and no longer in the render. convoy alone writes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=relinv,categories=convoy
// +kubebuilder:printcolumn:name="Cluster-UID",type=string,JSONPath=`.spec.clusterUID`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ReleaseInventory struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec InventorySpec `json:"spec"`
}

// ReleaseInventoryList is a list of ReleaseInventories.
//
// +kubebuilder:object:root=true
type ReleaseInventoryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ReleaseInventory `json:"items"`
}

// InventorySpec holds the records.
type InventorySpec struct {
	// Objects that convoy applied, in the order of application. The API version is no part of an identity.
	// +listType=atomic
	// +optional
	Objects []ObjectRecord `json:"objects"` // S19

	// Facts are short sums of what convoy left behind at each object of the list above: 8 characters for each of them,
	// in the same order, and dots where nothing is known. A periodic pass compares them with the cluster and so notices
	// what was changed, deleted or made anew by others, without an apply. Only convoy reads and writes them; without
	// them, or with a wrong number, the next pass is a whole sync.
	// +optional
	Facts string `json:"facts,omitempty"`

	// Pending are objects that a sync was about to apply when its record was last written. The next sync looks which
	// of them exist and bear convoy's own entry.
	// +listType=atomic
	// +optional
	Pending []ObjectRecord `json:"pending,omitempty"`

	// ClusterUID is the uid of the Namespace kube-system of the cluster that the records are about.
	// +optional
	ClusterUID string `json:"clusterUID,omitempty"`
}

// ObjectRecord is the identity of an applied object.
type ObjectRecord struct {
	// Group is the API group, empty for the core group.
	Group string `json:"group"`
	// Kind of the object.
	Kind string `json:"kind"`
	// Namespace is empty for a cluster-scoped object.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the object.
	Name string `json:"name"`
}
