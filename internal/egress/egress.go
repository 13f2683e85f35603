// Package egress is the way out to URLs that the authors of Releases name: a transport that leads to no address of the
// worker's own surroundings (D32), and words for what went wrong that give no credentials away (D10). What is asked for
// and what an answer means is for its users to say.
package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"time"
)

// Transport refuses loopback, link-local and metadata addresses, unless allowLocal. It knows no proxy: a proxy would
// resolve names by itself, and so undo the check of addresses.
func Transport(allowLocal bool) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	if !allowLocal {
		dialer.Control = refuseLocal
	}
	return &http.Transport{
		Proxy:                  nil,
		DialContext:            dialer.DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConns:           16,
		IdleConnTimeout:        30 * time.Second,
	}
}

// refusal is an error that no retry helps against.
type refusal struct{ message string }

func (r *refusal) Error() string { return r.message }

// Refusef makes an error that no retry helps against. Its text goes on after the URL: "leads to …".
func Refusef(format string, args ...any) error {
	return &refusal{fmt.Sprintf(format, args...)}
}

// Shown is the URL without user, password, query and fragment, any of which may be a credential.
func Shown(u *url.URL) string {
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	return shown.String()
}

// Status is a status in words: "HTTP 404 Not Found".
func Status(code int) string {
	return strings.TrimSpace(fmt.Sprintf("HTTP %d %s", code, http.StatusText(code)))
}

// Fault is why a request has no answer.
type Fault struct {
	// Final: trying again does not help.
	Final bool
	// Message begins with what Shown says of the URL.
	Message string
	// Cause is safe to be shown; it may be nil.
	Cause error
}

// FaultOf tells why there is no answer. The error of net/http holds URLs with their queries, and pieces of an answer
// that is none: only what lies below is shown, and that only where it comes from the network.
func FaultOf(shown string, err error) Fault {
	if refused, ok := errors.AsType[*refusal](err); ok {
		return Fault{Final: true, Message: shown + " " + refused.message}
	}
	if IsTimeout(err) {
		return Fault{Cause: err, Message: shown + " did not answer in time"}
	}
	if errors.Is(err, context.Canceled) {
		return Fault{Cause: err, Message: fmt.Sprintf("the request to %s was cancelled", shown)}
	}
	if network, ok := errors.AsType[*net.OpError](err); ok {
		return Fault{Cause: err, Message: fmt.Sprintf("%s cannot be reached: %v", shown, network)}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return Fault{Cause: err, Message: shown + " closed the connection without an answer"}
	}
	if _, ok := errors.AsType[textproto.ProtocolError](err); ok {
		return Fault{Message: shown + " does not answer as HTTP does"}
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok && !strings.Contains(wrapped.Err.Error(), "Location") {
		what, _, _ := strings.Cut(wrapped.Err.Error(), `"`) // what is quoted comes out of the answer
		return Fault{Message: fmt.Sprintf("%s cannot be reached: %s", shown, strings.TrimSpace(what))}
	}
	return Fault{Message: shown + " cannot be reached"}
}

// IsTimeout reports whether something did not come in time.
func IsTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || ok && e.Timeout()
}
