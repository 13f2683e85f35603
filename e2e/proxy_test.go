package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// proxy stands between one worker and the API server. It ends the worker's TLS with a certificate of its own, forwards
// as the administrator, and keeps every request in the order of arrival. Faults are functions that it calls around
// each request. An answer reaches the worker whole or not at all.
type proxy struct {
	kubeconfig string // for the worker
	url        string
	forward    http.RoundTripper
	target     *url.URL
	closing    chan struct{}

	mu     sync.Mutex
	calls  []*apiCall
	before func(*apiCall) bool
	after  func(*apiCall) bool
}

// apiCall is one request of the worker.
type apiCall struct {
	n      int // from 1, in the order of arrival
	method string
	path   string
	query  url.Values
	at     time.Time
	gone   <-chan struct{} // closed when the worker no longer waits for the answer
	refuse string          // a function before the request may set it: then this is the API server's 403
	code   int             // of the answer, 0 while there is none
}

func (c *apiCall) String() string {
	return fmt.Sprintf("%d: %s %s?%s → %d", c.n, c.method, c.path, c.query.Encode(), c.code)
}

// proxy starts a proxy for one worker.
func (w *world) proxy() *proxy {
	w.Helper()
	forward, err := rest.TransportFor(w.cfg)
	require.NoError(w, err)
	target, err := url.Parse(w.cfg.Host)
	require.NoError(w, err)
	p := &proxy{forward: forward, target: target, closing: make(chan struct{})}
	server := httptest.NewUnstartedServer(p)
	server.EnableHTTP2 = true // as the API server
	server.StartTLS()
	w.Cleanup(server.Close)
	w.Cleanup(func() { close(p.closing) })
	p.url = server.URL
	p.kubeconfig = filepath.Join(w.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["proxy"] = &clientcmdapi.Cluster{
		Server:                   server.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	config.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	config.CurrentContext = "proxy"
	require.NoError(w, clientcmd.WriteToFile(*config, p.kubeconfig))
	return p
}

// around sets the faults. before runs when a request has come and is not forwarded yet, after when its answer is here
// and the worker does not have it yet; either may be nil, may take its time, and cuts the request off by returning
// false. They run beside each other when requests do.
func (p *proxy) around(before, after func(*apiCall) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before, p.after = before, after
}

// ServeHTTP forwards one request. What the worker sent is forwarded even when the worker is gone: nobody can take back
// a request that has left.
func (p *proxy) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	call, before, after := p.arrived(r)
	if before != nil && !before(call) {
		panic(http.ErrAbortHandler)
	}
	if call.refuse != "" {
		status := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "thing", errors.New(call.refuse)).Status()
		status.APIVersion, status.Kind = "v1", "Status"
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(rw).Encode(status)
		return
	}
	answer, content, err := p.send(r, body) //nolint:bodyclose // send has read it whole and closed it
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadGateway)
		return
	}
	p.mu.Lock()
	call.code = answer.StatusCode
	p.mu.Unlock()
	if after != nil && !after(call) {
		panic(http.ErrAbortHandler)
	}
	for key, values := range answer.Header {
		rw.Header()[key] = values
	}
	rw.Header().Del("Content-Length")
	rw.WriteHeader(answer.StatusCode)
	_, _ = rw.Write(content)
}

func (p *proxy) arrived(r *http.Request) (call *apiCall, before, after func(*apiCall) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	call = &apiCall{
		n: len(p.calls) + 1, method: r.Method, path: r.URL.Path, query: r.URL.Query(), at: time.Now(), gone: r.Context().Done(),
	}
	p.calls = append(p.calls, call)
	return call, p.before, p.after
}

func (p *proxy) send(r *http.Request, body []byte) (*http.Response, []byte, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), patience)
	defer cancel()
	out := r.Clone(ctx)
	out.URL.Scheme, out.URL.Host, out.Host, out.RequestURI = p.target.Scheme, p.target.Host, p.target.Host, ""
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	out.Header.Del("Accept-Encoding") // the transport's own, so that it unpacks what it asked for
	answer, err := p.forward.RoundTrip(out)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	return answer, content, err
}

// list is a copy of the requests so far that match.
func (p *proxy) list(match func(*apiCall) bool) []apiCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []apiCall
	for _, call := range p.calls {
		if match == nil || match(call) {
			out = append(out, *call)
		}
	}
	return out
}

func (p *proxy) count(match func(*apiCall) bool) int { return len(p.list(match)) }

// hold is what stops one request before it is forwarded.
type hold struct {
	arrived chan *apiCall
	release func()
}

// holdNth holds the n-th request that matches until release is called; the others pass after a delay.
func (p *proxy) holdNth(n int, match func(*apiCall) bool, delay time.Duration) *hold {
	free := make(chan struct{})
	h := &hold{arrived: make(chan *apiCall, 1), release: sync.OnceFunc(func() { close(free) })}
	counted := counter(match)
	p.around(func(call *apiCall) bool {
		if counted(call) == n {
			h.arrived <- call
			select {
			case <-free:
			case <-p.closing:
			}
			return true
		}
		return p.pass(delay)
	}, nil)
	return h
}

// pass waits for the delay of a slow network.
func (p *proxy) pass(delay time.Duration) bool {
	select {
	case <-time.After(delay):
	case <-p.closing:
	}
	return true
}

// counter numbers the requests that match, from 1; it gives 0 to the others.
func counter(match func(*apiCall) bool) func(*apiCall) int {
	var mu sync.Mutex
	n := 0
	return func(call *apiCall) int {
		mu.Lock()
		defer mu.Unlock()
		if !match(call) {
			return 0
		}
		n++
		return n
	}
}

// isApply: an apply of convoy that is no dry run.
func isApply(call *apiCall) bool {
	return call.method == http.MethodPatch && call.query.Get("force") == "true" && call.query.Get("dryRun") == ""
}

// isApplyOf: an apply of the object of that name.
func isApplyOf(name string) func(*apiCall) bool {
	return func(call *apiCall) bool { return isApply(call) && strings.HasSuffix(call.path, "/"+name) }
}

func isDelete(call *apiCall) bool { return call.method == http.MethodDelete }

// take waits for something that comes through a channel.
func take[T any](w *world, what string, from <-chan T) T {
	w.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(patience):
		require.Fail(w, "never came: "+what)
		panic("unreachable")
	}
}

// link is a plain TCP proxy between one worker and Temporal, which can be cut and mended.
type link struct {
	address  string
	target   string
	listener net.Listener

	mu    sync.Mutex
	down  bool
	conns map[net.Conn]bool
}

// link starts one.
func (w *world) link() *link {
	w.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w, err)
	l := &link{address: listener.Addr().String(), target: w.info.TemporalAddress, listener: listener, conns: map[net.Conn]bool{}}
	go l.serve()
	w.Cleanup(func() {
		_ = listener.Close()
		l.cut()
	})
	return l
}

func (l *link) serve() {
	for {
		conn, err := l.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			go l.join(conn)
		}
	}
}

// join carries bytes both ways until either end closes, or the link is cut.
func (l *link) join(worker net.Conn) {
	defer worker.Close()
	temporal, err := net.Dial("tcp", l.target)
	if err != nil {
		return
	}
	defer temporal.Close()
	if !l.keep(worker, temporal) {
		return
	}
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{worker, temporal}, {temporal, worker}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			ended <- struct{}{}
		}()
	}
	<-ended
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, worker)
	delete(l.conns, temporal)
}

// keep remembers open connections, and says no while the link is cut.
func (l *link) keep(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return false
	}
	for _, conn := range conns {
		l.conns[conn] = true
	}
	return true
}

// cut closes every connection, and each new one at once.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for conn := range l.conns {
		_ = conn.Close()
		delete(l.conns, conn)
	}
}

// mend lets connections through again.
func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

// workerAt starts a worker for this test alone that reaches the API server through p and Temporal through l; either
// may be nil for the direct way. The world's syncs go to its queue from now on.
func (w *world) workerAt(p *proxy, l *link, args ...string) *workerProcess {
	w.Helper()
	if w.taskQueue == sharedQueue {
		w.taskQueue = "convoy-" + w.ns
	}
	kubeconfig, address := w.info.Kubeconfig, w.info.TemporalAddress
	if p != nil {
		kubeconfig = p.kubeconfig
	}
	if l != nil {
		address = l.address
	}
	process, err := startWorkerAt(kubeconfig, address, w.taskQueue, args...)
	require.NoError(w, err)
	w.Cleanup(process.stop)
	return process
}
