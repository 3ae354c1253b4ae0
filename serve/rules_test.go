package serve

import (
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
)

// TestASandboxOfAnEarlierServerHasNoMore than this server allows: secrets, programs, files and budget, too.
func TestASandboxOfAnEarlierServerHasNoMore(t *testing.T) {
	full := func() catalog.Policy {
		return catalog.Policy{
			Network: "none", Secrets: []catalog.Secret{{Name: "KEY", Hosts: []string{"a.example.com"}}},
			Tools: &catalog.Tools{Deny: []string{"curl"}}, Data: &catalog.Data{ReadOnly: []string{"/x"}}, Budget: &catalog.Budget{Requests: 10},
		}
	}
	for _, c := range []struct {
		want   string
		change func(*catalog.Policy)
	}{
		{"", func(*catalog.Policy) {}},
		{"", func(p *catalog.Policy) { p.Secrets = nil }},
		{"the secret KEY", func(p *catalog.Policy) { p.Secrets[0].Hosts = []string{"*.example.com"} }},
		{"the secret OTHER", func(p *catalog.Policy) { p.Secrets[0].Name = "OTHER" }},
		{"questions about the network", func(p *catalog.Policy) { p.Ask = 1 }},
		{"other [tools]", func(p *catalog.Policy) { p.Tools = nil }},
		{"other [data]", func(p *catalog.Policy) { p.Data.ReadOnly = []string{"/y"} }},
		{"another budget of", func(p *catalog.Policy) { p.Budget = nil }},
		{"another budget of", func(p *catalog.Policy) {
			larger := *p.Budget
			for _, bound := range larger.Ceilings() {
				*bound *= 2
			}
			p.Budget = &larger
		}},
	} {
		p := full()
		c.change(&p)
		err := (&Rules{Policy: full()}).Covers(&catalog.Record{Name: "s", Policy: p})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
