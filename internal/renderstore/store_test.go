package renderstore

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"convoy.dev/convoy/internal/release"
)

// The conformance suite: what every kind of store has to do. It runs on file, mem and s3.
func TestStores(t *testing.T) {
	stores := map[string]func(t *testing.T) string{
		"file": func(t *testing.T) string { return "file://" + t.TempDir() + "/made/on/opening" },
		"mem":  func(*testing.T) string { return "mem://" },
		"s3":   newS3,
	}
	suite := map[string]func(*testing.T, *Store){
		"a render comes back as it went":          rendersComeBack,
		"an absent one is ErrNotFound":            absent,
		"a second write is skipped":               secondWriteIsSkipped,
		"a cut-off one is written anew":           cutOffIsWrittenAnew,
		"a damaged one names key and remedy":      damaged,
		"another render under the key is noticed": anotherRender,
		"a digest that is none is refused":        badDigest,
		"an empty render can be stored":           emptyRender,
		"a cancelled write is an error":           cancelled,
	}
	for kind, storeURL := range stores {
		for name, test := range suite {
			t.Run(kind+"/"+name, func(t *testing.T) { test(t, open(t, storeURL(t))) })
		}
	}
}

func open(t *testing.T, storeURL string) *Store {
	t.Helper()
	s, err := Open(t.Context(), storeURL)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func render(t *testing.T, text string) *release.Render {
	t.Helper()
	r, err := release.Parse([]release.File{{Name: "a.yaml", Data: []byte(text)}})
	require.NoError(t, err)
	return r
}

const meter = "{apiVersion: lab.example.test/v1, kind: Meter, metadata: {name: m}, spec: {id: 9007199254740993, ms: 3600000}}"

// S11, case 38: with every digit.
func rendersComeBack(t *testing.T, s *Store) {
	r := render(t, meter)
	r.Revision = `"etag"`
	key, err := s.Put(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, "renders/sha256/"+strings.TrimPrefix(r.Digest, "sha256:"), key)
	back, err := s.Get(t.Context(), r.Digest)
	require.NoError(t, err)
	r.Objects[0].Place = release.Place{}
	require.Equal(t, r, back)
	stored, err := s.bucket.ReadAll(t.Context(), key)
	require.NoError(t, err)
	require.Contains(t, string(stored), `{"id":9007199254740993,"ms":3600000}`)
}

func absent(t *testing.T, s *Store) {
	_, err := s.Get(t.Context(), render(t, meter).Digest)
	require.ErrorIs(t, err, ErrNotFound)
}

func secondWriteIsSkipped(t *testing.T, s *Store) {
	r := render(t, meter)
	r.Revision = "one"
	key, err := s.Put(t.Context(), r)
	require.NoError(t, err)
	r.Revision = "two"
	again, err := s.Put(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, key, again)
	back, err := s.Get(t.Context(), r.Digest)
	require.NoError(t, err)
	require.Equal(t, "one", back.Revision)
}

func cutOffIsWrittenAnew(t *testing.T, s *Store) {
	r := render(t, meter)
	key, err := s.Put(t.Context(), r)
	require.NoError(t, err)
	require.NoError(t, s.bucket.WriteAll(t.Context(), key, []byte("{}"), nil))
	_, err = s.Put(t.Context(), r)
	require.NoError(t, err)
	_, err = s.Get(t.Context(), r.Digest)
	require.NoError(t, err)
}

func damaged(t *testing.T, s *Store) {
	r := render(t, meter)
	key, err := s.Put(t.Context(), r)
	require.NoError(t, err)
	stored := strings.Replace(string(release.Encode(r)), "3600000", "3600001", 1)
	require.NoError(t, s.bucket.WriteAll(t.Context(), key, []byte(stored), nil))
	_, err = s.Get(t.Context(), r.Digest)
	var bad *DamagedError
	require.ErrorAs(t, err, &bad)
	require.ErrorContains(t, err, key)
	require.ErrorContains(t, err, "delete it")
	require.NotErrorIs(t, err, ErrNotFound)
}

func anotherRender(t *testing.T, s *Store) {
	r, other := render(t, meter), render(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: other}}")
	key, err := Key(r.Digest)
	require.NoError(t, err)
	require.NoError(t, s.bucket.WriteAll(t.Context(), key, release.Encode(other), nil))
	_, err = s.Get(t.Context(), r.Digest)
	require.ErrorContains(t, err, "it is the render "+release.ShortDigest(other.Digest))
}

func badDigest(t *testing.T, s *Store) {
	for _, digest := range []string{"", "sha256:", "sha256:../../etc", "md5:" + strings.Repeat("0", 64), "sha256:" + strings.Repeat("G", 64)} {
		_, err := s.Get(t.Context(), digest)
		require.ErrorContains(t, err, "no digest")
		_, err = s.Put(t.Context(), &release.Render{Digest: digest})
		require.ErrorContains(t, err, "no digest")
	}
}

func emptyRender(t *testing.T, s *Store) {
	r := render(t, "# nothing")
	_, err := s.Put(t.Context(), r)
	require.NoError(t, err)
	back, err := s.Get(t.Context(), r.Digest)
	require.NoError(t, err)
	require.Empty(t, back.Objects)
}

func cancelled(t *testing.T, s *Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Put(ctx, render(t, meter))
	require.Error(t, err)
}

// A store that survives the worker: another Store at the same directory reads what the first wrote, and nothing else
// lies there.
func TestFileStoreOutlivesTheWorker(t *testing.T) {
	dir := t.TempDir()
	r := render(t, meter)
	key, err := open(t, "file://"+dir).Put(t.Context(), r)
	require.NoError(t, err)
	_, err = open(t, "file://"+dir+"?create_dir=false").Get(t.Context(), r.Digest)
	require.NoError(t, err)
	var files []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if !entry.IsDir() {
			files = append(files, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	}))
	require.Equal(t, []string{key}, files)
}

// A file store that cannot be written is an error, not a panic, and not a success.
func TestFileStoreThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	s := open(t, "file://"+dir)
	require.NoError(t, os.WriteFile(dir+"/renders", []byte("in the way"), 0o644))
	_, err := s.Put(t.Context(), render(t, meter))
	require.ErrorContains(t, err, "in the render store file://"+dir)
}

// Errors never show credentials from the URL.
func TestErrorsShowNoCredentials(t *testing.T) {
	for _, storeURL := range []string{
		"ftp://robot:hushhush@host/x?token=hushhush",
		"s3://robot:hushhush@bucket?nonsense=hushhush",
		"gs://bucket?nonsense=hushhush",
		"azblob://robot:hushhush@container?nonsense=hushhush",
		"file:///x?nonsense=hushhush",
		"file://robot:hushhush@host/\x7f",
		"hushhush",
	} {
		_, err := Open(t.Context(), storeURL)
		require.Error(t, err, storeURL)
		if storeURL != "hushhush" {
			require.NotContains(t, err.Error(), "hushhush")
		}
	}
}
