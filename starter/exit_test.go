package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/internal/source"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	sdk "go.temporal.io/sdk/temporal"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestEveryErrorHasItsExitCode(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		code int
		says string
	}{
		{"no such Release", fmt.Errorf("Release a/b: %w", release.ErrNotFound), exitNotFound, "kubectl get releases -A"},
		{"convoy not installed", fmt.Errorf("read: %w", &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "Release"}}), exitNotFound, "convoy install"},
		{"cluster out of reach", fmt.Errorf("read: %w", &net.OpError{Op: "dial", Err: errors.New("connection refused")}), exitUnreachable, "check --kubeconfig"},
		{"target out of reach", &release.Failure{Class: release.Accident, Message: "no answer"}, exitUnreachable, "no answer"},
		{"target refuses", &release.Failure{Class: release.Verdict, Code: 403, Message: "forbidden"}, exitFailed, "forbidden"},
		{"Temporal out of reach", serviceerror.NewUnavailable("gone"), exitUnreachable, "--temporal-address"},
		{"bad render", release.Problemf(release.RenderFailed, "line 3"), exitRenderFailed, "RenderFailed: line 3"},
		{"bad source", &source.Error{Message: "no such file"}, exitRenderFailed, "RenderFailed: no such file"},
		{"anything else", errors.New("odd"), exitFailed, "odd"},
		{"as it is", failf(exitRefused, "busy"), exitRefused, "busy"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := asFailure(t.Context(), tc.err)
			require.Equal(t, tc.code, got.code)
			require.Contains(t, got.message, tc.says)
		})
	}
}

func TestAnInterruptedCommandSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, exitInterrupted, asFailure(ctx, errors.New("request failed")).code)
}

// How a sync ends in Temporal, and the exit code of `convoy sync --wait`.
func TestEveryEndOfASyncHasItsExitCode(t *testing.T) {
	for _, tc := range []struct {
		err  error
		code int
	}{
		{sdk.NewNonRetryableApplicationError("m", "Unappliable", nil), 10},
		{sdk.NewNonRetryableApplicationError("m", "DeployFailed", nil), 11},
		{sdk.NewNonRetryableApplicationError("m", "PruneFailed", nil), 12},
		{sdk.NewNonRetryableApplicationError("m", "RenderFailed", nil), 13},
		{sdk.NewNonRetryableApplicationError("m", "HookFailed", nil), 14},
		{sdk.NewNonRetryableApplicationError("m", "WaveTimeout", nil), 15},
		{sdk.NewNonRetryableApplicationError("m", "Superseded", nil), 16},
		{sdk.NewCanceledError("m"), 16},
		{&sdk.TerminatedError{}, 16},
		{sdk.NewNonRetryableApplicationError("m", "Refused", nil), 17},
		{sdk.NewNonRetryableApplicationError("m", "Fenced", nil), 17},
		{sdk.NewNonRetryableApplicationError("m", "PanicError", nil), exitFailed},
		{serviceerror.NewUnavailable("gone"), exitUnreachable},
	} {
		p := &program{}
		got := asFailure(t.Context(), p.finish(workflowsResult, tc.err))
		require.Equal(t, tc.code, got.code, "%v", tc.err)
		require.NotEmpty(t, got.message)
	}
}
