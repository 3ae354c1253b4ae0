//go:build linux

package edge

import (
	"encoding/binary"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/snapfs/snapfs/network"
)

func (e *Edge) nameOf(addr netip.Addr) string {
	if num, _ := network.NameNumber(addr); num > 0 {
		return e.names.name(num)
	}
	return ""
}

// prohibit4 returns the reply "prohibited" to an IPv4 packet that is an echo request to a host other than the
// gateway, or nil for another packet, and the packet's destination.
func prohibit4(pkt *stack.PacketBuffer) ([]byte, netip.Addr) {
	head, ok := pkt.Data().PullUp(header.IPv4MinimumSize)
	if !ok {
		return nil, netip.Addr{}
	}
	ip := header.IPv4(head)
	size := int(ip.HeaderLength())
	if ip.Protocol() != uint8(header.ICMPv4ProtocolNumber) || ip.FragmentOffset() != 0 || size < header.IPv4MinimumSize {
		return nil, netip.Addr{}
	}
	head, ok = pkt.Data().PullUp(size + header.ICMPv4MinimumSize)
	if !ok || header.ICMPv4(head[size:]).Type() != header.ICMPv4Echo {
		return nil, netip.Addr{}
	}
	ip = header.IPv4(head)
	to := netip.AddrFrom4(ip.DestinationAddress().As4())
	if to == network.Gateway4().Addr() {
		return nil, to
	}
	const fixed = header.IPv4MinimumSize + header.ICMPv4MinimumSize
	b := make([]byte, fixed+len(head)) // RFC 792: the header and 8 bytes of the refused packet
	copy(b[fixed:], head)
	reply := header.IPv4(b)
	reply.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(b)), TTL: 64, Protocol: uint8(header.ICMPv4ProtocolNumber),
		SrcAddr: tcpip.AddrFrom4(network.Gateway4().Addr().As4()), DstAddr: ip.SourceAddress(),
	})
	reply.SetChecksum(^reply.CalculateChecksum())
	message := header.ICMPv4(b[header.IPv4MinimumSize:])
	message.SetType(header.ICMPv4DstUnreachable)
	message.SetCode(header.ICMPv4AdminProhibited)
	message.SetChecksum(^checksum.Checksum(message, 0))
	return b, to
}

// prohibit6 returns the reply "prohibited" to an IPv6 packet that is an echo request to a host other than the
// gateway, or nil for another packet, and the packet's destination.
func prohibit6(pkt *stack.PacketBuffer) ([]byte, netip.Addr) {
	const fixed = header.IPv6MinimumSize + header.ICMPv6DstUnreachableMinimumSize
	head, ok := pkt.Data().PullUp(header.IPv6MinimumSize + header.ICMPv6MinimumSize)
	if !ok {
		return nil, netip.Addr{}
	}
	ip := header.IPv6(head)
	if ip.NextHeader() != uint8(header.ICMPv6ProtocolNumber) || header.ICMPv6(head[header.IPv6MinimumSize:]).Type() != header.ICMPv6EchoRequest {
		return nil, netip.Addr{}
	}
	to := netip.AddrFrom16(ip.DestinationAddress().As16())
	if to == network.Gateway6().Addr() || to.IsMulticast() {
		return nil, to
	}
	const most = header.IPv6MinimumMTU - fixed // RFC 4443: as much as fits
	head, ok = pkt.Data().PullUp(min(pkt.Data().Size(), most))
	if !ok {
		return nil, to
	}
	ip = header.IPv6(head)
	b := make([]byte, fixed+len(head))
	copy(b[fixed:], head)
	header.IPv6(b).Encode(&header.IPv6Fields{
		PayloadLength: uint16(len(b) - header.IPv6MinimumSize), TransportProtocol: header.ICMPv6ProtocolNumber, HopLimit: 64,
		SrcAddr: tcpip.AddrFrom16(network.Gateway6().Addr().As16()), DstAddr: ip.SourceAddress(),
	})
	message := header.ICMPv6(b[header.IPv6MinimumSize:])
	message.SetType(header.ICMPv6DstUnreachable)
	message.SetCode(header.ICMPv6Prohibited)
	binary.BigEndian.PutUint32(message[4:], 0)
	message.SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{
		Header: message, Src: header.IPv6(b).SourceAddress(), Dst: header.IPv6(b).DestinationAddress(),
	}))
	return b, to
}
