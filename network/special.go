package network

import "net/netip"

// Special reports whether addr is an address to which a public name should not resolve: this
// host, its own network, or the metadata service of a cloud machine. within is the special
// range that contains addr, and why its name. For an IPv4 address in an IPv6 one (mapped,
// NAT64, 6to4), the IPv4 address decides.
//
// The ranges are the non-public ones of IANA's special-purpose address registries (RFC 6890).
// The benchmark networks are omitted, because programs like this one use their addresses for
// names.
func Special(addr netip.Addr) (within netip.Prefix, why string, ok bool) {
	addr = addr.WithZone("")
	if addr.Is4In6() {
		addr = addr.Unmap()
	}
	for _, r := range ranges() {
		if r.prefix.Contains(addr) {
			return r.prefix, r.why, true
		}
	}
	if inner, shift, wrapped := unwrap(addr); wrapped {
		if in, why, ok := Special(inner); ok {
			return netip.PrefixFrom(addr, shift+in.Bits()).Masked(), why, true
		}
	}
	return netip.Prefix{}, "", false
}

type span struct {
	prefix netip.Prefix
	why    string
}

func four(a, b, c, d byte, bits int, why string) span {
	return span{netip.PrefixFrom(netip.AddrFrom4([4]byte{a, b, c, d}), bits), why}
}

func six(head []byte, bits int, why string) span {
	var a [16]byte
	copy(a[:], head)
	return span{netip.PrefixFrom(netip.AddrFrom16(a), bits), why}
}

// ranges returns the ranges of addresses that [Special] knows, narrow ones first, so that the most specific
// name is found. It is a function, because a package-level table would be built at every start.
func ranges() [24]span {
	return [...]span{
		four(169, 254, 169, 254, 32, "metadata service"),
		four(100, 100, 100, 200, 32, "metadata service"),            // Alibaba Cloud
		four(168, 63, 129, 16, 32, "metadata service"),              // Azure, in a public range
		four(192, 0, 0, 192, 32, "metadata service"),                // Oracle Cloud
		six([]byte{0xfd, 0x00, 0x0e, 0xc2}, 32, "metadata service"), // fd00:ec2::254, AWS
		six([]byte{0xfd, 0x20, 0x00, 0xce}, 32, "metadata service"), // fd20:ce::254, Google Cloud
		four(0, 0, 0, 0, 8, "this host"),
		four(10, 0, 0, 0, 8, "private"),
		four(100, 64, 0, 0, 10, "shared with a carrier"),
		four(127, 0, 0, 0, 8, "loopback"),
		four(169, 254, 0, 0, 16, "link-local"),
		four(172, 16, 0, 0, 12, "private"),
		four(192, 0, 0, 0, 24, "reserved"),
		four(192, 168, 0, 0, 16, "private"),
		four(224, 0, 0, 0, 4, "multicast"),
		four(240, 0, 0, 0, 4, "reserved"),                     // broadcast with it
		six([]byte{0, 0x64, 0xff, 0x9b, 0, 1}, 48, "private"), // NAT64 of a site's own, RFC 8215
		six([]byte{0x20, 0x01, 0, 0}, 32, "reserved"),         // Teredo, which encodes an IPv4 address in its own way
		six(nil, 127, "loopback"),                             // :: is this host too
		six(nil, 96, "reserved"),                              // IPv4 compatible, obsolete
		six([]byte{0xfe, 0x80}, 10, "link-local"),
		six([]byte{0xfe, 0xc0}, 10, "private"), // site-local, RFC 3879
		six([]byte{0xfc}, 7, "private"),
		six([]byte{0xff}, 8, "multicast"),
	}
}

// unwrap returns the IPv4 address that the IPv6 address addr contains, for a gateway to translate, and the
// bit at which it begins; false if there is none.
func unwrap(addr netip.Addr) (inner netip.Addr, shift int, ok bool) {
	if !addr.Is6() {
		return netip.Addr{}, 0, false
	}
	a := addr.As16()
	var at int
	switch {
	case [12]byte(a[:12]) == [12]byte{0, 0x64, 0xff, 0x9b}: // NAT64, RFC 6052
		at = 12
	case a[0] == 0x20 && a[1] == 0x02: // 6to4, RFC 3056
		at = 2
	default:
		return netip.Addr{}, 0, false
	}
	return netip.AddrFrom4([4]byte(a[at : at+4])), at * 8, true
}
