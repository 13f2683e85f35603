package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"convoy.dev/convoy/internal/endpoint"
)

// Bounds of what a caller may keep open or send, before anybody knows who he is.
const (
	readFor        = 10 * time.Second
	answerFor      = 45 * time.Second
	maxHeaderBytes = 64 << 10
)

// serveHTTP serves what the worker answers on --listen-address: its health, and requests for syncs (SPEC 4).
func (w *convoyWorker) serveHTTP() (stop func(), err error) {
	if w.cfg.listenAddress == "" {
		return func() {}, nil
	}
	requests, err := w.endpoint()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", w.cfg.listenAddress)
	if err != nil {
		return nil, fmt.Errorf("--listen-address: %w; name a free address, or an empty one for none", err)
	}
	mux := http.NewServeMux()
	w.health(mux)
	mux.Handle("/", requests)
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: readFor, WriteTimeout: answerFor, MaxHeaderBytes: maxHeaderBytes,
	}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			w.log.Error("http endpoint", "error", err)
		}
	}()
	w.log.Info("http endpoint", "address", listener.Addr().String())
	return func() { _ = server.Close() }, nil
}

func (w *convoyWorker) endpoint() (http.Handler, error) {
	gate, err := endpoint.NewGate(w.control)
	if err != nil {
		return nil, err
	}
	return endpoint.New(gate, w.releases, w.loops(), w.log), nil
}

// health answers /healthz while the process lives and /readyz while it takes work. Liveness is not tied to Temporal:
// restarting a worker does not bring Temporal back.
func (w *convoyWorker) health(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprintln(rw, "ok") })
	mux.HandleFunc("GET /readyz", func(rw http.ResponseWriter, _ *http.Request) {
		if !w.ready.Load() {
			http.Error(rw, "not taking work", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(rw, "ok")
	})
}
