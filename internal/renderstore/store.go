// Package renderstore keeps renders in a blob store, so that a sync can apply again exactly what was applied before
// (S11). It knows nothing of Releases: a render is known by its digest alone.
package renderstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob" // azblob://
	"gocloud.dev/blob/fileblob"    // file://
	_ "gocloud.dev/blob/gcsblob"   // gs://
	_ "gocloud.dev/blob/memblob"   // mem://
	_ "gocloud.dev/blob/s3blob"    // s3://
	"gocloud.dev/gcerrors"

	"convoy.dev/convoy/internal/release"
)

// ErrNotFound means that the store has no render of that digest. It is a release.ErrNotFound too.
var ErrNotFound error = notFound{}

type notFound struct{}

func (notFound) Error() string        { return "the render store does not hold this render" }
func (notFound) Is(target error) bool { return target == release.ErrNotFound }

// Store is a render store. It is safe for concurrent use.
type Store struct {
	bucket *blob.Bucket
	url    *url.URL
	shown  string // the URL without credentials
}

// Open opens the store at a URL: file:///DIR, mem://, s3://BUCKET, gs://BUCKET or azblob://CONTAINER, with the query
// options of gocloud.dev/blob. A directory is made when it is missing. Credentials come from the environment of the
// worker; no error shows any part of the URL that could be one.
func Open(ctx context.Context, storeURL string) (*Store, error) {
	u, err := url.Parse(storeURL)
	if err != nil {
		return nil, errors.New("the URL of the render store cannot be read")
	}
	shown := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
	if !blob.DefaultURLMux().ValidBucketScheme(u.Scheme) {
		return nil, fmt.Errorf("the render store %s is of no known kind: file, mem, s3, gs or azblob", shown)
	}
	bucket, err := blob.DefaultURLMux().OpenBucketURL(ctx, withDefaults(u))
	if err != nil {
		return nil, fmt.Errorf("the render store %s cannot be opened: %s", shown, safe(err, u))
	}
	return &Store{bucket: bucket, url: u, shown: shown}, nil
}

// withDefaults makes the directory of a file:// store, keeps no metadata beside the renders, and writes temporary
// files in the same directory, since a rename does not cross file systems.
func withDefaults(u *url.URL) *url.URL {
	if u.Scheme != fileblob.Scheme {
		return u
	}
	out, query := *u, u.Query()
	for key, value := range map[string]string{"create_dir": "true", "metadata": "skip", "no_tmp_dir": "true"} {
		if !query.Has(key) {
			query.Set(key, value)
		}
	}
	out.RawQuery = query.Encode()
	return &out
}

// queries are the parts of URLs in an error that can hold a signature.
var queries = regexp.MustCompile(`\?[^\s"']+`)

// safe is an error without what could be a credential: the user and the query of the store's URL, and the query of any
// other URL.
func safe(err error, u *url.URL) string {
	text := queries.ReplaceAllString(err.Error(), "?…")
	var secrets []string
	if u.User != nil {
		password, _ := u.User.Password()
		secrets = append(secrets, u.User.String(), password, u.User.Username())
	}
	for _, values := range u.Query() {
		secrets = append(secrets, values...)
	}
	for _, secret := range secrets {
		if len(secret) > 3 {
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	return text
}

// storeError is an error of the store whose text holds no credentials.
type storeError struct {
	text  string
	cause error
}

func (e *storeError) Error() string { return e.text }
func (e *storeError) Unwrap() error { return e.cause }

// Close releases the store.
func (s *Store) Close() error { return s.bucket.Close() }

// String is the URL of the store, without credentials.
func (s *Store) String() string { return s.shown }

// Key is where the render of a digest is kept. A digest that is none has no key.
func Key(digest string) (string, error) {
	hex, ok := strings.CutPrefix(digest, "sha256:")
	if !ok || len(hex) != 64 || strings.Trim(hex, "0123456789abcdef") != "" {
		return "", fmt.Errorf("%.80q is no digest of a render: sha256: and 64 hex digits", digest)
	}
	return "renders/sha256/" + hex, nil
}

// Put writes a render and returns its key. A render that is there already is not written again; its revision is then
// that of the first time.
func (s *Store) Put(ctx context.Context, r *release.Render) (string, error) {
	key, err := Key(r.Digest)
	if err != nil {
		return "", err
	}
	if whole, err := s.holds(ctx, key, r); err != nil {
		return "", s.failed("looking for", key, err)
	} else if whole {
		return key, nil
	}
	options := &blob.WriterOptions{ContentType: "application/x-ndjson"}
	if err := s.bucket.WriteAll(ctx, key, release.Encode(r), options); err != nil {
		return "", s.failed("writing", key, err)
	}
	return key, nil
}

// holds reports whether the key has a blob that can be the render: one that is too small was cut off, and is written
// again.
func (s *Store) holds(ctx context.Context, key string, r *release.Render) (bool, error) {
	attributes, err := s.bucket.Attributes(ctx, key)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return attributes.Size > int64(r.Size()+len(r.Objects)), nil
}

// Get reads the render of a digest. It is ErrNotFound when the store does not hold it. What is read is checked against
// the digest.
func (s *Store) Get(ctx context.Context, digest string) (*release.Render, error) {
	key, err := Key(digest)
	if err != nil {
		return nil, err
	}
	stored, err := s.bucket.ReadAll(ctx, key)
	switch {
	case gcerrors.Code(err) == gcerrors.NotFound && s.bucketMissing(ctx):
		return nil, s.failed("reading", key, err)
	case gcerrors.Code(err) == gcerrors.NotFound:
		return nil, fmt.Errorf("%s, %s: %w", s.shown, release.ShortDigest(digest), ErrNotFound)
	case err != nil:
		return nil, s.failed("reading", key, err)
	}
	r, err := release.Decode(stored)
	if err == nil && r.Digest != digest {
		err = fmt.Errorf("it is the render %s", release.ShortDigest(r.Digest))
	}
	if err != nil {
		return nil, &DamagedError{Store: s.shown, Key: key, cause: err}
	}
	return r, nil
}

// bucketMissing tells a bucket that is not there from a bucket without the render: both are answered by the same code.
// A bucket that may not be listed counts as there.
func (s *Store) bucketMissing(ctx context.Context) bool {
	there, err := s.bucket.IsAccessible(ctx)
	return !there && err == nil
}

func (s *Store) failed(doing, key string, err error) error {
	return &storeError{fmt.Sprintf("%s %s in the render store %s: %s", doing, key, s.shown, safe(err, s.url)), err}
}

// DamagedError means that a blob is not the render that its key says. Trying again does not help.
type DamagedError struct {
	Store, Key string
	cause      error
}

// Error names the key and the remedy.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s in the render store %s is damaged: %v; delete it, and the next sync of that render from its source writes it anew", e.Key, e.Store, e.cause)
}

// Unwrap is what is wrong with it.
func (e *DamagedError) Unwrap() error { return e.cause }
