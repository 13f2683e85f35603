package main

import (
	"context"
	"log/slog"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	sdklog "go.temporal.io/sdk/log"
)

// dialFor bounds how long Temporal may take to answer the first time.
const dialFor = 8 * time.Second

// temporal is the connection to Temporal.
type temporal struct {
	client.Client
	address   string
	namespace string
}

// dialTemporal connects by the SDK's own environment and profile file, with the flags over it.
func (p *program) dialTemporal(ctx context.Context) (*temporal, error) {
	options, err := envconfig.LoadClientOptions(envconfig.LoadClientOptionsRequest{EnvLookup: p.env})
	if err != nil {
		return nil, failf(exitUsage, "Temporal's configuration: %v: correct the TEMPORAL_… variables or the profile file", err)
	}
	if p.globals.temporalAddress != "" {
		options.HostPort = p.globals.temporalAddress
	}
	if p.globals.temporalNamespace != "" {
		options.Namespace = p.globals.temporalNamespace
	}
	if options.HostPort == "" {
		options.HostPort = client.DefaultHostPort
	}
	if options.Namespace == "" {
		options.Namespace = client.DefaultNamespace
	}
	// The default logger would write to the standard output.
	options.Logger = sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))
	dialing, cancel := context.WithTimeout(ctx, dialFor)
	defer cancel()
	c, err := client.DialContext(dialing, options)
	if err != nil && ctx.Err() == nil {
		return nil, failf(exitUnreachable, "Temporal at %s cannot be reached: %v: start it, or name another with --temporal-address or TEMPORAL_ADDRESS",
			options.HostPort, err)
	}
	if err != nil {
		return nil, err
	}
	return &temporal{Client: c, address: options.HostPort, namespace: options.Namespace}, nil
}
