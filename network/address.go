package network

import "net/netip"

// MTU of the sandbox's interface in bytes. Nothing between it and the edge has a
// limit of its own, and the fewer packets, the faster.
const MTU = 65520

// The sandbox's network is always the same, and no other can see it. 198.18.0.0/15 is for benchmarks
// (RFC 2544): no home, office or cloud network has it. The other is a unique local one (RFC 4193).

// Gateway4 and Gateway6 are the edge: the default route, and the resolver at port 53.
func Gateway4() netip.Prefix { return v4(198, 18, 0, 1) }

// Gateway6 is [Gateway4] in IPv6.
func Gateway6() netip.Prefix { return v6(0, 1) }

// Inside4 and Inside6 are what the sandbox's interface has.
func Inside4() netip.Prefix { return v4(198, 18, 0, 2) }

// Inside6 is [Inside4] in IPv6.
func Inside6() netip.Prefix { return v6(0, 2) }

// MostNames is how many names have an address at once.
const MostNames = 1<<16 - 2

// NameAddrs is the pair of addresses that stands for name n, from 1 to [MostNames].
func NameAddrs(n int) (four, six netip.Addr) {
	hi, lo := byte(n>>8), byte(n)
	return v4(198, 19, hi, lo).Addr(), v6(1, uint16(n)).Addr()
}

// NameNumber is the n of [NameAddrs], or 0 where addr stands for no name. inside says that addr is of the
// sandbox's own networks, and so leads nowhere.
func NameNumber(addr netip.Addr) (n int, inside bool) {
	addr = addr.Unmap()
	switch {
	case addr.Is4() && Gateway4().Contains(addr):
		b := addr.As4()
		if n := int(b[2])<<8 | int(b[3]); b[1] == 19 && n <= MostNames {
			return n, true
		}
		return 0, true
	case addr.Is6() && Gateway6().Contains(addr):
		b := addr.As16()
		n := int(b[14])<<8 | int(b[15])
		if four, six := NameAddrs(n); four.IsValid() && six == addr && n <= MostNames {
			return n, true
		}
		return 0, true
	}
	return 0, false
}

func v4(a, b, c, d byte) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{a, b, c, d}), 15)
}

// v6 is in fd73:6e61:7066:73::/64, which spells the program's name.
func v6(group, n uint16) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{
		0xfd, 0x73, 0x6e, 0x61, 0x70, 0x66, 0, 0x73, 8: 0, 12: byte(group >> 8), 13: byte(group), 14: byte(n >> 8), 15: byte(n),
	}), 64)
}
