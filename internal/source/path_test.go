package source

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"convoy.dev/convoy/api/v1alpha1"
)

// tree writes files below a new directory. A content "-> x" makes a symbolic link to x.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			require.NoError(t, os.Symlink(strings.ReplaceAll(target, "ROOT", root), path))
			continue
		}
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return root
}

func fetch(t *testing.T, options Options, path string) (Result, error) {
	t.Helper()
	return New(options).Fetch(t.Context(), v1alpha1.Source{Path: &path})
}

func fileNames(root string, r Result) []string {
	var out []string
	for _, f := range r.Files {
		out = append(out, strings.TrimPrefix(f.Name, root+"/"))
	}
	return out
}

// D32: manifests are read recursively in path order, hidden and other files skipped.
func TestDirectory(t *testing.T) {
	root := tree(t, map[string]string{
		"shop/b.yaml": "b", "shop/a.yml": "a", "shop/c/d.json": "d", "shop/c/.hidden.yaml": "x",
		"shop/.git/x.yaml": "x", "shop/README.md": "x", "shop/z.yaml.bak": "x", "other/x.yaml": "x",
	})
	r, err := fetch(t, Options{PathRoots: []string{root}}, root+"/shop/")
	require.NoError(t, err)
	require.Equal(t, []string{"shop/a.yml", "shop/b.yaml", "shop/c/d.json"}, fileNames(root, r))
	require.Regexp(t, `^path:[0-9a-f]{16}$`, r.Revision)
	require.Equal(t, "d", string(r.Files[2].Data))

	one, err := fetch(t, Options{PathRoots: []string{"/nowhere", root}}, root+"/shop/a.yml")
	require.NoError(t, err)
	require.Equal(t, []string{"shop/a.yml"}, fileNames(root, one))
	top, err := fetch(t, Options{PathRoots: []string{root + "/"}}, root)
	require.NoError(t, err)
	require.Len(t, top.Files, 4)
}

// The revision is about names and contents.
func TestPathRevision(t *testing.T) {
	revision := func(files map[string]string) string {
		root := tree(t, files)
		r, err := fetch(t, Options{PathRoots: []string{root}}, root)
		require.NoError(t, err)
		return r.Revision
	}
	base := revision(map[string]string{"a.yaml": "1", "b.yaml": "2"})
	require.Equal(t, base, revision(map[string]string{"a.yaml": "1", "b.yaml": "2", "c.txt": "3"}))
	require.NotEqual(t, base, revision(map[string]string{"a.yaml": "12", "b.yaml": ""}))
	require.NotEqual(t, base, revision(map[string]string{"a.yaml": "1", "c.yaml": "2"}))
}

// D32: links are resolved, on the roots and on what lies below, and may not lead outside.
func TestSymbolicLinks(t *testing.T) {
	outside := tree(t, map[string]string{"secret.yaml": "secret", "dir/x.yaml": "secret"})
	root := tree(t, map[string]string{
		"..data":              "-> ..2026",
		"..2026/shop.yaml":    "mounted",
		"mount/..data":        "-> ..2026",
		"mount/..2026/a.yaml": "mounted",
		"mount/a.yaml":        "-> ..data/a.yaml",
		"absolute/a.yaml":     "-> ROOT/plain/a.yaml",
		"plain/a.yaml":        "a",
		"dirs/linked":         "-> ../plain",
		"out-file/a.yaml":     "-> " + outside + "/secret.yaml",
		"out-dir/d":           "-> " + outside + "/dir",
		"out":                 "-> " + outside,
		"loop/again":          "-> ../loop",
		"dangling/a.yaml":     "-> nothing.yaml",
		"harmless/a.yaml":     "a",
		"harmless/readme":     "-> nothing",
	})
	alias := filepath.Join(t.TempDir(), "alias")
	require.NoError(t, os.Symlink(root, alias))

	for path, want := range map[string]string{
		"mount": "mounted", "absolute": "a", "plain": "a", "dirs": "a", "dirs/linked": "a", "..data/shop.yaml": "mounted", "harmless": "a",
	} {
		for _, top := range []string{root, alias} {
			r, err := fetch(t, Options{PathRoots: []string{alias}}, filepath.Join(top, path))
			require.NoError(t, err, path)
			require.Len(t, r.Files, 1, path)
			require.Equal(t, want, string(r.Files[0].Data), path)
		}
	}
	for path, says := range map[string]string{
		"out-file": "a.yaml does not lie below", "out-dir": "out-dir/d does not lie below", "out": "does not lie below",
		"out/secret.yaml": "does not lie below", "loop": "leads back to a directory above it", "plain/../../etc/passwd": "does not lie below",
	} {
		_, err := fetch(t, Options{PathRoots: []string{root}}, root+"/"+path)
		require.ErrorContains(t, err, says, path)
		require.False(t, IsRetryable(err), path)
		require.NotContains(t, err.Error(), outside, path)
	}
	_, err := fetch(t, Options{PathRoots: []string{root}}, root+"/dangling")
	require.ErrorContains(t, err, "dangling/a.yaml cannot be read")
	require.True(t, IsRetryable(err))
}

// A path outside gets the same answer whether it exists or not, and a root is no prefix of its neighbour.
func TestOutsideTheRoots(t *testing.T) {
	root := tree(t, map[string]string{"renders/a.yaml": "a", "renders-other/a.yaml": "a"})
	options := Options{PathRoots: []string{root + "/renders"}}
	for _, path := range []string{"/etc/passwd", "/etc/nothing", root + "/renders-other/a.yaml", root, "/"} {
		_, err := fetch(t, options, path)
		require.EqualError(t, err, filepath.Clean(path)+" does not lie below a directory that the operator allows (--path-root), symbolic links resolved")
		require.False(t, IsRetryable(err))
	}
	_, err := fetch(t, options, "renders/a.yaml")
	require.ErrorContains(t, err, "is not absolute")
}

func TestNoRootNoPath(t *testing.T) {
	_, err := fetch(t, Options{}, "/renders")
	require.ErrorContains(t, err, "--path-root")
	require.False(t, IsRetryable(err))
}

// D1: what is not there yet, or not whole, may come.
func TestIncompletePathsAreRetried(t *testing.T) {
	root := tree(t, map[string]string{"empty/README.md": "x", "comments/a.yaml": "# nothing"})
	for _, path := range []string{"missing", "empty"} {
		_, err := fetch(t, Options{PathRoots: []string{root}}, root+"/"+path)
		require.True(t, IsRetryable(err), path)
		require.ErrorContains(t, err, path)
	}
	_, err := fetch(t, Options{PathRoots: []string{root}}, root+"/comments")
	require.NoError(t, err, "an empty render is no empty directory (case 57)")
}

func TestSizeLimit(t *testing.T) {
	root := tree(t, map[string]string{"a.yaml": strings.Repeat("x", 60), "b.yaml": strings.Repeat("x", 40)})
	_, err := fetch(t, Options{PathRoots: []string{root}, MaxBytes: 100}, root)
	require.NoError(t, err)
	_, err = fetch(t, Options{PathRoots: []string{root}, MaxBytes: 99}, root)
	require.ErrorContains(t, err, "99 bytes")
	require.False(t, IsRetryable(err))
}

// A pipe would block the worker for ever.
func TestPipesAreRefused(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, syscall.Mkfifo(root+"/a.yaml", 0o644))
	_, err := fetch(t, Options{PathRoots: []string{root}}, root)
	require.ErrorContains(t, err, "not a regular file")
}

func TestInline(t *testing.T) {
	text := "a: 1"
	r, err := New(Options{}).Fetch(t.Context(), v1alpha1.Source{Inline: &text})
	require.NoError(t, err)
	require.Regexp(t, `^inline:[0-9a-f]{16}$`, r.Revision)
	require.Equal(t, text, string(r.Files[0].Data))
	_, err = New(Options{MaxBytes: 3}).Fetch(t.Context(), v1alpha1.Source{Inline: &text})
	require.ErrorContains(t, err, "4 bytes")
	empty := ""
	_, err = New(Options{}).Fetch(t.Context(), v1alpha1.Source{Inline: &empty})
	require.NoError(t, err, "an empty render")
}

func TestExactlyOneMember(t *testing.T) {
	x := "x"
	for _, src := range []v1alpha1.Source{{}, {Inline: &x, Path: &x}, {Inline: &x, URL: &x, Path: &x}} {
		_, err := New(Options{}).Fetch(t.Context(), src)
		require.ErrorContains(t, err, "exactly one")
		require.False(t, IsRetryable(err))
	}
}
