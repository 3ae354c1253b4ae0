//go:build linux

package edge

import (
	"net"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/network"
)

// TestHostNameReachesThisHost at the ports that rules allow, in both families, by TCP and UDP, uninspected; no
// other name does.
func TestHostNameReachesThisHost(t *testing.T) {
	w := newWorld(t, "host.snapfs:8080-8081,site.example")
	w.name("host.snapfs", "203.0.113.10") // never asked for
	w.serve(t, "127.0.0.1:8080", echo)
	w.serve(t, "[::1]:8081", echo)
	w.serve(t, "127.0.0.1:9", echo)
	request := "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for _, to := range []string{"tcp4 host.snapfs:8080", "tcp6 HOST.snapfs:8081"} {
		if r := w.play(t, step{Dial: to}, step{Send: []byte(request)}, step{Close: true}, step{Read: -1}); string(r.Read) != request {
			t.Errorf("%s: %q, %s", to, r.Read, r.Err)
		}
	}
	w.udpEcho(t, "127.0.0.1:8080")
	if r := w.play(t, step{Dial: "udp host.snapfs:8080"}, step{Send: []byte("hi")}, step{Read: 2}); string(r.Read) != "hi" {
		t.Errorf("datagrams: %q, %s", r.Read, r.Err)
	}
	ev := w.awaitEvent(t, "the service", func(ev network.Event) bool { return ev.Allowed && ev.Kind == network.TCP })
	if ev.Rule != "host.snapfs:8080-8081" || ev.Addr.String() != "127.0.0.1" {
		t.Errorf("%+v", ev)
	}
	for _, to := range []string{"tcp host.snapfs:9", "tcp host.snapfs:8082"} {
		if r := w.play(t, step{Dial: to}); !strings.Contains(r.Err, "refused") {
			t.Errorf("%s: %s", to, r.Err)
		}
	}
	w.refused(t, network.TCP, "host.snapfs", "no rule allows host.snapfs:9")
	w.name("site.example", "127.0.0.1")
	if r := w.play(t, step{Dial: "tcp site.example:8080"}); !strings.Contains(r.Err, "refused") {
		t.Errorf("a name that leads to a port that host.snapfs has: %q", r.Err)
	}
}

// TestRuleLimits apply to one rule, change with the rules, and survive a restart of the proxy.
func TestRuleLimits(t *testing.T) {
	w := newWorld(t, "site.example+connections=3,most.example+bytes=100000B,free.example")
	for _, name := range []string{"site.example", "most.example", "free.example"} {
		w.name(name, "203.0.113.10")
	}
	w.serve(t, "203.0.113.10:1", echo)
	talk := func(name string) []step {
		return []step{{Dial: "tcp " + name + ":1"}, {Send: binaryOf(80_000)}, {Read: 80_000}}
	}
	r := w.play(t, step{Crowd: 10, CrowdSteps: []step{{Dial: "tcp4 site.example:1"}, {Send: []byte{0}}, {Read: 1}, {Wait: 500}}})
	if len(r.Errs) != 7 || len(r.Read) != 3 || !strings.Contains(r.Errs[0], "refused") {
		t.Errorf("%d of 10 connections, and %q", len(r.Read), r.Errs)
	}
	w.refused(t, network.TCP, "site.example", "too many connections at once by site.example+connections=3")
	if r := w.play(t, step{Dial: "tcp site.example:1"}); r.Err != "" {
		t.Errorf("once they have ended: %s", r.Err)
	}
	// Echoed bytes count in both directions: half of the limit at most.
	if r := w.play(t, talk("most.example")...); !strings.Contains(r.Err, "reset") || len(r.Read) > 50_000 {
		t.Errorf("%d bytes back, %q", len(r.Read), r.Err)
	}
	w.awaitEvent(t, "a cut", func(ev network.Event) bool {
		return ev.Ended && ev.Why == "the limit of bytes is reached by most.example+bytes=100000B"
	})
	if r := w.play(t, talk("most.example")...); !strings.Contains(r.Err, "refused") {
		t.Errorf("after the limit: %q", r.Err)
	}
	if r := w.play(t, talk("free.example")...); r.Err != "" {
		t.Errorf("another rule: %s", r.Err)
	}
	c := w.edge.Counters()
	if used := c.Rules["most.example"]; used.Opened != 1 || used.Open != 0 || used.Bytes < 100_000 || c.Rules["free.example"].Bytes != 160_000 {
		t.Errorf("%+v", c)
	}
	next, err := New(w.tun, Options{Rules: w.edge.Rules(), Counters: c})
	if err != nil {
		t.Fatal(err)
	}
	if again := next.Counters(); again.BytesOut != c.BytesOut || again.Rules["most.example"] != c.Rules["most.example"] {
		t.Errorf("%+v, after %+v", again, c)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	more, err := network.Parse("most.example+bytes=1M")
	if err != nil {
		t.Fatal(err)
	}
	w.edge.Allow(more)
	if r := w.play(t, talk("most.example")...); r.Err != "" {
		t.Errorf("with a higher limit: %s", r.Err)
	}
}

// TestOptionsAllowHiddenNames for their rule alone.
func TestOptionsAllowHiddenNames(t *testing.T) {
	w := newWorld(t, "open.example+ech+quic,shut.example")
	hidden := withExtension(clientHello(t, "open.example"), extECH, []byte{0, 0, 1, 0, 1, 7, 0, 0, 0, 0})
	other := withExtension(clientHello(t, "shut.example"), extECH, []byte{0, 0, 1, 0, 1, 7, 0, 0, 0, 0})
	for _, name := range []string{"open.example", "shut.example"} {
		w.name(name, "203.0.113.10")
	}
	w.serve(t, "203.0.113.10:8443", func(conn net.Conn) {
		b := make([]byte, len(hidden))
		if n, _ := conn.Read(b); n > 0 { // no TLS: the proxy cannot know whether the server has keys
			_, _ = conn.Write([]byte("hello"))
		}
	})
	w.udpEcho(t, "203.0.113.10:443")
	long := append([]byte{0xc3, 0, 0, 0, 1}, make([]byte, 1195)...)
	for _, c := range []struct {
		to     string
		send   []byte
		answer string
	}{
		{"tcp open.example:8443", hidden, "hello"},
		{"tcp open.example:8443", other, ""}, // the outer name is checked
		{"tcp shut.example:8443", other, ""},
		{"udp open.example:443", long, string(long[:5])},
		{"udp shut.example:443", long, ""},
	} {
		r := w.play(t, step{Dial: c.to}, step{Send: c.send}, step{Read: 5})
		if string(r.Read) != c.answer {
			t.Errorf("%s: %q, %s", c.to, r.Read, r.Err)
		}
	}
}
