package k8s

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// D22: once a step got no answer for all its patience, the next ones have little of it, until any answer comes.
func TestSession_D22_a_silent_cluster_gets_little_patience(t *testing.T) {
	_, cluster := newFakeAPI(t, hangUp, hangUp, hangUp, refuse(503, "ServiceUnavailable", "no"))
	whole := SessionOptions{}
	require.True(t, cluster.Session(whole).patient)
	_, err := cluster.Session(SessionOptions{RetryFor: 300 * time.Millisecond}).Apply(t.Context(), settings(t), aConfigMap)
	require.Error(t, err)
	impatient := cluster.Session(whole)
	require.Equal(t, impatience, impatient.options.RetryFor)
	require.LessOrEqual(t, impatient.requestLimit(), shortestTimeout)
	require.Negative(t, cluster.Session(SessionOptions{RetryFor: -1}).options.RetryFor)

	cluster.silence.until = time.Now() // one step is patient again after a while
	require.True(t, cluster.Session(whole).patient)

	cluster.silence.began()
	_, err = cluster.Session(whole).Apply(t.Context(), settings(t), aConfigMap) // the 503 is an answer
	require.Error(t, err)
	require.Equal(t, defaultRetryFor, cluster.Session(whole).options.RetryFor)
}

// An impatient step that gets no answer leaves the time of the next patient one where it is: a slow cluster is heard.
func TestSession_D22_impatience_does_not_renew_itself(t *testing.T) {
	_, cluster := newFakeAPI(t, good, hangUp)
	_, err := cluster.Session(SessionOptions{}).Apply(t.Context(), settings(t), aConfigMap)
	require.NoError(t, err) // discovery has been answered
	cluster.silence.began()
	until := cluster.silence.until
	_, err = cluster.Session(SessionOptions{RetryFor: 100 * time.Millisecond}).Apply(t.Context(), settings(t), aConfigMap)
	require.Error(t, err)
	require.Equal(t, until, cluster.silence.until)
}
