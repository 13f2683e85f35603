package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/internal/control"
	"convoy.dev/convoy/internal/hooks"
	"convoy.dev/convoy/internal/k8s"
	"convoy.dev/convoy/internal/loops"
	"convoy.dev/convoy/internal/renderstore"
	"convoy.dev/convoy/internal/source"
	"convoy.dev/convoy/workflows"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"k8s.io/client-go/rest"
)

// convoyWorker is a wired worker.
type convoyWorker struct {
	cfg    config
	log    *slog.Logger
	client client.Client
	store  *renderstore.Store
	worker sdkworker.Worker
	// control is the connection to the control cluster, for the watch and the HTTP endpoint; releases reads there.
	control  *rest.Config
	releases *control.Client
	runs     runs
	fatal    chan error
	ready    atomic.Bool
}

// activitySlots is how many activities a worker runs at a time.
const activitySlots = 100

// newWorker wires adapters, activities and workflows. It dials Temporal, so it fails when that cannot be reached.
func newWorker(ctx context.Context, cfg config, logger *slog.Logger) (*convoyWorker, error) {
	w := &convoyWorker{cfg: cfg, log: logger, fatal: make(chan error, 1)}
	var err error
	if w.control, err = cfg.controlCluster(); err != nil {
		return nil, err
	}
	if w.releases, err = control.New(w.control); err != nil {
		return nil, err
	}
	if cfg.renderStoreURL != "" {
		if w.store, err = renderstore.Open(ctx, cfg.renderStoreURL); err != nil {
			return nil, err
		}
	}
	if w.client, err = cfg.dial(ctx, logger); err != nil {
		w.close()
		return nil, err
	}
	temporal, err := cfg.temporal()
	if err != nil {
		return nil, err
	}
	w.runs = runs{client: w.client, namespace: cmp.Or(temporal.Namespace, client.DefaultNamespace), searchable: &searchable{}}
	options := activities.Options{
		Control: w.releases,
		Targets: targets{pool: k8s.NewPool(), control: w.releases, serviceAccount: cfg.serviceAccount},
		Source:  sources{source.New(source.Options{PathRoots: cfg.pathRoots, AllowLocalURLs: cfg.allowLocalURLs})},
		Runs:    w.runs,
		Hooks:   hooks.New(cfg.allowLocalURLs),
		Log:     logger,

		PerCluster: cfg.perCluster,
		Slots:      activitySlots,
		StuckAfter: cfg.stuckAfter,
	}
	if w.store != nil {
		options.Store = w.store
	}
	sdkworker.SetStickyWorkflowCacheSize(cfg.workflowCache)
	w.worker = sdkworker.New(w.client, cfg.taskQueue, w.options())
	register(w.worker, &workflows.Workflows{HeartbeatTimeout: cfg.heartbeatTimeout, MaxLoopEvents: cfg.loopHistoryEvents}, activities.New(options))
	return w, nil
}

// register makes the workflows and activities known under the names of SPEC 4.
func register(registry sdkworker.Registry, w *workflows.Workflows, a *activities.Activities) {
	for name, run := range map[string]any{
		"ReleaseWorkflow": w.ReleaseWorkflow, "SyncWorkflow": w.SyncWorkflow, "DeleteWorkflow": w.DeleteWorkflow,
	} {
		registry.RegisterWorkflowWithOptions(run, workflow.RegisterOptions{Name: name, VersioningBehavior: workflow.VersioningBehaviorPinned})
	}
	registry.RegisterActivity(a)
}

// options of the SDK's worker. Its default of two pollers for each kind of task lets workflow tasks wait for a poller
// as soon as the server is busy: everybody's, whoever made it busy. An idle poller costs next to nothing.
func (w *convoyWorker) options() sdkworker.Options {
	pollers := sdkworker.NewPollerBehaviorAutoscaling(sdkworker.PollerBehaviorAutoscalingOptions{
		InitialNumberOfPollers: 10, MinimumNumberOfPollers: 5, MaximumNumberOfPollers: 100,
	})
	return sdkworker.Options{
		DeploymentOptions:                      w.cfg.deployment,
		WorkflowTaskPollerBehavior:             pollers,
		ActivityTaskPollerBehavior:             pollers,
		MaxConcurrentActivityExecutionSize:     activitySlots,
		MaxConcurrentWorkflowTaskExecutionSize: 200,
		MaxHeartbeatThrottleInterval:           w.cfg.heartbeatTimeout / 4,
		DefaultHeartbeatThrottleInterval:       w.cfg.heartbeatTimeout / 4,
		WorkerStopTimeout:                      w.cfg.stopTimeout,
		OnFatalError: func(err error) {
			select {
			case w.fatal <- err:
			default:
			}
		},
	}
}

// dial connects to Temporal.
func (c config) dial(ctx context.Context, logger *slog.Logger) (client.Client, error) {
	options, err := c.temporal()
	if err != nil {
		return nil, err
	}
	options.Logger = log.NewStructuredLogger(logger)
	if options.Identity == "" {
		host, _ := os.Hostname()
		options.Identity = fmt.Sprintf("convoy-worker@%s/%d", host, os.Getpid())
	}
	dialCtx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c1, err := client.DialContext(dialCtx, options)
	if err != nil {
		return nil, fmt.Errorf("temporal at %s: %w; name it with --temporal-address or TEMPORAL_ADDRESS, and give TLS and the key by TEMPORAL_TLS_… and TEMPORAL_API_KEY", options.HostPort, err)
	}
	return c1, nil
}

// checkAttributes says what Temporal does not know: convoy works without it, and syncs are found by their id only.
func (w *convoyWorker) checkAttributes(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	missing, err := w.runs.missingAttributes(ctx)
	switch {
	case err != nil:
		w.log.Info("search attributes of Temporal cannot be read: syncs go without them", "error", err)
	case len(missing) > 0:
		w.log.Info("Temporal does not know all search attributes: syncs go without them until `convoy install` has registered them",
			"missing", strings.Join(missing, ", "))
	}
}

// run serves until ctx ends, then lets running steps stop.
func (w *convoyWorker) run(ctx context.Context) error {
	stopHTTP, err := w.serveHTTP()
	if err != nil {
		return err
	}
	defer stopHTTP()
	if err := w.worker.Start(); err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	if w.cfg.watch {
		watching := rest.CopyConfig(w.control)
		watching.QPS, watching.UserAgent = -1, "convoy-watch"
		go keepWatching(ctx, watching, w.cfg.watchNamespace, w.loops(), w.log)
	}
	w.checkAttributes(ctx)
	w.ready.Store(true)
	w.log.Info("worker started", "taskQueue", w.cfg.taskQueue)
	select {
	case <-ctx.Done():
		w.ready.Store(false)
		w.log.Info("worker stopping")
		w.worker.Stop()
		return nil
	case err := <-w.fatal:
		return fmt.Errorf("the worker cannot go on: %w", err)
	}
}

// loops reaches the loops of Releases, for the watch and the HTTP endpoint.
func (w *convoyWorker) loops() loops.Loops {
	return loops.Loops{Client: w.client, TaskQueue: w.cfg.taskQueue, MaxEvents: w.cfg.loopHistoryEvents}
}

func (w *convoyWorker) close() {
	if w.client != nil {
		w.client.Close()
	}
	if w.store != nil {
		_ = w.store.Close()
	}
}
