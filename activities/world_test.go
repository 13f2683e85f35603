package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// world plays everything outside for one Release, team-a/shop: the control cluster, the target cluster, the source,
// and Temporal. What it is asked to change is written down in calls, one line each; a call whose line stands in fail
// fails. It knows ConfigMaps, Namespaces and CustomResourceDefinitions.
type world struct {
	t   *testing.T
	a   *Activities
	rel *v1alpha1.Release
	inv *v1alpha1.ReleaseInventory // nil where there is none
	// others are further Releases, and claims what their inventories list.
	others map[types.NamespacedName]*v1alpha1.Release
	claims claims
	// facts are those of the objects that are live; an apply gives the uid's.
	facts map[release.ObjectRef]release.Fact
	// live is the target cluster, and dryRun its answers that are no yes, by name.
	live   map[release.ObjectRef]*release.Live
	dryRun map[string]*release.Failure
	health release.Health
	// looked is what Inspect shows of an object, by name; one that it lacks is absent.
	looked map[string]map[string]any
	// deletion is what deletes are answered, one after the other; without one the object is gone.
	deletion []release.Deletion
	// running and closedAt are what Temporal says about every other run, unless it is out of reach.
	running   bool
	closedAt  time.Time
	runsError error
	now       time.Time
	// controlError, sourceError and targetError keep the control cluster, the source and the target cluster out of reach.
	controlError, sourceError, targetError error
	// fetched counts the looks at the source; onFetch is asked before each.
	fetched int
	onFetch func()
	// answer is what requests of hooks are answered, onSend is asked before; sent are the requests.
	answer release.HookAnswer
	onSend func()
	sent   []release.HookRequest
	// secrets are the values of Secrets, by "namespace/name/key".
	secrets map[string]string
	// read is asked before each read.
	read func(release.ObjectRef) error
	// onApply is asked before each apply.
	onApply func(name string)
	calls   []string
	// events are their messages.
	events []string
	fail   map[string]error

	mu    sync.Mutex
	beats int
	// beaten hears of each beat, where somebody waits for one.
	beaten *sync.Cond
	beat   func() error // nil: every beat is confirmed
}

const (
	workflowID = "sync:team-a:shop"
	clusterUID = "cluster-1"
	heartbeat  = 10 * time.Second
)

// newWorld makes a world with an inline render, whose sync holds fence 7.
func newWorld(t *testing.T, render ...string) *world {
	t.Helper()
	text := strings.Join(render, "")
	w := &world{
		t: t, now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), fail: map[string]error{}, claims: claims{},
		others: map[types.NamespacedName]*v1alpha1.Release{}, live: map[release.ObjectRef]*release.Live{}, dryRun: map[string]*release.Failure{},
		facts: map[release.ObjectRef]release.Fact{},
		rel:   &v1alpha1.Release{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "shop", UID: "u", Generation: 3, ResourceVersion: "1"}},
	}
	w.rel.Spec.Source.Inline = &text
	w.rel.Status.Fence = &v1alpha1.Fence{Number: 7, WorkflowID: workflowID, RunID: "earlier", Acknowledged: true}
	w.a = New(Options{
		Control: w, Targets: w, Source: w, Runs: w, Hooks: w, Now: w.clock, Log: slog.New(slog.DiscardHandler),
	})
	return w
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// cm is the manifest of a ConfigMap, and cmRef its identity.
func cm(name string, wave int, annotations ...string) string {
	return fmt.Sprintf("---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: team-a, annotations: {convoy.dev/sync-wave: '%d'%s}}}\n",
		name, wave, strings.Join(append([]string{""}, annotations...), ", "))
}

func cmRef(name string) release.ObjectRef {
	return release.ObjectRef{Kind: "ConfigMap", Namespace: "team-a", Name: name}
}

func cmRefs(list string) []release.ObjectRef {
	refs := []release.ObjectRef{}
	for name := range strings.FieldsSeq(list) {
		refs = append(refs, cmRef(name))
	}
	return refs
}

// lists gives the Release an inventory: the objects and the pending ones, by name.
func (w *world) lists(objects, pending string) {
	w.inv = &v1alpha1.ReleaseInventory{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "shop", ResourceVersion: "1"}}
	w.inv.Spec = v1alpha1.InventorySpec{Objects: release.Records(cmRefs(objects)), Pending: release.Records(cmRefs(pending)), ClusterUID: clusterUID}
}

// knows gives the inventory the facts of those of its objects, by name.
func (w *world) knows(list string) {
	facts := map[release.ObjectRef]release.Fact{}
	for _, ref := range cmRefs(list) {
		facts[ref] = fact(ref.Name)
	}
	release.SetObjects(w.inv, release.RefsOf(w.inv.Spec.Objects), facts)
}

// known is the objects of the inventory as "a b?", where nothing is known of b; a wrong fact fails the test.
func (w *world) known() string {
	w.t.Helper()
	var names []string
	for i, recorded := range release.UnpackFacts(w.inv.Spec.Facts, len(w.inv.Spec.Objects)) {
		name := w.inv.Spec.Objects[i].Name
		if recorded == "" {
			name += "?"
		} else {
			require.Equal(w.t, fact(w.inv.Spec.Objects[i].Name), recorded, name)
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// listed is the inventory as "a b | c", where c is pending; empty where there is none.
func (w *world) listed() string {
	if w.inv == nil {
		return ""
	}
	return named(w.inv.Spec.Objects) + " | " + named(w.inv.Spec.Pending)
}

func named(records []v1alpha1.ObjectRecord) string {
	var names []string
	for _, record := range records {
		names = append(names, record.Name)
	}
	return strings.Join(names, " ")
}

// stands puts ConfigMaps that convoy applied on the cluster, and foreign those that somebody else made.
func (w *world) stands(list string)  { w.puts(list, true) }
func (w *world) foreign(list string) { w.puts(list, false) }

func (w *world) puts(list string, ours bool) {
	for _, ref := range cmRefs(list) {
		w.live[ref] = &release.Live{Ref: ref, UID: "uid-" + ref.Name, OwnedByConvoy: ours}
	}
}

// sync is the SyncRef of the sync that holds the fence.
func (w *world) sync() SyncRef {
	w.t.Helper()
	render, err := release.Parse([]release.File{{Name: "inline", Data: []byte(*w.rel.Spec.Source.Inline)}})
	require.NoError(w.t, err)
	w.rel.Status.Fence.RunID = testRun
	return SyncRef{Namespace: "team-a", Name: "shop", UID: "u", Generation: 3, Fence: w.rel.Status.Fence.Number, Digest: render.Digest, Revision: "r1"}
}

// testRun is the run id of every workflow in the SDK's test environment.
const testRun = "default-test-run-id"

// perform runs an activity once, as a step of the workflow with this id.
func (w *world) perform(id string, name any, in, out any) error {
	w.t.Helper()
	suite := testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(time.Minute)
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute}) // of the real clock, on a busy machine
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: id, TaskQueue: "convoy"})
	env.RegisterActivity(w.a)
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			StartToCloseTimeout: time.Minute, HeartbeatTimeout: heartbeat, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
		}), name, in).Get(ctx, out)
	}, workflow.RegisterOptions{Name: "step"})
	env.ExecuteWorkflow("step")
	require.True(w.t, env.IsWorkflowCompleted())
	return env.GetWorkflowError()
}

// succeeds runs an activity and requires success.
func (w *world) succeeds(name any, in, out any) {
	w.t.Helper()
	require.NoError(w.t, w.perform(workflowID, name, in, out))
}

// fails runs an activity, requires the type of its error, and returns the message.
func (w *world) fails(name any, in any, kind string) string {
	w.t.Helper()
	return failed(w.t, w.perform(workflowID, name, in, nil), kind)
}

func failed(t *testing.T, err error, kind string) string {
	t.Helper()
	var failure *temporal.ApplicationError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, kind, failure.Type(), failure.Message())
	require.Equal(t, kind != Waiting && kind != Interrupted, failure.NonRetryable(), "a reason is not tried again by Temporal (S7)")
	return failure.Message()
}

// failedAt is the SyncRef that a failed first step leaves to the record.
func (w *world) failedAt(name any, in any, kind string) SyncRef {
	w.t.Helper()
	var failure *temporal.ApplicationError
	err := w.perform(workflowID, name, in, nil)
	failed(w.t, err, kind)
	require.ErrorAs(w.t, err, &failure)
	var ref SyncRef
	require.NoError(w.t, failure.Details(&ref))
	return ref
}

// skips moves the clock on, and returns once a heartbeat was confirmed at the new time.
func (w *world) skips(d time.Duration) func() {
	return func() {
		w.mu.Lock()
		before := w.beats
		w.now = w.now.Add(d)
		w.beaten = sync.NewCond(&w.mu)
		for w.beats < before+2 { // the first may have been sent before
			w.beaten.Wait()
		}
		w.mu.Unlock()
	}
}

// changes are the calls that begin with one of these words.
func (w *world) changes(words ...string) string {
	var out []string
	for _, call := range w.calls {
		if word, _, _ := strings.Cut(call, " "); slices.Contains(words, word) {
			out = append(out, call)
		}
	}
	return strings.Join(out, ", ")
}

func (w *world) call(format string, args ...any) error {
	line := fmt.Sprintf(format, args...)
	w.calls = append(w.calls, line)
	return w.fail[line]
}

// The control cluster.

func (w *world) Release(_ context.Context, namespace, name string) (*v1alpha1.Release, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	switch other := w.others[key]; {
	case w.controlError != nil:
		return nil, w.controlError
	case other != nil:
		return other.DeepCopy(), nil
	case key.String() != "team-a/shop" || w.rel == nil:
		return nil, release.ErrNotFound
	}
	return w.rel.DeepCopy(), nil
}

func (w *world) PatchStatus(_ context.Context, rel *v1alpha1.Release, mutate func(*v1alpha1.ReleaseStatus)) error {
	if rel.ResourceVersion != w.rel.ResourceVersion {
		return release.ErrConflict
	}
	before := rel.DeepCopy()
	mutate(&rel.Status)
	if reflect.DeepEqual(before.Status, rel.Status) {
		return nil
	}
	rel.ResourceVersion += "+"
	w.rel = rel.DeepCopy()
	return w.call("status")
}

func (w *world) Inventory(context.Context, *v1alpha1.Release) (*v1alpha1.ReleaseInventory, error) {
	if w.inv == nil {
		return &v1alpha1.ReleaseInventory{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "shop"}}, nil
	}
	return w.inv.DeepCopy(), nil
}

func (w *world) SaveInventory(_ context.Context, inv *v1alpha1.ReleaseInventory) error {
	if err := w.call("save %s | %s", named(inv.Spec.Objects), named(inv.Spec.Pending)); err != nil {
		return err
	}
	if w.inv != nil && w.inv.ResourceVersion != inv.ResourceVersion {
		return release.ErrConflict
	}
	inv.ResourceVersion += "+"
	w.inv = inv.DeepCopy()
	return nil
}

func (w *world) Claims(context.Context, types.NamespacedName, string) (map[release.ObjectRef]types.NamespacedName, error) {
	return w.claims, nil
}

func (w *world) Disclaim(_ context.Context, from types.NamespacedName, moved map[release.ObjectRef]bool) error {
	for ref := range moved {
		delete(w.claims, ref)
	}
	return w.call("disclaim %s %d", from, len(moved))
}

func (w *world) Event(_ context.Context, _ *v1alpha1.Release, _, _, reason, message string, _ time.Time) error {
	w.events = append(w.events, message)
	return w.call("event %s", reason)
}

func (w *world) SecretValue(_ context.Context, namespace, name, key string) ([]byte, error) {
	value, found := w.secrets[namespace+"/"+name+"/"+key]
	if !found {
		return nil, fmt.Errorf("Secret %s/%s has no key %q", namespace, name, key)
	}
	return []byte(value), nil
}

// The receiver of hooks.

func (w *world) Send(_ context.Context, request release.HookRequest) release.HookAnswer {
	w.sent = append(w.sent, request)
	if w.onSend != nil {
		w.onSend()
	}
	return w.answer
}

// The target cluster.

func (w *world) Connect(context.Context, *v1alpha1.Release, map[schema.GroupKind]string) (Target, error) {
	return w, w.targetError
}

func (w *world) Identity(context.Context) (string, error) { return clusterUID, nil }

func (w *world) Address() string { return "server:1" }

func (w *world) Silent() bool { return false }

func (w *world) Scope(_ context.Context, gvk schema.GroupVersionKind) (namespaced, known bool, err error) {
	return gvk.Kind == "ConfigMap", slices.Contains([]string{"ConfigMap", "Namespace", "CustomResourceDefinition"}, gvk.Kind), nil
}

func (w *world) DryRun(_ context.Context, items []release.Item, done func(i int, answer release.Applied, err error)) error {
	for i, item := range items {
		_ = w.call("dry-run %s", item.Ref.Name)
		if failure := w.dryRun[item.Ref.Name]; failure != nil {
			done(i, release.Applied{}, failure)
			continue
		}
		done(i, release.Applied{}, nil)
	}
	return nil
}

func (w *world) Apply(ctx context.Context, _ *release.Object, ref release.ObjectRef) (release.Applied, error) {
	if w.onApply != nil {
		w.onApply(ref.Name)
	}
	if err := release.CheckGuard(ctx); err != nil {
		return release.Applied{}, err
	}
	if err := w.call("apply %s", ref.Name); err != nil {
		return release.Applied{}, err
	}
	_, there := w.live[ref]
	w.live[ref] = &release.Live{Ref: ref, UID: "uid-" + ref.Name, OwnedByConvoy: true}
	w.facts[ref] = fact(ref.Name)
	return release.Applied{Created: !there, Changed: true, Fact: w.facts[ref]}, nil
}

// fact is what an apply leaves at the object of that name.
func fact(name string) release.Fact { return release.FactOf("uid-"+name, "v1", "", nil) }

func (w *world) Facts(_ context.Context, refs []release.ObjectRef) ([]release.Seen, error) {
	seen := make([]release.Seen, len(refs))
	for i, ref := range refs {
		if live := w.live[ref]; live != nil {
			seen[i] = release.Seen{Present: true, Deleting: live.DeletionTimestamp != nil, Fact: w.facts[ref]}
		}
	}
	return seen, w.call("facts %d", len(refs))
}

func (w *world) AwaitEstablished(_ context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	return w.call("await %s", strings.Join(names, " "))
}

func (w *world) Read(_ context.Context, ref release.ObjectRef) (*release.Live, error) {
	if w.read != nil {
		if err := w.read(ref); err != nil {
			return nil, err
		}
	}
	return w.live[ref], nil
}

func (w *world) Delete(_ context.Context, live *release.Live, propagation metav1.DeletionPropagation) (release.Deletion, error) {
	if err := w.call("delete %s %s", live.Ref.Name, propagation); err != nil {
		return release.Deletion{}, err
	}
	if len(w.deletion) > 0 {
		answer := w.deletion[0]
		w.deletion = w.deletion[1:]
		return answer, nil
	}
	delete(w.live, live.Ref)
	return release.Deletion{}, nil
}

func (w *world) Health(_ context.Context, refs []release.ObjectRef) (release.Health, error) {
	for _, ref := range refs {
		_ = w.call("health %s", ref.Name)
	}
	return w.health, nil
}

func (w *world) Inspect(_ context.Context, refs []release.ObjectRef) ([]release.Looked, error) {
	looked := make([]release.Looked, len(refs))
	for i, ref := range refs {
		_ = w.call("inspect %s", ref.Name)
		looked[i] = release.Looked{Ref: ref, Content: w.looked[ref.Name]}
		if looked[i].Content == nil {
			looked[i].Unsettled = "not found"
		}
	}
	return looked, nil
}

var errNoJobs = errors.New("this world has no Jobs")

func (w *world) CreateJob(context.Context, *batchv1.Job) (string, error) { return "", errNoJobs }

func (w *world) JobState(context.Context, string, string) (release.JobState, error) {
	return release.JobState{}, errNoJobs
}

func (w *world) DeleteJobs(context.Context, string, string, string) error { return errNoJobs }

// The source, and Temporal.

func (w *world) Fetch(_ context.Context, src v1alpha1.Source) (files []release.File, revision string, err error) {
	w.fetched++
	if w.onFetch != nil {
		w.onFetch()
	}
	return []release.File{{Name: "inline", Data: []byte(*src.Inline)}}, "r1", w.sourceError
}

func (w *world) Running(context.Context, string, string) (running bool, closedAt time.Time, err error) {
	return w.running, w.closedAt, w.runsError
}

func (w *world) Beat(context.Context, []byte, any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.beats++
	if w.beaten != nil {
		w.beaten.Broadcast()
	}
	if w.beat != nil {
		return w.beat()
	}
	return nil
}

func (w *world) SetFinalizer(_ context.Context, rel *v1alpha1.Release, finalizer string, present bool) error {
	if slices.Contains(rel.Finalizers, finalizer) == present {
		return nil
	}
	if err := w.call("finalizer %s %t", finalizer, present); err != nil {
		return err
	}
	rel.Finalizers = slices.DeleteFunc(rel.Finalizers, func(f string) bool { return f == finalizer })
	if present {
		rel.Finalizers = append(rel.Finalizers, finalizer)
	}
	w.rel.Finalizers = rel.Finalizers
	return nil
}

func (w *world) HoldInventory(_ context.Context, _ *v1alpha1.Release, finalizer string, held bool) error {
	if w.inv == nil || slices.Contains(w.inv.Finalizers, finalizer) == held {
		return nil
	}
	w.inv.Finalizers = nil
	if held {
		w.inv.Finalizers = []string{finalizer}
	}
	return w.call("inventory held %t", held)
}

func (w *world) Searchable(context.Context) bool { return true }

func (w *world) Ended(_ context.Context, loopID, parentRunID, _ string) error {
	return w.call("tell %s %s", loopID, parentRunID)
}
