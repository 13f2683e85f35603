// Package controlplane runs a Kubernetes control plane on this machine: etcd, the API server, the controller manager,
// the scheduler, and kwok, which plays two nodes and the pods on them.
//
// It starts given programs; it does not build them.
package controlplane

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"convoy.dev/convoy/dev/stack/ports"
	"convoy.dev/convoy/dev/stack/process"
	"convoy.dev/convoy/dev/stack/ready"
)

// startTimeout bounds the start of each part.
const startTimeout = time.Minute

// Options says how a control plane is started.
type Options struct {
	BinDir   string // folder with the programs
	Dir      string // certificates, kubeconfig and etcd's data; what it holds already is used again
	LogDir   string
	AuditLog string // file of the API server's audit log; empty for none
	Durable  bool   // etcd syncs its files and ends politely, so that Dir survives
	Restart  bool   // a part that ends by itself is started again
}

// ControlPlane is a running control plane.
type ControlPlane struct {
	Kubeconfig string // access of a cluster administrator

	opts   Options
	pki    pki
	server *apiServer
	parts  []*process.Process // in the order of their start
}

//go:embed audit-policy.yaml
var auditPolicy []byte

// Start returns once both nodes are Ready and pods can be created in the namespace default. When it fails, the parts
// that run are stopped.
func Start(ctx context.Context, opts Options) (*ControlPlane, error) {
	c := &ControlPlane{opts: opts}
	if err := c.start(ctx); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *ControlPlane) start(ctx context.Context) error {
	free, err := ports.Free(4)
	if err != nil {
		return err
	}
	if c.pki, err = loadPKI(filepath.Join(c.opts.Dir, "pki")); err != nil {
		return fmt.Errorf("certificates of the control plane: %w", err)
	}
	if c.server, err = newAPIServer(ports.Address(free[1]), c.pki); err != nil {
		return err
	}
	c.Kubeconfig = filepath.Join(c.opts.Dir, "kubeconfig")
	if err := writeKubeconfig(c.Kubeconfig, c.server.url, c.pki); err != nil {
		return err
	}
	if err := c.startEtcd(ctx, free[0]); err != nil {
		return err
	}
	if err := c.startAPIServer(ctx, free[0], free[1]); err != nil {
		return err
	}
	return c.startTheRest(ctx, free[2], free[3])
}

// startTheRest starts what only needs the API server, all at once, then waits for it.
func (c *ControlPlane) startTheRest(ctx context.Context, managerPort, schedulerPort int) error {
	manager, err := c.run("kube-controller-manager", c.managerArgs(managerPort))
	if err != nil {
		return err
	}
	scheduler, err := c.run("kube-scheduler", c.componentArgs(schedulerPort))
	if err != nil {
		return err
	}
	kwok, err := c.startKwok()
	if err != nil {
		return err
	}
	if err := c.server.createNodes(ctx); err != nil {
		return err
	}
	healthz := func(port int) func(context.Context) error {
		return func(ctx context.Context) error {
			return ready.OK(ctx, c.server.client, "https://"+ports.Address(port)+"/healthz")
		}
	}
	for _, wait := range []struct {
		what  string
		part  *process.Process
		check func(context.Context) error
	}{
		{"the controller manager to make the service account of namespace default", manager, c.server.defaultAccount},
		{"the scheduler to be healthy", scheduler, healthz(schedulerPort)},
		{"the nodes to be Ready", kwok, c.server.nodesReady},
	} {
		if err := await(ctx, wait.what, wait.part, wait.check); err != nil {
			return err
		}
	}
	return nil
}

// Parts returns the processes, so that the caller notices when one ends.
func (c *ControlPlane) Parts() []*process.Process { return c.parts }

// Stop ends all parts, the last started first. Only what is durable gets the time to end politely.
func (c *ControlPlane) Stop() {
	patience := time.Duration(0)
	if c.opts.Durable {
		patience = 5 * time.Second
	}
	for _, part := range slices.Backward(c.parts) {
		part.Stop(patience)
	}
}

func (c *ControlPlane) run(program string, args []string, env ...string) (*process.Process, error) {
	p, err := process.Start(process.Command{
		Path:    filepath.Join(c.opts.BinDir, program),
		Args:    args,
		Env:     env,
		LogDir:  c.opts.LogDir,
		Restart: c.opts.Restart,
	})
	if err != nil {
		return nil, err
	}
	c.parts = append(c.parts, p)
	return p, nil
}

// await waits for a part. It ends early when the part ends, and its error shows the end of the part's log.
func await(ctx context.Context, what string, part *process.Process, check func(context.Context) error) error {
	ctx, stop := part.While(ctx)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("gave up after %s", startTimeout))
	defer cancel()
	err := ready.Await(ctx, check)
	if err == nil {
		return nil
	}
	select {
	case <-part.Done(): // its error, the cause, quotes the log already
		return fmt.Errorf("wait for %s: %w", what, err)
	default:
		return fmt.Errorf("wait for %s: %w; %s", what, err, part.LastLines())
	}
}

func (c *ControlPlane) startEtcd(ctx context.Context, port int) error {
	url := "http://" + ports.Address(port)
	args := []string{
		"--data-dir=" + filepath.Join(c.opts.Dir, "etcd"),
		"--listen-client-urls=" + url,
		"--advertise-client-urls=" + url,
		"--listen-peer-urls=http://" + ports.Address(0), // a single member has no peers
	}
	if !c.opts.Durable {
		args = append(args, "--unsafe-no-fsync=true")
	}
	etcd, err := c.run("etcd", args)
	if err != nil {
		return err
	}
	return await(ctx, "etcd to be healthy", etcd, func(ctx context.Context) error {
		return ready.OK(ctx, http.DefaultClient, url+"/health")
	})
}

func (c *ControlPlane) startAPIServer(ctx context.Context, etcdPort, port int) error {
	args := []string{
		"--etcd-servers=http://" + ports.Address(etcdPort),
		"--bind-address=" + ports.Host,
		fmt.Sprintf("--secure-port=%d", port),
		// Nothing reaches the server through the service "kubernetes", and an address of this machine that could be
		// advertised may not exist (no network).
		"--advertise-address=" + ports.Host,
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--allow-privileged=true",
		"--authorization-mode=RBAC",
		"--client-ca-file=" + c.pki.file(caCert),
		"--tls-cert-file=" + c.pki.file(serverCert),
		"--tls-private-key-file=" + c.pki.file(serverKey),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.pki.file(accountKey),
		"--service-account-signing-key-file=" + c.pki.file(accountKey),
		// No aggregated API is served. The controller manager complains every few seconds when these are not set.
		"--requestheader-client-ca-file=" + c.pki.file(caCert),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
	}
	if c.opts.AuditLog != "" {
		policy := filepath.Join(c.opts.Dir, "audit-policy.yaml")
		if err := os.WriteFile(policy, auditPolicy, 0o644); err != nil {
			return fmt.Errorf("write the audit policy: %w", err)
		}
		// One file, however large: who reads it by position must not meet a rotation.
		args = append(args, "--audit-log-path="+c.opts.AuditLog, "--audit-policy-file="+policy, "--audit-log-maxsize=10000")
	}
	server, err := c.run("kube-apiserver", args)
	if err != nil {
		return err
	}
	return await(ctx, "the API server to be ready", server, c.server.ready)
}

// componentArgs are the flags that the scheduler and the controller manager share.
func (c *ControlPlane) componentArgs(port int) []string {
	return []string{
		"--kubeconfig=" + c.Kubeconfig,
		"--authentication-kubeconfig=" + c.Kubeconfig,
		"--authorization-kubeconfig=" + c.Kubeconfig,
		"--leader-elect=false",
		"--bind-address=" + ports.Host,
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + c.pki.file(serverCert),
		"--tls-private-key-file=" + c.pki.file(serverKey),
	}
}

func (c *ControlPlane) managerArgs(port int) []string {
	return append(c.componentArgs(port),
		"--service-account-private-key-file="+c.pki.file(accountKey),
		"--root-ca-file="+c.pki.file(caCert),
		"--use-service-account-credentials=true",
		"--controllers=*",
	)
}
