//go:build linux

package edge

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/network"
)

// world is a proxy on a namespace, with made-up names and servers. Servers listen on this host's loopback; the
// proxy sees them at addresses that look public, so that its checks are real. No packet leaves the machine:
// other addresses cannot be dialled.
type world struct {
	*space
	edge *Edge

	mu     sync.Mutex
	names  map[string][]netip.Addr
	places map[netip.AddrPort]string // the real address of a made-up one
	events []network.Event
}

// needTUN skips the test if this user may not open the device, as on some machines.
func needTUN(t testing.TB) {
	t.Helper()
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		treetest.Skip(t, "/dev/net/tun", err.Error())
	}
	_ = f.Close()
}

// newWorld creates a world with these rules; options change the proxy's options.
func newWorld(t testing.TB, rules string, options ...func(*Options)) *world {
	t.Helper()
	needTUN(t)
	r, err := network.Parse(rules)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{space: newSpace(t), names: map[string][]netip.Addr{}, places: map[netip.AddrPort]string{}}
	o := Options{Rules: r, Events: w.note, Lookup: w.lookup, Dial: w.dial}
	for _, change := range options {
		change(&o)
	}
	if w.edge, err = New(w.tun, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.edge.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) note(all []network.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, all...)
}

func (w *world) lookup(_ context.Context, name string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if addrs, ok := w.names[name]; ok {
		return addrs, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

func (w *world) dial(ctx context.Context, kind string, to netip.AddrPort) (net.Conn, error) {
	w.mu.Lock()
	place, ok := w.places[to]
	w.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("%s: connection refused", to)
	}
	return (&net.Dialer{}).DialContext(ctx, kind, place)
}

// name maps a name to addr.
func (w *world) name(name string, addrs ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range addrs {
		w.names[name] = append(w.names[name], netip.MustParseAddr(a))
	}
}

// serve makes f serve each connection to the made-up address.
func (w *world) serve(t testing.TB, at string, f func(net.Conn)) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.place(at, l.Addr().String())
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer conn.Close()
				f(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		_ = w.edge.Close() // ends open connections
		work.Wait()
	})
}

func (w *world) place(at, where string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.places[netip.MustParseAddrPort(at)] = where
}

// echo replies with everything it read, at the end.
func echo(conn net.Conn) { _, _ = io.Copy(conn, conn) }

// awaitEvent waits for a matching event, and fails the test if none comes.
func (w *world) awaitEvent(t testing.TB, what string, fits func(network.Event) bool) network.Event {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		w.mu.Lock()
		events := slices.Clone(w.events)
		w.mu.Unlock()
		if i := slices.IndexFunc(events, fits); i >= 0 {
			return events[i]
		}
		if time.Now().After(deadline) {
			t.Errorf("no event tells of %s, among %d:", what, len(events))
			for _, ev := range events {
				t.Errorf("  %+v", ev)
			}
			return network.Event{}
		}
	}
}

// refused waits for the event of a refusal.
func (w *world) refused(t testing.TB, kind network.Kind, name, why string) network.Event {
	t.Helper()
	return w.awaitEvent(t, name+" refused, "+why, func(ev network.Event) bool {
		return !ev.Allowed && ev.Kind == kind && ev.Name == name && strings.Contains(ev.Why, why)
	})
}

// forgetEvents discards the events so far.
func (w *world) forgetEvents() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = nil
}

func mustAddr(t testing.TB, s string) netip.Addr {
	t.Helper()
	a, err := netip.ParseAddr(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
