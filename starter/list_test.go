package main

import (
	"bytes"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func condition(kind, status, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: message}
}

// listed are a new Release, one that is well, one that fails, one that is out of sync, and one that is suspended.
func listed() []v1alpha1.Release {
	at := func(d time.Duration) *metav1.Time {
		next := metav1.NewTime(noon.Add(d))
		return &next
	}
	made := func(name string, next *metav1.Time, conditions ...metav1.Condition) v1alpha1.Release {
		rel := v1alpha1.Release{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}}
		rel.Status.Conditions, rel.Status.NextReconcileAt = conditions, next
		if len(conditions) > 0 {
			rel.Status.LastAttempted = &v1alpha1.Attempt{StartedAt: before(5 * time.Minute)}
			rel.Status.LastSuccessful = &v1alpha1.Success{Digest: digestA}
		}
		return rel
	}
	suspended := made("suspended", at(time.Minute), condition("Applied", "True", "Succeeded", ""), condition("Ready", "True", "Succeeded", ""),
		condition("Reconciling", "False", "Suspended", "spec.suspend is set: no sync starts until it is lifted (convoy resume)"))
	suspended.Spec.Suspend = true
	return []v1alpha1.Release{
		made("new", nil),
		made("well", at(3*time.Minute), condition("Applied", "True", "Succeeded", "all\nis well"), condition("Ready", "True", "Succeeded", "")),
		made("failing", at(-time.Second), condition("Applied", "False", "DeployFailed", "ConfigMap a: refused"), condition("Ready", "False", "DeployFailed", ""),
			condition("Reconciling", "True", "DeployFailed", "failed 3 times in a row")),
		made("differs", at(time.Hour), condition("Applied", "True", "Succeeded", ""), condition("Ready", "False", "OutOfSync", "ask for it")),
		suspended,
	}
}

const listPage = `NAMESPACE   NAME        APPLIED              READY                LAST SYNC   NEXT     SUSPENDED   MESSAGE
team-a      new         -                    -                    -           -        -
team-a      well        True                 True                 5m ago      in 3m    -
team-a      failing     False/DeployFailed   False/DeployFailed   5m ago      now      -           ConfigMap a: refused
team-a      differs     True                 False/OutOfSync      5m ago      in 60m   -           ask for it
team-a      suspended   True                 True                 5m ago      -        true        spec.suspend is set: no sync starts un…
`

func TestAListShowsEachReleaseInOneLine(t *testing.T) {
	var out bytes.Buffer
	printList(&out, listed(), false, noon)
	require.Equal(t, listPage, out.String())
	out.Reset()
	printList(&out, listed(), true, noon)
	require.Contains(t, out.String(), "TARGET")
	require.Contains(t, out.String(), "control cluster   aaaaaaaaaaaa   spec.suspend is set: no sync starts until it is lifted (convoy resume)\n")
}

func TestAListComesFromTheCluster(t *testing.T) {
	s := newStack(t)
	got := s.run("list", "-n", s.namespace)
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Contains(t, got.stderr, "there is no Release in namespace "+s.namespace)
	s.release("web", configMap("a", ""), pruning)
	s.release("shop", configMap("b", ""), pruning)
	require.Regexp(t, `(?s)^NAMESPACE.*`+s.namespace+`\s+shop .*`+s.namespace+`\s+web `, s.run("list", "-n", s.namespace).stdout)
	require.Regexp(t, s.namespace+`\s+shop `, s.run("list").stdout)
	got = s.run("list", "-n", s.namespace, "-o", "json")
	require.Contains(t, got.stdout, `"kind": "ReleaseList"`)
	require.Contains(t, got.stdout, `"name": "shop"`)
	require.NotContains(t, got.stdout, "spec")
}
