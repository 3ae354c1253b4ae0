package network

import "net/netip"

// MTU is the largest packet, in bytes, of a sandbox's network interface. The path to the proxy has no limit
// of its own, and fewer packets are faster.
const MTU = 65520

// Every sandbox has the same addresses, which only it can see. 198.18.0.0/15 is for benchmarks (RFC 2544): no
// home, office or cloud network uses it. The IPv6 prefix is unique local (RFC 4193).

// Gateway4 returns the IPv4 address of a sandbox's network proxy: the sandbox's default route, and its name
// server at port 53.
func Gateway4() netip.Prefix { return v4(198, 18, 0, 1) }

// Gateway6 returns the IPv6 address of a sandbox's network proxy: the sandbox's default route for IPv6.
func Gateway6() netip.Prefix { return v6(0, 1) }

// Inside4 returns the IPv4 address of a sandbox's network interface.
func Inside4() netip.Prefix { return v4(198, 18, 0, 2) }

// Inside6 returns the IPv6 address of a sandbox's network interface.
func Inside6() netip.Prefix { return v6(0, 2) }

// MaxNames is how many host names the proxy of a sandbox can give an address at once: one for each 16-bit
// number but two. A further name takes the address of the one that was used least recently.
const MaxNames = 1<<16 - 2

// NameAddrs returns the two addresses that stand inside the sandbox for the host name with the number n, from
// 1 to [MaxNames]. The proxy numbers the names that it resolves.
func NameAddrs(n int) (four, six netip.Addr) {
	hi, lo := byte(n>>8), byte(n)
	return v4(198, 19, hi, lo).Addr(), v6(1, uint16(n)).Addr()
}

// NameNumber returns the number of the host name for which addr stands inside the sandbox (see [NameAddrs]),
// or 0. inside reports whether addr belongs to the sandbox's own networks, so that no host outside has it.
func NameNumber(addr netip.Addr) (n int, inside bool) {
	addr = addr.Unmap()
	switch {
	case addr.Is4() && Gateway4().Contains(addr):
		b := addr.As4()
		if n := int(b[2])<<8 | int(b[3]); b[1] == 19 && n <= MaxNames {
			return n, true
		}
		return 0, true
	case addr.Is6() && Gateway6().Contains(addr):
		b := addr.As16()
		n := int(b[14])<<8 | int(b[15])
		if four, six := NameAddrs(n); four.IsValid() && six == addr && n <= MaxNames {
			return n, true
		}
		return 0, true
	}
	return 0, false
}

func v4(a, b, c, d byte) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{a, b, c, d}), 15)
}

// v6 returns an address in fd73:6e61:7066:73::/64, the IPv6 network of every sandbox, whose bytes spell the
// program's name. The last 32 bits are group (0 for the proxy and the interface, 1 for host names) and n.
func v6(group, n uint16) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{
		0xfd, 0x73, 0x6e, 0x61, 0x70, 0x66, 0, 0x73, 8: 0, 12: byte(group >> 8), 13: byte(group), 14: byte(n >> 8), 15: byte(n),
	}), 64)
}
