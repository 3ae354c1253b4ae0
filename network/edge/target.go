//go:build linux

package edge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/snapfs/snapfs/network"
)

// A target is the destination of a connection that a network rule allows: a name or address, a port, and the
// rule.
type target struct {
	name string     // the name that its address stands for, or "" if addr itself is meant
	addr netip.Addr // outside; for a name, known once dialled
	port uint16
	at   uint16 // of the base URL by which it was reached, an address of the proxy itself; otherwise 0
	rule string // the rule that allows it
	// terms are the options of the rule that allows the target.
	terms network.Terms
	// once is set if no rule allows the target, but a person has allowed this connection to it. rule is then
	// the rule that would allow it.
	once bool
}

func (t target) event(k network.Kind) network.Event {
	ev := network.Event{Kind: k, Name: t.name, Addr: t.addr, Port: t.port, Rule: t.rule}
	if t.once {
		ev.Why = onceWhy
	}
	return ev
}

func (t target) String() string {
	if t.name != "" {
		return fmt.Sprintf("%s:%d", t.name, t.port)
	}
	return netip.AddrPortFrom(t.addr, t.port).String()
}

// aim returns the destination outside for dst, the address to which a process in the sandbox connects, under
// the present rules. why is the reason of a refusal, or "".
func (e *Edge) aim(dst netip.AddrPort) (t target, why string) {
	num, inside := network.NameNumber(dst.Addr())
	t.port = dst.Port()
	if !inside {
		t.addr = dst.Addr()
		if t, why = t.matchRules(e.Rules()); why == "" {
			return t, e.unfit(t.addr, t.port)
		}
		if t.name = e.hostsName(t.addr, t.port); t.name == "" {
			return t, why
		}
		t.addr = netip.Addr{} // resolved later, as for any name
		return t.matchRules(e.Rules())
	}
	if num > 0 {
		t.name = e.names.name(num)
	}
	if t.name == "" {
		t.addr = dst.Addr()
		return t, "no name leads to this address"
	}
	return t.matchRules(e.Rules())
}

// matchRules returns the destination t with the network rule of r that allows it and that rule's options. If
// no rule does, why is the reason.
func (t target) matchRules(r network.Rules) (_ target, why string) {
	var ok bool
	if t.name != "" {
		if t.rule, ok = r.Name(t.name, t.port); !ok {
			return t, fmt.Sprintf("no rule allows %s", t)
		}
		t.terms = r.Terms(t.rule)
		return t, ""
	}
	if t.rule, ok = r.Addr(netip.AddrPortFrom(t.addr, t.port)); !ok {
		if t.port == 53 {
			return t, "another resolver than the sandbox's"
		}
		return t, "an address that no rule names"
	}
	t.terms = r.Terms(t.rule)
	return t, ""
}

// inspectedName returns the name for which the traffic to the destination must be, so that the proxy inspects
// it, or "" if the traffic is not inspected.
func (t target) inspectedName() string {
	if t.name == network.HostName || t.terms.TCP {
		return "" // a rule opened this one port of the host, whatever it serves, or any protocol
	}
	return t.name
}

// errUnfit means that a host name resolves only to addresses that a public name must not have, such as
// private ones.
var errUnfit = errors.New("unfit address")

// reach connects to the destination t outside and stores the address that answered in t; the caller closes
// the connection. network is "tcp" or "udp". It dials only addresses that lookup has checked, or the one that
// a rule names.
func (e *Edge) reach(ctx context.Context, network string, t *target) (net.Conn, error) {
	addrs := []netip.Addr{t.addr}
	if t.name != "" {
		var err error
		if addrs, err = e.lookup(ctx, *t); err != nil {
			return nil, err
		}
	}
	var errs error
	for i, addr := range addrs {
		conn, err := e.dialOne(ctx, network, netip.AddrPortFrom(addr, t.port), len(addrs)-i)
		if err == nil {
			t.addr = addr
			return conn, nil
		}
		errs = errors.Join(errs, err)
	}
	return nil, errs
}

// dialOne connects to the address to within its share of the time that ctx leaves. left is the number of
// addresses, with this one, that are still to be tried.
func (e *Edge) dialOne(ctx context.Context, network string, to netip.AddrPort, left int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok && left > 1 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
		defer stop()
	}
	if e.options.Dial != nil {
		return e.options.Dial(ctx, network, to)
	}
	return (&net.Dialer{}).DialContext(ctx, network, to.String())
}

// lookup resolves the name of the destination t and returns at most eight of its addresses, without those
// that a public name must not have, such as private ones. Errors: errUnfit if all are such.
func (e *Edge) lookup(ctx context.Context, t target) ([]netip.Addr, error) {
	if t.name == network.HostName {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, nil
	}
	find := e.options.Lookup
	if find == nil {
		find = hostLookup
	}
	all, err := find(ctx, t.name)
	if err != nil {
		return nil, err
	}
	const most = 8
	var fit []netip.Addr
	var unfit error
	for _, addr := range all {
		addr = addr.Unmap()
		if why := e.unfit(addr, t.port); why != "" {
			unfit = fmt.Errorf("%w: %s leads to %s: %s", errUnfit, t.name, addr, why)
		} else if len(fit) < most {
			fit = append(fit, addr)
		}
	}
	switch {
	case len(fit) > 0:
		return fit, nil
	case unfit != nil:
		return nil, unfit
	}
	return nil, fmt.Errorf("%s has no address", t.name)
}

// unfit returns why a name, or a wide prefix of addresses in a network rule, must not lead to addr on port,
// or "". The addresses of this host's own interfaces count like loopback, even public ones, because services
// on them trust the host. A rule for exactly that address allows it.
func (e *Edge) unfit(addr netip.Addr, port uint16) string {
	to := netip.AddrPortFrom(addr, port)
	if _, why, special := network.Special(addr); special {
		if _, ok := e.Rules().Addr(to); ok {
			return ""
		}
		return why + "; needs a rule with its address"
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return "the addresses of this host are unknown: " + err.Error()
	}
	for _, a := range own {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().WithZone("") == addr && !e.Rules().Alone(to) {
			return "this host; needs a rule with exactly its address"
		}
	}
	return ""
}

// hostLookup resolves a host name with the host's resolver. It does not apply the host's search list to a
// name with a dot.
func hostLookup(ctx context.Context, name string) ([]netip.Addr, error) {
	if strings.Contains(name, ".") {
		name += "."
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
}
