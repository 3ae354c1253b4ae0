//go:build linux

package agents

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

// serveTLS starts a server of handler on this host, which sandboxes reach as https://host.snapfs with the returned port.
// It speaks HTTP/2 if http2 is set, else HTTP/1. The programs of this host trust its certificate, by SSL_CERT_FILE, until
// the test ends.
func serveTLS(t *testing.T, handler http.Handler, http2 bool) (server *httptest.Server, port string) {
	t.Helper()
	bundle := filepath.Join(treetest.Dir(t), "server.pem")
	server = httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificateOf(t, "host.snapfs", bundle)}}
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.EnableHTTP2 = http2
	server.StartTLS()
	t.Cleanup(server.Close)
	_, port, _ = strings.Cut(server.Listener.Addr().String(), ":")
	t.Setenv("SSL_CERT_FILE", bundle)
	return server, port
}

// certificateOf makes a certificate for a host, and writes it to path.
func certificateOf(t *testing.T, host, path string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err == nil {
		err = os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
