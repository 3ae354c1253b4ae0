//go:build linux

package edge

import (
	"bytes"
	"strconv"
	"strings"
)

// A phase is the part of an HTTP connection that the proxy's inspector of requests expects next, such as a
// head, a body or a chunk.
type phase int

const (
	phaseSniff  phase = iota // the first bytes
	phaseTLS                 // a handshake
	phaseHead                // the head of a request
	phaseBody                // its body, or a part of it
	phaseAnswer              // no bytes: the server's reply decides
	phaseOpaque              // anything
)

// A requestReader follows the HTTP requests on one connection from the sandbox, for the inspector that checks
// them: which part comes next and how many bytes are left of it.
type requestReader struct {
	phase   phase
	later   bool  // not the first request
	tunnel  bool  // the expected reply is to CONNECT
	seen    int   // how much of a head was searched
	left    int64 // bytes left of a body or chunk
	chunked bool
}

// A request holds the parts of an HTTP request's head that name the server or determine the length of the
// body.
type request struct {
	connect   bool
	hosts     int
	length    int64
	lengths   int
	chunked   bool
	upgrade   bool
	authority string // of an absolute target or of CONNECT
	host      string
	bad       string
}

// head is the state in which a connection's inspector collects and checks the head of the sandbox's HTTP
// request. It refuses ambiguous syntax: line ends and body lengths that two readers could understand
// differently. It returns true if bytes after the head can be checked next.
func head(j *inspector) bool {
	b := j.rest()
	skip := 0
	for bytes.HasPrefix(b[skip:], []byte("\r\n")) { // RFC 9112, 2.2
		skip += 2
	}
	from := max(skip, j.http.seen) // avoids quadratic time for single bytes
	for i := from; i < len(b); i++ {
		if b[i] == '\n' && (i == 0 || b[i-1] != '\r') {
			return j.refuse("HTTP with a line that does not end in CR LF" + j.askedHost())
		}
		if i >= skip+3 && b[i] == '\n' && b[i-2] == '\n' {
			j.http.seen = 0
			return inspectHead(j, b[:i+1], skip)
		}
	}
	j.http.seen = len(b)
	if len(b) > maxHeld || skip > maxBlank {
		return j.refuse("a head of HTTP longer than is read")
	}
	return false
}

// inspectHead checks b, the complete head of a sandbox's HTTP request after skip bytes of empty lines, and
// lets it pass to the server if it names the right one. It returns false if it refuses the connection, or if
// no further bytes can be checked yet.
func inspectHead(j *inspector, b []byte, skip int) bool {
	r := readRequest(string(b[skip : len(b)-2]))
	switch {
	case r.bad != "":
		return j.refuse("HTTP that cannot be read: " + r.bad + j.askedHost())
	case !j.same(hostOf(r.host)):
		return j.mismatch("the Host", r.host)
	case r.authority != "" && !j.same(hostOf(r.authority)):
		return j.mismatch("the request's target", r.authority)
	}
	j.ok += len(b)
	return j.http.begin(j, r)
}

// askedHost returns the first Host in refused bytes of HTTP, as text to be added to the reason of the
// refusal, or "" if the bytes so far have none.
func (j *inspector) askedHost() string {
	for line := range bytes.Lines(j.rest()) {
		name, value, ok := bytes.Cut(line, []byte(":"))
		if host := string(bytes.TrimSpace(value)); ok && host != "" && bytes.EqualFold(bytes.TrimSpace(name), []byte("host")) {
			return ", for the Host " + short(host)
		}
	}
	return ""
}

// begin selects how the inspector j checks the bytes that follow the head of the HTTP request r: as a body,
// chunks or the next head, or only after the reply to an upgrade. It returns true if such bytes are there.
func (h *requestReader) begin(j *inspector, r request) bool {
	if r.upgrade || r.connect {
		if h.later || r.length > 0 || r.chunked {
			// Which of the replies belongs to this request would be unclear.
			return j.refuse("an upgrade or CONNECT that is not the first request, or has a body")
		}
		h.phase, h.tunnel = phaseAnswer, r.connect
		j.state = func(*inspector) bool { return false }
		j.listen()
		return false
	}
	h.later = true
	switch {
	case r.chunked:
		h.phase = phaseBody
		j.state = chunk
	case r.length > 0:
		h.phase, h.left, h.chunked = phaseBody, r.length, false
		j.state = body
	default:
		h.phase = phaseHead
	}
	return len(j.rest()) > 0
}

// answered selects how the inspector j checks the client's next bytes after the server's reply to an upgrade
// or CONNECT, by the reply's status code: unchecked after an accepted upgrade, as a new connection in a
// tunnel, or else as the next request.
func (h *requestReader) answered(j *inspector, code int) {
	h.later = true
	switch {
	case !h.tunnel && code == 101:
		j.state = opaque
	case h.tunnel && code >= 200 && code < 300:
		h.phase, h.later = phaseSniff, false // traffic through the tunnel is inspected like a connection
		j.state, j.searched = sniff, 0
		j.greeted.Store(false)
	default:
		h.phase = phaseHead
		j.state = head
	}
}

// readRequest parses the head of an HTTP request whose lines end with CR LF (RFC 9112). It sets bad for a
// malformed or ambiguous one.
func readRequest(text string) (r request) {
	line, rest, _ := strings.Cut(text, "\r\n")
	old := r.first(line)
	for rest != "" && r.bad == "" {
		line, rest, _ = strings.Cut(rest, "\r\n")
		r.field(line)
	}
	switch {
	case r.bad != "":
	case r.hosts != 1:
		r.bad = "not one Host"
	case r.chunked && (r.lengths > 0 || old):
		r.bad = "two lengths of one body"
	case r.lengths > 1:
		r.bad = "two lengths of one body"
	}
	return r
}

// first parses the request line of an HTTP request into r: its kind, the server that it names, and r.bad for
// a malformed line. old is true for HTTP/1.0.
func (r *request) first(line string) (old bool) {
	parts := strings.Split(line, " ")
	if len(parts) != 3 || parts[0] == "" || !isToken([]byte(parts[0])) || (parts[2] != "HTTP/1.1" && parts[2] != "HTTP/1.0") {
		r.bad = "the request line"
		return false
	}
	target := parts[1]
	r.connect = parts[0] == "CONNECT"
	for i := range len(target) {
		if target[i] <= ' ' || target[i] == 0x7f {
			r.bad = "the request line"
		}
	}
	scheme, after, absolute := strings.Cut(target, "://")
	switch {
	case r.connect:
		r.authority = target
	case strings.HasPrefix(target, "/"), target == "*":
	case absolute && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https")):
		if i := strings.IndexAny(after, "/?#"); i >= 0 {
			after = after[:i]
		}
		r.authority = after
		if after == "" {
			r.bad = "a target without a name"
		}
	default:
		r.bad = "the target of the request"
	}
	return parts[2] == "HTTP/1.0"
}

// field parses one header line of an HTTP request into r, if it names the server or determines the length of
// the body.
func (r *request) field(line string) {
	name, value, ok := strings.Cut(line, ":")
	if !ok || name == "" || !isToken([]byte(name)) {
		r.bad = "a line of the head"
		return
	}
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			r.bad = "a line of the head"
			return
		}
	}
	value = strings.Trim(value, " \t")
	switch strings.ToLower(name) {
	case "host":
		r.hosts++
		r.host = value
	case "content-length":
		r.lengths++
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 || value[0] == '+' {
			r.bad = "the length of the body"
		}
		r.length = n
	case "transfer-encoding":
		if !strings.EqualFold(value, "chunked") || r.chunked {
			r.bad = "how the body is encoded"
		}
		r.chunked = true
	case "upgrade":
		r.upgrade = true
		if strings.Contains(strings.ToLower(value), "h2c") {
			r.bad = "an upgrade to HTTP/2 without TLS"
		}
	case "http2-settings":
		r.bad = "an upgrade to HTTP/2 without TLS"
	}
}

// hostOf returns the value of a Host header without its port. It returns a malformed value
// unchanged, which matches no name.
func hostOf(host string) string {
	name, port, ok := strings.Cut(host, ":")
	if ok && (len(port) > 5 || strings.Trim(port, "0123456789") != "") {
		return host
	}
	return name
}

// body is the state in which a connection's inspector lets an HTTP body, or a chunk of one, of known length
// pass from the sandbox to the server. It returns true if bytes after the body can be checked next.
func body(j *inspector) bool {
	h := &j.http
	n := min(h.left, int64(len(j.rest())))
	h.left -= n
	j.ok += int(n)
	if h.left > 0 {
		return false
	}
	if h.chunked {
		j.state = chunkEnd
		return true
	}
	h.phase = phaseHead
	j.state = head
	return len(j.rest()) > 0
}

// line returns the next line of a chunked HTTP body without CR LF, such as a chunk's length; ok is false if
// it is incomplete or malformed.
func (j *inspector) line() (line []byte, ok bool) {
	const most = 4 << 10
	b := j.rest()
	i := bytes.IndexByte(b, '\n')
	switch {
	case i < 0 && len(b) <= most:
		return nil, false
	case i < 1 || i > most || b[i-1] != '\r' || bytes.IndexByte(b[:i-1], '\r') >= 0:
		return nil, j.refuse("HTTP that cannot be read: a chunk of the body")
	}
	j.ok += i + 1
	return b[:i-1], true
}

// chunk is the state in which a connection's inspector parses the length of a chunk of the sandbox's HTTP
// body. It returns false if it needs more bytes or refuses a malformed length.
func chunk(j *inspector) bool {
	line, ok := j.line()
	if !ok {
		return false
	}
	digits, _, _ := bytes.Cut(line, []byte(";"))
	n, err := strconv.ParseInt(string(digits), 16, 63)
	if err != nil || len(digits) > 15 || digits[0] == '+' || digits[0] == '-' {
		return j.refuse("HTTP that cannot be read: a chunk of the body")
	}
	j.http.left, j.http.chunked = n, true
	j.state = body
	if n == 0 {
		j.state = trailer
	}
	return true
}

// chunkEnd is the state in which a connection's inspector parses the empty line after a chunk of the
// sandbox's HTTP body. It returns false if it needs more bytes, or refuses a line that is not empty.
func chunkEnd(j *inspector) bool {
	line, ok := j.line()
	if ok && len(line) > 0 {
		return j.refuse("HTTP that cannot be read: a chunk of the body")
	}
	if ok {
		j.state = chunk
	}
	return ok
}

// trailer is the state in which a connection's inspector lets the trailer after the last chunk of an HTTP
// body pass to the server, up to an empty line. It returns false if it needs more bytes.
func trailer(j *inspector) bool {
	line, ok := j.line()
	if ok && len(line) == 0 {
		j.http.phase = phaseHead
		j.state = head
	}
	return ok
}

// statusOf parses the head of an HTTP response and returns its status code and the head's size in bytes, or
// size 0 while it is incomplete. The code is 0 if b is no HTTP/1 response.
func statusOf(b []byte) (code, size int) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return 0, 0
	}
	parts := strings.SplitN(string(b[:end]), " ", 3)
	if len(parts) < 2 || !strings.HasPrefix(parts[0], "HTTP/1.") || len(parts[1]) < 3 {
		return 0, end + 4
	}
	code, err := strconv.Atoi(parts[1][:3])
	if err != nil {
		return 0, end + 4
	}
	return code, end + 4
}
