package k8s

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"convoy.dev/convoy/internal/release"
)

// JobState is the state of a hook's Job.
type JobState struct {
	Found bool
	UID   string
	// Done: it has succeeded or failed; Succeeded tells which.
	Done, Succeeded bool
	// Message says why it failed, or how far it is.
	Message string
}

func jobRef(namespace, name string) release.ObjectRef {
	return release.ObjectRef{Group: batchv1.GroupName, Kind: "Job", Namespace: namespace, Name: name}
}

func jobsPath(namespace, name string) string {
	return resourcePath(batchv1.SchemeGroupVersion.WithResource("jobs"), namespace, name)
}

// CreateJob creates the Job of a hook and returns its uid. The name of a hook's Job belongs to one hook of one sync
// (D25), so a Job of that name is the one that an earlier try created, and its uid is returned.
//
// Fails with a *release.Failure of any class, or with the guard's or the context's error. Accidents are retried within
// the session's budget; the name makes that safe.
func (s *Session) CreateJob(ctx context.Context, job *batchv1.Job) (string, error) {
	ref := jobRef(job.Namespace, job.Name)
	typed := job.DeepCopy()
	typed.TypeMeta = metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"}
	body, err := json.Marshal(typed)
	if err != nil {
		return "", fmt.Errorf("%s: %w", ref, err)
	}
	var uid string
	err = s.retry(ctx, nil, func(ctx context.Context) error {
		reply, err := s.request(ctx, ref, nil, request{
			method: http.MethodPost, path: jobsPath(job.Namespace, ""), query: url.Values{"fieldManager": {FieldManager}},
			accept: acceptMetadata, contentType: contentJSON, body: body,
		})
		if failure := asFailure(err); failure != nil && failure.Reason == string(metav1.StatusReasonAlreadyExists) {
			reply, err = s.request(ctx, ref, nil, request{method: http.MethodGet, path: jobsPath(job.Namespace, job.Name), accept: acceptMetadata})
		}
		if err != nil {
			return err
		}
		meta, err := decodeMetadata(reply.body)
		if err != nil {
			return err
		}
		uid = string(meta.UID)
		return nil
	})
	return uid, err
}

// JobState looks at the Job of a hook. A Job that does not exist is no error.
func (s *Session) JobState(ctx context.Context, namespace, name string) (JobState, error) {
	ref := jobRef(namespace, name)
	var job *batchv1.Job
	err := s.retry(ctx, nil, func(ctx context.Context) error {
		reply, err := s.request(ctx, ref, nil, request{method: http.MethodGet, path: jobsPath(namespace, name), accept: acceptJSON})
		if failure := asFailure(err); failure != nil && failure.Code == http.StatusNotFound && failure.Class == release.Verdict {
			return nil
		}
		if err != nil {
			return err
		}
		job = &batchv1.Job{}
		if err := json.Unmarshal(reply.body, job); err != nil {
			return unreadable(ref.String(), err)
		}
		return nil
	})
	if err != nil || job == nil {
		return JobState{}, err
	}
	return stateOf(job), nil
}

// stateOf reads success before failure, and the conditions that announce an end before those that confirm it.
func stateOf(job *batchv1.Job) JobState {
	state := JobState{Found: true, UID: string(job.UID)}
	for _, end := range []struct {
		condition batchv1.JobConditionType
		succeeded bool
	}{
		{batchv1.JobComplete, true},
		{batchv1.JobSuccessCriteriaMet, true},
		{batchv1.JobFailed, false},
		{batchv1.JobFailureTarget, false},
	} {
		for _, condition := range job.Status.Conditions {
			if condition.Type == end.condition && condition.Status == corev1.ConditionTrue {
				state.Done, state.Succeeded = true, end.succeeded
				state.Message = endMessage(condition)
				return state
			}
		}
	}
	state.Message = fmt.Sprintf("active: %d, succeeded: %d, failed: %d", job.Status.Active, job.Status.Succeeded, job.Status.Failed)
	return state
}

func endMessage(condition batchv1.JobCondition) string {
	if condition.Message == "" {
		return condition.Reason
	}
	if condition.Reason == "" {
		return cut(condition.Message, healthLimit)
	}
	return cut(condition.Reason+": "+condition.Message, healthLimit)
}

// DeleteJobs deletes the Jobs that selector matches, apart from the one with uid keepUID, and their Pods (background
// propagation). Jobs that are gone or change meanwhile are no error: the next call finds them.
func (s *Session) DeleteJobs(ctx context.Context, namespace, selector, keepUID string) error {
	var list metav1.PartialObjectMetadataList
	err := s.retry(ctx, nil, func(ctx context.Context) error {
		reply, err := s.request(ctx, jobRef(namespace, ""), nil, request{
			method: http.MethodGet, path: jobsPath(namespace, ""), query: url.Values{"labelSelector": {selector}}, accept: acceptMetadataList,
		})
		if err != nil {
			return err
		}
		if err := json.Unmarshal(reply.body, &list); err != nil {
			return unreadable("a list of Jobs", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := range list.Items {
		job := &list.Items[i]
		if string(job.UID) == keepUID || job.DeletionTimestamp != nil {
			continue
		}
		if err := s.deleteJob(ctx, job); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) deleteJob(ctx context.Context, job *metav1.PartialObjectMetadata) error {
	ref := jobRef(job.Namespace, job.Name)
	body, err := deleteOptions(string(job.UID), "", metav1.DeletePropagationBackground)
	if err != nil {
		return fmt.Errorf("%s: %w", ref, err)
	}
	return s.retry(ctx, nil, func(ctx context.Context) error {
		_, err := s.request(ctx, ref, nil, request{
			method: http.MethodDelete, path: jobsPath(job.Namespace, job.Name), accept: acceptMetadata, contentType: contentJSON, body: body,
		})
		if failure := asFailure(err); failure != nil && (failure.Code == http.StatusNotFound || failure.Code == http.StatusConflict) {
			return nil
		}
		return err
	})
}
