package network

import (
	"net/netip"

	"github.com/snapfs/snapfs/network/httprule"
)

// Both returns network rules that allow only destinations which r and other both allow: those rules of each
// that the other covers. They may allow less than the exact intersection.
func (r Rules) Both(other Rules) Rules {
	var both Rules
	spent := map[string]bool{} // rules whose budget a narrower rule has
	for _, pair := range [][2]Rules{{r, other}, {other, r}} {
		for _, one := range pair[0].list {
			for _, wide := range pair[1].list {
				budget := wide.terms.shared()
				if wide.covers(one) {
					if whole := wide.selector(); budget && whole != one.selector() {
						if spent[whole] {
							break // several narrow rules would have the budget several times
						}
						spent[whole] = true
					}
					one.terms = one.terms.both(wide.terms)
					both.narrow(one)
					break
				}
				if budget && wide.overlaps(one) {
					break // a part of it has a budget, and the rest none
				}
			}
		}
	}
	return both
}

// With returns the network rules of r and those of more. A rule of more replaces one of r that differs only in its
// options. Errors: errs.ErrInvalid if [Parse] does not accept so many rules.
func (r Rules) With(more Rules) (Rules, error) {
	if r.Empty() {
		return more, nil
	}
	return Parse(r.String() + "," + more.String())
}

// narrow adds the network rule one to r. If r has a rule that differs only in its options, that rule gets the
// stricter value of each option.
func (r *Rules) narrow(one rule) {
	for _, old := range r.list {
		if old.selector() == one.selector() {
			one.terms = old.terms.both(one.terms)
		}
	}
	r.add(one)
}

// overlaps reports whether some destination, a name or address with a port, is allowed by both network rules.
func (r rule) overlaps(one rule) bool {
	if r.ports.low > one.ports.high || one.ports.low > r.ports.high {
		return false
	}
	if r.name == "" && one.name == "" {
		return r.prefix.Overlaps(one.prefix)
	}
	one.ports = r.ports
	r.http, r.scheme, one.http, one.scheme = httprule.Rule{}, "", httprule.Rule{}, ""
	return r.covers(one) || one.covers(r)
}

// covers reports whether the network rule r allows every destination that the rule one allows.
func (r rule) covers(one rule) bool {
	switch {
	case r.ports.low > one.ports.low || r.ports.high < one.ports.high || (r.name == "") != (one.name == ""):
		return false
	case !r.http.Covers(one.http) || r.scheme != "" && r.scheme != one.scheme:
		return false
	case r.name == "":
		return r.prefix == one.prefix || r.contains(one.prefix)
	case one.wildcard:
		return r.wildcard && (r.name == one.name || r.matches(one.name))
	}
	return r.matches(one.name)
}

// contains reports whether the addresses with prefix p are among those that the network rule allows. A
// special range, or a single address of this host, needs a rule of its own (see [Rules.Addr], [Rules.Alone]),
// so it is not.
func (r rule) contains(p netip.Prefix) bool {
	if p.IsSingleIP() || r.prefix.Bits() > p.Bits() || !r.prefix.Contains(p.Addr()) {
		return false
	}
	within, _, special := Special(p.Addr())
	return !special || r.prefix.Bits() >= within.Bits() && within.Contains(r.prefix.Addr())
}
