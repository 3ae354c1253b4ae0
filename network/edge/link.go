//go:build linux

package edge

import (
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/rawfile"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/snapfs/snapfs/network"
)

// A link is the proxy's side of the TUN device, between the device and the TCP/IP stack. It answers echo requests
// (pings) itself, because the stack would reply for every address, also of hosts that no rule allows. It replies
// "prohibited", which ends a ping at once, except for the gateway.
//
// It waits for packets by the poller of the Go runtime, as for sockets. The library's own link (fdbased) waits in a
// separate thread, which costs two thread switches for each packet.
type link struct {
	*channel.Endpoint // without its queue of outgoing packets
	edge              *Edge
	tun               *os.File
	fd                int           // of tun
	done              chan struct{} // closed when reading has ended; nil before start
}

// newLink returns a link on the edge's TUN device. It reads packets only after start.
func newLink(e *Edge) (*link, error) {
	conn, err := e.tun.SyscallConn()
	if err != nil {
		return nil, err
	}
	l := &link{Endpoint: channel.New(0, network.MTU, ""), edge: e, tun: e.tun}
	l.LinkEPCapabilities = stack.CapabilityRXChecksumOffload    // the local kernel that sends packets into the TUN has checked their sums
	return l, conn.Control(func(fd uintptr) { l.fd = int(fd) }) // valid until the stack has ended
}

// start begins to read packets from the sandbox's TUN device and to pass them to the TCP/IP stack.
func (l *link) start() {
	l.done = make(chan struct{})
	go func() {
		defer close(l.done)
		packet := make([]byte, maxPacket)
		for {
			n, err := l.tun.Read(packet)
			if err != nil {
				return // stopped, or the device is gone
			}
			l.deliver(packet[:n])
		}
	}()
}

// maxPacket is the size in bytes of the largest IP packet: the sandbox may set another MTU than network.MTU.
const maxPacket = 1 << 16

// stop ends reading packets from the TUN device and returns after all packets that were read have been handled.
func (l *link) stop() {
	if l.done != nil {
		_ = l.tun.SetReadDeadline(time.Unix(1, 0)) // on failure the device is gone, and reading has ended
		<-l.done
	}
}

// deliver handles a packet from inside the sandbox: it refuses echo requests to hosts other than the gateway, and
// passes other packets to the stack.
func (l *link) deliver(packet []byte) {
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithView(buffer.NewViewWithData(packet))})
	defer pkt.DecRef()
	var protocol tcpip.NetworkProtocolNumber
	var answer []byte
	var to netip.Addr
	switch header.IPVersion(packet) {
	case header.IPv4Version:
		protocol = header.IPv4ProtocolNumber
		answer, to = prohibit4(pkt)
	case header.IPv6Version:
		protocol = header.IPv6ProtocolNumber
		answer, to = prohibit6(pkt)
	default:
		return
	}
	if answer == nil {
		l.InjectInbound(protocol, pkt)
		return
	}
	l.edge.refuse(network.Event{Kind: network.ICMP, Name: l.edge.nameOf(to), Addr: to, Why: "echo requests are not relayed"})
	reply := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(answer)})
	reply.NetworkProtocolNumber = protocol
	defer reply.DecRef()
	var list stack.PacketBufferList
	list.PushBack(reply)
	_, _ = l.WritePackets(list) // a lost reply is like any lost packet
}

// WritePackets writes packets to the TUN device, and returns how many. An error drops the remaining ones, as any
// network may drop packets.
func (l *link) WritePackets(packets stack.PacketBufferList) (int, tcpip.Error) {
	for i, pkt := range packets.AsSlice() {
		var room [8]unix.Iovec
		parts := room[:0]
		views, skip := pkt.AsViewList()
		for view := views.Front(); view != nil; view = view.Next() {
			part := view.AsSlice()
			part, skip = part[min(skip, len(part)):], max(0, skip-len(part))
			parts = rawfile.AppendIovecFromBytes(parts, part, rawfile.MaxIovs)
		}
		if errno := rawfile.NonBlockingWriteIovec(l.fd, parts); errno != 0 {
			return i, tcpip.TranslateErrno(errno)
		}
	}
	return packets.Len(), nil
}
