//go:build linux

package edge

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"

	"github.com/snapfs/snapfs/network"
)

// mostHeld bounds what is held back until it is judged: a first line, a head of HTTP, a ClientHello.
const mostHeld = 64 << 10

// mostBlank is how much may stand before a first line.
const mostBlank = 1 << 10

// A judge reads what a process says to a name, and lets pass what may. It knows TLS and HTTP/1, whatever
// the port; what is neither passes. It is used by one goroutine, but for answered.
type judge struct {
	name  string // that the server must be asked for; empty lets everything pass
	noSNI bool   // a client may leave the server name out
	// hidden says why a ClientHello may not have an encrypted one in it, or ""; nil: it never may.
	hidden func() string
	timed  bool // the reader has a deadline, see flow.await
	state  func(*judge) (more bool)
	why    string // what was found, for good
	buf    []byte // what was said and has not passed by the last feed
	ok     int    // how much of it may pass
	passed int    // how much of it has passed already, see release
	looked int    // how much sniffLine saw

	tls  helloReader
	http requestReader

	listening atomic.Bool // for the server's answer to an upgrade
	mu        sync.Mutex  // guards answer
	answer    []byte
	status    chan int
}

func newJudge(name string, noSNI bool) *judge {
	j := &judge{name: name, noSNI: noSNI, state: sniff, status: make(chan int, 1)}
	if name == "" {
		j.state = opaque
	}
	return j
}

// feed takes what was said and answers with what may pass now, valid until the next call, or with why the
// connection must end.
func (j *judge) feed(p []byte) (pass []byte, why string) {
	if j.why != "" {
		return nil, j.why
	}
	j.buf = append(j.buf[:0], j.buf[j.ok:]...)
	j.passed = max(0, j.passed-j.ok)
	j.ok = 0
	if j.end() {
		return p, "" // nothing is held, nothing will be: no copy
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

// end says that all that comes may pass.
func (j *judge) end() bool { return j.http.phase == phaseOpaque && len(j.buf) == 0 }

func (j *judge) refuse(why string) bool {
	j.why = why
	return false
}

// rest is what is not yet judged.
func (j *judge) rest() []byte { return j.buf[j.ok:] }

// opaque lets everything pass.
func opaque(j *judge) bool {
	j.http.phase = phaseOpaque
	j.ok = len(j.buf)
	return false
}

// undecided says that the first bytes may yet become a request, and that somebody may wait for an answer to them.
func (j *judge) undecided() bool {
	return j.http.phase == phaseSniff && len(j.buf)-max(j.ok, j.passed) > 0
}

// release lets the first bytes pass that may yet become a request: no server
// acts on a part of one, and the rest is judged with them.
func (j *judge) release() []byte {
	if !j.undecided() {
		return nil
	}
	pass := j.buf[max(j.ok, j.passed):]
	j.passed = len(j.buf)
	return pass
}

// sniff decides by the first bytes what is spoken.
func sniff(j *judge) bool {
	b := j.rest()
	switch {
	case len(b) == 0:
		return false
	case b[0] == recordHandshake:
		if len(b) < 2 {
			return false
		}
		if b[1] == 3 {
			j.http.phase = phaseTLS
			j.state = hello
			return true
		}
	case b[0]&0x80 != 0: // perhaps SSL 2's way to begin: length, 1, version 3
		if len(b) < 4 && (len(b) < 3 || b[2] == 1) {
			return false
		}
		if b[2] == 1 && b[3] == 3 {
			return j.refuse("a TLS client that speaks as SSL 2 did, without a server name")
		}
	default:
		return sniffLine(j, b)
	}
	j.state = opaque
	return true
}

// sniffLine looks for a request in the first line that is not empty. A line
// whose first word is no token of HTTP is none.
func sniffLine(j *judge, b []byte) bool {
	if len(b) > mostBlank && len(b) <= mostHeld && len(b) < 2*j.looked && bytes.IndexByte(b[j.looked:], '\n') < 0 {
		return false // what comes in single bytes is not read from its start for each
	}
	j.looked = len(b)
	line := bytes.TrimLeft(b, "\r\n\t ")
	if len(b)-len(line) > mostBlank {
		return j.refuse("a first line after too much of nothing")
	}
	whole := bytes.IndexByte(line, '\n')
	if whole >= 0 {
		line = line[:whole+1]
	}
	word := line
	if i := bytes.IndexAny(line, " \t\r\n"); i >= 0 {
		word = line[:i]
	}
	if !isToken(word) {
		j.state = opaque
		return true
	}
	if whole < 0 {
		if len(b) > mostHeld {
			return j.refuse("a first line without an end")
		}
		return false
	}
	switch {
	case bytes.HasPrefix(line, []byte("PRI * HTTP/2")):
		return j.refuse("HTTP/2 without TLS")
	case bytes.HasPrefix(line, []byte("PROXY ")):
		return j.refuse("a line of the PROXY protocol")
	case bytes.Contains(bytes.ToUpper(line), []byte("HTTP/")), oldest(word, line):
		j.http.phase = phaseHead
		j.state = head
	default:
		j.state = opaque
	}
	return true
}

// oldest says that a line is a request as HTTP/0.9 had it, which some servers
// still answer, by the name in it where there is one.
func oldest(word, line []byte) bool {
	target := bytes.TrimLeft(line[len(word):], " \t")
	return bytes.EqualFold(word, []byte("GET")) && (bytes.HasPrefix(target, []byte("/")) || bytes.Contains(target, []byte("://")))
}

// isToken says that every byte is one of a token (RFC 9110, 5.6.2); nothing at all may become one.
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

// waits says that the judge must know the server's answer before it reads on.
func (j *judge) waits() bool { return j.http.phase == phaseAnswer }

// listen is called before the bytes pass whose answer is wanted.
func (j *judge) listen() {
	j.mu.Lock()
	j.answer = nil
	j.mu.Unlock()
	j.listening.Store(true)
}

// answered is called with what the server says.
func (j *judge) answered(p []byte) {
	if !j.listening.Load() {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.answer = append(j.answer, p...)
	for {
		code, size := statusOf(j.answer)
		switch {
		case size == 0 && len(j.answer) < mostHeld:
			return
		case size > 0 && code < 200 && code != 101 && code >= 100:
			j.answer = j.answer[size:] // the answer is yet to come
		default:
			j.tell(code)
			return
		}
	}
}

// answerEnds is called when the server says no more.
func (j *judge) answerEnds() {
	if j.listening.Load() {
		j.tell(0)
	}
}

func (j *judge) tell(code int) {
	j.listening.Store(false)
	select {
	case j.status <- code:
	default:
	}
}

// await waits for the server's answer; it is false where ctx was done before.
func (j *judge) await(ctx context.Context) bool {
	select {
	case code := <-j.status:
		j.http.answered(j, code)
		return true
	case <-ctx.Done():
		return false
	}
}

// other says that a name is not the one that it must be.
func (j *judge) other(what, name string) bool {
	const most = 100
	if name = printable(name); len(name) > most {
		name = name[:most] + "…"
	}
	return j.refuse(what + " is " + name + ", not " + j.name)
}

// same says that a name that was said is the one that was asked for.
func (j *judge) same(name string) bool { return network.Fold(name) == j.name }
