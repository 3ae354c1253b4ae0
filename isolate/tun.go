//go:build linux

package isolate

import (
	"encoding/binary"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/isolate/launch"
)

const (
	edgeName  = "snapfs0"
	edgeIndex = 100 // of the interface, fixed in advance so that the messages can name it
	tunDevice = "/dev/net/tun"
)

// Tun returns the supervisor's end of the container's network under [NetworkEdge]. Each read
// returns one IP packet that the container sends, each write delivers one to the container,
// without a header (TUN, IFF_NO_PI). The container has no other way out.
//
// Tun returns the non-blocking file once; the caller closes it. Closing it removes the
// container's interface; until then the network namespace stays, even after the container.
// Later calls, and calls for other networks, return nil.
//
// The container controls every byte read from it and may forge packets: under [Own] its root
// can send raw packets.
func (c *Container) Tun() *os.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	fd := c.tun
	c.tun = -1
	if fd < 0 {
		return nil
	}
	return os.NewFile(uintptr(fd), tunDevice) // non-blocking since it was opened
}

// makeEdge adds the system calls by which pid 1 creates the network interface of [NetworkEdge] and sets it
// up, up to the last route. They run while pid 1 is still the user that started it, because the device may be
// root's alone, and in its network namespace, because the interface belongs to the namespace of the process
// that opens the device (tun_chr_open of drivers/net/tun.c).
func (b *builder) makeEdge() {
	e := b.spec.Edge
	b.Stage = "opening the network device"
	b.edge = b.Do(unix.SYS_OPENAT, launch.Num(unix.AT_FDCWD), b.Str(tunDevice), launch.Num(unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC)).Path(tunDevice).Result()
	b.Stage = "making the network interface"
	const setIndex = 0x400454da // TUNSETIFINDEX of linux/if_tun.h
	b.Do(unix.SYS_IOCTL, b.Of(b.edge), launch.Num(setIndex), b.Words(edgeIndex))
	ifreq := make([]byte, 40)
	copy(ifreq, edgeName)
	binary.NativeEndian.PutUint16(ifreq[unix.IFNAMSIZ:], unix.IFF_TUN|unix.IFF_NO_PI)
	b.Do(unix.SYS_IOCTL, b.Of(b.edge), launch.Num(unix.TUNSETIFF), b.Bytes(ifreq...))

	b.Stage = "setting up the network interface"
	s := b.Do(unix.SYS_SOCKET, launch.Num(unix.AF_NETLINK), launch.Num(unix.SOCK_RAW|unix.SOCK_CLOEXEC), launch.Num(unix.NETLINK_ROUTE)).Result()
	// Without a link-local address the kernel sends nothing unsolicited; from one, it would solicit routers. A
	// kernel without IPv6 reports that here, and again below if the container is to have an IPv6 address.
	b.netlink(s, linkMessage(0, nested(unix.IFLA_AF_SPEC, nested(unix.AF_INET6, attr(unix.IFLA_INET6_ADDR_GEN_MODE, 1))))).
		Tolerate(unix.EAFNOSUPPORT, unix.EOPNOTSUPP)
	b.netlink(s, linkMessage(unix.IFF_UP, attr(unix.IFLA_MTU, binary.NativeEndian.AppendUint32(nil, uint32(e.MTU))...)))
	for _, f := range []struct {
		name    string
		number  byte
		own     netip.Prefix
		gateway netip.Addr
	}{{"IPv4", unix.AF_INET, e.V4, e.Gateway4}, {"IPv6", unix.AF_INET6, e.V6, e.Gateway6}} {
		if f.own.IsValid() {
			b.Stage = "setting up " + f.name + " of the network interface"
			messages := [][]byte{addressMessage(f.number, f.own), routeMessage(f.number, f.gateway)}
			if f.own == e.V6 {
				messages = append(messages, ownRouteMessage(f.own))
			}
			b.netlink(s, messages...).Path(f.own.String())
		}
	}
	b.Do(unix.SYS_CLOSE, b.Of(s))
}

// netlink adds the system calls by which pid 1 sends rtnetlink messages to the kernel and receives its reply,
// and returns the step that fails with the first error. The kernel executes the messages in turn and
// acknowledges only errors and the last message, so the first reply is the first error or success
// (rtnetlink(7), netlink(7)).
func (b *builder) netlink(socket launch.Cell, messages ...[]byte) launch.Step {
	last := messages[len(messages)-1]
	flags := binary.NativeEndian.Uint16(last[6:])
	binary.NativeEndian.PutUint16(last[6:], flags|unix.NLM_F_ACK)
	all := slices.Concat(messages...)
	b.Do(unix.SYS_SENDTO, b.Of(socket), b.Bytes(all...), launch.Num(len(all)), launch.Num(0), launch.Num(0), launch.Num(0))
	answer := b.Take(unix.NLMSG_HDRLEN + 32)
	b.Do(unix.SYS_RECVFROM, b.Of(socket), launch.Num(b.Addr(answer)), launch.Num(unix.NLMSG_HDRLEN+32), launch.Num(0), launch.Num(0), launch.Num(0))
	return b.Do(launch.Load, b.Of(launch.Cell(answer+unix.NLMSG_HDRLEN))) // the error of struct nlmsgerr, or 0
}

func linkMessage(flags uint32, attrs []byte) []byte {
	var m [unix.SizeofIfInfomsg]byte
	binary.NativeEndian.PutUint32(m[4:], edgeIndex)
	binary.NativeEndian.PutUint32(m[8:], flags)
	binary.NativeEndian.PutUint32(m[12:], flags) // the flags to change
	return rtMessage(unix.RTM_NEWLINK, 0, m[:], attrs)
}

func addressMessage(family byte, own netip.Prefix) []byte {
	m := [unix.SizeofIfAddrmsg]byte{family, byte(own.Bits())}
	if family == unix.AF_INET6 {
		m[2] = unix.IFA_F_NODAD // usable at once: no other host on the link can have it
	}
	binary.NativeEndian.PutUint32(m[4:], edgeIndex)
	a := own.Addr().AsSlice()
	return rtMessage(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, m[:], attr(unix.IFA_LOCAL, a...), attr(unix.IFA_ADDRESS, a...))
}

// ownRouteMessage returns the rtnetlink message that adds the route to the container's own address, so that
// the kernel accepts packets to it at once. The kernel adds an IPv6 route itself, but later
// (addrconf_dad_work of net/ipv6/addrconf.c), and drops packets until then.
func ownRouteMessage(own netip.Prefix) []byte {
	a := own.Addr()
	m := [unix.SizeofRtMsg]byte{unix.AF_INET6, byte(a.BitLen()), 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_KERNEL, unix.RT_SCOPE_HOST, unix.RTN_LOCAL}
	return rtMessage(unix.RTM_NEWROUTE, unix.NLM_F_CREATE, m[:],
		attr(unix.RTA_DST, a.AsSlice()...), attr(unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, edgeIndex)...))
}

// routeMessage returns the rtnetlink message that adds the default route through gateway for the address
// family.
func routeMessage(family byte, gateway netip.Addr) []byte {
	m := [unix.SizeofRtMsg]byte{family, 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST}
	return rtMessage(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, m[:],
		attr(unix.RTA_GATEWAY, gateway.AsSlice()...), attr(unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, edgeIndex)...))
}

// rtMessage returns an rtnetlink message, by which pid 1 configures the container's network interface. kind
// is its type, flags are NLM_F_* flags beside NLM_F_REQUEST, and parts, each with a length that is a multiple
// of 4, are its body.
func rtMessage(kind, flags uint16, parts ...[]byte) []byte {
	body := slices.Concat(parts...)
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|flags)
	m = append(m, make([]byte, 8)...) // sequence and sender: the socket has no other user
	return append(m, body...)
}

func attr(kind uint16, value ...byte) []byte {
	a := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofRtAttr+len(value)))
	a = append(binary.NativeEndian.AppendUint16(a, kind), value...)
	return append(a, make([]byte, -len(a)&3)...)
}

func nested(kind uint16, attrs []byte) []byte { return attr(kind|unix.NLA_F_NESTED, attrs...) }

// edgeHints returns the commands that make the TUN device usable, if errno and path are those of opening it.
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
