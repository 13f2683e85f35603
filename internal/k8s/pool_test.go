package k8s

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

func TestPool_keeps_one_cluster_per_credentials(t *testing.T) {
	pool := NewPool()
	connect := func(cfg rest.Config) *Cluster {
		cluster, err := pool.Connect(&cfg)
		require.NoError(t, err)
		return cluster
	}
	one := rest.Config{Host: "https://a.example.test", BearerToken: "x"}
	first := connect(one)
	require.Same(t, first, connect(one))
	other := one
	other.BearerToken = "y"
	require.NotSame(t, first, connect(other))
	other = one
	other.Impersonate.UserName = "deployer"
	require.NotSame(t, first, connect(other))
	other = one
	other.CAFile, other.Host = "", "https://b.example.test"
	require.NotSame(t, first, connect(other))
}

func TestPool_forgets_the_least_recently_used(t *testing.T) {
	pool := NewPool()
	pool.size = 2
	connect := func(host string) *Cluster {
		cluster, err := pool.Connect(&rest.Config{Host: host})
		require.NoError(t, err)
		return cluster
	}
	a, b := connect("https://a"), connect("https://b")
	require.Same(t, a, connect("https://a"))
	connect("https://c")
	require.Same(t, a, connect("https://a"), "used lately")
	require.NotSame(t, b, connect("https://b"), "forgotten")
	require.Len(t, pool.clusters, 2)
}

const kubeconfig = `
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://a.example.test"CLUSTER}}]
users: [{name: u, user: {USER}}]
`

func TestRestConfig_reads_what_stands_in_it(t *testing.T) {
	cfg, err := RestConfig([]byte(strings.NewReplacer("CLUSTER", ", tls-server-name: x", "USER", "token: abc").Replace(kubeconfig)))
	require.NoError(t, err)
	require.Equal(t, "https://a.example.test", cfg.Host)
	require.Equal(t, "abc", cfg.BearerToken)
}

func TestRestConfig_refuses_what_reaches_outside(t *testing.T) {
	for name, c := range map[string]struct{ cluster, user, field string }{
		"exec":               {"", "exec: {apiVersion: client.authentication.k8s.io/v1, command: hunter2, interactiveMode: Never}", "user.exec"},
		"auth provider":      {"", "auth-provider: {name: hunter2}", "user.auth-provider"},
		"authority":          {", certificate-authority: /etc/hunter2", "token: x", "cluster.certificate-authority"},
		"client certificate": {"", "client-certificate: /etc/hunter2", "user.client-certificate"},
		"client key":         {"", "client-key: /etc/hunter2", "user.client-key"},
		"token file":         {"", "tokenFile: /etc/hunter2", "user.tokenFile"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := RestConfig([]byte(strings.NewReplacer("CLUSTER", c.cluster, "USER", c.user).Replace(kubeconfig)))
			require.ErrorContains(t, err, c.field+",")
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

func TestRestConfig_D10_errors_hold_no_contents(t *testing.T) {
	for name, contents := range map[string]string{
		"no YAML":          "token: hunter2: hunter2\n\t",
		"wrong type":       "users: hunter2",
		"another kind":     "kind: Secret\ndata: hunter2",
		"nothing":          "",
		"no context":       strings.Replace(kubeconfig, "current-context: c", "current-context: hunter2", 1),
		"no server":        strings.Replace(kubeconfig, "https://a.example.test", "", 1),
		"bad base64":       strings.Replace(kubeconfig, "USER", "client-key-data: hunter2%%", 1),
		"key without cert": strings.Replace(kubeconfig, "USER", "client-certificate-data: aHVudGVyMg==", 1),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := RestConfig([]byte(strings.NewReplacer("CLUSTER", "", "USER", "token: hunter2").Replace(contents)))
			require.Error(t, err)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}
