package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/internal/source"

	"github.com/spf13/cobra"
	"go.temporal.io/api/serviceerror"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// The exit codes: scripts rely on them. helpExitCodes tells people.
const (
	exitDone         = 0
	exitDifferent    = 1
	exitUsage        = 2
	exitNotFound     = 3
	exitUnreachable  = 4
	exitFailed       = 5
	exitUnappliable  = 10
	exitDeployFailed = 11
	exitPruneFailed  = 12
	exitRenderFailed = 13
	exitHookFailed   = 14
	exitWaveTimeout  = 15
	exitSuperseded   = 16
	exitRefused      = 17
	exitInterrupted  = 130
)

const helpExitCodes = `The exit code says what happened.

  0    done; diff: the next sync changes nothing
  1    diff: the next sync changes something
  2    the command line is wrong
  3    the Release is not there, or convoy's kinds are not installed
  4    Temporal or a cluster cannot be reached
  5    anything else; the message says what

sync --wait also tells the reason of a sync that failed, and diff that of a sync that would fail:

  10   Unappliable    the cluster rejects an object; nothing was applied
  11   DeployFailed   an apply failed, or the cluster could not answer
  12   PruneFailed    everything was applied, a delete failed
  13   RenderFailed   the source gives no render that may be applied
  14   HookFailed     a preSync hook failed; nothing was applied
  15   WaveTimeout    a wave did not become healthy in time, or nobody approved it
  16   Superseded     the sync was cancelled, terminated or superseded
  17   Refused        the Release is suspended or being deleted, and nothing was asked for; sync --digest: another sync
                      of the Release runs, and this one did not begin; approve and reject: no gate waits for
                      that word, or it was given otherwise

  130  Ctrl-C or SIGTERM; under sync --wait the sync itself goes on`

func exitCodesTopic() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes say", Long: helpExitCodes}
}

// failure is an error with its exit code. An empty message prints nothing.
type failure struct {
	code    int
	message string
}

func (f *failure) Error() string { return f.message }

func failf(code int, format string, args ...any) *failure {
	return &failure{code, fmt.Sprintf(format, args...)}
}

// exitOfReason is the exit code of a reason: the type of the application error of a failed SyncWorkflow.
func exitOfReason(reason string) int {
	switch reason {
	case string(release.Succeeded):
		return exitDone
	case string(release.Unappliable):
		return exitUnappliable
	case string(release.DeployFailed):
		return exitDeployFailed
	case string(release.PruneFailed):
		return exitPruneFailed
	case string(release.RenderFailed):
		return exitRenderFailed
	case string(release.HookFailed):
		return exitHookFailed
	case string(release.WaveTimeout):
		return exitWaveTimeout
	case string(release.Superseded):
		return exitSuperseded
	case activities.Refused, activities.Fenced:
		return exitRefused
	}
	return exitFailed
}

// asFailure gives an error its exit code, and adds the remedy where there is a known one.
func asFailure(ctx context.Context, err error) *failure {
	var known *failure
	var problem *release.Problem
	var answer *release.Failure
	var fetch *source.Error
	switch {
	case errors.As(err, &known):
		return known
	case ctx.Err() != nil:
		return failf(exitInterrupted, "interrupted")
	case errors.Is(err, release.ErrNotFound):
		return failf(exitNotFound, "%v: `kubectl get releases -A` lists those there are", err)
	case meta.IsNoMatchError(err):
		return failf(exitNotFound, "the cluster does not know convoy's kinds: run `convoy install` first, or choose another cluster with --context or --kubeconfig (%v)", err)
	case errors.As(err, &problem):
		return failf(exitOfReason(string(problem.Reason)), "%s: %s", problem.Reason, problem.Message)
	case errors.As(err, &fetch):
		return failf(exitRenderFailed, "%s: %s", release.RenderFailed, fetch.Message)
	case errors.As(err, &answer):
		return ofAnswer(err, answer)
	case isUnreachable(err):
		return failf(exitUnreachable, "%v: the cluster cannot be reached: check --kubeconfig, --context and the network", err)
	case isTemporalUnreachable(err):
		return failf(exitUnreachable, "Temporal: %v: check --temporal-address or TEMPORAL_ADDRESS", err)
	}
	return failf(exitFailed, "%v", err)
}

func ofAnswer(err error, answer *release.Failure) *failure {
	if answer.Class == release.Accident && (answer.Code == 0 || answer.Code >= 500 || answer.Code == 429) {
		return failf(exitUnreachable, "%v", err)
	}
	return failf(exitFailed, "%v", err)
}

func isUnreachable(err error) bool {
	var network net.Error
	var request *url.Error
	return errors.As(err, &network) || errors.As(err, &request) || errors.Is(err, context.DeadlineExceeded) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err)
}

func isTemporalUnreachable(err error) bool {
	var unavailable *serviceerror.Unavailable
	var late *serviceerror.DeadlineExceeded
	return errors.As(err, &unavailable) || errors.As(err, &late)
}
