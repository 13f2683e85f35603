package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// worker is convoy's worker, a process of its own.
type worker struct {
	command *exec.Cmd
	ended   chan struct{}
}

// workerAccount is the ServiceAccount of deploy/rbac: the worker of the demo has exactly those rights.
const workerAccount = "convoy-worker"

// startWorker gives the worker its rights and starts it.
func (d *demo) startWorker() error {
	fmt.Println("starting convoy's worker with the rights of deploy/rbac")
	if _, err := d.output("kubectl", "apply", "-f", filepath.Join(d.root, "deploy", "rbac")); err != nil {
		return err
	}
	kubeconfig, err := d.workerKubeconfig()
	if err != nil {
		return err
	}
	logFile := filepath.Join(d.folder, "logs", "worker.log")
	log, err := os.Create(logFile)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	w := &worker{ended: make(chan struct{})}
	w.command = exec.Command(filepath.Join(d.folder, "bin", "worker"), "--kubeconfig", kubeconfig,
		"--temporal-address", d.stack.TemporalAddress, "--path-root", d.folder, "--listen-address", "127.0.0.1:0")
	w.command.Stdout, w.command.Stderr = log, log
	w.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := w.command.Start(); err != nil {
		return err
	}
	d.worker = w
	go func() {
		_ = w.command.Wait()
		close(w.ended)
	}()
	return d.eventually("the worker starts", func() error {
		said, err := os.ReadFile(logFile)
		if err == nil && !strings.Contains(string(said), "worker started") {
			err = errors.New("it has not said so: " + logFile)
		}
		return err
	})
}

// workerKubeconfig is the stack's kubeconfig with the worker's own token in place of the administrator.
func (d *demo) workerKubeconfig() (string, error) {
	token, err := d.output("kubectl", "create", "token", workerAccount, "--namespace", "convoy-system", "--duration", "24h")
	if err != nil {
		return "", err
	}
	admin, err := d.output("kubectl", "config", "view", "--raw", "--minify", "--flatten")
	if err != nil {
		return "", err
	}
	file := filepath.Join(d.folder, "worker.kubeconfig")
	if err := os.WriteFile(file, []byte(admin), 0o600); err != nil {
		return "", err
	}
	for _, change := range [][]string{
		{"set-credentials", workerAccount, "--token", strings.TrimSpace(token)},
		{"set-context", "--current", "--user", workerAccount},
	} {
		if _, err := d.output("kubectl", append([]string{"--kubeconfig", file, "config"}, change...)...); err != nil {
			return "", err
		}
	}
	return file, nil
}

// stop lets running steps end, and does not wait for ever.
func (w *worker) stop() {
	_ = w.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-w.ended:
	case <-time.After(40 * time.Second):
		_ = w.command.Process.Kill()
		<-w.ended
	}
}
