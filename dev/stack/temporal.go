package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	uiserver "github.com/temporalio/ui-server/v2/server"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	uioptions "github.com/temporalio/ui-server/v2/server/server_options"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/log/tag"
	"go.temporal.io/server/common/membership/static"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/schema/sqlite"
	"go.temporal.io/server/temporal"

	"convoy.dev/convoy/dev/stack/ports"
	"convoy.dev/convoy/dev/stack/ready"
)

// temporalNamespace is the only Temporal namespace of the stack. It exists before the server is reachable.
const temporalNamespace = "default"

// temporalOptions says how the Temporal server is started.
type temporalOptions struct {
	port         int    // frontend gRPC port
	uiPort       int    // Web UI port; 0 means no Web UI
	databaseFile string // SQLite file; empty means in memory
	logDir       string
}

// temporalServer is a Temporal server with its Web UI, both inside this process.
type temporalServer struct {
	server temporal.Server
	ui     *uiserver.Server
}

// startTemporal starts the server and returns once a client can use the namespace and the Web UI answers.
func startTemporal(ctx context.Context, opts temporalOptions) (*temporalServer, error) {
	logFile := filepath.Join(opts.logDir, "temporal.log")
	server, err := newTemporalServer(opts, logFile)
	if err != nil {
		return nil, fmt.Errorf("temporal server: %w (log: %s)", err, logFile)
	}
	if err := server.Start(); err != nil {
		return nil, fmt.Errorf("start temporal server: %w (log: %s)", err, logFile)
	}
	started := &temporalServer{server: server}
	if err := awaitNamespace(ctx, ports.Address(opts.port)); err != nil {
		started.Stop()
		return nil, fmt.Errorf("wait for the temporal server: %w (log: %s)", err, logFile)
	}
	if opts.uiPort != 0 {
		if err := started.startUI(ctx, opts); err != nil {
			started.Stop()
			return nil, fmt.Errorf("temporal web UI on port %d: %w", opts.uiPort, err)
		}
	}
	return started, nil
}

// Stop stops the Web UI, then the server.
func (s *temporalServer) Stop() {
	if s.ui != nil {
		s.ui.Stop()
	}
	_ = s.server.Stop() // nothing is left to do about it: the process ends next
}

func newTemporalServer(opts temporalOptions, logFile string) (temporal.Server, error) {
	conf, err := temporalConfig(opts)
	if err != nil {
		return nil, err
	}
	logger := fatalOnStderr{
		Logger:  log.NewZapLogger(log.BuildZapLogger(log.Config{Level: "info", OutputFile: logFile})),
		logFile: logFile,
	}
	authorizer, err := authorization.GetAuthorizerFromConfig(&conf.Global.Authorization)
	if err != nil {
		return nil, err
	}
	claimMapper, err := authorization.GetClaimMapperFromConfig(&conf.Global.Authorization, logger)
	if err != nil {
		return nil, err
	}
	hosts := map[primitives.ServiceName]static.Hosts{}
	for name, service := range conf.Services {
		hosts[primitives.ServiceName(name)] = static.SingleLocalHost(ports.Address(service.RPC.GRPCPort))
	}
	return temporal.NewServer(
		temporal.WithConfig(conf),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(hosts),
		temporal.WithLogger(logger),
		temporal.WithAuthorizer(authorizer),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return claimMapper }),
		temporal.WithDynamicConfigClient(dynamicConfig()),
	)
}

// dynamicConfig lifts the limits that are meant for a shared server. With the default of 20 polls a second each
// workflow task waits up to 50 ms for its queue.
func dynamicConfig() dynamicconfig.StaticClient {
	return dynamicconfig.StaticClient{
		dynamicconfig.ForceSearchAttributesCacheRefreshOnRead.Key():      true,
		dynamicconfig.FrontendPersistenceMaxQPS.Key():                    10000,
		dynamicconfig.HistoryPersistenceMaxQPS.Key():                     45000,
		dynamicconfig.HistoryCacheHostLevelMaxSize.Key():                 8096,
		dynamicconfig.FrontendMaxNamespaceVisibilityRPSPerInstance.Key(): 100,
		dynamicconfig.TransferProcessorMaxPollRPS.Key():                  2000,
		dynamicconfig.TimerProcessorMaxPollRPS.Key():                     2000,
		dynamicconfig.VisibilityProcessorMaxPollRPS.Key():                2000,
		dynamicconfig.WorkerCommandsEnabled.Key():                        true,
		dynamicconfig.EnableCancelActivityWorkerCommand.Key():            true,
	}
}

func temporalConfig(opts temporalOptions) (*config.Config, error) {
	const store, clusterName = "sqlite", "active"
	sql, err := sqliteStore(opts.databaseFile, clusterName)
	if err != nil {
		return nil, err
	}
	free, err := ports.Free(4)
	if err != nil {
		return nil, err
	}
	frontend := config.Service{RPC: config.RPC{GRPCPort: opts.port, HTTPPort: free[3], BindOnIP: ports.Host}}
	internal := func(port int) config.Service {
		return config.Service{RPC: config.RPC{GRPCPort: port, BindOnIP: ports.Host}}
	}

	conf := &config.Config{
		Persistence: config.Persistence{
			NumHistoryShards: 1,
			DefaultStore:     store,
			VisibilityStore:  store,
			DataStores:       map[string]config.DataStore{store: {SQL: sql}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        clusterName,
			CurrentClusterName:       clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{clusterName: {
				Enabled:                true,
				InitialFailoverVersion: 1,
				RPCAddress:             ports.Address(opts.port),
				HTTPAddress:            ports.Address(frontend.RPC.HTTPPort),
				ClusterID:              "4a1d3a0e-6d0f-4c1e-9f43-0c0ffee0dada",
			}},
		},
		Services: map[string]config.Service{
			string(primitives.FrontendService): frontend,
			string(primitives.HistoryService):  internal(free[0]),
			string(primitives.MatchingService): internal(free[1]),
			string(primitives.WorkerService):   internal(free[2]),
		},
	}
	conf.Global.Membership.MaxJoinDuration = 30 * time.Second
	conf.Global.Membership.BroadcastAddress = ports.Host
	conf.DCRedirectionPolicy.Policy = "noop"
	conf.Archival.History.State = "disabled"
	conf.Archival.Visibility.State = "disabled"
	conf.NamespaceDefaults.Archival.History.State = "disabled"
	conf.NamespaceDefaults.Archival.Visibility.State = "disabled"
	conf.PublicClient.HostPort = ports.Address(opts.port)
	return conf, nil
}

// sqliteStore prepares the database, with the namespace in it. A file gets the write-ahead log: SQLite's default
// journal was several times slower under load.
func sqliteStore(file, clusterName string) (*config.SQL, error) {
	store := &config.SQL{PluginName: sqliteplugin.PluginName}
	if file == "" {
		store.ConnectAttributes = map[string]string{"mode": "memory", "cache": "shared"}
		store.DatabaseName = strconv.Itoa(rand.IntN(1 << 30))
	} else {
		store.ConnectAttributes = map[string]string{"mode": "rwc", "journal_mode": "wal", "synchronous": "1"}
		store.DatabaseName = file
		if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
			if err := sqlite.SetupSchema(store); err != nil {
				return nil, fmt.Errorf("set up the schema in %s: %w", file, err)
			}
		}
	}
	namespace, err := sqlite.NewNamespaceConfig(clusterName, temporalNamespace, false, nil)
	if err != nil {
		return nil, err
	}
	if err := sqlite.CreateNamespaces(store, namespace); err != nil {
		return nil, fmt.Errorf("create namespace %s: %w", temporalNamespace, err)
	}
	return store, nil
}

// awaitNamespace returns once the server at address answers for the namespace.
func awaitNamespace(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c, err := client.NewLazyClient(client.Options{HostPort: address, Logger: quiet{}})
	if err != nil {
		return err
	}
	defer c.Close()
	return ready.Await(ctx, func(ctx context.Context) error {
		_, err := c.WorkflowService().DescribeNamespace(ctx,
			&workflowservice.DescribeNamespaceRequest{Namespace: temporalNamespace})
		return err
	})
}

// startUI starts the Web UI and returns once it answers. It fetches nothing from other hosts.
func (s *temporalServer) startUI(ctx context.Context, opts temporalOptions) error {
	ui := uiserver.NewServer(uioptions.WithConfigProvider(&uiconfig.Config{
		Host:                ports.Host,
		Port:                opts.uiPort,
		TemporalGRPCAddress: ports.Address(opts.port),
		EnableUI:            true,
		CORS:                uiconfig.CORS{CookieInsecure: true},
		HideLogs:            true,
		DisableNewsFetch:    true,
	}))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(ui.Start()) }()
	s.ui = ui
	return ready.Await(ctx, func(ctx context.Context) error {
		return ready.OK(ctx, http.DefaultClient, "http://"+ports.Address(opts.uiPort)+"/")
	})
}

// fatalOnStderr shows fatal messages to the person who started the stack: the Temporal server ends the process on
// them, and the log file alone would leave that exit without a word.
type fatalOnStderr struct {
	log.Logger
	logFile string
}

func (l fatalOnStderr) Fatal(msg string, tags ...tag.Tag) {
	text := "devstack: temporal server: " + msg
	for _, t := range tags {
		if t.Key() == "error" {
			text += fmt.Sprintf(": %v", t.Value())
		}
	}
	fmt.Fprintf(os.Stderr, "%s (log: %s)\n", text, l.logFile)
	l.Logger.Fatal(msg, tags...)
}

// quiet drops the messages of the client that only waits for the server.
type quiet struct{}

var _ sdklog.Logger = quiet{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}
