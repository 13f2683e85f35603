package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"convoy.dev/convoy/dev/stack/controlplane"
	"convoy.dev/convoy/dev/stack/ports"
)

// stack is everything that runs.
type stack struct {
	endpoints endpoints
	failed    chan error // receives the first part that ends by itself

	folder       *folder
	controlPlane *controlplane.ControlPlane
	temporal     *temporalServer
}

// start starts the control plane and the Temporal server side by side. When one fails, nothing is left running, and
// the logs stay for the person who reads the error.
func start(ctx context.Context, opts options) (*stack, error) {
	folder, err := openFolder(opts.dataDir)
	if err != nil {
		return nil, err
	}
	s := &stack{folder: folder, failed: make(chan error, 1)}
	s.endpoints = endpoints{
		Kubectl:  filepath.Join(opts.binDir, "kubectl"),
		Temporal: filepath.Join(opts.binDir, "temporal"),
		LogDir:   cmp.Or(opts.logDir, filepath.Join(folder.path, "logs")),
		BinDir:   opts.binDir,
		PID:      os.Getpid(),
	}
	if err := s.startParts(ctx, opts); err != nil {
		interrupted := ctx.Err() != nil
		s.stopParts()
		folder.close(!interrupted)
		return nil, err
	}
	return s, nil
}

func (s *stack) startParts(ctx context.Context, opts options) error {
	if err := os.MkdirAll(s.endpoints.LogDir, 0o755); err != nil {
		return fmt.Errorf("create the log folder: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var both sync.WaitGroup
	var kubernetesErr, temporalErr error
	both.Go(func() {
		if kubernetesErr = s.startKubernetes(ctx, opts); kubernetesErr != nil {
			cancel() // the other one need not go on
		}
	})
	both.Go(func() {
		if temporalErr = s.startTemporal(ctx, opts); temporalErr != nil {
			cancel()
		}
	})
	both.Wait()
	return firstCause(kubernetesErr, temporalErr)
}

// firstCause returns the error that made the other one: the other part only reports that its start was cancelled.
func firstCause(a, b error) error {
	switch {
	case a == nil || errors.Is(a, context.Canceled) && b != nil:
		return b
	case b == nil || errors.Is(b, context.Canceled):
		return a
	default:
		return errors.Join(a, b)
	}
}

func (s *stack) startKubernetes(ctx context.Context, opts options) error {
	if !opts.startsControlPlane() {
		s.endpoints.Kubeconfig = opts.kubeconfig
		return nil
	}
	controlPlane, err := controlplane.Start(ctx, controlplane.Options{
		BinDir:   opts.binDir,
		Dir:      s.folder.path,
		LogDir:   s.endpoints.LogDir,
		AuditLog: opts.auditLog,
		Durable:  opts.dataDir != "",
		Restart:  opts.restart,
	})
	if err != nil {
		return err
	}
	s.controlPlane = controlPlane
	s.endpoints.Kubeconfig = controlPlane.Kubeconfig
	s.endpoints.AuditLog = opts.auditLog
	for _, part := range controlPlane.Parts() {
		go func() {
			<-part.Done()
			select {
			case s.failed <- part.Err():
			default: // another part was first
			}
		}()
	}
	return nil
}

func (s *stack) startTemporal(ctx context.Context, opts options) error {
	if !opts.startsTemporal() {
		s.endpoints.TemporalAddress = opts.temporalAddress
		return nil
	}
	free, err := ports.Free(2)
	if err != nil {
		return err
	}
	settings := temporalOptions{port: cmp.Or(opts.temporalPort, free[0]), logDir: s.endpoints.LogDir}
	if opts.ui {
		settings.uiPort = cmp.Or(opts.uiPort, free[1])
		s.endpoints.UIURL = "http://" + ports.Address(settings.uiPort)
	}
	if opts.dataDir != "" {
		settings.databaseFile = filepath.Join(s.folder.path, "temporal.db")
	}
	s.temporal, err = startTemporal(ctx, settings)
	s.endpoints.TemporalAddress = ports.Address(settings.port)
	return err
}

// stop ends all parts and removes what is not kept.
func (s *stack) stop() {
	s.stopParts()
	s.folder.close(false)
}

func (s *stack) stopParts() {
	var both sync.WaitGroup
	if s.controlPlane != nil {
		both.Go(s.controlPlane.Stop)
	}
	if s.temporal != nil && s.folder.kept { // what is in memory only needs no orderly end
		both.Go(s.temporal.Stop)
	}
	both.Wait()
}
