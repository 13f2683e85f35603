package cache

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// clone writes a dev folder with pins of all programs.
func clone(t *testing.T) string {
	t.Helper()
	dev := t.TempDir()
	pins := map[string]string{}
	for _, program := range Programs() {
		if !strings.Contains(pins[program.Module], program.Pin+" ") {
			pins[program.Module] += "require " + program.Pin + " v1.2.3\n"
		}
	}
	for module, content := range pins {
		write(t, filepath.Join(dev, module, "go.mod"), content)
		write(t, filepath.Join(dev, module, "go.sum"), "")
	}
	write(t, filepath.Join(dev, "stack", "main.go"), "package main")
	return dev
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

// compiler stands in for the go command and remembers what it has built.
type compiler struct {
	mu    sync.Mutex
	built []string
	fail  map[string]error
}

func (c *compiler) compile(_ context.Context, build Build) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.built = append(c.built, build.Name)
	if err := c.fail[build.Name]; err != nil {
		return err
	}
	return os.WriteFile(build.Output, []byte(build.Name), 0o755)
}

func newCache(t *testing.T, dir, dev string, c *compiler) *Cache {
	t.Helper()
	return &Cache{Dir: dir, Dev: dev, Progress: &bytes.Buffer{}, compile: c.compile}
}

func ensure(t *testing.T, c *Cache) Set {
	t.Helper()
	set, err := c.Ensure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestEveryProgramIsBuiltOnceAndSharedByClones(t *testing.T) {
	dir, first := t.TempDir(), &compiler{}
	set := ensure(t, newCache(t, dir, clone(t), first))
	if len(first.built) != len(Programs()) {
		t.Errorf("built %v, want %v", first.built, Names())
	}
	for _, name := range Names() {
		linked, err := os.ReadFile(filepath.Join(set.BinDir, name))
		if err != nil || string(linked) != name {
			t.Errorf("%s in %s: %q, %v", name, set.BinDir, linked, err)
		}
	}

	second := &compiler{}
	again := ensure(t, newCache(t, dir, clone(t), second))
	if len(second.built) != 0 || again.BinDir != set.BinDir {
		t.Errorf("the second clone built %v into %s, want nothing new in %s", second.built, again.BinDir, set.BinDir)
	}
}

func TestAChangeRebuildsOnlyWhatItTouches(t *testing.T) {
	for name, tc := range map[string]struct {
		file, content string
		want          string
	}{
		"a new pin":               {"kwok/go.mod", "require sigs.k8s.io/kwok v2.0.0", "kwok"},
		"a new sum":               {"temporal/go.sum", "changed", "temporal"},
		"a source of devstack":    {"stack/stages/pod.yaml", "changed", "devstack"},
		"a test of devstack":      {"stack/main_test.go", "changed", ""},
		"a source beside the pin": {"kwok/tools.go", "changed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir, dev := t.TempDir(), clone(t)
			before := ensure(t, newCache(t, dir, dev, &compiler{}))
			write(t, filepath.Join(dev, tc.file), tc.content)
			after := &compiler{}
			set := ensure(t, newCache(t, dir, dev, after))
			if got := strings.Join(after.built, " "); got != tc.want {
				t.Errorf("built %q, want %q", got, tc.want)
			}
			if moved := set.BinDir != before.BinDir; moved != (tc.want != "") {
				t.Errorf("folder %s after %s", set.BinDir, before.BinDir)
			}
		})
	}
}

func TestTwoCallersDoNotBuildTwice(t *testing.T) {
	dir, dev, shared := t.TempDir(), clone(t), &compiler{}
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			if _, err := newCache(t, dir, dev, shared).Ensure(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if len(shared.built) != len(Programs()) {
		t.Errorf("built %v, want each once", shared.built)
	}
}

func TestWaitingForTheLockCanBeCancelled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), file, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var progress bytes.Buffer
	if _, err := lock(ctx, file, &progress); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(progress.String(), "waiting for another process") {
		t.Errorf("progress is %q", progress.String())
	}
}

func TestAFailedBuildLeavesNothingBehind(t *testing.T) {
	dir, dev := t.TempDir(), clone(t)
	broken := errors.New("does not compile")
	_, err := newCache(t, dir, dev, &compiler{fail: map[string]error{"kwok": broken}}).Ensure(t.Context())
	if !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "bin", "kwok*"))
	hidden, _ := filepath.Glob(filepath.Join(dir, "bin", ".*"))
	if len(left)+len(hidden) > 0 {
		t.Errorf("left %v %v", left, hidden)
	}
	write(t, filepath.Join(dir, "bin", ".building-1", "kwok"), "half of it, by a killed process")
	next := &compiler{}
	ensure(t, newCache(t, dir, dev, next))
	if exists(filepath.Join(dir, "bin", ".building-1")) {
		t.Error("what a killed build has left is still there")
	}
	if got := strings.Join(next.built, " "); got != "kwok devstack temporal" {
		t.Errorf("the next call built %q", got)
	}
}

func TestACompilerErrorIsShownWithItsLog(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module broken\n\ngo 1.26.0\n")
	write(t, filepath.Join(dir, "main.go"), "package main\n\nfunc main() { undefinedName() }\n")
	build := Build{
		Program: Program{Name: "broken", Package: "."},
		Folder:  dir, Output: filepath.Join(dir, "out"), Log: filepath.Join(dir, "broken.log"),
	}
	err := goBuild(t.Context(), build)
	if err == nil || !strings.Contains(err.Error(), "undefined: undefinedName") || !strings.Contains(err.Error(), build.Log) {
		t.Errorf("got %v", err)
	}
}

func TestAssetsOfAPersonAreUsed(t *testing.T) {
	assets, shared := t.TempDir(), &compiler{}
	c := newCache(t, t.TempDir(), clone(t), shared)
	c.Assets = assets
	write(t, filepath.Join(assets, "etcd"), "theirs")
	if _, err := c.Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), "kube-apiserver") {
		t.Errorf("without an API server: got %v", err)
	}
	write(t, filepath.Join(assets, "kube-apiserver"), "theirs")
	set := ensure(t, c)
	if set.Programs["etcd"] != filepath.Join(assets, "etcd") || strings.Contains(strings.Join(shared.built, " "), "etcd") {
		t.Errorf("etcd is %s, built were %v", set.Programs["etcd"], shared.built)
	}
	if !strings.HasPrefix(set.Programs["kubectl"], c.Dir) {
		t.Errorf("kubectl is %s, want a built one", set.Programs["kubectl"])
	}
}

func TestTheClonesOwnPinsAreWhole(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dev, err := FindDev(here)
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range Programs() {
		if version, err := program.version(dev); err != nil || !strings.HasPrefix(version, "v") {
			t.Errorf("%s: %q, %v", program.Name, version, err)
		}
	}
}

func TestTheKubernetesVersionIsLinkedIn(t *testing.T) {
	flags := strings.Join(Program{Pin: kubernetesModule}.flags("v1.37.2"), " ")
	for _, want := range []string{"gitVersion=v1.37.2", "gitMajor=1", "gitMinor=37"} {
		if !strings.Contains(flags, want) {
			t.Errorf("%s lacks %s", flags, want)
		}
	}
}

func TestProgressTellsTheElapsedTime(t *testing.T) {
	var out syncBuffer
	done := announce(&out, "building kwok v1 (1/8)", time.Millisecond)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(out.String(), "elapsed") {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("nothing was told")
		}
	}
	done(nil)
	if got := out.String(); !strings.HasPrefix(got, "building kwok v1 (1/8) …\n") || !strings.Contains(got, "done after") {
		t.Errorf("got %q", got)
	}
}

type syncBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}
