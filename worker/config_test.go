package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAWorkerWithoutAKubeconfigSaysHowToNameOne(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err := config{}.controlCluster()
	require.EqualError(t, err, "control cluster: there is no kubeconfig; name one with --kubeconfig or KUBECONFIG, or run in a cluster")
}

func TestTheAddressOfTemporalIsKnownWhereNoneIsNamed(t *testing.T) {
	for _, name := range []string{"TEMPORAL_ADDRESS", "TEMPORAL_PROFILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("TEMPORAL_CONFIG_FILE", filepath.Join(t.TempDir(), "none.toml"))
	options, err := config{}.temporal()
	require.NoError(t, err)
	require.Equal(t, "localhost:7233", options.HostPort)
	options, err = config{temporalAddress: "temporal.example.com:7233"}.temporal()
	require.NoError(t, err)
	require.Equal(t, "temporal.example.com:7233", options.HostPort)
}
