// Command starter, installed as convoy, is what people type: it installs what convoy needs, starts and follows syncs,
// and shows what convoy did and would do. It holds no rules of its own: order is in workflows, rules are in
// internal/release, and what the next sync would do is in internal/preview.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ())
	stop()
	os.Exit(code)
}
