package e2b

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
)

// check returns ErrInvalid if the client's network configuration asks for a rule that this server cannot
// enforce.
func (n *networkConfig) check() error {
	const op = "setting the network"
	if n == nil {
		return nil
	}
	for what, given := range map[string]bool{
		"rules": len(n.Rules) > 0, "egressProxy": present(n.EgressProxy), "dnsServers": len(n.DNSServers) > 0,
	} {
		if given {
			return errs.New(op, "", errs.ErrInvalid, "this server does not support "+what)
		}
	}
	if len(n.DenyOut) > 0 && !n.closed() {
		return errs.New(op, "", errs.ErrInvalid, "this server cannot deny single addresses: deny 0.0.0.0/0, and allow what the sandbox may reach")
	}
	if len(n.AllowOut) == 0 {
		return nil
	}
	_, _, err := hostfs.NetworkRules(hostfs.AllowNet + n.rules())
	if err != nil {
		return errors.Join(errs.New(op, "", errs.ErrInvalid, "allowOut has an entry that this server cannot enforce"), err)
	}
	return nil
}

// closed reports whether the client's network configuration denies every destination that it does not allow.
func (n *networkConfig) closed() bool {
	return slices.ContainsFunc(n.DenyOut, func(to string) bool {
		p, err := netip.ParsePrefix(to)
		return err == nil && p.Bits() == 0
	})
}

// rules returns the destinations that the client's network configuration allows, as network rules of snapfs.
func (n *networkConfig) rules() string {
	list := make([]string, len(n.AllowOut))
	for i, to := range n.AllowOut {
		if p, err := netip.ParsePrefix(to); err == nil && p.IsSingleIP() {
			to = p.Addr().String()
		}
		list[i] = to
	}
	return strings.Join(list, ",")
}

// narrowed returns the network for a sandbox: at most the one that the server allows (most), and at most the
// one that the client asks for by internet and n. n must have passed check.
func narrowed(most string, internet *bool, n *networkConfig) string {
	denied := internet != nil && !*internet
	if n != nil {
		denied = denied || n.closed() || n.AllowInternet != nil && !*n.AllowInternet
	}
	switch {
	case !denied || most == "none" || most == "":
		return most
	case n == nil || len(n.AllowOut) == 0:
		return "none"
	}
	rules, _, err := hostfs.NetworkRules(hostfs.AllowNet + n.rules())
	if err != nil {
		return "none" // check has refused it
	}
	if most != "host" {
		outer, _, err := hostfs.NetworkRules(most)
		if err != nil {
			return "none"
		}
		rules = rules.Both(outer)
	}
	if rules.Empty() {
		return "none"
	}
	return hostfs.AllowNet + rules.String()
}

// narrower reports whether the network rules in network allow no destination that those in most do not allow.
func narrower(network, most string) bool {
	rules, allowed, err := hostfs.NetworkRules(network)
	if err != nil || !allowed || most == "host" {
		return err == nil && most == "host"
	}
	outer, allowed, err := hostfs.NetworkRules(most)
	return err == nil && allowed && rules.Both(outer).String() == rules.String()
}

// setNetwork handles a request that changes which destinations a sandbox may reach. It can only allow more,
// because the engine cannot take a destination from an existing sandbox.
func (s *Server) setNetwork(w http.ResponseWriter, r *http.Request) error {
	const op = "setting the network"
	b, err := s.sandbox(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	n := &networkConfig{}
	if err := readJSON(r, n); err != nil {
		return err
	}
	if err := n.check(); err != nil {
		return err
	}
	wanted, now := narrowed(s.o.Rules.Policy.Network, nil, n), b.Policy.Network
	if wanted != now {
		more, allowed, err := hostfs.NetworkRules(wanted)
		old, _, olderr := hostfs.NetworkRules(now)
		switch {
		case err != nil || olderr != nil:
			return errors.Join(err, olderr)
		case !allowed || now == "host" || old.Both(more).String() != old.String():
			return errs.New(op, b.Name, errs.ErrNotSupported, "the network of a sandbox can only grow: make another sandbox with the network "+wanted)
		}
		if _, err := b.e.Supervise.AllowNetwork(r.Context(), b.Name, more); err != nil {
			return err
		}
	}
	n.AllowPublicTraffic = nil // it does not change
	if old := b.meta.Network; old != nil {
		n.AllowPublicTraffic = old.AllowPublicTraffic
	}
	b.meta.Network, b.meta.Internet = n, n.AllowInternet
	if err := b.meta.save(b.e, b.Name); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
