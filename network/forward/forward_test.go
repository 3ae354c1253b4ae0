package forward

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/snapfs/snapfs/network"
)

// world is a forwarder to a server of this host, and its events.
type world struct {
	*Forwarder
	t      *testing.T
	server net.Listener

	mu     sync.Mutex
	events []network.Event
	more   *sync.Cond
}

func newWorld(t *testing.T) *world {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, server: l}
	w.more = sync.NewCond(&w.mu)
	dial := func(ctx context.Context, _ uint16) (net.Conn, netip.Addr, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
		return conn, netip.MustParseAddr("127.0.0.1"), err
	}
	w.Forwarder, err = Open(Options{Port: 80, Dial: dial, Event: func(all ...network.Event) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, all...)
		w.more.Broadcast()
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(w.Close(), w.Close()); err != nil {
			t.Error(err)
		}
		_ = l.Close()
	})
	return w
}

func (w *world) dial() *net.TCPConn {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.Addrs()[0].String())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	tcp, _ := conn.(*net.TCPConn)
	return tcp
}

func (w *world) accept() *net.TCPConn {
	w.t.Helper()
	conn, err := w.server.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	tcp, _ := conn.(*net.TCPConn)
	return tcp
}

// event waits for a matching event.
func (w *world) event(fits func(network.Event) bool) network.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		if i := slices.IndexFunc(w.events, fits); i >= 0 {
			return w.events[i]
		}
		w.more.Wait()
	}
}

func mustReset(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
}

// turnedAway checks that a connection is reset, perhaps before this side sees it established.
func (w *world) turnedAway(why string) {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.Addrs()[0].String())
	if err == nil {
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		w.t.Error(err)
	}
	w.event(func(ev network.Event) bool { return !ev.Allowed && ev.Why == why })
}

func TestBothDirectionsAndTheirEndsAreForwarded(t *testing.T) {
	w := newWorld(t)
	for _, at := range w.Addrs() {
		if !at.Addr().IsLoopback() || at.Port() != w.Addrs()[0].Port() {
			t.Error("it listens at", at)
		}
	}
	client, server := w.dial(), w.accept()
	question, answer := strings.Repeat("?", 1<<20), strings.Repeat("!", 3<<20)
	go func() {
		_, _ = io.WriteString(client, question)
		_ = client.CloseWrite()
	}()
	if got, err := io.ReadAll(server); err != nil || string(got) != question {
		t.Error(len(got), err)
	}
	go func() { // the end of one direction does not end the other
		_, _ = io.WriteString(server, answer)
		_ = server.CloseWrite()
	}()
	if got, err := io.ReadAll(client); err != nil || string(got) != answer {
		t.Error(len(got), err)
	}
	begun := w.event(func(ev network.Event) bool { return !ev.Ended })
	ended := w.event(func(ev network.Event) bool { return ev.Ended })
	if !begun.Allowed || begun.Kind != network.Port || begun.Port != 80 || begun.Rule != "port "+w.Addrs()[0].String() {
		t.Errorf("%+v", begun)
	}
	if !ended.Ended || ended.ID != begun.ID || ended.BytesIn != 1<<20 || ended.BytesOut != 3<<20 {
		t.Errorf("%+v", ended)
	}
}

func TestResetIsForwardedBothWays(t *testing.T) {
	w := newWorld(t)
	client, server := w.dial(), w.accept()
	_ = server.SetLinger(0)
	_ = server.Close()
	mustReset(t, client)
	client, server = w.dial(), w.accept()
	_ = client.SetLinger(0)
	_ = client.Close()
	mustReset(t, server)
}

func TestConnectionWithoutListenerIsReset(t *testing.T) {
	w := newWorld(t)
	_ = w.server.Close()
	w.turnedAway("no process listens there")
}

func TestConnectionAboveTheLimitIsReset(t *testing.T) {
	w := newWorld(t)
	var first *net.TCPConn
	for i := range maxConnections {
		client := w.dial()
		w.accept()
		if i == 0 {
			first = client
		}
	}
	w.turnedAway("too many connections at once")
	if err := w.Close(); err != nil { // ends all connections
		t.Error(err)
	}
	mustReset(t, first)
}

func TestOpenFailsOnATakenPort(t *testing.T) {
	w := newWorld(t)
	if _, err := Open(Options{Port: 80, Host: w.Addrs()[0].Port()}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Error(err)
	}
}

func TestParseIsStrict(t *testing.T) {
	for text, want := range map[string][2]uint16{"5432": {5432, 0}, "80:8080": {80, 8080}, "1:65535": {1, 65535}} {
		if port, host, err := Parse(text); err != nil || port != want[0] || host != want[1] {
			t.Error(text, port, host, err)
		}
	}
	for _, text := range []string{"", "0", "65536", "-1", "http", "80:", ":80", "80:0", "80:80:80", "127.0.0.1:80", " 80"} {
		if _, _, err := Parse(text); err == nil {
			t.Errorf("%q is a port", text)
		}
	}
}
