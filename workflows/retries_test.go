package workflows

import (
	"testing"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
)

// S7 D22: a step that gave a reason is not tried again by Temporal, even where its error does not forbid it.
func TestSyncWorkflow_S7_a_step_that_gave_a_reason_is_not_tried_again(t *testing.T) {
	for _, reason := range []string{
		string(release.Unappliable), string(release.DeployFailed), string(release.PruneFailed), string(release.RenderFailed),
		string(release.HookFailed), string(release.Superseded), activities.Refused,
	} {
		t.Run(reason, func(t *testing.T) {
			s := newStage(t, plan())
			s.fail["dry run"] = temporal.NewApplicationError("it went wrong", reason)
			require.Equal(t, reason, s.run(SyncInput{}))
			require.Equal(t, []string{"prepare", "dry run", "record " + reason}, s.calls)
		})
	}
}
