package policy

import (
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/network"
	"github.com/snapfs/snapfs/network/httprule"
)

// knownBases returns the variables from which common clients read the URL of their server, each with the server's URL
// that it has by default. base-url in a profile needs no URL for them.
func knownBases() map[string]string {
	return map[string]string{
		"ANTHROPIC_BASE_URL":     "https://api.anthropic.com",
		"OPENAI_BASE_URL":        "https://api.openai.com/v1",
		"GOOGLE_GEMINI_BASE_URL": "https://generativelanguage.googleapis.com",
		"GITHUB_API_URL":         "https://api.github.com",
		"npm_config_registry":    "https://registry.npmjs.org",
		"PIP_INDEX_URL":          "https://pypi.org/simple",
		"UV_DEFAULT_INDEX":       "https://pypi.org/simple",
	}
}

// baseURL returns the base URL in v, the value of the key name (base-url) of a secret: a variable, or VARIABLE=URL.
// Without a URL its server has no name yet, and [reader.checkBase] finds it. After a mistake, which it adds to the
// reader's at path, it returns nil.
func (r *reader) baseURL(name, path string, v any) *catalog.BaseURL {
	variable, text, given := strings.Cut(r.text(name, path, v), "=")
	if r.variable(name, path, variable); variable == "" {
		return nil
	}
	b := &catalog.BaseURL{Variable: variable}
	if !given {
		return b
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" || !isServer(u.Hostname()) {
		r.wrong(path, fmt.Sprintf("%s: invalid URL %q", name, text), `write the server's own URL, as "`+variable+`=https://api.example.com/v1"`)
		return nil
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		r.wrong(path, fmt.Sprintf("%s: invalid port %q", name, port), "write a number up to 65535")
		return nil
	}
	b.Host, b.Path = network.Fold(u.Hostname())+":"+port, strings.TrimRight(u.EscapedPath(), "/")
	if clean, err := httprule.Clean(b.Path); b.Path != "" && (err != nil || clean != b.Path) {
		r.wrong(path, fmt.Sprintf("%s: invalid path %q", name, b.Path), "write a path as in /v1")
		return nil
	}
	return b
}

// isServer reports whether name is the name of a server, and no address.
func isServer(name string) bool {
	_, err := netip.ParseAddr(name)
	return err != nil && network.ValidName(network.Fold(name))
}

// checkBase completes the base URL of the secret s with a server if the profile names none: the one for which the
// variable is known, or else the secret's only host. It records a mistake at path if the secret does not go to the
// server.
func (r *reader) checkBase(s *catalog.Secret, path string) {
	rules, err := network.Parse(strings.Join(s.Hosts, ","))
	if err != nil {
		return // a mistake of hosts
	}
	b := s.Base
	if b.Host == "" {
		known, path, _ := strings.Cut(strings.TrimPrefix(knownBases()[b.Variable], "https://"), "/")
		if path != "" {
			b.Path = "/" + path
		}
		switch {
		case among(rules, known+":443"):
			b.Host = known + ":443"
		case len(s.Hosts) == 1:
			b.Host = network.Fold(s.Hosts[0])
		}
	}
	switch {
	case b.Host == "":
		r.wrong(path, fmt.Sprintf("secret %s: base-url %s does not say which of the hosts", s.Name, b.Variable), `write the URL, as "`+b.Variable+`=https://api.example.com"`)
	case !among(rules, b.Host):
		r.wrong(path, fmt.Sprintf("secret %s: the server %s of base-url is not among its hosts", s.Name, b.Host), `write the URL of one, as "`+b.Variable+`=https://api.example.com"`)
	}
}

// among reports whether host, a name with a port, is one of the servers that rules name.
func among(rules network.Rules, host string) bool {
	name, port, _ := strings.Cut(host, ":")
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || !isServer(name) {
		return false
	}
	_, ok := rules.Name(network.Fold(name), uint16(n))
	return ok
}
