package source

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"convoy.dev/convoy/internal/egress"
	"convoy.dev/convoy/internal/release"
)

const (
	maxRedirects     = 5
	maxRevisionBytes = 200
)

// newClient makes the HTTP client of a Fetcher. It asks for no compression, so that Content-Length counts what arrives.
func newClient(options Options) *http.Client {
	transport := egress.Transport(options.AllowLocalURLs)
	transport.ResponseHeaderTimeout = options.Timeout
	transport.DisableCompression = true
	return &http.Client{Transport: transport, CheckRedirect: checkRedirect}
}

func checkRedirect(next *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return egress.Refusef("redirects more than %d times", maxRedirects)
	case next.URL.Scheme != "http" && next.URL.Scheme != "https":
		return egress.Refusef("redirects to something else than http and https")
	case next.URL.Scheme == "http" && via[len(via)-1].URL.Scheme == "https":
		return egress.Refusef("redirects from https to http")
	default:
		return nil
	}
}

// fetchURL gets a file whole.
func (f *Fetcher) fetchURL(ctx context.Context, raw string) (Result, error) {
	target, err := url.Parse(raw)
	if err != nil || target.Host == "" || target.Scheme != "http" && target.Scheme != "https" {
		return Result{}, bad("spec.source.url is not a URL of http or https")
	}
	shown := egress.Shown(target)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return Result{}, bad("%s is not a URL that can be asked for", shown)
	}
	request.Header.Set("User-Agent", "convoy")
	request.Header.Set("Accept", "application/yaml, application/json, text/plain, */*;q=0.5")
	response, err := f.client.Do(request)
	if err != nil {
		return Result{}, transportError(shown, err)
	}
	defer response.Body.Close()
	if err := checkAnswer(shown, response); err != nil {
		return Result{}, err
	}
	data, err := f.readBody(shown, response)
	if err != nil {
		return Result{}, err
	}
	files := []release.File{{Name: shown, Data: data}}
	return Result{Files: files, Revision: urlRevision(response.Header, files)}, nil
}

// transportError tells why there is no answer.
func transportError(shown string, err error) *Error {
	fault := egress.FaultOf(shown, err)
	if fault.Final {
		return bad("%s", fault.Message)
	}
	return unreachable(fault.Cause, "%s", fault.Message)
}

// checkAnswer accepts 200 alone, and of those only answers whose end can be told from an interruption.
func checkAnswer(shown string, r *http.Response) error {
	switch code := r.StatusCode; {
	case code == http.StatusOK:
	case code >= 500, code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests:
		return unreachable(nil, "%s answers %s", shown, egress.Status(code))
	case code == http.StatusPartialContent:
		return unreachable(nil, "%s answers %s: only a part of the file", shown, egress.Status(code))
	default:
		return bad("%s answers %s", shown, egress.Status(code))
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return bad("%s answers with the content encoding %.20q, which was not asked for", shown, encoding)
	}
	if r.ContentLength < 0 && r.ProtoMajor == 1 && !slices.Contains(r.TransferEncoding, "chunked") {
		return unreachable(nil, "%s answers without Content-Length or chunks, so a cut-off answer would look like a whole one", shown)
	}
	return nil
}

func (f *Fetcher) readBody(shown string, r *http.Response) ([]byte, error) {
	if r.ContentLength > f.options.MaxBytes {
		return nil, bad("%s has %d bytes, and at most %d are allowed", shown, r.ContentLength, f.options.MaxBytes)
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, f.options.MaxBytes+1))
	switch {
	case err != nil && egress.IsTimeout(err):
		return nil, unreachable(err, "%s did not arrive in time", shown)
	case err != nil:
		return nil, unreachable(err, "%s did not arrive whole: the connection broke after %d bytes", shown, len(data))
	case int64(len(data)) > f.options.MaxBytes:
		return nil, bad("%s has more than %d bytes, which is the limit", shown, f.options.MaxBytes)
	default:
		return data, nil
	}
}

// urlRevision is the ETag, else Last-Modified, else a hash of the content.
func urlRevision(header http.Header, files []release.File) string {
	for _, name := range []string{"ETag", "Last-Modified"} {
		value := header.Get(name)
		if value != "" && len(value) <= maxRevisionBytes && !strings.ContainsFunc(value, unprintable) {
			return value
		}
	}
	return revision("url", files)
}

func unprintable(r rune) bool { return r < ' ' || r > '~' }
