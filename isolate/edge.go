package isolate

import (
	"net/netip"
	"strconv"
)

// EdgeAddrs are the addresses in the network namespace of a box with
// [NetworkEdge].
type EdgeAddrs struct {
	// V4 and V6 are the box's own address, and how much of it is the link's. The
	// zero value leaves the box without that family; one of them is there.
	V4, V6 netip.Prefix
	// Gateway4 and Gateway6 are where all else is sent: other addresses on the link.
	Gateway4, Gateway6 netip.Addr
	// MTU is how large a packet may be, in bytes: 1280 to 65535.
	MTU int
}

// String is "10.0.0.2/24 by 10.0.0.1, fd00::2/64 by fd00::1, MTU 1500".
func (e *EdgeAddrs) String() string {
	text := ""
	if e.V4.IsValid() {
		text += e.V4.String() + " by " + e.Gateway4.String() + ", "
	}
	if e.V6.IsValid() {
		text += e.V6.String() + " by " + e.Gateway6.String() + ", "
	}
	return text + "MTU " + strconv.Itoa(e.MTU)
}

const (
	minMTU = 1280  // IPv6 wants it (RFC 8200, section 5)
	maxMTU = 65535 // of a TUN (drivers/net/tun.c)
)

func (s Spec) checkNetwork() error {
	switch s.Network {
	case NetworkNone, NetworkHost:
		if s.Edge != nil {
			return invalid("network %s has no edge", s.Network)
		}
		return nil
	case NetworkEdge:
		if s.Edge == nil {
			return invalid("network %s without its addresses", s.Network)
		}
		return s.Edge.check()
	}
	return invalid("network %q: none, host and edge are known", s.Network)
}

func (e *EdgeAddrs) check() error {
	if !e.V4.IsValid() && !e.V6.IsValid() {
		return invalid("an edge without any address")
	}
	if e.MTU < minMTU || e.MTU > maxMTU {
		return invalid("an edge with an MTU of %d: %d to %d are possible", e.MTU, minMTU, maxMTU)
	}
	for _, f := range []struct {
		own     netip.Prefix
		gateway netip.Addr
		right   bool
	}{{e.V4, e.Gateway4, e.V4.Addr().Is4()}, {e.V6, e.Gateway6, e.V6.Addr().Is6() && !e.V6.Addr().Is4In6()}} {
		switch {
		case !f.own.IsValid():
			if f.gateway.IsValid() {
				return invalid("an edge with the gateway %s and no address beside it", f.gateway)
			}
		case !f.right || f.own.Addr().Zone() != "":
			return invalid("an edge with the address %s in the wrong place", f.own)
		case !f.own.Contains(f.gateway) || f.gateway == f.own.Addr():
			return invalid("an edge with %s, from where the gateway %s is not reached", f.own, f.gateway)
		}
	}
	return nil
}
