//go:build linux

package edge

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/cgi"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/network"
)

// certify creates a certificate for names, and the file that trusts it.
func certify(t testing.TB, names ...string) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: names, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// quiet hides that its connections are TLS's: the server would log each one that is cut.
type quiet struct{ net.Listener }

func (q quiet) Accept() (net.Conn, error) {
	conn, err := q.Listener.Accept()
	return struct{ net.Conn }{conn}, err
}

// web serves HTTP at a made-up address, with TLS if it has a certificate.
func (w *world) web(t testing.TB, at string, certificate *tls.Certificate, handler http.Handler) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.place(at, l.Addr().String())
	if certificate != nil {
		l = quiet{tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*certificate}, NextProtos: []string{"http/1.1"}})}
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		_ = server.Serve(l)
		close(done)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
}

func greet() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "hello %s %d", r.Host, len(b))
	})
}

// TestCurlWorksAndCannotLie over HTTP and HTTPS, both families, with a large body, and through one connection.
func TestCurlWorksAndCannotLie(t *testing.T) {
	treetest.NeedProgram(t, "curl")
	w := newWorld(t, "site.example,alias.example:443,127.0.0.1:8")
	w.name("site.example", "203.0.113.10")
	w.name("alias.example", "203.0.113.10")
	certificate, roots := certify(t, "site.example", "evil.example")
	w.web(t, "203.0.113.10:80", nil, greet())
	w.web(t, "203.0.113.10:443", &certificate, greet())
	trust := filepath.Join(t.TempDir(), "roots.pem")
	large := filepath.Join(t.TempDir(), "large")
	for path, text := range map[string][]byte{trust: roots, large: make([]byte, 3<<20)} {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args   string
		status int
		out    string
		why    string
	}{
		{"http://site.example/", 0, "hello site.example 0", ""},
		{"-6 http://site.example/", 0, "hello site.example 0", ""},
		{"http://site.example/ http://site.example/2", 0, "hello site.example 0hello site.example 0", ""},
		{"--data-binary @" + large + " http://site.example/", 0, "hello site.example 3145728", ""},
		{"-T " + large + " -H Transfer-Encoding:chunked http://site.example/", 0, "hello site.example 3145728", ""},
		{"--cacert " + trust + " https://site.example/", 0, "hello site.example 0", ""},
		{"--cacert " + trust + " --data-binary @" + large + " -4 https://site.example/", 0, "hello site.example 3145728", ""},
		{"-H Host:evil.example http://site.example/", 52, "", "the Host is evil.example"},
		{"--connect-to evil.example:443:site.example:443 -k https://evil.example/", 35, "", "the server name is evil.example"},
		{"--http2-prior-knowledge http://site.example/", 16, "", "HTTP/2 without TLS"},
		{"-k https://203.0.113.10/", 7, "", "no rule names"},
		{"-k https://198.19.0.1/", 35, "", "no server name"},
		{"http://169.254.169.254/latest/meta-data", 7, "", "no rule names"},
		{"http://nobody.example/", 6, "", "no rule allows nobody.example"},
		{"-x http://proxy.example:3128 http://site.example/", 5, "", "no rule allows proxy.example"},
	} {
		w.forgetEvents()
		o := w.run(t, command{Args: append([]string{"curl", "-sS", "--max-time", "20"}, strings.Fields(c.args)...), Env: []string{"http_proxy=", "https_proxy="}})
		if c.status == 52 && o.Status == 56 || c.status == 35 && o.Status == 56 || c.status == 16 && o.Status != 0 {
			o.Status = c.status // curl's status of a reset depends on its timing
		}
		if o.Status != c.status || o.Out != c.out {
			t.Errorf("curl %s: status %d, not %d: %q %s", c.args, o.Status, c.status, o.Out, o.Err)
		}
		if c.why != "" {
			w.awaitEvent(t, c.args, func(ev network.Event) bool { return !ev.Allowed && strings.Contains(ev.Why, c.why) })
		}
	}
}

// TestGitClones over HTTP, with git's own server.
func TestGitClones(t *testing.T) {
	treetest.NeedProgram(t, "git")
	root := t.TempDir()
	git := func(args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b", "HOME="+root)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q", "repo")
	noise := make([]byte, 2<<20)
	_, _ = rand.Read(noise)
	if err := os.WriteFile(filepath.Join(root, "repo", "noise"), noise, 0o644); err != nil {
		t.Fatal(err)
	}
	git("-C", "repo", "add", ".")
	git("-C", "repo", "commit", "-q", "-m", "one")
	w := newWorld(t, "git.example:80")
	w.name("git.example", "203.0.113.11")
	w.web(t, "203.0.113.11:80", nil, &cgi.Handler{
		Path: filepath.Join(git("--exec-path"), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	})
	o := w.run(t, command{Args: []string{"git", "clone", "-q", "http://git.example/repo", filepath.Join(root, "clone")}, Env: []string{"HOME=" + root, "GIT_CONFIG_GLOBAL=/dev/null"}})
	if o.Status != 0 {
		t.Fatal(o.Err)
	}
	if was, is := git("-C", "repo", "rev-parse", "HEAD"), git("-C", "clone", "rev-parse", "HEAD"); was != is {
		t.Errorf("cloned %s, not %s", is, was)
	}
}

// TestTLSClientCannotNameAnotherServer: Go's client, whole and byte by byte.
func TestTLSClientCannotNameAnotherServer(t *testing.T) {
	w := newWorld(t, "site.example:443,192.0.2.7:443")
	w.name("site.example", "203.0.113.10")
	certificate, roots := certify(t, "site.example")
	serve := func(conn net.Conn) {
		c := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{certificate}})
		b := make([]byte, 5)
		if _, err := io.ReadFull(c, b); err == nil {
			_, _ = c.Write(b)
		}
	}
	w.serve(t, "203.0.113.10:443", serve)
	w.serve(t, "192.0.2.7:443", serve)
	talk := []step{{Send: []byte("hello")}, {Read: 5}}
	if r := w.play(t, append([]step{{Dial: "tcp site.example:443"}, {TLS: &tlsHello{"site.example", roots}}}, talk...)...); string(r.Read) != "hello" {
		t.Error("the name:", r.Err)
	}
	if r := w.play(t, append([]step{{Dial: "tcp 192.0.2.7:443"}, {TLS: &tlsHello{"", nil}}}, talk...)...); string(r.Read) != "hello" {
		t.Error("an address that a rule names:", r.Err)
	}
	good, evil := clientHello(t, "site.example"), clientHello(t, "evil.example")
	if r := w.play(t, step{Dial: "tcp site.example:443"}, step{Send: good, Slow: true}, step{Read: 3}); string(r.Read) != "\x16\x03\x03" {
		t.Errorf("byte by byte: %x, %s", r.Read, r.Err)
	}
	for what, steps := range map[string][]step{
		"evil.example":             {{TLS: &tlsHello{"evil.example", nil}}},
		"no server name":           {{TLS: &tlsHello{"", nil}}},
		"name is evil.example":     {{Send: inRecords(evil, 2), Slow: true}, {Read: 1}},
		"evil.example, not site.e": {{Send: []byte("GET / HTTP/1.1\r\nHost: site.example\r\n\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")}, {Read: -1}},
	} {
		w.forgetEvents()
		if r := w.play(t, append([]step{{Dial: "tcp site.example:443"}}, steps...)...); !strings.Contains(r.Err, "reset") {
			t.Errorf("%s: %q, and %q was read", what, r.Err, r.Read)
		}
		if ev := w.refused(t, network.TCP, "site.example", what); !ev.Ended || ev.Port != 443 || ev.ID == 0 {
			t.Errorf("%+v", ev)
		}
	}
}

// TestOtherResolversAreRefused: no packet leaves the machine, and the client knows at once.
func TestOtherResolversAreRefused(t *testing.T) {
	w := newWorld(t, "site.example")
	for _, at := range []string{"udp 8.8.8.8:53", "udp [2001:4860:4860::8888]:53"} {
		w.forgetEvents()
		r := w.play(t, step{Dial: at}, step{Send: ask(t, "secret.evil.example.", dnsmessage.TypeA)}, step{Read: 1})
		if !strings.Contains(r.Err, "refused") || r.Took > 2*time.Second {
			t.Errorf("%s: %q after %v", at, r.Err, r.Took)
		}
		w.refused(t, network.UDP, "", "another resolver")
	}
}

// TestNameCannotLeadToThisHost, also when it resolves differently the second time.
func TestNameCannotLeadToThisHost(t *testing.T) {
	w := newWorld(t, "site.example,two.example,db.example,10.1.0.0/16:5432")
	w.serve(t, "127.0.0.1:80", echo)
	w.serve(t, "203.0.113.10:80", echo)
	w.serve(t, "10.1.2.3:5432", echo)
	w.name("two.example", "127.0.0.1", "203.0.113.10")
	w.name("db.example", "10.1.2.3")
	for addr, why := range map[string]string{
		"127.0.0.1": "loopback", "::ffff:127.0.0.1": "loopback", "169.254.169.254": "metadata", "10.0.0.1": "private", "64:ff9b::7f00:1": "loopback",
	} {
		w.mu.Lock()
		delete(w.names, "site.example")
		w.mu.Unlock()
		w.name("site.example", addr)
		w.forgetEvents()
		if r := w.play(t, step{Dial: "tcp site.example:80"}); !strings.Contains(r.Err, "refused") {
			t.Errorf("%s: %q", addr, r.Err)
		}
		w.refused(t, network.TCP, "site.example", why)
	}
	w.serve(t, "203.0.113.10:81", echo)
	talk := []step{{Send: []byte("\x00hello")}, {Close: true}, {Read: -1}}
	for _, to := range []string{"two.example:81", "db.example:5432"} {
		if r := w.play(t, append([]step{{Dial: "tcp " + to}}, talk...)...); string(r.Read) != "\x00hello" {
			t.Errorf("%s: %s", to, r.Err)
		}
	}
	w.forgetEvents()
	if r := w.play(t, step{Dial: "tcp db.example:80"}); !strings.Contains(r.Err, "refused") {
		t.Errorf("a port that the address's rule does not allow: %q", r.Err)
	}
	w.refused(t, network.TCP, "db.example", "private")
}

// TestThisHostsAddressesAreRefused, public or not.
func TestThisHostsAddressesAreRefused(t *testing.T) {
	own, err := net.InterfaceAddrs()
	if err != nil || len(own) == 0 {
		t.Fatal(own, err)
	}
	e := &Edge{}
	e.rules.Store(&network.Rules{})
	for _, a := range own {
		addr, _, _ := strings.Cut(a.String(), "/")
		if why := e.unfit(mustAddr(t, addr), 80); why == "" {
			t.Errorf("a name may lead to %s, which this host has", addr)
		}
	}
	if why := e.unfit(mustAddr(t, "203.0.113.10"), 80); why != "" {
		t.Error(why)
	}
	rules, err := network.Parse("0.0.0.0/0,::/0")
	if err != nil {
		t.Fatal(err)
	}
	e.rules.Store(&rules)
	for _, a := range own {
		addr, _, _ := strings.Cut(a.String(), "/")
		if _, why := e.aim(netip.AddrPortFrom(mustAddr(t, addr), 80)); why == "" {
			t.Errorf("a prefix of all addresses opens %s, which this host has", addr)
		}
	}
}

// TestHostLookupOfWholeNames uses no search list.
func TestHostLookupOfWholeNames(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop() // no query is sent
	if _, err := hostLookup(ctx, "site.example"); err == nil || !strings.Contains(err.Error(), "site.example.") {
		t.Error(err)
	}
}

// TestUpgradePassesThrough: traffic after the server's consent is not inspected.
func TestUpgradePassesThrough(t *testing.T) {
	w := newWorld(t, "site.example")
	w.name("site.example", "203.0.113.10")
	const ask = "GET /ws HTTP/1.1\r\nHost: site.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	const yes, more = "HTTP/1.1 101 Switching Protocols\r\n\r\n", "GET / HTTP/1.1\r\nHost: another.example\r\n\r\n"
	w.serve(t, "203.0.113.10:80", func(conn net.Conn) {
		if _, err := io.ReadFull(conn, make([]byte, len(ask))); err == nil {
			_, _ = conn.Write([]byte(yes))
			echo(conn)
		}
	})
	r := w.play(t, step{Dial: "tcp site.example:80"}, step{Send: []byte(ask)}, step{Read: len(yes)}, step{Send: []byte(more)}, step{Read: len(more)})
	if r.Err != "" || string(r.Read) != yes+more {
		t.Errorf("%q, %s", r.Read, r.Err)
	}
}
