//go:build linux

package api

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/serve/client"
	"github.com/snapfs/snapfs/serve/token"
)

// echo is a server that answers with what it got, in a sandbox: on a port that it writes to the file port.
const echo = `
import http.server, json
class H(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self.send_response(418)
        self.send_header("Set-Cookie", "a=b")
        self.send_header("Alt-Svc", 'h2=":1"')
        self.end_headers()
        self.wfile.write(json.dumps({"path": self.path, "headers": dict(self.headers), "body": body}).encode())
    do_GET = do_POST
    def log_message(self, *args): pass
s = http.server.HTTPServer(("127.0.0.1", 0), H)
open("port.new", "w").write(str(s.server_address[1]))
import os
os.rename("port.new", "port")
s.serve_forever()
`

// TestAPortInsideIsListedAndReached costs some 1 s.
func TestAPortInsideIsListedAndReached(t *testing.T) {
	treetest.NeedProgram(t, "python3")
	d := newDesk(t)
	const list = "/v1/sandboxes/t1/ports"
	d.make("t1")
	var p Ports
	d.want(200, &p, "GET", list, nil)
	if len(p.Listening)+len(p.Forwards) != 0 {
		t.Errorf("%+v", p)
	}
	d.want(404, nil, "GET", list+"/80/http/", nil)
	d.want(404, nil, "POST", list, map[string]any{"port": 80})
	d.start(client.CommandLine{Args: []string{"python3", "-c", echo}})
	var port string
	waitFor(t, "the server inside", func() bool {
		r := d.do("GET", file("port"), nil)
		port = r.body
		return r.StatusCode == http.StatusOK
	})
	d.want(200, &p, "GET", list, nil)
	if len(p.Listening) != 1 || strconv.Itoa(int(p.Listening[0].Port)) != port || p.Listening[0].Address != "127.0.0.1" {
		t.Fatalf("port %s: %+v", port, p)
	}
	at := p.Listening[0].Path
	text, err := token.Open(d.state).New(token.Token{Name: "x", Scopes: []token.Scope{token.Run}})
	if err != nil {
		t.Fatal(err)
	}
	d.token = text
	r := d.do("POST", at+"a%2Fb/c?d=%20e", map[string]string{"x": "y"}, "Cookie", "c=d", "Host", "localhost:1", "Forwarded", "for=x", "X-Snapfs-Key", "k")
	var got struct {
		Path    string
		Headers map[string]string
		Body    string
	}
	if err := json.Unmarshal([]byte(r.body), &got); err != nil {
		t.Fatal(err, r.body)
	}
	if r.StatusCode != http.StatusTeapot || got.Path != "/a%2Fb/c?d=%20e" || got.Body != `{"x":"y"}` || got.Headers["Host"] != "localhost:"+port {
		t.Errorf("%d, %+v", r.StatusCode, got)
	}
	for _, name := range []string{"Authorization", "Cookie", "Forwarded", "X-Snapfs-Key"} {
		if got.Headers[name] != "" {
			t.Errorf("the server inside got %s: %s", name, got.Headers[name])
		}
	}
	for _, name := range []string{"Set-Cookie", "Alt-Svc"} {
		if r.Header.Get(name) != "" {
			t.Errorf("the caller got %s: %s", name, r.Header.Get(name))
		}
	}
	if !strings.HasPrefix(r.Header.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("%+v", r.Header)
	}
	d.token = ""
	var f Forward
	d.want(201, &f, "POST", list, map[string]any{"port": p.Listening[0].Port})
	if resp, err := http.Get("http://" + f.Addresses[0] + "/"); err != nil || resp.StatusCode != http.StatusTeapot || resp.Body.Close() != nil {
		t.Errorf("%+v, %v", resp, err)
	}
	d.want(204, nil, "DELETE", list+"/"+port, nil)
	d.want(404, nil, "DELETE", list+"/"+port, nil)
	d.want(422, nil, "DELETE", list+"/"+strconv.Itoa(1<<16+int(p.Listening[0].Port)), nil)
	d.want(422, nil, "DELETE", list+"/2147483648", nil)
	d.want(422, nil, "POST", list, map[string]any{"port": 1<<16 + 80})
	d.want(405, nil, "TRACE", list+"/1/http/", nil)
	d.want(502, nil, "GET", list+"/1/http/", nil)
	d.want(400, nil, "GET", list+"/0/http/", nil)
	d.want(400, nil, "GET", list+"/70000/http/", nil)
	d.want(404, nil, "GET", "/v1/sandboxes/none/ports/80/http/", nil)
	// A server of this host is not reached, though one listens at the port.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, host, _ := net.SplitHostPort(l.Addr().String())
	d.want(502, nil, "GET", list+"/"+host+"/http/", nil)
	d.want(201, nil, "POST", "/v1/sandboxes", map[string]any{"name": "t2", "network": "host"})
	d.want(422, nil, "GET", "/v1/sandboxes/t2/ports/"+host+"/http/", nil)
	if text, err = token.Open(d.state).New(token.Token{Name: "y", Scopes: []token.Scope{token.Read}}); err != nil {
		t.Fatal(err)
	}
	d.token = text
	d.want(403, nil, "GET", at, nil)
}

// TestNetworkRulesAreShownAndAdded costs some 0.3 s.
func TestNetworkRulesAreShownAndAdded(t *testing.T) {
	d := newDesk(t)
	d.make("t1")
	const path = "/v1/sandboxes/t1/net"
	var n Net
	d.want(200, &n, "GET", path, nil)
	if n.Network != "none" || len(n.Decisions) != 0 {
		t.Errorf("%+v", n)
	}
	d.want(400, nil, "POST", path, map[string]any{"allow": []string{"a b"}})
	d.want(422, nil, "POST", path, map[string]any{"allow": []string{}})
	d.want(200, &n, "POST", path, map[string]any{"allow": []string{"one.example:443", "two.example"}})
	if !strings.HasPrefix(n.Network, "allow:") || !strings.Contains(n.Network, "one.example:443") || !strings.Contains(n.Network, "two.example") {
		t.Errorf("%+v", n)
	}
	treetest.NeedDevice(t, "/dev/net/tun")
	d.exec("t1", "getent hosts three.example")
	d.want(200, &n, "GET", path+"?refused=true&limit=1", nil)
	if len(n.Decisions) != 1 || n.Decisions[0].Name != "three.example" || n.Decisions[0].Allowed {
		t.Errorf("%+v", n)
	}
}

// TestFilesAreWatched costs some 0.3 s.
func TestFilesAreWatched(t *testing.T) {
	d := newDesk(t)
	d.make("t1")
	d.start(client.CommandLine{Command: "exec sleep 600"}) // so that the rest is quick
	const path = "/v1/sandboxes/t1/files/watch?path="
	d.want(404, nil, "GET", path+"none", nil)
	d.want(400, nil, "GET", path+"a.txt", nil)
	r, err := d.try(t.Context(), "GET", path+".&recursive=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	events := json.NewDecoder(r.Body)
	sees := func(want FileEvent) {
		t.Helper()
		for {
			var ev FileEvent
			if err := events.Decode(&ev); err != nil {
				t.Fatal(err)
			}
			if ev.Type == want.Type && ev.Path == want.Path && string(ev.Base64) == string(want.Base64) {
				return
			}
			if ev.Type == "error" {
				t.Fatalf("%+v", ev.Error)
			}
		}
	}
	sees(FileEvent{Type: "ready"})
	d.exec("t1", "mkdir d; echo x > d/f; mv d/f d/g; printf x > \"$(printf 'n\\377')\"; rm a.txt")
	for _, want := range []FileEvent{{Type: "create", Path: "d"}, {Type: "create", Path: "d/g"}, {Type: "create", Base64: []byte("n\xff")}, {Type: "remove", Path: "a.txt"}} {
		sees(want)
	}
	call(d.c.StopSandboxWithResponse(t.Context(), "t1", nil)).is(d, 204)
	data, err := io.ReadAll(io.MultiReader(events.Buffered(), r.Body))
	if err != nil || !strings.Contains(string(data), `"type":"error"`) {
		t.Errorf("%s, %v", data, err)
	}
	if text, err := os.ReadFile(d.work + "/a.txt"); err != nil || string(text) != "one\n" {
		t.Errorf("the real file: %q, %v", text, err)
	}
}

// TestWallsAreTried runs two probes. It costs some 0.5 s.
func TestWallsAreTried(t *testing.T) {
	d := newDesk(t)
	var p Proof
	q := map[string]any{"only": []string{"read-only", "see-process"}}
	d.want(200, &p, "POST", "/v1/prove", q)
	if p.Held+p.Untried != len(p.Reports) || len(p.Reports) < 2 || p.Held == 0 {
		t.Errorf("%+v", p)
	}
	r := d.want(200, nil, "POST", "/v1/prove", q, "Accept", ndjsonType)
	lines := strings.Split(strings.TrimSpace(r.body), "\n")
	if len(lines) != len(p.Reports)+1 || !strings.Contains(lines[len(lines)-1], `"type":"end"`) || !strings.Contains(lines[0], `"type":"probe"`) {
		t.Error(r.body)
	}
	d.want(404, nil, "POST", "/v1/prove", map[string]any{"only": []string{"nothing"}})
	d.only()
}
