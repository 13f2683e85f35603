package workflows

import (
	"fmt"
	"slices"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// The messages of a ReleaseWorkflow (SPEC 4). The last two are convoy's own: the worker's watch says that a Release
// changed, and the record of a sync says that it ended. SignalSupersede goes to a SyncWorkflow.
const (
	SignalSync      = "sync"
	UpdateSync      = "sync"
	SignalReconcile = "reconcile"
	QueryStatus     = "status"
	SignalChanged   = "changed"
	SignalSyncEnded = "sync-ended"
	SignalSupersede = "supersede"
)

// SyncRequest asks for a sync: the payload of the signal and of the update sync. All of it is optional.
type SyncRequest struct {
	// ID of the request. The same id again asks for nothing new. Without one the loop gives it one.
	ID string `json:"id,omitempty"`
	// Force skips the dry run (S9).
	Force bool `json:"force,omitempty"`
	// RequestedBy names who asks.
	RequestedBy string `json:"requestedBy,omitempty"`
}

// SyncAnswer is what a requested sync came to: the result of the update sync.
type SyncAnswer struct {
	ID string `json:"id"`
	// Result is Succeeded, Failed or Superseded.
	Result  string `json:"result"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Digest  string `json:"digest"`
	RunID   string `json:"runID"`
}

// Changed says what the watch saw of a Release.
type Changed struct {
	UID          string `json:"uid,omitempty"`
	Generation   int64  `json:"generation,omitempty"`
	AnnotationID string `json:"annotationID,omitempty"`
	Deleted      bool   `json:"deleted,omitempty"`
}

// SyncEnded says that a sync has ended.
type SyncEnded struct {
	RunID string `json:"runID"`
}

// Supersede tells a sync to end at its wait, because something newer is to be synced (D23).
type Supersede struct {
	By string `json:"by"`
}

// LoopStatus is the answer to the query status of a ReleaseWorkflow.
type LoopStatus struct {
	// Doing says what the loop does or waits for.
	Doing     string    `json:"doing"`
	NextAt    time.Time `json:"nextReconcileAt,omitzero"`
	Suspended bool      `json:"suspended,omitempty"`
	// SyncRunID is the run of the sync that the loop waits for.
	SyncRunID string `json:"syncRunID,omitempty"`
	// Waiting are the ids of requests that the next sync will serve.
	Waiting []string `json:"waiting,omitempty"`
	// Failures is how many syncs failed in a row.
	Failures int `json:"failures,omitempty"`
	// Answered are the requests that were answered last, newest first.
	Answered []v1alpha1.HandledRequest `json:"answered,omitempty"`
}

// inbox holds the channels of the loop's signals; poke wakes it for an update.
type inbox struct {
	sync, reconcile, changed, ended workflow.ReceiveChannel
	poke                            workflow.Channel
	updates                         []string // ids of updates that wait
}

func openInbox(ctx workflow.Context) inbox {
	open := func(name, description string) workflow.ReceiveChannel {
		return workflow.GetSignalChannelWithOptions(ctx, name, workflow.SignalChannelOptions{Description: description})
	}
	return inbox{
		sync:      open(SignalSync, `sync now: no input, or {"force":true,"id":"…","requestedBy":"…"}`),
		reconcile: open(SignalReconcile, "look at the Release now, as if its interval had passed"),
		changed:   open(SignalChanged, "the worker's watch saw a change of the Release"),
		ended:     open(SignalSyncEnded, "a sync of the Release has ended"),
		poke:      workflow.NewBufferedChannel(ctx, 1),
	}
}

// wake makes a selector end when a message comes. It takes none: drain does.
func (i *inbox) wake(selector workflow.Selector) {
	for _, channel := range []workflow.ReceiveChannel{i.sync, i.reconcile, i.changed, i.ended, i.poke} {
		selector.AddReceive(channel, func(workflow.ReceiveChannel, bool) {})
	}
}

// handle registers the query and the update.
func (l *loop) handle(ctx workflow.Context) error {
	err := workflow.SetQueryHandlerWithOptions(ctx, QueryStatus, func() (LoopStatus, error) { return l.status(), nil },
		workflow.QueryHandlerOptions{Description: "what the loop does, its next reconcile, and the requests that wait"})
	if err != nil {
		return err
	}
	return workflow.SetUpdateHandlerWithOptions(ctx, UpdateSync, l.syncUpdate, workflow.UpdateHandlerOptions{
		Validator:   l.mayRequest,
		Description: "sync, and return when that sync has ended, with its result",
	})
}

func (l *loop) status() LoopStatus {
	s := LoopStatus{
		Doing: l.doing, NextAt: l.mem.NextDue, Suspended: l.mem.Suspended, Failures: l.mem.Failures,
		Answered: l.mem.Recent[:min(len(l.mem.Recent), 20)],
	}
	if l.mem.Running != nil {
		s.SyncRunID = l.mem.Running.RunID
	}
	if l.mem.Waiting != nil {
		s.Waiting = l.mem.Waiting.IDs
	}
	return s
}

// mayRequest is the validator of the update: what cannot be served is refused, and leaves no trace in the history.
func (l *loop) mayRequest(request SyncRequest) error {
	switch {
	case l.closed != "":
		return temporal.NewApplicationError(l.closed, activities.Refused)
	case l.evict != "":
		return temporal.NewApplicationError(l.evict, activities.Refused)
	case l.mem.Suspended:
		return temporal.NewApplicationError("Release "+l.id()+" is suspended: lift spec.suspend first (convoy resume "+l.id()+")", activities.Refused)
	case l.mem.Deleting:
		return temporal.NewApplicationError(l.isDeleted(), activities.Refused)
	case l.crowded():
		return temporal.NewApplicationError(fmt.Sprintf("%d sync requests wait for Release %s already: the next sync serves them, ask again after it", maxWaiting, l.id()), activities.Refused)
	case len(request.ID) > release.MaxRequestID:
		return temporal.NewApplicationError(fmt.Sprintf("the id has %d bytes, and at most %d are allowed", len(request.ID), release.MaxRequestID), activities.Refused)
	}
	return nil
}

// syncUpdate puts a request to the others, and waits for its answer.
func (l *loop) syncUpdate(ctx workflow.Context, request SyncRequest) (SyncAnswer, error) {
	id := l.ask(ctx, "update", request)
	delete(l.refused, id) // an earlier update, which was refused for what is over now
	l.inbox.updates = append(l.inbox.updates, id)
	l.inbox.poke.SendAsync(true)
	waiting, stop := workflow.NewDisconnectedContext(ctx) // a cancelled loop says why it ends: see leave
	defer stop()
	err := workflow.Await(waiting, func() bool {
		return release.Handled(l.mem.Recent, id) || l.refused[id] != "" || l.evict != "" || l.closed != ""
	})
	l.inbox.updates = slices.DeleteFunc(l.inbox.updates, func(other string) bool { return other == id })
	if err != nil {
		return SyncAnswer{}, err
	}
	if i := slices.IndexFunc(l.mem.Recent, func(r v1alpha1.HandledRequest) bool { return r.ID == id }); i >= 0 {
		r := l.mem.Recent[i]
		return SyncAnswer{ID: r.ID, Result: r.Result, Reason: r.Reason, Message: r.Message, Digest: r.Digest, RunID: r.RunID}, nil
	}
	for _, why := range []string{l.refused[id], l.closed, l.evict} {
		if why != "" {
			return SyncAnswer{}, temporal.NewNonRetryableApplicationError(why, activities.Refused, nil)
		}
	}
	return SyncAnswer{}, nil
}

func (l *loop) isDeleted() string {
	return "Release " + l.id() + " is being deleted: no sync of it begins any more"
}

// refuseUpdates ends the updates whose sync has not begun. Requests that came as a signal are kept.
func (l *loop) refuseUpdates(why string) {
	for _, id := range l.inbox.updates {
		if serving := l.serving(); serving != nil && slices.Contains(serving.IDs, id) {
			continue
		}
		l.refused[id] = why
		if l.mem.Waiting == nil {
			continue
		}
		left := *l.mem.Waiting
		left.IDs = slices.DeleteFunc(slices.Clone(left.IDs), func(other string) bool { return other == id })
		if l.mem.Waiting = &left; len(left.IDs) == 0 {
			l.mem.Waiting = nil
		}
	}
}

// ask puts a request to those that wait, unless it is known, and returns its id.
func (l *loop) ask(ctx workflow.Context, how string, request SyncRequest) string {
	if request.ID == "" {
		l.mem.Signals++
		request.ID = fmt.Sprintf("%s-%d-%d", how, workflow.Now(ctx).Unix(), l.mem.Signals)
	}
	id := release.RequestID(request.ID)
	if !l.knows(id) {
		asked := release.Request{IDs: []string{id}, Force: request.Force, RequestedBy: request.RequestedBy}
		if l.crowded() { // it is served with the others, and nobody is told by its id
			asked.IDs = nil
		}
		l.mem.Waiting = l.mem.Waiting.Join(asked)
		l.lookBeside(ctx)
	}
	return id
}

// maxWaiting bounds the ids of requests that wait: they travel in one payload to the next run of the loop, which may
// weigh 2 MiB.
const maxWaiting = 5000

// crowded reports whether no further id has room.
func (l *loop) crowded() bool { return l.mem.Waiting != nil && len(l.mem.Waiting.IDs) >= maxWaiting }

// lookBeside brings the next look forward when a request meets a sync that takes its time: the sync may wait for
// something that the source has mended since, and nobody who asks wants to wait for the interval (D23). The request
// alone restarts nothing.
func (l *loop) lookBeside(ctx workflow.Context) {
	if r := l.mem.Running; r != nil && !r.foreign() && !r.Superseded {
		soon := r.StartedAt.Add(lookBesideAfter)
		if now := workflow.Now(ctx); soon.Before(now) {
			soon = now
		}
		l.mem.NextDue = earlier(l.mem.NextDue, soon)
	}
}

// lookBesideAfter is how long a sync may take before a request makes the loop look at the source beside it.
const lookBesideAfter = 5 * time.Second

// drain takes every message that has come, and the end of the child. It does not yield.
func (l *loop) drain(ctx workflow.Context) {
	for l.inbox.poke.ReceiveAsync(nil) { // it only wakes
	}
	var raw converter.RawValue
	for l.inbox.sync.ReceiveAsync(&raw) {
		l.ask(ctx, "signal", l.decode(ctx, raw))
		raw = converter.RawValue{}
	}
	for l.inbox.reconcile.ReceiveAsync(nil) {
		l.due = true
	}
	var changed Changed
	for l.inbox.changed.ReceiveAsync(&changed) {
		l.woken = l.woken || l.isNews(changed)
		l.reborn = l.reborn || !changed.Deleted && changed.UID != "" && l.mem.UID != "" && changed.UID != l.mem.UID
		changed = Changed{}
	}
	var ended SyncEnded
	for l.inbox.ended.ReceiveAsync(&ended) {
		if l.child == nil && l.mem.Running != nil && l.mem.Running.RunID == ended.RunID {
			l.woken, l.mem.Running.Ending = true, true
		}
	}
	if l.child != nil && l.child.IsReady() {
		l.childEnded(ctx)
	}
}

// decode reads the payload of a sync signal. One that is no request still asks for a plain sync: nothing is lost.
func (l *loop) decode(ctx workflow.Context, raw converter.RawValue) SyncRequest {
	var request SyncRequest
	if raw.Payload() == nil {
		return request
	}
	if err := converter.GetDefaultDataConverter().FromPayload(raw.Payload(), &request); err != nil {
		workflow.GetLogger(ctx).Warn("the payload of a sync signal is no request; syncing without it", "error", err)
		return SyncRequest{}
	}
	return request
}

// isNews reports whether the watch saw something that the loop has not looked at yet.
func (l *loop) isNews(c Changed) bool {
	return c.Deleted || c.UID != l.mem.UID || c.Generation != l.mem.Generation ||
		c.AnnotationID != "" && c.AnnotationID != l.mem.AnnotationID
}
