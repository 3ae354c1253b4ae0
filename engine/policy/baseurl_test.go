package policy_test

import (
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/policy"
)

func TestBaseURLsAreRead(t *testing.T) {
	for text, want := range map[string]string{
		"hosts = [\"api.anthropic.com\", \"b.example\"]\nbase-url = \"ANTHROPIC_BASE_URL\"":                "ANTHROPIC_BASE_URL=https://api.anthropic.com",
		"hosts = [\"api.openai.com\"]\nbase-url = \"OPENAI_BASE_URL\"":                                     "OPENAI_BASE_URL=https://api.openai.com/v1",
		"hosts = [\"models.example:8443\"]\nbase-url = \"OPENAI_BASE_URL\"":                                "OPENAI_BASE_URL=https://models.example:8443/v1",
		"hosts = [\"Own.example\"]\nbase-url = \"OWN_URL\"":                                                "OWN_URL=https://own.example",
		"hosts = [\"*.example.com\", \"b.example\"]\nbase-url = \"OWN_URL=https://A.example.com/api/v2/\"": "OWN_URL=https://a.example.com/api/v2",
	} {
		p, err := policy.Parse("/p", []byte("[secrets.A]\nenv = \"A\"\n"+text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := p.Sandbox.Secrets[0].Base.String(); got != want {
			t.Errorf("%s: %s, not %s", text, got, want)
		}
	}
}

func TestMistakesInBaseURLs(t *testing.T) {
	for text, want := range map[string]string{
		"base-url = 1":                                        "expected a text",
		"base-url = \"\"":                                     "base-url: empty",
		"base-url = \"=https://a.example\"":                   "base-url: empty",
		"base-url = \"A B\"":                                  "invalid variable name",
		"base-url = \"A=\"":                                   "invalid URL",
		"base-url = \"A=http://a.example\"":                   "invalid URL",
		"base-url = \"A=https://u:p@a.example\"":              "invalid URL",
		"base-url = \"A=https://a.example?x\"":                "invalid URL",
		"base-url = \"A=https://10.0.0.1\"":                   "invalid URL",
		"base-url = \"A=https://a.example:0\"":                "invalid port",
		"base-url = \"A=https://a.example/x/../y\"":           "invalid path",
		"base-url = \"A=https://a.example:1\"":                "is not among its hosts",
		"base-url = \"A=https://other.example\"":              "is not among its hosts",
		"base-url = \"ANTHROPIC_BASE_URL\"":                   "does not say which",
		"base-url = \"OWN_URL\"":                              "does not say which",
		"base-url = \"OPENAI_BASE_URL=https://c.example/v1\"": "is not among its hosts",
	} {
		if _, err := policy.Parse("p", []byte("[secrets.A]\nenv = \"A\"\nhosts = [\"a.example\", \"*.b.example\"]\n"+text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
	if _, err := policy.Parse("p", []byte("[secrets.A]\nenv = \"A\"\nhosts = [\"*.b.example\"]\nbase-url = \"X\"")); err == nil || !strings.Contains(err.Error(), "is not among its hosts") {
		t.Error(err)
	}
}
