package policy

import (
	"slices"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
)

func TestDirectCommandsMatchWholeWords(t *testing.T) {
	p, err := Parse("/p/snapfs.toml", []byte("[direct]\ncommands = [\"git  fetch\", \"make docs *\"]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want bool
	}{
		{[]string{"git", "fetch"}, true},
		{[]string{"git", "fetch", "-v"}, false},
		{[]string{"git"}, false},
		{[]string{"git fetch"}, false},
		{[]string{"make", "docs"}, true},
		{[]string{"make", "docs", "a", "b"}, true},
		{[]string{"make"}, false},
		{[]string{"make", "docsx"}, false},
		{[]string{"/usr/bin/git", "fetch"}, false},
	} {
		if got := p.Sandbox.Direct.Why(c.args, []string{catalog.EffectNone}) != ""; got != c.want {
			t.Errorf("%q runs directly: %v", c.args, got)
		}
	}
	if (*catalog.Direct)(nil).Why([]string{"true"}, []string{catalog.EffectNone}) != "" {
		t.Error("without a profile a job runs directly")
	}
}

// The site's policy lists what may run without a sandbox. Without such a list, nothing may.
func TestTheSiteBoundsWhatRunsDirectly(t *testing.T) {
	for _, c := range []struct {
		site string
		want *catalog.Direct
	}{
		{"", nil},
		{"[direct]\ncommands = [\"a\", \"c\"]\n", &catalog.Direct{Commands: []string{"a"}}},
		{"[direct]\nwhen = \"risky\"\n", &catalog.Direct{Risky: true}},
		{"[direct]\nwhen = \"always\"\n", nil},
	} {
		site, err := parseSite("/etc/snapfs/policy.toml", []byte("[limits]\n"+c.site))
		if err != nil {
			t.Fatal(err)
		}
		p := catalog.Policy{Direct: &catalog.Direct{Commands: []string{"a", "b"}, Risky: true}}
		site.Bound(&p)
		if (p.Direct == nil) != (c.want == nil) || p.Direct != nil && (p.Direct.Risky != c.want.Risky || !slices.Equal(p.Direct.Commands, c.want.Commands)) {
			t.Errorf("with %q: %+v", c.site, p.Direct)
		}
		if p.Site == nil || len(p.Site.Bounded) == 0 {
			t.Errorf("with %q nothing says that it was bounded", c.site)
		}
	}
}

func TestDirectMistakesAreNamed(t *testing.T) {
	for _, text := range []string{
		`commands = ["* x"]`, `commands = ["a * b"]`, `commands = ["a b*"]`, `commands = ["a; b"]`, `commands = ["a $(b)"]`, `commands = "a"`, `when = "never"`, `wen = "risky"`,
	} {
		if _, err := Parse("/p/snapfs.toml", []byte("[direct]\n"+text+"\n")); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}
