package edge

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"

	"github.com/snapfs/snapfs/network"
)

// Forward opens a TCP connection to a server inside. Where inside is an IPv4
// loopback address, the sandbox's interface must let such addresses through
// (net.ipv4.conf.DEVICE.route_localnet=1), which it may: nobody else is on that wire. IPv6 has no such way, and [::1] is
// reached only by servers that listen on IPv4 too. The caller closes the
// connection; closing the edge ends it. No rule is asked: it is the user's own way in.
func (e *Edge) Forward(ctx context.Context, inside netip.AddrPort) (net.Conn, error) {
	if !e.enter() {
		return nil, ErrClosed
	}
	defer e.work.Done()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer afterDone(e.ctx, stop)()
	to := netip.AddrPortFrom(inside.Addr().Unmap(), inside.Port())
	from := network.Gateway4()
	if to.Addr().Is6() {
		from = network.Gateway6()
	}
	conn, err := gonet.DialTCPWithBind(ctx, e.stack, full(netip.AddrPortFrom(from.Addr(), 0)), full(to), protocolOf(to.Addr()))
	if err != nil {
		return nil, fmt.Errorf("connecting to port %d of the sandbox: %w", inside.Port(), err)
	}
	return conn, nil
}
