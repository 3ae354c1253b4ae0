//go:build linux

package edge

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"testing"
)

// hear feeds an inspector of "site.example" in pieces, and returns the bytes that passed and why the rest did
// not. After each piece it gives a server's reply if the inspector waits for one.
func hear(j *inspector, text []byte, piece int, answer string) (passed []byte, why string) {
	for len(text) > 0 {
		n := min(piece, len(text))
		p := text[:n]
		for {
			pass, why := j.feed(p)
			if passed = append(passed, pass...); why != "" {
				return passed, why
			}
			if !j.waits() {
				break
			}
			for i := range len(answer) {
				j.answered([]byte(answer[i : i+1]))
			}
			if answer == "" {
				j.answerEnds()
			}
			j.http.answered(j, <-j.status)
			p = nil
		}
		text = text[n:]
	}
	return passed, ""
}

// clientHello returns the first record of Go's TLS client.
func clientHello(t testing.TB, name string) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		_ = tls.Client(theirs, &tls.Config{ServerName: name, InsecureSkipVerify: name == ""}).Handshake()
		_ = theirs.Close()
	}()
	b := make([]byte, 1<<15)
	n, err := ours.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// withExtension adds an extension to a ClientHello in one record.
func withExtension(hello []byte, kind uint16, body []byte) []byte {
	b := bytes.Clone(hello)
	add := 4 + len(body)
	grow := func(at, size int) {
		n := 0
		for _, c := range b[at : at+size] {
			n = n<<8 | int(c)
		}
		n += add
		for i := size - 1; i >= 0; i, n = i-1, n>>8 {
			b[at+i] = byte(n)
		}
	}
	grow(3, 2)
	grow(6, 3)
	at := 5 + 4 + 34
	at += 1 + int(b[at])
	at += 2 + int(binary.BigEndian.Uint16(b[at:]))
	at += 1 + int(b[at])
	grow(at, 2)
	b = binary.BigEndian.AppendUint16(b, kind)
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	return append(b, body...)
}

// inRecords splits a ClientHello over records of that many bytes.
func inRecords(hello []byte, size int) []byte {
	var b []byte
	for text := hello[5:]; len(text) > 0; {
		n := min(size, len(text))
		b = append(b, 22, 3, 1, byte(n>>8), byte(n))
		b = append(b, text[:n]...)
		text = text[n:]
	}
	return b
}

// withVersion returns records with another version in the first.
func withVersion(records []byte, major, minor byte) []byte {
	b := bytes.Clone(records)
	b[1], b[2] = major, minor
	return b
}

func record(kind byte, body string) []byte {
	return append([]byte{kind, 3, 3, byte(len(body) >> 8), byte(len(body))}, body...)
}

// TestServerNameMustMatch however a ClientHello is split; no byte of a wrong one passes.
func TestServerNameMustMatch(t *testing.T) {
	good, evil, none := clientHello(t, "site.example"), clientHello(t, "evil.example"), clientHello(t, "")
	data := record(23, strings.Repeat("x", 300))
	cat := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for _, c := range []struct {
		what string
		text []byte
		why  string
	}{
		{"the name", cat(good, data), ""},
		{"records of TLS 1.0's version", cat(withVersion(good, 3, 1), data), ""},
		{"records of TLS 1.1's version", cat(withVersion(good, 3, 2), data), ""},
		{"records of SSL 3's version", withVersion(evil, 3, 0), "version 3.0"},
		{"records of a later version", withVersion(evil, 3, 4), "version 3.4"},
		{"records of version 2.1", withVersion(evil, 2, 1), "version 2.1"},
		{"records of version 4.1", withVersion(evil, 4, 1), "version 4.1"},
		{"records of no version", withVersion(evil, 0, 0), "version 0.0"},
		{"a later record of another version", cat(inRecords(evil, 100)[:105], withVersion(inRecords(evil, 100)[105:], 2, 1)), "cannot be read"},
		{"a warning first", cat(record(21, "\x01\x5a"), evil), "does not begin with a ClientHello"},
		{"a change of ciphers first", cat(record(20, "\x01"), evil), "does not begin with a ClientHello"},
		{"data first", cat(data, evil), "does not begin with a ClientHello"},
		{"a heartbeat first", cat(record(24, "\x01"), evil), "does not begin with a ClientHello"},
		{"the name in upper case", cat(clientHello(t, "SITE.example"), data), ""},
		{"records of 1 byte", cat(inRecords(good, 1), data), ""},
		{"records of 7 bytes", cat(inRecords(good, 7), data), ""},
		{"another name", evil, "the server name is evil.example, not site.example"},
		{"another name in records of 1 byte", inRecords(evil, 1), "evil.example"},
		{"a name beneath it", clientHello(t, "www.site.example"), "www.site.example"},
		{"no name", none, "no server name"},
		{"encrypted hello", withExtension(good, 0xfe0d, []byte{0, 0, 1, 0, 1, 7, 0, 0, 0, 0}), "an encrypted client hello"},
		{"the draft of it", withExtension(good, 0xffce, nil), "an encrypted server name"},
		{"two names", withExtension(good, 0, append([]byte{0, 15, 0, 0, 12}, "evil.example"...)), "two server names"},
		{"a list of two names", withExtension(none, 0, []byte("\x00\x1e\x00\x00\x0csite.example\x00\x00\x0cevil.example")), "cannot be read"},
		{"a name of no bytes", withExtension(none, 0, []byte{0, 3, 0, 0, 0}), "cannot be read"},
		{"another extension", cat(withExtension(good, 0x5555, []byte("hello")), data), ""},
		{"a second hello", cat(good, record(20, "\x01"), good, data), ""},
		{"a second hello with another name", cat(good, record(20, "\x01"), evil), "evil.example"},
		{"a second hello with another name and more behind it", cat(good, record(20, "\x01"), inRecords(append(bytes.Clone(evil), good[5:]...), 1<<14)), "more behind it"},
		{"a second hello after early data", cat(withExtension(good, 42, nil), data, data, evil), "evil.example"},
		{"what TLS 1.2 says next", cat(good, record(22, "\x10\x00\x00\x02ab"), record(20, "\x01"), record(22, strings.Repeat("\xff", 40)), data), ""},
		{"more behind the hello", inRecords(append(bytes.Clone(good), evil[5:]...), 1<<14), "more behind it"},
		{"no hello", record(22, "\x02\x00\x00\x00"), "does not begin with"},
		{"a hello without end", record(22, "\x01\xff\xff\xff"), "longer than is read"},
		{"an empty record", record(22, ""), "cannot be read"},
		{"a hello cut short", record(22, "\x01\x00\x00\x05\x03\x03abc"), "cannot be read"},
		{"what TLS is not", []byte("\x16\x00abc"), "version 0.97"},
		{"SSL 2's", []byte("\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10"), "as SSL 2 did"},
	} {
		for _, piece := range []int{1, 3, 11, 1 << 16} {
			passed, why := hear(newInspector("site.example", false), c.text, piece, "")
			if c.why == "" && (why != "" || !bytes.Equal(passed, c.text)) {
				t.Errorf("%s, in pieces of %d: %d of %d bytes pass, %q", c.what, piece, len(passed), len(c.text), why)
			}
			if c.why != "" && !strings.Contains(why, c.why) {
				t.Errorf("%s, in pieces of %d: %q, not %q", c.what, piece, why, c.why)
			}
			if c.why != "" && bytes.Contains(passed, []byte("evil")) {
				t.Errorf("%s, in pieces of %d: passes before it is judged", c.what, piece)
			}
		}
	}
	if passed, why := hear(newInspector("site.example", true), none, 9, ""); why != "" || !bytes.Equal(passed, none) {
		t.Error("no name, where that is allowed:", why)
	}
	if _, why := hear(newInspector("site.example", true), evil, 9, ""); why == "" {
		t.Error("another name passes where none is allowed")
	}
	if passed, why := hear(newInspector("", false), evil, 9, ""); why != "" || !bytes.Equal(passed, evil) {
		t.Error("what was allowed by its address is read:", why)
	}
}

// TestHostMustMatchInEveryRequest on a connection, in any pieces.
func TestHostMustMatchInEveryRequest(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: site.example\r\n\r\n"
	const evil = "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"
	post := func(head, body string) string {
		return "POST /x HTTP/1.1\r\nHost: site.example\r\n" + head + "\r\n\r\n" + body
	}
	for _, c := range []struct{ text, why string }{
		{get, ""},
		{get + get + get, ""},
		{"\r\n" + get + "\r\n" + get, ""},
		{"GET / HTTP/1.0\r\nhost:  SITE.example.\t\r\nX: y\r\n\r\n", ""},
		{"GET http://site.example:80/x HTTP/1.1\r\nHost: site.example:80\r\n\r\n", ""},
		{"OPTIONS * HTTP/1.1\r\nHost: site.example\r\n\r\n", ""},
		{post("Content-Length: 5", "hello") + get, ""},
		{post("Content-Length: 0", "") + get, ""},
		{post("Transfer-Encoding: chunked", "5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n") + get, ""},
		{post("Transfer-Encoding: chunked", "0\r\nTrailer: x\r\n\r\n") + get, ""},
		{post("Content-Length: 70000", strings.Repeat(evil[:20], 3500)) + get, ""},
		{evil, "the Host is evil.example, not site.example"},
		{get + evil, "evil.example"},
		{get + get + evil, "evil.example"},
		{"\r\n\r\n" + evil, "evil.example"},
		{post("Content-Length: 5", "hello") + evil, "evil.example"},
		{post("Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\n\r\n") + evil, "evil.example"},
		{"GET http://evil.example/ HTTP/1.1\r\nHost: site.example\r\n\r\n", "the request's target is evil.example"},
		{"GET http://site.example@evil.example/ HTTP/1.1\r\nHost: site.example\r\n\r\n", "target is"},
		{"GET http://evil.example\\@site.example/ HTTP/1.1\r\nHost: site.example\r\n\r\n", "target is"},
		{"GET http:///x HTTP/1.1\r\nHost: site.example\r\n\r\n", "target without a name"},
		{"GET evil.example HTTP/1.1\r\nHost: site.example\r\n\r\n", "the target"},
		{"CONNECT evil.example:443 HTTP/1.1\r\nHost: site.example\r\n\r\n", "target is evil.example"},
		{"GET / HTTP/1.1\r\nHost: site.example\r\nHost: evil.example\r\n\r\n", "not one Host"},
		{"GET / HTTP/1.1\r\nHost: site.example, evil.example\r\n\r\n", "the Host is"},
		{"GET / HTTP/1.1\r\nHost: evil.example:site.example\r\n\r\n", "the Host is"},
		{"GET / HTTP/1.1\r\nHost: site.example:80@evil\r\n\r\n", "the Host is"},
		{"GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n", "the Host is"},
		{"GET / HTTP/1.1\r\nHost:\r\n\r\n", "the Host is"},
		{"GET / HTTP/1.1\r\nX: y\r\n\r\n", "not one Host"},
		{"GET / HTTP/1.0\r\n\r\n", "not one Host"},
		{"GET /\r\n\r\n", "cannot be read"},
		{"GET http://evil.example/\r\n\r\n", "cannot be read"},
		{"get \thttps://evil.example/\r\n\r\n", "cannot be read"},
		{"GET  / HTTP/1.1\r\nHost: site.example\r\n\r\n", "the request line"},
		{"GET\t/ HTTP/1.1\r\nHost: site.example\r\n\r\n", "the request line"},
		{" GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "the request line"},
		{"get / http/1.1\r\nHost: site.example\r\n\r\n", "the request line"},
		{"GET\x0b/\x0bHTTP/1.1\r\nHost: evil.example\r\n\r\n", "the request line"},
		{"GET\x0c/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", "the request line"},
		{"GET\x1c/\x1fHTTP/1.1\r\nHost: evil.example\r\n\r\n", "the request line"},
		{"GET\x85/\x85HTTP/1.1\r\nHost: evil.example\r\n\r\n", "the request line"},
		{"GET\xa0/\xa0HTTP/1.1\r\nHost: evil.example\r\n\r\n", "the request line"},
		{"\xa0\x0cGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "the request line"},
		{"GET\x0c/\r\n\r\n", "the request line"},
		{"GET / HTTP/1.1\nHost: evil.example\n\n", "CR LF"},
		{"GET / HTTP/1.1\r\nHost: site.example\nHost: evil.example\r\n\r\n", "CR LF"},
		{"GET / HTTP/1.1\r\nHost : evil.example\r\nHost: site.example\r\n\r\n", "a line of the head"},
		{"GET / HTTP/1.1\r\n Host: evil.example\r\nHost: site.example\r\n\r\n", "a line of the head"},
		{"GET / HTTP/1.1\r\nX: y\r\n z\r\nHost: site.example\r\n\r\n", "a line of the head"},
		{"GET / HTTP/1.1\r\nX: a\rHost: evil.example\r\nHost: site.example\r\n\r\n", "a line of the head"},
		{"GET / HTTP/1.1\r\nX: \x00\r\nHost: site.example\r\n\r\n", "a line of the head"},
		{post("Content-Length: 5\r\nContent-Length: 5", "hello"), "two lengths"},
		{post("Content-Length: 5\r\nTransfer-Encoding: chunked", "0\r\n\r\n"), "two lengths"},
		{post("Content-Length: +5", "hello"), "the length"},
		{post("Content-Length: 5, 5", "hello"), "the length"},
		{post("Content-Length:", ""), "the length"},
		{post("Content-Length: -1", ""), "the length"},
		{post("Transfer-Encoding: gzip, chunked", "0\r\n\r\n"), "encoded"},
		{post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "0\r\n\r\n"), "encoded"},
		{"POST / HTTP/1.0\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "two lengths"},
		{post("Transfer-Encoding: chunked", "5\nhello\r\n0\r\n\r\n"), "a chunk"},
		{post("Transfer-Encoding: chunked", "0x5\r\nhello\r\n0\r\n\r\n"), "a chunk"},
		{post("Transfer-Encoding: chunked", "+5\r\nhello\r\n0\r\n\r\n"), "a chunk"},
		{post("Transfer-Encoding: chunked", "5\r\nhelloX\r\n0\r\n\r\n"), "a chunk"},
		{post("Transfer-Encoding: chunked", "\r\nhello\r\n0\r\n\r\n"), "a chunk"},
		{post("Transfer-Encoding: chunked", strings.Repeat("0", 5000)), "a chunk"},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2 without TLS"},
		{"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" + evil, "PROXY"},
		{post("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk", ""), "HTTP/2 without TLS"},
		{"GET /" + strings.Repeat("x", 70000), "without an end"},
		{"GET / HTTP/1.1\r\n" + strings.Repeat("X: y\r\n", 12000), "longer than is read"},
	} {
		for _, piece := range []int{1, 2, 7, 64, 1 << 16, 1 << 18} {
			passed, why := hear(newInspector("site.example", false), []byte(c.text), piece, "")
			if c.why == "" && (why != "" || string(passed) != c.text) {
				t.Errorf("%.80q in pieces of %d: %d of %d bytes pass, %q", c.text, piece, len(passed), len(c.text), why)
			}
			if c.why != "" && !strings.Contains(why, c.why) {
				t.Errorf("%.80q in pieces of %d: %q, not %q", c.text, piece, why, c.why)
			}
			if c.why != "" && bytes.Contains(passed, []byte("evil")) {
				t.Errorf("%.80q in pieces of %d: passes before it is judged", c.text, piece)
			}
		}
	}
}

// TestOtherProtocolsPass from the first byte.
func TestOtherProtocolsPass(t *testing.T) {
	for _, text := range []string{
		"\x00\x00\x00\x08\x04\xd2\x16\x2f", // PostgreSQL asks for TLS
		"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\nGET",
		"EHLO me\r\nMAIL FROM:<a@b.example>\r\n",
		"get key\r\n",
		"*1\r\n$4\r\nPING\r\n",
		"\x16\x10abc",
		"AMQP\x00\x00\x09\x01",
		"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02me", // MQTT
		"\x80\x01\x02\x03more",
		"{\"a\": \"HTTP/1.1\"}\n",
		strings.Repeat("\xff", 1<<18),
	} {
		for _, piece := range []int{1, 1 << 16} {
			if passed, why := hear(newInspector("site.example", false), []byte(text), piece, ""); why != "" || string(passed) != text {
				t.Errorf("%.40q: %d of %d bytes pass, %q", text, len(passed), len(text), why)
			}
		}
	}
}

// TestTLSRecordsPassAfterAGreeting, for a login to MySQL may begin as a record of TLS does.
func TestTLSRecordsPassAfterAGreeting(t *testing.T) {
	const login = "\x16\x01\x00\x01\x85\xa6\xff\x01"
	j := newInspector("site.example", false)
	j.answered([]byte("J\x00\x00\x00\x0a8.0.36"))
	if passed, why := hear(j, []byte(login), 1, ""); why != "" || string(passed) != login {
		t.Errorf("%d of %d bytes pass, %q", len(passed), len(login), why)
	}
}

// TestOnlyTheWebPassesOnItsPorts, and nothing before it is known to be that.
func TestOnlyTheWebPassesOnItsPorts(t *testing.T) {
	evil := clientHello(t, "evil.example")
	for _, c := range []struct{ text, why string }{
		{string(clientHello(t, "site.example")), ""},
		{"GET / HTTP/1.1\r\nHost: site.example\r\n\r\n", ""},
		{"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n\x00\x00", ""},
		{"SSH-2.0- / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "the Host is evil.example"},
		{"GET\x0c/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", "the request line, for the Host evil.example"},
		{"*1\r\n$4\r\nPING\r\n", "neither TLS nor HTTP"},
		{"EHLO me\r\n", "neither TLS nor HTTP"},
		{"\x00\x00\x00\x08\x04\xd2\x16\x2f", "neither TLS nor HTTP"},
		{"\x80\x01\x02\x03", "neither TLS nor HTTP"},
		{"\x16\x10abc", "neither TLS nor HTTP"},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2 without TLS; a rule with +tcp"},
		{string(withVersion(evil, 2, 1)), "a TLS record of version 2.1, for the server name evil.example"},
		{string(record(21, "\x01\x5a")) + string(evil), "does not begin with a ClientHello, for the server name evil.example"},
	} {
		for _, piece := range []int{1, 1 << 16} {
			j := newInspector("site.example", false)
			j.web = true
			passed, why := hear(j, []byte(c.text), piece, "")
			want := c.why
			if piece == 1 {
				want, _, _ = strings.Cut(want, ", for") // the name comes later
			}
			if c.why == "" && (why != "" || string(passed) != c.text) || c.why != "" && (len(passed) > 0 || !strings.Contains(why, want)) {
				t.Errorf("%.40q in pieces of %d: %d bytes pass, %q, not %q", c.text, piece, len(passed), why, c.why)
			}
		}
	}
	j := newInspector("site.example", false)
	j.web = true
	if pass, _ := j.feed([]byte("GET / ")); len(pass) > 0 || j.undecided() || j.release() != nil {
		t.Error("a line passes before its end")
	}
}

// TestPartialLineIsReleased after a while, and still inspected with the rest.
func TestPartialLineIsReleased(t *testing.T) {
	j := newInspector("site.example", false)
	for _, part := range []string{"GE", "T / HT"} {
		if pass, why := j.feed([]byte(part)); len(pass) > 0 || why != "" || !j.undecided() {
			t.Fatalf("%q passes, %s", pass, why)
		}
		if pass := j.release(); string(pass) != part || j.undecided() {
			t.Fatalf("%q is released", pass)
		}
	}
	if pass, why := j.feed([]byte("TP/1.1\r\nHost: ")); len(pass) > 0 || why != "" || j.undecided() || j.release() != nil {
		t.Fatalf("%q passes, %s", pass, why)
	}
	if pass, why := j.feed([]byte("site.example\r\n\r\nGET")); string(pass) != "TP/1.1\r\nHost: site.example\r\n\r\n" || why != "" {
		t.Fatalf("%q passes, %s", pass, why)
	}
	if _, why := j.feed([]byte(" / HTTP/1.1\r\nHost: evil.example\r\n\r\n")); !strings.Contains(why, "evil.example") {
		t.Fatal(why)
	}
	if pass, why := j.feed([]byte("more")); pass != nil || why == "" {
		t.Error("a judge forgets")
	}
}

// TestUpgradeNeedsTheServersConsent: only then does the rest pass uninspected.
func TestUpgradeNeedsTheServersConsent(t *testing.T) {
	const ask = "GET /ws HTTP/1.1\r\nHost: site.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	const connect = "CONNECT site.example:443 HTTP/1.1\r\nHost: site.example:443\r\n\r\n"
	const evil = "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"
	const yes, no = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	for _, c := range []struct{ text, answer, why string }{
		{ask + evil, yes, ""},
		{ask + evil, "HTTP/1.1 103 Early Hints\r\n\r\n" + yes, ""},
		{ask + evil, no, "evil.example"},
		{ask + evil, "HTTP/1.1 100 Continue\r\n\r\n" + no, "evil.example"},
		{ask + evil, "nonsense\r\n\r\n", "evil.example"},
		{ask + evil, "", "evil.example"},
		{evil[:16] + "Host: site.example\r\n\r\n" + ask, yes, "not the first"},
		{strings.Replace(ask, "Upgrade: w", "Content-Length: 3\r\nUpgrade: w", 1) + "abc", yes, "has a body"},
		{connect + "\x00anything", no, ""},
		{connect + evil, no, "evil.example"},
		{connect + string(clientHello(t, "evil.example")), no, "evil.example"},
		{connect + evil, "HTTP/1.1 403 Forbidden\r\n\r\n", "evil.example"},
	} {
		for _, piece := range []int{1, 1 << 16} {
			passed, why := hear(newInspector("site.example", false), []byte(c.text), piece, c.answer)
			if c.why == "" && (why != "" || string(passed) != c.text) || c.why != "" && !strings.Contains(why, c.why) {
				t.Errorf("%.60q, answered with %.20q, in pieces of %d: %q, not %q; %d bytes pass", c.text, c.answer, piece, why, c.why, len(passed))
			}
		}
	}
}

// FuzzPiecesDoNotMatter: the decision and the bytes that pass do not depend on how the data is split.
func FuzzPiecesDoNotMatter(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: site.example\r\n\r\n"), 3)
	f.Add([]byte("POST / HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET"), 1)
	f.Add(clientHello(f, "site.example"), 5)
	f.Add([]byte("\x80\x2e\x01\x03\x01"), 2)
	f.Fuzz(func(t *testing.T, text []byte, piece int) {
		if piece < 1 {
			return
		}
		whole, why := hear(newInspector("site.example", false), text, len(text)+1, "")
		cut, whyCut := hear(newInspector("site.example", false), text, piece, "")
		if (why == "") != (whyCut == "") {
			t.Fatalf("%q: whole %q, in pieces of %d %q", text, why, piece, whyCut)
		}
		if !bytes.HasPrefix(text, whole) || !bytes.HasPrefix(text, cut) || why == "" && !bytes.Equal(whole, cut) {
			t.Fatalf("%q: %q passes whole, %q in pieces of %d", text, whole, cut, piece)
		}
	})
}

// TestReasonsAreOneShortLine even for hostile names.
func TestReasonsAreOneShortLine(t *testing.T) {
	_, why := hear(newInspector("site.example", false), fmt.Appendf(nil, "GET / HTTP/1.1\r\nHost: %s\u202e\xff\r\n\r\n", strings.Repeat("x", 500)), 1<<16, "")
	if len(why) > 200 || strings.ContainsFunc(strings.ReplaceAll(why, "…", ""), func(r rune) bool { return r < ' ' || r > '~' }) {
		t.Errorf("%q", why)
	}
}

// TestForeignFirstLines: what is no HTTP passes as it comes, in pieces of any size, unless its first line ends
// as that of an HTTP request does.
func TestForeignFirstLines(t *testing.T) {
	long := strings.Repeat("{", maxHeld)
	for text, refused := range map[string]bool{
		"(GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n":             true,
		"\x00\x00( / http/1.1\r\n":                                  true,
		"(GET /" + strings.Repeat("/", 9999) + " HTTP/1\n":          true,
		"( / HTTP/0000000001.1" + strings.Repeat(" ", 999) + "\r\n": true,
		"\r\n( / HTTP/2.0\n":                                        true,
		"{\"line\": \"GET / HTTP/1.1\"}\n":                          false,
		"( / HTTP/\r\n":                                             false,
		"( / HTTP/1.1 x\r\n":                                        false,
		"( / XHTTP1.1\r\n":                                          false,
		"HTTP/1.1 200 OK\r\n":                                       false,
		"{}\n( / HTTP/1.1\r\n":                                      false,
		long + " / HTTP/1.1\n":                                      false, // no server reads such a line
	} {
		for _, piece := range []int{1, 7, len(text)} {
			if len(text) > maxHeld && piece == 1 {
				continue
			}
			passed, why := hear(newInspector("site.example", false), []byte(text), piece, "")
			if strings.Contains(why, "the request line") != refused || !refused && string(passed) != text {
				t.Errorf("%.40q in pieces of %d: %q, %d of %d bytes passed", text, piece, why, len(passed), len(text))
			}
			if i := strings.IndexByte(text, '\n'); refused && piece == 1 && len(strings.TrimSpace(text[:i])) > 0 && len(passed) != i {
				t.Errorf("%.40q: %d bytes passed, and the line has %d", text, len(passed), i)
			}
		}
	}
}
