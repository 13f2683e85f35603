package workflows

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/activities"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// The histories in testdata/histories were recorded by workers of released shapes of the workflows (CONTRIBUTING.md says
// how). Each has to replay for ever: a running workflow of that shape meets the present code after an upgrade. A file
// is never recorded anew to make a test pass; a change that needs that is versioned.
func TestReplay_of_released_shapes(t *testing.T) {
	files, err := filepath.Glob("testdata/histories/*/*.json")
	require.NoError(t, err)
	kinds := map[string]int{}
	for _, file := range files {
		kind, _, _ := strings.Cut(filepath.Base(file), "-")
		kinds[kind]++
		t.Run(strings.TrimPrefix(file, "testdata/histories/"), func(t *testing.T) {
			require.NoError(t, replayFile(t, file, &Workflows{HeartbeatTimeout: time.Minute, MaxLoopEvents: 7}))
		})
	}
	for _, kind := range []string{"ReleaseWorkflow", "SyncWorkflow", "DeleteWorkflow"} {
		require.NotZero(t, kinds[kind], kind)
	}
}

// A workflow that does one step more before its first, and is else the same, must fail the replay: so the replay can fail.
func TestReplay_a_broken_workflow_fails(t *testing.T) {
	files, err := filepath.Glob("testdata/histories/*/*.json")
	require.NoError(t, err)
	for _, file := range files {
		require.Error(t, replayFile(t, file, broken{}), file)
	}
}

// shape is the three workflows.
type shape interface {
	ReleaseWorkflow(workflow.Context, ReleaseInput) error
	SyncWorkflow(workflow.Context, SyncInput) (SyncResult, error)
	DeleteWorkflow(workflow.Context, SyncInput) (SyncResult, error)
}

type broken struct{}

func oneStepMore(ctx workflow.Context) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{ActivityID: "more", StartToCloseTimeout: time.Hour})
	return workflow.ExecuteActivity(ctx, act.StoreRender, activities.SyncRef{}).Get(ctx, nil)
}

func (broken) ReleaseWorkflow(ctx workflow.Context, in ReleaseInput) error {
	if err := oneStepMore(ctx); err != nil {
		return err
	}
	return (&Workflows{}).ReleaseWorkflow(ctx, in)
}

func (broken) SyncWorkflow(ctx workflow.Context, in SyncInput) (SyncResult, error) {
	if err := oneStepMore(ctx); err != nil {
		return SyncResult{}, err
	}
	return (&Workflows{}).SyncWorkflow(ctx, in)
}

func (broken) DeleteWorkflow(ctx workflow.Context, in SyncInput) (SyncResult, error) {
	if err := oneStepMore(ctx); err != nil {
		return SyncResult{}, err
	}
	return (&Workflows{}).DeleteWorkflow(ctx, in)
}

func replayFile(t *testing.T, file string, w shape) error {
	t.Helper()
	data, err := os.Open(file)
	require.NoError(t, err)
	defer func() { _ = data.Close() }()
	history, err := client.HistoryFromJSON(data, client.HistoryJSONOptions{})
	require.NoError(t, err)
	replayer := worker.NewWorkflowReplayer()
	replayer.RegisterWorkflowWithOptions(w.ReleaseWorkflow, workflow.RegisterOptions{Name: "ReleaseWorkflow"})
	replayer.RegisterWorkflowWithOptions(w.SyncWorkflow, workflow.RegisterOptions{Name: "SyncWorkflow"})
	replayer.RegisterWorkflowWithOptions(w.DeleteWorkflow, workflow.RegisterOptions{Name: "DeleteWorkflow"})
	return replayer.ReplayWorkflowHistory(log.NewStructuredLogger(slog.New(slog.DiscardHandler)), history)
}
