package prove

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate"
	"github.com/snapfs/snapfs/network"
	"github.com/snapfs/snapfs/network/edge"
)

// With a network proxy, the allowed destination is reached and no other, by any probed way.
func TestNetworkProbesAreHeldByTheProxy(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	const allowed, at = "allowed.example", "93.184.216.34"
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go answer(server)
	rules, err := network.Parse(allowed + ":443")
	if err != nil {
		t.Fatal(err)
	}
	container := open(t, isolate.Spec{
		Mounts:  []isolate.Mount{{Target: "/", Source: "/", ReadOnly: true}},
		Network: isolate.NetworkEdge, IDs: isolate.Own(1 << 28), Resolver: network.Gateway4().Addr(),
		Edge: &isolate.EdgeAddrs{
			V4: network.Inside4(), Gateway4: network.Gateway4().Addr(), V6: network.Inside6(), Gateway6: network.Gateway6().Addr(), MTU: network.MTU,
		},
	})
	tun := container.Tun()
	defer tun.Close()
	e, err := edge.New(tun, edge.Options{
		Rules:  rules,
		Lookup: func(context.Context, string) ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr(at)}, nil },
		Dial: func(ctx context.Context, kind string, _ netip.AddrPort) (net.Conn, error) { // whatever the address
			return (&net.Dialer{}).DialContext(ctx, kind, server.Addr().String())
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	_, port, _ := net.SplitHostPort(server.Addr().String())
	for name, args := range map[string][]string{
		"name": {"refused.example:443"}, "ipv4": {at + ":443"}, "ipv6": {"[2606:2800::1]:443"}, "resolver": {"9.9.9.9:53", allowed},
		"metadata": nil, "loopback": {port}, "tls-name": {allowed + ":443", "refused.example"}, "http-name": {allowed + ":443", "refused.example"},
		"tls-record": {allowed + ":443", "refused.example"}, "http-blank": {allowed + ":443", "refused.example"},
	} {
		if r := inside(t, container, 0, name, args...); !r.Held {
			t.Errorf("%+v", r)
		}
	}
	if r := inside(t, container, 0, "name", allowed+":443"); r.Held || strings.HasPrefix(r.Happened, "could not") {
		t.Errorf("the allowed name: %+v", r)
	}
	if r := inside(t, container, 0, "resolver", network.Gateway4().Addr().String()+":53", allowed); r.Held {
		t.Errorf("the right name server: %+v", r)
	}
}

// answer is a server that replies to every message.
func answer(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			var b [2000]byte
			if _, err := c.Read(b[:]); err == nil {
				_, _ = c.Write([]byte{21, 3, 3, 0, 2, 2, 40})
			}
		}()
	}
}

// A real server parses the hand-made ClientHello and finds the name in it.
func TestClientHelloIsValid(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	asked := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_ = tls.Server(c, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			asked <- h.ServerName
			return nil, nil // the server has no certificate and sends an alert
		}}).Handshake()
	}()
	if n, err := answered(l.Addr().String(), clientHello("some.example")); n == 0 {
		t.Errorf("no answer: %v", err)
	}
	select {
	case name := <-asked:
		if name != "some.example" {
			t.Errorf("the server was asked for %q", name)
		}
	case <-time.After(5 * time.Second):
		t.Error("the server did not understand")
	}
}
