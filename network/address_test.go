package network

import (
	"net/netip"
	"testing"
)

// TestNameAddrsStandForOneName in both families, and no other address inside does.
func TestNameAddrsStandForOneName(t *testing.T) {
	seen := map[netip.Addr]bool{}
	for _, n := range []int{1, 2, 255, 256, 257, 65279, MaxNames} {
		four, six := NameAddrs(n)
		for _, a := range []netip.Addr{four, six} {
			if got, inside := NameNumber(a); got != n || !inside || seen[a] {
				t.Errorf("%s stands for %d, not %d", a, got, n)
			}
			seen[a] = true
		}
	}
	for _, s := range []string{
		"198.18.0.1", "198.18.0.2", "198.19.0.0", "198.19.255.255", "fd73:6e61:7066:73::1", "fd73:6e61:7066:73::2", "fd73:6e61:7066:73::1:0",
		"fd73:6e61:7066:73::2:1", "fd73:6e61:7066:73:1:0:1:1", "fd73:6e61:7066:73::1:ffff",
	} {
		if n, inside := NameNumber(netip.MustParseAddr(s)); n != 0 || !inside {
			t.Errorf("%s stands for name %d, inside %v", s, n, inside)
		}
	}
	for _, s := range []string{"198.17.255.255", "198.20.0.1", "fd73:6e61:7066:74::1:1", "::1", "127.0.0.1"} {
		if n, inside := NameNumber(netip.MustParseAddr(s)); n != 0 || inside {
			t.Errorf("%s stands for name %d, inside %v", s, n, inside)
		}
	}
}

// TestAddressesShareOneNetwork: the kernel inside reaches the gateway without a route.
func TestAddressesShareOneNetwork(t *testing.T) {
	for _, p := range [][2]netip.Prefix{{Gateway4(), Inside4()}, {Gateway6(), Inside6()}} {
		if p[0].Masked() != p[1].Masked() || p[0].Addr() == p[1].Addr() {
			t.Error(p)
		}
	}
	four, six := NameAddrs(1)
	if !Inside4().Contains(four) || !Inside6().Contains(six) {
		t.Error("names are elsewhere")
	}
}
