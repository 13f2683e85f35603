package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"convoy.dev/convoy/internal/release"
)

const (
	maxRedirects     = 5
	maxRevisionBytes = 200
)

// newClient makes the HTTP client of a Fetcher. It knows no proxy: a proxy would resolve names by itself, and so
// undo the check of addresses. It asks for no compression, so that Content-Length counts what arrives.
func newClient(options Options) *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	if !options.AllowLocalURLs {
		dialer.Control = refuseLocal
	}
	transport := &http.Transport{
		Proxy:                  nil,
		DialContext:            dialer.DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    10 * time.Second,
		ResponseHeaderTimeout:  options.Timeout,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConns:           16,
		IdleConnTimeout:        30 * time.Second,
		DisableCompression:     true,
	}
	return &http.Client{Transport: transport, CheckRedirect: checkRedirect}
}

// refusal is an error that no retry helps against.
type refusal struct{ message string }

func (r *refusal) Error() string { return r.message }

// refuseLocal is asked with the resolved address right before each connection, so that neither a redirect nor a name
// that resolves anew gets around it (D32).
func refuseLocal(_, address string, _ syscall.RawConn) error {
	port, err := netip.ParseAddrPort(address)
	if err != nil {
		return &refusal{"leads to an address that cannot be checked"}
	}
	if what := localKind(port.Addr()); what != "" {
		return &refusal{fmt.Sprintf("leads to %s, %s: the operator has to allow that", port.Addr(), what)}
	}
	return nil
}

// metadataAddresses are those of clouds that are not link-local.
var metadataAddresses = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
	netip.MustParseAddr("192.0.0.192"),     // Oracle Cloud
	netip.MustParseAddr("fd20:ce::254"),    // Google Cloud
}

// localKind says what kind of address a URL may not lead to; empty for any other. Private ranges are fine: servers in
// the cluster live there.
func localKind(address netip.Addr) string {
	address = embedded(address.Unmap().WithZone(""))
	switch {
	case address.IsLoopback():
		return "a loopback address"
	case address.IsUnspecified() || zeroNetwork.Contains(address):
		return "an unspecified address"
	case address.IsLinkLocalUnicast():
		return "a link-local address"
	case address.IsMulticast() || address == broadcast:
		return "a multicast address"
	case slices.Contains(metadataAddresses, address):
		return "a metadata address"
	default:
		return ""
	}
}

var (
	zeroNetwork = netip.MustParsePrefix("0.0.0.0/8")
	broadcast   = netip.MustParseAddr("255.255.255.255")
	nat64       = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour   = netip.MustParsePrefix("2002::/16")
	compatible  = netip.MustParsePrefix("::/96")
)

// embedded is the IPv4 address that an IPv6 address of a transition mechanism stands for.
func embedded(address netip.Addr) netip.Addr {
	b := address.As16()
	switch {
	case address.Is4():
		return address
	case nat64.Contains(address), compatible.Contains(address) && b[12] != 0:
		return netip.AddrFrom4([4]byte(b[12:16]))
	case sixToFour.Contains(address):
		return netip.AddrFrom4([4]byte(b[2:6]))
	default:
		return address
	}
}

func checkRedirect(next *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return &refusal{fmt.Sprintf("redirects more than %d times", maxRedirects)}
	case next.URL.Scheme != "http" && next.URL.Scheme != "https":
		return &refusal{"redirects to something else than http and https"}
	case next.URL.Scheme == "http" && via[len(via)-1].URL.Scheme == "https":
		return &refusal{"redirects from https to http"}
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
	shown := redact(target)
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

// redact is the URL without user, password, query and fragment, any of which may be a credential.
func redact(u *url.URL) string {
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	return shown.String()
}

// transportError tells why there is no answer. The error of net/http holds URLs with their queries: only what lies
// below it is shown, and that only where it comes from the network.
func transportError(shown string, err error) *Error {
	if refused, ok := errors.AsType[*refusal](err); ok {
		return bad("%s %s", shown, refused.message)
	}
	if errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		return unreachable(err, "%s did not answer in time", shown)
	}
	if errors.Is(err, context.Canceled) {
		return unreachable(err, "fetching %s was cancelled", shown)
	}
	if network, ok := errors.AsType[*net.OpError](err); ok {
		return unreachable(err, "%s cannot be reached: %v", shown, network)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return unreachable(err, "%s closed the connection without an answer", shown)
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok && !strings.Contains(wrapped.Err.Error(), "Location") {
		return unreachable(nil, "%s cannot be reached: %v", shown, wrapped.Err)
	}
	return unreachable(nil, "%s cannot be reached", shown)
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// checkAnswer accepts 200 alone, and of those only answers whose end can be told from an interruption.
func checkAnswer(shown string, r *http.Response) error {
	switch code := r.StatusCode; {
	case code == http.StatusOK:
	case code >= 500, code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests:
		return unreachable(nil, "%s answers %s", shown, status(code))
	case code == http.StatusPartialContent:
		return unreachable(nil, "%s answers %s: only a part of the file", shown, status(code))
	default:
		return bad("%s answers %s", shown, status(code))
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return bad("%s answers with the content encoding %.20q, which was not asked for", shown, encoding)
	}
	if r.ContentLength < 0 && r.ProtoMajor == 1 && !slices.Contains(r.TransferEncoding, "chunked") {
		return unreachable(nil, "%s answers without Content-Length or chunks, so a cut-off answer would look like a whole one", shown)
	}
	return nil
}

func status(code int) string {
	return strings.TrimSpace(fmt.Sprintf("HTTP %d %s", code, http.StatusText(code)))
}

func (f *Fetcher) readBody(shown string, r *http.Response) ([]byte, error) {
	if r.ContentLength > f.options.MaxBytes {
		return nil, bad("%s has %d bytes, and at most %d are allowed", shown, r.ContentLength, f.options.MaxBytes)
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, f.options.MaxBytes+1))
	switch {
	case err != nil && (errors.Is(err, context.DeadlineExceeded) || isTimeout(err)):
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
