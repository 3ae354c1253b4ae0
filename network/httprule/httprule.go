// Package httprule matches HTTP requests by method and path: the part of a network rule besides the host, as
// in "GET,POST https://api.example.com/v1/*".
//
// [Clean] gives a path the one form in which it is matched and sent on, so that the server reads the path
// that the rule allowed. The package must not know names, ports or connections.
package httprule

import (
	"errors"
	"strings"
)

// A Rule allows HTTP requests by method and path; the host belongs to the network rule that contains it. The
// zero value allows every request.
type Rule struct {
	// Methods are the allowed methods, separated by commas; "" allows every method.
	Methods string
	// Path is a pattern in the form of [Clean]: "*" at its end stands for any rest, also none, and as a whole
	// segment for one segment. "" allows every path.
	Path string
}

// IsMethod reports whether word is an HTTP method that a network rule may name.
func IsMethod(word string) bool {
	switch word {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "REPORT", "MKCOL", "COPY", "MOVE":
		return true
	}
	return false
}

// Allows reports whether the rule allows a request with this method and path. path must be the result of
// [Clean].
func (r Rule) Allows(method, path string) bool {
	return (r.Methods == "" || hasMethod(r.Methods, method)) && (r.Path == "" || MatchPath(r.Path, path))
}

// Covers reports whether the rule r allows every request that the rule o allows. It may return false for
// patterns that are too different to compare.
func (r Rule) Covers(o Rule) bool {
	if r.Methods != "" {
		if o.Methods == "" {
			return false
		}
		for m := range strings.SplitSeq(o.Methods, ",") {
			if !hasMethod(r.Methods, m) {
				return false
			}
		}
	}
	if r.Path == "" || r.Path == o.Path {
		return true
	}
	start, rest := strings.CutSuffix(r.Path, "*")
	return rest && o.Path != "" && !strings.Contains(start, "*") && strings.HasPrefix(o.Path, start)
}

func hasMethod(methods, method string) bool {
	for m := range strings.SplitSeq(methods, ",") {
		if m == method {
			return true
		}
	}
	return false
}

// MatchPath reports whether pattern, the path of a [Rule], matches path, which is a result of [Clean].
func MatchPath(pattern, path string) bool {
	if start, rest := strings.CutSuffix(pattern, "*"); rest && !strings.Contains(start, "*") {
		return strings.HasPrefix(path, start)
	}
	for {
		p, pattern2, more := strings.Cut(pattern, "/")
		s, path2, left := strings.Cut(path, "/")
		if !more {
			if start, rest := strings.CutSuffix(p, "*"); rest {
				return strings.HasPrefix(path, start)
			}
			return !left && p == s
		}
		if !left || p != s && (p != "*" || s == "") {
			return false
		}
		pattern, path = pattern2, path2
	}
}

// Reasons why [Clean] refuses the path of a request: servers would disagree about its meaning.
var (
	errRelative = errors.New("the path does not begin with a slash")
	errEncoding = errors.New("the path has a percent sign without two hexadecimal digits")
	errSlash    = errors.New("the path has an encoded slash, backslash or control character, or an escape within an escape")
	errByte     = errors.New("the path has a backslash, a control character or a character beyond ASCII")
	errDots     = errors.New("the path has a dot segment with parameters")
)

// Clean returns the percent-encoded path of a request in one form: letters, digits and -._~ decoded, other
// escapes in upper case, empty and dot segments resolved. It returns an error for a path that servers read
// differently. A slash at the end stays.
func Clean(path string) (string, error) {
	if !strings.HasPrefix(path, "/") {
		return "", errRelative
	}
	plain, err := decode(path)
	if err != nil {
		return "", err
	}
	var kept []string
	segments := strings.Split(plain[1:], "/")
	for i, s := range segments {
		bare, _, parameters := strings.Cut(s, ";")
		last := i == len(segments)-1
		switch {
		case parameters && (bare == "." || bare == ".." || bare == ""):
			return "", errDots
		case s == "..":
			kept = kept[:max(0, len(kept)-1)]
		case s != "" && s != ".":
			kept = append(kept, s)
			continue
		}
		if last {
			kept = append(kept, "")
		}
	}
	return "/" + strings.Join(kept, "/"), nil
}

// decode decodes those percent escapes of a path that stand for letters, digits and -._~, and returns an
// error for a path that servers read differently.
func decode(path string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c <= ' ' || c >= 0x7f || c == '\\' {
			return "", errByte
		}
		if c != '%' {
			b.WriteByte(c)
			continue
		}
		d, ok := escape(path[i:])
		if !ok {
			return "", errEncoding
		}
		twice, again := escape("%" + path[min(i+3, len(path)):])
		switch {
		case d == '/' || d == '\\' || d < ' ' || d == 0x7f:
			return "", errSlash
		case d == '%' && again && (twice == '.' || twice == '/' || twice == '\\' || twice == '%' || twice < ' '):
			return "", errSlash
		case unreserved(d):
			b.WriteByte(d)
		default:
			b.WriteString(strings.ToUpper(path[i : i+3]))
		}
		i += 2
	}
	return b.String(), nil
}

func unreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// escape returns the byte that the percent escape at the start of s, such as %2F, stands for; false if it is
// not valid.
func escape(s string) (byte, bool) {
	if len(s) < 3 {
		return 0, false
	}
	high, ok := digit(s[1])
	low, ok2 := digit(s[2])
	return high<<4 | low, ok && ok2
}

func digit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
