// Command devstack starts a Kubernetes control plane and a Temporal server with its Web UI on this machine, prints
// where they are as one line of JSON, and ends them when it ends itself.
//
// It starts programs that dev/build has built; `go run -C dev/build . up` does both.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"convoy.dev/convoy/dev/stack/shell"
)

func main() {
	opts, err := parseOptions(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case err != nil:
		fmt.Fprintln(os.Stderr, "devstack:", err)
		os.Exit(2)
	}
	if err := run(opts); err != nil {
		fmt.Fprintln(os.Stderr, "devstack:", err)
		os.Exit(1)
	}
}

// run starts the stack and keeps it until it is told to end or a part of it ends.
func run(opts options) error {
	ctx, cancel := untilStopped(opts.stdin)
	defer cancel()

	stack, err := start(ctx, opts)
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("stopped during the start: %w", context.Cause(ctx))
		}
		return err
	}
	defer stack.stop()
	if err := publish(stack.endpoints, opts.endpoints); err != nil {
		return err
	}
	if !opts.stdin { // otherwise a program has started the stack, and reads the line of JSON
		fmt.Fprint(os.Stderr, stack.endpoints.greeting())
	}
	if opts.endpoints != "" {
		defer func() { _ = os.Remove(opts.endpoints) }()
	}
	select {
	case <-ctx.Done():
		fmt.Fprintln(os.Stderr, "devstack: ending:", context.Cause(ctx))
		return nil
	case err := <-stack.failed:
		return err
	}
}

// untilStopped returns a context that ends with the first signal, or with the standard input when that is watched. A
// second signal ends the process at once.
func untilStopped(stdin bool) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		received := <-signals
		signal.Stop(signals)
		cancel(fmt.Errorf("got signal %q", received))
	}()
	if stdin {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // an error is an end too
			cancel(errors.New("the standard input was closed"))
		}()
	}
	return ctx, func() { cancel(nil) }
}

// endpoints tells where the parts of the stack are. dev/README.md explains the fields; tests rely on them.
type endpoints struct {
	Kubeconfig      string `json:"kubeconfig"`
	Kubectl         string `json:"kubectl"`
	Temporal        string `json:"temporal"`
	TemporalAddress string `json:"temporalAddress"`
	UIURL           string `json:"uiURL"`
	LogDir          string `json:"logDir"`
	AuditLog        string `json:"auditLog"`
	BinDir          string `json:"binDir"`
	PID             int    `json:"pid"`
}

// greeting is for the person who started the stack.
func (e endpoints) greeting() string {
	return shell.Greeting(shell.Stack{Kubeconfig: e.Kubeconfig, TemporalAddress: e.TemporalAddress, UIURL: e.UIURL, BinDir: e.BinDir})
}

// publish prints the endpoints and writes them to the file, when one is given, whole or not at all.
func publish(e endpoints, file string) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if file != "" {
		work := filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".new")
		if err := os.WriteFile(work, line, 0o644); err != nil {
			return fmt.Errorf("write the endpoints: %w", err)
		}
		if err := os.Rename(work, file); err != nil {
			return fmt.Errorf("write the endpoints: %w", err)
		}
	}
	_, err = os.Stdout.Write(line)
	return err
}
