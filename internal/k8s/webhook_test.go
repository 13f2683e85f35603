package k8s

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"convoy.dev/convoy/internal/release"
)

// denyingWebhook serves an admission webhook that answers every request with this HTTP code of its own choice, and
// registers it for the ConfigMaps and Secrets of the test's namespace.
func (s *server) denyingWebhook(code int) {
	s.t.Helper()
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			Request struct {
				UID string `json:"uid"`
			} `json:"request"`
		}
		_ = json.NewDecoder(r.Body).Decode(&review)
		_, _ = fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":false,"status":{"code":%d,"message":"hunter2 is weak"}}}`, review.Request.UID, code)
	}))
	s.t.Cleanup(hook.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
	manifest := fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: NS-deny}
webhooks:
- name: deny.example.test
  clientConfig: {url: %q}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps, secrets]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
  sideEffects: None
  admissionReviewVersions: [v1]
`, hook.URL)
	content := s.content(manifest) // the bundle is set apart: NS would be replaced in it
	webhooks, _, _ := unstructured.NestedSlice(content.Object, "webhooks")
	webhooks[0].(map[string]any)["clientConfig"].(map[string]any)["caBundle"] = base64.StdEncoding.EncodeToString(authority)
	require.NoError(s.t, unstructured.SetNestedSlice(content.Object, webhooks, "webhooks"))
	_, err := s.client(s.object(manifest)).Create(s.t.Context(), content, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.deleteLater(s.object(manifest))
}

// refusal waits until the dry run of obj is refused.
func (s *server) refusal(obj *release.Object) *release.Failure {
	s.t.Helper()
	var failure *release.Failure
	s.eventually("the object is refused", func() bool {
		_, err := s.impatient().DryRun(s.t.Context(), obj, ref(obj))
		failure = asFailure(err)
		return failure != nil
	})
	return failure
}

func TestDryRun_D7_webhook_denial_is_a_verdict_whatever_its_4xx(t *testing.T) {
	s := newServer(t)
	s.denyingWebhook(http.StatusTooManyRequests)
	failure := s.refusal(s.object(configMap))
	require.Equal(t, release.Verdict, failure.Class)
	require.Equal(t, http.StatusTooManyRequests, failure.Code)
	require.Equal(t, "deny.example.test", failure.Webhook)
	require.Contains(t, failure.Message, "hunter2 is weak")

	failure = s.refusal(s.object("{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: NS}, data: {a: YQ==}}"))
	require.Equal(t, release.Verdict, failure.Class)
	require.NotContains(t, failure.Message, "hunter2", "D10")
	require.Contains(t, failure.Message, "an admission webhook denied the request")
}
