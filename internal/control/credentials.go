package control

import (
	"context"
	"fmt"

	"convoy.dev/convoy/api/v1alpha1"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// MissingError says that a Cluster, its Secret, or the key in it is not there. Its text says what to do.
type MissingError struct{ message string }

func (e *MissingError) Error() string { return e.message }

func missingf(format string, args ...any) *MissingError {
	return &MissingError{fmt.Sprintf(format, args...)}
}

// Kubeconfig reads the kubeconfig of the Cluster that a Release names: nil for the control cluster itself. It fails with
// a *MissingError when there is none.
func (c *Client) Kubeconfig(ctx context.Context, rel *v1alpha1.Release) ([]byte, error) {
	if rel.Spec.ClusterRef == nil {
		return nil, nil
	}
	key := types.NamespacedName{Namespace: rel.Namespace, Name: rel.Spec.ClusterRef.Name}
	cluster := &v1alpha1.Cluster{}
	err := retry(ctx, func() error { return c.client.Get(ctx, key, cluster) })
	if apierrors.IsNotFound(err) {
		return nil, missingf("spec.clusterRef of Release %s/%s names Cluster %q, which is not in namespace %s: create it",
			rel.Namespace, rel.Name, key.Name, key.Namespace)
	}
	if err != nil {
		return nil, fmt.Errorf("read Cluster %s: %w", key, err)
	}
	ref := cluster.Spec.KubeconfigSecretRef
	if ref.Key == "" {
		ref.Key = "kubeconfig"
	}
	secret := &corev1.Secret{}
	err = retry(ctx, func() error {
		return c.client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: ref.Name}, secret)
	})
	if apierrors.IsNotFound(err) {
		return nil, missingf("Cluster %s: its kubeconfigSecretRef names Secret %q, which is not there: create it", key, ref.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("Cluster %s: read Secret %s: %w", key, ref.Name, err)
	}
	data, found := secret.Data[ref.Key]
	if !found {
		return nil, missingf("Cluster %s: Secret %s has no key %q: put the kubeconfig there", key, ref.Name, ref.Key)
	}
	return data, nil
}

// SecretValue reads the value of a key of a Secret. It fails with a *MissingError when there is none; no error holds a
// value.
func (c *Client) SecretValue(ctx context.Context, namespace, name, key string) ([]byte, error) {
	secret := &corev1.Secret{}
	err := retry(ctx, func() error { return c.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, secret) })
	if apierrors.IsNotFound(err) {
		return nil, missingf("Secret %q is not in namespace %s: create it", name, namespace)
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", namespace, name, err)
	}
	value, found := secret.Data[key]
	if !found {
		return nil, missingf("Secret %s/%s has no key %q", namespace, name, key)
	}
	return value, nil
}

// Config is the connection to the control cluster itself, for Releases without a clusterRef.
func (c *Client) Config() *rest.Config { return c.cfg }
