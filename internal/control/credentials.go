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

// Access is how the target cluster of a Release is reached.
type Access struct {
	// Kubeconfig holds the credentials; nil for the control cluster itself.
	Kubeconfig []byte
	// MaxConcurrentRequests bounds the requests that one worker has under way there; 0: no bound.
	MaxConcurrentRequests int
}

// Access reads the Cluster that a Release names, and its kubeconfig. It fails with a *MissingError when there is none.
func (c *Client) Access(ctx context.Context, rel *v1alpha1.Release) (Access, error) {
	if rel.Spec.ClusterRef == nil {
		return Access{}, nil
	}
	key := types.NamespacedName{Namespace: rel.Namespace, Name: rel.Spec.ClusterRef.Name}
	cluster := &v1alpha1.Cluster{}
	err := retry(ctx, func() error { return c.client.Get(ctx, key, cluster) })
	if apierrors.IsNotFound(err) {
		return Access{}, missingf("spec.clusterRef of Release %s/%s names Cluster %q, which is not in namespace %s: create it",
			rel.Namespace, rel.Name, key.Name, key.Namespace)
	}
	if err != nil {
		return Access{}, fmt.Errorf("read Cluster %s: %w", key, err)
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
		return Access{}, missingf("Cluster %s: its kubeconfigSecretRef names Secret %q, which is not there: create it", key, ref.Name)
	}
	if err != nil {
		return Access{}, fmt.Errorf("Cluster %s: read Secret %s: %w", key, ref.Name, err)
	}
	data, found := secret.Data[ref.Key]
	if !found {
		return Access{}, missingf("Cluster %s: Secret %s has no key %q: put the kubeconfig there", key, ref.Name, ref.Key)
	}
	access := Access{Kubeconfig: data}
	if bound := cluster.Spec.MaxConcurrentRequests; bound != nil {
		access.MaxConcurrentRequests = int(*bound)
	}
	return access, nil
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
