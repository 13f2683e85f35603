package e2e

import (
	"convoy.dev/convoy/api/v1alpha1"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// jobHook is a hook whose Job runs an image of that tag, once.
func jobHook(ns, name, tag string) v1alpha1.Hook {
	never := int32(0)
	job := &v1alpha1.JobHook{Namespace: ns}
	job.Template.Spec = batchv1.JobSpec{BackoffLimit: &never}
	job.Template.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "c", Image: "registry.example/hook:" + tag}},
	}
	return v1alpha1.Hook{Name: name, Job: job}
}
