package k8s

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// D27 D31: the address is that of a way to a cluster, whoever takes it and however the kubeconfig is written.
func TestAddress_is_the_same_for_all_identities(t *testing.T) {
	const authority = "-----BEGIN CERTIFICATE-----\n"
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, []byte(authority), 0o600))
	address := func(host string, change func(*rest.Config)) string {
		cfg := &rest.Config{}
		change(cfg)
		base, err := url.Parse(host)
		require.NoError(t, err)
		return clusterAddress(base, cfg)
	}
	const host = "https://192.0.2.1:6443"
	inline := address(host, func(cfg *rest.Config) { cfg.CAData, cfg.BearerToken = []byte(authority), "a" })
	require.Equal(t, inline, address(host+"/", func(cfg *rest.Config) { cfg.CAFile, cfg.BearerToken = file, "b" }))
	require.NotEqual(t, inline, address("https://192.0.2.2:6443", func(cfg *rest.Config) { cfg.CAFile = file }))
	require.NotEqual(t, inline, address(host, func(cfg *rest.Config) { cfg.CAData = []byte("other") }))
}

// S10: every request of a Cluster that acts as a ServiceAccount says so, and another ServiceAccount is another Cluster.
func TestActAs_S10(t *testing.T) {
	var users []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		users = append(users, r.Header.Get("Impersonate-User"))
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	pool := NewPool()
	for _, name := range []string{"", "one", "two", "one"} {
		cfg, err := ActAs(&rest.Config{Host: server.URL}, "team-a", name)
		require.NoError(t, err)
		cluster, err := pool.Connect(cfg)
		require.NoError(t, err)
		_, err = cluster.Identity(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, []string{"", "system:serviceaccount:team-a:one", "system:serviceaccount:team-a:two"}, users, "the second look of one is remembered")

	_, err := ActAs(&rest.Config{Impersonate: rest.ImpersonationConfig{UserName: "ann"}}, "team-a", "one")
	require.ErrorContains(t, err, `acts as user "ann" already`)
}
