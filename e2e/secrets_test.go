package e2e

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"convoy.dev/convoy/api/v1alpha1"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// sentinel is in every value of every Secret of these tests.
const sentinel = "Kestrel-4711-Quagga"

func encoded(value string) string { return base64.StdEncoding.EncodeToString([]byte(value)) }

// traces are the forms in which the sentinel could get out: as it is, and in base64 at each of the three places where
// it can begin in a group of bytes.
func traces() []string {
	all := []string{sentinel}
	for before := range 3 {
		text := encoded(strings.Repeat("x", before) + sentinel)
		all = append(all, text[(8*before+5)/6:8*(before+len(sentinel))/6])
	}
	return all
}

// secretManifest is a Secret; body is what stands beside its metadata.
func (w *world) secretManifest(name, body string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: %s}\n%s\n", name, w.ns, body)
}

// convoy runs the command line and returns everything that it printed.
func (w *world) convoy(args ...string) string {
	w.Helper()
	_, out := w.commandLine(args...)
	return out
}

// everythingSaid is all that convoy has said about a Release, by the place where it stands.
func (w *world) everythingSaid(name string) map[string]string {
	w.Helper()
	id := w.ns + "/" + name
	status, err := yaml.Marshal(w.get(name).Status)
	require.NoError(w, err)
	said := map[string]string{
		"status":        string(status),
		"convoy status": w.convoy("status", id),
		"convoy why":    w.convoy("why", id),
		"convoy diff":   w.convoy("diff", id),
	}
	if inv := w.rawInventory(name); inv != nil {
		text, err := yaml.Marshal(inv)
		require.NoError(w, err)
		said["inventory"] = string(text)
	}
	events := &corev1.EventList{}
	require.NoError(w, w.kube.List(w.Context(), events, kube.InNamespace(w.ns)))
	for i := range events.Items {
		if events.Items[i].Source.Component == "convoy" {
			text, err := yaml.Marshal(events.Items[i])
			require.NoError(w, err)
			said["event "+events.Items[i].Name] = string(text)
		}
	}
	return said
}

// keepsQuiet requires that no value of a Secret stands in what was said.
func (w *world) keepsQuiet(said map[string]string) {
	w.Helper()
	for place, text := range said {
		for _, trace := range traces() {
			if at := strings.Index(text, trace); at >= 0 {
				require.Fail(w, "a value of a Secret got out", "%s: …%s…", place, text[max(0, at-200):min(len(text), at+200)])
			}
		}
	}
}

// syncsQuietly syncs a Release through the command line, requires the reason and what its message names, and that
// nothing of all this gives a value of a Secret away.
func (w *world) syncsQuietly(name, reason, says string, flags ...string) {
	w.Helper()
	printed := w.convoy(append([]string{"sync", w.ns + "/" + name, "--wait"}, flags...)...)
	want := "False/" + reason
	if reason == "Succeeded" {
		want = "True/Succeeded"
	}
	require.Equal(w, want, w.applied(name), "%s\n%s", w.message(name), printed)
	require.Contains(w, w.message(name), says)
	w.Logf("%s: %s: %s", name, reason, w.message(name))
	said := w.everythingSaid(name)
	said["convoy sync"] = printed
	last := w.get(name).Status.LastAttempted
	iterator := w.temporal.GetWorkflowHistory(w.Context(), last.WorkflowID, last.RunID, false, 1)
	var history strings.Builder
	for iterator.HasNext() {
		event, err := iterator.Next()
		require.NoError(w, err)
		history.WriteString(event.String())
	}
	require.NotEmpty(w, history.String())
	said["history"] = history.String()
	answer, err := w.temporal.DescribeWorkflowExecution(w.Context(), last.WorkflowID, last.RunID)
	require.NoError(w, err)
	said["description"] = answer.String()
	w.keepsQuiet(said)
}

// D10: whatever becomes of a Secret, its values stand in no history, log, event, status and output.
func TestSecrets_values_get_out_nowhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	worker := w.worker("--log-level", "debug")
	w.echoingPolicy()
	plain := func(key, value string) string {
		return w.secretManifest(key, fmt.Sprintf("data: {plain: %s}\nstringData: {text: %q}", encoded(value), value))
	}
	change := func(name, render string) { w.render(name, render) }

	w.release("applied", plain("applied", sentinel), manual)
	w.syncsQuietly("applied", "Succeeded", "")
	require.Equal(t, map[string]string{"plain": sentinel, "text": sentinel}, w.secret("applied"))
	change("applied", plain("applied", sentinel+" changed"))
	w.keepsQuiet(w.everythingSaid("applied")) // the diff of a change
	w.syncsQuietly("applied", "Succeeded", "")
	w.keepsQuiet(map[string]string{
		"convoy status -o yaml":    w.convoy("status", w.ns+"/applied", "-o", "yaml"),
		"convoy inventory":         w.convoy("inventory", w.ns+"/applied"),
		"convoy inventory -o json": w.convoy("inventory", w.ns+"/applied", "-o", "json"),
	})

	// Rejected by the validation of the API server, by its decoder, and by the typed schema.
	w.release("key", w.secretManifest("key", fmt.Sprintf("stringData: {'not a key': %s}", sentinel)), manual)
	w.syncsQuietly("key", "Unappliable", "Secret "+w.ns+"/key")
	w.syncsQuietly("key", "DeployFailed", "Secret "+w.ns+"/key", "--force")
	w.release("fixed", w.secretManifest("fixed", "immutable: true\ndata: {a: "+encoded(sentinel)+"}"), manual)
	w.syncsQuietly("fixed", "Succeeded", "")
	change("fixed", w.secretManifest("fixed", "immutable: true\ndata: {a: "+encoded("other "+sentinel)+"}"))
	w.syncsQuietly("fixed", "Unappliable", "immutable")
	w.release("binary", w.secretManifest("binary", "data: {a: '"+sentinel+"~'}"), manual)
	w.syncsQuietly("binary", "Unappliable", "base64")
	w.release("shape", w.secretManifest("shape", "data: {a: {b: "+sentinel+"}}"), manual)
	w.syncsQuietly("shape", "Unappliable", "")
	w.release("field", w.secretManifest("field", "data: {a: "+encoded(sentinel)+"}\nvalues: ["+sentinel+"]"), manual)
	w.syncsQuietly("field", "Unappliable", "")

	// Denied by a policy whose message quotes the value.
	w.release("denied", w.secretManifest("denied", "data: {deny: "+encoded(sentinel)+"}"), manual)
	w.syncsQuietly("denied", "Unappliable", "Secret "+w.ns+"/denied")
	w.syncsQuietly("denied", "DeployFailed", "Secret "+w.ns+"/denied", "--force")

	// No render at all.
	for name, body := range map[string]string{
		"list":      "stringData: [" + sentinel + "]",
		"scalar":    "stringData: " + sentinel,
		"nested":    "stringData: {a: [" + sentinel + "]}",
		"twice":     "stringData: {a: " + sentinel + ", a: " + sentinel + "}",
		"unclosed":  "stringData: {a: " + sentinel,
		"tab":       "stringData:\n\ta: " + sentinel,
		"alias":     "stringData: {a: *" + sentinel + "}",
		"tag":       "stringData: {a: !!int " + sentinel + "}",
		"different": "stringData: {a: " + sentinel + "}\n" + w.secretManifest("different", "stringData: {a: also "+sentinel+"}"),
	} {
		w.release(name, w.secretManifest(name, body), manual)
		w.syncsQuietly(name, "RenderFailed", "")
	}

	// Values that stand in kubectl's own annotation, and fields that convoy takes over.
	w.kubectl(w.secretManifest("taken", "stringData: {a: "+sentinel+", b: "+sentinel+"}"), "apply", "-f", "-")
	w.release("taken", w.secretManifest("taken", "stringData: {a: new "+sentinel+"}"), manual)
	w.syncsQuietly("taken", "Succeeded", "")
	require.Equal(t, map[string]string{"a": "new " + sentinel}, w.secret("taken"))

	// In the environment of a hook: one that fails, and one that the API server refuses.
	w.release("hook", manifest(w.ns, "after", 0, "1"), onRequest(preSync(withEnv(jobHook(w.ns, "migrate", "fail"), "PASSWORD"))))
	w.syncsQuietly("hook", "HookFailed", "migrate")
	w.update("hook", preSync(withEnv(jobHook(w.ns, "migrate", "1"), "")))
	w.syncsQuietly("hook", "HookFailed", "migrate")

	// In the credentials of a cluster.
	for name, kubeconfig := range map[string]string{"torn": "users: [{token: " + sentinel, "odd": "apiVersion: v1\nkind: Config\nusers: " + sentinel} {
		require.NoError(t, w.kube.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}, StringData: map[string]string{"kubeconfig": kubeconfig},
		}))
		require.NoError(t, w.kube.Create(t.Context(), &v1alpha1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name},
			Spec:       v1alpha1.ClusterSpec{KubeconfigSecretRef: v1alpha1.SecretKeyReference{Name: name}},
		}))
		w.release("on-"+name, manifest(w.ns, name, 0, "1"), onRequest(onCluster(name)))
		w.syncsQuietly("on-"+name, "DeployFailed", name)
	}

	log := worker.logs.String()
	require.Contains(t, log, `"level":"DEBUG"`)
	w.keepsQuiet(map[string]string{"worker log": log})
	require.True(t, bytes.Contains([]byte(w.reads("/api/v1/namespaces/"+w.ns+"/secrets")), []byte(traces()[1])), "the search finds what it looks for")
}

// withEnv gives the container of a hook an environment variable with the sentinel.
func withEnv(hook v1alpha1.Hook, name string) v1alpha1.Hook {
	hook.Job.Template.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: name, Value: sentinel}}
	return hook
}

// echoingPolicy makes the API server refuse Secrets with the key "deny", with a message that quotes the value.
func (w *world) echoingPolicy() {
	w.Helper()
	w.byHand(strings.ReplaceAll(`---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NS.quotes}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [secrets], operations: [CREATE, UPDATE]}]
  validations:
  - expression: "!has(object.data) || !('deny' in object.data)"
    messageExpression: "'the value is ' + string(object.data.deny)"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NS.quotes}
spec: {policyName: NS.quotes, validationActions: [Deny]}
`, "NS", w.ns))
	probe := w.secretManifest("probe", "data: {deny: "+encoded(sentinel)+"}")
	w.eventually("the policy quotes the value", func() error {
		command := exec.CommandContext(w.Context(), w.info.Kubectl, "--kubeconfig", w.info.Kubeconfig, "create", "--dry-run=server", "-f", "-")
		command.Stdin = strings.NewReader(probe)
		out, _ := command.CombinedOutput()
		for _, trace := range traces() {
			if strings.Contains(string(out), "the value is ") && strings.Contains(string(out), trace) {
				return nil
			}
		}
		return fmt.Errorf("it says: %s", out)
	})
}
