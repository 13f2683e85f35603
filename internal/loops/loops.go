// Package loops reaches the ReleaseWorkflows, the loops of Releases: it starts them where they are missing, and brings
// them signals. Whoever does so, the worker's watch, its HTTP endpoint or the command line, starts the same workflow
// under the same id. It decides nothing, and knows nothing of clusters.
package loops

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"

	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/workflows"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"k8s.io/apimachinery/pkg/types"
)

// Loops reaches ReleaseWorkflows (SPEC 4). The task queue is for those that it starts: a loop that runs has its own.
type Loops struct {
	Client    client.Client
	TaskQueue string
	// MaxEvents bounds the history of a loop's first run, in events; 0: the default.
	MaxEvents int
}

// options of a loop's start: one id, no time limits, and a loop that is there already is the one.
func (l Loops) options(key types.NamespacedName) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID: release.ReleaseWorkflowID(key.Namespace, key.Name), TaskQueue: l.TaskQueue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		Memo:                     map[string]any{"release": key.String()},
	}
}

func (l Loops) input(key types.NamespacedName) workflows.ReleaseInput {
	in := workflows.ReleaseInput{Namespace: key.Namespace, Name: key.Name}
	if l.MaxEvents > 0 {
		in.Memory = &workflows.Memory{MaxEvents: l.MaxEvents}
	}
	return in
}

// Ensure starts the loop of a Release where it is missing.
func (l Loops) Ensure(ctx context.Context, key types.NamespacedName) error {
	_, err := l.Client.ExecuteWorkflow(ctx, l.options(key), "ReleaseWorkflow", l.input(key))
	return err
}

// Changed tells the loop of a Release that it changed, and starts it where it is missing.
func (l Loops) Changed(ctx context.Context, key types.NamespacedName, now workflows.Changed) error {
	return l.signal(ctx, key, workflows.SignalChanged, now)
}

// Sync asks the loop of a Release for a sync, and starts it where it is missing.
func (l Loops) Sync(ctx context.Context, key types.NamespacedName, request workflows.SyncRequest) error {
	return l.signal(ctx, key, workflows.SignalSync, request)
}

// Reconcile asks the loop of a Release to look at it now, and starts it where it is missing.
func (l Loops) Reconcile(ctx context.Context, key types.NamespacedName) error {
	return l.signal(ctx, key, workflows.SignalReconcile, nil)
}

func (l Loops) signal(ctx context.Context, key types.NamespacedName, name string, payload any) error {
	options := l.options(key)
	_, err := l.Client.SignalWithStartWorkflow(ctx, options.ID, name, payload, options, "ReleaseWorkflow", l.input(key))
	return err
}

// Gone tells the loop of a Release that there is no such Release any more. It starts none.
func (l Loops) Gone(ctx context.Context, key types.NamespacedName, last workflows.Changed) error {
	last.Deleted = true
	err := l.Client.SignalWorkflow(ctx, release.ReleaseWorkflowID(key.Namespace, key.Name), "", workflows.SignalChanged, last)
	var ended *serviceerror.NotFound
	if errors.As(err, &ended) {
		return nil
	}
	return err
}

// NewID makes the id of a request whose caller gave none.
func NewID() string {
	var random [6]byte
	_, _ = rand.Read(random[:]) // it never fails
	return "req-" + hex.EncodeToString(random[:])
}
