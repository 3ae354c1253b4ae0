package network

import (
	"strings"

	"github.com/snapfs/snapfs/network/httprule"
)

// The rules with methods and a path of HTTP.

// A Request is the destination, method and path of an HTTP request of a sandbox, as the proxy has read it.
type Request struct {
	Name string // the name of the server
	Port uint16
	TLS  bool
	// Method is in capitals, and Path in the form of httprule.Clean.
	Method, Path string
}

// Request reports whether the network rules allow the HTTP request q, and returns the first rule that does,
// as text. A rule without methods allows every request to its name and port.
func (r Rules) Request(q Request) (which string, ok bool) {
	name, scheme := Fold(q.Name), "http"
	if q.TLS {
		scheme = "https"
	}
	for _, one := range r.list {
		if one.matches(name) && one.ports.contain(q.Port) && (one.scheme == "" || one.scheme == scheme) && one.http.Allows(q.Method, q.Path) {
			return one.String(), true
		}
	}
	return "", false
}

// Reads reports whether the proxy must read the HTTP requests to name on port, because the first rule that
// allows this destination names methods.
func (r Rules) Reads(name string, port uint16) bool {
	name = Fold(name)
	for _, one := range r.list {
		if one.matches(name) && one.ports.contain(port) {
			return one.http.Methods != ""
		}
	}
	return false
}

// HasMethods reports whether any rule names HTTP methods, so that the proxy must read requests.
func (r Rules) HasMethods() bool {
	for _, one := range r.list {
		if one.http.Methods != "" {
			return true
		}
	}
	return false
}

// Len returns how many network rules there are.
func (r Rules) Len() int { return len(r.list) }

// Texts returns each network rule as text, in their order.
func (r Rules) Texts() []string {
	list := make([]string, len(r.list))
	for i, one := range r.list {
		list[i] = one.String()
	}
	return list
}

// firstRule returns the first network rule of text, rules separated by commas, without the comma after it. A
// comma between the methods of one rule does not end the rule.
func firstRule(text string) string {
	end := 0
	for {
		part, _, more := strings.Cut(text[end:], ",")
		end += len(part)
		if !more || !httprule.IsMethod(strings.Trim(part, " \t")) {
			return text[:end]
		}
		end++
	}
}

// cutMethods returns the HTTP methods with which the network rule s begins, separated by commas, and the
// offset of the rest. ok is false if s does not begin with a method.
func cutMethods(s string) (methods string, rest int, ok bool) {
	var list []string
	at := 0
	for {
		word := s[at:]
		if end := strings.IndexAny(word, ", \t"); end >= 0 {
			word = word[:end]
		}
		if !httprule.IsMethod(word) {
			return "", 0, false
		}
		if !hasText(list, word) {
			list = append(list, word)
		}
		at += len(word)
		at += blanks(s[at:])
		if at == len(s) || s[at] != ',' {
			return strings.Join(list, ","), at, true
		}
		at++
		at += blanks(s[at:])
	}
}

func blanks(s string) int { return len(s) - len(strings.TrimLeft(s, " \t")) }

func hasText(list []string, text string) bool {
	for _, one := range list {
		if one == text {
			return true
		}
	}
	return false
}

// parseHTTP parses the rest s of a network rule that begins with methods. at is the offset of s in the rule,
// for errors.
func parseHTTP(methods, s string, at int) (rule, *fault) {
	if s == "" {
		return rule{}, &fault{at, "a method without a name", methods + " example.com/path"}
	}
	plain, options, optional := strings.Cut(s, "+")
	scheme, host, bad := cutScheme(plain, at)
	if bad != nil {
		return rule{}, bad
	}
	from := at + len(plain) - len(host)
	slash := strings.IndexByte(host, '/')
	path := ""
	if slash >= 0 {
		host, path = host[:slash], host[slash:]
	}
	if bad := pasted(host); bad != nil {
		bad.at += from
		return rule{}, bad
	}
	r, bad := parsePlain(host)
	if bad != nil && scheme != "" && strings.HasPrefix(bad.why, "no port of this host") {
		bad = nil // the scheme has one
	}
	switch {
	case bad != nil:
		bad.at += from
		return rule{}, bad
	case r.name == "":
		return rule{}, &fault{from, "methods with an address", "a name: " + methods + " example.com/path"}
	}
	if scheme != "" && r.ports == everyPort() {
		r.ports = schemePorts(scheme)
	}
	r.http, r.scheme = httprule.Rule{Methods: methods}, scheme
	if r.http.Path, bad = parsePath(path, from+len(host)); bad != nil {
		return rule{}, bad
	}
	if optional {
		r.terms, bad = parseTerms(options, at+len(plain)+1, true)
		if bad == nil && (r.terms.ECH || r.terms.QUIC || r.terms.TCP) {
			bad = &fault{at + len(plain), "an option by which requests cannot be read", "+bytes=SIZE, +connections=N, +rate=N/m, +body=SIZE"}
		}
	}
	return r, bad
}

// cutScheme returns the scheme with which the destination s of a network rule begins, https or http or "",
// and the rest. at is the offset of s in the rule, for errors.
func cutScheme(s string, at int) (scheme, rest string, bad *fault) {
	scheme, rest, linked := strings.Cut(s, "://")
	if !linked {
		return "", s, nil
	}
	if scheme = strings.ToLower(scheme); scheme != "https" && scheme != "http" {
		return "", "", &fault{at, "neither https:// nor http://", "https://" + rest}
	}
	return scheme, rest, nil
}

// schemePorts returns the port that a network rule with a URL scheme and no port stands for: 443 for https,
// else 80.
func schemePorts(scheme string) ports {
	if scheme == "https" {
		return ports{443, 443}
	}
	return ports{80, 80}
}

// parsePath parses the path of a network rule, such as "/v1/*", which may contain stars. at is its offset in
// the rule, for errors.
func parsePath(path string, at int) (string, *fault) {
	if path == "" {
		return "", nil
	}
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		return "", &fault{at + i, "a query", "the path alone: " + path[:i]}
	}
	clean, err := httprule.Clean(path)
	if err != nil {
		return "", &fault{at, err.Error(), "a path as in /v1/*"}
	}
	if clean != path {
		return "", &fault{at, "a path that is not in its plain form", clean}
	}
	for segment := range strings.SplitSeq(path[1:], "/") {
		if i := strings.IndexByte(segment, '*'); i >= 0 && i != len(segment)-1 {
			return "", &fault{at, "a star within a segment", "a star for a whole segment, or at the end of the path"}
		}
	}
	if i := strings.IndexByte(path, '*'); i >= 0 && i < len(path)-1 && path[i-1] != '/' {
		return "", &fault{at + i, "a star within a segment", "a star for a whole segment, or at the end of the path"}
	}
	return path, nil
}

// link returns the destination of a network rule with methods as text: the given name, with scheme and port.
func (r rule) link(name string) string {
	switch {
	case r.scheme == "":
		return name + r.ports.String()
	case r.ports == schemePorts(r.scheme):
		return r.scheme + "://" + name
	}
	return r.scheme + "://" + name + r.ports.String()
}
