package network

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/network/httprule"
)

// Grammar is the syntax of network rules that [Parse] accepts, for help and documents.
const Grammar = `Rules are separated by commas. What no rule allows is refused.

    NAME        this name, whatever its addresses are:     example.com
    *.NAME      every name below it, not itself:           *.example.com
    IP          one address:                               192.0.2.7  2001:db8::7
    IP/BITS     all addresses that begin with these bits:  192.0.2.0/24  2001:db8::/32

Each may end with a port, :443, or a range of ports, :8000-8999; without one it allows every
port. An address with colons then stands in brackets: [2001:db8::7]:443. A port is TCP's and
UDP's, from 1 to 65535; 0 is an error.

A rule may name methods and a path of HTTP, before and after the name:

    METHODS NAME/PATH     GET api.example.com/v1/*    GET,POST https://api.example.com/v1/*

Methods are in capitals. https:// and http:// stand for TLS with port 443 and plain HTTP with port 80,
if no port follows the name; without them both pass. A star at the end of the path is any rest, and
a star between two slashes one segment; without a path every path is allowed. The proxy reads the
requests: it ends TLS with a certificate that only the sandbox trusts ("snapfs help profile"),
resolves dots and double slashes in the path, and answers 403 to a request that no rule allows.

Options follow, each with a plus:

    +bytes=SIZE      the payload of all its connections, both ways together, in the
                     sandbox's life; the connection that exceeds it is ended
    +connections=N   how many may be open at once; further ones are refused. Zero is
                     an error here and there
    +rate=N/m        with methods: how many requests may be sent in a minute, or with /s or /h
                     in a second or an hour; further ones are answered with 429
    +body=SIZE       with methods: the largest body of a request; a larger one is answered
                     with 413
    +ech             an encrypted ClientHello may pass whose outer name is this one. The
                     inner one is not seen, and may be any that the server has
    +quic            QUIC may pass to the name's addresses. Its server name is not seen:
                     every service at these addresses can be reached
    +tcp             any protocol may pass to the name's addresses. Nothing is read, so
                     every service at these addresses can be reached

On the ports 80, 443, 8080 and 8443 of a name, only TLS, HTTP/1 and SSH pass otherwise. On other
ports any protocol does (PostgreSQL, Redis, mail, git, SSH). On each, what could be taken
for TLS or HTTP must be exactly that: a ClientHello in records of version 3.1 to 3.3, or
HTTP/1 as RFC 9112 has it, with this name in it. HTTP/2 passes in TLS, and without TLS with +tcp.

Of several rules the first that fits counts, with its options; of the same rule twice, the
last options.

host.snapfs:PORT is a service on this host's own loopback, at 127.0.0.1 or ::1: that port, of
TCP and UDP, and no other. Its traffic is not inspected. There are no other names below .snapfs.

Upper case means lower case, a dot at the end of a name is dropped, and a name in another script is
taken in the form that DNS has for it: bücher.example is xn--bcher-kva.example.

A name that resolves to this host, its own network, or the metadata service of a cloud machine
is refused, unless a rule names that address too:
db.corp.example:5432,10.1.0.0/16. Such addresses (private, loopback, link-local, shared,
multicast) need a rule that lies within their range, and a public address of this host one of its own:
0.0.0.0/0 allows none of them.
`

// Bounds of network rules, in number and bytes of text, which keep matching fast: every packet that opens a
// connection is matched against all rules. [Parse] refuses more.
const (
	maxRules = 4096
	maxText  = 1 << 18
)

// Rules are the destinations that a sandbox may reach. The zero value allows nothing. Rules are immutable and
// safe for concurrent use.
type Rules struct {
	list []rule
}

// A rule is one parsed network rule, which lets a sandbox reach a name or a range of addresses. Either name
// or prefix is set.
type rule struct {
	name     string // in lower case, in DNS's form, without a final dot
	wildcard bool   // allows the subdomains of name instead of name itself
	prefix   netip.Prefix
	ports    ports
	terms    Terms
	http     httprule.Rule // of requests, or the zero value for any protocol
	scheme   string        // "http", "https", or "" for both; only with http
	text     string        // the result of selector, set by Rules.add
}

// A ports is an inclusive range of port numbers that a network rule allows.
type ports struct{ low, high uint16 }

func everyPort() ports { return ports{1, 65535} }

func (p ports) contain(port uint16) bool { return p.low <= port && port <= p.high }

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

// A Mistake is a syntax error in a text of network rules, with its position and a suggestion.
type Mistake struct {
	// Column is the position in the parsed text, in characters from 1.
	Column int
	// Rule is the text of the invalid rule.
	Rule string
	// Why is the error, and Want a suggestion, or "".
	Why, Want string
}

// Reason returns the syntax error and the suggestion as one text for a person.
func (m *Mistake) Reason() string {
	if m.Want != "" {
		return m.Why + ": " + m.Want
	}
	return m.Why
}

// A fault is a syntax error in one network rule, at the byte offset at of its text, with a suggestion.
type fault struct {
	at        int
	why, want string
}

// Parse parses network rules, as described in [Grammar], and returns a mistake as an error. Errors:
// errs.ErrInvalid.
func Parse(text string) (Rules, error) {
	r, bad := Read(text)
	if bad != nil {
		return r, errs.New("", "", errs.ErrInvalid, fmt.Sprintf("rule %q, column %d: %s", bad.Rule, bad.Column, bad.Reason()))
	}
	return r, nil
}

// Read parses network rules, as described in [Grammar], or returns the first mistake with its position.
func Read(text string) (Rules, *Mistake) {
	var r Rules
	if len(text) > maxText {
		return Rules{}, &Mistake{1, cutShort(text), "longer than " + strconv.Itoa(maxText) + " bytes", "fewer rules"}
	}
	for at := 0; at <= len(text); {
		part := firstRule(text[at:])
		trimmed := strings.Trim(part, " \t")
		from := at + strings.Index(part, trimmed)
		one, bad := parseRule(trimmed)
		if bad == nil && len(r.list) >= maxRules {
			bad = &fault{0, "more than " + strconv.Itoa(maxRules) + " rules", "fewer, with a star or a prefix"}
		}
		if bad != nil {
			return Rules{}, &Mistake{1 + utf8.RuneCountInString(text[:from+bad.at]), cutShort(trimmed), bad.why, bad.want}
		}
		r.add(one)
		at += len(part) + 1
	}
	return r, nil
}

// cutShort returns s, shortened to 80 bytes if it is longer, for an error message.
func cutShort(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

// add adds the network rule one to r. If r has a rule that differs only in its options, that rule gets the
// new options, so that no destination is listed twice.
func (r *Rules) add(one rule) {
	one.text = one.selector() // cached for the comparison with each packet and request
	for i, old := range r.list {
		if old.terms = one.terms; old == one {
			r.list[i] = one
			return
		}
	}
	r.list = append(r.list, one)
}

func (r rule) String() string { return r.selector() + r.terms.String() }

// selector returns the network rule as text without its options: the part that says which destinations it is
// about.
func (r rule) selector() string {
	if r.text != "" {
		return r.text
	}
	if r.name != "" {
		star := ""
		if r.wildcard {
			star = "*."
		}
		if r.http.Methods != "" {
			return r.http.Methods + " " + r.link(star+r.name) + r.http.Path
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

// String returns the network rules in the canonical form that [Parse] accepts: in their order, each once,
// names in DNS's form.
func (r Rules) String() string {
	return strings.Join(r.Texts(), ",")
}

// Empty reports whether there is no network rule, so that no destination is allowed.
func (r Rules) Empty() bool { return len(r.list) == 0 }

// Resolves reports whether any rule allows the host name on some port, so that the sandbox may resolve it,
// and returns the first such rule as text.
func (r Rules) Resolves(name string) (which string, ok bool) {
	return r.first(name, func(ports) bool { return true })
}

// Name reports whether the rules allow connections to the host name on port, and returns the first rule that
// does, as text. name may be in any case and end with a dot; a name in another script must be in DNS's form.
func (r Rules) Name(name string, port uint16) (which string, ok bool) {
	return r.first(name, func(p ports) bool { return p.contain(port) })
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
	if !r.wildcard {
		return name == r.name
	}
	above, ok := strings.CutSuffix(name, r.name)
	return ok && len(above) > 1 && above[len(above)-1] == '.'
}

// Addr reports whether a rule allows connections to the address and port of to, and returns the first such
// rule as text. For a special address (see [Special]), only a rule within its range counts.
func (r Rules) Addr(to netip.AddrPort) (which string, ok bool) {
	addr := to.Addr().Unmap().WithZone("")
	within, _, special := Special(addr)
	for _, one := range r.list {
		if one.name != "" || !one.prefix.Contains(addr) || !one.ports.contain(to.Port()) {
			continue
		}
		if special && (one.prefix.Bits() < within.Bits() || !within.Contains(one.prefix.Addr())) {
			continue
		}
		return one.String(), true
	}
	return "", false
}

// Alone reports whether a rule names exactly the address of to, rather than a prefix, and allows its port.
// Only such a rule lets a sandbox reach an address of this host.
func (r Rules) Alone(to netip.AddrPort) bool {
	addr := to.Addr().Unmap().WithZone("")
	for _, one := range r.list {
		if one.name == "" && one.prefix.IsSingleIP() && one.prefix.Addr() == addr && one.ports.contain(to.Port()) {
			return true
		}
	}
	return false
}
