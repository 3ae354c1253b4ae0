//go:build linux

package edge

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/network"
)

// lenientTLS are ClientHellos that Go's server accepts, although their first record is none that a client sends.
func lenientTLS(hello []byte) map[string][]byte {
	list := map[string][]byte{
		"a TLS record of version 2.1": withVersion(hello, 2, 1),
		"a TLS record of version 4.1": withVersion(hello, 4, 1),
		"a TLS record of version 0.0": withVersion(hello, 0, 0),
	}
	for alert, name := range map[byte]string{90: "user_canceled", 100: "no_renegotiation", 10: "unexpected_message", 41: "no_certificate"} {
		for minor := byte(1); minor <= 3; minor += 2 {
			list["does not begin with a ClientHello: "+name+string('0'+rune(minor))] = append([]byte{recordAlert, 3, minor, 0, 2, 1, alert}, hello...)
		}
	}
	list["does not begin with a ClientHello: twice"] = append([]byte{recordAlert, 3, 3, 0, 2, 1, 90, recordAlert, 3, 3, 0, 2, 1, 90}, hello...)
	return list
}

// TestNoServerOfGoSeesAnotherName, which ignores the version of the first record and skips warnings.
func TestNoServerOfGoSeesAnotherName(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	certificate, _ := certify(t, "site.example", "evil.example")
	config := &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, hello.ServerName)
		return &certificate, nil
	}}
	serve := func(conn net.Conn) { _ = tls.Server(conn, config).Handshake() }
	w := newWorld(t, "site.example,192.0.2.7")
	w.name("site.example", "203.0.113.10")
	for _, at := range []string{"203.0.113.10:443", "203.0.113.10:5443", "192.0.2.7:443"} {
		w.serve(t, at, serve)
	}
	list := lenientTLS(clientHello(t, "evil.example"))
	if len(list) != 12 {
		t.Fatal(len(list))
	}
	for why, send := range list {
		mu.Lock()
		asked = nil
		mu.Unlock()
		talk := func(to string) result { return w.play(t, step{Dial: "tcp " + to}, step{Send: send}, step{Read: 3}) }
		if r := talk("192.0.2.7:443"); !bytes.HasPrefix(r.Read, []byte{recordHandshake, 3}) || len(asked) != 1 || asked[0] != "evil.example" {
			t.Errorf("%s: this server does not take it: %q, %s", why, r.Read, r.Err)
		}
		for _, to := range []string{"site.example:443", "site.example:5443"} {
			w.forgetEvents()
			if r := talk(to); len(r.Read) > 0 || !strings.Contains(r.Err, "reset") {
				t.Errorf("%s, %s: %q, %q was read", to, why, r.Err, r.Read)
			}
			why, _, _ := strings.Cut(why, ":")
			w.refused(t, network.TCP, "site.example", why+", for the server name evil.example")
		}
		mu.Lock()
		if len(asked) != 1 {
			t.Errorf("%s: servers were asked for %q", why, asked)
		}
		mu.Unlock()
	}
}

// TestNoServerOfPythonSeesAnotherHost, which splits a request line at any white space, and takes any bytes as
// the method.
func TestNoServerOfPythonSeesAnotherHost(t *testing.T) {
	treetest.NeedProgram(t, "python3")
	const program = `
import http.server
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        b = ("for " + self.headers["Host"]).encode()
        self.send_response(200); self.send_header("Content-Length", len(b)); self.end_headers(); self.wfile.write(b)
    def log_message(self, *a): pass
    def __getattr__(self, name):
        if name.startswith("do_"): return self.do_GET
        raise AttributeError(name)
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H)
print(s.server_address[1], flush=True)
s.serve_forever()
`
	c := exec.CommandContext(t.Context(), "python3", "-c", program)
	out, err := c.StdoutPipe()
	if err = errors.Join(err, c.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, "site.example,192.0.2.7")
	w.name("site.example", "203.0.113.10")
	for _, at := range []string{"203.0.113.10:80", "203.0.113.10:5080", "192.0.2.7:80"} {
		w.place(at, "127.0.0.1:"+strings.TrimSpace(port))
	}
	for _, blank := range []string{"\x0b", "\x0c", "\x1c", "\x85", "\xa0"} {
		send := []byte("GET" + blank + "/" + blank + "HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
		talk := func(to string) result { return w.play(t, step{Dial: "tcp " + to}, step{Send: send}, step{Read: -1}) }
		if r := talk("192.0.2.7:80"); !strings.HasSuffix(string(r.Read), "for evil.example") {
			t.Errorf("%q: this server does not take it: %q, %s", blank, r.Read, r.Err)
		}
		for _, to := range []string{"site.example:80", "site.example:5080"} {
			w.forgetEvents()
			if r := talk(to); len(r.Read) > 0 || !strings.Contains(r.Err, "reset") {
				t.Errorf("%s, %q: %q, %q was read", to, blank, r.Err, r.Read)
			}
			w.refused(t, network.TCP, "site.example", "the request line, for the Host evil.example")
		}
	}
	for _, method := range []string{"(GET", "G{T", "\x01GET", "\x00\x00\x00\x00GET", "GET\x7f", "\xffGET", "\xef\xbb\xbfGET"} {
		line, rest := method+" / HTTP/1.1  \r\n", "Host: evil.example\r\nConnection: close\r\n\r\n"
		talk := func(to string) result {
			return w.play(t, step{Dial: "tcp " + to}, step{Send: []byte(line + rest)}, step{Read: -1})
		}
		if r := talk("192.0.2.7:80"); !strings.HasSuffix(string(r.Read), "for evil.example") {
			t.Errorf("%q: this server does not take it: %q, %s", method, r.Read, r.Err)
		}
		for to, why := range map[string]string{"site.example:80": otherWhy, "site.example:5080": "the request line, for the Host evil.example"} {
			w.forgetEvents()
			if r := talk(to); len(r.Read) > 0 || !strings.Contains(r.Err, "reset") {
				t.Errorf("%s, %q: %q, %q was read", to, method, r.Err, r.Read)
			}
			w.refused(t, network.TCP, "site.example", why)
		}
	}
}

// TestOtherProtocolsReachTheirServers: where the client speaks first, where the server does, and where the rule
// has +tcp.
func TestOtherProtocolsReachTheirServers(t *testing.T) {
	w := newWorld(t, "site.example,any.example+tcp")
	w.name("site.example", "203.0.113.10")
	w.name("any.example", "203.0.113.10")
	greeting := func(conn net.Conn) {
		_, _ = conn.Write([]byte("220 hi\r\n"))
		echo(conn)
	}
	for _, at := range []string{"203.0.113.10:22", "203.0.113.10:443", "203.0.113.10:5432", "203.0.113.10:6379", "203.0.113.10:9418", "203.0.113.10:50051"} {
		w.serve(t, at, echo)
	}
	w.serve(t, "203.0.113.10:25", greeting)
	w.serve(t, "203.0.113.10:3306", greeting)
	const http2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	for _, c := range []struct{ to, send, why string }{
		{"site.example:22", "SSH-2.0-OpenSSH_9.2\r\n", ""},
		{"site.example:443", "SSH-2.0-OpenSSH_9.2\r\n", ""},
		{"site.example:5432", "\x00\x00\x00\x08\x04\xd2\x16\x2f", ""},
		{"site.example:6379", "*1\r\n$4\r\nPING\r\n", ""},
		{"site.example:9418", "003egit-upload-pack /project.git\x00host=site.example\x00", ""},
		{"site.example:443", "*1\r\n$4\r\nPING\r\n", "neither TLS nor HTTP"},
		{"any.example:443", "*1\r\n$4\r\nPING\r\n", ""},
		{"site.example:50051", http2, "HTTP/2 without TLS"},
		{"any.example:50051", http2, ""},
	} {
		w.forgetEvents()
		r := w.play(t, step{Dial: "tcp " + c.to}, step{Send: []byte(c.send)}, step{Read: len(c.send)})
		if c.why == "" && string(r.Read) != c.send {
			t.Errorf("%s, %.20q: %q, %s", c.to, c.send, r.Read, r.Err)
		}
		if c.why != "" {
			w.refused(t, network.TCP, "site.example", c.why)
		}
	}
	for _, c := range [][2]string{{"site.example:25", "EHLO me\r\n"}, {"site.example:3306", "\x16\x01\x00\x01\x85\xa6"}} {
		if r := w.play(t, step{Dial: "tcp " + c[0]}, step{Read: 8}, step{Send: []byte(c[1])}, step{Read: len(c[1])}); string(r.Read) != "220 hi\r\n"+c[1] {
			t.Errorf("%s: %q, %s", c[0], r.Read, r.Err)
		}
	}
}

// TestQUICOfAnyVersionIsRecognised on any port: a version that servers have by its number, others by the answer.
func TestQUICOfAnyVersionIsRecognised(t *testing.T) {
	first := func(version string) []byte {
		return append([]byte("\xc3"+version+"\x08serverid\x08clientid"), make([]byte, 1200)...)
	}
	for version, known := range map[string]bool{
		"\x00\x00\x00\x01": true, "\x6b\x33\x43\xcf": true, "\xff\x00\x00\x1d": true, "Q050": true, "\xfa\xce\xb0\x02": true,
		"\x51\x47\x4f\xff": false, "\x0a\x1a\x2a\x3a": false,
	} {
		if isQUIC(first(version)) != known {
			t.Errorf("%x: not %v", version, known)
		}
		var w quicWatch
		if w.inward([]byte("\xc3" + version + "\x00\x00")) {
			t.Errorf("%x: an answer to nothing", version)
		}
		w.outward(first(version))
		if !w.inward([]byte("\xe3" + version + "\x08clientid\x08serverid")) {
			t.Errorf("%x: the answer is not seen", version)
		}
		if w.inward([]byte("\xe3"+version+"\x08otherone\x08serverid")) || w.inward([]byte("\xe3xxxx\x08clientid\x08serverid")) || w.inward([]byte("\x43"+version+"\x08clientid")) {
			t.Errorf("%x: something else is taken for the answer", version)
		}
	}
}
