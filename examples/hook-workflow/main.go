// Command hook-workflow is a worker that serves one workflow for hooks of convoy: Smoke asks a URL until it answers 200.
// It knows nothing of convoy but the JSON that a workflow hook gets.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// Hook is what convoy gives the workflow, as far as Smoke needs it; docs/hooks.md lists all of it.
type Hook struct {
	Release struct{ Namespace, Name string }
	Digest  string
	Input   struct{ URL string } // the hook's own input
}

// Smoke succeeds once the URL answers 200. The hook's timeout in the Release bounds how long it tries.
func Smoke(ctx workflow.Context, hook Hook) (string, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 10 * time.Second,
		Summary:             fmt.Sprintf("ask %s/%s", hook.Release.Namespace, hook.Release.Name),
	})
	err := workflow.ExecuteActivity(ctx, Ask, hook.Input.URL).Get(ctx, nil)
	return "render " + hook.Digest + " answers", err
}

// Ask asks once; Temporal tries it again.
func Ask(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the shop answers %s", answer.Status)
	}
	return nil
}

func run() error {
	options, err := envconfig.LoadDefaultClientOptions() // TEMPORAL_ADDRESS and its kin
	if err != nil {
		return err
	}
	temporal, err := client.Dial(options)
	if err != nil {
		return err
	}
	defer temporal.Close()
	queue := "smoke-tests"
	if len(os.Args) > 1 {
		queue = os.Args[1]
	}
	w := worker.New(temporal, queue, worker.Options{})
	w.RegisterWorkflow(Smoke)
	w.RegisterActivity(Ask)
	return w.Run(worker.InterruptCh())
}

func main() {
	if err := run(); err != nil {
		slog.Error("the worker ends", "error", err)
		os.Exit(1)
	}
}
