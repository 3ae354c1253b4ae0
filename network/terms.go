package network

import (
	"errors"
	"strings"

	"github.com/snapfs/snapfs/internal/units"
)

// HostName is the name that stands in network rules for this host's own loopback. A sandbox with such a rule
// reaches the host's services at the ports that the rule names.
const HostName = "host.snapfs"

// Terms are the options of a network rule, such as +bytes=SIZE. The zero value has none.
type Terms struct {
	// Bytes bounds the payload of all connections of a rule, both ways together, and
	// Connections the number open at once; 0 means no limit.
	Bytes, Connections int64
	// ECH allows an encrypted ClientHello with the rule's name as its outer name; the inner one cannot be read.
	// QUIC allows QUIC, whose server name cannot be read. TCP allows any protocol, without inspection.
	ECH, QUIC, TCP bool
}

// String returns the options of a network rule as text in the canonical form that the parser of rules
// accepts, such as "+quic".
func (t Terms) String() string {
	s := ""
	if t.Bytes > 0 {
		s += "+bytes=" + units.FormatSize(t.Bytes)
	}
	if t.Connections > 0 {
		s += "+connections=" + units.FormatCount(t.Connections)
	}
	if t.ECH {
		s += "+ech"
	}
	if t.QUIC {
		s += "+quic"
	}
	if t.TCP {
		s += "+tcp"
	}
	return s
}

// both returns the stricter value of each option of t and o: the lower limit, and a permission only if both
// have it.
func (t Terms) both(o Terms) Terms {
	return Terms{
		Bytes: lower(t.Bytes, o.Bytes), Connections: lower(t.Connections, o.Connections), ECH: t.ECH && o.ECH, QUIC: t.QUIC && o.QUIC, TCP: t.TCP && o.TCP,
	}
}

// lower returns the lower of two limits of network rules, where 0 means no limit.
func lower(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// Plain returns the text of a network rule, as [Rules] prints it, without its options.
func Plain(rule string) string {
	rule, _, _ = strings.Cut(rule, "+")
	return rule
}

// Terms returns the options of the network rule whose text is which; options in which do not matter. It
// returns the zero value if there is no such rule.
func (r Rules) Terms(which string) Terms {
	which = Plain(which)
	for _, one := range r.list {
		if one.selector() == which {
			return one.terms
		}
	}
	return Terms{}
}

// flag returns a pointer to the option of this name that has no value, such as quic, for the parser to set;
// nil for another name.
func (t *Terms) flag(name string) *bool {
	return map[string]*bool{"ech": &t.ECH, "quic": &t.QUIC, "tcp": &t.TCP}[name]
}

// parseTerms parses s, the options of a network rule: the text after its first plus, at the offset at of the
// rule. isName is set if the rule has a name, which the proxy compares with the server name of connections.
func parseTerms(s string, at int, isName bool) (t Terms, bad *fault) {
	for {
		option, rest, more := strings.Cut(s, "+")
		name, value, valued := strings.Cut(option, "=")
		where := at + len(name) + 1
		var twice bool
		var err error
		switch {
		case name == "bytes" && valued:
			twice = t.Bytes > 0
			t.Bytes, err = units.ParseSize(value)
		case name == "connections" && valued:
			twice = t.Connections > 0
			t.Connections, err = units.ParseCount(value)
		case (name == "ech" || name == "tcp") && !valued && !isName:
			return t, &fault{at, "nothing of it is read", "+" + name + " with a name, example.com+" + name}
		case !valued && t.flag(name) != nil:
			twice = *t.flag(name)
			*t.flag(name) = true
		default:
			return t, &fault{at, "no option", "+bytes=SIZE, +connections=N, +ech, +quic, +tcp"}
		}
		switch {
		case errors.Is(err, units.ErrZero):
			return t, &fault{where, err.Error(), "for no limit, leave the option out; for no connection, the rule"}
		case err != nil:
			return t, &fault{where, err.Error(), ""}
		case twice:
			return t, &fault{at, "an option twice", "each once"}
		case !more:
			return t, nil
		}
		at += len(option) + 1
		s = rest
	}
}
