package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"convoy.dev/convoy/dev/stack/ports"
)

// The files of a pki. The private key of the authority is not kept: nothing is signed later.
const (
	caCert     = "ca.crt"
	serverCert = "server.crt" // API server, scheduler and controller manager
	serverKey  = "server.key"
	adminCert  = "admin.crt"
	adminKey   = "admin.key"
	accountKey = "service-accounts.key"
)

// validity is long, because a data folder may be used again after months. The keys never leave this machine.
const validity = 10 * 365 * 24 * time.Hour

// pki is a folder with the certificates and keys of one control plane, with their content.
type pki struct {
	dir     string
	content map[string][]byte
}

func (p pki) file(name string) string { return filepath.Join(p.dir, name) }

// loadPKI reads the folder, which it makes first when it does not exist. A kept folder keeps issued service account
// tokens and the kubeconfig's certificates good.
func loadPKI(dir string) (pki, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := makePKI(dir); err != nil {
			return pki{}, err
		}
	}
	p := pki{dir: dir, content: map[string][]byte{}}
	for _, name := range []string{caCert, serverCert, serverKey, adminCert, adminKey, accountKey} {
		content, err := os.ReadFile(p.file(name))
		if err != nil {
			return pki{}, fmt.Errorf("%w; delete the folder %s to get new certificates", err, dir)
		}
		p.content[name] = content
	}
	return p, nil
}

// makePKI writes into a folder beside the final one and renames it, so that a folder that exists is whole.
func makePKI(dir string) error {
	files, err := issue()
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), ".pki-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(work, name), content, 0o600); err != nil {
			return err
		}
	}
	return os.Rename(work, dir)
}

// issue makes an authority, what it signs, and the key that signs service account tokens.
func issue() (map[string][]byte, error) {
	ca, err := newKeyPair(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "convoy devstack"},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}, nil)
	if err != nil {
		return nil, err
	}
	server, err := newKeyPair(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.ParseIP(ports.Host)},
	}, ca)
	if err != nil {
		return nil, err
	}
	admin, err := newKeyPair(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca)
	if err != nil {
		return nil, err
	}
	accounts, err := newKey()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{caCert: ca.certPEM(), serverCert: server.certPEM(), adminCert: admin.certPEM()}
	for name, key := range map[string]*ecdsa.PrivateKey{serverKey: server.key, adminKey: admin.key, accountKey: accounts} {
		if files[name], err = keyPEM(key); err != nil {
			return nil, err
		}
	}
	return files, nil
}

type keyPair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newKeyPair makes a certificate from the template, signed by the authority, or by itself when that is nil.
func newKeyPair(template *x509.Certificate, ca *keyPair) (*keyPair, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.NotBefore = time.Now().Add(-time.Minute)
	template.NotAfter = time.Now().Add(validity)
	signer := &keyPair{cert: template, key: key}
	if ca != nil {
		signer = ca
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.cert, key.Public(), signer.key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &keyPair{cert: cert, key: key}, err
}

func (k *keyPair) certPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: k.cert.Raw})
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
}

// adminClient returns an HTTP client with the administrator's access.
func (p pki) adminClient() (*http.Client, error) {
	cert, err := tls.X509KeyPair(p.content[adminCert], p.content[adminKey])
	if err != nil {
		return nil, fmt.Errorf("certificate of the administrator in %s: %w", p.dir, err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.content[caCert])
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}},
		ForceAttemptHTTP2: true,
	}}, nil
}
