package activities

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const hookSentinel = "Kestrel-4711-Quagga"

// hooked makes a world whose sync has this hook in a phase, and the input of its first try.
func hooked(t *testing.T, phase string, hook v1alpha1.Hook) (*world, HookInput) {
	t.Helper()
	w := newWorld(t, cm("a", 0))
	w.now = time.Now() // the clock of the SDK's test environment
	if hook.Name == "" {
		hook.Name = "notify"
	}
	if phase == phasePreSync {
		w.rel.Spec.Hooks.PreSync = []v1alpha1.Hook{hook}
	} else {
		w.rel.Spec.Hooks.PostSync = []v1alpha1.Hook{hook}
	}
	w.rel.Status.LastAttempted = &v1alpha1.Attempt{RequestedBy: "ada"}
	return w, HookInput{Sync: w.sync(), Phase: phase, Try: 1, Hook: PlannedHook{
		Name: hook.Name, Type: release.TypeOfHook(hook), Definition: release.HookDefinition(hook), Retries: hook.Retries, Timeout: time.Minute,
	}}
}

func httpHook(change func(*v1alpha1.HTTPHook)) v1alpha1.Hook {
	hook := &v1alpha1.HTTPHook{URL: "https://example.com/hook", Method: "POST"}
	if change != nil {
		change(hook)
	}
	return v1alpha1.Hook{HTTP: hook}
}

// recordedHook is the only hook in status.
func (w *world) recordedHook() v1alpha1.HookStatus {
	w.t.Helper()
	require.Len(w.t, w.rel.Status.Hooks, 1)
	return w.rel.Status.Hooks[0]
}

// D25: what an http hook sends by itself says which hook of which sync it is, and success is recorded at once.
func TestRunHook_D25_sends_a_request_and_records_its_success(t *testing.T) {
	w, in := hooked(t, phasePreSync, httpHook(func(hook *v1alpha1.HTTPHook) {
		hook.Headers, hook.RetryOn = map[string]string{"X-Team": "a"}, []int32{404}
		hook.SecretRef = &v1alpha1.HookSecretReference{Name: "signer", Key: "token"}
	}))
	w.rel.Spec.ClusterRef = &v1alpha1.ClusterReference{Name: "prod"}
	w.secrets = map[string]string{"team-a/signer/token": hookSentinel}
	w.answer = release.HookAnswer{Succeeded: true, Message: "good"}
	w.succeeds(w.a.RunHook, in, nil)

	require.Len(t, w.sent, 1)
	sent := w.sent[0]
	require.Equal(t, []any{"POST", "https://example.com/hook", map[string]string{"X-Team": "a"}, []int32{404}, hookSentinel},
		[]any{sent.Method, sent.URL, sent.Headers, sent.RetryOn, string(sent.Key)})
	require.InDelta(t, time.Minute, sent.Timeout, float64(10*time.Second))
	require.Regexp(t, `^notify-[0-9a-f]{16}-1$`, sent.IdempotencyKey)
	var body map[string]any
	require.NoError(t, json.Unmarshal(sent.Body, &body))
	require.NotEmpty(t, body["runID"])
	delete(body, "runID")
	require.Equal(t, map[string]any{
		"release": map[string]any{"namespace": "team-a", "name": "shop"}, "cluster": "prod", "phase": "preSync", "hook": "notify",
		"digest": in.Sync.Digest, "revision": "r1", "requestedBy": "ada", "workflowID": workflowID, "try": 1.0,
	}, body)

	recorded := w.recordedHook()
	require.NotNil(t, recorded.StartedAt)
	recorded.StartedAt, recorded.FinishedAt = nil, metav1.Time{}
	require.Equal(t, v1alpha1.HookStatus{
		Name: "notify", Phase: "preSync", Type: "http", Result: "Succeeded", Digest: in.Sync.Digest, Definition: in.Hook.Definition,
	}, recorded)
	require.True(t, hookSucceeded(w.rel.Status.Hooks, "preSync", "notify", in.Sync.Digest, in.Hook.Definition))
	require.Empty(t, w.events)
}

func TestRunHook_bodies(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		body   *string
		want   string // "JSON": convoy's own
	}{
		"POST": {"POST", nil, "JSON"}, "PUT": {"PUT", nil, "JSON"}, "PATCH": {"PATCH", nil, "JSON"}, "no method": {"", nil, "JSON"},
		"GET": {"GET", nil, ""}, "DELETE": {"DELETE", nil, ""},
		"its own": {"POST", new("<a/>"), "<a/>"}, "GET with its own": {"GET", new("x"), "x"}, "empty": {"POST", new(""), ""},
	} {
		w, in := hooked(t, phasePreSync, httpHook(func(hook *v1alpha1.HTTPHook) { hook.Method, hook.Body = c.method, c.body }))
		w.answer.Succeeded = true
		w.succeeds(w.a.RunHook, in, nil)
		require.Equal(t, c.want == "JSON", strings.HasPrefix(string(w.sent[0].Body), `{"release":`), name)
		if c.want != "JSON" {
			require.Equal(t, c.want, string(w.sent[0].Body), name)
		}
		require.NotEmpty(t, w.sent[0].Method)
	}
}

// D25: every attempt of one try has one idempotency key, and another try another.
func TestRunHook_D25_idempotency_key_belongs_to_the_try(t *testing.T) {
	w, in := hooked(t, phasePreSync, httpHook(nil))
	h := &hookRun{Activities: w.a, in: in, info: activity.Info{Attempt: 1}}
	first := h.try().Name()
	h.info.Attempt = 5
	require.Equal(t, first, h.try().Name())
	h.in.Try = 2
	require.NotEqual(t, first, h.try().Name())
}

// D25: an answer that is worth another request gives the slot back; the message shows nothing but what the sender says.
func TestRunHook_D25_waits_for_a_better_answer(t *testing.T) {
	w, in := hooked(t, phasePreSync, httpHook(nil))
	w.answer = release.HookAnswer{Again: true, Message: "POST https://example.com/hook answers HTTP 503"}
	message := w.fails(w.a.RunHook, in, Waiting)
	require.Equal(t, `preSync hook "notify": POST https://example.com/hook answers HTTP 503: asking again in 1s`, message)
	require.Empty(t, w.rel.Status.Hooks)
}

// D25 S3: what no request helps against fails the try; a postSync hook says so in an event, after its last try.
func TestRunHook_S3_fails_as_the_sender_says(t *testing.T) {
	for _, phase := range []string{phasePreSync, phasePostSync} {
		w, in := hooked(t, phase, httpHook(nil))
		w.answer = release.HookAnswer{Message: "POST https://example.com/hook answers HTTP 400"}
		require.Equal(t, phase+` hook "notify": POST https://example.com/hook answers HTTP 400`, w.fails(w.a.RunHook, in, "HookFailed"))
		require.Equal(t, "Failed", w.recordedHook().Result)
		require.Equal(t, "POST https://example.com/hook answers HTTP 400", w.recordedHook().Message)
		if phase == phasePreSync {
			require.Empty(t, w.events, "the record of the sync says it")
			continue
		}
		require.Equal(t, []string{`postSync hook "notify" failed, which changes nothing in the result: POST https://example.com/hook answers HTTP 400`}, w.events)
		in.Hook.Retries = 1
		w.fails(w.a.RunHook, in, "HookFailed")
		require.Len(t, w.events, 1, "a try is left")
	}
}

// D25: once its timeout is over, or leaves no time for what the receiver asks, the try has failed.
func TestRunHook_D25_timeout_of_a_request(t *testing.T) {
	for name, c := range map[string]struct {
		timeout, asked time.Duration
		sent           int
		says           string
	}{
		"over":            {-time.Second, 0, 0, "not answered well within its timeout"},
		"too short":       {300 * time.Millisecond, 0, 1, "not answered well within its timeout of 300ms; the last time, it answers HTTP 503"},
		"asked to stay":   {time.Minute, 2 * time.Minute, 1, "the last time, it answers HTTP 503"},
		"asked for years": {4 * time.Minute, 1000 * time.Hour, 1, "the last time, it answers HTTP 503"},
	} {
		w, in := hooked(t, phasePreSync, httpHook(nil))
		in.Hook.Timeout = c.timeout
		w.answer = release.HookAnswer{Again: true, After: c.asked, Message: "it answers HTTP 503"}
		require.Contains(t, w.fails(w.a.RunHook, in, "HookFailed"), c.says, name)
		require.Len(t, w.sent, c.sent, name)
	}
}

func TestHookPause(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		attempt              int32
		left, asked, expects time.Duration
	}{
		{1, time.Hour, 0, time.Second}, {2, time.Hour, 0, 2 * time.Second}, {5, time.Hour, 0, 16 * time.Second},
		{6, time.Hour, 0, 30 * time.Second}, {2000, time.Hour, 0, 30 * time.Second},
		{6, 20 * time.Second, 0, 10 * time.Second}, {6, 100 * time.Millisecond, 0, 500 * time.Millisecond},
		{1, time.Hour, 7 * time.Second, 7 * time.Second}, {6, time.Hour, 7 * time.Second, 30 * time.Second},
		{1, time.Hour, time.Hour, 5 * time.Minute},
	} {
		h := &hookRun{Activities: &Activities{now: func() time.Time { return now }}, info: activity.Info{Attempt: c.attempt}, began: now}
		h.in.Hook.Timeout = c.left
		require.Equal(t, c.expects, h.pause(c.asked), "%+v", c)
	}
}

// A key that is not there fails the hook before anything is sent, and names what is missing.
func TestRunHook_needs_its_key(t *testing.T) {
	for value, says := range map[string]string{"": "has nothing under", "none": `Secret team-a/signer has no key "token"`} {
		w, in := hooked(t, phasePreSync, httpHook(func(hook *v1alpha1.HTTPHook) {
			hook.SecretRef = &v1alpha1.HookSecretReference{Name: "signer", Key: "token"}
		}))
		if value == "" {
			w.secrets = map[string]string{"team-a/signer/token": ""}
		}
		require.Contains(t, w.fails(w.a.RunHook, in, "HookFailed"), says)
		require.Contains(t, w.recordedHook().Message, says)
		require.Empty(t, w.sent)
	}
}

// D10: neither the key nor what is sent stands in an error, an event or the status.
func TestRunHook_D10_shows_nothing_of_a_request(t *testing.T) {
	for _, answer := range []release.HookAnswer{{Message: "bad"}, {Again: true, Message: "later"}, {Succeeded: true}} {
		w, in := hooked(t, phasePostSync, httpHook(func(hook *v1alpha1.HTTPHook) {
			hook.URL = "https://robot:" + hookSentinel + "@example.com/?token=" + hookSentinel
			hook.Body, hook.Headers = new(hookSentinel), map[string]string{"X-A": hookSentinel}
			hook.SecretRef = &v1alpha1.HookSecretReference{Name: "signer", Key: "token"}
		}))
		w.secrets = map[string]string{"team-a/signer/token": hookSentinel}
		w.answer = answer
		err := w.perform(workflowID, w.a.RunHook, in, nil)
		require.Equal(t, answer.Succeeded, err == nil)
		status, marshalErr := json.Marshal(w.rel.Status)
		require.NoError(t, marshalErr)
		input, marshalErr := json.Marshal(in)
		require.NoError(t, marshalErr)
		said := string(status) + string(input) + strings.Join(w.events, "") + strings.Join(w.calls, "")
		if err != nil {
			said += err.Error()
		}
		require.NotContains(t, said, hookSentinel)
	}
}

// D16 D35: a sync that another one has overtaken sends nothing, and a worker that lost its lease while it waited for the
// answer takes the request for one that may be sent again.
func TestRunHook_D16_of_a_sync_that_lost_its_turn(t *testing.T) {
	w, in := hooked(t, phasePreSync, httpHook(nil))
	w.rel.Status.Fence.Number = 8
	w.fails(w.a.RunHook, in, Fenced)
	require.Empty(t, w.sent)

	w, in = hooked(t, phasePreSync, httpHook(nil))
	w.answer = release.HookAnswer{Message: "POST https://example.com/hook was cancelled"}
	w.onSend = func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.now = w.now.Add(heartbeat)
		w.beat = func() error { return ErrLeaseLost }
	}
	w.fails(w.a.RunHook, in, Interrupted)
	require.Empty(t, w.rel.Status.Hooks)
}

// D25: a hook that was changed while the sync ran is not run as what it was.
func TestHooks_D25_changed_under_the_sync(t *testing.T) {
	w, in := hooked(t, phasePreSync, httpHook(nil))
	in.Hook.Definition = "sha256:other"
	require.Contains(t, w.fails(w.a.RunHook, in, "Superseded"), "was changed or removed")
	require.Empty(t, w.sent)
	w, in = hooked(t, phasePreSync, v1alpha1.Hook{Workflow: &v1alpha1.WorkflowHook{Type: "Smoke"}})
	in.Hook.Definition = "sha256:other"
	require.Contains(t, w.fails(w.a.BeginHook, in, "Superseded"), "was changed or removed")
}

// D25: a workflow hook gets what an http hook sends, and its own input beside it.
func TestBeginHook_D25_says_what_is_to_run(t *testing.T) {
	for input, want := range map[string]string{"": "{}", `{"url":"https://a"}`: `{"url":"https://a"}`} {
		hook := &v1alpha1.WorkflowHook{Type: "Smoke", TaskQueue: "checks"}
		if input != "" {
			hook.Input = &runtime.RawExtension{Raw: []byte(input)}
		}
		w, in := hooked(t, phasePostSync, v1alpha1.Hook{Name: "smoke", Workflow: hook})
		var start HookStart
		w.succeeds(w.a.BeginHook, in, &start)
		require.Regexp(t, `^hook:team-a:shop:postSync:smoke:.+:1$`, start.WorkflowID)
		require.Equal(t, []string{"Smoke", "checks"}, []string{start.Type, start.TaskQueue})
		require.JSONEq(t, want, string(start.Call.Input))
		require.Equal(t, "ada", start.Call.RequestedBy)
		require.Equal(t, HookRelease{Namespace: "team-a", Name: "shop"}, start.Call.Release)
		require.Empty(t, w.rel.Status.Hooks)
		require.Empty(t, w.calls)
	}
}

// A workflow that cannot be a hook fails it: convoy's own, and one with too large an input.
func TestBeginHook_refuses(t *testing.T) {
	large := &runtime.RawExtension{Raw: []byte(`{"a":"` + strings.Repeat("x", maxHookInput) + `"}`)}
	for says, hook := range map[string]v1alpha1.Hook{
		"a workflow of convoy itself":    {Workflow: &v1alpha1.WorkflowHook{Type: "SyncWorkflow"}},
		"at most 65536 are allowed":      {Workflow: &v1alpha1.WorkflowHook{Type: "Smoke", Input: large}},
		"it is no workflow":              httpHook(nil),
		"it is neither a Job nor a requ": {},
	} {
		w, in := hooked(t, phasePreSync, hook)
		run := any(w.a.BeginHook)
		if hook.Workflow == nil && hook.HTTP == nil {
			run = w.a.RunHook
		}
		require.Contains(t, w.fails(run, in, "HookFailed"), says)
		require.Equal(t, "Failed", w.recordedHook().Result)
	}
}

// D25 S3: the end of a workflow hook is recorded as those of the others.
func TestRecordHook_D25_S3_writes_the_end(t *testing.T) {
	w, in := hooked(t, phasePostSync, v1alpha1.Hook{Name: "smoke", Workflow: &v1alpha1.WorkflowHook{Type: "Smoke"}})
	began := w.now.Add(-time.Minute)
	w.succeeds(w.a.RecordHook, HookOutcome{HookInput: in, StartedAt: began}, nil)
	recorded := w.recordedHook()
	require.Equal(t, []string{"Succeeded", "workflow", in.Hook.Definition, ""}, []string{recorded.Result, recorded.Type, recorded.Definition, recorded.Message})
	require.WithinDuration(t, began, recorded.StartedAt.Time, time.Second)
	require.WithinDuration(t, w.now, recorded.FinishedAt.Time, time.Second)

	w.succeeds(w.a.RecordHook, HookOutcome{HookInput: in, StartedAt: began, Failed: true, Message: "it was closed"}, nil)
	require.Equal(t, []string{"Failed", "it was closed"}, []string{w.recordedHook().Result, w.recordedHook().Message})
	require.Equal(t, []string{`postSync hook "smoke" failed, which changes nothing in the result: it was closed`}, w.events)

	w.controlError = errors.New("out of reach")
	w.fails(w.a.RecordHook, HookOutcome{HookInput: in, StartedAt: began}, Waiting)
	w.controlError = nil
	w.rel.Status.Fence.Number = 8
	w.fails(w.a.RecordHook, HookOutcome{HookInput: in, StartedAt: began}, Fenced)
	w.rel.UID = "another"
	w.fails(w.a.RecordHook, HookOutcome{HookInput: in, StartedAt: began}, "Superseded")
}
