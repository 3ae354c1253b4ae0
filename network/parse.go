package network

import (
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// parseRule parses one network rule with its options, without spaces around it.
func parseRule(s string) (rule, *fault) {
	if methods, rest, ok := cutMethods(s); ok {
		return parseHTTP(methods, s[rest:], rest)
	}
	if bad := pasted(s); bad != nil {
		return rule{}, bad
	}
	plain, options, ok := strings.Cut(s, "+")
	r, bad := parsePlain(plain)
	if bad == nil && ok {
		r.terms, bad = parseTerms(options, len(plain)+1, r.name != "" && r.name != HostName)
		if bad == nil && (r.terms.Rate.N > 0 || r.terms.Body > 0) {
			bad = &fault{len(plain), "a limit of requests without methods", "the methods before the name: GET,POST " + s}
		}
	}
	return r, bad
}

// parsePlain parses a network rule that has no methods and no options: a name, an address or a prefix, with
// an optional port.
func parsePlain(s string) (rule, *fault) {
	if strings.HasPrefix(s, "[") {
		return parseBracketed(s)
	}
	if host, bits, ok := strings.Cut(s, "/"); ok {
		return parsePrefix(host, bits)
	}
	if strings.Count(s, ":") > 1 {
		addr, err := netip.ParseAddr(s)
		if err != nil {
			return rule{}, &fault{0, "no IPv6 address", "2001:db8::7, or with a port [2001:db8::7]:443"}
		}
		return addressRule(addr, addr.BitLen(), everyPort(), 0)
	}
	host, port, ok := strings.Cut(s, ":")
	r := rule{ports: everyPort()}
	if ok {
		var bad *fault
		if r.ports, bad = parsePorts(port, len(host)+1); bad != nil {
			return rule{}, bad
		}
	}
	if looksNumeric(host) {
		addr, err := netip.ParseAddr(host)
		if err != nil {
			return rule{}, &fault{0, "neither a name nor an address", "four numbers from 0 to 255, as 192.0.2.7"}
		}
		return addressRule(addr, addr.BitLen(), r.ports, 0)
	}
	var bad *fault
	if r.name, r.wildcard, bad = parseName(host); bad == nil && r.name == HostName && r.ports == everyPort() {
		bad = &fault{len(host), "no port of this host", "the ones that it may reach, " + HostName + ":8080"}
	}
	return r, bad
}

// pasted returns an error with a suggestion for text that cannot be a network rule, as people paste it:
// empty, a star alone, a link, or with a space or a user. Otherwise it returns nil.
func pasted(s string) *fault {
	switch i := strings.Index(s, "://"); {
	case s == "":
		return &fault{0, "empty rule", "a name or an address between two commas; --net none allows nothing"}
	case i >= 0:
		host, _, _ := strings.Cut(s[i+3:], "/")
		return &fault{0, "a link", "the name alone: " + withPort(host, s[:i])}
	case s == "*":
		return &fault{0, "a star alone", "a star with a name, *.example.com; --net host allows everything"}
	}
	if i := strings.IndexAny(s, " \t\r\n"); i >= 0 {
		return &fault{i, "a space", "a comma between two rules"}
	}
	if i := strings.IndexByte(s, '@'); i >= 0 {
		return &fault{i, "a user", "the name alone: " + s[i+1:]}
	}
	return nil
}

// withPort returns the network rule that a person probably meant by a pasted link with this host and scheme:
// the host with the scheme's port.
func withPort(host, scheme string) string {
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		host = host[i+1:]
	}
	port, ok := map[string]string{"http": ":80", "https": ":443", "ssh": ":22", "git": ":9418", "ws": ":80", "wss": ":443"}[strings.ToLower(scheme)]
	if !ok || strings.Contains(host, ":") {
		return host
	}
	return host + port
}

func parsePorts(s string, at int) (ports, *fault) {
	low, high, isRange := strings.Cut(s, "-")
	if !isRange {
		high = low
	}
	if s == "" {
		return ports{}, &fault{at, "no port after the colon", "a port from 1 to 65535, or no colon for every port"}
	}
	var p ports
	for _, end := range []struct {
		text string
		at   int
		to   *uint16
	}{{low, at, &p.low}, {high, at + len(s) - len(high), &p.high}} {
		n, err := strconv.ParseUint(end.text, 10, 16)
		if err != nil || n == 0 || end.text[0] == '0' || end.text[0] == '+' {
			return ports{}, &fault{end.at, "no port", "a number from 1 to 65535, or a range, 8000-8999"}
		}
		*end.to = uint16(n)
	}
	if p.low > p.high {
		return ports{}, &fault{at, "a range that ends before it begins", high + "-" + low}
	}
	return p, nil
}

// parseBracketed parses a network rule of the form [IP], [IP]:PORT or [IP/BITS]:PORT.
func parseBracketed(s string) (rule, *fault) {
	inner, rest, ok := strings.Cut(s[1:], "]")
	if !ok {
		return rule{}, &fault{len(s), "no closing bracket", s + "]"}
	}
	p := everyPort()
	if rest != "" {
		if rest[0] != ':' {
			return rule{}, &fault{len(s) - len(rest), "neither a colon nor the end after the bracket", "[2001:db8::7]:443, [2001:db8::/32]:443"}
		}
		var bad *fault
		if p, bad = parsePorts(rest[1:], len(s)-len(rest)+1); bad != nil {
			return rule{}, bad
		}
	}
	host, text, isPrefix := strings.Cut(inner, "/")
	addr, err := netip.ParseAddr(host)
	if err != nil || !addr.Is6() {
		return rule{}, &fault{1, "no IPv6 address", "[2001:db8::7]:443; other addresses and names stand without brackets"}
	}
	bits := addr.BitLen()
	if isPrefix {
		var bad *fault
		if bits, bad = parseBits(text, addr, len(host)+2); bad != nil {
			return rule{}, bad
		}
	}
	return addressRule(addr, bits, p, 1)
}

// parsePrefix parses a network rule of the form IP/BITS or IP/BITS:PORT. host is the part before the slash,
// and rest that after it.
func parsePrefix(host, rest string) (rule, *fault) {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		if bare, _, _ := strings.Cut(host, ":"); !looksNumeric(bare) && bare != "" && strings.Count(host, ":") < 2 {
			return rule{}, &fault{len(host), "a path", "a rule ends with the name or its port: " + host}
		}
		return rule{}, &fault{0, "no address before the slash", "192.0.2.0/24, 2001:db8::/32"}
	}
	text, port, ok := strings.Cut(rest, ":")
	p := everyPort()
	if ok {
		if addr.Is6() {
			return rule{}, &fault{0, "a port without brackets", "[" + host + "/" + text + "]:" + port}
		}
		var bad *fault
		if p, bad = parsePorts(port, len(host)+1+len(text)+1); bad != nil {
			return rule{}, bad
		}
	}
	bits, bad := parseBits(text, addr, len(host)+1)
	if bad != nil {
		return rule{}, bad
	}
	return addressRule(addr, bits, p, 0)
}

func parseBits(s string, addr netip.Addr, at int) (int, *fault) {
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil || int(n) > addr.BitLen() || (len(s) > 1 && s[0] == '0') {
		return 0, &fault{at, "no length of a prefix", "a number from 0 to " + strconv.Itoa(addr.BitLen())}
	}
	return int(n), nil
}

func addressRule(addr netip.Addr, bits int, p ports, at int) (rule, *fault) {
	if addr.Zone() != "" {
		return rule{}, &fault{at, "an address with a zone", addr.WithZone("").String()}
	}
	if addr.Is4In6() {
		return rule{}, &fault{at, "an IPv4 address in an IPv6 one", addr.Unmap().String()}
	}
	prefix := netip.PrefixFrom(addr, bits)
	if prefix != prefix.Masked() {
		return rule{}, &fault{at, "bits beyond the prefix", prefix.Masked().String() + ", or the one address " + addr.String()}
	}
	return rule{prefix: prefix, ports: p}, nil
}

// looksNumeric reports whether the last label of host is a number: host is then an address and
// never a name, as in browsers (URL Standard, "ends in a number"). Resolvers of C libraries
// accept 0x7f.1 and 2130706433 as addresses.
func looksNumeric(host string) bool {
	host = strings.TrimSuffix(host, ".")
	last := host[strings.LastIndexByte(host, '.')+1:]
	if hex, ok := strings.CutPrefix(strings.ToLower(last), "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}

// parseName parses the name of a network rule, NAME or *.NAME, and returns it in DNS's form. The second
// result is true for *.NAME, which stands for the names below.
func parseName(s string) (name string, beneath bool, bad *fault) {
	at := 0
	if strings.HasPrefix(s, "*.") {
		s, beneath, at = s[2:], true, 2
	}
	if i := strings.IndexByte(s, '*'); i >= 0 {
		return "", false, &fault{at + i, "a star within a name", "a star stands for whole labels, at the start: *.example.com"}
	}
	name = Fold(s)
	if !isASCII(name) || strings.Contains(name, "xn--") {
		var ok bool
		if name, ok = toASCII(name); !ok {
			return "", false, &fault{at, "no name in DNS's form", "letters, digits and hyphens of any script between dots"}
		}
	}
	if offset, why := badName(name); why != "" {
		if !isASCII(s) {
			offset = 0 // the mapped name has other offsets
		}
		return "", false, &fault{at + min(offset, len(s)), why, "letters, digits and hyphens between dots, as in example.com"}
	}
	if looksNumeric(name) {
		return "", false, &fault{at, "neither a name nor an address", "a name that does not end in a number"}
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return "", false, &fault{at, "the sandbox's own", "localhost needs no rule; this host's port 5432 is " + HostName + ":5432"}
	}
	if name == "snapfs" || strings.HasSuffix(name, ".snapfs") {
		if name != HostName || beneath {
			return "", false, &fault{at, "none of the sandbox's own names", HostName + ":PORT is this host"}
		}
	}
	return name, beneath, nil
}

// toASCII returns a host name in another script in the form of DNS, as browsers do (UTS 46,
// non-transitional). It rejects a name whose result would change in a second conversion.
func toASCII(name string) (string, bool) {
	if !utf8.ValidString(name) {
		return "", false
	}
	profile := idna.New(idna.MapForLookup(), idna.BidiRule(), idna.CheckJoiners(true), idna.StrictDomainName(false), idna.VerifyDNSLength(false))
	once, err := profile.ToASCII(name)
	if err != nil {
		return "", false
	}
	once = Fold(once)
	again, err := profile.ToASCII(once)
	return once, err == nil && again == once
}

// Fold returns a host name in the form in which network rules contain names: in lower case, without a final
// dot. It changes only ASCII letters, as DNS does (RFC 4343).
func Fold(name string) string {
	name = strings.TrimSuffix(name, ".")
	for i := range len(name) {
		if c := name[i]; 'A' <= c && c <= 'Z' {
			return foldBytes(name)
		}
	}
	return name
}

func foldBytes(name string) string {
	b := []byte(name)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// badName returns why name, the result of Fold, cannot be the name of a host, and at which offset; "" if it
// can. The lengths are RFC 1035's. It allows an underscore, which is in use although host names have none.
func badName(name string) (at int, why string) {
	if name == "" {
		return 0, "no name"
	}
	if len(name) > 253 {
		return 253, "a name longer than 253 characters"
	}
	for label := range strings.SplitSeq(name, ".") {
		switch {
		case label == "":
			return at, "an empty label"
		case len(label) > 63:
			return at + 63, "a label longer than 63 characters"
		case label[0] == '-':
			return at, "a label that begins with a hyphen"
		case label[len(label)-1] == '-':
			return at + len(label) - 1, "a label that ends with a hyphen"
		}
		for i := range len(label) {
			if c := label[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return at + i, "a character that no name has"
			}
		}
		at += len(label) + 1
	}
	return 0, ""
}

// ValidName reports whether name, the result of Fold, can be the name of a host. Rules match no other names.
func ValidName(name string) bool {
	_, why := badName(name)
	return why == "" && !looksNumeric(name)
}
