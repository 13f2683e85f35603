// Package stacktest starts the embedded stack the way tests of the product do, and checks that it behaves.
package stacktest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
)

// patience bounds each wait. It is long, because the machine may be building something else.
const patience = 2 * time.Minute

// endpoints is what these tests read of the line that the stack prints.
type endpoints struct {
	Kubeconfig, Kubectl, Temporal, TemporalAddress, UIURL, LogDir, AuditLog, BinDir string

	PID int
}

// running is a started stack.
type running struct {
	endpoints
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr *bytes.Buffer
	ended  chan error
}

// launch starts a stack and returns once it has printed its endpoints.
func launch(t *testing.T, flags ...string) *running {
	t.Helper()
	cmd := exec.Command("go", append([]string{"run", "-C", "../../build", ".", "up", "--stdin"}, flags...)...)
	r := &running{cmd: cmd, stderr: &bytes.Buffer{}, ended: make(chan error, 1)}
	cmd.Stderr = r.stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.stdin = stdin
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	go func() { r.ended <- cmd.Wait() }()
	t.Cleanup(func() { r.stop(t) })
	if err != nil {
		t.Fatalf("no line of endpoints (%v); the stack said:\n%s", err, r.stderr)
	}
	if err := json.Unmarshal(line, &r.endpoints); err != nil {
		t.Fatalf("endpoints %q: %v", line, err)
	}
	return r
}

// stop closes the standard input and waits for the end.
func (r *running) stop(t *testing.T) {
	t.Helper()
	_ = r.stdin.Close()
	select {
	case err := <-r.ended:
		r.ended <- err
	case <-time.After(patience):
		t.Errorf("the stack did not end; it said:\n%s", r.stderr)
	}
}

func (r *running) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command(r.Kubectl, append([]string{"--kubeconfig", r.Kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// await waits until a field of the objects has a value, or a condition holds.
func (r *running) await(t *testing.T, what string, objects ...string) {
	t.Helper()
	r.kubectl(t, "", append([]string{"wait", "--for=" + what, "--timeout=" + patience.String()}, objects...)...)
}

func (r *running) dial(t *testing.T) client.Client {
	t.Helper()
	c, err := client.Dial(client.Options{HostPort: r.TemporalAddress})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

const waitingReason = "jsonpath={.status.containerStatuses[0].state.waiting.reason}"

const workloads = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: good}
spec:
  replicas: 3
  selector: {matchLabels: {app: good}}
  template:
    metadata: {labels: {app: good}}
    spec: {containers: [{name: main, image: "registry.example:5000/app:1.0"}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: crashing}
spec:
  selector: {matchLabels: {app: crashing}}
  template:
    metadata: {labels: {app: crashing}}
    spec: {containers: [{name: main, image: "app:fail"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: bad}
spec: {containers: [{name: main, image: "app:bad"}, {name: side, image: "app:1"}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: good}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: main, image: "app"}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: failing}
spec:
  backoffLimit: 0
  template:
    spec: {restartPolicy: Never, containers: [{name: main, image: "app:fail@sha256:` +
	`0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}]}
`

func TestTheStack(t *testing.T) {
	audit := filepath.Join(t.TempDir(), "audit.log")
	r := launch(t, "--ui=false", "--audit-log", audit)
	r.kubectl(t, workloads, "apply", "-f", "-")

	t.Run("a Deployment gets Available", func(t *testing.T) {
		r.await(t, "condition=Available", "deployment/good")
	})
	t.Run("a Job completes", func(t *testing.T) {
		r.await(t, "condition=Complete", "job/good")
	})
	t.Run("a Job with tag fail fails", func(t *testing.T) {
		r.await(t, "condition=Failed", "job/failing")
	})
	t.Run("tag fail in a Deployment crashes for ever", func(t *testing.T) {
		r.await(t, "jsonpath={.status.replicas}=1", "deployment/crashing") // then the pod exists
		r.await(t, waitingReason+"=CrashLoopBackOff", "pods", "-l", "app=crashing")
	})
	t.Run("tag bad stays unready", func(t *testing.T) {
		r.await(t, waitingReason+"=ImagePullBackOff", "pod/bad")
		r.await(t, "condition=Ready=False", "pod/bad")
		r.await(t, "jsonpath={.status.phase}=Pending", "pod/bad")
	})
	t.Run("the server knows its version", func(t *testing.T) {
		if got := r.kubectl(t, "", "version"); !strings.Contains(got, "Server Version: v1.") {
			t.Error(got)
		}
	})
	t.Run("a Temporal client can work", func(t *testing.T) {
		if _, err := r.dial(t).CheckHealth(t.Context(), &client.CheckHealthRequest{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("the temporal command line can work", func(t *testing.T) {
		out, err := exec.Command(r.Temporal, "operator", "namespace", "describe", "-n", "default",
			"--address", r.TemporalAddress).CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("the audit log names the requests", func(t *testing.T) {
		content, err := os.ReadFile(r.AuditLog)
		if err != nil || !bytes.Contains(content, []byte(`"resource":"deployments","namespace":"default","name":"good"`)) {
			t.Errorf("%s: %v, %d bytes without the Deployment", r.AuditLog, err, len(content))
		}
		if bytes.Contains(content, []byte(`"stage":"RequestReceived"`)) {
			t.Error("requests are there twice")
		}
	})
	t.Run("kill -9 leaves no process", func(t *testing.T) {
		parts := children(t, r.PID)
		if len(parts) != 5 {
			t.Errorf("devstack has the children %v, want etcd, API server, controller manager, scheduler, kwok", parts)
		}
		if err := syscall.Kill(r.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		awaitEnd(t, parts)
	})
}

func TestADataFolderIsKept(t *testing.T) {
	dir := t.TempDir()
	r := launch(t, "--data-dir", dir)
	r.kubectl(t, "", "create", "configmap", "kept")
	run, err := r.dial(t).ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "kept", TaskQueue: "nobody"}, "Nothing")
	if err != nil {
		t.Fatal(err)
	}
	page, err := http.Get(r.UIURL)
	if err != nil {
		t.Fatal(err)
	}
	_ = page.Body.Close()
	if page.StatusCode != http.StatusOK {
		t.Errorf("Web UI %s: %s", r.UIURL, page.Status)
	}
	parts := children(t, r.PID)
	r.stop(t)
	awaitEnd(t, parts)

	r = launch(t, "--data-dir", dir, "--ui=false")
	r.kubectl(t, "", "get", "configmap", "kept")
	found, err := r.dial(t).DescribeWorkflowExecution(t.Context(), "kept", "")
	if err != nil || found.GetWorkflowExecutionInfo().GetExecution().GetRunId() != run.GetRunID() {
		t.Errorf("workflow of the first start: %v, %v", found, err)
	}
}

func TestAKilledPartComesBack(t *testing.T) {
	r := launch(t, "--temporal=false", "--ui=false", "--restart")
	r.kubectl(t, "", "create", "configmap", "kept")
	for _, pid := range children(t, r.PID) {
		program, _ := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
		if filepath.Base(program) != "kube-apiserver" {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		awaitEnd(t, []int{pid})
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		out, err := exec.Command(r.Kubectl, "--kubeconfig", r.Kubeconfig, "get", "configmap", "kept").CombinedOutput()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the API server is not back: %v\n%s", err, out)
		}
	}
}

func TestAPartThatCannotStartIsNamed(t *testing.T) {
	programs := ensured(t)
	broken := t.TempDir()
	for name, path := range programs {
		if err := os.Symlink(path, filepath.Join(broken, name)); err != nil {
			t.Fatal(err)
		}
	}
	part := filepath.Join(broken, "kube-scheduler")
	if err := os.Remove(part); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(part, []byte("#!/bin/sh\necho no such flag\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	logs := t.TempDir()
	out, err := exec.Command(programs["devstack"], "--bin-dir", broken, "--temporal=false", "--log-dir", logs).CombinedOutput()
	if err == nil {
		t.Fatalf("it started: %s", out)
	}
	for _, want := range []string{"kube-scheduler", "no such flag", filepath.Join(logs, "kube-scheduler.log")} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("the error lacks %q: %s", want, out)
		}
	}
}

// ensured returns the path of every program.
func ensured(t *testing.T) map[string]string {
	t.Helper()
	cmd := exec.Command("go", "run", "-C", "../../build", ".", "ensure")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var set struct{ Programs map[string]string }
	if err := json.Unmarshal(out, &set); err != nil {
		t.Fatal(err)
	}
	return set.Programs
}

// children lists the processes whose parent is the given one.
func children(t *testing.T, parent int) []int {
	t.Helper()
	var found []int
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, stat := range stats {
		if fields := statFields(stat); len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
			found = append(found, pid)
		}
	}
	return found
}

// statFields returns what follows the command's name: the state, then the parent, then more.
func statFields(file string) []string {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil // it has ended in between
	}
	_, rest, _ := strings.Cut(string(content), ") ")
	return strings.Fields(rest)
}

// awaitEnd waits until none of the processes is alive. A zombie is not: only its entry waits to be collected.
func awaitEnd(t *testing.T, pids []int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		alive := slices.DeleteFunc(slices.Clone(pids), func(pid int) bool {
			fields := statFields(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
			return len(fields) == 0 || fields[0] == "Z"
		})
		if len(alive) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("processes %v are alive", alive)
		case <-again.C:
		}
	}
}
