package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"convoy.dev/convoy/internal/envflag"

	"github.com/spf13/pflag"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	sdkworker "go.temporal.io/sdk/worker"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// config is what flags and environment say. Every flag has a twin in the environment: CONVOY_ and the flag's name in
// capitals with underscores. The flag wins.
type config struct {
	kubeconfig        string
	temporalAddress   string
	temporalNamespace string
	taskQueue         string
	renderStoreURL    string
	pathRoots         []string
	allowLocalURLs    bool
	heartbeatTimeout  time.Duration
	listenAddress     string
	loopHistoryEvents int
	workflowCache     int
	perCluster        int
	stuckAfter        time.Duration
	serviceAccount    string
	watch             bool
	deployment        sdkworker.DeploymentOptions
	watchNamespace    string
	stopTimeout       time.Duration
	logLevel          slog.Level
}

// minLoopEvents lets a loop get something done in each of its runs.
const minLoopEvents = 50

// readConfig reads flags and environment, and reports everything that is wrong with them at once.
func readConfig(args []string, env func(string) string) (config, error) {
	var cfg config
	var level string
	flags := pflag.NewFlagSet("worker", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.StringVar(&cfg.kubeconfig, "kubeconfig", "", "kubeconfig of the control cluster, which holds the Releases; default: KUBECONFIG, else in-cluster")
	flags.StringVar(&cfg.temporalAddress, "temporal-address", "", "host:port of Temporal; default: TEMPORAL_ADDRESS or the Temporal profile file, which also give TLS and the API key")
	flags.StringVar(&cfg.temporalNamespace, "temporal-namespace", "", "Temporal namespace; default: TEMPORAL_NAMESPACE, else default")
	flags.StringVar(&cfg.taskQueue, "task-queue", "convoy", "task queue to serve")
	flags.StringVar(&cfg.renderStoreURL, "render-store-url", "", "bucket that keeps every render before it is applied: file:///dir, s3://, gs://, azblob://; default: none")
	flags.StringArrayVar(&cfg.pathRoots, "path-root", nil, "directory that path sources may lie below; repeatable (in the environment: separated by colons); default: no path sources")
	flags.BoolVar(&cfg.allowLocalURLs, "allow-local-urls", false, "let url sources and http hooks lead to loopback, link-local and metadata addresses")
	flags.StringVar(&cfg.serviceAccount, "default-service-account", "", "ServiceAccount, in the Release's namespace, that Releases without serviceAccountName act as; default: none, they act with the Cluster's identity")
	flags.DurationVar(&cfg.heartbeatTimeout, "heartbeat-timeout", 12*time.Second, "how long a worker may be silent before its step goes to another one")
	flags.BoolVar(&cfg.watch, "watch", true, "watch the Releases, and start and wake their loops; several workers may")
	flags.StringVar(&cfg.watchNamespace, "watch-namespace", "", "Kubernetes namespace whose Releases are watched; default: all")
	flags.IntVar(&cfg.perCluster, "max-activities-per-cluster", 25, "how many activities may work on one target cluster at a time, so that a dead one leaves slots for the others")
	flags.DurationVar(&cfg.stuckAfter, "stuck-after", 30*time.Minute, "how long a wave may wait for health before its Release counts as stuck: condition Stalled, an event")
	flags.IntVar(&cfg.workflowCache, "workflow-cache", 10_000, "how many workflows are kept in memory, about 60 KB each; one that is not has to be replayed for each step. 0: none")
	flags.IntVar(&cfg.loopHistoryEvents, "loop-history-events", 2000, "length of its history, in events, at which the loop of a Release continues as new")
	flags.StringVar(&cfg.listenAddress, "listen-address", ":8080", "address of /healthz, /readyz and the sync endpoint; empty: none. A second worker on a machine needs another one")
	flags.DurationVar(&cfg.stopTimeout, "stop-timeout", 25*time.Second, "how long running steps may take to stop after SIGTERM")
	flags.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	flags.Usage = func() { usage(flags) }
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	errs := envflag.Set(flags, env)
	if err := cfg.logLevel.UnmarshalText([]byte(level)); err != nil {
		errs = append(errs, fmt.Errorf("--log-level %q: use debug, info, warn or error", level))
	}
	var err error
	if cfg.deployment, err = deployment(env); err != nil {
		errs = append(errs, err)
	}
	if cfg.heartbeatTimeout < time.Second {
		errs = append(errs, fmt.Errorf("--heartbeat-timeout %s: use at least 1s", cfg.heartbeatTimeout))
	}
	if cfg.stuckAfter < time.Second {
		errs = append(errs, fmt.Errorf("--stuck-after %s: use at least 1s", cfg.stuckAfter))
	}
	if cfg.loopHistoryEvents < minLoopEvents || cfg.perCluster < 1 {
		errs = append(errs, fmt.Errorf("--loop-history-events %d and --max-activities-per-cluster %d: use at least %d and 1",
			cfg.loopHistoryEvents, cfg.perCluster, minLoopEvents))
	}
	if flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q: see --help", flags.Arg(0)))
	}
	return cfg, errors.Join(errs...)
}

// deployment reads the version that this worker serves, in the variables that Temporal's worker controller sets: with
// both, workflows are pinned to the version they began with, and a loop moves to the current one when it continues as
// new. Without them workers are not versioned, and a change of the workflows needs workflow.GetVersion.
func deployment(env func(string) string) (sdkworker.DeploymentOptions, error) {
	const nameVariable, buildVariable = "TEMPORAL_DEPLOYMENT_NAME", "TEMPORAL_WORKER_BUILD_ID"
	version := sdkworker.WorkerDeploymentVersion{DeploymentName: env(nameVariable), BuildID: env(buildVariable)}
	switch {
	case version.DeploymentName == "" && version.BuildID == "":
		return sdkworker.DeploymentOptions{}, nil
	case version.DeploymentName == "" || version.BuildID == "":
		return sdkworker.DeploymentOptions{}, fmt.Errorf("%s=%q and %s=%q: set both for a versioned worker, or neither",
			nameVariable, version.DeploymentName, buildVariable, version.BuildID)
	}
	return sdkworker.DeploymentOptions{UseVersioning: true, Version: version}, nil
}

func usage(flags *pflag.FlagSet) {
	fmt.Fprintf(os.Stderr, `worker runs convoy's workflows and activities.

Usage: worker [flags]

Each flag has a twin in the environment: --task-queue is CONVOY_TASK_QUEUE.

%s`, flags.FlagUsages())
}

// controlCluster is the connection to the cluster that holds the Releases.
func (c config) controlCluster() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("control cluster: there is no kubeconfig; name one with --kubeconfig or KUBECONFIG, or run in a cluster")
	}
	if err != nil {
		return nil, fmt.Errorf("control cluster: %w; name a kubeconfig with --kubeconfig or KUBECONFIG, or run in a cluster", err)
	}
	return cfg, nil
}

// temporal is the connection to Temporal: the SDK's environment and profile file (address, namespace, TLS, API key),
// with the flags over it.
func (c config) temporal() (client.Options, error) {
	options, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return options, fmt.Errorf("temporal: %w", err)
	}
	if c.temporalAddress != "" {
		options.HostPort = c.temporalAddress
	}
	if c.temporalNamespace != "" {
		options.Namespace = c.temporalNamespace
	}
	if options.HostPort == "" { // said here so that errors name it
		options.HostPort = client.DefaultHostPort
	}
	return options, nil
}
