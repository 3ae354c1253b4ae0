package network

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/errs"
)

func parse(t testing.TB, text string) Rules {
	t.Helper()
	r, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRulesHaveOneForm: the record has one form of each rule, however it was typed.
func TestRulesHaveOneForm(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"example.com", "example.com"},
		{"EXAMPLE.Com.", "example.com"},
		{" a.example , b.example ", "a.example,b.example"},
		{"a.example,A.example.,a.example:1-65535", "a.example"},
		{"*.Example.com:443-443", "*.example.com:443"},
		{"example.com:8000-8999", "example.com:8000-8999"},
		{"bücher.example", "xn--bcher-kva.example"},
		{"BÜCHER。example", "xn--bcher-kva.example"},
		{"*.bücher.example:80", "*.xn--bcher-kva.example:80"},
		{"xn--bcher-kva.example", "xn--bcher-kva.example"},
		{"_dmarc.example.com", "_dmarc.example.com"},
		{"db", "db"},
		{"1e100.net", "1e100.net"},
		{"192.0.2.7", "192.0.2.7"},
		{"192.0.2.7/32:443", "192.0.2.7:443"},
		{"10.0.0.0/8:1-1024", "10.0.0.0/8:1-1024"},
		{"0.0.0.0/0", "0.0.0.0/0"},
		{"2001:DB8:0::7", "2001:db8::7"},
		{"2001:db8::/32", "2001:db8::/32"},
		{"[2001:db8::7]", "2001:db8::7"},
		{"[2001:db8::7]:443", "[2001:db8::7]:443"},
		{"[2001:db8::/32]:443", "[2001:db8::/32]:443"},
		{"::/0", "::/0"},
		{"a.example+quic+ech", "a.example+ech+quic"},
		{"a.example:8080+tcp+quic", "a.example:8080+quic+tcp"},
		{"a.example:443+connections=4+bytes=1024K", "a.example:443+bytes=1M+connections=4"},
		{"a.example+bytes=1500B,b.example,A.example.+ech", "a.example+ech,b.example"},
		{"[2001:db8::7]:443+bytes=1.5G+quic", "[2001:db8::7]:443+bytes=1.5G+quic"},
		{"HOST.snapfs.:8080+connections=2", "host.snapfs:8080+connections=2"},
	} {
		r := parse(t, c.text)
		if got := r.String(); got != c.want {
			t.Errorf("%q is written %q, not %q", c.text, got, c.want)
		}
		if again := parse(t, r.String()).String(); again != c.want {
			t.Errorf("%q, written and read again, is %q", c.text, again)
		}
	}
}

// TestErrorsNameTheColumn and suggest a correction.
func TestErrorsNameTheColumn(t *testing.T) {
	for _, c := range []struct {
		text      string
		column    int
		why, want string
	}{
		{"", 1, "empty rule", "--net none"},
		{"a.example,", 11, "empty rule", ""},
		{"a.example+", 11, "no option", "+ech"},
		{"a.example+ech=1", 11, "no option", ""},
		{"b.example,a.example:443+bytes=much+ech", 31, "much", ""},
		{"a.example+bytes=1M+connections=0", 32, "0", ""},
		{"a.example+quic+quic", 16, "an option twice", ""},
		{"192.0.2.0/24+ech", 14, "nothing of it is read", "example.com+ech"},
		{"192.0.2.0/24+tcp", 14, "nothing of it is read", "example.com+tcp"},
		{"host.snapfs", 12, "no port of this host", "host.snapfs:8080"},
		{"*.host.snapfs:80", 3, "none of the sandbox's own names", "host.snapfs:PORT"},
		{"www.snapfs", 1, "none of the sandbox's own names", ""},
		{"*.snapfs:80", 3, "none of the sandbox's own names", ""},
		{"a.example,,b.example", 11, "empty rule", ""},
		{"https://github.com/snapfs", 1, "a link", "github.com:443"},
		{"a.example, http://user@b.example:8080/x", 12, "a link", "b.example:8080"},
		{"github.com/snapfs", 11, "a path", "github.com"},
		{"github.com:443/snapfs", 15, "a path", "github.com:443"},
		{"git@github.com", 4, "a user", "github.com"},
		{"*", 1, "a star alone", "--net host"},
		{"a.*.example", 3, "a star within", "*.example.com"},
		{"*a.example", 1, "a star within", "*.example.com"},
		{"*.*.example", 3, "a star within", ""},
		{"a..example", 3, "an empty label", ""},
		{".example", 1, "an empty label", ""},
		{"*.", 3, "no name", ""},
		{":443", 1, "no name", ""},
		{"-a.example", 1, "begins with a hyphen", ""},
		{"b.a-.example", 4, "ends with a hyphen", ""},
		{"a.ex!mple", 5, "a character", ""},
		{"ü.ex!mple", 1, "a character", ""},
		{strings.Repeat("a", 64) + ".example", 64, "63", ""},
		{strings.Repeat("a.", 127) + "a", 254, "253", ""},
		{"a.example:0", 11, "no port", "65535"},
		{"a.example:65536", 11, "no port", "65535"},
		{"a.example:+80", 11, "no port", ""},
		{"a.example:080", 11, "no port", ""},
		{"a.example:", 11, "no port after", ""},
		{"a.example:1-", 13, "no port", ""},
		{"a.example:1-65536", 13, "no port", ""},
		{"a.example:90-80", 11, "ends before it begins", "80-90"},
		{"10.0.0.1/8", 1, "bits beyond", "10.0.0.0/8, or the one address 10.0.0.1"},
		{"10.0.0.0/33", 10, "no length", "32"},
		{"10.0.0.0/08", 10, "no length", ""},
		{"10.0.0.0/", 10, "no length", ""},
		{"2001:db8::1/32", 1, "bits beyond", "2001:db8::/32"},
		{"2001:db8::/32:443", 1, "without brackets", "[2001:db8::/32]:443"},
		{"[2001:db8::7", 13, "no closing bracket", ""},
		{"[2001:db8::7]443", 14, "neither a colon", ""},
		{"[10.0.0.1]:80", 2, "no IPv6", "without brackets"},
		{"[a.example]:80", 2, "no IPv6", ""},
		{"fe80::1%eth0", 1, "zone", "fe80::1"},
		{"::ffff:10.0.0.1", 1, "an IPv4 address in", "10.0.0.1"},
		{"300.1.2.3", 1, "neither a name nor an address", ""},
		{"127.1", 1, "neither a name nor an address", ""},
		{"a.0x7f", 1, "neither a name nor an address", ""},
		{"2130706433", 1, "neither a name nor an address", ""},
		{"a.example b.example", 10, "a space", "a comma"},
		{"localhost", 1, "the sandbox's own", "host.snapfs:5432"},
		{"a.localhost:80", 1, "the sandbox's own", ""},
		{"xn--a.example", 1, "DNS's form", ""},
	} {
		_, bad := Read(c.text)
		if _, err := Parse(c.text); bad == nil || !errors.Is(err, errs.ErrInvalid) || !strings.Contains(err.Error(), fmt.Sprintf(", column %d: %s", c.column, bad.Why)) {
			t.Errorf("%q is taken for a rule: %v", c.text, err)
			continue
		}
		if bad.Column != c.column || !strings.Contains(bad.Why, c.why) || !strings.Contains(bad.Want, c.want) {
			t.Errorf("%q: column %d, %q, %q; not column %d, %q, %q", c.text, bad.Column, bad.Why, bad.Want, c.column, c.why, c.want)
		}
	}
	if _, err := Parse(strings.Repeat("a.example:1,", 1<<15)); err == nil {
		t.Error("a text without bound is read")
	}
}

// TestNameIsAllowedOnlyByItsRule compares each rule with neighbouring names.
func TestNameIsAllowedOnlyByItsRule(t *testing.T) {
	r := parse(t, "github.com:443,*.example.com,example.com:8000-8001,bücher.example")
	for _, c := range []struct {
		name string
		port uint16
		want string
	}{
		{"github.com", 443, "github.com:443"},
		{"GitHub.com.", 443, "github.com:443"},
		{"github.com", 80, ""},
		{"api.github.com", 443, ""},
		{"evilgithub.com", 443, ""},
		{"github.com.evil.example", 443, ""},
		{"a.example.com", 1, "*.example.com"},
		{"a.b.example.com", 65535, "*.example.com"},
		{".example.com", 80, ""},
		{"aexample.com", 80, ""},
		{"example.com", 8001, "example.com:8000-8001"},
		{"example.com", 8002, ""},
		{"xn--bcher-kva.example", 1, "xn--bcher-kva.example"},
		{"", 80, ""},
		{".", 80, ""},
		{"com", 443, ""},
	} {
		if got, ok := r.Name(c.name, c.port); got != c.want || ok != (c.want != "") {
			t.Errorf("%s:%d is allowed by %q, not %q", c.name, c.port, got, c.want)
		}
	}
	if rule, ok := r.Resolves("github.com"); !ok || rule != "github.com:443" {
		t.Errorf("a name with a port is resolved by %q", rule)
	}
	if _, ok := r.Resolves("nobody.example"); ok {
		t.Error("an unlisted name is resolved")
	}
	if _, ok := (Rules{}).Name("github.com", 443); ok {
		t.Error("no rules allow a name")
	}
}

// TestSpecialAddressesNeedTheirOwnRule: a wide prefix allows only public addresses.
func TestSpecialAddressesNeedTheirOwnRule(t *testing.T) {
	for _, c := range []struct{ rules, to, want string }{
		{"192.0.2.0/24:80", "192.0.2.9:80", "192.0.2.0/24:80"},
		{"192.0.2.0/24:80", "192.0.2.9:81", ""},
		{"192.0.2.0/24", "192.0.3.9:80", ""},
		{"192.0.2.0/24", "[::ffff:192.0.2.9]:80", "192.0.2.0/24"},
		{"2001:db8::/32", "[2001:db8::1]:80", "2001:db8::/32"},
		{"0.0.0.0/0", "8.8.8.8:53", "0.0.0.0/0"},
		{"0.0.0.0/0", "127.0.0.1:53", ""},
		{"0.0.0.0/0,127.0.0.0/8:53", "127.0.0.1:53", "127.0.0.0/8:53"},
		{"0.0.0.0/0", "169.254.169.254:80", ""},
		{"169.254.0.0/16", "169.254.1.1:80", "169.254.0.0/16"},
		{"169.254.0.0/16", "169.254.169.254:80", ""},
		{"169.254.169.254:80", "169.254.169.254:80", "169.254.169.254:80"},
		{"0.0.0.0/0,::/0", "[fe80::1]:80", ""},
		{"::/0", "[fd00:ec2::254]:80", ""},
		{"fd00::/8", "[fd00:ec2::254]:80", ""},
		{"fd00::/8", "[fd00:ec3::254]:80", "fd00::/8"},
		{"::/0", "[64:ff9b::808:808]:80", "::/0"},
		{"::/0", "[64:ff9b::7f00:1]:80", ""},
		{"64:ff9b::7f00:1", "[64:ff9b::7f00:1]:80", "64:ff9b::7f00:1"},
		{"64:ff9b::/96", "[64:ff9b::7f00:1]:80", ""},
		{"::/0", "[2002:7f00:1::1]:80", ""},
		{"2002:7f00::/24", "[2002:7f00:1::1]:80", "2002:7f00::/24"},
		{"example.com", "192.0.2.9:80", ""},
	} {
		if got, ok := parse(t, c.rules).Addr(netip.MustParseAddrPort(c.to)); got != c.want || ok != (c.want != "") {
			t.Errorf("%s allows %s by %q, not %q", c.rules, c.to, got, c.want)
		}
	}
}

// TestAlone is false for a prefix, a name and another port.
func TestAlone(t *testing.T) {
	r := parse(t, "192.0.2.0/24,192.0.2.7:80-81,2001:db8::7/128,example.com")
	for to, want := range map[string]bool{
		"192.0.2.7:80": true, "[::ffff:192.0.2.7]:81": true, "192.0.2.7:82": false, "192.0.2.8:80": false, "[2001:db8::7]:1": true, "[2001:db8::8]:1": false,
	} {
		if got := r.Alone(netip.MustParseAddrPort(to)); got != want {
			t.Errorf("%s: %v", to, got)
		}
	}
}

// TestSpecialRanges names one address of each range, and its neighbours outside.
func TestSpecialRanges(t *testing.T) {
	for _, a := range []string{
		"0.0.0.0", "0.1.2.3", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.255", "169.254.169.254",
		"169.254.0.1", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.168.0.1", "224.0.0.1", "239.255.255.255", "255.255.255.255",
		"168.63.129.16", "100.100.100.200", "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "fe80::1", "fe80::1%eth0",
		"fc00::1", "fd00:ec2::254", "fd20:ce::254", "fec0::1", "ff02::1", "64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1", "64:ff9b:1::808:808",
		"2002:a00:1::", "2002:c0a8:1::1", "2001::1",
	} {
		if _, why, ok := Special(netip.MustParseAddr(a)); !ok || why == "" {
			t.Errorf("%s is taken for a public address", a)
		}
	}
	for _, a := range []string{
		"1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255", "172.15.255.255",
		"172.32.0.0", "192.167.255.255", "192.169.0.0", "198.18.0.1", "223.255.255.255", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1",
		"2600::1", "2001:4860:4860::8888", "fbff::1",
	} {
		if in, why, ok := Special(netip.MustParseAddr(a)); ok {
			t.Errorf("%s is taken for %s, in %s", a, why, in)
		}
	}
}

// TestExamplesInTheGrammarAreRules that can be typed.
func TestExamplesInTheGrammarAreRules(t *testing.T) {
	seen := 0
	for line := range strings.Lines(Grammar) {
		if !strings.HasPrefix(line, "    ") {
			continue
		}
		_, examples, _ := strings.Cut(line, ":  ")
		for _, text := range strings.Fields(examples) {
			seen++
			if _, err := Parse(text); err != nil {
				t.Error(err)
			}
		}
	}
	if seen < 6 {
		t.Errorf("%d examples in the grammar", seen)
	}
	for _, text := range []string{"[2001:db8::7]:443", "db.corp.example:5432,10.1.0.0/16", "bücher.example"} {
		if _, err := Parse(text); err != nil || !strings.Contains(Grammar, text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzRulesSurviveWriting: parsed rules print as text that parses to the same rules; errors have a column
// within the text.
func FuzzRulesSurviveWriting(f *testing.F) {
	for _, s := range []string{
		"example.com", "*.bücher.example:80-90,10.0.0.0/8,[2001:db8::/32]:443", "a.example, b.example.:1", "https://x/", "::/0", "[::1", "1.2.3.4/33:0", "ü。é:5", "xn--a", "*.*",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, bad := Read(text)
		if bad != nil {
			if bad.Column < 1 || bad.Column > len([]rune(text))+1 || bad.Why == "" {
				t.Fatalf("%q: column %d, %q", text, bad.Column, bad.Why)
			}
			return
		}
		again, err := Parse(r.String())
		if err != nil {
			t.Fatalf("%q is written %q: %v", text, r, err)
		}
		if again.String() != r.String() || len(again.list) != len(r.list) {
			t.Fatalf("%q is written %q, and read again %q", text, r, again)
		}
		for i := range r.list {
			if r.list[i] != again.list[i] {
				t.Fatalf("%q: rule %d is %v, and read again %v", text, i, r.list[i], again.list[i])
			}
		}
	})
}
