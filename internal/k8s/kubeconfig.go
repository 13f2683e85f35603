package k8s

import (
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// RestConfig reads the kubeconfig of a Cluster's Secret. Only its current context counts. A Secret must not make the
// worker run programs or read its own files, so exec plugins, auth providers and references to files are refused.
// Errors name the field and the remedy and never hold contents (D10).
func RestConfig(kubeconfig []byte) (*rest.Config, error) {
	parsed, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, errors.New("the kubeconfig cannot be read: it must be YAML or JSON of kind Config " +
			"(its contents are not shown)")
	}
	current, ok := parsed.Contexts[parsed.CurrentContext]
	if !ok || current == nil {
		return nil, errors.New("the kubeconfig has no usable current-context: set it to the name of one of its contexts")
	}
	cluster, ok := parsed.Clusters[current.Cluster]
	if !ok || cluster == nil || cluster.Server == "" {
		return nil, errors.New("the kubeconfig's current context names no cluster with a server address")
	}
	user := parsed.AuthInfos[current.AuthInfo]
	if user == nil {
		user = &clientcmdapi.AuthInfo{}
	}
	if err := refuseOutside(cluster, user); err != nil {
		return nil, err
	}
	cfg, err := clientcmd.NewNonInteractiveClientConfig(*parsed, parsed.CurrentContext, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, errors.New("the kubeconfig is not complete: its current context needs a cluster and a user " +
			"whose certificate, key and authority fit (its contents are not shown)")
	}
	return cfg, nil
}

// refuseOutside refuses whatever reaches outside of the kubeconfig itself.
func refuseOutside(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) error {
	const inline = "put the contents into %s instead"
	for _, field := range []struct {
		set          bool
		name, remedy string
	}{
		{user.Exec != nil, "user.exec", "use a token or a client certificate: the worker runs no programs for a kubeconfig"},
		{user.AuthProvider != nil, "user.auth-provider", "use a token or a client certificate"},
		{cluster.CertificateAuthority != "", "cluster.certificate-authority", fmt.Sprintf(inline, "certificate-authority-data")},
		{user.ClientCertificate != "", "user.client-certificate", fmt.Sprintf(inline, "client-certificate-data")},
		{user.ClientKey != "", "user.client-key", fmt.Sprintf(inline, "client-key-data")},
		{user.TokenFile != "", "user.tokenFile", fmt.Sprintf(inline, "token")},
	} {
		if field.set {
			return fmt.Errorf("the kubeconfig uses %s, which convoy does not allow: %s", field.name, field.remedy)
		}
	}
	return nil
}

// ActAs is cfg as a ServiceAccount: the API server judges every request by its rights alone (S10). A name that is empty
// leaves cfg as it is. Fails where cfg impersonates somebody already: one identity cannot act as two.
func ActAs(cfg *rest.Config, namespace, serviceAccount string) (*rest.Config, error) {
	if serviceAccount == "" {
		return cfg, nil
	}
	if cfg.Impersonate.UserName != "" {
		return nil, fmt.Errorf("the kubeconfig acts as user %q already, and cannot act as ServiceAccount %s/%s too: "+
			"take `as` out of the kubeconfig, or serviceAccountName out of the Release", cfg.Impersonate.UserName, namespace, serviceAccount)
	}
	own := rest.CopyConfig(cfg)
	own.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":" + serviceAccount}
	return own, nil
}
