package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"convoy.dev/convoy/internal/teststack"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	teststack.Arguments = []string{"--ui=false"}
	teststack.Main(m)
}

// outcome is what a run of the program left behind.
type outcome struct {
	code           int
	stdout, stderr string
}

// convoy runs the program with a command line and an environment that holds nothing else.
func convoy(ctx context.Context, env []string, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, strings.NewReader(""), &stdout, &stderr, env)
	return outcome{code, stdout.String(), stderr.String()}
}

func TestTheCommandLineIsCheckedFirst(t *testing.T) {
	home := "HOME=" + t.TempDir()
	for _, tc := range []struct {
		name string
		env  []string
		args []string
		code int
		says string
	}{
		{"unknown command", nil, []string{"stat"}, exitUsage, "unknown command \"stat\" for \"convoy\": did you mean status? (`convoy --help` lists the commands)\n"},
		{"unknown flag", nil, []string{"diff", "--nope", "a/b"}, exitUsage, "unknown flag: --nope: see `convoy diff --help`"},
		{"no Release", nil, []string{"sync"}, exitUsage, "convoy sync takes one argument, NAMESPACE/NAME"},
		{"two Releases", nil, []string{"status", "a/b", "c/d"}, exitUsage, "and got 2"},
		{"no namespace", nil, []string{"status", "shop"}, exitUsage, `"shop" is no Release: write NAMESPACE/NAME`},
		{"too many slashes", nil, []string{"inventory", "a/b/c"}, exitUsage, "is no Release"},
		{"empty name", nil, []string{"inventory", "a/"}, exitUsage, "namespace and name of the Release are needed"},
		{"colon in the name", nil, []string{"sync", "a/b:c"}, exitUsage, "hold no colon"},
		{"output format", nil, []string{"status", "a/b", "-o", "xml"}, exitUsage, "-o xml: use json or yaml"},
		{"digest", nil, []string{"sync", "a/b", "--digest", "abc"}, exitUsage, "write sha256: and 64 hex digits"},
		{"id and digest", nil, []string{"sync", "a/b", "--id", "x", "--digest", digestA}, exitUsage, "use one of them"},
		{"id with a space", nil, []string{"sync", "a/b", "--id", "x y"}, exitUsage, "neither spaces nor control characters"},
		{"two gates", nil, []string{"approve", "a/b", "--wave", "0", "--final"}, exitUsage, "--wave and --final are two gates"},
		{"digest of a word", nil, []string{"reject", "a/b", "--digest", "abc"}, exitUsage, "write sha256: and 64 hex digits"},
		{"command like no other", nil, []string{"xyzzy"}, exitUsage, "unknown command \"xyzzy\" for \"convoy\" (`convoy --help`"},
		{"list takes no Release", nil, []string{"list", "a/b"}, exitUsage, `convoy list takes no argument, and got "a/b"`},
		{"format of a list", nil, []string{"list", "-o", "xml"}, exitUsage, "-o xml: use json, yaml or wide"},
		{"environment", []string{"CONVOY_FORCE=perhaps"}, []string{"sync", "a/b"}, exitUsage, `CONVOY_FORCE="perhaps"`},
		{"no kubeconfig", nil, []string{"status", "a/b"}, exitUsage, home[len("HOME="):] + "/.kube/config: name a kubeconfig with --kubeconfig or KUBECONFIG"},
		{"kubeconfig that is not there", nil, []string{"status", "a/b", "--kubeconfig", "/nope"}, exitUsage, "/nope"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := convoy(t.Context(), append(tc.env, home), tc.args...)
			require.Equal(t, tc.code, got.code, got.stderr)
			require.Contains(t, got.stderr, tc.says)
			require.NotContains(t, got.stderr, "KUBERNETES_MASTER")
			require.Empty(t, got.stdout)
		})
	}
}

func TestHelpTellsEveryExitCode(t *testing.T) {
	got := convoy(t.Context(), nil, "help", "exit-codes")
	require.Equal(t, exitDone, got.code)
	for _, code := range []string{"0 ", "1 ", "2 ", "3 ", "4 ", "5 ", "10 ", "11 ", "12 ", "13 ", "14 ", "15 ", "16 ", "17 ", "130 "} {
		require.Contains(t, got.stdout, "\n  "+code)
	}
}

func TestHelpIsForNewcomers(t *testing.T) {
	got := convoy(t.Context(), nil)
	require.Equal(t, exitDone, got.code)
	for _, text := range []string{"Look:\n", "Act:\n", "Set up:\n", "convoy install", "convoy sync team-a/shop --wait", "exit-codes", "CONVOY_TASK_QUEUE"} {
		require.Contains(t, got.stdout, text)
	}
}

func TestVersionAndCompletionNeedNoCluster(t *testing.T) {
	require.Contains(t, convoy(t.Context(), nil, "version").stdout, "convoy ")
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		got := convoy(t.Context(), nil, "completion", shell)
		require.Equal(t, exitDone, got.code, got.stderr)
		require.Contains(t, got.stdout, "convoy")
	}
}

func TestFlagsComeFromTheEnvironmentUnlessGiven(t *testing.T) {
	for _, tc := range []struct {
		args  []string
		queue string
	}{
		{nil, "from-environment"},
		{[]string{"--task-queue", "from-flag"}, "from-flag"},
	} {
		p := &program{env: environment{"CONVOY_TASK_QUEUE=from-environment"}, stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}}
		root := p.root()
		root.SetArgs(append([]string{"version"}, tc.args...))
		require.NoError(t, root.Execute())
		require.Equal(t, tc.queue, p.globals.taskQueue)
	}
}

func TestPathRootsComeFromTheEnvironmentWithColons(t *testing.T) {
	p := &program{env: environment{"CONVOY_PATH_ROOT=/a:/b"}}
	cmd := p.diffCommand()
	require.NoError(t, p.fromEnvironment(cmd.Flags()))
	roots, err := cmd.Flags().GetStringArray("path-root")
	require.NoError(t, err)
	require.Equal(t, []string{"/a", "/b"}, roots)
}
