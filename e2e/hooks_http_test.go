package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/workflows"

	"github.com/stretchr/testify/require"
	workflowpb "go.temporal.io/api/workflow/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hookCall is what a hook is told, in the words of docs/hooks.md.
type hookCall struct {
	Release                                                    struct{ Namespace, Name string }
	Cluster, Phase, Hook, Digest, Revision, RequestedBy, RunID string
	WorkflowID                                                 string
	Try                                                        int
	Input                                                      map[string]any
}

// received is one request of an http hook.
type received struct {
	http.Header

	Method, Path, Query string
	Body                []byte
}

func (r received) call(t *testing.T) (call hookCall) {
	t.Helper()
	require.NoError(t, json.Unmarshal(r.Body, &call), "%s", r.Body)
	return call
}

// receiver receives the requests of http hooks.
type receiver struct {
	url string

	mu       sync.Mutex
	requests []received
	answer   func(n int, w http.ResponseWriter) // n counts from 1
}

func newReceiver(t *testing.T, answer func(n int, w http.ResponseWriter)) *receiver {
	t.Helper()
	r := &receiver{answer: answer}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		r.mu.Lock()
		r.requests = append(r.requests, received{request.Header, request.Method, request.URL.Path, request.URL.RawQuery, body})
		n, answer := len(r.requests), r.answer
		r.mu.Unlock()
		if answer != nil {
			answer(n, w)
		}
	}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// answers changes what is answered from now on.
func (r *receiver) answers(answer func(n int, w http.ResponseWriter)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// take returns the requests since the last time.
func (r *receiver) take() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.requests
	r.requests = nil
	return taken
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.requests)
}

// status answers always the same, with a body that is never to be seen.
func status(code int) func(int, http.ResponseWriter) {
	return func(_ int, w http.ResponseWriter) {
		w.Header().Set("X-Answer", sentinel)
		w.WriteHeader(code)
		fmt.Fprint(w, sentinel)
	}
}

// httpHook is a hook that asks the receiver.
func (r *receiver) hook(name string, change ...func(*v1alpha1.Hook)) v1alpha1.Hook {
	hook := v1alpha1.Hook{Name: name, HTTP: &v1alpha1.HTTPHook{URL: r.url + "/" + name}}
	for _, c := range change {
		c(&hook)
	}
	return hook
}

func lasting(timeout time.Duration) func(*v1alpha1.Hook) {
	return func(hook *v1alpha1.Hook) { hook.Timeout = &metav1.Duration{Duration: timeout} }
}

// value makes a Secret in the world's namespace.
func (w *world) value(name, key, value string) {
	w.Helper()
	require.NoError(w, w.kube.Create(w.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}, StringData: map[string]string{key: value},
	}))
}

// Case 70, S1 S2 D25: an http hook runs once for a render and its own definition, and again for a person; a retry of a
// sync whose apply failed does not run it again. What it sends is signed and says which sync it belongs to.
func TestHTTPHooks_run_again_for_a_new_render_or_a_person_only(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.proxy()
	w.workerAt(p, nil, "--allow-local-urls")
	r := newReceiver(t, nil)
	w.value("signer", "token", "s3cret")
	signed := func(hook *v1alpha1.Hook) {
		hook.HTTP.SecretRef = &v1alpha1.HookSecretReference{Name: "signer", Key: "token"}
	}
	const name = "70-hook-job-runs-again-for-a-new-render"
	w.release("shop", w.caseRender(name, "render1.yaml"), preSync(r.hook("pre", signed)))
	result := w.succeeds("shop")
	sent := r.take()
	require.Len(t, sent, 1)
	require.Equal(t, []string{"POST", "/pre", "application/json"}, []string{sent[0].Method, sent[0].Path, sent[0].Get("Content-Type")})
	mac := hmac.New(sha256.New, []byte("s3cret"))
	fmt.Fprintf(mac, "%s.%s.%s", sent[0].Get("Idempotency-Key"), sent[0].Get("X-Convoy-Timestamp"), sent[0].Body)
	require.Equal(t, "sha256="+hex.EncodeToString(mac.Sum(nil)), sent[0].Get("X-Convoy-Signature"))
	call := sent[0].call(t)
	require.Equal(t, []string{w.ns, "shop", "preSync", "pre", result.Digest, w.get("shop").Status.LastAttempted.RunID, "sync:" + w.ns + ":shop"},
		[]string{call.Release.Namespace, call.Release.Name, call.Phase, call.Hook, call.Digest, call.RunID, call.WorkflowID})
	done := w.hook("shop", "preSync", "pre")
	require.Equal(t, []string{"Succeeded", "http", result.Digest}, []string{done.Result, done.Type, done.Digest})
	require.NotNil(t, done.StartedAt)

	w.succeeds("shop")
	require.Empty(t, r.take(), "the same render")
	w.render("shop", w.caseRender(name, "render2.yaml"))
	w.succeeds("shop")
	require.Len(t, r.take(), 1, "a new render")
	w.succeeds("shop", func(in *workflows.SyncInput) { in.RequestedBy = "ada" })
	sent = r.take()
	require.Len(t, sent, 1, "a person asked")
	require.Equal(t, "ada", sent[0].call(t).RequestedBy)

	w.render("shop", strings.Replace(w.caseRender(name, "render2.yaml"), `"2"`, `"3"`, 1))
	p.around(func(call *apiCall) bool {
		if isApply(call) {
			call.refuse = "not now"
		}
		return true
	}, nil)
	w.fails("shop", "DeployFailed")
	p.around(nil, nil)
	w.succeeds("shop")
	require.Len(t, r.take(), 1, "the hook had succeeded for this render before its apply failed")
	require.Equal(t, []string{w.cm("app")}, w.inventory("shop"))

	w.update("shop", preSync(r.hook("pre")))
	w.succeeds("shop")
	require.Len(t, r.take(), 1, "another definition, the same render")
}

// D25: a receiver that is not ready is asked again within the timeout, as late as it says, under one idempotency key.
func TestHTTPHooks_ask_again(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.worker("--allow-local-urls")
	r := newReceiver(t, func(n int, w http.ResponseWriter) {
		switch n {
		case 1:
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			panic(http.ErrAbortHandler) // the connection breaks
		}
	})
	w.release("shop", manifest(w.ns, "a", 0, "1"), preSync(r.hook("ready")))
	began := time.Now()
	run := w.start(workflows.SyncInput{Name: "shop"})
	waiting := w.pendingActivity(run, "the hook waits", func(activity *workflowpb.PendingActivityInfo) bool {
		return activity.GetActivityId() == "pre-sync-ready-1" && activity.GetAttempt() == 2
	})
	require.Contains(t, waiting.GetLastFailure().GetMessage(), fmt.Sprintf("POST %s/ready answers HTTP 503 Service Unavailable: asking again in 3s", r.url))
	_, reason := w.await(run)
	require.Equal(t, "Succeeded", reason, w.message("shop"))
	require.Greater(t, time.Since(began), 3*time.Second)
	sent := r.take()
	require.GreaterOrEqual(t, len(sent), 3)
	for _, one := range sent {
		require.Equal(t, sent[0].Get("Idempotency-Key"), one.Get("Idempotency-Key"))
		require.Equal(t, sent[0].Body, one.Body)
	}
	require.NotNil(t, w.configMap("a"))
}

// D25 S2: an answer that is no success ends the sync before anything is applied; each retry is a try of its own. So does
// a receiver that never answers, once the timeout is over.
func TestHTTPHooks_failed_preSync_ends_the_sync(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.worker("--allow-local-urls")
	r := newReceiver(t, status(http.StatusBadRequest))
	w.release("shop", manifest(w.ns, "a", 0, "1"), preSync(r.hook("migrate", func(hook *v1alpha1.Hook) { hook.Retries = 1 })))
	require.Equal(t, fmt.Sprintf(`preSync hook "migrate": POST %s/migrate answers HTTP 400 Bad Request`, r.url), w.fails("shop", "HookFailed"))
	sent := r.take()
	require.Len(t, sent, 2, "one try and one retry")
	require.NotEqual(t, sent[0].Get("Idempotency-Key"), sent[1].Get("Idempotency-Key"))
	require.Equal(t, []int{1, 2}, []int{sent[0].call(t).Try, sent[1].call(t).Try})
	require.Nil(t, w.configMap("a"))
	require.Equal(t, "Failed", w.hook("shop", "preSync", "migrate").Result)

	r.answers(func(_ int, w http.ResponseWriter) {
		w.Header().Set("Location", r.url+"/elsewhere?"+sentinel)
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	w.update("shop", preSync(r.hook("migrate")))
	require.Contains(t, w.fails("shop", "HookFailed"), "HTTP 307 Temporary Redirect: redirects are not followed")
	require.Len(t, r.take(), 1)

	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	r.answers(func(int, http.ResponseWriter) { <-over })
	w.update("shop", preSync(r.hook("migrate", lasting(2*time.Second))))
	require.Contains(t, w.fails("shop", "HookFailed"), "not answered well within its timeout of 2s; the last time, POST "+r.url+"/migrate did not answer in time")

	w.update("shop", preSync(r.hook("migrate", lasting(3*time.Second))))
	r.answers(status(http.StatusServiceUnavailable))
	require.Contains(t, w.fails("shop", "HookFailed"), "not answered well within its timeout of 3s; the last time, POST "+r.url+"/migrate answers HTTP 503 Service Unavailable")
	require.Nil(t, w.configMap("a"))
}

// Case 72, S3 S21 S30 D25: a postSync hook that fails is seen in status, in an event and at the command line; it changes
// nothing in the result and retries nothing.
func TestHTTPHooks_failed_postSync_changes_nothing_in_the_result(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.worker("--allow-local-urls")
	r := newReceiver(t, status(http.StatusGone))
	since := w.mark()
	w.release("shop", w.caseRender("72-failing-postsync-hook-keeps-the-result", "render1.yaml"), onRequest(postSync(r.hook("notify"), r.hook("count"))))
	printed := w.convoy("sync", w.ns+"/shop", "--wait")
	failed := fmt.Sprintf(`POST %s/notify answers HTTP 410 Gone`, r.url)
	require.Contains(t, printed, failed)
	require.Equal(t, "True/Succeeded", w.applied("shop"))
	require.Contains(t, w.message("shop"), `postSync hook "notify": `+failed)
	require.NotNil(t, w.get("shop").Status.LastSuccessful)
	require.Equal(t, []string{w.cm("app")}, w.inventory("shop"))
	require.Equal(t, "Failed", w.hook("shop", "postSync", "notify").Result)
	require.Equal(t, "Failed", w.hook("shop", "postSync", "count").Result, "the hook after the one that failed")
	require.Len(t, r.take(), 2)
	require.Len(t, changes(w.requests(since)), 1)
	events := w.events("shop")
	for _, hook := range []string{"notify", "count"} {
		require.True(t, slices.ContainsFunc(events, func(event string) bool {
			return strings.HasPrefix(event, fmt.Sprintf("PostSyncHookFailed: postSync hook %q failed, which changes nothing in the result", hook))
		}), "%v", events)
	}
}

// D10: the key of the signature, the request and the answer stand in no history, log, event, status and output.
func TestHTTPHooks_D10_values_get_out_nowhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	worker := w.worker("--allow-local-urls", "--log-level", "debug")
	r := newReceiver(t, status(http.StatusOK))
	w.value("signer", "token", sentinel)
	hook := func(hook *v1alpha1.Hook) {
		body := "the body: " + sentinel
		hook.HTTP.URL = strings.Replace(hook.HTTP.URL, "://", "://robot:"+sentinel+"@", 1) + "?token=" + sentinel
		hook.HTTP.Body, hook.HTTP.Headers = &body, map[string]string{"X-Key": sentinel}
		hook.HTTP.SecretRef = &v1alpha1.HookSecretReference{Name: "signer", Key: "token"}
	}
	w.release("good", manifest(w.ns, "good", 0, "1"), onRequest(preSync(r.hook("call", hook))))
	w.syncsQuietly("good", "Succeeded", "")
	sent := r.take()
	require.Len(t, sent, 1)
	require.Equal(t, []string{"the body: " + sentinel, "token=" + sentinel, sentinel}, []string{string(sent[0].Body), sent[0].Query, sent[0].Get("X-Key")})

	r.answers(status(http.StatusForbidden))
	w.release("bad", manifest(w.ns, "bad", 0, "1"), onRequest(preSync(r.hook("call", hook))))
	w.syncsQuietly("bad", "HookFailed", "HTTP 403")
	w.release("loud", manifest(w.ns, "loud", 0, "1"), onRequest(postSync(r.hook("call", hook))))
	w.syncsQuietly("loud", "Succeeded", "HTTP 403")
	r.answers(status(http.StatusServiceUnavailable))
	w.release("late", manifest(w.ns, "late", 0, "1"), onRequest(preSync(r.hook("call", hook, lasting(2*time.Second)))))
	w.syncsQuietly("late", "HookFailed", "HTTP 503")
	w.release("gone", manifest(w.ns, "gone", 0, "1"), onRequest(preSync(r.hook("call", hook, lasting(2*time.Second), func(hook *v1alpha1.Hook) {
		hook.HTTP.URL = "http://robot:" + sentinel + "@127.0.0.1:1/?" + sentinel
	}))))
	w.syncsQuietly("gone", "HookFailed", "connection refused")
	w.release("odd", manifest(w.ns, "odd", 0, "1"), onRequest(preSync(r.hook("call", hook, func(hook *v1alpha1.Hook) {
		hook.HTTP.Headers = map[string]string{"X-Odd": sentinel + "\n"}
	}))))
	w.syncsQuietly("odd", "HookFailed", "X-Odd")
	w.release("keyless", manifest(w.ns, "keyless", 0, "1"), onRequest(preSync(r.hook("call", hook, func(hook *v1alpha1.Hook) {
		hook.HTTP.SecretRef.Key = "none"
	}))))
	w.syncsQuietly("keyless", "HookFailed", `has no key "none"`)
	w.keepsQuiet(map[string]string{"worker log": worker.logs.String()})
}

// D25: a request whose worker is killed before its answer has come is sent again, by another worker, under the same
// idempotency key.
func TestHTTPHooks_request_of_a_killed_worker_is_sent_again(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.worker("--allow-local-urls")
	over := make(chan struct{})
	r := newReceiver(t, func(n int, _ http.ResponseWriter) {
		if n == 1 {
			<-over
		}
	})
	t.Cleanup(func() { close(over) }) // before the receiver waits for its requests
	w.release("shop", manifest(w.ns, "a", 0, "1"), preSync(r.hook("migrate")))
	run := w.start(workflows.SyncInput{Name: "shop"})
	w.eventually("the request is there", func() error {
		if r.count() == 0 {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	first.kill()
	w.worker("--allow-local-urls")
	_, reason := w.await(run)
	require.Equal(t, "Succeeded", reason, w.message("shop"))
	sent := r.take()
	require.Len(t, sent, 2)
	require.Equal(t, sent[0].Get("Idempotency-Key"), sent[1].Get("Idempotency-Key"))
}

// D32: without the operator's leave a hook reaches nothing on the worker itself.
func TestHTTPHooks_D32_lead_to_no_local_address(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceiver(t, nil)
	w.release("shop", manifest(w.ns, "a", 0, "1"), preSync(r.hook("migrate")))
	require.Contains(t, w.fails("shop", "HookFailed"), "a loopback address: the operator has to allow that")
	require.Empty(t, r.take())
}

// The API server refuses what is no hook, and says what is wrong.
func TestHooks_are_checked_by_the_API_server(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for says, hook := range map[string]string{
		"a hook has exactly one of job, http and workflow":  "{name: a}",
		"a hook has exactly one of job, http and workflow ": "{name: a, http: {url: 'https://a'}, workflow: {type: Smoke}}",
		"a workflow of convoy itself is no hook":            "{name: a, workflow: {type: SyncWorkflow}}",
		"spec.hooks.preSync[0].http.method":                 "{name: a, http: {url: 'https://a', method: TRACE}}",
		"spec.hooks.preSync[0].http.url":                    "{name: a, http: {url: 'ftp://a'}}",
		"spec.hooks.preSync[0].http.retryOn[0]":             "{name: a, http: {url: 'https://a', retryOn: [200]}}",
		"spec.hooks.preSync[0].workflow.input":              "{name: a, workflow: {type: Smoke, input: text}}",
	} {
		command := exec.CommandContext(t.Context(), w.info.Kubectl, "--kubeconfig", w.info.Kubeconfig, "create", "-f", "-")
		command.Stdin = strings.NewReader(fmt.Sprintf("apiVersion: convoy.dev/v1alpha1\nkind: Release\nmetadata: {name: odd, namespace: %s}\n"+
			"spec: {source: {inline: ''}, hooks: {preSync: [%s]}}\n", w.ns, hook))
		out, err := command.CombinedOutput()
		require.Error(t, err, hook)
		require.Contains(t, string(out), strings.TrimSpace(says), hook)
	}
}
