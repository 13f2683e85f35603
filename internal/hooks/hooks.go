// Package hooks sends the requests of http hooks and says what an answer means. When a request is sent, how often, and
// what becomes of its outcome is for the activities to say.
//
// Of a request nothing is ever shown but its method and the host and path of its URL, and of an answer nothing but its
// status (D10).
package hooks

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"convoy.dev/convoy/internal/egress"
	"convoy.dev/convoy/internal/release"
)

// The headers that convoy itself sets.
const (
	HeaderIdempotencyKey = "Idempotency-Key"
	HeaderTimestamp      = "X-Convoy-Timestamp"
	HeaderSignature      = "X-Convoy-Signature"
)

const (
	requestFor     = 30 * time.Second
	maxAnswerBytes = 64 << 10
)

// Sender sends requests. It is safe for concurrent use.
type Sender struct {
	// transport is used without a client around it: redirects are answers like any other, and there are no cookies.
	transport http.RoundTripper
	now       func() time.Time
}

// New makes a Sender, whose requests lead to local addresses only if the operator allows it (D32).
func New(allowLocal bool) *Sender {
	return &Sender{transport: egress.Transport(allowLocal), now: time.Now}
}

// Send sends one request, within 30 seconds, unless the guard of the context forbids it (D16).
func (s *Sender) Send(ctx context.Context, in release.HookRequest) release.HookAnswer {
	bound := requestFor
	if in.Timeout > 0 {
		bound = min(bound, in.Timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	request, err := s.request(ctx, in)
	if err != nil {
		return release.HookAnswer{Message: err.Error()}
	}
	shown := in.Method + " " + egress.Shown(request.URL)
	if err := release.CheckGuard(ctx); err != nil {
		return release.HookAnswer{Again: true, Message: shown + " was not sent: " + err.Error()}
	}
	answer, err := s.transport.RoundTrip(request)
	if err != nil {
		fault := egress.FaultOf(shown, &url.Error{Err: err})
		return release.HookAnswer{Again: !fault.Final, Message: fault.Message}
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, maxAnswerBytes) // so that the connection can be used again
	return s.judge(shown, in, answer)
}

// request is the request with everything that convoy adds to it. Its errors show no value.
func (s *Sender) request(ctx context.Context, in release.HookRequest) (*http.Request, error) {
	target, err := url.Parse(in.URL)
	if err != nil || target.Host == "" || target.Scheme != "http" && target.Scheme != "https" {
		return nil, fmt.Errorf("its url is not one of http or https")
	}
	request, err := http.NewRequestWithContext(ctx, in.Method, target.String(), bytes.NewReader(in.Body))
	if err != nil {
		return nil, fmt.Errorf("%s %s cannot be asked for", in.Method, egress.Shown(target))
	}
	if password, set := target.User.Password(); target.User.Username() != "" || set {
		request.SetBasicAuth(target.User.Username(), password)
	}
	request.Header.Set("User-Agent", "convoy")
	if len(in.Body) > 0 {
		request.Header.Set("Content-Type", "application/json")
	}
	for name, value := range in.Headers {
		if err := checkHeader(name, value); err != nil {
			return nil, err
		}
		request.Header.Set(name, value)
	}
	s.seal(request.Header, in)
	return request, nil
}

// seal adds the headers by which a receiver knows the request, and whom it comes from.
func (s *Sender) seal(header http.Header, in release.HookRequest) {
	timestamp := strconv.FormatInt(s.now().Unix(), 10)
	header.Set(HeaderIdempotencyKey, in.IdempotencyKey)
	header.Set(HeaderTimestamp, timestamp)
	if in.Key != nil {
		header.Set(HeaderSignature, Signature(in.Key, in.IdempotencyKey, timestamp, in.Body))
	}
}

// Signature is "sha256=" and the HMAC-SHA256, in hexadecimal, of "IDEMPOTENCY-KEY.TIMESTAMP.BODY". Key and time stand
// in it so that whoever overhears a request can neither send it again later nor pass it off as another one.
func Signature(key []byte, idempotencyKey, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.", idempotencyKey, timestamp)
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// own are the headers that are not the author's to set: convoy's, and those that belong to the connection.
var own = []string{
	HeaderIdempotencyKey, "Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Te", "Trailer", "Upgrade", "Expect",
}

func checkHeader(name, value string) error {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case name == "" || len(name) > 100 || strings.ContainsFunc(name, noToken):
		return fmt.Errorf("its header %.100q is no name of a header", name)
	case slices.Contains(own, canonical) || strings.HasPrefix(canonical, "X-Convoy-") || strings.HasPrefix(canonical, "Proxy-"):
		return fmt.Errorf("its header %s is not one to be set", canonical)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return fmt.Errorf("its header %s has a value with control characters", canonical)
	}
	return nil
}

// noToken reports whether a character has no place in the name of a header (RFC 9110).
func noToken(r rune) bool {
	alphanumeric := '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	return !alphanumeric && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// judge says what an answer means, by its status alone.
func (s *Sender) judge(shown string, in release.HookRequest, answer *http.Response) release.HookAnswer {
	code := answer.StatusCode
	out := release.HookAnswer{Message: fmt.Sprintf("%s answers %s", shown, egress.Status(code))}
	switch {
	case code >= 200 && code < 300:
		out.Succeeded = true
	case code >= 300 && code < 400:
		out.Message += ": redirects are not followed, name the URL that it leads to"
	case triedAgain(code, in.RetryOn):
		out.Again, out.After = true, s.retryAfter(answer.Header.Get("Retry-After"))
	}
	return out
}

func triedAgain(code int, retryOn []int32) bool {
	if len(retryOn) > 0 {
		return slices.Contains(retryOn, int32(code))
	}
	return code == http.StatusRequestTimeout || code == http.StatusTooManyRequests || code >= 500
}

// retryAfter reads the header Retry-After: seconds, or a date.
func (s *Sender) retryAfter(header string) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, at.Sub(s.now()))
	}
	return 0
}
