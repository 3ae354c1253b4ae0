//go:build linux

package edge

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/stdio"
	"github.com/snapfs/snapfs/network"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// datagramFrom returns a datagram as a process inside sends it.
func datagramFrom(to netip.AddrPort, payload []byte) []byte {
	src, dst := tcpip.AddrFrom4(network.Inside4().Addr().As4()), tcpip.AddrFrom4(to.Addr().As4())
	b := make([]byte, header.IPv4MinimumSize+header.UDPMinimumSize+len(payload))
	ip := header.IPv4(b)
	ip.Encode(&header.IPv4Fields{TotalLength: uint16(len(b)), TTL: 64, Protocol: uint8(header.UDPProtocolNumber), SrcAddr: src, DstAddr: dst})
	ip.SetChecksum(^ip.CalculateChecksum())
	udp := header.UDP(b[header.IPv4MinimumSize:])
	udp.Encode(&header.UDPFields{SrcPort: 4000, DstPort: to.Port(), Length: uint16(len(udp))})
	copy(udp.Payload(), payload)
	sum := header.PseudoHeaderChecksum(header.UDPProtocolNumber, src, dst, uint16(len(udp)))
	udp.SetChecksum(^udp.CalculateChecksum(checksum.Checksum(payload, sum)))
	return b
}

// wire returns a TUN device and its other end. The test closes the first.
func wire(t *testing.T) (wire, tun *os.File) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	wire, tun = os.NewFile(uintptr(pair[0]), "wire"), os.NewFile(uintptr(pair[1]), "tun")
	t.Cleanup(func() { wire.Close() })
	return wire, tun
}

// TestCloseWhilePacketsArrive: every packet that was read is decided on.
func TestCloseWhilePacketsArrive(t *testing.T) {
	const each = 20
	packet := datagramFrom(netip.MustParseAddrPort("192.0.2.7:99"), []byte("x"))
	for range 30 {
		wire, tun := wire(t)
		var events atomic.Int64
		e, err := New(tun, Options{Events: func(all []network.Event) { events.Add(int64(len(all))) }})
		if err != nil {
			t.Fatal(err)
		}
		for range each {
			if _, err := wire.Write(packet); err != nil {
				t.Fatal(err)
			}
		}
		for stdio.Readable(tun) {
			runtime.Gosched()
		}
		ended := make(chan error)
		go func() { ended <- e.Close() }()
		select {
		case err := <-ended:
			if err != nil || events.Load() != each {
				t.Fatal("events:", events.Load(), "of", each, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("it does not end")
		}
		tun.Close()
		wire.Close()
	}
}

// TestProxySurvivesAnyPacket: the root of a sandbox can forge every byte of what it sends. Afterwards the
// resolver still replies.
func TestProxySurvivesAnyPacket(t *testing.T) {
	wire, tun := wire(t)
	rules, err := network.Parse("site.example,0.0.0.0/0,::/0")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{names: map[string][]netip.Addr{}, places: map[netip.AddrPort]string{}}
	e, err := New(tun, Options{Rules: rules, Lookup: w.lookup, Dial: w.dial})
	if err != nil {
		t.Fatal(err)
	}
	tun.Close()
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	resolver := netip.AddrPortFrom(network.Gateway4().Addr(), dnsPort)
	question := datagramFrom(resolver, ask(t, "site.example.", dnsmessage.TypeA))
	ping6 := make([]byte, 48)
	header.IPv6(ping6).Encode(&header.IPv6Fields{PayloadLength: 8, TransportProtocol: header.ICMPv6ProtocolNumber, HopLimit: 64, SrcAddr: tcpip.AddrFrom16(network.Inside6().Addr().As16()), DstAddr: tcpip.AddrFrom16(network.Gateway6().Addr().Next().As16())})
	ping6[40] = 128
	ping4 := datagramFrom(resolver, make([]byte, 20))
	ping4[9], ping4[20] = 1, 8
	syn := datagramFrom(netip.MustParseAddrPort("192.0.2.7:80"), make([]byte, 12))
	syn[9], syn[32], syn[33] = 6, 5<<4, 2

	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	seeds := [][]byte{question, ping4, ping6, syn, make([]byte, 1), bytes.Repeat([]byte{0x45}, 90)}
	answer := make([]byte, 1<<16)
	for range 20_000 {
		p := bytes.Clone(seeds[random.IntN(len(seeds))])
		for range random.IntN(6) {
			p[random.IntN(len(p))] = byte(random.Uint32())
		}
		_ = wire.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := wire.Write(p[:1+random.IntN(len(p))]); err != nil {
			t.Fatal(err)
		}
		_ = wire.SetReadDeadline(time.Now()) // discards replies
		_, _ = wire.Read(answer)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		_ = wire.SetDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = wire.Write(question)
		n, _ := wire.Read(answer)
		if n > 28 && header.IPv4(answer[:n]).Protocol() == 17 {
			var m dnsmessage.Message
			if m.Unpack(answer[28:n]) == nil && len(m.Answers) == 1 {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("no question is answered any more")
		}
	}
}
