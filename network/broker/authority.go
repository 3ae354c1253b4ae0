package broker

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"sync"
	"time"
)

// How long the certificates are valid that the broker, the part of a sandbox's proxy that reads HTTP
// requests, issues to the sandbox. A proxy process may run for months, so those for servers are renewed.
const (
	caLife   = 5 * 365 * 24 * time.Hour
	leafLife = 7 * 24 * time.Hour
	renewAt  = 24 * time.Hour // before the end
	skew     = 24 * time.Hour // of a clock that is late
)

// An authority is the certificate authority of one sandbox, which only the sandbox trusts and whose key
// exists only in the sandbox's proxy. With its certificates the proxy ends TLS, in place of the servers, to
// read the sandbox's requests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	leaf *ecdsa.PrivateKey // of all leaves

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	leaf, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "snapfs sandbox CA"},
		NotBefore: now.Add(-skew), NotAfter: now.Add(caLife), IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, leaf: leaf, leaves: map[string]*tls.Certificate{}}, nil
}

func serial() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b)
}

// pem returns the certificate of the authority as PEM text, for the sandbox's programs to trust.
func (a *authority) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
}

// certificate returns a certificate for the server name, a stored one if it is still valid for a day. The
// name may be longer than a certificate's common name may be.
func (a *authority) certificate(name string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.leaves[name]; c != nil && time.Until(c.Leaf.NotAfter) > renewAt {
		return c, nil
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: serial(), DNSNames: []string{name},
		NotBefore: now.Add(-skew), NotAfter: now.Add(leafLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, a.leaf.Public(), a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	c := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leaf, Leaf: leaf}
	if len(a.leaves) < 1000 {
		a.leaves[name] = c
	}
	return c, nil
}
