package network

import (
	"net/netip"

	"github.com/snapfs/snapfs/network/httprule"
)

// Both returns the intersection of two sets of rules: the rules of each that the other covers. It never allows
// more than either, and may allow less.
func (r Rules) Both(other Rules) Rules {
	var both Rules
	spent := map[string]bool{} // rules whose budget a narrower rule has
	for _, pair := range [][2]Rules{{r, other}, {other, r}} {
		for _, one := range pair[0].list {
			for _, wide := range pair[1].list {
				budget := wide.terms.Bytes > 0 || wide.terms.Connections > 0
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

// narrow adds the rule one. If there is a rule that differs only in its options, it gets the
// intersection of both options.
func (r *Rules) narrow(one rule) {
	for _, old := range r.list {
		if old.selector() == one.selector() {
			one.terms = old.terms.both(one.terms)
		}
	}
	r.add(one)
}

// overlaps reports whether both rules allow some destination.
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

// covers reports whether r allows everything that one allows.
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

// contains reports whether the prefix p lies in the rule's prefix and allows nothing more: a
// special range, or a single address of this host, needs a rule of its own (see [Rules.Addr],
// [Rules.Alone]).
func (r rule) contains(p netip.Prefix) bool {
	if p.IsSingleIP() || r.prefix.Bits() > p.Bits() || !r.prefix.Contains(p.Addr()) {
		return false
	}
	within, _, special := Special(p.Addr())
	return !special || r.prefix.Bits() >= within.Bits() && within.Contains(r.prefix.Addr())
}
