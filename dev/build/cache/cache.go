// Package cache builds the programs of the embedded stack and keeps them in the user's cache folder. A program is
// built once for each set of pins and shared by all clones; a changed pin is a new build beside the old one.
//
// It does not start programs and never deletes a build.
package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Cache is a folder of built programs.
type Cache struct {
	Dir      string    // convoy's folder inside the user's cache folder
	Dev      string    // the dev folder with the pins
	Assets   string    // folder with etcd, kube-apiserver and perhaps kubectl to use instead; empty for none
	Progress io.Writer // for people

	compile func(ctx context.Context, build Build) error // goBuild, except in tests
}

// Build is one program to be compiled.
type Build struct {
	Program
	Version string
	Folder  string // where go build runs
	Output  string
	Log     string // receives the compiler's output
}

// Set is the answer of Ensure.
type Set struct {
	BinDir   string            `json:"binDir"`   // folder with all the programs
	Programs map[string]string `json:"programs"` // path of each program
}

// New returns the cache of the current user for the clone whose dev folder is given.
func New(dev string, progress io.Writer) (*Cache, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find the user's cache folder: %w; set HOME or XDG_CACHE_HOME", err)
	}
	return &Cache{
		Dir:      filepath.Join(user, "convoy"),
		Dev:      dev,
		Assets:   os.Getenv("KUBEBUILDER_ASSETS"),
		Progress: progress,
		compile:  goBuild,
	}, nil
}

// Ensure builds what is missing and returns the paths of all programs, which also appear side by side in one folder.
func (c *Cache) Ensure(ctx context.Context) (Set, error) {
	programs := Programs()
	paths, err := c.paths(ctx, programs)
	if err != nil {
		return Set{}, err
	}
	binDir, err := c.link(paths)
	if err != nil {
		return Set{}, fmt.Errorf("put the programs into one folder: %w", err)
	}
	return Set{BinDir: binDir, Programs: paths}, nil
}

// EnsureOne builds a single program when it is missing and returns its path.
func (c *Cache) EnsureOne(ctx context.Context, name string) (string, error) {
	for _, program := range Programs() {
		if program.Name == name {
			paths, err := c.paths(ctx, []Program{program})
			return paths[name], err
		}
	}
	return "", fmt.Errorf("unknown program %q: it is one of %v", name, Names())
}

// Names lists the programs of the stack.
func Names() []string {
	var names []string
	for _, program := range Programs() {
		names = append(names, program.Name)
	}
	return names
}

func (c *Cache) paths(ctx context.Context, programs []Program) (map[string]string, error) {
	paths := map[string]string{}
	var missing []Build
	for _, program := range programs {
		asset, err := c.asset(program.Name)
		if err != nil {
			return nil, err
		}
		if asset != "" {
			paths[program.Name] = asset
			continue
		}
		build, err := c.plan(program)
		if err != nil {
			return nil, err
		}
		paths[program.Name] = build.Output
		if !exists(build.Output) {
			missing = append(missing, build)
		}
	}
	if len(missing) == 0 {
		return paths, nil
	}
	if reused := len(programs) - len(missing); reused > 0 {
		fmt.Fprintf(c.Progress, "reusing %d built programs from %s\n", reused, filepath.Join(c.Dir, "bin"))
	}
	return paths, c.buildAll(ctx, missing)
}

// asset returns the program a person already has. etcd and the API server belong together, so one without the other
// is an error; every other program is built when it is not there.
func (c *Cache) asset(name string) (string, error) {
	if c.Assets == "" || !slices.Contains([]string{"etcd", "kube-apiserver", "kubectl"}, name) {
		return "", nil
	}
	path := filepath.Join(c.Assets, name)
	if exists(path) {
		return path, nil
	}
	if name == "kubectl" {
		return "", nil
	}
	return "", fmt.Errorf("KUBEBUILDER_ASSETS=%s holds no %s: unset it, or name a folder with etcd and kube-apiserver",
		c.Assets, name)
}

func (c *Cache) plan(program Program) (Build, error) {
	version, err := program.version(c.Dev)
	if err != nil {
		return Build{}, err
	}
	key, err := program.key(c.Dev, version)
	if err != nil {
		return Build{}, err
	}
	id := program.Name + "-" + key
	return Build{
		Program: program,
		Version: version,
		Folder:  filepath.Join(c.Dev, program.Module),
		Output:  filepath.Join(c.Dir, "bin", id, program.Name),
		Log:     filepath.Join(c.Dir, "log", id+".log"),
	}, nil
}

// buildAll builds one program at a time: a single link takes more than 2 GB of memory.
func (c *Cache) buildAll(ctx context.Context, builds []Build) error {
	for _, folder := range []string{"bin", "log"} {
		if err := os.MkdirAll(filepath.Join(c.Dir, folder), 0o755); err != nil {
			return fmt.Errorf("create the cache folder: %w", err)
		}
	}
	unlock, err := lock(ctx, filepath.Join(c.Dir, "lock"), c.Progress)
	if err != nil {
		return err
	}
	defer unlock()
	c.removeAbandoned()
	for i, build := range builds {
		if exists(build.Output) { // built by whoever held the lock before
			continue
		}
		if err := c.buildOne(ctx, build, fmt.Sprintf("(%d/%d)", i+1, len(builds))); err != nil {
			return err
		}
	}
	return nil
}

// removeAbandoned removes what a killed build has left. Nobody else is building while the lock is held.
func (c *Cache) removeAbandoned() {
	abandoned, _ := filepath.Glob(filepath.Join(c.Dir, "bin", ".building-*"))
	for _, folder := range abandoned {
		_ = os.RemoveAll(folder)
	}
}

// buildOne compiles into a folder beside the final one and renames it, so that a path that exists is a whole program.
func (c *Cache) buildOne(ctx context.Context, build Build, position string) error {
	final := filepath.Dir(build.Output)
	work, err := os.MkdirTemp(filepath.Dir(final), ".building-")
	if err != nil {
		return fmt.Errorf("build %s: %w", build.Name, err)
	}
	defer func() { _ = os.RemoveAll(work) }()

	done := announce(c.Progress, fmt.Sprintf("building %s %s %s", build.Name, build.Version, position), time.Second)
	target := build.Output
	build.Output = filepath.Join(work, build.Name)
	err = c.compile(ctx, build)
	done(err)
	if err != nil {
		return err
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return fmt.Errorf("build %s: %w", build.Name, err)
	}
	if err := os.Rename(work, final); err != nil {
		return fmt.Errorf("put %s into its place %s: %w; delete that folder and try again", build.Name, target, err)
	}
	return nil
}

// link makes a folder with a symbolic link to each program. Its name follows from the paths, so it is made once.
func (c *Cache) link(paths map[string]string) (string, error) {
	sum := sha256.New()
	for _, name := range Names() {
		fmt.Fprintln(sum, name, paths[name])
	}
	folder := filepath.Join(c.Dir, "bin", "current-"+hex.EncodeToString(sum.Sum(nil))[:12])
	if exists(folder) {
		return folder, nil
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(filepath.Dir(folder), ".linking-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(work) }()
	for name, path := range paths {
		if err := os.Symlink(path, filepath.Join(work, name)); err != nil {
			return "", err
		}
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return "", err
	}
	if err := os.Rename(work, folder); err != nil && !exists(folder) { // another process may have been first
		return "", err
	}
	return folder, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
