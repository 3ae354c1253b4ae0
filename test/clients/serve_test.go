package clients

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
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httputil"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/net/websocket"
)

// Where the servers are: addresses for examples (RFC 5737), of which no host is
// special, and private ones.
var (
	outside = netip.MustParsePrefix("203.0.113.0/24")
	private = netip.MustParsePrefix("10.86.0.0/24")
)

// zone is what the server for names knows.
var zone = map[string]string{
	"web.test": "203.0.113.10", "git.test": "203.0.113.11", "npm.test": "203.0.113.12", "go.test": "203.0.113.13",
	"apt.test": "203.0.113.14", "db.test": "203.0.113.15", "ws.test": "203.0.113.16", "proxy.test": "203.0.113.17",
	"page.test": "203.0.113.18", "other.test": "203.0.113.20", "inward.test": "10.86.0.1", "corp.test": "10.86.0.2",
}

// serve starts every server, until the test ends. Their files are made in dir.
func serve(t *testing.T, dir string) {
	t.Helper()
	answerNames(t)
	certificate := authority(t, dir)
	goods := filepath.Join(dir, "goods")
	stock(t, goods)
	site := http.NewServeMux()
	for _, name := range []string{"npm.test/", "go.test/", "apt.test/"} {
		site.Handle(name, http.FileServer(http.Dir(goods)))
	}
	site.Handle("git.test/", &cgi.Handler{
		Path: "/usr/bin/git", Args: []string{"http-backend"}, Dir: goods,
		Env: []string{"GIT_PROJECT_ROOT=" + goods, "GIT_HTTP_EXPORT_ALL=1"},
	})
	site.Handle("ws.test/", websocket.Server{Handler: func(ws *websocket.Conn) { _, _ = io.Copy(ws, ws) }})
	site.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "this is", r.Host) })
	site.HandleFunc("page.test/page", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, page) })
	heard := make(chan bool, 1)
	site.HandleFunc("page.test/heard", func(http.ResponseWriter, *http.Request) { heard <- true })
	site.HandleFunc("page.test/wait", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-heard:
		case <-r.Context().Done():
		}
	})
	for _, at := range []string{":80", ":8080"} {
		start(t, site, at, nil)
	}
	for _, at := range []string{":443", ":8443"} {
		start(t, site, at, &tls.Config{Certificates: []tls.Certificate{certificate}})
	}
	start(t, http.HandlerFunc(forward), ":3128", nil)
	database(t, dir)
	for _, port := range []string{"80", "443", "3128", "5432", "8080", "8443"} {
		if !listens(zone["other.test"] + ":" + port) {
			t.Fatal("nothing listens where clients are not to come: port", port)
		}
	}
}

// listens says that a server answers at an address of the test's.
func listens(at string) bool {
	conn, err := net.DialTimeout("tcp", at, time.Minute)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// page is loaded when its WebSocket was heard.
const page = `<title>none</title><img src="/wait"><script>
const ws = new WebSocket("wss://ws.test/");
ws.onopen = () => ws.send("` + greeting + `");
ws.onmessage = (m) => { document.title = "heard: " + m.data; fetch("/heard"); };
</script>`

func start(t *testing.T, h http.Handler, at string, secret *tls.Config) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	if secret != nil {
		l = tls.NewListener(l, secret)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	go s.Serve(l) //nolint:errcheck // it ends when it is closed
	t.Cleanup(func() { s.Close() })
}

// forward is a proxy.
func forward(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		(&httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}}).ServeHTTP(w, r)
		return
	}
	out, err := net.Dial("tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer out.Close()
	w.WriteHeader(http.StatusOK)
	in, read, err := http.NewResponseController(w).Hijack() // read has what came before
	if err != nil {
		return
	}
	defer in.Close()
	go io.Copy(out, read) //nolint:errcheck // it ends with the connection
	_, _ = io.Copy(in, out)
}

// answerNames serves the zone.
func answerNames(t *testing.T) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:53")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := [4096]byte{}
		for {
			n, from, err := conn.ReadFrom(buf[:])
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if answer := answer(buf[:n]); err == nil && answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
}

func answer(question []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(question) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	m = dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}, Questions: m.Questions}
	addr, ok := zone[strings.TrimSuffix(q.Name.String(), ".")]
	switch {
	case !ok:
		m.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
			Body:   &dnsmessage.AResource{A: netip.MustParseAddr(addr).As4()},
		}}
	}
	b, err := m.Pack()
	if err != nil {
		return nil
	}
	return b
}

// authority makes ca.pem, and a certificate for every name of the zone, which it
// signed: server.pem and server.key.
func authority(t *testing.T, dir string) tls.Certificate {
	t.Helper()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "clients"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for name, addr := range zone {
		leaf.DNSNames = append(leaf.DNSNames, name)
		leaf.IPAddresses = append(leaf.IPAddresses, net.ParseIP(addr))
	}
	caKey, key := newKey(t), newKey(t)
	signed := func(c *x509.Certificate, public *ecdsa.PrivateKey) []byte {
		der, err := x509.CreateCertificate(rand.Reader, c, ca, &public.PublicKey, caKey)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	secret, public := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), signed(leaf, key)
	write(t, dir+"/ca.pem", signed(ca, caKey))
	write(t, dir+"/server.pem", public)
	write(t, dir+"/server.key", secret)
	pair, err := tls.X509KeyPair(public, secret)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644)); err != nil {
		t.Fatal(err)
	}
}
