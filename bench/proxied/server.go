//go:build linux

package proxied

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/internal/run"
)

// name is the server's name, which in a sandbox is this host, and header the header with the key.
const (
	name   = "host.snapfs"
	header = "X-Api-Key"
)

// A server answers requests that have its key with 300 bytes of JSON, and others with 403, over TLS with a certificate
// of its own.
type server struct {
	http                      *http.Server
	address, key, certificate string
}

// serve starts a server on the loopback. Its certificate and the certificate's key are in one file in the directory dir.
func serve(dir string) (*server, error) {
	s := &server{key: rand.Text(), certificate: filepath.Join(dir, "server.pem")}
	pair, err := certify(s.certificate)
	if err != nil {
		return nil, err
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	if err != nil {
		return nil, err
	}
	s.address = l.Addr().String()
	body := `{"content":"` + strings.Repeat("x", 286) + `"}`
	s.http = &http.Server{ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(header) != s.key {
			http.Error(w, "without the key", http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(body)) // a client that went away notices by itself
	})}
	go func() { _ = s.http.Serve(l) }() // it ends with close
	return s, nil
}

func (s *server) close() { _ = s.http.Close() }

// url returns the URL of requests to the server, by its name.
func (s *server) url() string {
	_, port, _ := net.SplitHostPort(s.address) // of a listener
	return "https://" + name + ":" + port + "/v1/echo"
}

// certify makes a certificate for the server, and writes it with its key to path.
func certify(path string) (pair tls.Certificate, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair, err
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return pair, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair, err
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, os.WriteFile(path, text, 0o600)
}

// configuration is that of nginx. Its verbs are the directory, the address of nginx, the server's address, and its key.
const configuration = `
daemon off; pid %[1]s/pid; error_log stderr error; user root; worker_processes auto;
events { worker_connections 1024; }
http {
	access_log off; keepalive_requests 1000000;
	client_body_temp_path %[1]s/t1; proxy_temp_path %[1]s/t2; fastcgi_temp_path %[1]s/t3; uwsgi_temp_path %[1]s/t4; scgi_temp_path %[1]s/t5;
	upstream api { server %[3]s; keepalive 64; keepalive_requests 1000000; }
	server {
		listen %[2]s ssl; ssl_certificate %[1]s/server.pem; ssl_certificate_key %[1]s/server.pem;
		location / {
			proxy_pass https://api; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header ` + header + ` %[4]s;
			proxy_ssl_name ` + name + `; proxy_ssl_server_name on; proxy_ssl_verify on; proxy_ssl_trusted_certificate %[1]s/server.pem;
		}
	}
}
`

// startTimeout bounds how long [reverseProxy] waits until nginx accepts connections.
const startTimeout = 30 * time.Second

// reverseProxy starts nginx as a reverse proxy of s, with its files in dir, and returns its address. The caller calls
// stop. Errors: run.ErrMissing.
func reverseProxy(ctx context.Context, dir string, s *server) (address string, stop func() error, err error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address = free.Addr().String()
	path := filepath.Join(dir, "nginx.conf")
	err = errors.Join(free.Close(), os.WriteFile(path, fmt.Appendf(nil, configuration, dir, address, s.address, s.key), 0o600))
	if err != nil {
		return "", nil, err
	}
	program, err := run.Look("nginx")
	if err != nil {
		return "", nil, err
	}
	log, err := os.Create(filepath.Join(dir, "nginx.log"))
	if err != nil {
		return "", nil, err
	}
	defer log.Close()
	process, err := run.Background([]string{program, "-e", "stderr", "-c", path}, log)
	if err != nil {
		return "", nil, err
	}
	stop = func() error {
		if err := process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		_, err := process.Wait()
		return err
	}
	for end := time.Now().Add(startTimeout); ; time.Sleep(time.Millisecond) {
		c, err := net.Dial("tcp", address)
		if err == nil {
			return address, stop, c.Close()
		}
		if ctx.Err() != nil || time.Now().After(end) {
			said, _ := os.ReadFile(log.Name()) // for the error
			return "", nil, errors.Join(err, ctx.Err(), errors.New(string(said)), stop())
		}
	}
}
