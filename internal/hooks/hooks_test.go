package hooks

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/require"
)

const sentinel = "Kestrel-4711-Quagga"

// serve answers with the handler, and returns a sender that may reach it, and its URL.
func serve(t *testing.T, handler http.HandlerFunc) (sender *Sender, base string) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return New(true), server.URL
}

// quiet requires that nothing of a request or an answer is shown.
func quiet(t *testing.T, answer release.HookAnswer) {
	t.Helper()
	require.NotContains(t, answer.Message, sentinel)
	require.NotContains(t, answer.Message, "robot")
}

// What is sent: method, body, headers, and what convoy adds.
func TestSend_what_is_sent(t *testing.T) {
	type got struct {
		method, body, user, query string
		header                    http.Header
	}
	requests := make(chan got, 1)
	sender, base := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		user, password, _ := r.BasicAuth()
		requests <- got{r.Method, string(body), user + ":" + password, r.URL.RawQuery, r.Header}
	})
	in := release.HookRequest{
		Method: "PUT", URL: strings.Replace(base, "://", "://robot:"+sentinel+"@", 1) + "/x?token=" + sentinel, Body: []byte(`{"a":1}`),
		Headers: map[string]string{"x-team": "a"}, Key: []byte("key"), IdempotencyKey: "notify-1",
	}
	answer := sender.Send(t.Context(), in)
	require.Equal(t, release.HookAnswer{Succeeded: true, Message: "PUT " + base + "/x answers HTTP 200 OK"}, answer)
	one := <-requests
	require.Equal(t, []string{"PUT", `{"a":1}`, "robot:" + sentinel, "token=" + sentinel}, []string{one.method, one.body, one.user, one.query})
	require.Equal(t, "a", one.header.Get("X-Team"))
	require.Equal(t, "application/json", one.header.Get("Content-Type"))
	require.Equal(t, "notify-1", one.header.Get("Idempotency-Key"))
	require.NotEmpty(t, one.header.Get("X-Convoy-Signature"))

	in.Headers, in.Key = map[string]string{"content-type": "text/plain"}, nil
	require.True(t, sender.Send(t.Context(), in).Succeeded)
	one = <-requests
	require.Equal(t, "text/plain", one.header.Get("Content-Type"))
	require.Empty(t, one.header.Get("X-Convoy-Signature"))
	require.NotEmpty(t, one.header.Get("X-Convoy-Timestamp"))

	require.True(t, sender.Send(t.Context(), release.HookRequest{Method: "GET", URL: base}).Succeeded)
	one = <-requests
	require.Equal(t, []string{"GET", ""}, []string{one.method, one.body})
	require.NotContains(t, one.header, "Content-Type")
}

// The signature is verified as docs/hooks.md says; another key, body, time or idempotency key does not fit.
func TestSend_signature_covers_key_time_and_body(t *testing.T) {
	verified := make(chan bool, 1)
	sender, base := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mac := hmac.New(sha256.New, []byte("key"))
		fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("Idempotency-Key"), r.Header.Get("X-Convoy-Timestamp"), body)
		verified <- hmac.Equal([]byte(r.Header.Get("X-Convoy-Signature")), []byte("sha256="+hex.EncodeToString(mac.Sum(nil))))
	})
	sender.now = func() time.Time { return time.Unix(1_800_000_000, 0) }
	for key, want := range map[string]bool{"key": true, "key\n": false} {
		sender.Send(t.Context(), release.HookRequest{Method: "POST", URL: base, Body: []byte("b"), Key: []byte(key), IdempotencyKey: "i"})
		require.Equal(t, want, <-verified, key)
	}
	// printf 'i.1800000000.b' | openssl dgst -sha256 -hmac key
	require.Equal(t, "sha256=487d29cdaf51e23d24d73954b9f62a128f4a2fd409f2cc4fa4709179344d510e", Signature([]byte("key"), "i", "1800000000", []byte("b")))
	seen := map[string]bool{}
	for _, parts := range [][4]string{{"key", "i", "1", "b"}, {"kez", "i", "1", "b"}, {"key", "j", "1", "b"}, {"key", "i", "2", "b"}, {"key", "i", "1", "c"}} {
		seen[Signature([]byte(parts[0]), parts[1], parts[2], []byte(parts[3]))] = true
	}
	require.Len(t, seen, 5)
}

// Which answers are success, which are tried again, and which are final.
func TestSend_answers(t *testing.T) {
	for _, c := range []struct {
		code       int
		retryOn    []int32
		good, once bool
	}{
		{code: 200, good: true}, {code: 204, good: true}, {code: 299, good: true},
		{code: 408}, {code: 429}, {code: 500}, {code: 503}, {code: 599},
		{code: 400, once: true}, {code: 401, once: true}, {code: 404, once: true}, {code: 409, once: true}, {code: 422, once: true},
		{code: 301, once: true}, {code: 302, once: true}, {code: 307, once: true}, {code: 304, once: true},
		{code: 404, retryOn: []int32{404}}, {code: 503, retryOn: []int32{404}, once: true}, {code: 302, retryOn: []int32{302}, once: true},
	} {
		hits := 0
		sender, base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			hits++
			w.Header().Set("Location", "http://[::1/"+sentinel+"%zz")
			w.Header().Set("X-Answer", sentinel)
			w.WriteHeader(c.code)
			fmt.Fprint(w, sentinel)
		})
		answer := sender.Send(t.Context(), release.HookRequest{Method: "POST", URL: base + "/hook?token=" + sentinel, RetryOn: c.retryOn})
		require.Equal(t, []bool{c.good, !c.good && !c.once}, []bool{answer.Succeeded, answer.Again}, "%d %v", c.code, c.retryOn)
		require.Contains(t, answer.Message, fmt.Sprintf("POST %s/hook answers HTTP %d", base, c.code))
		require.Equal(t, c.code >= 300 && c.code < 400, strings.Contains(answer.Message, "redirects are not followed"))
		require.Equal(t, 1, hits)
		quiet(t, answer)
	}
}

func TestSend_Retry_After(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-1": 0, "soon": 0, "99999999999": 0,
		"Thu, 01 Jan 2026 12:00:09 GMT": 9 * time.Second, "Thu, 01 Jan 2026 11:00:00 GMT": 0,
	} {
		sender, base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", header)
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		sender.now = func() time.Time { return now }
		require.Equal(t, want, sender.Send(t.Context(), release.HookRequest{Method: "POST", URL: base}).After, header)
	}
}

// D10: no answer at all is tried again, and says nothing about what was sent or came back.
func TestSend_D10_no_answer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	answers := []string{"", "I am not HTTP " + sentinel + "\r\n\r\n", "HTTP/1.1 200 OK\r\n" + sentinel + "\r\n\r\n", "HTTP/1.1 " + sentinel + "\r\n\r\n"}
	go func() {
		for i := 0; ; i++ {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = connection.Read(make([]byte, 4096))
			_, _ = io.WriteString(connection, answers[i%len(answers)])
			_ = connection.Close()
		}
	}()
	hosts := []string{"nothing.invalid", "127.0.0.1:1"}
	for range answers {
		hosts = append(hosts, listener.Addr().String())
	}
	for _, host := range hosts {
		answer := New(true).Send(t.Context(), release.HookRequest{
			Method: "POST", URL: "http://robot:" + sentinel + "@" + host + "/?" + sentinel, Headers: map[string]string{"A": sentinel},
			Body: []byte(sentinel), Key: []byte(sentinel), IdempotencyKey: "i",
		})
		require.True(t, answer.Again, answer.Message)
		require.Contains(t, answer.Message, "POST http://"+host+"/")
		quiet(t, answer)
	}
}

// A receiver that does not answer holds the sender no longer than the request's bound, nor does one that never ends.
func TestSend_timeout(t *testing.T) {
	done := make(chan struct{})
	sender, base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/endless" {
			w.WriteHeader(http.StatusOK)
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 32<<10)); err != nil {
					return
				}
			}
			return
		}
		<-done
	})
	t.Cleanup(func() { close(done) })
	answer := sender.Send(t.Context(), release.HookRequest{Method: "POST", URL: base, Timeout: 50 * time.Millisecond})
	require.Equal(t, release.HookAnswer{Again: true, Message: "POST " + base + " did not answer in time"}, answer)
	require.True(t, sender.Send(t.Context(), release.HookRequest{Method: "POST", URL: base + "/endless"}).Succeeded)
}

// D32: a hook leads to no local address, unless the operator allows it.
func TestSend_D32_refuses_local_addresses(t *testing.T) {
	hit := false
	_, base := serve(t, func(http.ResponseWriter, *http.Request) { hit = true })
	answer := New(false).Send(t.Context(), release.HookRequest{Method: "POST", URL: base})
	require.Equal(t, release.HookAnswer{Message: "POST " + base + " leads to 127.0.0.1, a loopback address: the operator has to allow that"}, answer)
	require.False(t, hit)
}

// D16: no request starts once the guard says no.
func TestSend_D16_asks_the_guard(t *testing.T) {
	hit := false
	sender, base := serve(t, func(http.ResponseWriter, *http.Request) { hit = true })
	ctx := release.WithGuard(t.Context(), func() error { return errors.New("no lease") })
	require.True(t, sender.Send(ctx, release.HookRequest{Method: "POST", URL: base}).Again)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	require.True(t, sender.Send(cancelled, release.HookRequest{Method: "POST", URL: base}).Again)
	require.False(t, hit)
}

// What cannot be sent is refused before anything is.
func TestSend_refuses_what_cannot_be_sent(t *testing.T) {
	hit := false
	sender, base := serve(t, func(http.ResponseWriter, *http.Request) { hit = true })
	for name, value := range map[string]string{
		"": "", "a b": "", "a:": "", "Host": "x", "content-length": "1", "Connection": "close", "transfer-encoding": "chunked", "upgrade": "h2c",
		"idempotency-key": "x", "x-convoy-signature": "x", "Proxy-Authorization": "x", "X-A": sentinel + "\r\nX-B: 1", "X-B": sentinel + "\x00",
	} {
		answer := sender.Send(t.Context(), release.HookRequest{Method: "POST", URL: base, Headers: map[string]string{name: value}})
		require.Equal(t, []bool{false, false}, []bool{answer.Succeeded, answer.Again}, name)
		require.Contains(t, answer.Message, "its header", name)
		quiet(t, answer)
	}
	for _, target := range []string{"ftp://robot:" + sentinel + "@host/", "http://robot:" + sentinel + "@/", "http://[::1/" + sentinel, ":" + sentinel} {
		answer := sender.Send(t.Context(), release.HookRequest{Method: "POST", URL: target})
		require.Equal(t, release.HookAnswer{Message: "its url is not one of http or https"}, answer, target)
	}
	require.False(t, hit)
}
