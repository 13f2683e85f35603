package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Program is one program of the stack and how it is built.
type Program struct {
	Name    string
	Module  string // folder under dev/ whose go.mod pins it
	Package string // import path to build, seen from that module
	Pin     string // module path in that go.mod whose version is shown to people
	Sources bool   // the module holds the source itself, so a changed source is a new build
}

// kubernetesModule is the pin of everything that carries the Kubernetes version inside.
const kubernetesModule = "k8s.io/kubernetes"

// Programs returns every program of the stack, in building order: one that shares compiled packages with another comes after it.
func Programs() []Program {
	kubernetes := func(name string) Program {
		return Program{Name: name, Module: "kubernetes", Package: kubernetesModule + "/cmd/" + name, Pin: kubernetesModule}
	}
	return []Program{
		{Name: "etcd", Module: "kubernetes", Package: "go.etcd.io/etcd/server/v3", Pin: "go.etcd.io/etcd/server/v3"},
		kubernetes("kube-apiserver"),
		kubernetes("kubectl"),
		kubernetes("kube-controller-manager"),
		kubernetes("kube-scheduler"),
		{Name: "kwok", Module: "kwok", Package: "sigs.k8s.io/kwok/cmd/kwok", Pin: "sigs.k8s.io/kwok"},
		{Name: "devstack", Module: "stack", Package: ".", Pin: "go.temporal.io/server", Sources: true},
		{Name: "temporal", Module: "temporal", Package: "github.com/temporalio/cli/cmd/temporal", Pin: "github.com/temporalio/cli"},
	}
}

// version reads the pinned version from the program's go.mod.
func (p Program) version(dev string) (string, error) {
	file := filepath.Join(dev, p.Module, "go.mod")
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the pin of %s: %w", p.Name, err)
	}
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) >= 2 && fields[0] == p.Pin {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("%s requires no %s: add it there, or correct the pin of %s in dev/build/cache/program.go",
		file, p.Pin, p.Name)
}

// flags returns the flags of go build. Programs from the module cache are built with -trimpath, so that every clone
// makes the same file. devstack is not: vet and test of dev/stack then share its compiled packages.
func (p Program) flags(version string) []string {
	ldflags := "-s -w"
	if p.Pin == kubernetesModule {
		// Without these a server built from the module cache calls itself v0.0.0-master+$Format:%H$.
		major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
		minor, _, _ = strings.Cut(minor, ".")
		const pkg = "k8s.io/component-base/version"
		ldflags += fmt.Sprintf(" -X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s",
			pkg, version, pkg, major, pkg, minor)
	}
	if p.Sources {
		return []string{"-ldflags", ldflags}
	}
	return []string{"-trimpath", "-ldflags", ldflags}
}

// key is the identity of the built file: the pins (and sources) it comes from, the Go version and the flags.
func (p Program) key(dev, version string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, p.Name, p.Package, runtime.Version(), runtime.GOOS, runtime.GOARCH, p.flags(version))
	files, err := p.inputs(filepath.Join(dev, p.Module))
	if err != nil {
		return "", fmt.Errorf("read the inputs of %s: %w", p.Name, err)
	}
	for _, file := range files {
		if err := addFile(sum, filepath.Join(dev, p.Module), file); err != nil {
			return "", fmt.Errorf("read the inputs of %s: %w", p.Name, err)
		}
	}
	return hex.EncodeToString(sum.Sum(nil))[:12], nil
}

// inputs lists the files of the module that decide about the built file, relative to its folder and sorted.
func (p Program) inputs(folder string) ([]string, error) {
	if !p.Sources {
		return []string{"go.mod", "go.sum"}, nil
	}
	var files []string
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name := entry.Name()
		if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".md") || strings.HasPrefix(name, ".") {
			return nil
		}
		relative, err := filepath.Rel(folder, path)
		files = append(files, relative)
		return err
	})
	slices.Sort(files)
	return files, err
}

func addFile(sum hash.Hash, folder, name string) error {
	file, err := os.Open(filepath.Join(folder, name))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	fmt.Fprintln(sum, name)
	_, err = io.Copy(sum, file)
	return err
}

// FindDev returns the dev folder that holds the pins, looking from a working folder upwards.
func FindDev(from string) (string, error) {
	for folder := from; ; folder = filepath.Dir(folder) {
		for _, candidate := range []string{folder, filepath.Join(folder, "dev")} {
			if holdsPins(candidate) {
				return candidate, nil
			}
		}
		if folder == filepath.Dir(folder) {
			return "", fmt.Errorf("no dev folder with the stack's pins above %s: run this inside a clone of convoy", from)
		}
	}
}

func holdsPins(folder string) bool {
	for _, program := range Programs() {
		if _, err := os.Stat(filepath.Join(folder, program.Module, "go.mod")); errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}
