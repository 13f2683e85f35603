package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// authority is a certificate authority of the test's own.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key = a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// sign makes a certificate; the first one signs itself.
func (a *authority) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(a.t, err)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(a.t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return cert, key
}

// issue makes the certificate of a server at 127.0.0.1, or of a client, in files.
func (a *authority) issue(name string) (certFile, keyFile string) {
	a.t.Helper()
	cert, key := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	der, err := x509.MarshalECPrivateKey(key)
	require.NoError(a.t, err)
	return a.write(name+".crt", "CERTIFICATE", cert.Raw), a.write(name+".key", "EC PRIVATE KEY", der)
}

func (a *authority) file() string { return a.write("ca.crt", "CERTIFICATE", a.cert.Raw) }

func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	file := filepath.Join(a.t.TempDir(), name)
	require.NoError(a.t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return file
}

// caller is who asked a Temporal for its system info.
type caller struct {
	authorization []string
	certificate   string
}

// secured is a Temporal that answers the first call of every client, over TLS, to clients with a certificate.
type secured struct {
	workflowservice.UnimplementedWorkflowServiceServer
	callers chan caller
}

func (s *secured) GetSystemInfo(ctx context.Context, _ *workflowservice.GetSystemInfoRequest) (*workflowservice.GetSystemInfoResponse, error) {
	var who caller
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		who.authorization = md.Get("authorization")
	}
	if from, ok := peer.FromContext(ctx); ok {
		if info, ok := from.AuthInfo.(credentials.TLSInfo); ok {
			who.certificate = info.State.PeerCertificates[0].Subject.CommonName
		}
	}
	s.callers <- who
	return &workflowservice.GetSystemInfoResponse{Capabilities: &workflowservice.GetSystemInfoResponse_Capabilities{}}, nil
}

// newSecured starts one, and points the environment at it.
func newSecured(t *testing.T, ca *authority) *secured {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(ca.issue("server"))
	require.NoError(t, err)
	clients := x509.NewCertPool()
	clients.AddCert(ca.cert)
	s := &secured{callers: make(chan caller, 10)}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	})))
	workflowservice.RegisterWorkflowServiceServer(server, s)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			require.ErrorIs(t, err, grpc.ErrServerStopped, "it was stopped before it began")
		}
	})
	cert, key := ca.issue("convoy-worker")
	for name, value := range map[string]string{
		"TEMPORAL_CONFIG_FILE": "/dev/null", "TEMPORAL_PROFILE": "", "TEMPORAL_ADDRESS": listener.Addr().String(), "TEMPORAL_NAMESPACE": "team",
		"TEMPORAL_API_KEY": "hushhush", "TEMPORAL_TLS_SERVER_CA_CERT_PATH": ca.file(),
		"TEMPORAL_TLS_CLIENT_CERT_PATH": cert, "TEMPORAL_TLS_CLIENT_KEY_PATH": key,
	} {
		t.Setenv(name, value)
	}
	return s
}

func dial(t *testing.T, cfg config) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := cfg.dial(ctx, slog.New(slog.DiscardHandler))
	if err == nil {
		c.Close()
	}
	return err
}

// TLS and API key come from Temporal's own environment variables and reach the connection.
func TestDialSpeaksTLSWithTheKeyOfTheEnvironment(t *testing.T) {
	s := newSecured(t, newAuthority(t, "ours"))
	require.NoError(t, dial(t, config{}))
	require.Equal(t, caller{authorization: []string{"Bearer hushhush"}, certificate: "convoy-worker"}, <-s.callers)
}

// A flag names another Temporal, and TLS stays.
func TestDialSpeaksTLSToTheAddressOfTheFlag(t *testing.T) {
	s := newSecured(t, newAuthority(t, "ours"))
	address := os.Getenv("TEMPORAL_ADDRESS")
	t.Setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
	require.NoError(t, dial(t, config{temporalAddress: address}))
	require.Equal(t, "convoy-worker", (<-s.callers).certificate)
}

func TestDialSaysWhatIsWrongWithTLS(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*testing.T)
		says   string
	}{
		"the server is of another authority": {func(t *testing.T) {
			t.Setenv("TEMPORAL_TLS_SERVER_CA_CERT_PATH", newAuthority(t, "theirs").file())
		}, "certificate signed by unknown authority"},
		"the authority's file is not there": {func(t *testing.T) {
			t.Setenv("TEMPORAL_TLS_SERVER_CA_CERT_PATH", t.TempDir()+"/nope.crt")
		}, "nope.crt"},
		"the client is of another authority": {func(t *testing.T) {
			cert, key := newAuthority(t, "theirs").issue("stranger")
			t.Setenv("TEMPORAL_TLS_CLIENT_CERT_PATH", cert)
			t.Setenv("TEMPORAL_TLS_CLIENT_KEY_PATH", key)
		}, "TEMPORAL_TLS_…"}, // how a server ends such a connection differs from time to time
	} {
		t.Run(name, func(t *testing.T) {
			s := newSecured(t, newAuthority(t, "ours"))
			c.change(t)
			err := dial(t, config{})
			t.Log(err)
			require.ErrorContains(t, err, "temporal")
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "hushhush")
			require.Empty(t, s.callers)
		})
	}
}
