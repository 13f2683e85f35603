// Package browser tests what a person sees of a stuck sync in Temporal's Web UI, with Debian's Chromium. The stack, the
// worker and the command line are the real ones.
package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"convoy.dev/convoy/dev/run/stack"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// The Release of the test: its wave 1 waits for a Pod whose image nobody can pull.
const manifests = `
apiVersion: v1
kind: Namespace
metadata: {name: team-a}
---
apiVersion: convoy.dev/v1alpha1
kind: Release
metadata: {name: shop, namespace: team-a}
spec:
  source:
    inline: |
      apiVersion: v1
      kind: Pod
      metadata: {name: front, namespace: team-a}
      spec: {containers: [{name: c, image: "registry.example/app:bad"}]}
      ---
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: after, namespace: team-a, annotations: {convoy.dev/sync-wave: "1"}}
  syncPolicy:
    waves: [{wave: 1, health: {strategy: Ready}}]
`

// What has to be read in the Web UI: the object that blocks, the wave that waits, and why.
const (
	workflowID = "sync:team-a:shop"
	blocking   = "wave 1 waits for wave 0: Pod team-a/front"
)

// patience bounds each wait; the Web UI loads its data late, and the machine may be busy.
const patience = 2 * time.Minute

// D23: who looks for the reason of a wait finds the blocking object and its message within two clicks from the list of
// workflows, with the worker and without it. Screenshots stay in bin/screenshots.
func TestAStuckWaveIsFoundInTwoClicks(t *testing.T) {
	browser := chromium(t)
	w := newWorld(t)
	w.start()
	w.kubectl(manifests, "apply", "-f", "-")
	w.kubectl("", "wait", "-n", "team-a", "rel/shop", "--for=jsonpath={.status.waves[1].phase}=Waiting", "--timeout=120s")
	w.findsIt(browser, "worker")
	w.worker.stop()
	w.findsIt(browser, "no-worker")
}

// chromium finds the browser. Where there is none the test fails in CI; a developer's machine may go without.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "there is no chromium on this machine: apt-get install --no-install-recommends chromium"
	if os.Getenv("CI") != "" {
		require.Fail(t, missing)
	}
	t.Skip("LEFT OUT: " + missing)
	return ""
}

// world is a stack of its own, with its Web UI, and a worker.
type world struct {
	*testing.T
	root, folder string
	stack        *stack.Stack
	worker       *process
}

func newWorld(t *testing.T) *world {
	t.Helper()
	root, err := stack.Root()
	require.NoError(t, err)
	require.NoError(t, stack.Build(t.Context(), root))
	w := &world{T: t, root: root, folder: t.TempDir()}
	w.stack, err = stack.Start(t.Context(), root, "--log-dir", filepath.Join(w.folder, "logs"))
	require.NoError(t, err)
	t.Cleanup(w.stack.Stop)
	require.NotEmpty(t, w.stack.UIURL)
	return w
}

// start builds convoy, installs it, and starts a worker.
func (w *world) start() {
	w.Helper()
	for program, source := range map[string]string{"convoy": "./starter", "worker": "./worker"} {
		build := exec.CommandContext(w.Context(), "go", "build", "-o", filepath.Join(w.folder, program), source)
		build.Dir = w.root
		out, err := build.CombinedOutput()
		require.NoError(w, err, string(out))
	}
	install := exec.CommandContext(w.Context(), filepath.Join(w.folder, "convoy"), "install")
	install.Env = append(os.Environ(), "KUBECONFIG="+w.stack.Kubeconfig, "TEMPORAL_ADDRESS="+w.stack.TemporalAddress)
	out, err := install.CombinedOutput()
	require.NoError(w, err, string(out))
	w.worker = w.starts(filepath.Join(w.folder, "worker"), "--kubeconfig", w.stack.Kubeconfig,
		"--temporal-address", w.stack.TemporalAddress, "--listen-address", "127.0.0.1:0")
}

func (w *world) kubectl(stdin string, args ...string) {
	w.Helper()
	command := exec.CommandContext(w.Context(), w.stack.Kubectl, append([]string{"--kubeconfig", w.stack.Kubeconfig}, args...)...)
	command.Stdin = strings.NewReader(stdin)
	out, err := command.CombinedOutput()
	require.NoError(w, err, string(out))
}

// process is a program that runs beside the test.
type process struct {
	command *exec.Cmd
	ended   chan struct{}
}

func (w *world) starts(program string, args ...string) *process {
	w.Helper()
	log, err := os.Create(filepath.Join(w.folder, filepath.Base(program)+".log"))
	require.NoError(w, err)
	defer func() { _ = log.Close() }()
	p := &process{command: exec.Command(program, args...), ended: make(chan struct{})}
	p.command.Stdout, p.command.Stderr = log, log
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	require.NoError(w, p.command.Start())
	go func() {
		_ = p.command.Wait()
		close(p.ended)
	}()
	w.Cleanup(p.stop)
	return p
}

// stop ends the program as an operator would.
func (p *process) stop() {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	<-p.ended
}

// findsIt goes from the list of workflows to the reason of the wait: one click on the sync, one on its pending activities.
func (w *world) findsIt(browser, shot string) {
	w.Helper()
	allocator, release := chromedp.NewExecAllocator(w.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(browser), chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true), chromedp.WindowSize(1600, 1100))...)
	defer release()
	ctx, leave := chromedp.NewContext(allocator)
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	w.takes(ctx, "the list of workflows", shot+"-1-list",
		chromedp.Navigate(w.stack.UIURL+"/namespaces/default/workflows"), says(workflowID))
	w.takes(ctx, "the sync, by the first click", shot+"-2-sync",
		chromedp.Click(fmt.Sprintf(`//a[normalize-space(.)=%q]`, workflowID)), says("Pending Activities"))
	w.takes(ctx, "its pending activities, by the second click", shot+"-3-pending",
		chromedp.Click(`//a[contains(., "Pending Activities")]`), says(blocking))
}

// takes does a step, and keeps what is seen after it, whatever came of it.
func (w *world) takes(ctx context.Context, what, shot string, steps ...chromedp.Action[chromedp.Void]) {
	w.Helper()
	err := chromedp.Do(ctx, steps...)
	looking, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	picture, shotErr := chromedp.Run(looking, chromedp.FullScreenshot(100))
	text, textErr := chromedp.Run(looking, chromedp.Text("body"))
	folder := filepath.Join(w.root, "bin", "screenshots")
	require.NoError(w, errors.Join(shotErr, textErr, os.MkdirAll(folder, 0o750)))
	file := filepath.Join(folder, shot+".png")
	require.NoError(w, os.WriteFile(file, picture, 0o600))
	w.Logf("%s: %s", what, file)
	require.NoError(w, err, "%s; the page says:\n%s", what, text)
}

// says waits until the page shows a text, whatever its lines are broken into.
func says(text string) chromedp.Action[chromedp.Void] {
	shown := chromedp.Poll[bool](fmt.Sprintf(`document.body.innerText.replace(/\s+/g, " ").includes(%q)`, text),
		chromedp.WithPollingInterval(200*time.Millisecond), chromedp.WithPollingTimeout(patience))
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := shown(ctx, t)
		return err
	})
}
