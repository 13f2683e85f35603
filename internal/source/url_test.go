package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"convoy.dev/convoy/api/v1alpha1"
)

func get(t *testing.T, options Options, target string) (Result, error) {
	t.Helper()
	return New(options).Fetch(t.Context(), v1alpha1.Source{URL: &target})
}

var local = Options{AllowLocalURLs: true}

func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// The ETag is the revision, strong or weak, else Last-Modified, else a hash.
func TestURLRevision(t *testing.T) {
	for _, c := range []struct{ header, value, want string }{
		{"ETag", `"abc"`, `^"abc"$`},
		{"ETag", `W/"abc"`, `^W/"abc"$`},
		{"Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT", "^Thu, 01 Jan 2026"},
		{"X-Nothing", "", "^url:[0-9a-f]{16}$"},
		{"ETag", strings.Repeat("x", 500), "^url:[0-9a-f]{16}$"},
	} {
		base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(c.header, c.value)
			fmt.Fprint(w, "a: 1")
		})
		r, err := get(t, local, base+"/shop.yaml?token=hush")
		require.NoError(t, err)
		require.Regexp(t, c.want, r.Revision)
		require.Equal(t, "a: 1", string(r.Files[0].Data))
		require.Equal(t, base+"/shop.yaml", r.Files[0].Name, "no query")
	}
}

// D1: which answers may pass, and which are the user's to mend.
func TestURLStatus(t *testing.T) {
	for code, retryable := range map[int]bool{
		500: true, 502: true, 503: true, 504: true, 408: true, 425: true, 429: true, 206: true,
		400: false, 401: false, 403: false, 404: false, 410: false, 204: false, 300: false, 304: false,
	} {
		base := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
		_, err := get(t, local, base)
		require.ErrorContains(t, err, fmt.Sprintf("HTTP %d", code))
		require.Equal(t, retryable, IsRetryable(err), code)
	}
}

// raw answers each connection with the bytes and closes it.
func raw(t *testing.T, answer string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = connection.Read(make([]byte, 4096))
			_, _ = io.WriteString(connection, answer)
			_ = connection.Close()
		}
	}()
	return "http://" + listener.Addr().String()
}

// D32: a url source must arrive whole.
func TestIncompleteAnswersAreRetried(t *testing.T) {
	for name, answer := range map[string]string{
		"cut off":             "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\na: 1\n",
		"cut off in a chunk":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\na: 1\n",
		"no last chunk":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na: 1\r\n",
		"no length":           "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\na: 1\n",
		"no length, HTTP 1.0": "HTTP/1.0 200 OK\r\n\r\na: 1\n",
		"no answer":           "",
		"a part":              "HTTP/1.1 206 Partial Content\r\nContent-Length: 4\r\n\r\na: 1",
	} {
		_, err := get(t, local, raw(t, answer))
		require.Error(t, err, name)
		require.True(t, IsRetryable(err), name)
	}
	r, err := get(t, local, raw(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na: 1\r\n0\r\n\r\n"))
	require.NoError(t, err)
	require.Equal(t, "a: 1", string(r.Files[0].Data))
}

func TestUnaskedCompressionIsRefused(t *testing.T) {
	_, err := get(t, local, raw(t, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd"))
	require.ErrorContains(t, err, "content encoding")
	require.False(t, IsRetryable(err))
}

func TestURLSizeLimit(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"with a length": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", 101)) },
		"in chunks": func(w http.ResponseWriter, _ *http.Request) {
			for range 101 {
				fmt.Fprint(w, "x")
				w.(http.Flusher).Flush()
			}
		},
	} {
		_, err := get(t, Options{AllowLocalURLs: true, MaxBytes: 100}, serve(t, handler))
		require.ErrorContains(t, err, "100", name)
		require.False(t, IsRetryable(err), name)
	}
}

func TestURLTimeout(t *testing.T) {
	release := make(chan struct{})
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late-body" {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "a")
			w.(http.Flusher).Flush()
		}
		<-release
	})
	t.Cleanup(func() { close(release) })
	for _, path := range []string{"/late", "/late-body"} {
		_, err := get(t, Options{AllowLocalURLs: true, Timeout: 50 * time.Millisecond}, base+path)
		require.ErrorContains(t, err, "in time")
		require.True(t, IsRetryable(err))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
}

// D32: loopback and its kin are refused at the connection, whatever name or redirect leads there.
func TestLocalAddressesAreRefused(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "secret: 1") })
	port := base[strings.LastIndex(base, ":")+1:]
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]", "127.1.2.3", "0177.0.0.1.invalid"} {
		_, err := get(t, Options{}, "http://"+host+":"+port+"/x?token=hush")
		require.Error(t, err, host)
		require.NotContains(t, err.Error(), "hush")
		if refused := (*Error)(nil); errors.As(err, &refused) && !refused.Retryable {
			require.ErrorContains(t, err, "the operator has to allow that", host)
		}
	}
	_, err := get(t, Options{}, base)
	require.EqualError(t, err, base+" leads to 127.0.0.1, a loopback address: the operator has to allow that")
	require.False(t, IsRetryable(err))
}

func TestRedirects(t *testing.T) {
	hops := 0
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/loop":
			hops++
			http.Redirect(w, r, "/loop?token=hush", http.StatusFound)
		case "/once":
			http.Redirect(w, r, "/x", http.StatusFound)
		case "/file":
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
		case "/broken":
			w.Header().Set("Location", "http://u:hush@[::1/%zz")
			w.WriteHeader(http.StatusFound)
		default:
			fmt.Fprint(w, "a: 1")
		}
	})
	_, err := get(t, local, base+"/once")
	require.NoError(t, err)
	_, err = get(t, local, base+"/loop")
	require.ErrorContains(t, err, "more than 5 times")
	require.Equal(t, 6, hops)
	require.False(t, IsRetryable(err))
	_, err = get(t, local, base+"/file")
	require.ErrorContains(t, err, "something else than http")
	_, err = get(t, local, base+"/broken")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hush")

	secure, plain := &http.Request{URL: &url.URL{Scheme: "https"}}, &http.Request{URL: &url.URL{Scheme: "http"}}
	require.ErrorContains(t, checkRedirect(plain, []*http.Request{secure}), "from https to http")
	require.NoError(t, checkRedirect(secure, []*http.Request{plain}))
}

// D10: neither user nor password nor query of a URL is ever shown.
func TestCredentialsAreNeverShown(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != "robot" || password != "hush" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		if r.URL.Path == "/ok" {
			fmt.Fprint(w, "a: 1")
			return
		}
		w.WriteHeader(http.StatusForbidden)
	})
	host := strings.TrimPrefix(base, "http://")
	r, err := get(t, local, "http://robot:hush@"+host+"/ok?sig=hush#hush")
	require.NoError(t, err)
	require.NotContains(t, r.Files[0].Name, "hush")
	for _, target := range []string{
		"http://robot:hush@" + host + "/forbidden?sig=hush",
		"http://robot:hush@127.0.0.1:1/?sig=hush",
		"http://robot:hush@nothing.invalid/?sig=hush",
		"http://robot:hush@[::1/?sig=hush",
		"http://robot:hush@/?sig=hush",
		"ftp://robot:hush@host/",
		"://hush",
	} {
		_, err := get(t, local, target)
		require.Error(t, err, target)
		require.NotContains(t, err.Error(), "hush")
		require.NotContains(t, err.Error(), "robot")
		if wrapped := errors.Unwrap(err); wrapped != nil {
			require.True(t, IsRetryable(err))
		}
	}
}

// A proxy would resolve names itself and undo the check of addresses.
func TestProxiesAreIgnored(t *testing.T) {
	proxied := false
	proxy := serve(t, func(http.ResponseWriter, *http.Request) { proxied = true })
	t.Setenv("HTTP_PROXY", proxy)
	t.Setenv("http_proxy", proxy)
	_, err := get(t, Options{Timeout: 2 * time.Second}, "http://nothing.invalid/")
	require.Error(t, err)
	require.True(t, IsRetryable(err))
	require.False(t, proxied)
}
