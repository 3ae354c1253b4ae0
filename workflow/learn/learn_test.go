package learn

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/egress"
	"github.com/snapfs/snapfs/engine/policy"
)

func TestARefusedDestinationBecomesARule(t *testing.T) {
	got := withRefused([]string{unused}, []egress.RefusedAccess{
		{Name: "a.example.com"},
		{Name: "a.example.com", Port: 443},
		{Name: "down.example.com", Failed: true},
		{Name: "host.snapfs"},
		{Addr: netip.MustParseAddr("192.0.2.1"), Port: 80},
		{Addr: netip.MustParseAddr("169.254.169.254"), Port: 80},
		{Name: "inside.example.com", Addr: netip.MustParseAddr("10.0.0.1"), Port: 80},
		{Addr: netip.MustParseAddr("2001:db8::1"), Port: 80},
		{Name: "no name"},
	})
	want := []string{unused, "a.example.com", "a.example.com:443", "192.0.2.1:80", "[2001:db8::1]:80"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestTheProfileOfAnyNamesIsRead(t *testing.T) {
	l := &Learned{
		Command:  []string{"a\"\\\n\x01\xff"},
		Net:      []string{"a.example.com:443"},
		Programs: []string{"/usr/bin/cat", "/tmp/*"},
		Writable: []string{"/a \"b\"\t\\ü"},
	}
	l.Profile = l.text()
	p, err := policy.Parse("/x.toml", []byte(l.Profile))
	if err != nil {
		t.Fatalf("%v\n%s", err, l.Profile)
	}
	if s := p.Sandbox; s.Net != "allow:a.example.com:443" || !slices.Equal(s.Tools.Allow, l.Programs) || !slices.Equal(s.Data.Writable, l.Writable) {
		t.Errorf("%+v", s)
	}
	nothing := &Learned{Command: []string{"true"}}
	nothing.Profile = nothing.text()
	if p, err = policy.Parse("/x.toml", []byte(nothing.Profile)); err != nil {
		t.Fatal(err)
	}
	if s := p.Sandbox; s.Net != "none" || s.Tools.Allow == nil || s.Data.Writable == nil {
		t.Errorf("a command that used nothing is restricted: %+v", s)
	}
}

func TestAProgramThatDidNotExistIsNamedByItsDirectory(t *testing.T) {
	l := &Learned{}
	made := map[string]bool{"/w/build": true, "/w/build/tool": true}
	l.setPrograms([]string{"/usr/bin/cat", "/w/build/tool", "/tmp/x/y", "/usr/bin/a b"}, made)
	if d := cmp.Diff([]string{"/usr/bin/cat", "/w/*", "/tmp/*"}, l.Programs); d != "" {
		t.Error(d)
	}
	if len(l.NotLearned) != 1 {
		t.Errorf("not learned: %q", l.NotLearned)
	}
}

func TestProfilesAreComparedByWhatTheyAllow(t *testing.T) {
	used := &policy.Sandbox{
		Net:   "allow:a.example.com:443,b.example.org:80",
		Tools: catalog.Tools{Allow: []string{"/usr/bin/cat", "/opt/x/y", "/usr/bin/id"}},
		Data:  catalog.Data{Writable: []string{"/w/out", "/etc/x"}},
	}
	allowed := &policy.Sandbox{
		Net:   "allow:*.example.com:443,c.example.org",
		Tools: catalog.Tools{Allow: []string{"cat", "/opt/x/*", "id", "ls"}, Deny: []string{"id"}},
		Data:  catalog.Data{Writable: []string{"/w", "/srv"}},
	}
	want := []Difference{
		{"sandbox.net", "b.example.org:80", true},
		{"sandbox.net", "c.example.org", false},
		{"tools.allow", "ls", false},
		{"data.writable", "/etc/x", true},
		{"data.writable", "/srv", false},
		{"tools.allow", "/usr/bin/id", true},
	}
	if d := cmp.Diff(want, Diff(used, allowed)); d != "" {
		t.Error(d)
	}
	if got := Diff(used, used); len(got) > 0 {
		t.Errorf("a profile differs from itself: %v", got)
	}
	reads := *allowed
	reads.Data = catalog.Data{Readable: []string{"/w", "/srv"}} // nothing else may be written either
	if d := cmp.Diff(slices.DeleteFunc(slices.Clone(want), func(d Difference) bool { return d.Value == "/srv" }), Diff(used, &reads)); d != "" {
		t.Error(d)
	}
	free := Diff(used, &policy.Sandbox{Net: "host"})
	want = []Difference{{"sandbox.net", everything, false}, {"tools.allow", everything, false}, {"data.writable", everything, false}}
	if d := cmp.Diff(want, free); d != "" {
		t.Error(d)
	}
}
