package activities

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"
)

// runHTTP sends the request of the try once. last is what became of the one before.
func (h *hookRun) runHTTP(ctx context.Context, l *lease, last string, hook *v1alpha1.HTTPHook) error {
	if h.left() <= 0 {
		return h.late(ctx, last)
	}
	request, err := h.request(ctx, hook)
	if err != nil {
		return err
	}
	answer := h.hooks.Send(ctx, request)
	if answer.Succeeded {
		return h.record(ctx, v1alpha1.ResultSucceeded, "")
	}
	if err := release.CheckGuard(ctx); err != nil {
		return err
	}
	switch pause := h.pause(answer.After); {
	case ctx.Err() != nil:
		return ctx.Err()
	case !answer.Again:
		return h.fail(ctx, answer.Message)
	case pause >= h.left():
		return h.late(ctx, answer.Message)
	default:
		if err := l.confirm(ctx, func(p *Progress) { p.Answer = answer.Message }); err != nil {
			return err
		}
		return &waitError{
			message: fmt.Sprintf("%s hook %q: %s: asking again in %s", h.in.Phase, h.in.Hook.Name, answer.Message, pause.Round(100*time.Millisecond)),
			after:   pause,
		}
	}
}

// late fails a try whose timeout leaves no time for another request.
func (h *hookRun) late(ctx context.Context, last string) error {
	message := fmt.Sprintf("it was not answered well within its timeout of %s", h.in.Hook.Timeout)
	if last != "" {
		message += "; the last time, " + last
	}
	return h.fail(ctx, message)
}

// The methods that matter here.
const (
	methodGet    = "GET"
	methodPost   = "POST"
	methodDelete = "DELETE"
)

const (
	// hookPause and maxHookPause are the first and the longest pause between two requests.
	hookPause    = time.Second
	maxHookPause = 30 * time.Second
	// maxRetryAfter bounds what a receiver may ask for.
	maxRetryAfter = 5 * time.Minute
)

// pause before the next request: a second, doubled each time up to 30 s, and never more than half of what is left of the
// timeout, so that its end finds the receiver asked. A receiver that asks for more gets it.
func (h *hookRun) pause(asked time.Duration) time.Duration {
	pause := min(hookPause<<min(h.info.Attempt-1, 10), maxHookPause, max(h.left()/2, hookPause/2))
	return max(pause, min(asked, maxRetryAfter))
}

// request is the request of the try. A key that cannot be read fails the hook.
func (h *hookRun) request(ctx context.Context, hook *v1alpha1.HTTPHook) (release.HookRequest, error) {
	request := release.HookRequest{
		Method: hook.Method, URL: hook.URL, Headers: hook.Headers, RetryOn: hook.RetryOn,
		IdempotencyKey: h.try().Name(), Timeout: h.left(),
	}
	if request.Method == "" {
		request.Method = methodPost
	}
	var err error
	if request.Body, err = h.body(request.Method, hook.Body); err != nil {
		return release.HookRequest{}, err
	}
	if ref := hook.SecretRef; ref != nil {
		request.Key, err = h.control.SecretValue(ctx, h.rel.Namespace, ref.Name, ref.Key)
		switch {
		case err != nil && ctx.Err() != nil:
			return release.HookRequest{}, err
		case err != nil:
			return release.HookRequest{}, h.fail(ctx, "the key of its signature: "+err.Error())
		case len(request.Key) == 0:
			return release.HookRequest{}, h.fail(ctx, fmt.Sprintf("the key of its signature: Secret %s has nothing under %q", ref.Name, ref.Key))
		}
	}
	return request, nil
}

// body is the hook's own, or says which hook of which sync this is. A GET or a DELETE with a body is refused by many.
func (h *hookRun) body(method string, own *string) ([]byte, error) {
	switch {
	case own != nil:
		return []byte(*own), nil
	case method == methodGet || method == methodDelete:
		return nil, nil
	}
	return json.Marshal(h.call())
}

// call says which hook of which sync this is.
func (h *hookRun) call() HookCall {
	call := HookCall{
		Release: HookRelease{Namespace: h.in.Sync.Namespace, Name: h.in.Sync.Name},
		Phase:   h.in.Phase, Hook: h.in.Hook.Name, Digest: h.in.Sync.Digest, Revision: h.in.Sync.Revision,
		WorkflowID: h.info.WorkflowExecution.ID, RunID: h.info.WorkflowExecution.RunID, Try: h.in.Try,
	}
	if h.rel.Spec.ClusterRef != nil {
		call.Cluster = h.rel.Spec.ClusterRef.Name
	}
	if last := h.rel.Status.LastAttempted; last != nil {
		call.RequestedBy = last.RequestedBy
	}
	return call
}
