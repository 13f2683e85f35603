package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// temporary is the beginning of the names of temporary folders.
const temporary = "convoy-devstack-"

// folder holds the files of one running stack: a person's data folder, or a temporary one. A lock on a file inside
// says that it is in use; the kernel gives the lock back when the holder dies.
type folder struct {
	path string
	kept bool // a data folder
	lock *os.File
}

// openFolder opens the data folder, or makes a temporary one when the path is empty.
func openFolder(dataDir string) (*folder, error) {
	if dataDir == "" {
		sweep()
		return newTemporary()
	}
	if err := os.MkdirAll(dataDir, 0o755); err != nil {
		return nil, fmt.Errorf("create the data folder: %w", err)
	}
	lock, err := lockFolder(dataDir)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("data folder %s is in use by another devstack: end that one, or name another --data-dir", dataDir)
	}
	return &folder{path: dataDir, kept: true, lock: lock}, err
}

// newTemporary makes a folder that gets its name only once it is locked, so that no sweep takes it for a left-over.
func newTemporary() (*folder, error) {
	work, err := os.MkdirTemp("", ".new-"+temporary)
	if err != nil {
		return nil, fmt.Errorf("create a temporary folder: %w", err)
	}
	lock, err := lockFolder(work)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(filepath.Dir(work), strings.TrimPrefix(filepath.Base(work), ".new-"))
	if err := os.Rename(work, path); err != nil {
		return nil, fmt.Errorf("create a temporary folder: %w", err)
	}
	return &folder{path: path, lock: lock}, nil
}

// close gives the folder free. A temporary one is removed, except for its logs when they are still wanted.
func (f *folder) close(keepLogs bool) {
	switch {
	case f.kept:
	case keepLogs:
		for _, name := range []string{"etcd", "lock"} { // without a lock file no sweep removes the rest
			_ = os.RemoveAll(filepath.Join(f.path, name))
		}
	default:
		remove(f.path)
	}
	_ = f.lock.Close()
}

func lockFolder(path string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock folder: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock folder %s: %w", path, err)
	}
	return file, nil
}

// sweep removes temporary folders whose devstack was killed. One without a lock file holds the logs of a failed start.
func sweep() {
	folders, _ := filepath.Glob(filepath.Join(os.TempDir(), temporary+"*"))
	for _, path := range folders {
		if _, err := os.Stat(filepath.Join(path, "lock")); err != nil {
			continue
		}
		lock, err := lockFolder(path)
		if err != nil {
			continue // in use
		}
		remove(path)
		_ = lock.Close()
	}
}

// remove takes the lock file last, so that a removal that is cut short is swept up by the next start.
func remove(path string) {
	entries, _ := os.ReadDir(path)
	for _, entry := range entries {
		if entry.Name() != "lock" {
			_ = os.RemoveAll(filepath.Join(path, entry.Name()))
		}
	}
	_ = os.RemoveAll(path)
}
