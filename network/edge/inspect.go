//go:build linux

package edge

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/snapfs/snapfs/network"
)

// maxHeld is how many bytes of a connection wait in the proxy at most until they can be inspected: a first
// line, an HTTP head, or a ClientHello. A connection with a longer one is refused.
const maxHeld = 64 << 10

// maxBlank is how many bytes of empty lines the proxy accepts before the first line of a sandbox's HTTP
// request. After more the connection is refused.
const maxBlank = 1 << 10

// An inspector reads the bytes that a process in the sandbox sends to a named server, and releases those that
// are for that name. It knows TLS and HTTP/1 on any port; other protocols pass, except on the ports of the
// web. Bytes that a server could take for TLS or HTTP must be exactly that, as readers differ. One goroutine
// uses it, except for answered.
type inspector struct {
	name  string // the name that the client must ask for; empty lets everything pass
	noSNI bool   // a client may omit the server name
	web   bool   // only TLS, HTTP and SSH pass
	// echRefusal returns why an encrypted ClientHello is refused, or ""; a nil function
	// refuses all.
	echRefusal func() string
	timed      bool // the reader has a deadline, see wait
	state      func(*inspector) (more bool)
	why        string // the reason of a refusal
	buf        []byte // bytes that had not passed at the last feed
	ok         int    // how many of them may pass
	passed     int    // how many have passed already, see release
	searched   int    // how many sniffLine has searched

	first firstLine

	tls  helloReader
	http requestReader

	greeted   atomic.Bool // the server has sent bytes
	listening atomic.Bool // for the server's reply to an upgrade
	mu        sync.Mutex  // guards answer
	answer    []byte
	status    chan int
}

func newInspector(name string, noSNI bool) *inspector {
	j := &inspector{name: name, noSNI: noSNI, state: sniff, status: make(chan int, 1)}
	if name == "" {
		j.state = opaque
	}
	return j
}

// feed inspects p, the next bytes of the client in the sandbox. It returns the bytes that may be sent to the
// server now, valid until the next call, or the reason why the connection must end.
func (j *inspector) feed(p []byte) (pass []byte, why string) {
	if j.why != "" {
		return nil, j.why
	}
	j.buf = append(j.buf[:0], j.buf[j.ok:]...)
	j.passed = max(0, j.passed-j.ok)
	j.ok = 0
	if j.end() {
		return p, "" // no bytes wait and none will: no copy
	}
	j.buf = append(j.buf, p...)
	for j.state(j) {
		if j.why != "" {
			return nil, j.why
		}
	}
	if j.why != "" {
		return nil, j.why
	}
	if j.passed >= j.ok {
		return nil, ""
	}
	pass = j.buf[j.passed:j.ok]
	j.passed = j.ok
	return pass, ""
}

// end reports whether all further bytes of the sandbox's connection may pass to the server unchecked.
func (j *inspector) end() bool { return j.http.phase == phaseOpaque && len(j.buf) == 0 }

func (j *inspector) refuse(why string) bool {
	j.why = why
	return false
}

// rest returns the bytes of the sandbox's client that the inspector still holds back from the server, and
// that it checks next.
func (j *inspector) rest() []byte { return j.buf[j.ok:] }

// opaque is a state of an inspector, which checks the bytes that the sandbox sends on one connection: all
// bytes pass unchecked. It returns false, since nothing remains to be checked.
func opaque(j *inspector) bool {
	j.http.phase = phaseOpaque
	j.ok = len(j.buf)
	return false
}

// undecided reports whether the client's first bytes may yet become an HTTP request, while the client may
// already wait for a reply. On a port of the web it returns false: there no byte passes before the end of the
// first line.
func (j *inspector) undecided() bool {
	return j.http.phase == phaseSniff && !j.web && len(j.buf)-max(j.ok, j.passed) > 0
}

// release returns those of the client's first bytes that may pass to the server, although it is not known yet
// whether they begin an HTTP request. No server acts on a part of a request, and later bytes are inspected
// together with them.
func (j *inspector) release() []byte {
	if !j.undecided() {
		return nil
	}
	pass := j.buf[max(j.ok, j.passed):]
	j.passed = len(j.buf)
	return pass
}

// webPort reports whether clients expect a web server on the port, so that only TLS, HTTP and SSH pass.
func webPort(port uint16) bool { return port == 80 || port == 443 || port == 8080 || port == 8443 }

// sniff is the first state of an inspector, which checks the bytes that the sandbox sends on one connection.
// It detects the protocol by the first bytes, and returns true if the next state can go on with them, false
// if it needs more bytes or refuses the connection.
func sniff(j *inspector) bool {
	b := j.rest()
	switch {
	case len(b) == 0:
		return false
	case b[0] >= recordCipher && b[0] <= recordHeartbeat && (j.web || !j.greeted.Load()):
		return sniffRecord(j, b)
	case b[0]&0x80 != 0: // perhaps an SSL 2 hello: length, 1, version 3
		if len(b) < 4 && (len(b) < 3 || b[2] == 1) {
			return false
		}
		if b[2] == 1 && b[3] == 3 {
			return j.refuse("a TLS client that speaks as SSL 2 did, without a server name")
		}
		if !blank(b[0]) {
			return other(j)
		}
	}
	return sniffLine(j, b)
}

// other is the state in which an inspector checks a connection's bytes if the protocol is neither TLS nor
// HTTP: it lets everything pass and returns true, except on a port of the web, where it refuses the
// connection and returns false.
func other(j *inspector) bool {
	if j.web {
		return j.refuse(otherWhy)
	}
	j.state = foreign
	return true
}

// otherWhy is the reason for refusing a connection with another protocol than TLS or HTTP on a port of the
// web.
const otherWhy = "neither TLS nor HTTP, on a port of the web; a rule with +tcp lets it pass"

// sniffLine detects an HTTP request in b, the client's first bytes, by the first line that is not empty. A
// line whose first word is not an HTTP token is no request. The result is false if the inspector needs more
// bytes or refuses the connection.
func sniffLine(j *inspector, b []byte) bool {
	if len(b) > maxBlank && len(b) <= maxHeld && len(b) < 2*j.searched && bytes.IndexByte(b[j.searched:], '\n') < 0 {
		return false // avoids quadratic time for single bytes
	}
	j.searched = len(b)
	line := trimBlanks(b)
	if len(b)-len(line) > maxBlank {
		return j.refuse("too many blanks before the first line")
	}
	whole := bytes.IndexByte(line, '\n')
	if whole >= 0 {
		line = line[:whole+1]
	}
	word := line
	if i := slices.IndexFunc(line, blank); i >= 0 {
		word = line[:i]
	}
	if !isToken(word) {
		return other(j)
	}
	if whole < 0 {
		if len(b) > maxHeld {
			return j.refuse("a first line without an end")
		}
		return false
	}
	switch {
	case bytes.HasPrefix(line, []byte("PRI * HTTP/2")):
		return j.refuse("HTTP/2 without TLS; a rule with +tcp lets it pass")
	case bytes.HasPrefix(line, []byte("PROXY ")):
		return j.refuse("a line of the PROXY protocol")
	case bytes.Contains(bytes.ToUpper(line), []byte("HTTP/")), oldest(word, line):
		j.http.phase = phaseHead
		j.state = head
		return true
	case bytes.HasPrefix(line, []byte("SSH-2.0-")):
		j.state = opaque
		return true
	}
	return other(j)
}

// foreign is the state of an inspector for the first line of another protocol than TLS and HTTP. Its bytes
// pass as they come, but a line that ends like a request line of HTTP ends the connection: some servers, such
// as Python's, accept any bytes as the method, and would answer for any Host. It returns true after a
// harmless line.
func foreign(j *inspector) bool {
	switch done, request := j.first.add(j.rest()); {
	case request:
		return j.refuse("HTTP that cannot be read: the request line" + j.askedHost())
	case done:
		j.state = opaque
		return true
	}
	j.ok = len(j.buf)
	return false
}

// A firstLine finds the end of the first line that is not empty in the bytes that a client in the sandbox
// sends, and stores only that end, by which a request line of HTTP is recognised.
type firstLine struct {
	end  []byte // with one blank for several
	seen int
}

// add adds b, the next bytes. done is true when the line is complete, or longer than any server reads; request
// is true if the line is complete and ends with a version of HTTP.
func (l *firstLine) add(b []byte) (done, request bool) {
	const most = 64 // longer than a version
	for _, c := range b {
		l.seen++
		switch {
		case c == '\n' && len(l.end) > 0:
			return true, l.seen <= maxHeld && endsInVersion(l.end)
		case !blank(c):
			l.end = append(l.end, c)
		case len(l.end) > 0 && l.end[len(l.end)-1] != ' ':
			l.end = append(l.end, ' ')
		}
		if len(l.end) > 2*most {
			l.end = append(l.end[:0], l.end[len(l.end)-most:]...)
		}
	}
	return l.seen > maxHeld, false
}

// endsInVersion reports whether line ends with a version of HTTP, such as HTTP/1.1, as some server reads it.
func endsInVersion(line []byte) bool {
	line = bytes.ToUpper(bytes.TrimRight(line, " "))
	digits := func() bool {
		rest := bytes.TrimRight(line, "0123456789")
		some := len(rest) < len(line)
		line = rest
		return some
	}
	if !digits() {
		return false
	}
	line = bytes.TrimSuffix(line, []byte("."))
	digits()
	return bytes.HasSuffix(line, []byte("HTTP/"))
}

// blank reports whether some server splits the request line of HTTP at the byte c. Python's servers do at all
// of these (str.split), while RFC 9112 has the space alone.
func blank(c byte) bool {
	return c == ' ' || c >= '\t' && c <= '\r' || c >= 0x1c && c <= 0x1f || c == 0x85 || c == 0xa0
}

// trimBlanks returns b, a request line of HTTP or its rest, without the blanks at its start (see blank).
func trimBlanks(b []byte) []byte {
	for len(b) > 0 && blank(b[0]) {
		b = b[1:]
	}
	return b
}

// oldest reports whether the first line of a connection, of which word is the first word, is an HTTP/0.9
// request, which some servers still accept.
func oldest(word, line []byte) bool {
	target := trimBlanks(line[len(word):])
	return bytes.EqualFold(word, []byte("GET")) && (bytes.HasPrefix(target, []byte("/")) || bytes.Contains(target, []byte("://")))
}

// isToken reports whether b may be a method or header name of HTTP: every byte may be in a token (RFC 9110,
// 5.6.2). An empty slice may become one.
func isToken(b []byte) bool {
	for _, c := range b {
		if !tokenByte(c) {
			return false
		}
	}
	return true
}

func tokenByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c < 0x80 && bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), c) >= 0
}

// waits reports whether the inspector of a connection needs the server's reply, to an upgrade or CONNECT,
// before it can check further bytes of the client.
func (j *inspector) waits() bool { return j.http.phase == phaseAnswer }

// listen makes the inspector of a connection read the server's next reply. The proxy calls it before it
// passes on a request, such as CONNECT, whose reply decides how later bytes are checked.
func (j *inspector) listen() {
	j.mu.Lock()
	j.answer = nil
	j.mu.Unlock()
	j.listening.Store(true)
}

// answered takes bytes that the server sent: it notes that the server has sent some, and finds the status of
// the reply, to an upgrade or CONNECT, on which the check of later bytes depends.
func (j *inspector) answered(p []byte) {
	j.greeted.Store(true)
	if !j.listening.Load() {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.answer = append(j.answer, p...)
	for {
		code, size := statusOf(j.answer)
		switch {
		case size == 0 && len(j.answer) < maxHeld:
			return
		case size > 0 && code < 200 && code != 101 && code >= 100:
			j.answer = j.answer[size:] // the final reply follows
		default:
			j.setStatus(code)
			return
		}
	}
}

// answerEnds is called when the server has sent all its data. If the check of the client's bytes still waits
// for the status of a reply, the status becomes 0: the server sent none.
func (j *inspector) answerEnds() {
	if j.listening.Load() {
		j.setStatus(0)
	}
}

func (j *inspector) setStatus(code int) {
	j.listening.Store(false)
	select {
	case j.status <- code:
	default:
	}
}

// await waits for the server's reply, to an upgrade or CONNECT, that the inspector needs before it checks
// further bytes. It returns false if ctx ends first.
func (j *inspector) await(ctx context.Context) bool {
	select {
	case code := <-j.status:
		j.http.answered(j, code)
		return true
	case <-ctx.Done():
		return false
	}
}

// mismatch refuses the connection, because the client asked for the server name in the field what (such as
// the Host) and not for j.name. It returns false.
func (j *inspector) mismatch(what, name string) bool {
	return j.refuse(what + " is " + short(name) + ", not " + j.name)
}

// short returns a server name that a client asked for, in printable form and at most 100 bytes long, for the
// reason of a refusal.
func short(name string) string {
	const most = 100
	if name = printable(name); len(name) > most {
		name = name[:most] + "…"
	}
	return name
}

// same reports whether name, as the client wrote it, is the server name that the connection is allowed for.
func (j *inspector) same(name string) bool { return network.Fold(name) == j.name }
