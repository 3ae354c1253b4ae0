package isolate

import (
	"net/netip"
	"strconv"

	"github.com/snapfs/snapfs/isolate/mounts"
)

// EdgeAddrs are the addresses of a container's network interface, with [NetworkEdge]; the proxy is at its
// other end.
type EdgeAddrs struct {
	// V4 and V6 are the container's own addresses with the prefix of the link. The zero value omits that
	// family; at least one must be set.
	V4, V6 netip.Prefix
	// Gateway4 and Gateway6 are the default routes: other addresses on the link.
	Gateway4, Gateway6 netip.Addr
	// MTU is the largest packet, in bytes: 1280 to 65535.
	MTU int
}

// String returns the addresses of the network interface as text for the user, for example "10.0.0.2/24 by
// 10.0.0.1, fd00::2/64 by fd00::1, MTU 1500".
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
	minMTU = 1280  // the least that IPv6 allows (RFC 8200, section 5)
	maxMTU = 65535 // of a TUN (drivers/net/tun.c)
)

func (s Spec) checkNetwork() error {
	switch s.Network {
	case NetworkNone, NetworkHost:
		if s.Edge != nil {
			return mounts.Invalid("network %s has no proxy addresses", s.Network)
		}
		return nil
	case NetworkEdge:
		if s.Edge == nil {
			return mounts.Invalid("network %s needs proxy addresses", s.Network)
		}
		return s.Edge.check()
	}
	return mounts.Invalid("unknown network %q: must be none, host or edge", s.Network)
}

func (e *EdgeAddrs) check() error {
	if !e.V4.IsValid() && !e.V6.IsValid() {
		return mounts.Invalid("proxy network has no address")
	}
	if e.MTU < minMTU || e.MTU > maxMTU {
		return mounts.Invalid("proxy network: MTU %d is not between %d and %d", e.MTU, minMTU, maxMTU)
	}
	for _, f := range []struct {
		own     netip.Prefix
		gateway netip.Addr
		right   bool
	}{{e.V4, e.Gateway4, e.V4.Addr().Is4()}, {e.V6, e.Gateway6, e.V6.Addr().Is6() && !e.V6.Addr().Is4In6()}} {
		switch {
		case !f.own.IsValid():
			if f.gateway.IsValid() {
				return mounts.Invalid("proxy network: gateway %s without an address of its family", f.gateway)
			}
		case !f.right || f.own.Addr().Zone() != "":
			return mounts.Invalid("proxy network: address %s is of the other family or has a zone", f.own)
		case !f.own.Contains(f.gateway) || f.gateway == f.own.Addr():
			return mounts.Invalid("proxy network: gateway %[2]s is not on the link of %[1]s", f.own, f.gateway)
		}
	}
	return nil
}
