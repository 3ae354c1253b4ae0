//go:build linux

package edge

import (
	"net"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/network"
)

// TestNameLeadsToItsServer by IPv4 and IPv6, with all data in both directions.
func TestNameLeadsToItsServer(t *testing.T) {
	w := newWorld(t, "site.example:7")
	w.name("site.example", "203.0.113.10")
	w.serve(t, "203.0.113.10:7", echo)
	for _, kind := range []string{"tcp", "tcp4", "tcp6"} {
		r := w.play(t, step{Dial: kind + " site.example:7"}, step{Send: []byte("\x00hello")}, step{Close: true}, step{Read: -1})
		if r.Err != "" || string(r.Read) != "\x00hello" {
			t.Errorf("%s: %q, %s", kind, r.Read, r.Err)
		}
	}
	ev := w.awaitEvent(t, "the end", func(ev network.Event) bool { return ev.Ended })
	if ev.BytesIn != 6 || ev.BytesOut != 6 || ev.Rule != "site.example:7" || ev.Addr.String() != "203.0.113.10" || !ev.Allowed || ev.Why != "" {
		t.Errorf("the event of the end is %+v", ev)
	}
}

// TestServerMaySendFirst: its bytes do not wait for the client.
func TestServerMaySendFirst(t *testing.T) {
	w := newWorld(t, "ssh.example")
	w.name("ssh.example", "203.0.113.10")
	w.serve(t, "203.0.113.10:22", func(conn net.Conn) {
		_, _ = conn.Write([]byte("SSH-2.0-x\r\n"))
		echo(conn)
	})
	r := w.play(t, step{Dial: "tcp ssh.example:22"}, step{Read: 11}, step{Send: []byte("SSH-2.0-y z\r\n")}, step{Read: 13})
	if r.Err != "" || string(r.Read) != "SSH-2.0-x\r\nSSH-2.0-y z\r\n" {
		t.Errorf("%q, %s at %d", r.Read, r.Err, r.At)
	}
}

// TestForbiddenDestinationsAreRefusedAtOnce, without a time-out.
func TestForbiddenDestinationsAreRefusedAtOnce(t *testing.T) {
	w := newWorld(t, "site.example:80,192.0.2.7:99,*.wild.example")
	w.name("site.example", "203.0.113.10")
	for _, c := range []struct{ dial, err, kind, name, why string }{
		{"tcp other.example:80", "no such host", "dns", "other.example", "no rule allows"},
		{"tcp wild.example:80", "no such host", "dns", "wild.example", "no rule allows"},
		{"tcp site.example:81", "refused", "tcp", "site.example", "no rule allows site.example:81"},
		{"tcp 203.0.113.10:80", "refused", "tcp", "", "no rule names"},
		{"tcp [2001:db8::1]:80", "refused", "tcp", "", "no rule names"},
		{"tcp 192.0.2.7:98", "refused", "tcp", "", "no rule names"},
		{"tcp 8.8.8.8:53", "refused", "tcp", "", "another resolver"},
		{"tcp 169.254.169.254:80", "refused", "tcp", "", "no rule names"},
		{"tcp 198.19.77.77:80", "refused", "tcp", "", "no name leads"},
		{"tcp 198.18.0.1:80", "refused", "tcp", "", "no name leads"},
	} {
		w.forgetEvents()
		r := w.play(t, step{Dial: c.dial})
		if !strings.Contains(r.Err, c.err) {
			t.Errorf("%s: %q, not %q", c.dial, r.Err, c.err)
		}
		if r.Took.Seconds() > 2 {
			t.Errorf("%s is refused after %v", c.dial, r.Took)
		}
		w.refused(t, network.Kind(c.kind), c.name, c.why)
	}
}

// TestUnreachableServerIsNoRefusal: a reader of the record need not look for a rule.
func TestUnreachableServerIsNoRefusal(t *testing.T) {
	w := newWorld(t, "site.example:80,*.wild.example")
	w.name("site.example", "203.0.113.10")
	for name, why := range map[string]string{"site.example": "connection refused", "x.wild.example": "no such host"} {
		r := w.play(t, step{Dial: "tcp " + name + ":80"})
		if !strings.Contains(r.Err, "refused") || r.Took.Seconds() > 2 {
			t.Errorf("%s: %q after %v", name, r.Err, r.Took)
		}
		w.awaitEvent(t, name+" failed", func(ev network.Event) bool {
			return ev.Allowed && ev.Failed && ev.Rule != "" && ev.Name == name && strings.Contains(ev.Why, why)
		})
	}
	if n := w.edge.Counters().Refused; n != 0 {
		t.Error(n, "are counted as refused")
	}
}
