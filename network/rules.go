package network

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Grammar is how rules are written, for help and documents: [Parse] goes by it.
const Grammar = `Rules are separated by commas. What no rule allows is refused.

    NAME        this name, whatever its addresses are:     example.com
    *.NAME      every name beneath it, not itself:         *.example.com
    IP          one address:                               192.0.2.7  2001:db8::7
    IP/BITS     all addresses that begin with these bits:  192.0.2.0/24  2001:db8::/32

Each may end with a port, :443, or a range of ports, :8000-8999; without one it allows every
port. An address with colons then stands in brackets: [2001:db8::7]:443. A port is TCP's and
UDP's, from 1 to 65535; 0 is an error.

Options follow, each with a plus:

    +bytes=SIZE      what all its connections may carry, both ways together, in the
                     sandbox's life; the one that goes beyond is ended
    +connections=N   how many may be open at once; further ones are refused. Zero is
                     an error here and there
    +ech             an encrypted ClientHello may pass whose outer name is this one. The
                     inner one is not seen, and may be any that the server has
    +quic            QUIC may pass to the name's addresses. No name in it is seen: whoever
                     shares these addresses is reached too

Of several rules the first that fits counts, with its options; of the same rule twice, the
last options.

host.snapfs:PORT is a service on this host's own loopback, at 127.0.0.1 or ::1: that port, of
TCP and UDP, and no other. What is said to it is not read. Other names beneath .snapfs there are none.

Upper case means lower case, a dot at the end of a name is dropped, and a name in another script is
taken in the form that DNS has for it: bücher.example is xn--bcher-kva.example.

A name that leads to this host, its own network, or the service that hands out a cloud machine's
credentials is refused, unless a rule of the second kind names that address too:
db.corp.example:5432,10.1.0.0/16. Such addresses (private, loopback, link-local, shared,
multicast) need a rule that lies within their range, and a public address of this host one of its own:
0.0.0.0/0 allows none of them.
`

// most bounds a text of rules: it is asked for every packet that opens a connection.
const (
	mostRules = 4096
	mostText  = 1 << 18
)

// Rules is what a sandbox may reach. It does not change; the zero value allows nothing. Safe for many goroutines.
type Rules struct {
	list []rule
}

// A rule is a line of the grammar. Either name or prefix is set.
type rule struct {
	name    string // in lower case, as DNS has it, without a dot at the end
	beneath bool   // the names beneath name, instead of itself
	prefix  netip.Prefix
	ports   ports
	terms   Terms
}

// ports is a range, both ends in it.
type ports struct{ low, high uint16 }

func everyPort() ports { return ports{1, 65535} }

func (p ports) hold(port uint16) bool { return p.low <= port && port <= p.high }

func (p ports) String() string {
	switch {
	case p == everyPort():
		return ""
	case p.low == p.high:
		return ":" + strconv.Itoa(int(p.low))
	default:
		return ":" + strconv.Itoa(int(p.low)) + "-" + strconv.Itoa(int(p.high))
	}
}

// A RuleError says where a text of rules is wrong.
type RuleError struct {
	// Column is where, counted in characters from 1, in the text that was parsed.
	Column int
	// Rule is the one rule that is wrong, as it was written.
	Rule string
	// Why is what is wrong, and Want what would be right, or "" where nothing
	// can be guessed.
	Why, Want string
}

func (e *RuleError) Error() string {
	s := fmt.Sprintf("rule %q, column %d: %s", e.Rule, e.Column, e.Why)
	if e.Want != "" {
		s += ": " + e.Want
	}
	return s
}

// A fault is what is wrong at an offset in one rule.
type fault struct {
	at        int
	why, want string
}

// Parse reads rules as [Grammar] says. An error is a [*RuleError].
func Parse(text string) (Rules, error) {
	var r Rules
	if len(text) > mostText {
		return Rules{}, &RuleError{1, cutShort(text), "longer than " + strconv.Itoa(mostText) + " bytes", "fewer rules"}
	}
	for at := 0; at <= len(text); {
		part, _, _ := strings.Cut(text[at:], ",")
		trimmed := strings.Trim(part, " \t")
		from := at + strings.Index(part, trimmed)
		one, bad := parseRule(trimmed)
		if bad == nil && len(r.list) >= mostRules {
			bad = &fault{0, "more than " + strconv.Itoa(mostRules) + " rules", "fewer, with a star or a prefix"}
		}
		if bad != nil {
			return Rules{}, &RuleError{1 + utf8.RuneCountInString(text[:from+bad.at]), cutShort(trimmed), bad.why, bad.want}
		}
		r.add(one)
		at += len(part) + 1
	}
	return r, nil
}

// cutShort keeps a pasted page out of an error.
func cutShort(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

// add leaves out what is there already, so that equal rules are written in one way; where only the
// options differ, the last ones hold.
func (r *Rules) add(one rule) {
	for i, old := range r.list {
		if old.terms = one.terms; old == one {
			r.list[i] = one
			return
		}
	}
	r.list = append(r.list, one)
}

func (r rule) String() string { return r.selector() + r.terms.String() }

// selector is the rule without its options.
func (r rule) selector() string {
	if r.name != "" {
		star := ""
		if r.beneath {
			star = "*."
		}
		return star + r.name + r.ports.String()
	}
	s := r.prefix.String()
	if r.prefix.IsSingleIP() {
		s = r.prefix.Addr().String()
	}
	if p := r.ports.String(); p != "" && r.prefix.Addr().Is6() {
		return "[" + s + "]" + p
	}
	return s + r.ports.String()
}

// String is the rules as [Parse] reads them, in one way only: in their order, each once, names as
// DNS has them.
func (r Rules) String() string {
	list := make([]string, len(r.list))
	for i, one := range r.list {
		list[i] = one.String()
	}
	return strings.Join(list, ",")
}

// Empty says that nothing is allowed.
func (r Rules) Empty() bool { return len(r.list) == 0 }

// Resolves says whether name is allowed on some port, and by which rule: the first that does.
func (r Rules) Resolves(name string) (which string, ok bool) {
	return r.first(name, func(ports) bool { return true })
}

// Name says whether name may be reached on port, and by which rule: the first that allows it.
// name may be in any case and end with a dot; a name in another script is in DNS's form.
func (r Rules) Name(name string, port uint16) (which string, ok bool) {
	return r.first(name, func(p ports) bool { return p.hold(port) })
}

func (r Rules) first(name string, fits func(ports) bool) (string, bool) {
	name = Fold(name)
	for _, one := range r.list {
		if one.matches(name) && fits(one.ports) {
			return one.String(), true
		}
	}
	return "", false
}

func (r rule) matches(name string) bool {
	if r.name == "" || name == "" {
		return false
	}
	if !r.beneath {
		return name == r.name
	}
	above, ok := strings.CutSuffix(name, r.name)
	return ok && len(above) > 1 && above[len(above)-1] == '.'
}

// Addr says whether a rule names the address of to, with its port, and which: the first that does. For an
// address that is not the public's (see [Special]) only a rule counts that lies within its range.
func (r Rules) Addr(to netip.AddrPort) (which string, ok bool) {
	addr := to.Addr().Unmap().WithZone("")
	within, _, special := Special(addr)
	for _, one := range r.list {
		if one.name != "" || !one.prefix.Contains(addr) || !one.ports.hold(to.Port()) {
			continue
		}
		if special && (one.prefix.Bits() < within.Bits() || !within.Contains(one.prefix.Addr())) {
			continue
		}
		return one.String(), true
	}
	return "", false
}

// Alone says whether a rule names the address of to by itself, not by a prefix of several, with its port.
func (r Rules) Alone(to netip.AddrPort) bool {
	addr := to.Addr().Unmap().WithZone("")
	for _, one := range r.list {
		if one.name == "" && one.prefix.IsSingleIP() && one.prefix.Addr() == addr && one.ports.hold(to.Port()) {
			return true
		}
	}
	return false
}
