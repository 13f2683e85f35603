// Command worker runs convoy's workflows and activities: it wires the adapters to the activities, and does nothing
// else.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Getenv)
	stop()
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// run is the program: it ends when ctx does, or when the worker cannot go on.
func run(ctx context.Context, args []string, env func(string) string) error {
	cfg, err := readConfig(args, env)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: cfg.logLevel}))
	ctrllog.SetLogger(logr.FromSlogHandler(log.Handler()))
	w, err := newWorker(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer w.close()
	return w.run(ctx)
}
