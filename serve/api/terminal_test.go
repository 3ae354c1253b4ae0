//go:build linux

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/snapfs/snapfs/serve/token"
	"github.com/snapfs/snapfs/serve/tty"
)

// A screen is the caller's end of a terminal.
type screen struct {
	t      *testing.T
	c      *websocket.Conn
	output bytes.Buffer
	lost   int64
}

// open opens a terminal in the sandbox t1 and starts a command in it, unless that is nil.
func (d *desk) open(start any) *screen {
	d.t.Helper()
	h := http.Header{}
	if d.token != "" {
		h.Set("Authorization", "Bearer "+d.token)
	}
	// Without the client's time limit, which ends the connection too.
	c, r, err := websocket.Dial(d.t.Context(), d.base+"/v1/sandboxes/t1/terminal", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: d.client.Transport}, HTTPHeader: h, Subprotocols: []string{tty.Protocol},
	})
	if err != nil {
		d.t.Fatal(err)
	}
	if r.Header.Get("Sec-Websocket-Protocol") != tty.Protocol {
		d.t.Errorf("the subprotocol is %q", r.Header.Get("Sec-Websocket-Protocol"))
	}
	d.t.Cleanup(func() { _ = c.CloseNow() }) // it may be closed
	c.SetReadLimit(1 << 20)
	s := &screen{t: d.t, c: c}
	if start != nil {
		s.send(start)
	}
	return s
}

func (s *screen) send(v any) {
	s.t.Helper()
	data, err := json.Marshal(v)
	if err == nil {
		err = s.c.Write(s.t.Context(), websocket.MessageText, data)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) enter(text string) {
	s.t.Helper()
	if err := s.c.Write(s.t.Context(), websocket.MessageBinary, []byte(text)); err != nil {
		s.t.Fatal(err)
	}
}

// next returns the next event, after the output before it, or the close status.
func (s *screen) next() (e tty.Event, closed websocket.StatusCode) {
	s.t.Helper()
	ctx, done := context.WithTimeout(context.Background(), time.Minute)
	defer done()
	for {
		kind, data, err := s.c.Read(ctx)
		switch {
		case ctx.Err() != nil:
			s.t.Fatalf("no event; the output is %.1000q", s.output.String())
		case err != nil:
			return e, websocket.CloseStatus(err)
		case kind == websocket.MessageBinary:
			s.output.Write(data)
			continue
		}
		if err := json.Unmarshal(data, &e); err != nil {
			s.t.Fatal(err)
		}
		if e.Type == "lost" {
			s.lost += e.Bytes
			continue
		}
		return e, -1
	}
}

// sees reads until the output has a text.
func (s *screen) sees(text string) {
	s.t.Helper()
	ctx, done := context.WithTimeout(context.Background(), time.Minute)
	defer done()
	for !strings.Contains(s.output.String(), text) {
		kind, data, err := s.c.Read(ctx)
		if err != nil {
			s.t.Fatalf("no %q: %v; the output is %.1000q", text, err, s.output.String())
		}
		if kind == websocket.MessageBinary {
			s.output.Write(data)
		}
	}
}

// ends reads until the end, of which the exit status and the close status have to be these.
func (s *screen) ends(exit int, status websocket.StatusCode) {
	s.t.Helper()
	e, _ := s.next()
	for e.Type == "started" {
		e, _ = s.next()
	}
	if e.Type != "exit" || e.Exit == nil || e.Exit.Exit != exit {
		s.t.Errorf("the event %+v (%+v); the output is %.1000q", e, e.Exit, s.output.String())
	}
	if _, closed := s.next(); closed != status {
		s.t.Errorf("closed with %d, want %d", closed, status)
	}
}

// TestATerminalIsServedOverAWebSocket costs some 0.5 s.
func TestATerminalIsServedOverAWebSocket(t *testing.T) {
	d := newDesk(t)
	d.api.ping = 10 * time.Millisecond // pings must not disturb
	d.make("t1")
	s := d.open(map[string]any{"type": "start", "command": "stty size; read line; echo got $line; stty size; trap 'echo sig; exit 7' USR1; echo ready; while :; do sleep 0.05; done", "cols": 100, "rows": 30})
	if e, _ := s.next(); e.Type != "started" {
		t.Errorf("%+v", e)
	}
	s.sees("30 100")
	s.send(map[string]any{"type": "resize", "cols": 111, "rows": 33})
	s.enter("hello\r")
	s.sees("got hello")
	s.sees("33 111")
	s.sees("ready")
	s.send(map[string]any{"type": "signal", "signal": "USR1"})
	s.sees("sig")
	s.ends(7, websocket.StatusNormalClosure)

	s = d.open(map[string]any{"type": "start", "args": []string{"sh", "-c", "tty && echo $0 $TESTED $TERM"}, "env": []string{"TESTED=yes"}})
	s.ends(0, websocket.StatusNormalClosure)
	if out := s.output.String(); !strings.Contains(out, "sh yes xterm-256color") || !strings.Contains(out, "/dev/") {
		t.Error(out)
	}
	s = d.open(map[string]any{"type": "start", "command": "echo $TERM", "env": []string{"TERM=vt100"}})
	s.ends(0, websocket.StatusNormalClosure)
	if out := s.output.String(); out != "vt100\r\n" {
		t.Errorf("%q", out)
	}
	s = d.open(map[string]any{"type": "start", "command": "sleep 600", "timeout": "50ms"})
	s.ends(143, websocket.StatusNormalClosure)
	// ^C is a key: the terminal sends the signal.
	s = d.open(map[string]any{"type": "start", "args": []string{"sh", "-c", "echo ready; exec sleep 600"}})
	s.sees("ready")
	s.enter("\x03")
	s.ends(130, websocket.StatusNormalClosure)
}

// TestATerminalEndsWithItsCaller, and refuses what is no request. It costs some 1 s.
func TestATerminalEndsWithItsCaller(t *testing.T) {
	d := newDesk(t)
	d.make("t1")
	idle := func() {
		t.Helper()
		waitFor(t, "the command's end", func() bool {
			var s Sandbox
			d.want(200, &s, "GET", "/v1/sandboxes/t1", nil)
			return !s.Running
		})
	}
	long := map[string]any{"type": "start", "command": "echo ready; exec sleep 600"}
	s := d.open(long)
	s.sees("ready")
	if err := s.c.CloseNow(); err != nil {
		t.Error(err)
	}
	idle()
	s = d.open(long)
	s.sees("ready")
	if err := s.c.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
	idle()
	for text, status := range map[string]websocket.StatusCode{
		"{}": websocket.StatusPolicyViolation, "no JSON": websocket.StatusPolicyViolation, `{"type":"resize","cols":1,"rows":1}`: websocket.StatusPolicyViolation,
		`{"type":"start","command":"` + strings.Repeat("x", 300<<10) + `"}`: websocket.StatusMessageTooBig,
	} {
		s := d.open(nil)
		if err := s.c.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if e, closed := s.next(); closed != status {
			t.Errorf("%.40q: %+v, closed with %d, want %d", text, e, closed, status)
		}
	}
	for _, bad := range []map[string]any{
		{"type": "start"},
		{"type": "start", "command": "x", "args": []string{"x"}},
		{"type": "start", "args": []string{"/no/such"}},
		{"type": "start", "command": "x", "timeout": "soon"},
		{"type": "start", "command": "x", "cols": 40000},
	} {
		s := d.open(bad)
		e, _ := s.next()
		if _, closed := s.next(); e.Type != "error" || e.Error == nil || closed != websocket.StatusInternalError {
			t.Errorf("%v: %+v, closed with %d", bad, e, closed)
		}
	}
	for _, bad := range []map[string]any{{"type": "signal", "signal": "SEGV"}, {"type": "resize", "cols": 40000}, {"type": "start"}, {"type": "x"}} {
		s := d.open(long)
		s.sees("ready")
		s.send(bad)
		if e, closed := s.next(); closed != websocket.StatusPolicyViolation {
			t.Errorf("%v: %+v, closed with %d", bad, e, closed)
		}
	}
	idle()
	d.want(426, nil, "GET", "/v1/sandboxes/t1/terminal", nil)
	d.want(404, nil, "GET", "/v1/sandboxes/none/terminal", nil)
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}
	d.want(403, nil, "GET", "/v1/sandboxes/t1/terminal", nil, append(upgrade, "Origin", "http://evil.example")...)
	d.want(403, nil, "GET", "/v1/sandboxes/t1/terminal", nil, append(upgrade, "Origin", "null")...)
}

// TestATerminalEndsWithItsToken, and with the server. It costs some 0.3 s.
func TestATerminalEndsWithItsToken(t *testing.T) {
	d := newDesk(t)
	d.make("t1")
	store := token.Open(d.state)
	texts := map[string]string{}
	for name, scope := range map[string]token.Scope{"runner": token.Run, "reader": token.Read} {
		text, err := store.New(token.Token{Name: name, Scopes: []token.Scope{scope}})
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = text
	}
	stop := d.listen(Where{Listen: "127.0.0.1:0"})
	d.want(401, nil, "GET", "/v1/sandboxes/t1/terminal", nil)
	d.token = texts["reader"]
	d.want(403, nil, "GET", "/v1/sandboxes/t1/terminal", nil)
	d.token = texts["runner"]
	d.want(421, nil, "GET", "/v1/sandboxes/t1/terminal", nil, "Host", "rebound.example")
	long := map[string]any{"type": "start", "command": "echo ready; exec sleep 600"}
	s := d.open(long)
	s.sees("ready")
	other := d.open(long)
	other.sees("ready")
	if err := store.Remove("runner"); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*screen{s, other} {
		if e, closed := s.next(); closed != websocket.StatusPolicyViolation {
			t.Errorf("%+v, closed with %d", e, closed)
		}
	}
	text, err := store.New(token.Token{Name: "another", Scopes: token.Scopes()})
	if err != nil {
		t.Fatal(err)
	}
	d.token = text
	s = d.open(long)
	s.sees("ready")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stop()
	}()
	if e, closed := s.next(); closed != websocket.StatusGoingAway {
		t.Errorf("%+v, closed with %d", e, closed)
	}
	<-ended
}

// TestASlowCallerOfATerminalHoldsUpNoCommand costs some 0.5 s.
func TestASlowCallerOfATerminalHoldsUpNoCommand(t *testing.T) {
	d := newDesk(t)
	d.make("t1")
	s := d.open(map[string]any{"type": "start", "command": "stty raw; head -c 12000000 /dev/zero; echo done > done"})
	waitFor(t, "the command's end", func() bool { // while nothing is read
		got := d.do("GET", file("done"), nil)
		return got.StatusCode == http.StatusOK
	})
	s.ends(0, websocket.StatusNormalClosure)
	if got := int64(s.output.Len()); got+s.lost != 12_000_000 || s.lost == 0 {
		t.Errorf("%d bytes and %d lost", got, s.lost)
	}
	// Input that nobody reads is bounded.
	s = d.open(map[string]any{"type": "start", "command": "stty raw; echo ready; exec sleep 600"})
	s.sees("ready")
	piece := bytes.Repeat([]byte("x"), 100<<10)
	for range 11 { // the last one is beyond the bound
		if err := s.c.Write(t.Context(), websocket.MessageBinary, piece); err != nil {
			t.Fatal(err)
		}
	}
	if e, closed := s.next(); closed != websocket.StatusPolicyViolation {
		t.Errorf("%+v, closed with %d", e, closed)
	}
}

// TestARunningCommandGetsInputAndSignals costs some 0.3 s.
func TestARunningCommandGetsInputAndSignals(t *testing.T) {
	d := newDesk(t)
	d.make("t1")
	const exec = "/v1/sandboxes/t1/exec"
	d.want(400, nil, "POST", exec, map[string]any{"command": "cat", "stdin_open": true})
	begin := func(command string) (path string, events *json.Decoder) {
		t.Helper()
		r, err := d.try(t.Context(), "POST", exec, map[string]any{"command": command, "stdin": "0\n", "stdin_open": true}, "Accept", ndjsonType)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Body.Close() })
		if r.Header.Get(execHeader) == "" {
			t.Fatalf("no ID: %+v", r.Header)
		}
		return exec + "/" + r.Header.Get(execHeader), json.NewDecoder(r.Body)
	}
	path, events := begin("cat; exit 3")
	sees := func(text string) {
		t.Helper()
		var ev ExecEvent
		for got := ""; got != text; got += ev.Text {
			if err := events.Decode(&ev); err != nil || ev.Type != "stdout" {
				t.Fatalf("%+v, %v", ev, err)
			}
		}
	}
	exits := func(status int) {
		t.Helper()
		var ev ExecEvent
		if err := events.Decode(&ev); err != nil || ev.Exit == nil || ev.Exit.Exit != status {
			t.Fatalf("%+v, %v", ev, err)
		}
	}
	sees("0\n")
	var w struct{ Written int }
	d.want(200, &w, "POST", path+"/stdin", map[string]any{"text": "one\n"})
	if w.Written != 4 {
		t.Errorf("%+v", w)
	}
	sees("one\n")
	d.want(200, nil, "POST", path+"/stdin", map[string]any{"base64": []byte("two"), "close": true})
	sees("two")
	exits(3)
	waitFor(t, "the end of the response", func() bool {
		return d.do("POST", path+"/stdin", map[string]any{"text": "x"}).StatusCode == http.StatusNotFound
	})
	path, events = begin("exec 2> /dev/null; read x; trap 'echo hup; exit 5' HUP; echo ready; while :; do sleep 0.05; done")
	sees("ready\n")
	d.want(422, nil, "POST", path+"/signal", map[string]any{"signal": "SEGV"})
	d.want(404, nil, "POST", strings.Replace(path, "t1", "t2", 1)+"/signal", map[string]any{"signal": "HUP"})
	d.want(204, nil, "POST", path+"/signal", map[string]any{"signal": "HUP"})
	sees("hup\n")
	exits(5)
}

// TestAHalfHandshakeIsRefused: a caller who asks for a WebSocket and sends no key. It costs some 0.1 s.
func TestAHalfHandshakeIsRefused(t *testing.T) {
	d := newDesk(t)
	d.make("t1")
	var n net.Dialer
	c, err := n.DialContext(t.Context(), "unix", d.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /v1/sandboxes/t1/terminal HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(data), "HTTP/1.1 400 ") {
		t.Errorf("%s, %v", data, err)
	}
}
