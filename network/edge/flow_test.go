//go:build linux

package edge

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/network"
)

// binary is data of no known protocol.
func binaryOf(n int) []byte { return bytes.Repeat([]byte{0}, n) }

// TestHalfCloseIsForwarded: each side may finish before the other.
func TestHalfCloseIsForwarded(t *testing.T) {
	w := newWorld(t, "site.example")
	w.name("site.example", "203.0.113.10")
	w.serve(t, "203.0.113.10:1", func(conn net.Conn) { // replies at the end of the request
		b, _ := io.ReadAll(conn)
		_, _ = conn.Write(bytes.ToUpper(b))
	})
	w.serve(t, "203.0.113.10:2", func(conn net.Conn) { // sends everything, then reads
		_, _ = conn.Write([]byte("bye"))
		_ = closeWrite(conn)
		b, _ := io.ReadAll(conn)
		w.place("203.0.113.99:1", string(b))
	})
	if r := w.play(t, step{Dial: "tcp site.example:1"}, step{Send: []byte("hello")}, step{Close: true}, step{Read: -1}); string(r.Read) != "HELLO" {
		t.Errorf("the client ends first: %q, %s", r.Read, r.Err)
	}
	if r := w.play(t, step{Dial: "tcp site.example:2"}, step{Read: -1}, step{Wait: 50}, step{Send: []byte("late words")}, step{Close: true}, step{Wait: 50}); string(r.Read) != "bye" || r.Err != "" {
		t.Errorf("the server ends first: %q, %s", r.Read, r.Err)
	}
	for range 100 {
		w.mu.Lock()
		late := w.places[netip.MustParseAddrPort("203.0.113.99:1")]
		w.mu.Unlock()
		if late == "late words" {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("what the client said last did not arrive")
}

// TestResetIsForwarded: a client can tell a server's reset from its end.
func TestResetIsForwarded(t *testing.T) {
	w := newWorld(t, "site.example")
	w.name("site.example", "203.0.113.10")
	w.serve(t, "203.0.113.10:1", func(conn net.Conn) {
		_, _ = io.ReadFull(conn, make([]byte, 1))
		reset(conn)
	})
	if r := w.play(t, step{Dial: "tcp site.example:1"}, step{Send: []byte{0}}, step{Read: -1}); !strings.Contains(r.Err, "reset") {
		t.Errorf("%q after %q", r.Err, r.Read)
	}
}

// TestSlowReaderBlocksTheSender: the proxy buffers a limited amount.
func TestSlowReaderBlocksTheSender(t *testing.T) {
	w := newWorld(t, "site.example")
	w.name("site.example", "203.0.113.10")
	sent := make(chan int64, 1)
	w.serve(t, "203.0.113.10:1", func(conn net.Conn) {
		_ = conn.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		n, _ := io.Copy(conn, zeros{})
		sent <- n
	})
	w.play(t, step{Dial: "tcp site.example:1"}, step{Wait: 700})
	if n := <-sent; n > 64<<20 || n == 0 {
		t.Errorf("%d bytes went to who reads none", n)
	}
}

// TestManyConnections: 200 connections at once, each with its own data.
func TestManyConnections(t *testing.T) {
	w := newWorld(t, "site.example")
	w.name("site.example", "203.0.113.10")
	w.serve(t, "203.0.113.10:1", echo)
	r := w.play(t, step{Crowd: 200, CrowdSteps: []step{{Dial: "tcp4 site.example:1"}, {Send: binaryOf(20000)}, {Close: true}, {Read: -1}}})
	if len(r.Errs) > 0 || len(r.Read) != 200*20000 {
		t.Errorf("%d bytes, %q", len(r.Read), r.Errs)
	}
	w.awaitEvent(t, "the end", func(ev network.Event) bool { return ev.Ended })
	if c := w.edge.Counters(); c.Opened != 200 || c.BytesIn != 200*20000 || c.BytesOut != c.BytesIn || c.EventsLost != 0 || c.Queries < 1 {
		t.Errorf("%+v", c)
	}
}

// TestLimitsOfConnectionsAndBytes are enforced and recorded.
func TestLimitsOfConnectionsAndBytes(t *testing.T) {
	w := newWorld(t, "site.example", func(o *Options) { o.MaxConnections, o.MaxBytes = 3, 100_000 })
	w.name("site.example", "203.0.113.10")
	w.serve(t, "203.0.113.10:1", echo)
	r := w.play(t, step{Crowd: 10, CrowdSteps: []step{{Dial: "tcp4 site.example:1"}, {Send: []byte{0}}, {Read: 1}, {Wait: 1000}}})
	if len(r.Errs) != 7 || len(r.Read) != 3 || !strings.Contains(r.Errs[0], "refused") {
		t.Errorf("%d of 10 connections, and %q", len(r.Read), r.Errs)
	}
	w.refused(t, network.TCP, "site.example", "too many connections")
	r = w.play(t, step{Dial: "tcp site.example:1"}, step{Send: binaryOf(1 << 20)}, step{Read: 1 << 20})
	if !strings.Contains(r.Err, "reset") && !strings.Contains(r.Err, "broken pipe") {
		t.Errorf("more bytes than are allowed: %q, after %d", r.Err, len(r.Read))
	}
	w.awaitEvent(t, "a cut", func(ev network.Event) bool { return ev.Ended && strings.Contains(ev.Why, "limit of bytes") })
	if r = w.play(t, step{Dial: "tcp site.example:1"}); !strings.Contains(r.Err, "refused") {
		t.Errorf("a connection after the limit: %q", r.Err)
	}
	if c := w.edge.Counters(); c.BytesIn+c.BytesOut > 100_000+2*copySize {
		t.Errorf("%+v", c)
	}
}

// TestAllowCutsForbiddenConnections that are open.
func TestAllowCutsForbiddenConnections(t *testing.T) {
	w := newWorld(t, "site.example,other.example")
	w.name("site.example", "203.0.113.10")
	w.name("other.example", "203.0.113.10")
	w.serve(t, "203.0.113.10:1", func(conn net.Conn) {
		_, _ = io.ReadFull(conn, make([]byte, 1))
		r, err := network.Parse("other.example,new.example")
		if err == nil {
			w.edge.Allow(r)
		}
		echo(conn)
	})
	if r := w.play(t, step{Dial: "tcp site.example:1"}, step{Send: []byte{0}}, step{Read: 1}); !strings.Contains(r.Err, "reset") {
		t.Errorf("%q", r.Err)
	}
	w.awaitEvent(t, "a cut", func(ev network.Event) bool {
		return ev.Ended && strings.Contains(ev.Why, "no rule allows site.example:1")
	})
	if r := w.play(t, step{Look: "site.example"}); !strings.Contains(r.Err, "no such host") {
		t.Errorf("%q", r.Err)
	}
	if r := w.play(t, step{Look: "new.example"}); r.Err != "" || w.edge.Rules().String() != "other.example,new.example" {
		t.Errorf("%q", r.Err)
	}
}

// TestPartialRequestIsForwardedInTime: a client that sends little and waits is not delayed for long.
func TestPartialRequestIsForwardedInTime(t *testing.T) {
	w := newWorld(t, "site.example")
	w.name("site.example", "203.0.113.10")
	w.serve(t, "203.0.113.10:1", echo)
	r := w.play(t, step{Dial: "tcp site.example:1"}, step{Send: []byte("ping")}, step{Read: 4}, step{Send: []byte("pong\n")}, step{Read: 5}, step{Send: []byte("more")}, step{Read: 4})
	if string(r.Read) != "pingpong\nmore" || r.Took > 2*time.Second {
		t.Errorf("%q, %s, after %v", r.Read, r.Err, r.Took)
	}
}

// udpEcho echoes datagrams at a made-up address.
func (w *world) udpEcho(t testing.TB, at string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.place(at, conn.LocalAddr().String())
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(b[:n], from)
		}
	}()
}

// TestDatagramsAreRelayed to a name and to an address that a rule allows, and no others.
func TestDatagramsAreRelayed(t *testing.T) {
	w := newWorld(t, "site.example:1-443,192.0.2.0/24:5")
	w.name("site.example", "203.0.113.10")
	w.udpEcho(t, "203.0.113.10:5")
	w.udpEcho(t, "192.0.2.7:5")
	for _, to := range []string{"udp4 site.example:5", "udp6 site.example:5", "udp 192.0.2.7:5"} {
		r := w.play(t, step{Dial: to}, step{Send: []byte("one")}, step{Read: 3}, step{Send: binaryOf(9000)}, step{Read: 9000})
		if r.Err != "" || !strings.HasPrefix(string(r.Read), "one") {
			t.Errorf("%s: %q, %s", to, r.Read[:min(len(r.Read), 9)], r.Err)
		}
	}
	long := append([]byte{0xc3, 0, 0, 0, 1}, make([]byte, 1195)...)
	for to, why := range map[string]string{"site.example:443": "QUIC", "site.example:5": "QUIC", "site.example:500": "no rule allows", "192.0.2.7:6": "no rule names"} {
		w.forgetEvents()
		steps := []step{{Dial: "udp " + to}, {Send: long}, {Wait: 50}}
		if to != "site.example:5" { // a flow that begins with other datagrams is cut when QUIC appears
			steps = append(steps, step{Read: 1})
		}
		if r := w.play(t, steps...); len(r.Read) > 0 || len(steps) > 3 && !strings.Contains(r.Err, "refused") {
			t.Errorf("%s: %d bytes back, %q", to, len(r.Read), r.Err)
		}
		w.awaitEvent(t, to, func(ev network.Event) bool {
			return ev.Kind == network.UDP && !ev.Allowed && strings.Contains(ev.Why, why)
		})
	}
}

// TestPingsEndAtOnce: only the gateway replies to pings.
func TestPingsEndAtOnce(t *testing.T) {
	w := newWorld(t, "site.example")
	if r := w.play(t, step{Look: "site.example"}); r.Err != "" {
		t.Fatal(r.Err)
	}
	four, six := []byte{8, 0, 0xf7, 0xff - 1, 0, 1, 0, 0}, []byte{128, 0, 0, 0, 0, 1, 0, 0}
	for at, ping := range map[string][]byte{"ip4:icmp 203.0.113.10": four, "ip4:icmp 198.19.0.1": four, "ip6:ipv6-icmp 2001:db8::1": six} {
		r := w.play(t, step{Dial: at}, step{Send: ping}, step{Read: 8})
		if !strings.Contains(r.Err, "no route to host") && !strings.Contains(r.Err, "permission denied") || r.Took > 2*time.Second {
			t.Errorf("%s: %q, %q after %v", at, r.Read, r.Err, r.Took)
		}
	}
	w.refused(t, network.ICMP, "site.example", "not relayed")
	for at, ping := range map[string][]byte{"ip4:icmp 198.18.0.1": four, "ip6:ipv6-icmp fd73:6e61:7066:73::1": six} {
		if r := w.play(t, step{Dial: at}, step{Send: ping}, step{Read: 8}); r.Err != "" {
			t.Errorf("%s: %s", at, r.Err)
		}
	}
}

// TestCloseLeavesNothing with connections, datagrams and a port forward open, and one connection being opened.
func TestCloseLeavesNothing(t *testing.T) {
	w := newWorld(t, "site.example", func(o *Options) { o.Events = nil })
	old := goleak.IgnoreCurrent()
	_ = w.edge.Close()
	treetest.Leaks(t)
	var err error
	rules, _ := network.Parse("site.example")
	if w.edge, err = New(w.tun, Options{Rules: rules, Events: w.note, Lookup: w.lookup, Dial: w.dial}); err != nil {
		t.Fatal(err)
	}
	w.name("site.example", "203.0.113.10")
	arrived := make(chan bool, 20)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.place("203.0.113.10:1", l.Addr().String())
	var open []net.Conn
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				close(arrived)
				return
			}
			open = append(open, conn)
			arrived <- true
		}
	}()
	done := make(chan result, 1)
	go func() {
		done <- w.play(t, step{Crowd: 10, CrowdSteps: []step{{Dial: "tcp4 site.example:1"}, {Send: []byte("GE")}, {Read: -1}}})
	}()
	for range 10 {
		<-arrived
	}
	for w.edge.Counters().Opened < 10 {
		time.Sleep(time.Millisecond)
	}
	if err := w.edge.Close(); err != nil {
		t.Error(err)
	}
	if err := w.edge.Close(); err != nil {
		t.Error("closed again:", err)
	}
	_ = l.Close()
	for range arrived { // until the channel is closed
	}
	for _, conn := range open {
		_ = conn.Close()
	}
	if c := w.edge.Counters(); c.Open != 0 || c.Opened < 10 {
		t.Errorf("%+v", c)
	}
	w.awaitEvent(t, "the cut", func(ev network.Event) bool { return ev.Ended && ev.Allowed && ev.Why == closedWhy })
	r := <-done
	if len(r.Errs) != 10 || r.Took > 5*time.Second {
		t.Errorf("after %v: %q", r.Took, r.Errs)
	}
	goleak.VerifyNone(t, old)
}

// TestSlowListenerDelaysNoTraffic: dropped events are counted.
func TestSlowListenerDelaysNoTraffic(t *testing.T) {
	stuck := make(chan struct{})
	w := newWorld(t, "site.example", func(o *Options) { o.Events = func([]network.Event) { <-stuck } })
	for range maxQueued + maxBatch + 10 { // the listener has taken one batch at most
		w.edge.refuse(network.Event{Kind: network.DNS})
	}
	if r := w.play(t, step{Look: "site.example"}); r.Err != "" {
		t.Error(r.Err)
	}
	close(stuck)
	if lost := w.edge.Counters().EventsLost; lost < 10 {
		t.Error(lost, "events lost")
	}
}
