package e2e

import (
	"errors"
	"fmt"

	"convoy.dev/convoy/api/v1alpha1"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// cluster makes a Cluster resource that leads to the control cluster itself under another identity, for a Release's
// clusterRef. The kubeconfig impersonates the user: the API server judges every request by that user's rights alone.
func (w *world) cluster(name, user string) {
	w.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name},
		Data:       map[string][]byte{"kubeconfig": w.kubeconfigAs(user)},
	}
	require.NoError(w, w.kube.Create(w.Context(), secret))
	cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	cluster.Spec.KubeconfigSecretRef = v1alpha1.SecretKeyReference{Name: name, Key: "kubeconfig"}
	require.NoError(w, w.kube.Create(w.Context(), cluster))
}

// kubeconfigAs is the administrator's kubeconfig, complete in itself, under another user's name.
func (w *world) kubeconfigAs(user string) []byte {
	w.Helper()
	config, err := clientcmd.LoadFromFile(w.info.Kubeconfig)
	require.NoError(w, err)
	require.NoError(w, clientcmdapi.MinifyConfig(config))
	require.NoError(w, clientcmdapi.FlattenConfig(config))
	for _, info := range config.AuthInfos {
		info.Impersonate = user
	}
	data, err := clientcmd.Write(*config)
	require.NoError(w, err)
	return data
}

// onCluster makes a Release go to a Cluster.
func onCluster(name string) func(*v1alpha1.Release) {
	return func(rel *v1alpha1.Release) { rel.Spec.ClusterRef = &v1alpha1.ClusterReference{Name: name} }
}

// awaitRight waits until the API server's authorizer has heard that a user may do this in the world's namespace: it
// learns of new roles a moment later.
func (w *world) awaitRight(user, verb, group, resource string) {
	w.Helper()
	w.eventually(fmt.Sprintf("%s may %s %s", user, verb, resource), func() error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: w.ns, Verb: verb, Group: group, Resource: resource,
			},
		}}
		if err := w.kube.Create(w.Context(), review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			return errors.New("not allowed yet")
		}
		return nil
	})
}
