// Package source fetches the manifests of a Release: inline, from a path on the worker, or from a URL. It returns
// files as they are: what they mean is for internal/release to say.
//
// Nothing here trusts a Release: its author may name any path and any URL, and must reach neither the worker's own
// files nor its loopback or the metadata service of a cloud (D32).
package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"
)

// Options say what a source may be.
type Options struct {
	// PathRoots are directories on the worker that a path source may lie below. Without one there are no path sources.
	PathRoots []string
	// AllowLocalURLs lets a url source lead to loopback, link-local and metadata addresses.
	AllowLocalURLs bool
	// MaxBytes bounds all files of a source together; 0 means 64 MiB.
	MaxBytes int64
	// Timeout bounds a fetch; 0 means 30 seconds.
	Timeout time.Duration
}

// The defaults of Options.
const (
	DefaultMaxBytes = 64 << 20
	DefaultTimeout  = 30 * time.Second
)

// Result is what a source holds now.
type Result struct {
	Files []release.File
	// Revision names this state of the source: "inline:…", "path:…", or the ETag of an answer. Equal content of one
	// inline or path source has an equal revision.
	Revision string
}

// Error is why a source could not be fetched. Its text holds no credentials: of a URL it shows neither user nor query.
type Error struct {
	// Retryable: the source is unreachable or incomplete, which may pass. Otherwise it is bad, and waits for the next
	// periodic reconcile (D1).
	Retryable bool
	// Message says what is wrong and what to do.
	Message string
	cause   error
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

// Unwrap is the cause, for errors.Is.
func (e *Error) Unwrap() error { return e.cause }

// Problem is the error as the reason RenderFailed.
func (e *Error) Problem() *release.Problem {
	return release.Problemf(release.RenderFailed, "%s", e.Message)
}

func bad(format string, args ...any) *Error {
	return &Error{Message: fmt.Sprintf(format, args...)}
}

func unreachable(cause error, format string, args ...any) *Error {
	return &Error{Retryable: true, Message: fmt.Sprintf(format, args...), cause: cause}
}

// IsRetryable reports whether trying again may help. An error that is not of this package counts as retryable.
func IsRetryable(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Retryable
	}
	return err != nil
}

// Fetcher fetches sources. It is safe for concurrent use.
type Fetcher struct {
	options Options
	client  *http.Client
}

// New makes a Fetcher.
func New(options Options) *Fetcher {
	if options.MaxBytes <= 0 {
		options.MaxBytes = DefaultMaxBytes
	}
	if options.Timeout <= 0 {
		options.Timeout = DefaultTimeout
	}
	return &Fetcher{options: options, client: newClient(options)}
}

// Fetch reads a source whole. Every error is an *Error.
func (f *Fetcher) Fetch(ctx context.Context, src v1alpha1.Source) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, f.options.Timeout)
	defer cancel()
	switch {
	case members(src) != 1:
		return Result{}, bad("spec.source has %d of inline, path and url: set exactly one", members(src))
	case src.Inline != nil:
		return f.fetchInline(*src.Inline)
	case src.Path != nil:
		return f.fetchPath(ctx, *src.Path)
	default:
		return f.fetchURL(ctx, *src.URL)
	}
}

func members(src v1alpha1.Source) int {
	n := 0
	for _, member := range []*string{src.Inline, src.Path, src.URL} {
		if member != nil {
			n++
		}
	}
	return n
}

func (f *Fetcher) fetchInline(text string) (Result, error) {
	if int64(len(text)) > f.options.MaxBytes {
		return Result{}, bad("spec.source.inline has %d bytes, and at most %d are allowed", len(text), f.options.MaxBytes)
	}
	files := []release.File{{Name: "inline", Data: []byte(text)}}
	return Result{Files: files, Revision: revision("inline", files)}, nil
}

// revision is a short hash over names and contents.
func revision(kind string, files []release.File) string {
	h := sha256.New()
	for _, file := range files {
		fmt.Fprintf(h, "%d:%s:%d:", len(file.Name), file.Name, len(file.Data))
		h.Write(file.Data)
	}
	return kind + ":" + hex.EncodeToString(h.Sum(nil))[:16]
}
