package isolate

import (
	"encoding/binary"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	edgeName  = "snapfs0"
	edgeIndex = 100 // of the interface, set beforehand so that the messages can name it
	tunDevice = "/dev/net/tun"
)

// Tun is the keeper's end of the box's network under [NetworkEdge]: each read is
// one packet that the box sends, each write one that it receives, IP without
// anything before it (TUN, IFF_NO_PI). Nothing else leads out of the box. It is
// handed out once, then the caller's to close, and does not block; when it is
// closed the box's interface is gone, and until then the box's network namespace
// stays, even after the box. Nil: the box has none, or it was handed out.
//
// What is read from it is the word of the box, which may forge any of it: under
// [Own] its root can send raw packets.
func (b *Box) Tun() *os.File {
	b.mu.Lock()
	defer b.mu.Unlock()
	fd := b.tun
	b.tun = -1
	if fd < 0 {
		return nil
	}
	return os.NewFile(uintptr(fd), tunDevice) // non-blocking since it was opened
}

// makeEdge adds the steps that make the interface and set it up, up to the
// last route. They come while the process still is the user that it began as,
// because the device may be root's alone, and in its network namespace, because
// what is opened belongs to the opener's (tun_chr_open of drivers/net/tun.c).
func (b *builder) makeEdge() {
	e := b.spec.Edge
	b.stage = "opening the network device"
	b.edge = b.do(unix.SYS_OPENAT, num(unix.AT_FDCWD), b.str(tunDevice), num(unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC)).path(tunDevice).result()
	b.stage = "making the network interface"
	const setIndex = 0x400454da // TUNSETIFINDEX of linux/if_tun.h
	b.do(unix.SYS_IOCTL, b.of(b.edge), num(setIndex), b.words(edgeIndex))
	ifreq := make([]byte, 40)
	copy(ifreq, edgeName)
	binary.NativeEndian.PutUint16(ifreq[unix.IFNAMSIZ:], unix.IFF_TUN|unix.IFF_NO_PI)
	b.do(unix.SYS_IOCTL, b.of(b.edge), num(unix.TUNSETIFF), b.bytes(ifreq...))

	b.stage = "setting up the network interface"
	s := b.do(unix.SYS_SOCKET, num(unix.AF_NETLINK), num(unix.SOCK_RAW|unix.SOCK_CLOEXEC), num(unix.NETLINK_ROUTE)).result()
	// Without a link-local address of its own the kernel sends nothing that
	// nobody asked for: it would solicit routers from there. A kernel without
	// IPv6 says so here, and once more if the box is to have an address.
	b.tell(s, linkMessage(0, nested(unix.IFLA_AF_SPEC, nested(unix.AF_INET6, attr(unix.IFLA_INET6_ADDR_GEN_MODE, 1))))).
		quiet(unix.EAFNOSUPPORT, unix.EOPNOTSUPP)
	b.tell(s, linkMessage(unix.IFF_UP, attr(unix.IFLA_MTU, binary.NativeEndian.AppendUint32(nil, uint32(e.MTU))...)))
	for _, f := range []struct {
		name    string
		number  byte
		own     netip.Prefix
		gateway netip.Addr
	}{{"IPv4", unix.AF_INET, e.V4, e.Gateway4}, {"IPv6", unix.AF_INET6, e.V6, e.Gateway6}} {
		if f.own.IsValid() {
			b.stage = "setting up " + f.name + " of the network interface"
			messages := [][]byte{addressMessage(f.number, f.own), routeMessage(f.number, f.gateway)}
			if f.own == e.V6 {
				messages = append(messages, ownRouteMessage(f.own))
			}
			b.tell(s, messages...).path(f.own.String())
		}
	}
	b.do(unix.SYS_CLOSE, b.of(s))
}

// tell adds the steps that send messages to the kernel by the rtnetlink socket
// and take its answer. It carries out each in turn and goes on after an error,
// but answers to the errors and to the last one only; so the first answer is the
// first error, or that there is none (rtnetlink(7), netlink(7)).
// The step that it answers with is the one that has the error.
func (b *builder) tell(socket cell, messages ...[]byte) step {
	last := messages[len(messages)-1]
	flags := binary.NativeEndian.Uint16(last[6:])
	binary.NativeEndian.PutUint16(last[6:], flags|unix.NLM_F_ACK)
	all := slices.Concat(messages...)
	b.do(unix.SYS_SENDTO, b.of(socket), b.bytes(all...), num(len(all)), num(0), num(0), num(0))
	answer := b.take(unix.NLMSG_HDRLEN + 32)
	b.do(unix.SYS_RECVFROM, b.of(socket), num(b.addr(answer)), num(unix.NLMSG_HDRLEN+32), num(0), num(0), num(0))
	return b.do(look, b.of(cell(answer+unix.NLMSG_HDRLEN))) // the error of struct nlmsgerr, or 0
}

func linkMessage(flags uint32, attrs []byte) []byte {
	var m [unix.SizeofIfInfomsg]byte
	binary.NativeEndian.PutUint32(m[4:], edgeIndex)
	binary.NativeEndian.PutUint32(m[8:], flags)
	binary.NativeEndian.PutUint32(m[12:], flags) // those to change
	return rtMessage(unix.RTM_NEWLINK, 0, m[:], attrs)
}

func addressMessage(family byte, own netip.Prefix) []byte {
	m := [unix.SizeofIfAddrmsg]byte{family, byte(own.Bits())}
	if family == unix.AF_INET6 {
		m[2] = unix.IFA_F_NODAD // in use at once: nobody else is there who could have it
	}
	binary.NativeEndian.PutUint32(m[4:], edgeIndex)
	a := own.Addr().AsSlice()
	return rtMessage(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, m[:], attr(unix.IFA_LOCAL, a...), attr(unix.IFA_ADDRESS, a...))
}

// ownRouteMessage makes what comes for the own address be taken in. The kernel
// does that itself, but for IPv6 only when its work queue has come to it
// (addrconf_dad_work of net/ipv6/addrconf.c), and until then drops what comes: of
// 400 boxes on a busy machine, 18 dropped an echo request that came at once.
func ownRouteMessage(own netip.Prefix) []byte {
	a := own.Addr()
	m := [unix.SizeofRtMsg]byte{unix.AF_INET6, byte(a.BitLen()), 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_KERNEL, unix.RT_SCOPE_HOST, unix.RTN_LOCAL}
	return rtMessage(unix.RTM_NEWROUTE, unix.NLM_F_CREATE, m[:],
		attr(unix.RTA_DST, a.AsSlice()...), attr(unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, edgeIndex)...))
}

// routeMessage makes the default route.
func routeMessage(family byte, gateway netip.Addr) []byte {
	m := [unix.SizeofRtMsg]byte{family, 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST}
	return rtMessage(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, m[:],
		attr(unix.RTA_GATEWAY, gateway.AsSlice()...), attr(unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, edgeIndex)...))
}

// rtMessage is one of rtnetlink's; all its parts are a multiple of 4 long.
func rtMessage(kind, flags uint16, parts ...[]byte) []byte {
	body := slices.Concat(parts...)
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|flags)
	m = append(m, make([]byte, 8)...) // number and sender: nobody else uses the socket
	return append(m, body...)
}

func attr(kind uint16, value ...byte) []byte {
	a := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofRtAttr+len(value)))
	a = append(binary.NativeEndian.AppendUint16(a, kind), value...)
	return append(a, make([]byte, -len(a)&3)...)
}

func nested(kind uint16, attrs []byte) []byte { return attr(kind|unix.NLA_F_NESTED, attrs...) }

// edgeHints are the commands that make the device usable.
func edgeHints(path string, errno syscall.Errno) []string {
	switch {
	case path != tunDevice:
		return nil
	case errno == unix.EACCES || errno == unix.EPERM:
		return []string{"sudo chmod 0666 " + tunDevice}
	case errno == unix.ENOENT || errno == unix.ENODEV || errno == unix.ENXIO:
		return []string{"sudo modprobe tun"}
	}
	return nil
}
