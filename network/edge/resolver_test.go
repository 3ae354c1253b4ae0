//go:build linux

package edge

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/snapfs/snapfs/network"
)

// ask sends a query like a resolver library.
func ask(t testing.TB, name string, kind dnsmessage.Type) []byte {
	t.Helper()
	n, err := dnsmessage.NewName(name)
	if err != nil {
		t.Fatal(err)
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: n, Type: kind, Class: dnsmessage.ClassINET}},
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func answerOf(t testing.TB, b []byte) dnsmessage.Message {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(b); err != nil {
		t.Fatalf("%v: %x", err, b)
	}
	return m
}

// TestSeveralQueriesFromOnePort: C libraries send A and AAAA queries together.
func TestSeveralQueriesFromOnePort(t *testing.T) {
	w := newWorld(t, "site.example")
	a, aaaa := ask(t, "site.example.", dnsmessage.TypeA), ask(t, "SITE.example.", dnsmessage.TypeAAAA)
	r := w.play(t, step{Dial: "udp 198.18.0.1:53"}, step{Send: a}, step{Send: aaaa}, step{Read: 46}, step{Read: 58})
	if r.Err != "" {
		t.Fatalf("%s at step %d, after %x", r.Err, r.At, r.Read)
	}
	four, six := answerOf(t, r.Read[:46]), answerOf(t, r.Read[46:])
	if len(four.Answers) != 1 || len(six.Answers) != 1 || six.Answers[0].Header.Type != dnsmessage.TypeAAAA {
		t.Errorf("%v\n%v", four.GoString(), six.GoString())
	}
	again := w.play(t, step{Look: "site.example"}).Addrs
	if len(again) != 2 || again[0] != "198.19.0.1" || again[1] != "fd73:6e61:7066:73::1:1" {
		t.Errorf("the name has the addresses %q", again)
	}
}

// TestQueriesBeforeTheProxyAreAnswered: a program that starts before its proxy loses no query.
func TestQueriesBeforeTheProxyAreAnswered(t *testing.T) {
	needTUN(t)
	rules, err := network.Parse("site.example")
	if err != nil {
		t.Fatal(err)
	}
	s := newSpace(t)
	for range 30 { // each time the order may differ
		asked := s.socket(t, "udp", netip.AddrPortFrom(network.Gateway4().Addr(), dnsPort))
		if _, err := asked.Write(ask(t, "site.example.", dnsmessage.TypeA)); err != nil {
			t.Fatal(err)
		}
		e, err := New(s.tun, Options{Rules: rules})
		if err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 512)
		if err := asked.SetReadDeadline(time.Now().Add(3 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := asked.Read(answer)
		if err != nil {
			t.Error(err)
		} else if m := answerOf(t, answer[:n]); len(m.Answers) != 1 {
			t.Errorf("%v", m.GoString())
		}
		if err := errors.Join(e.Close(), asked.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestResolverServesTCP over IPv6, two queries on one connection.
func TestResolverServesTCP(t *testing.T) {
	w := newWorld(t, "site.example")
	q := ask(t, "site.example.", dnsmessage.TypeA)
	framed := append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...)
	r := w.play(t, step{Dial: "tcp [fd73:6e61:7066:73::1]:53"}, step{Send: framed}, step{Read: 48}, step{Send: framed, Slow: true}, step{Read: 48})
	if r.Err != "" || len(answerOf(t, r.Read[50:]).Answers) != 1 {
		t.Errorf("%s at step %d, after %x", r.Err, r.At, r.Read)
	}
}

// TestAllowedNameHasOnlyAddresses: the resolver never gives records with keys for a hidden server name, or of
// other names.
func TestAllowedNameHasOnlyAddresses(t *testing.T) {
	e := &Edge{}
	rules, err := network.Parse("site.example:443")
	if err != nil {
		t.Fatal(err)
	}
	e.rules.Store(&rules)
	const https, svcb = dnsmessage.Type(65), dnsmessage.Type(64)
	for _, c := range []struct {
		name    string
		kind    dnsmessage.Type
		answers int
		code    dnsmessage.RCode
	}{
		{"site.example.", dnsmessage.TypeA, 1, dnsmessage.RCodeSuccess},
		{"site.example.", dnsmessage.TypeAAAA, 1, dnsmessage.RCodeSuccess},
		{"site.example.", https, 0, dnsmessage.RCodeSuccess},
		{"site.example.", svcb, 0, dnsmessage.RCodeSuccess},
		{"site.example.", dnsmessage.TypeMX, 0, dnsmessage.RCodeSuccess},
		{"site.example.", dnsmessage.TypeTXT, 0, dnsmessage.RCodeSuccess},
		{"site.example.", dnsmessage.TypeSRV, 0, dnsmessage.RCodeSuccess},
		{"site.example.", dnsmessage.TypeALL, 0, dnsmessage.RCodeSuccess},
		{"other.example.", dnsmessage.TypeA, 0, dnsmessage.RCodeNameError},
		{"other.example.", dnsmessage.TypeTXT, 0, dnsmessage.RCodeNameError},
		{"localhost.", dnsmessage.TypeA, 0, dnsmessage.RCodeNameError},
		{"a.localhost.", dnsmessage.TypeA, 0, dnsmessage.RCodeNameError},
		{".", dnsmessage.TypeNS, 0, dnsmessage.RCodeNameError},
		{"_http._tcp.site.example.", dnsmessage.TypeSRV, 0, dnsmessage.RCodeNameError},
		{"_http._tcp.site.example.", dnsmessage.TypeA, 0, dnsmessage.RCodeNameError},
		{strings.Repeat("x", 60) + ".site.example.", dnsmessage.TypeA, 0, dnsmessage.RCodeNameError},
	} {
		m := answerOf(t, e.answer(ask(t, c.name, c.kind)))
		if len(m.Answers) != c.answers || m.RCode != c.code || m.ID != 7 || !m.Response || len(m.Additionals) > 0 {
			t.Errorf("%s %v: %s", c.name, c.kind, m.GoString())
		}
	}
}

// TestServiceQueryIsNoRefusal: the client falls back to the name, and no rule has to change.
func TestServiceQueryIsNoRefusal(t *testing.T) {
	e := &Edge{}
	rules, err := network.Parse("site.example:443")
	if err != nil {
		t.Fatal(err)
	}
	e.rules.Store(&rules)
	for name, refused := range map[string]int64{
		"_http._tcp.site.example.": 0, "_sip._udp.site.example.": 0,
		"_http._tcp.other.example.": 1, "_tcp.site.example.": 1, "http._tcp.site.example.": 1, "_x._y.site.example.": 1, "_http._tcp.x.site.example.": 1,
	} {
		before := e.refusals.Load()
		if m := answerOf(t, e.answer(ask(t, name, dnsmessage.TypeSRV))); m.RCode != dnsmessage.RCodeNameError || len(m.Answers) > 0 {
			t.Errorf("%s: %s", name, m.GoString())
		}
		if got := e.refusals.Load() - before; got != refused {
			t.Errorf("%s: %d refusals, want %d", name, got, refused)
		}
	}
}

// TestResolverSurvivesNonsense and still answers queries.
func TestResolverSurvivesNonsense(t *testing.T) {
	e := &Edge{}
	e.rules.Store(&network.Rules{})
	for _, b := range [][]byte{nil, {0}, make([]byte, 11), []byte(strings.Repeat("\xff", 600))} {
		if a := e.answer(b); a != nil {
			t.Errorf("%x is answered with %x", b, a)
		}
	}
	two := ask(t, "a.example.", dnsmessage.TypeA)
	two[5] = 2 // claims two questions, of which one is there
	if m := answerOf(t, e.answer(two)); m.RCode != dnsmessage.RCodeFormatError {
		t.Errorf("half a message is answered with %s", m.GoString())
	}
	update := ask(t, "a.example.", dnsmessage.TypeA)
	update[2] |= 5 << 3
	if m := answerOf(t, e.answer(update)); m.RCode != dnsmessage.RCodeNotImplemented {
		t.Errorf("an update is answered with %s", m.GoString())
	}
	chaos := ask(t, "version.bind.", dnsmessage.TypeTXT)
	chaos[len(chaos)-1] = 3
	if m := answerOf(t, e.answer(chaos)); m.RCode != dnsmessage.RCodeRefused {
		t.Errorf("another class is answered with %s", m.GoString())
	}
}

// TestNamesSurviveARestart: an address that a process remembers keeps its name and never gets another.
func TestNamesSurviveARestart(t *testing.T) {
	n := names{max: 5}
	n.restore(map[string]int{"b": 2, "d": 9, "e": 2}, 3) // 1 and 3 were given to unknown names; 9 is invalid
	for num, name := range []string{1: "", 2: "", 3: "", 4: "new", 5: "a"} {
		if name != "" {
			if four, _ := n.addrs(name); four != first(network.NameAddrs(num)) {
				t.Errorf("%s has %s", name, four)
			}
		}
	}
	if got := n.name(2); got != "b" && got != "e" {
		t.Error("2 is", got)
	}
	if n.name(1) != "" || n.name(3) != "" {
		t.Error("an address that was another's leads to", n.name(1), n.name(3))
	}
}

func first(four, _ netip.Addr) netip.Addr { return four }

// TestNameKeepsItsAddressWhileTheTableHasRoom and loses it when it is the least recently used.
func TestNameKeepsItsAddressWhileTheTableHasRoom(t *testing.T) {
	n := names{max: 3}
	first := func(name string) string { four, _ := n.addrs(name); return four.String() }
	a, b, c := first("a"), first("b"), first("c")
	if a == b || b == c || first("a") != a {
		t.Fatal(a, b, c)
	}
	num, _ := network.NameNumber(mustAddr(t, b))
	if n.name(num) != "b" { // a use: c is the oldest now
		t.Fatal("b's address stands for", n.name(num))
	}
	if d := first("d"); d != c {
		t.Errorf("d has %s, not c's %s", d, c)
	}
	if first("a") != a || first("b") != b {
		t.Error("a name in use has moved")
	}
	if got := first("c"); got != first("c") || len(n.byName) != 3 || len(n.byNum) != 3 {
		t.Error("c came back to", got, len(n.byName), len(n.byNum))
	}
	num, _ = network.NameNumber(mustAddr(t, first("c")))
	if n.name(num) != "c" {
		t.Error("c's address stands for", n.name(num))
	}
}
