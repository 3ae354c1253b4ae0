package e2b_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/serve/e2b"
	"github.com/snapfs/snapfs/serve/e2b/envd"
)

// frame returns a message of the protocol as it is on the wire.
func frame(flags byte, size uint32, data string) string {
	head := binary.BigEndian.AppendUint32([]byte{flags}, size)
	return string(head) + data
}

// TestMalformedFramesAreRefused: each of them quickly, and the server goes on. Cost: half a second.
func TestMalformedFramesAreRefused(t *testing.T) {
	treetest.NeedRoot(t)
	d := newDesk(t)
	s := d.create(nil)
	whole := `{"process":{"cmd":"/bin/true"}}`
	send := func(path, kind, body string) (int, string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		q, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", kind)
		q.Header.Set("Connect-Protocol-Version", "1")
		reply, err := visitor{s.SandboxID, s.Token}.RoundTrip(q)
		if err != nil {
			t.Fatalf("%s %q: %v", path, body, err)
		}
		defer reply.Body.Close()
		data, err := io.ReadAll(reply.Body)
		if err != nil {
			t.Errorf("%s %q: %v", path, body, err)
		}
		return reply.StatusCode, string(data)
	}
	const start, kind = "/process.Process/Start", "application/connect+json"
	if code, text := send(start, kind, frame(0, uint32(len(whole)), whole)); code != http.StatusOK || !strings.Contains(text, `"exited":true`) {
		t.Fatalf("a good frame: %d %q", code, text)
	}
	for _, body := range []string{
		"", "\x00", frame(0, 5, ""), frame(0, 10, whole), frame(0, 0xFFFFFFFF, whole), frame(0, uint32(len(whole)), whole[:5]+strings.Repeat("{", len(whole)-5)),
		frame(1, uint32(len(whole)), whole), frame(0xFF, uint32(len(whole)), whole), frame(2, 2, "{}"), frame(0, 2, "[]"), frame(0, 4, "null"),
		frame(0, uint32(len(whole)), whole) + "rest", whole,
	} {
		if code, text := send(start, kind, body); code == http.StatusOK && !strings.Contains(text, `"error"`) {
			t.Errorf("%q: %d %q", body, code, text)
		} else if code >= http.StatusInternalServerError {
			t.Errorf("%q: %d %q", body, code, text)
		}
	}
	for _, body := range []string{"{", "[]", `{"process":7,"path":7}`, `{"process":{"pid":-1},"path":{}}`, `{"process":{"pid":1e99},"path":"\u0000"}`, "\xff", strings.Repeat("[", 100_000), strings.Repeat("x", 17<<20)} {
		for _, path := range []string{"/process.Process/SendSignal", "/process.Process/SendInput", "/filesystem.Filesystem/Stat", "/filesystem.Filesystem/Remove"} {
			if code, text := send(path, "application/json", body); code < 400 || code >= 500 {
				t.Errorf("%s %.40q: %d %.200q", path, body, code, text)
			}
		}
	}
	for path, kind := range map[string]string{
		start: "text/plain", "/process.Process/List": "application/xml", "/process.Process/Nope": "application/json", "/filesystem.Filesystem/": "application/json",
	} {
		if code, _ := send(path, kind, "{}"); code < 400 || code >= 500 {
			t.Errorf("%s with %s: %d", path, kind, code)
		}
	}
	long := strings.Repeat("n", 10<<20)
	if code, text := send("/filesystem.Filesystem/Stat", "application/json", `{"path":"`+long+`"}`); code != http.StatusBadRequest || len(text) > 10_000 {
		t.Errorf("a name of 10 MB: %d, %d bytes", code, len(text))
	}
	for _, config := range []string{
		`{}`, `{"cmd":""}`, `{"cmd":"/bin/true","args":["a\u0000b"]}`, `{"cmd":"/bin/true","envs":{"A=B":"x"}}`, `{"cmd":"/bin/true","envs":{"":"x"}}`,
		`{"cmd":"/bin/true","cwd":"/no/such"}`, `{"cmd":"/bin/true","cwd":"a"}`, `{"cmd":"/bin/true","args":["` + strings.Repeat("x", 3<<20) + `"]}`,
	} {
		text := `{"process":` + config + `}`
		if code, text := send(start, kind, frame(0, uint32(len(text)), text)); code != http.StatusOK || !strings.Contains(text, `"error"`) || strings.Contains(text, `"internal"`) {
			t.Errorf("%.80s: %d %.300q", config, code, text)
		}
	}
	for _, path := range []string{"/filesystem.Filesystem/Remove", "/filesystem.Filesystem/MakeDir", "/filesystem.Filesystem/Move"} {
		for _, body := range []string{"{}", `{"path":"/"}`, `{"source":"/","destination":"x"}`, `{"source":"a"}`, `{"source":"a","destination":"/"}`} {
			if code, text := send(path, "application/json", body); code < 400 || code >= 500 {
				t.Errorf("%s %s: %d %s", path, body, code, text)
			}
		}
	}
	if got := s.sh("cat a; echo alive"); got != "realalive\n" {
		t.Errorf("%q", got)
	}
}

// TestAHalfClosedStreamLeavesTheCommand: a client that closes its half gets the rest, and one that is cut off leaves a
// command that others reach. Cost: half a second.
func TestAHalfClosedStreamLeavesTheCommand(t *testing.T) {
	treetest.NeedRoot(t)
	d := newDesk(t)
	s := d.create(nil)
	dial := func(script string) (*net.TCPConn, *bufio.Reader) {
		t.Helper()
		conn, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf(`{"process":{"cmd":"/bin/sh","args":["-c",%q]}}`, script)
		body := frame(0, uint32(len(text)), text)
		fmt.Fprintf(conn, "POST /process.Process/Start HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/connect+json\r\nContent-Length: %d\r\nE2b-Sandbox-Id: %s\r\nX-Access-Token: %s\r\n\r\n%s", len(body), s.SandboxID, s.Token, body)
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			t.Fatalf("%T", conn)
		}
		_ = tcp.SetReadDeadline(time.Now().Add(20 * time.Second))
		return tcp, bufio.NewReader(tcp)
	}
	await := func(r *bufio.Reader, what string) {
		t.Helper()
		var seen strings.Builder
		for !strings.Contains(seen.String(), what) {
			c, err := r.ReadByte()
			if err != nil {
				t.Fatalf("%v after %q", err, seen.String())
			}
			seen.WriteByte(c)
		}
	}
	conn, r := dial("read line; exec sleep 1000")
	await(r, `"pid"`)
	if err := conn.SetLinger(0); err != nil { // a reset
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	list, err := s.process.List(t.Context(), &envd.ListRequest{})
	if err != nil || len(list.Processes) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	pid := list.Processes[0].Pid
	if _, err := s.process.SendSignal(t.Context(), &envd.SendSignalRequest{Process: byPID(pid), Signal: envd.Signal_SIGNAL_SIGKILL}); err != nil {
		t.Error(err)
	}
	// A client that never reads does not hold up the sandbox.
	conn, _ = dial("yes")
	defer conn.Close()
	if got := s.sh("echo here"); got != "here\n" {
		t.Errorf("%q", got)
	}
	d.do(http.StatusNoContent, http.MethodDelete, "/sandboxes/"+s.SandboxID, nil, nil)
}

// TestAServerClaimsItsRequestsOnly: so that it can share an address.
func TestAServerClaimsItsRequestsOnly(t *testing.T) {
	s := e2b.New(e2b.Options{Open: func(context.Context) (*engine.Engine, error) { return nil, errs.ErrNotFound }})
	defer s.Close()
	for target, want := range map[string]bool{
		"http://localhost/v2/sandboxes": true, "http://localhost/sandboxes/x/fork": true, "http://localhost/snapshots": true, "http://localhost/files?path=x": true,
		"http://localhost/process.Process/Start": true, "http://80-abc.localhost:99/": true, "http://localhost/": false, "http://localhost/v1/sandboxes": false,
		"http://localhost/v2/other": false, "http://80-abc.evil.example/": false, "http://localhost/health": true, "http://localhost/metrics": false,
	} {
		q := httptest.NewRequest(http.MethodGet, target, nil)
		if got := s.Claims(q); got != want {
			t.Errorf("%s: %v", target, got)
		}
		q.Header.Set("E2b-Sandbox-Id", "x")
		if !s.Claims(q) {
			t.Errorf("%s with an ID is not claimed", target)
		}
	}
}

// TestOnlyItsClientsReachAServer: keys, tokens, signatures, hosts and pages of other sites. Cost: half a second.
func TestOnlyItsClientsReachAServer(t *testing.T) {
	treetest.NeedRoot(t)
	d := newDesk(t, func(o *e2b.Options) { o.Key, o.Hosts = e2b.SameKey("right"), []string{"e2b.example"} })
	d.key = "right"
	s := d.create(nil)
	other := d.create(nil)
	list := []string{http.MethodGet, "/v2/sandboxes"}
	for _, key := range []string{"", "wrong", "righ"} {
		d.refuses(http.StatusUnauthorized, "X-API-Key", list[0], list[1], nil, "X-Api-Key", key)
		d.refuses(http.StatusUnauthorized, "X-API-Key", http.MethodPost, list[1], M{}, "X-Api-Key", key)
	}
	for _, token := range []string{"", other.Token, "right"} {
		for _, path := range []string{"/files?path=a", "/health", "/envs"} {
			d.refuses(http.StatusUnauthorized, "token", http.MethodGet, path, nil, "E2b-Sandbox-Id", s.SandboxID, "X-Access-Token", token)
		}
		d.refuses(http.StatusUnauthorized, "token", http.MethodPost, "/process.Process/List", M{}, "E2b-Sandbox-Id", s.SandboxID, "X-Access-Token", token, "Content-Type", "application/json")
	}
	for _, host := range []string{"evil.example", "localhost.evil.example", "169.254.169.254", "notlocalhost", ""} {
		if host != "" {
			d.refuses(http.StatusMisdirectedRequest, "host", list[0], list[1], nil, "Host", host)
		}
	}
	for _, host := range []string{"localhost", "LOCALHOST:99", "127.0.0.1", "[::1]:80", "e2b.example", "api.e2b.example", "localhost."} {
		d.do(http.StatusOK, list[0], list[1], nil, nil, "Host", host)
	}
	d.refuses(http.StatusForbidden, "cross-origin", http.MethodPost, list[1], M{}, "Origin", "http://evil.example")
	d.refuses(http.StatusForbidden, "cross-origin", http.MethodPost, list[1], M{}, "Sec-Fetch-Site", "cross-site")
	d.refuses(http.StatusRequestEntityTooLarge, "MiB", http.MethodPost, list[1], `{"templateID":"`+strings.Repeat("x", 2<<20)+`"}`)
	d.refuses(http.StatusUnauthorized, "token", http.MethodGet, "/files?path=a&signature=v1_x", nil, "E2b-Sandbox-Id", s.SandboxID)
	d.refuses(http.StatusBadGateway, "was not found", http.MethodGet, "/files?path=a&signature=v1_x", nil)
	for _, id := range []string{"..", "x", strings.Repeat("n", 10_000), s.SandboxID + "/..", "%00"} {
		d.refuses(http.StatusBadGateway, "was not found", http.MethodGet, "/health", nil, "E2b-Sandbox-Id", id)
	}
	for _, id := range []string{"x", strings.Repeat("n", 10_000), "%2e%2e", "a%2fb", "a%00b"} {
		d.refuses(http.StatusNotFound, "", http.MethodGet, "/sandboxes/"+id, nil)
		d.refuses(http.StatusNotFound, "", http.MethodDelete, "/sandboxes/"+id, nil)
	}
	for _, body := range []string{"{", "[]", `{"timeout":-1}`, `{"timeout":1e30}`, `{"timeout":99999999}`, `{"metadata":{"a":1}}`, `{"envVars":{"A=":"x"}}`, `{"volumeMounts":[{}]}`, `{"network":{"denyOut":["10.0.0.0/8"]}}`, `{"network":{"rules":{"a":[]}}}`, `{"network":{"allowOut":["::bad::"]}}`} {
		d.refuses(http.StatusBadRequest, "", http.MethodPost, "/v2/sandboxes", body)
	}
	for _, template := range []string{"nope", "../x", s.SandboxID + "@none", strings.Repeat("t", 1000)} {
		d.refuses(http.StatusNotFound, "", http.MethodPost, "/v2/sandboxes", M{"templateID": template})
	}
	for _, body := range []string{`{"count":0}`, `{"count":101}`, `{"count":-1}`} {
		d.refuses(http.StatusBadRequest, "count", http.MethodPost, "/sandboxes/"+s.SandboxID+"/fork", body)
	}
	d.refuses(http.StatusNotFound, "route", http.MethodPatch, "/sandboxes/"+s.SandboxID, nil)
	d.refuses(http.StatusBadRequest, "user", http.MethodGet, "/files?path=a&username=nobody", nil, s.headers()...)
}
