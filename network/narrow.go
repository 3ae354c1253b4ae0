package network

import "net/netip"

// Both is what two sets of rules allow alike: the rules of each that lie within one
// of the other. It never allows more than either, and may allow less.
func (r Rules) Both(other Rules) Rules {
	var both Rules
	spent := map[string]bool{} // rules whose budget a narrower one has
	for _, pair := range [][2]Rules{{r, other}, {other, r}} {
		for _, one := range pair[0].list {
			for _, wide := range pair[1].list {
				budget := wide.terms.Bytes > 0 || wide.terms.Connections > 0
				if wide.covers(one) {
					if whole := wide.selector(); budget && whole != one.selector() {
						if spent[whole] {
							break // many narrow ones would have it many times
						}
						spent[whole] = true
					}
					one.terms = one.terms.both(wide.terms)
					both.narrow(one)
					break
				}
				if budget && wide.meets(one) {
					break // a part of it has a budget, and the rest none
				}
			}
		}
	}
	return both
}

// narrow adds a rule; where only the options differ from one that is there, what both allow holds.
func (r *Rules) narrow(one rule) {
	for _, old := range r.list {
		if old.selector() == one.selector() {
			one.terms = old.terms.both(one.terms)
		}
	}
	r.add(one)
}

// meets: something is allowed by both.
func (r rule) meets(one rule) bool {
	if r.ports.low > one.ports.high || one.ports.low > r.ports.high {
		return false
	}
	if r.name == "" && one.name == "" {
		return r.prefix.Overlaps(one.prefix)
	}
	one.ports = r.ports
	return r.covers(one) || one.covers(r)
}

// covers: whatever one allows, r does.
func (r rule) covers(one rule) bool {
	switch {
	case r.ports.low > one.ports.low || r.ports.high < one.ports.high || (r.name == "") != (one.name == ""):
		return false
	case r.name == "":
		return r.prefix == one.prefix || r.holds(one.prefix)
	case one.beneath:
		return r.beneath && (r.name == one.name || r.matches(one.name))
	}
	return r.matches(one.name)
}

// holds: a prefix lies in r's, and opens nothing that r leaves shut: a range that is not
// the public's, or one address, which may be this host's (see [Rules.Addr], [Rules.Alone]).
func (r rule) holds(p netip.Prefix) bool {
	if p.IsSingleIP() || r.prefix.Bits() > p.Bits() || !r.prefix.Contains(p.Addr()) {
		return false
	}
	within, _, special := Special(p.Addr())
	return !special || r.prefix.Bits() >= within.Bits() && within.Contains(r.prefix.Addr())
}
