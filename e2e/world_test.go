package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/teststack"
	"convoy.dev/convoy/workflows"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"
)

// sharedQueue is the task queue of the shared worker: several test processes may use one stack.
var sharedQueue = fmt.Sprintf("convoy-e2e-%d", os.Getpid())

// patience bounds every wait. It is only ever used up by a failure.
var patience = 90 * time.Second

// shared is what all tests of the package use together: the clients, the CRDs, and one worker.
var shared struct {
	once     sync.Once
	err      error
	info     teststack.Info
	cfg      *rest.Config
	kube     kube.Client
	temporal client.Client
	worker   *workerProcess
}

// world is one test's view of the system: a namespace of its own for Releases and objects.
type world struct {
	*testing.T
	ns        string
	kube      kube.Client
	temporal  client.Client
	info      teststack.Info
	cfg       *rest.Config
	taskQueue string
}

// newWorld makes a world whose syncs are served by the shared worker.
func newWorld(t *testing.T) *world {
	t.Helper()
	info := teststack.Endpoints(t)
	shared.once.Do(func() { shared.err = setUp(info) })
	require.NoError(t, shared.err)
	return &world{
		T: t, ns: teststack.Namespace(t, shared.cfg), kube: shared.kube, temporal: shared.temporal,
		info: info, cfg: shared.cfg, taskQueue: sharedQueue,
	}
}

func setUp(info teststack.Info) error {
	shared.info = info
	var err error
	if shared.cfg, shared.kube, shared.temporal, err = connect(info); err != nil {
		return err
	}
	shared.worker, err = startWorker(info, sharedQueue)
	return err
}

// connect makes the clients of a stack, and installs the CRDs there.
func connect(info teststack.Info) (*rest.Config, kube.Client, client.Client, error) {
	ctrllog.SetLogger(logr.Discard())
	cfg, err := restConfig(info.Kubeconfig)
	if err != nil {
		return nil, nil, nil, err
	}
	types := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(types), v1alpha1.AddToScheme(types)); err != nil {
		return nil, nil, nil, err
	}
	cluster, err := kube.New(cfg, kube.Options{Scheme: types})
	if err != nil {
		return nil, nil, nil, err
	}
	if err := installCRDs(cluster); err != nil {
		return nil, nil, nil, err
	}
	temporal, err := client.Dial(client.Options{HostPort: info.TemporalAddress, Logger: log.NewStructuredLogger(discard())})
	return cfg, cluster, temporal, err
}

func stopSharedWorker() {
	if shared.worker != nil {
		shared.worker.stop()
	}
}

// installCRDs applies deploy/crds and waits until they are served.
func installCRDs(cluster kube.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	files, err := filepath.Glob("../deploy/crds/*.yaml")
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no CRDs in deploy/crds: %w", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(data, &crd.Object); err != nil {
			return err
		}
		if err := cluster.Patch(ctx, crd, kube.Apply, kube.FieldOwner("e2e"), kube.ForceOwnership); err != nil { //nolint:staticcheck // unstructured
			return err
		}
	}
	for {
		err := cluster.List(ctx, &v1alpha1.ReleaseInventoryList{})
		if err == nil {
			err = cluster.List(ctx, &v1alpha1.ReleaseList{})
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		<-time.After(100 * time.Millisecond)
	}
}

// workerProcess is a worker of its own process.
type workerProcess struct {
	command *exec.Cmd
	logs    *logBuffer
	ended   chan struct{}
}

// startWorker starts a worker with short heartbeats and waits until it polls.
func startWorker(info teststack.Info, taskQueue string, args ...string) (*workerProcess, error) {
	return startWorkerAt(info.Kubeconfig, info.TemporalAddress, taskQueue, args...)
}

func startWorkerAt(kubeconfig, temporalAddress, taskQueue string, args ...string) (*workerProcess, error) {
	w := &workerProcess{logs: &logBuffer{}, ended: make(chan struct{})}
	all := append([]string{
		"--kubeconfig", kubeconfig, "--temporal-address", temporalAddress, "--task-queue", taskQueue,
		"--listen-address", "", "--watch=false", "--heartbeat-timeout", "3s", "--stop-timeout", "5s",
	}, args...)
	w.command = exec.Command(binaries.worker, all...)
	w.command.Stdout, w.command.Stderr = w.logs, w.logs
	w.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := w.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = w.command.Wait()
		close(w.ended)
	}()
	deadline := time.After(patience)
	for !strings.Contains(w.logs.String(), "worker started") {
		select {
		case <-w.ended:
			return nil, fmt.Errorf("the worker ended at once:\n%s", w.logs.String())
		case <-deadline:
			return nil, fmt.Errorf("the worker did not start:\n%s", w.logs.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return w, nil
}

// worker starts a worker for this test alone: the world's syncs go to it from now on.
func (w *world) worker(args ...string) *workerProcess {
	w.Helper()
	if w.taskQueue == sharedQueue {
		w.taskQueue = "convoy-" + w.ns
	}
	process, err := startWorker(w.info, w.taskQueue, args...)
	require.NoError(w, err)
	w.Cleanup(process.stop)
	return process
}

// kill ends the worker without a goodbye.
func (p *workerProcess) kill() {
	_ = p.command.Process.Signal(syscall.SIGKILL)
	<-p.ended
}

func (p *workerProcess) signal(s syscall.Signal) { _ = p.command.Process.Signal(s) }

// stop ends the worker as an operator would.
func (p *workerProcess) stop() {
	p.signal(syscall.SIGCONT)
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(15 * time.Second):
		p.kill()
	}
}

// logBuffer keeps everything a process printed.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

var _ io.Writer = (*logBuffer)(nil)

// release creates a Release with an inline render and the prune on. change may be nil.
func (w *world) release(name, render string, change func(*v1alpha1.Release)) *v1alpha1.Release {
	w.Helper()
	rel := &v1alpha1.Release{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	rel.Spec.Source.Inline = &render
	rel.Spec.SyncPolicy.Prune.Orphaned = true
	if change != nil {
		change(rel)
	}
	require.NoError(w, w.kube.Create(w.Context(), rel))
	return rel
}

// update changes the spec of a Release.
func (w *world) update(name string, change func(*v1alpha1.Release)) {
	w.Helper()
	w.eventually("update Release "+name, func() error {
		rel := w.get(name)
		change(rel)
		return w.kube.Update(w.Context(), rel)
	})
}

// render switches a Release to another inline render.
func (w *world) render(name, render string) {
	w.Helper()
	w.update(name, func(rel *v1alpha1.Release) { rel.Spec.Source.Inline = &render })
}

// get reads a Release.
func (w *world) get(name string) *v1alpha1.Release {
	w.Helper()
	rel := &v1alpha1.Release{}
	require.NoError(w, w.kube.Get(w.Context(), types.NamespacedName{Namespace: w.ns, Name: name}, rel))
	return rel
}

// applied is the condition Applied as "Status/Reason".
func (w *world) applied(name string) string {
	w.Helper()
	condition := meta.FindStatusCondition(w.get(name).Status.Conditions, v1alpha1.ConditionApplied)
	if condition == nil {
		return ""
	}
	return string(condition.Status) + "/" + condition.Reason
}

// start starts a sync and does not wait for it.
func (w *world) start(in workflows.SyncInput) client.WorkflowRun {
	w.Helper()
	in.Namespace = w.ns
	run, err := w.temporal.ExecuteWorkflow(w.Context(), client.StartWorkflowOptions{
		ID: "sync:" + w.ns + ":" + in.Name, TaskQueue: w.taskQueue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
	}, "SyncWorkflow", in)
	require.NoError(w, err)
	return run
}

// sync runs a sync to its end. The reason is "Succeeded", the type of the application error, or "Canceled".
func (w *world) sync(name string, change ...func(*workflows.SyncInput)) (workflows.SyncResult, string) {
	w.Helper()
	in := workflows.SyncInput{Name: name}
	for _, c := range change {
		c(&in)
	}
	return w.await(w.start(in))
}

func force(in *workflows.SyncInput) { in.Force = true }

// await waits for a run's end.
func (w *world) await(run client.WorkflowRun) (workflows.SyncResult, string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	var result workflows.SyncResult
	err := run.Get(ctx, &result)
	var failure *temporal.ApplicationError
	switch {
	case err == nil:
		return result, "Succeeded"
	case errors.As(err, &failure):
		return result, failure.Type()
	case temporal.IsCanceledError(err):
		return result, "Canceled"
	}
	require.NoError(w, err, "sync did not end as a sync ends")
	return result, ""
}

// succeeds syncs a Release and requires success.
func (w *world) succeeds(name string, change ...func(*workflows.SyncInput)) workflows.SyncResult {
	w.Helper()
	result, reason := w.sync(name, change...)
	require.Equal(w, "Succeeded", reason, w.message(name))
	require.Equal(w, "True/Succeeded", w.applied(name))
	return result
}

// fails syncs a Release and requires the reason, in Temporal and in status.
func (w *world) fails(name, reason string, change ...func(*workflows.SyncInput)) string {
	w.Helper()
	_, got := w.sync(name, change...)
	require.Equal(w, reason, got, w.message(name))
	require.Equal(w, "False/"+reason, w.applied(name))
	return w.message(name)
}

// message is the message of the condition Applied.
func (w *world) message(name string) string {
	w.Helper()
	condition := meta.FindStatusCondition(w.get(name).Status.Conditions, v1alpha1.ConditionApplied)
	if condition == nil {
		return ""
	}
	return condition.Message
}

// inventory lists the records of a Release's inventory as "group/Kind/namespace/name", sorted; nil when there is no
// inventory at all.
func (w *world) inventory(name string) []string {
	w.Helper()
	inv := w.rawInventory(name)
	if inv == nil {
		return nil
	}
	list := []string{}
	for _, o := range inv.Spec.Objects {
		list = append(list, strings.Join([]string{o.Group, o.Kind, o.Namespace, o.Name}, "/"))
	}
	slices.Sort(list)
	return list
}

func (w *world) rawInventory(name string) *v1alpha1.ReleaseInventory {
	w.Helper()
	inv := &v1alpha1.ReleaseInventory{}
	err := w.kube.Get(w.Context(), types.NamespacedName{Namespace: w.ns, Name: name}, inv)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(w, err)
	return inv
}

// cm is the inventory record of a ConfigMap in the world's namespace.
func (w *world) cm(name string) string { return "/ConfigMap/" + w.ns + "/" + name }

// configMap reads a ConfigMap in the world's namespace; nil when there is none.
func (w *world) configMap(name string) *corev1.ConfigMap {
	w.Helper()
	cm := &corev1.ConfigMap{}
	err := w.kube.Get(w.Context(), types.NamespacedName{Namespace: w.ns, Name: name}, cm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(w, err)
	return cm
}

// object reads any object; nil when it is absent.
func (w *world) object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	w.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
	err := w.kube.Get(w.Context(), types.NamespacedName{Namespace: namespace, Name: name}, o)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil
	}
	require.NoError(w, err)
	return o
}

// byHand applies manifests as an administrator would, with another field manager, and deletes them at the end.
func (w *world) byHand(manifests string) {
	w.Helper()
	w.kubectl(manifests, "apply", "--server-side", "--field-manager=by-hand", "-f", "-")
	w.Cleanup(func() {
		command := exec.Command(w.info.Kubectl, "--kubeconfig", w.info.Kubeconfig, "delete", "--ignore-not-found", "--wait=false", "-f", "-")
		command.Stdin = strings.NewReader(manifests)
		_ = command.Run()
	})
}

// kubectl runs kubectl against the stack and returns what it printed.
func (w *world) kubectl(stdin string, args ...string) string {
	w.Helper()
	command := exec.CommandContext(w.Context(), w.info.Kubectl, append([]string{"--kubeconfig", w.info.Kubeconfig}, args...)...)
	command.Stdin = strings.NewReader(stdin)
	out, err := command.CombinedOutput()
	require.NoError(w, err, "kubectl %v\n%s", args, out)
	return string(out)
}

// eventually tries until check returns nil.
func (w *world) eventually(what string, check func() error) {
	w.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			require.NoError(w, err, what)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// history is the whole event history of the last run of a Release's sync, as JSON events.
func (w *world) history(run client.WorkflowRun) []string {
	w.Helper()
	var events []string
	iterator := w.temporal.GetWorkflowHistory(w.Context(), run.GetID(), run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for iterator.HasNext() {
		event, err := iterator.Next()
		require.NoError(w, err)
		events = append(events, event.String())
	}
	return events
}

// syncOf is the input of a plain sync.
func syncOf(name string) workflows.SyncInput { return workflows.SyncInput{Name: name} }
