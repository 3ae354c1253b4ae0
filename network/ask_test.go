package network_test

import (
	"net/netip"
	"testing"

	"github.com/snapfs/snapfs/network"
)

// TestQuestionIsAboutOneDestination that a rule can allow, and about no special one.
func TestQuestionIsAboutOneDestination(t *testing.T) {
	for _, c := range []struct{ name, addr, rule string }{
		{"api.example.com", "[::]:443", "api.example.com:443"},
		{network.HostName, "[::]:8080", "host.snapfs:8080"},
		{"other.snapfs", "[::]:8080", ""},
		{"single", "[::]:443", ""},
		{"4.3.2.1.in-addr.arpa", "[::]:443", ""},
		{"_http._tcp.example.com", "[::]:443", ""},
		{"", "203.0.113.7:443", "203.0.113.7:443"},
		{"", "[2001:db8::7]:443", "[2001:db8::7]:443"},
		{"", "[::ffff:203.0.113.7]:443", "203.0.113.7:443"},
		{"", "8.8.8.8:53", ""},
		{"", "169.254.169.254:80", ""},
		{"", "10.0.0.1:80", ""},
		{"", "[64:ff9b::a00:1]:80", ""},
		{"", "198.19.0.1:80", ""},
	} {
		rule, ok := network.QuestionAbout(c.name, netip.MustParseAddrPort(c.addr))
		if ok != (c.rule != "") || ok && rule != c.rule {
			t.Errorf("%s %s: %q, %v", c.name, c.addr, rule, ok)
		}
		if ok {
			if rules, err := network.Parse(rule); err != nil || rules.String() != c.rule {
				t.Errorf("%s is no rule in its plain form: %q, %v", rule, rules, err)
			}
		}
	}
}
