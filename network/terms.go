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
	// Rate bounds how often HTTP requests are sent, and Body the bytes of one request's body; 0 means no limit. Only
	// rules with methods have them.
	Rate Rate
	Body int64
	// ECH allows an encrypted ClientHello with the rule's name as its outer name; the inner one cannot be read.
	// QUIC allows QUIC, whose server name cannot be read. TCP allows any protocol, without inspection.
	ECH, QUIC, TCP bool
}

// A Rate bounds how often HTTP requests are sent: N in each period of Seconds. The zero value means no limit.
type Rate struct{ N, Seconds int64 }

// periods are the periods of a [Rate], in seconds, by the letter that stands for them.
var periods = [...]struct {
	letter  string
	seconds int64
}{{"s", 1}, {"m", 60}, {"h", 3600}}

// String returns the rate as [parseRate] accepts it, such as "60/m"; "" without a limit.
func (r Rate) String() string {
	for _, p := range periods {
		if p.seconds == r.Seconds {
			return units.FormatCount(r.N) + "/" + p.letter
		}
	}
	return ""
}

// parseRate parses a rate of requests, such as "60/m". Errors match units.ErrZero for zero.
func parseRate(text string) (Rate, error) {
	number, period, _ := strings.Cut(text, "/")
	for _, p := range periods {
		if p.letter == period {
			n, err := units.ParseCount(number)
			return Rate{n, p.seconds}, err
		}
	}
	return Rate{}, errors.New("no rate: write 10/s, 60/m or 1000/h")
}

// both returns a rate that is at least as strict as both rates: the fewest requests of the two in their longest
// period.
func (r Rate) both(o Rate) Rate {
	if r == (Rate{}) || o == (Rate{}) {
		return Rate{max(r.N, o.N), max(r.Seconds, o.Seconds)}
	}
	return Rate{min(r.N, o.N), max(r.Seconds, o.Seconds)}
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
	if t.Rate.N > 0 {
		s += "+rate=" + t.Rate.String()
	}
	if t.Body > 0 {
		s += "+body=" + units.FormatSize(t.Body)
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
		Bytes: lower(t.Bytes, o.Bytes), Connections: lower(t.Connections, o.Connections), Rate: t.Rate.both(o.Rate), Body: lower(t.Body, o.Body),
		ECH: t.ECH && o.ECH, QUIC: t.QUIC && o.QUIC, TCP: t.TCP && o.TCP,
	}
}

// lower returns the lower of two limits of network rules, where 0 means no limit.
func lower(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// shared reports whether the options have a limit that all destinations of the rule share.
func (t Terms) shared() bool { return t.Bytes > 0 || t.Connections > 0 || t.Rate.N > 0 }

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

// limit returns a function that sets the limit of this name, such as bytes, from its text, and reports whether it was
// set before; nil for another name.
func (t *Terms) limit(name string) func(text string) (twice bool, err error) {
	number := func(to *int64, parse func(string) (int64, error)) func(string) (bool, error) {
		return func(text string) (twice bool, err error) {
			twice = *to > 0
			*to, err = parse(text)
			return twice, err
		}
	}
	switch name {
	case "bytes":
		return number(&t.Bytes, units.ParseSize)
	case "connections":
		return number(&t.Connections, units.ParseCount)
	case "body":
		return number(&t.Body, units.ParseSize)
	case "rate":
		return func(text string) (twice bool, err error) {
			twice = t.Rate.N > 0
			t.Rate, err = parseRate(text)
			return twice, err
		}
	}
	return nil
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
		case valued && t.limit(name) != nil:
			twice, err = t.limit(name)(value)
		case (name == "ech" || name == "tcp") && !valued && !isName:
			return t, &fault{at, "nothing of it is read", "+" + name + " with a name, example.com+" + name}
		case !valued && t.flag(name) != nil:
			twice = *t.flag(name)
			*t.flag(name) = true
		default:
			return t, &fault{at, "no option", "+bytes=SIZE, +connections=N, +rate=N/m, +body=SIZE, +ech, +quic, +tcp"}
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
