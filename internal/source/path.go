package source

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"convoy.dev/convoy/internal/release"
)

// manifestNames are how files with manifests end.
var manifestNames = []string{".yaml", ".yml", ".json"}

// fetchPath reads a file, or the manifests in a directory, in the order in which a walk meets them: names sorted
// directory by directory, as `kubectl apply -R` does. Symbolic links are followed as long as they stay below a root.
func (f *Fetcher) fetchPath(ctx context.Context, path string) (Result, error) {
	if len(f.options.PathRoots) == 0 {
		return Result{}, bad("spec.source.path is not allowed on this worker: its operator has to name a directory with --path-root")
	}
	w := walker{ctx: ctx, top: filepath.Clean(path), roots: resolve(f.options.PathRoots), left: f.options.MaxBytes, max: f.options.MaxBytes}
	if err := w.start(); err != nil {
		return Result{}, err
	}
	if len(w.files) == 0 {
		// An empty directory is a volume that is not mounted far more often than a wish to deploy nothing.
		return Result{}, unreachable(nil, "%s holds no manifests (*.yaml, *.yml, *.json): an empty file there stands for an empty render", w.top)
	}
	return Result{Files: w.files, Revision: revision("path", w.relative())}, nil
}

// resolve follows the symbolic links of the roots. It is done for each fetch: a mount may change what a link means.
func resolve(roots []string) []string {
	var out []string
	for _, root := range roots {
		if absolute, err := filepath.Abs(root); err == nil {
			if real, err := filepath.EvalSymlinks(absolute); err == nil {
				out = append(out, real)
			}
		}
	}
	return out
}

type walker struct {
	ctx   context.Context
	top   string
	roots []string
	left  int64
	max   int64
	files []release.File
}

func (w *walker) start() error {
	if !filepath.IsAbs(w.top) {
		return bad("spec.source.path %q is not absolute", w.top)
	}
	real, root, err := w.inside(w.top)
	if err != nil {
		return err
	}
	info, err := os.Stat(real)
	switch {
	case err != nil:
		return unreachable(err, "%s cannot be read: %v", w.top, reason(err))
	case info.IsDir():
		return w.directory(w.top, real, []string{real})
	default:
		return w.file(w.top, real, root)
	}
}

// inside resolves a path and finds the root that it lies below. A path outside gets one answer, whether it exists or
// not: the author of a Release must not learn what is on the worker.
func (w *walker) inside(path string) (real, root string, err error) {
	real, err = filepath.EvalSymlinks(path)
	if err != nil {
		if w.rootOf(path) != "" {
			return "", "", unreachable(err, "%s cannot be read: %v", path, reason(err))
		}
		return "", "", w.outside(path)
	}
	if root = w.rootOf(real); root == "" {
		return "", "", w.outside(path)
	}
	return real, root, nil
}

func (w *walker) outside(path string) error {
	return bad("%s does not lie below a directory that the operator allows (--path-root), symbolic links resolved", path)
}

func (w *walker) rootOf(real string) string {
	for _, root := range w.roots {
		if real == root || strings.HasPrefix(real, strings.TrimSuffix(root, "/")+"/") {
			return root
		}
	}
	return ""
}

// directory reads what lies below real, which people know as path. above are the directories on the way, resolved.
func (w *walker) directory(path, real string, above []string) error {
	if err := w.ctx.Err(); err != nil {
		return unreachable(err, "reading %s took too long", w.top)
	}
	entries, err := os.ReadDir(real) // sorted by name
	if err != nil {
		return unreachable(err, "%s cannot be read: %v", path, reason(err))
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		if err := w.entry(filepath.Join(path, entry.Name()), entry, above); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) entry(path string, entry fs.DirEntry, above []string) error {
	manifest := slices.Contains(manifestNames, filepath.Ext(entry.Name()))
	link := entry.Type()&fs.ModeSymlink != 0
	if !manifest && !link && !entry.IsDir() {
		return nil
	}
	real, root, err := w.inside(filepath.Join(above[len(above)-1], entry.Name()))
	if err != nil {
		if link && !manifest && IsRetryable(err) {
			return nil // a dangling link that would not be read anyway
		}
		return w.named(path, err)
	}
	info, err := os.Stat(real)
	switch {
	case err != nil:
		return unreachable(err, "%s cannot be read: %v", path, reason(err))
	case info.IsDir() && slices.Contains(above, real):
		return bad("%s leads back to a directory above it", path)
	case info.IsDir():
		return w.directory(path, real, append(slices.Clip(above), real))
	case manifest:
		return w.file(path, real, root)
	default:
		return nil
	}
}

// named is the error of inside, told of the path as people know it.
func (w *walker) named(path string, err error) error {
	if !IsRetryable(err) {
		return w.outside(path)
	}
	return unreachable(err, "%s cannot be read: %v", path, reason(err))
}

// file reads a file by its resolved path, through a handle on the root: a link that is put in its place in between
// cannot lead outside. Opening does not wait, as it would for the other end of a pipe.
func (w *walker) file(path, real, root string) error {
	handle, err := os.OpenRoot(root)
	if err != nil {
		return unreachable(err, "%s cannot be read: %v", path, reason(err))
	}
	defer handle.Close()
	relative, err := filepath.Rel(root, real)
	if err != nil {
		return w.outside(path)
	}
	f, err := handle.OpenFile(relative, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return unreachable(err, "%s cannot be read: %v", path, reason(err))
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return bad("%s is not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, w.left+1))
	if err != nil {
		return unreachable(err, "%s cannot be read: %v", path, reason(err))
	}
	if w.left -= int64(len(data)); w.left < 0 {
		return bad("the files below %s have more than %d bytes together, which is the limit", w.top, w.max)
	}
	w.files = append(w.files, release.File{Name: path, Data: data})
	return nil
}

// relative are the files with names below the top: the same directory elsewhere has the same revision.
func (w *walker) relative() []release.File {
	out := make([]release.File, len(w.files))
	for i, file := range w.files {
		name := filepath.Base(file.Name)
		if rel, err := filepath.Rel(w.top, file.Name); err == nil && rel != "." {
			name = rel
		}
		out[i] = release.File{Name: name, Data: file.Data}
	}
	return out
}

// reason is an error of the file system without the path, which may be that behind a link.
func reason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
