package k8s

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"convoy.dev/convoy/internal/release"
)

// requestTimeout bounds one request. An answer that has not come by then is an accident whose effect is uncertain.
const requestTimeout = 30 * time.Second

// shortestTimeout is what a request gets when hardly any budget is left for accidents.
const shortestTimeout = 5 * time.Second

type limitKey struct{}

// withLimit returns a context for requests that may take this long each.
func withLimit(ctx context.Context, limit time.Duration) context.Context {
	return context.WithValue(ctx, limitKey{}, limit)
}

func limitOf(ctx context.Context) time.Duration {
	if limit, ok := ctx.Value(limitKey{}).(time.Duration); ok {
		return limit
	}
	return requestTimeout
}

// maxAnswer bounds what is read of one answer. The API server itself holds no object of this size.
const maxAnswer = 64 << 20

// What answers are asked for: metadata alone where the body of the object does not matter.
const (
	acceptJSON         = "application/json"
	acceptMetadata     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	acceptMetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

// Content types of bodies.
const (
	contentJSON       = "application/json"
	contentApplyPatch = "application/apply-patch+yaml"
	contentJSONPatch  = "application/json-patch+json"
)

// request is one HTTP request to the target cluster; path is absolute below the address of the API server.
type request struct {
	method      string
	path        string
	query       url.Values
	accept      string
	contentType string
	body        []byte
}

// answer is what the API server said, whatever its code.
type answer struct {
	code   int
	header http.Header
	body   []byte
	// took is how long the answer took; with the Date header it tells the server's time at which the request came.
	took time.Duration
}

// send sends one request and returns whatever answer came. Without an answer the error is
//   - the guard's own error, wrapped, when the guard said no (D16): nothing was sent;
//   - the context's error, wrapped, when the caller's context has ended;
//   - else a *release.Failure of class Accident (D7).
//
// It never retries.
func (c *Cluster) send(ctx context.Context, r request) (answer, error) {
	give, err := c.limit.Load().take(ctx)
	if err != nil {
		return answer{}, err
	}
	defer give()
	limited, cancel := context.WithTimeout(ctx, limitOf(ctx))
	defer cancel()
	httpRequest, err := c.newRequest(limited, r)
	if err != nil {
		return answer{}, err
	}
	start := time.Now()
	response, err := c.client.Do(httpRequest)
	if err != nil {
		return answer{}, noAnswer(ctx, r, err)
	}
	c.silence.ended()
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return answer{}, noAnswer(ctx, r, err)
	}
	return answer{code: response.StatusCode, header: response.Header, body: body, took: time.Since(start)}, nil
}

func (c *Cluster) newRequest(ctx context.Context, r request) (*http.Request, error) {
	target := *c.base
	target.Path = strings.TrimSuffix(target.Path, "/") + r.path
	target.RawQuery = r.query.Encode()
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	httpRequest, err := http.NewRequestWithContext(ctx, r.method, target.String(), body)
	if err != nil {
		return nil, fmt.Errorf("request to the target cluster: %w", err)
	}
	httpRequest.Header.Set("Accept", r.accept)
	if r.contentType != "" {
		httpRequest.Header.Set("Content-Type", r.contentType)
	}
	return httpRequest, nil
}

// noAnswer explains why no answer came. See send.
func noAnswer(ctx context.Context, r request, err error) error {
	var stopped *guardError
	if errors.As(err, &stopped) {
		return fmt.Errorf("no request was sent to the target cluster: %w", stopped.err)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("request to the target cluster: %w", context.Cause(ctx))
	}
	cause := err
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		cause = wrapped.Err
	}
	text := cause.Error()
	if errors.Is(err, context.DeadlineExceeded) {
		text = fmt.Sprintf("nothing came within %s", limitOf(ctx).Round(time.Second))
	}
	return &release.Failure{
		Class:     release.Accident,
		Message:   cut("the target cluster gave no answer to "+r.method+" "+r.path+": "+text, messageLimit),
		Uncertain: true,
	}
}

// retryAfter is the wait that the answer asks for, 0 when it asks for none.
func (a answer) retryAfter() time.Duration {
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// arrived is the server's own time at which the request had not come yet: its Date header (whole seconds) minus the
// time that the answer took. Without that header it is the local clock.
func (a answer) arrived() time.Time {
	date, err := http.ParseTime(a.header.Get("Date"))
	if err != nil {
		date = time.Now()
	}
	return date.Add(-a.took)
}

// resourcePath is the path of one object, or of the collection when name is empty. Namespace is empty for
// cluster-scoped kinds.
func resourcePath(resource schema.GroupVersionResource, namespace, name string) string {
	path := groupVersionPath(resource.GroupVersion())
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	path += "/" + resource.Resource
	if name != "" {
		path += "/" + name
	}
	return path
}

func groupVersionPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}

// guardError marks an error of the guard on its way through net/http.
type guardError struct{ err error }

func (e *guardError) Error() string { return e.err.Error() }
func (e *guardError) Unwrap() error { return e.err }

// guardTransport asks the guard of the request's context right before the request leaves (D16). It stands below
// everything that client-go wraps around a transport, so nothing passes it by. A request may still wait for a
// connection after that, which is why the body asks once more: no write is complete without it.
type guardTransport struct{ next http.RoundTripper }

func (t guardTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := release.CheckGuard(r.Context()); err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, &guardError{err}
	}
	if r.Body == nil || r.Body == http.NoBody {
		return t.next.RoundTrip(r)
	}
	guarded := r.Clone(r.Context())
	body := &guardedBody{ReadCloser: r.Body, ctx: r.Context()}
	guarded.Body = body
	if again := r.GetBody; again != nil {
		guarded.GetBody = func() (io.ReadCloser, error) {
			fresh, err := again()
			if err != nil {
				return nil, err
			}
			return &guardedBody{ReadCloser: fresh, ctx: r.Context()}, nil
		}
	}
	response, err := t.next.RoundTrip(guarded)
	if stopped := release.CheckGuard(r.Context()); err != nil && stopped != nil {
		return nil, &guardError{stopped}
	}
	return response, err
}

// guardedBody asks the guard before the first byte of a body is read.
type guardedBody struct {
	io.ReadCloser
	ctx   context.Context //nolint:containedctx // the body belongs to one request
	asked bool
}

func (b *guardedBody) Read(p []byte) (int, error) {
	if !b.asked {
		if err := release.CheckGuard(b.ctx); err != nil {
			return 0, &guardError{err}
		}
		b.asked = true
	}
	return b.ReadCloser.Read(p)
}
