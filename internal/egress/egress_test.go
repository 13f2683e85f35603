package egress

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// D32
func TestKindsOfAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1": "loopback", "::1": "loopback", "::ffff:127.0.0.1": "loopback", "64:ff9b::7f00:1": "loopback", "2002:7f00:1::": "loopback", "::127.0.0.1": "loopback",
		"0.0.0.0": "unspecified", "::": "unspecified", "0.1.2.3": "unspecified",
		"169.254.169.254": "link-local", "fe80::1": "link-local", "fe80::1%eth0": "link-local", "::ffff:169.254.169.254": "link-local", "64:ff9b::a9fe:a9fe": "link-local",
		"224.0.0.1": "multicast", "ff02::1": "multicast", "255.255.255.255": "multicast",
		"fd00:ec2::254": "metadata", "168.63.129.16": "metadata", "100.100.100.200": "metadata",
		"10.0.0.1": "", "192.168.1.1": "", "172.16.0.1": "", "fd00::1": "", "8.8.8.8": "", "2606:4700::1": "", "100.64.0.1": "",
	} {
		kind := localKind(netip.MustParseAddr(address))
		require.Equal(t, want == "", kind == "", "%s: %s", address, kind)
		require.Contains(t, kind, want, address)
	}
	require.Error(t, refuseLocal("tcp", "nonsense", nil))
}

// D32: what is refused at the connection is refused for good, and the address is named, not the query.
func TestTransport_D32_refuses_local_addresses(t *testing.T) {
	client := &http.Client{Transport: Transport(false)}
	answer, err := client.Get("http://127.0.0.1:1/x?token=hush")
	if err == nil {
		_ = answer.Body.Close()
	}
	require.Equal(t, Fault{Final: true, Message: "http://127.0.0.1:1/x leads to 127.0.0.1, a loopback address: the operator has to allow that"},
		FaultOf("http://127.0.0.1:1/x", err))
}

// D10: the errors of net/http hold URLs with their queries, and pieces of what was answered; none of that is shown.
func TestFaultOf_D10_shows_neither_query_nor_answer(t *testing.T) {
	for text, cause := range map[string]error{
		"u did not answer in time":                     context.DeadlineExceeded,
		"the request to u was cancelled":               context.Canceled,
		"u cannot be reached: odd":                     errors.New("odd"),
		"u cannot be reached":                          errors.New(`failed to parse Location header "http://hush"`),
		"u redirects to the moon":                      Refusef("redirects to the %s", "moon"),
		"u cannot be reached: http: server gave HTTP":  fmt.Errorf("http: server gave HTTP"),
		"u cannot be reached: malformed HTTP response": errors.New(`malformed HTTP response "hush"`),
		"u does not answer as HTTP does":               fmt.Errorf("broken: %w", textproto.ProtocolError("malformed MIME header line: hush")),
	} {
		fault := FaultOf("u", &url.Error{Op: "Get", URL: "http://robot:hush@host/?token=hush", Err: cause})
		require.Equal(t, text, fault.Message)
		require.Equal(t, cause.Error() == "redirects to the moon", fault.Final)
	}
	require.Equal(t, "http://host/path", Shown(&url.URL{Scheme: "http", User: url.UserPassword("a", "b"), Host: "host", Path: "/path", RawQuery: "c", Fragment: "d"}))
	require.Equal(t, "HTTP 404 Not Found", Status(404))
	require.Equal(t, "HTTP 599", Status(599))
}
