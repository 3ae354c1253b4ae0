//go:build linux

package edge

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/snapfs/snapfs/network"
)

// nic is the id of the only network interface of the proxy's TCP/IP stack.
const nic tcpip.NICID = 1

// window is how many unacknowledged bytes a connection may have in each direction, which bounds the memory
// that a sandbox can make the proxy use. Four times as much was a quarter faster.
const window = 1 << 20

// maxOpening is how many connections may wait at once for the decision whether they are allowed. The stack
// drops the first packets of further ones, which clients repeat after a second.
const maxOpening = 4096

// duplicate returns another descriptor of the TUN device for the TCP/IP stack, without blocking. The caller closes it,
// but only after the stack has ended.
func duplicate(tun *os.File) (*os.File, error) {
	conn, err := tun.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	var failed error
	if err := conn.Control(func(old uintptr) {
		fd, failed = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
	}); err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, os.NewSyscallError("fcntl", failed)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // also for tun, which shares it
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), tun.Name()), nil
}

// begin creates the TCP/IP stack on the sandbox's TUN device and starts to serve the sandbox's connections.
func (e *Edge) begin() error {
	var err error
	if e.link, err = newLink(e); err != nil {
		return err
	}
	e.stack = newStack()
	if err := e.setUp(e.link); err != nil {
		return err
	}
	if err := e.resolve(); err != nil {
		return err
	}
	if e.options.Ready != nil {
		if err := e.options.Ready(); err != nil {
			return err
		}
	}
	e.link.start()
	return nil
}

func newStack() *stack.Stack {
	return stack.New(stack.Options{
		NetworkProtocols: []stack.NetworkProtocolFactory{
			ipv4.NewProtocol,
			ipv6.NewProtocol,
		},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
	})
}

// setUp makes the TCP/IP stack accept every packet of the sandbox, whatever its destination, and reply from
// every address, because the proxy stands for all hosts outside.
func (e *Edge) setUp(link stack.LinkEndpoint) error {
	s := e.stack
	first := func(errs ...tcpip.Error) error {
		for _, err := range errs {
			if err != nil {
				return fmt.Errorf("setting up the stack: %s", err)
			}
		}
		return nil
	}
	sack := tcpip.TCPSACKEnabled(true)
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: window / 2, Max: window}
	send := tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: window / 2, Max: window}
	s.SetTransportProtocolHandler(tcp.ProtocolNumber, tcp.NewForwarder(s, 0, maxOpening, e.connection).HandlePacket)
	s.SetTransportProtocolHandler(udp.ProtocolNumber, udp.NewForwarder(s, e.datagram).HandlePacket)
	if err := first(
		s.SetTransportProtocolOption(tcp.ProtocolNumber, &sack),
		s.SetTransportProtocolOption(tcp.ProtocolNumber, &receive),
		s.SetTransportProtocolOption(tcp.ProtocolNumber, &send),
		s.CreateNIC(nic, link),
		s.SetPromiscuousMode(nic, true),
		s.SetSpoofing(nic, true),
	); err != nil {
		return err
	}
	for _, p := range []netip.Prefix{network.Gateway4(), network.Gateway6()} {
		if err := first(s.AddProtocolAddress(nic, tcpip.ProtocolAddress{
			Protocol:          protocolOf(p.Addr()),
			AddressWithPrefix: tcpip.AddressWithPrefix{Address: tcpip.AddrFromSlice(p.Addr().AsSlice()), PrefixLen: p.Bits()},
		}, stack.AddressProperties{})); err != nil {
			return err
		}
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}, {Destination: header.IPv6EmptySubnet, NIC: nic}})
	return nil
}

func protocolOf(addr netip.Addr) tcpip.NetworkProtocolNumber {
	if addr.Is4() {
		return ipv4.ProtocolNumber
	}
	return ipv6.ProtocolNumber
}

// full converts an address and port to the type that the TCP/IP stack takes.
func full(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFromSlice(a.Addr().AsSlice()), Port: a.Port()}
}

// destination returns the destination of a packet from inside the sandbox. In the stack's id it is the local
// address, because the stack acts as the destination.
func destination(id stack.TransportEndpointID) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(id.LocalAddress.AsSlice())
	return netip.AddrPortFrom(addr.Unmap(), id.LocalPort)
}

// drop closes a connection without waiting until its data is sent; the stack or the kernel has everything
// that was written.
func drop(c io.Closer) { _ = c.Close() }

// closeWrite ends the sending direction of conn, so that the other end reads the end of the data, if conn
// supports that.
func closeWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return conn.Close()
}
