package workflows

import (
	"fmt"
	"slices"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// Memory is what the loop of a Release remembers from run to run. Fields are only ever added.
type Memory struct {
	UID string `json:"uid,omitempty"`
	// MaxEvents bounds the history of a run, in events. It is handed over so that a replay does not depend on flags.
	MaxEvents int `json:"maxEvents,omitempty"`
	// NextDue is when the next pass is due by itself.
	NextDue time.Time `json:"nextDue,omitzero"`
	// Waiting are the requests that no sync has taken yet, as one (D26).
	Waiting *release.Request `json:"waiting,omitempty"`
	// Recent are the answers that were given last, newest first, and Unwritten those that status does not have yet.
	Recent    []v1alpha1.HandledRequest `json:"recent,omitempty"`
	Unwritten []v1alpha1.HandledRequest `json:"unwritten,omitempty"`
	// Running is the sync that the loop waits for.
	Running *Running `json:"running,omitempty"`
	// Failures is how many syncs failed in a row in a way that is retried (D22), and Retry the request whose sync failed
	// and that its retries belong to; RetryOf is the digest that force and retries end with.
	Failures int              `json:"failures,omitempty"`
	Retry    *release.Request `json:"retry,omitempty"`
	RetryOf  string           `json:"retryOf,omitempty"`
	// Whole: the next pass is a whole sync (D16).
	Whole bool `json:"whole,omitempty"`
	// UnsureUntil is until when a request of a lost attempt may still be on its way.
	UnsureUntil time.Time `json:"unsureUntil,omitzero"`
	// SyncedSpec, Generation and AnnotationID are what was seen of the Release last.
	SyncedSpec   string `json:"syncedSpec,omitempty"`
	Generation   int64  `json:"generation,omitempty"`
	AnnotationID string `json:"annotationID,omitempty"`
	Suspended    bool   `json:"suspended,omitempty"`
	Cluster      string `json:"cluster,omitempty"`
	// Deleting: the Release is being deleted, so no request is served any more.
	Deleting bool `json:"deleting,omitempty"`
	// Cadence of the Release when it was last looked at.
	Cadence release.Cadence `json:"cadence,omitzero"`
	// Signals counts the requests that came without an id, to give them one.
	Signals int `json:"signals,omitempty"`
	// Woken and Due: a look is wanted at once, and for what.
	Woken bool `json:"woken,omitempty"`
	Due   bool `json:"due,omitempty"`
}

// Running is a sync that the loop waits for.
type Running struct {
	RunID string `json:"runID"`
	// Generation, Spec and Digest are what it was started for.
	Generation int64  `json:"generation,omitempty"`
	Spec       string `json:"spec,omitempty"`
	Digest     string `json:"digest,omitempty"`
	// Request that it serves, nil for one that nobody asked for, and for one that the loop did not start.
	Request   *release.Request `json:"request,omitempty"`
	StartedAt time.Time        `json:"startedAt,omitzero"`
	Deletion  bool             `json:"deletion,omitempty"`
	// Superseded and Cancelled: it was told to end.
	Superseded bool `json:"superseded,omitempty"`
	Cancelled  bool `json:"cancelled,omitempty"`
	// Ending: it has said that it ends.
	Ending bool `json:"ending,omitempty"`
}

// foreign reports whether somebody else started the sync: the loop does not supersede it, and cancels it only when the
// Release is being deleted (D23).
func (r *Running) foreign() bool { return r.Spec == "" }

// child is what the loop runs under the sync's id.
type child int

const (
	aSync child = iota
	deletion
)

// loop is the state of one run of a ReleaseWorkflow.
type loop struct {
	*Workflows
	in    ReleaseInput
	mem   Memory
	inbox inbox
	// child is the sync that this run has started, nil when there is none or a run before has started it.
	child workflow.ChildWorkflowFuture
	first bool
	// woken: something came that is worth a look before the time is due; due: a person asked for a reconcile.
	woken, due bool
	// reborn: another Release has come under the same name.
	reborn bool
	// clashUntil is the end of the pause after a sync could not begin: until then requests wait.
	clashUntil time.Time
	// refused are the ids whose updates end with an error, and why.
	refused map[string]string
	// evict says why waiting updates end with this run; closed, why no request is taken any more.
	evict, closed string
	doing         string
}

// defaultMaxEvents is far below what the server suggests, so that a loop rolls over about daily.
const defaultMaxEvents = 2000

// beginLoop restores the memory, and registers the handlers before anything blocks.
func (w *Workflows) beginLoop(ctx workflow.Context, in ReleaseInput) (*loop, error) {
	l := &loop{Workflows: w, in: in, doing: "starting"}
	if in.Memory != nil {
		l.begin(*in.Memory)
	} else {
		l.begin(Memory{})
	}
	if l.mem.Running != nil {
		// Its end may have fallen between the run before and this one, where nobody is told.
		l.mem.NextDue = earlier(l.mem.NextDue, workflow.Now(ctx).Add(pauseAfterClash))
	}
	l.inbox = openInbox(ctx)
	if err := release.CheckNames(in.Namespace, in.Name); err != nil {
		return nil, temporal.NewNonRetryableApplicationError(err.Error(), activities.Refused, nil)
	}
	return l, l.handle(ctx)
}

// begin begins with a memory: that of the run before, or an empty one.
func (l *loop) begin(memory Memory) {
	l.mem = memory
	l.first, l.woken, l.due = memory.UID == "", memory.Woken, memory.Due
	l.mem.Woken, l.mem.Due = false, false
	l.reborn, l.closed, l.refused = false, "", map[string]string{}
	if l.mem.MaxEvents <= 0 {
		l.mem.MaxEvents = defaultMaxEvents
	}
}

func (l *loop) id() string { return l.in.Namespace + "/" + l.in.Name }

// awake reports whether there is anything to look at now.
func (l *loop) awake(ctx workflow.Context) bool {
	servable := l.mem.Running == nil && !l.mem.Suspended && !l.mem.Deleting && !workflow.Now(ctx).Before(l.clashUntil)
	requested := l.mem.Waiting != nil && servable
	return l.first || l.woken || l.due || requested || !workflow.Now(ctx).Before(l.mem.NextDue)
}

// rest waits until the next pass is due, a message comes, or the sync ends.
func (l *loop) rest(ctx workflow.Context) error {
	timing, stop := workflow.WithCancel(ctx)
	defer stop()
	l.doing = l.restsFor()
	l.show(ctx)
	timer := workflow.NewTimerWithOptions(timing, l.mem.NextDue.Sub(workflow.Now(ctx)), workflow.TimerOptions{Summary: l.doing})
	selector := workflow.NewSelector(ctx)
	selector.AddFuture(timer, func(workflow.Future) {})
	l.inbox.wake(selector)
	if l.child != nil {
		selector.AddFuture(l.child, func(workflow.Future) { l.childEnded(ctx) })
	}
	selector.AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) {})
	selector.Select(ctx)
	return ctx.Err()
}

// restsFor is what the timer in the Temporal UI says.
func (l *loop) restsFor() string {
	switch {
	case l.mem.Running != nil && l.mem.Running.Deletion:
		return "the deletion runs: next look"
	case l.mem.Running != nil:
		return "a sync runs: next look whether it is still up to date"
	case l.mem.Suspended:
		return "suspended"
	case l.mem.Failures > 0:
		return fmt.Sprintf("retry after %d failures in a row", l.mem.Failures)
	}
	return "next reconcile"
}

// question is what the loop asks Observe.
func (l *loop) question(ctx workflow.Context) activities.ObserveInput {
	in := activities.ObserveInput{
		Namespace: l.in.Namespace, Name: l.in.Name, UID: l.mem.UID, First: l.first,
		// A Release that was suspended is looked at as if its time had come: what failed before may be tried again.
		Due: l.due || l.first || l.mem.Suspended || !workflow.Now(ctx).Before(l.mem.NextDue), Whole: l.mem.Whole,
		Retry: l.mem.Retry != nil, RetryOf: l.mem.RetryOf, SyncedSpec: l.mem.SyncedSpec, AnnotationID: l.mem.AnnotationID,
		Answers: l.mem.Unwritten,
	}
	if l.mem.Failures > 0 && !in.Due {
		in.RetryAt = l.mem.NextDue
	}
	if l.mem.Waiting != nil {
		in.Requests = l.mem.Waiting.IDs[:min(len(l.mem.Waiting.IDs), maxServed)]
	}
	if r := l.mem.Running; r != nil {
		in.Running = &activities.RunningSync{RunID: r.RunID, Awaited: l.child != nil, Spec: r.Spec, Digest: r.Digest}
	}
	return in
}

// take puts an observation into memory.
func (l *loop) take(in activities.ObserveInput, seen activities.Observation) {
	l.first, l.due = false, false
	if seen.Action == release.ActGone {
		return
	}
	if l.mem.UID != "" && l.mem.UID != seen.UID { // deleted and made anew under the same name
		l.mem = Memory{MaxEvents: l.mem.MaxEvents, Signals: l.mem.Signals, Waiting: l.mem.Waiting}
	}
	l.mem.Unwritten = nil
	l.mem.UID, l.mem.Generation, l.mem.Cadence, l.mem.Cluster = seen.UID, seen.Generation, seen.Cadence, seen.Cluster
	l.mem.Suspended, l.mem.Deleting = seen.Action == release.ActSuspended, seen.Action == release.ActDelete
	for _, handled := range slices.Backward(seen.Handled) { // status has the newest first
		l.remember([]v1alpha1.HandledRequest{handled})
	}
	l.forgetAnswered()
	if seen.Request != nil && !l.knows(seen.Request.IDs[0]) {
		l.mem.Waiting = l.mem.Waiting.Join(*seen.Request)
	}
	if seen.AnnotationID != "" {
		l.mem.AnnotationID = seen.AnnotationID
	}
	if len(in.Answers) > 0 {
		l.remember(in.Answers)
	}
}

// claim takes the requests that wait, for the sync that is to start: later ones wait for the next (D26).
func (l *loop) claim(seen activities.Observation, kind child) *release.Request {
	if kind == deletion {
		return nil
	}
	request, rest := l.mem.Waiting.Split(maxServed)
	l.mem.Waiting = rest
	l.mem.SyncedSpec = seen.Spec
	if l.mem.Retry != nil && l.mem.RetryOf != "" && seen.Digest != "" && seen.Digest != l.mem.RetryOf { // a new render ends force
		l.mem.Retry, l.mem.Failures = nil, 0
	}
	if request != nil {
		l.mem.Retry, l.mem.Failures = nil, 0
	}
	return request
}

// notStarted deals with a child that Temporal did not start: as a rule because a sync runs already.
func (l *loop) notStarted(ctx workflow.Context, request *release.Request, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if request != nil {
		l.mem.Waiting = request.Join(deref(l.mem.Waiting))
	}
	l.doing = "a sync could not be started: " + err.Error()
	l.mem.SyncedSpec, l.mem.NextDue, l.due = "", workflow.Now(ctx).Add(pauseAfterClash), false
	return workflow.NewTimerWithOptions(ctx, pauseAfterClash, workflow.TimerOptions{Summary: "another sync runs: looking again"}).Get(ctx, nil)
}

// pauseAfterClash is the pause after a sync could not begin beside another one.
const pauseAfterClash = 2 * time.Second

func deref(r *release.Request) release.Request {
	if r == nil {
		return release.Request{}
	}
	return *r
}

// execute starts the child workflow. Its parent may continue as new meanwhile, so the child is abandoned by it.
func (l *loop) execute(ctx workflow.Context, seen activities.Observation, kind child, request *release.Request) workflow.ChildWorkflowFuture {
	options := workflow.ChildWorkflowOptions{
		WorkflowID:            release.SyncWorkflowID(l.in.Namespace, l.in.Name),
		WaitForCancellation:   true,
		ParentClosePolicy:     enumspb.PARENT_CLOSE_POLICY_ABANDON,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		StaticSummary:         summary(l.id(), seen),
		StaticDetails:         details(l.id(), seen, request),
		Priority:              priority(seen.Cluster, request != nil),
	}
	if seen.Searchable { // a start with an unknown attribute would fail for ever
		options.TypedSearchAttributes = l.searchAttributes(seen)
	}
	ctx = workflow.WithChildOptions(ctx, options)
	in := SyncInput{Namespace: l.in.Namespace, Name: l.in.Name}
	ref := &activities.LoopRef{Failures: l.mem.Failures, Cause: seen.Cause, Searchable: seen.Searchable}
	switch {
	case request != nil:
		in.Force, in.RequestedBy, ref.Requests = request.Force, request.RequestedBy, request.IDs
	case l.mem.Retry != nil:
		in.Force, in.RequestedBy, ref.Retry = l.mem.Retry.Force, l.mem.Retry.RequestedBy, true
	}
	in.Loop = ref
	if kind == deletion {
		return workflow.ExecuteChildWorkflow(ctx, "DeleteWorkflow", in)
	}
	return workflow.ExecuteChildWorkflow(ctx, "SyncWorkflow", in)
}

// searchAttributes find a sync by its Release and its Cluster.
func (l *loop) searchAttributes(seen activities.Observation) temporal.SearchAttributes {
	updates := []temporal.SearchAttributeUpdate{temporal.NewSearchAttributeKeyKeyword(release.AttributeRelease).ValueSet(l.id())}
	if seen.Cluster != "" {
		updates = append(updates, temporal.NewSearchAttributeKeyKeyword(release.AttributeCluster).ValueSet(l.in.Namespace+"/"+seen.Cluster))
	}
	return temporal.NewSearchAttributes(updates...)
}

func summary(id string, seen activities.Observation) string {
	target := "control cluster"
	if seen.Cluster != "" {
		target = seen.Cluster
	}
	text := fmt.Sprintf("%s -> %s: %s", id, target, seen.Cause)
	return release.Summary(text)
}

// details are what the Temporal UI shows beside a sync.
func details(id string, seen activities.Observation, request *release.Request) string {
	text := fmt.Sprintf("- Release `%s`, generation %d\n- why: %s\n", id, seen.Generation, seen.Cause)
	if request != nil {
		text += fmt.Sprintf("- asked for by %q, force: %t, %d requests\n", request.RequestedBy, request.Force, len(request.IDs))
	}
	return text + fmt.Sprintf("- look at it with `convoy status %s`", id)
}

// priority gives each target cluster its share of the task queue, and puts what a person asked for first. A server
// without fairness ignores the key.
func priority(cluster string, requested bool) temporal.Priority {
	p := temporal.Priority{PriorityKey: 4, FairnessKey: "cluster:" + cluster}
	if requested {
		p.PriorityKey = 2
	}
	p.FairnessKey = p.FairnessKey[:min(len(p.FairnessKey), maxFairnessKey)]
	return p
}

// maxFairnessKey is what Temporal allows for a fairness key, in bytes.
const maxFairnessKey = 64

// observeOption is how Observe is run. Only a lost worker and a control cluster out of reach are retried, for ever.
func (l *loop) observeOption(in activities.ObserveInput) workflow.ActivityOptions {
	what := "look whether anything is to be done"
	switch {
	case in.Running != nil:
		what = "look after the sync that runs"
	case len(in.Requests) > 0:
		what = "look, for a sync request"
	}
	return workflow.ActivityOptions{
		ActivityID: "observe", Summary: what, StartToCloseTimeout: 2 * time.Minute, HeartbeatTimeout: l.HeartbeatTimeout,
		WaitForCancellation: true, Priority: priority(l.mem.Cluster, len(in.Requests) > 0),
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
	}
}

// full reports whether the history has grown so long that the loop has to continue as new. Updates that wait are left
// to their end for as long again.
func (l *loop) full(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	length := info.GetCurrentHistoryLength()
	switch {
	case length < l.mem.MaxEvents && !info.GetContinueAsNewSuggested():
		return false
	case length >= 2*l.mem.MaxEvents || workflow.AllHandlersFinished(ctx):
		return true
	}
	return false
}

// continueAsNew hands everything over to the next run: updates that still wait end, the messages are drained, and
// nothing yields in between.
func (l *loop) continueAsNew(ctx workflow.Context) error {
	l.evict = "the loop of Release " + l.id() + " began a new history while this update waited; its request is kept, and status.lastHandledRequests will have its answer"
	if err := workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) }); err != nil {
		return l.leave(ctx, err)
	}
	l.drain(ctx)
	next := l.mem
	if l.MaxLoopEvents > 0 {
		next.MaxEvents = l.MaxLoopEvents
	}
	next.Woken, next.Due = l.woken, l.due
	return workflow.NewContinueAsNewErrorWithOptions(ctx, workflow.ContinueAsNewErrorOptions{
		InitialVersioningBehavior: workflow.ContinueAsNewVersioningBehaviorAutoUpgrade,
	}, "ReleaseWorkflow", ReleaseInput{Namespace: l.in.Namespace, Name: l.in.Name, Memory: &next})
}

// leave ends the loop when it was cancelled. A sync that runs goes on to its end.
func (l *loop) leave(ctx workflow.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	l.closed = "the loop of Release " + l.id() + " was cancelled"
	l.refuseUpdates(l.closed)
	detached, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	if err := workflow.Await(detached, func() bool { return workflow.AllHandlersFinished(detached) }); err != nil {
		return err
	}
	return ctx.Err()
}

// knows reports whether a request was answered, waits, or is being served.
func (l *loop) knows(id string) bool {
	if release.Handled(l.mem.Recent, id) {
		return true
	}
	for _, request := range []*release.Request{l.mem.Waiting, l.serving()} {
		if request != nil && slices.Contains(request.IDs, id) {
			return true
		}
	}
	return false
}

func (l *loop) serving() *release.Request {
	if l.mem.Running == nil {
		return nil
	}
	return l.mem.Running.Request
}

// forgetAnswered drops waiting requests that turned out to be answered already.
func (l *loop) forgetAnswered() {
	if l.mem.Waiting == nil {
		return
	}
	left := *l.mem.Waiting
	left.IDs = slices.DeleteFunc(slices.Clone(left.IDs), func(id string) bool { return release.Handled(l.mem.Recent, id) })
	l.mem.Waiting = &left
	if len(left.IDs) == 0 {
		l.mem.Waiting = nil
	}
}

// remember keeps the last answers, so that a repeated request is recognised.
func (l *loop) remember(answers []v1alpha1.HandledRequest) {
	for _, a := range answers {
		if !release.Handled(l.mem.Recent, a.ID) {
			l.mem.Recent = append([]v1alpha1.HandledRequest{a}, l.mem.Recent...)
		}
	}
	l.mem.Recent = l.mem.Recent[:min(len(l.mem.Recent), maxRecent)]
}

// maxRecent bounds the answers in memory. They are short: sixty of them are far below what a payload may weigh.
const maxRecent = 60

// maxServed bounds the requests that one sync serves, so that no payload grows with a flood of them: the others are
// served by the next.
const maxServed = 200

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
