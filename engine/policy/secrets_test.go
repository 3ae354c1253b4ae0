package policy_test

import (
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/policy"
)

func TestSecretsAndBudgetAreRead(t *testing.T) {
	p, err := policy.Parse("/w/snapfs.toml", []byte(`
[sandbox]
net = ["GET,POST https://api.example.com/v1/*", "a.example"]
[secrets.TOKEN]
file = "token"
field = "a.b"
hosts = ["api.example.com", "*.example.org:8443"]
methods = ["GET"]
paths = ["/v1/*"]
body = true
[secrets.A]
env = "HOST_A"
hosts = ["a.example"]
[secrets.B]
command = ["pass", "b"]
as = "INSIDE_B"
hosts = ["b.example"]
[budget]
requests = 10
bytes-sent = "1M"
tokens = 50000
money = 2.5
hosts = ["Models.example.com"]
[prices."claude-sonnet-4.5*"]
input = 3
cached = "0.30"
output = 15.0
`))
	if err != nil {
		t.Fatal(err)
	}
	s := p.Sandbox
	if len(s.Secrets) != 3 || s.Secrets[0].As != "HOST_A" || s.Secrets[1].As != "INSIDE_B" || s.Secrets[2].As != "TOKEN" || s.Secrets[2].File != "/w/token" || s.Secrets[2].Field != "a.b" ||
		strings.Join(s.Secrets[2].Hosts, " ") != "api.example.com:443 *.example.org:8443" || !s.Secrets[2].Body {
		t.Errorf("%+v", s.Secrets)
	}
	if b := *s.Budget; b.Requests != 10 || b.BytesSent != 1<<20 || b.Tokens != 50000 || len(b.Hosts) != 1 || b.Hosts[0] != "models.example.com" {
		t.Errorf("%+v", b)
	}
	want := catalog.ModelPrice{Model: "claude-sonnet-4.5*", Input: 3_000_000, Cached: 300_000, Written: -1, Output: 15_000_000}
	if b := *s.Budget; b.Money != 2_500_000 || len(b.Prices) != 1 || b.Prices[0] != want {
		t.Errorf("%+v", b)
	}
	if s.Net != "allow:GET,POST https://api.example.com/v1/*,a.example" {
		t.Errorf("%q", s.Net)
	}
}

func TestMistakesInSecretsAndBudget(t *testing.T) {
	for text, want := range map[string]string{
		"[budget]\nmoney = 0":                                            "zero",
		"[budget]\nmoney = true":                                         "expected a number",
		"[budget]\nmoney = 0.0000001":                                    "six decimals",
		"[prices]\nx = 1":                                                "x is no section",
		"[prices.x]\ninput = 1":                                          "has no output",
		"[prices.\"a*b\"]\ninput = 1\noutput = 1":                        "invalid name",
		"[prices.x]\ninput = -1\noutput = 1":                             "input: ",
		"[secrets]\nx = 1":                                               "x is no section",
		"[secrets.A]\nhosts = [\"a.example\"]":                           "0 sources",
		"[secrets.A]\nenv = \"A\"\nfile = \"x\"\nhosts = [\"a\"]":        "2 sources",
		"[secrets.A]\nenv = \"A\"":                                       "no hosts",
		"[secrets.A]\nenv = \"A=b\"\nhosts = [\"a\"]":                    "invalid variable name",
		"[secrets.A]\nenv = \"A\"\nhosts = [\"10.0.0.1\"]":               "is not one name",
		"[secrets.A]\nenv = \"A\"\nhosts = [\"a+tcp\"]":                  "is not one name",
		"[secrets.A]\nenv = \"A\"\nhosts = [\"GET a\"]":                  "is not one name",
		"[secrets.A]\nenv = \"A\"\nhosts = [\"a\"]\nmethods = [\"get\"]": "invalid method",
		"[secrets.A]\nenv = \"A\"\nhosts = [\"a\"]\npaths = [\"/../x\"]": "invalid path",
		"[secrets.A]\nenv = \"A\"\nhosts = [\"a\"]\nvalue = \"x\"":       "unknown key",
		"[secrets.A]\nenv = \"A\"\nfield = \"x\"\nhosts = [\"a\"]":       "field without a file",
		"[secrets.A]\naws = \"x\"\nhosts = [\"a\"]":                      "invalid source",
		"[secrets.A]\naws = \"profile:\"\nhosts = [\"a\"]":               "invalid source",
		"[secrets.A]\naws = \"env\"\nenv = \"A\"\nhosts = [\"a\"]":       "2 sources",
		"[secrets.A]\naws = \"env\"\nas = \"A\"\nhosts = [\"a\"]":        "aws with as, body or base-url",
		"[secrets.A]\naws = \"env\"\nbase-url = \"A\"\nhosts = [\"a\"]":  "aws with as, body or base-url",
		"[budget]\ntokens = 0":                                           "tokens:",
		"[budget]\ntokens = 1.5":                                         "not a whole number",
		"[budget]\nhosts = [\"a:443\"]":                                  "invalid name",
	} {
		if _, err := policy.Parse("p", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}
