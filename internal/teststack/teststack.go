// Package teststack gives tests a real Kubernetes API server and a real Temporal server: the embedded stack of dev/.
// It is started at most once per test process, when the first test asks for it. With CONVOY_TEST_STACK=FILE, where
// FILE holds the endpoints of a stack that runs already, that stack is used, so that all packages of one test run can
// share it.
//
// A stack that cannot be had fails the test; it never skips. Only tests import this package.
package teststack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Variable names the environment variable with the endpoints file of a running stack.
const Variable = "CONVOY_TEST_STACK"

// The first start on a machine compiles the control plane; see dev/README.md.
const (
	startFor = 45 * time.Minute
	stopFor  = 30 * time.Second
)

// Info is where the parts of the stack are; see dev/README.md. Parts that do not run are empty.
type Info struct {
	Kubeconfig      string `json:"kubeconfig"`
	Kubectl         string `json:"kubectl"`
	Temporal        string `json:"temporal"`
	TemporalAddress string `json:"temporalAddress"`
	UIURL           string `json:"uiURL"`
	LogDir          string `json:"logDir"`
	AuditLog        string `json:"auditLog"`
	BinDir          string `json:"binDir"`
	PID             int    `json:"pid"`
}

// Arguments are given to `up` beside --stdin. A package whose tests need Temporal sets them before Main.
var Arguments = []string{"--ui=false", "--temporal=false"}

var stack struct {
	once sync.Once
	info Info
	err  error
	own  *Own // nil when another process has started it
}

// Own is a stack, or a part of one, that this process has started.
type Own struct {
	Info

	command *exec.Cmd
	stdin   io.Closer
	ended   chan struct{}
}

// Main runs a package's tests and ends the stack that they started: func TestMain(m *testing.M) { teststack.Main(m) }.
func Main(m *testing.M) {
	code := m.Run()
	stop()
	os.Exit(code)
}

// Endpoints of the stack, which is started when it does not run yet.
func Endpoints(t testing.TB) Info {
	t.Helper()
	stack.once.Do(func() { stack.info, stack.err = obtain() })
	require.NoError(t, stack.err, "the embedded stack")
	return stack.info
}

// Kubernetes returns the credentials of a cluster administrator, without client-side rate limits. Every call returns
// a copy of its own.
func Kubernetes(t testing.TB) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", Endpoints(t).Kubeconfig)
	require.NoError(t, err)
	cfg.QPS = -1
	return cfg
}

// Namespace makes a Kubernetes namespace for this test alone. It is deleted at the end, without waiting.
func Namespace(t testing.TB, cfg *rest.Config) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	made, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		// The test's own context has ended by now.
		_ = client.CoreV1().Namespaces().Delete(context.Background(), made.Name, metav1.DeleteOptions{})
	})
	return made.Name
}

func obtain() (Info, error) {
	if file := os.Getenv(Variable); file != "" {
		contents, err := os.ReadFile(file) //nolint:gosec // a path given by who runs the tests
		if err != nil {
			return Info{}, fmt.Errorf("%s: %w", Variable, err)
		}
		return parse(contents)
	}
	own, err := Start(Arguments...)
	if err != nil {
		return Info{}, err
	}
	stack.own = own
	return own.Info, nil
}

// Start runs `dev/build up` and reads the one line that it prints once everything is ready. The stack ends when its
// standard input closes, so it does not outlive this process. Tests that break parts of a stack start their own; the
// others share the one of Endpoints.
func Start(flags ...string) (*Own, error) {
	dev, err := devFolder()
	if err != nil {
		return nil, err
	}
	arguments := append([]string{"run", "-C", filepath.Join(dev, "build"), ".", "up", "--stdin"}, flags...)
	command := exec.Command("go", arguments...) //nolint:gosec // fixed arguments
	var said tail
	command.Stderr = &said
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	own := &Own{command: command, stdin: stdin, ended: make(chan struct{})}
	line, err := firstLine(stdout)
	go func() {
		_ = command.Wait()
		close(own.ended)
	}()
	if err == nil {
		own.Info, err = parse(line)
	}
	if err != nil {
		own.Stop()
		return nil, fmt.Errorf("go run -C dev/build . up: %w\n%s", err, said.String())
	}
	return own, nil
}

func firstLine(stdout io.Reader) ([]byte, error) {
	type result struct {
		line []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		line, err := bufio.NewReader(stdout).ReadBytes('\n')
		read <- result{line, err}
	}()
	select {
	case got := <-read:
		return got.line, got.err
	case <-time.After(startFor):
		return nil, fmt.Errorf("the stack was not ready after %s", startFor)
	}
}

func parse(contents []byte) (Info, error) {
	var info Info
	if err := json.Unmarshal(contents, &info); err != nil {
		return Info{}, fmt.Errorf("endpoints of the stack: %w", err)
	}
	return info, nil
}

// Stop ends the stack that this process started, if it did. Main calls it.
func Stop() { stop() }

func stop() {
	if stack.own != nil {
		stack.own.Stop()
	}
}

// Stop ends the stack.
func (o *Own) Stop() {
	_ = o.stdin.Close()
	select {
	case <-o.ended:
	case <-time.After(stopFor):
		_ = o.command.Process.Signal(syscall.SIGKILL)
	}
}

// Kill ends the stack's own process, with a Temporal server inside, without a goodbye, and waits for the end.
func (o *Own) Kill() {
	_ = syscall.Kill(o.PID, syscall.SIGKILL)
	<-o.ended
}

// devFolder is the dev folder of the module that this file belongs to.
func devFolder() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		return "", errors.New("the dev folder cannot be found")
	}
	dev := filepath.Join(filepath.Dir(file), "..", "..", "dev")
	if _, err := os.Stat(dev); err != nil {
		return "", fmt.Errorf("the dev folder cannot be found: %w", err)
	}
	return dev, nil
}

// tail keeps the last few kilobytes of what is written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

const tailSize = 8 << 10

func (w *tail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = append(w.kept, p...)
	if len(w.kept) > tailSize {
		w.kept = bytes.Clone(w.kept[len(w.kept)-tailSize:])
	}
	return len(p), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.kept)
}
