// Package v1alpha1 holds convoy's custom resources: Release, Cluster and ReleaseInventory (SPEC 4).
// It is pure data: what the fields mean is written here, what convoy does with them is not.
//
// The CustomResourceDefinitions in deploy/crds are generated from this package with `make generate`.
//
// +kubebuilder:object:generate=true
// +groupName=convoy.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "convoy.dev", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&Release{}, &ReleaseList{},
		&Cluster{}, &ClusterList{},
		&ReleaseInventory{}, &ReleaseInventoryList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
