package k8s

import (
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"convoy.dev/convoy/internal/release"
)

func hookJob(namespace, name string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"convoy.dev/hook": "migrate"}},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "c", Image: "migrate:v1"}},
		}}},
	}
}

func TestHookJob_D25_create_look_and_delete(t *testing.T) {
	s := newServer(t)
	session := s.impatient()
	state, err := session.JobState(t.Context(), s.namespace, "one")
	require.NoError(t, err)
	require.Equal(t, JobState{}, state)

	uid, err := session.CreateJob(t.Context(), hookJob(s.namespace, "one"))
	require.NoError(t, err)
	again, err := session.CreateJob(t.Context(), hookJob(s.namespace, "one"))
	require.NoError(t, err)
	require.Equal(t, uid, again, "the same name is the same Job")
	state, err = session.JobState(t.Context(), s.namespace, "one")
	require.NoError(t, err)
	require.True(t, state.Found)
	require.Equal(t, uid, state.UID)

	kept, err := session.CreateJob(t.Context(), hookJob(s.namespace, "two"))
	require.NoError(t, err)
	require.NoError(t, session.DeleteJobs(t.Context(), s.namespace, "convoy.dev/hook=migrate", kept))
	s.eventually("the older Job is gone", func() bool {
		state, err = session.JobState(t.Context(), s.namespace, "one")
		require.NoError(t, err)
		return !state.Found
	})
	state, err = session.JobState(t.Context(), s.namespace, "two")
	require.NoError(t, err)
	require.True(t, state.Found)
}

func TestHookJob_refused_by_rbac(t *testing.T) {
	s := newServer(t)
	_, err := s.as("nobody").impatient().CreateJob(t.Context(), hookJob(s.namespace, "one"))
	require.Equal(t, release.Verdict, failureOf(t, err).Class)
}

func TestJobState_reads_status_conditions(t *testing.T) {
	condition := func(kind batchv1.JobConditionType, status corev1.ConditionStatus) batchv1.JobCondition {
		return batchv1.JobCondition{Type: kind, Status: status, Reason: "Because", Message: "of this"}
	}
	for name, c := range map[string]struct {
		conditions []batchv1.JobCondition
		want       JobState
	}{
		"running":        {nil, JobState{Found: true, Message: "active: 1, succeeded: 0, failed: 0"}},
		"complete":       {[]batchv1.JobCondition{condition(batchv1.JobComplete, corev1.ConditionTrue)}, JobState{Found: true, Done: true, Succeeded: true, Message: "Because: of this"}},
		"about to be":    {[]batchv1.JobCondition{condition(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue)}, JobState{Found: true, Done: true, Succeeded: true, Message: "Because: of this"}},
		"failed":         {[]batchv1.JobCondition{condition(batchv1.JobFailed, corev1.ConditionTrue)}, JobState{Found: true, Done: true, Message: "Because: of this"}},
		"about to fail":  {[]batchv1.JobCondition{condition(batchv1.JobFailureTarget, corev1.ConditionTrue)}, JobState{Found: true, Done: true, Message: "Because: of this"}},
		"success counts": {[]batchv1.JobCondition{condition(batchv1.JobFailureTarget, corev1.ConditionTrue), condition(batchv1.JobComplete, corev1.ConditionTrue)}, JobState{Found: true, Done: true, Succeeded: true, Message: "Because: of this"}},
		"not true":       {[]batchv1.JobCondition{condition(batchv1.JobFailed, corev1.ConditionFalse)}, JobState{Found: true, Message: "active: 1, succeeded: 0, failed: 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, stateOf(&batchv1.Job{Status: batchv1.JobStatus{Active: 1, Conditions: c.conditions}}))
		})
	}
}
