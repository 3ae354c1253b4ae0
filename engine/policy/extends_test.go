package policy_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// site makes the site's directory a new one with these files.
func site(t *testing.T, files map[string]string) string {
	t.Helper()
	was := policy.SiteDir
	t.Cleanup(func() { policy.SiteDir = was })
	policy.SiteDir = filepath.Join(treetest.Dir(t), "site")
	for name, text := range files {
		write(t, filepath.Join(policy.SiteDir, name), text)
	}
	return policy.SiteDir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func TestAProfileExtendsOthers(t *testing.T) {
	dir := site(t, map[string]string{"profiles/house.toml": "[limits]\nmemory = \"2G\"\npids = 50\n[sandbox]\nhide = [\"/srv/house\"]\n"})
	own := filepath.Join(dir, "w", "snapfs.toml")
	write(t, own, "extends = [\"go-build\", \"house\", \"./beside.toml\"]\n[limits]\npids = \"none\"\nmemory = \"1G\"\n[sandbox]\nhide = [\"/srv/own\"]\n")
	write(t, filepath.Join(dir, "w", "beside.toml"), "[sandbox]\nnet = \"none\"\nenv = [\"BESIDE\"]\n")
	p, err := policy.Read(own, policy.Named)
	if err != nil {
		t.Fatal(err)
	}
	s := p.Sandbox
	if s.Net != "none" || s.Limits.Memory != 1<<30 || s.Limits.PIDs != 0 || s.Limits.Time.Hours() != 1 {
		t.Errorf("got %+v", s)
	}
	if diff := cmp.Diff([]string{"/srv/house", "/srv/own"}, s.Hide); diff != "" {
		t.Error(diff)
	}
	places := map[string]string{}
	for _, o := range p.Origins {
		places[o.Setting+" "+o.Value] = o.String()
	}
	for setting, place := range map[string]string{
		"limits.time 1h": "go-build:7", "limits.memory 1G": own + ":4", "sandbox.hide /srv/house": filepath.Join(dir, "profiles/house.toml") + ":5",
		"sandbox.net none": filepath.Join(dir, "w/beside.toml") + ":2",
	} {
		if places[setting] != place {
			t.Errorf("%s is said at %q, want %q", setting, places[setting], place)
		}
	}
	if _, ok := places["limits.memory 2G"]; ok {
		t.Error("a limit that was replaced is still said")
	}
}

func TestWhatAProfileMayNotExtend(t *testing.T) {
	dir := site(t, nil)
	own := filepath.Join(dir, "w", "snapfs.toml")
	write(t, filepath.Join(dir, "outside.toml"), "[limits]\npids = 5\n")
	write(t, filepath.Join(dir, "w", "stages.toml"), "[[stage]]\nname = \"a\"\nbefore = [\"true\"]\n")
	write(t, filepath.Join(dir, "w", "loop.toml"), "extends = \"loop.toml\"\n")
	write(t, filepath.Join(dir, "w", "wrong.toml"), "\n[limits]\npids = 0\n")
	if err := os.Symlink("../outside.toml", filepath.Join(dir, "w", "link.toml")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		extends, want string
		trust         policy.Trust
	}{
		{"nobody", own + ":2:1: extends: \"nobody\": ", policy.Named},
		{"./nobody.toml", own + ":2:1: extends: ", policy.Named},
		{"stages.toml", "has stages", policy.Named},
		{"loop.toml", "extends itself", policy.Named},
		{"wrong.toml", filepath.Join(dir, "w", "wrong.toml") + ":3:", policy.Named},
		{"../outside.toml", "outside the directory", policy.Tightening},
		{"./link.toml", "outside the directory", policy.Tightening},
		{"../outside.toml", "", policy.Named},
		{"./link.toml", "", policy.Named},
		{"offline", "", policy.Tightening},
	} {
		write(t, own, "\nextends = \""+c.extends+"\"\n")
		_, err := policy.Read(own, c.trust)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.extends, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.extends, err, c.want)
		}
	}
}

func TestEveryBuiltInProfileIsRead(t *testing.T) {
	dir := site(t, map[string]string{"profiles/house.toml": "about = \"ours\"\nversion = 7\n", "profiles/offline.toml": "about = \"stricter\"\n"})
	list, err := policy.List()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]policy.NamedProfile{}
	for _, n := range list {
		found[n.Name] = n
		p, err := policy.Read(n.Name, policy.Named)
		if err != nil || n.Source == "built in" && (p.Path != n.Name || p.Version == 0 || p.About == "") {
			t.Errorf("%s: %+v %v", n.Name, p, err)
		}
	}
	for _, name := range []string{"agent-claude", "agent-codex", "agent-opencode", "npm-install", "pip-install", "cargo-build", "go-build", "offline", "house"} {
		if _, ok := found[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
	if got := found["offline"]; got.Source != filepath.Join(dir, "profiles/offline.toml") || got.About != "stricter" {
		t.Errorf("the site's profile is not in place of the built-in one: %+v", got)
	}
	_, err = policy.Read("offlin", policy.Named)
	var e *errs.Error
	if !errors.Is(err, errs.ErrNotFound) || !errors.As(err, &e) || !strings.Contains(strings.Join(e.Hints, "\n"), "snapfs profile show offline") {
		t.Errorf("a name that is nearly right: %v %+v", err, e)
	}
}

func TestNothingLoosensTheSitesPolicy(t *testing.T) {
	treetest.NeedRoot(t)
	dir := site(t, map[string]string{"policy.toml": `profile = "offline"
[limits]
memory = "1G"
[sandbox]
net = ["*.example.com:443"]
hide = ["/srv/secret"]
expose = ["/srv/shown"]
env = []
[tools]
allow = ["/usr/bin/*", "ls"]
deny = ["curl"]
[data]
writable = ["/srv"]
read-only = ["/srv/fixed"]
secret = ["/srv/*.env"]
private = ["/srv/people"]
`})
	s, err := policy.ReadSite()
	if err != nil {
		t.Fatal(err)
	}
	p := catalog.Policy{Network: "host", Expose: []string{"/srv/secret/key", "/srv/shown/key", "/srv/other", "/srv"}, Env: []string{"TOKEN=1"}, Tools: &catalog.Tools{Allow: []string{"git", "/usr/bin/make", "/opt/x"}}, Data: &catalog.Data{Writable: []string{"/srv/a", "/etc"}, Private: []string{"/srv/mine"}}}
	p.Limits.Memory = 4 << 30
	want := catalog.Policy{Network: "allow:*.example.com:443", Expose: []string{"/srv/shown/key"}, Env: []string{}, Hide: []string{"/srv/secret"}}
	want.Tools = &catalog.Tools{Allow: []string{"/usr/bin/git", "/usr/bin/make"}, Deny: []string{"curl"}}
	want.Data = &catalog.Data{Writable: []string{"/srv/a"}, ReadOnly: []string{"/srv/fixed"}, Secret: []string{"/srv/*.env"}, Private: []string{"/srv/mine", "/srv/people"}}
	want.Limits.Memory = 1 << 30
	want.Site = &catalog.SiteUse{Path: filepath.Join(dir, "policy.toml"), Bounded: []string{
		"memory 1G", "net allow:*.example.com:443 instead of host", "expose /srv/secret/key refused", "expose /srv/other refused", "expose /srv refused",
		"env TOKEN refused", "hide /srv/secret", "tools allow git only as /usr/bin/git", "tools allow /opt/x refused", "tools deny curl",
		"data writable /etc refused", "data read-only /srv/fixed", "data secret /srv/*.env", "data private /srv/people",
	}}
	for range 2 { // it may be bound again at each start
		s.Bound(&p)
		if diff := cmp.Diff(want, p); diff != "" {
			t.Error(diff)
		}
	}
	if s.Default != "offline" {
		t.Errorf("the default profile is %q", s.Default)
	}
	stricter := catalog.Policy{Network: "none", Hide: []string{"/srv/secret"}, Tools: &catalog.Tools{Allow: []string{"ls"}, Deny: []string{"curl"}}, Data: &catalog.Data{Writable: []string{}, ReadOnly: []string{"/srv/fixed"}, Secret: []string{"/srv/*.env"}, Private: []string{"/srv/people"}}}
	stricter.Limits.Memory = 1 << 20
	if s.Bound(&stricter); stricter.Site != nil || stricter.Network != "none" || stricter.Limits.Memory != 1<<20 {
		t.Errorf("a stricter policy changed: %+v", stricter)
	}
}

func TestSecretsAndBudgetsAreExtended(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "base.toml"), `[sandbox]
evidence = true
snapshots = ["exec"]
[secrets.a]
env = "A"
hosts = ["a.example"]
[secrets.b]
env = "B"
hosts = ["b.example"]
[budget]
requests = 10
tokens = 500
hosts = ["m.example"]
`)
	path := filepath.Join(dir, "snapfs.toml")
	write(t, path, `extends = "./base.toml"
[sandbox]
snapshots = ["plan"]
keep-snapshots = 7
[secrets.b]
env = "OTHER"
hosts = ["c.example"]
[budget]
requests = 20
`)
	p, err := policy.Read(path, policy.Named)
	if err != nil {
		t.Fatal(err)
	}
	s := p.Sandbox
	if !s.Evidence || s.KeyPoints.Keep != 7 || !slices.Equal(s.KeyPoints.At, []string{"exec", "plan"}) {
		t.Errorf("evidence %v, snapshots %+v", s.Evidence, s.KeyPoints)
	}
	if len(s.Secrets) != 2 || s.Secrets[0].Env != "A" || s.Secrets[1].Env != "OTHER" {
		t.Errorf("secrets %+v", s.Secrets)
	}
	if want := (catalog.Budget{Requests: 20, Tokens: 500, Hosts: []string{"m.example"}}); s.Budget == nil || cmp.Diff(want, *s.Budget) != "" {
		t.Errorf("budget %+v", s.Budget)
	}
	made := catalog.Policy{Network: "none", Evidence: true, Secrets: s.Secrets, Budget: s.Budget}
	got := map[string]int{}
	for _, one := range policy.Explain(made, p, nil) {
		got[one.Setting+" "+one.Value] = one.Line
	}
	for said, line := range map[string]int{"sandbox.evidence true": 2, "secrets.a a.example:443": 4, "secrets.b c.example:443": 5, "budget.requests 20": 9, "budget.tokens 500": 12, "budget.hosts m.example": 13} {
		if got[said] != line {
			t.Errorf("%s: line %d, not %d", said, got[said], line)
		}
	}
}

func TestTheSiteBoundsBudgetsAndWantsEvidence(t *testing.T) {
	dir := site(t, nil)
	write(t, filepath.Join(dir, "policy.toml"), "[sandbox]\nevidence = true\n[budget]\nrequests = 10\ntokens = 100\n")
	treetest.NeedRoot(t)
	s, err := policy.ReadSite()
	if err != nil {
		t.Fatal(err)
	}
	p := catalog.Policy{Network: "none", Budget: &catalog.Budget{Requests: 5, Tokens: 1000}}
	s.Bound(&p)
	if !p.Evidence || p.Budget.Requests != 5 || p.Budget.Tokens != 100 {
		t.Errorf("evidence %v, budget %+v", p.Evidence, p.Budget)
	}
	if want := []string{"budget tokens 100", "evidence true"}; p.Site == nil || !slices.Equal(p.Site.Bounded, want) {
		t.Errorf("tightened: %+v", p.Site)
	}
	write(t, filepath.Join(dir, "policy.toml"), "[secrets.a]\nenv = \"A\"\nhosts = [\"a.example\"]\n")
	if _, err := policy.ReadSite(); err == nil || !strings.Contains(err.Error(), "the site's policy names no secrets") {
		t.Errorf("secrets: %v", err)
	}
}

func TestAPolicyThatOthersMayWriteIsRefused(t *testing.T) {
	dir := site(t, nil)
	if s, err := policy.ReadSite(); s != nil || err != nil {
		t.Errorf("without a policy: %v %v", s, err)
	}
	file := filepath.Join(dir, "policy.toml")
	write(t, file, "[limits]\npids = 5\n")
	refused := func(what string) {
		t.Helper()
		if s, err := policy.ReadSite(); s != nil || !errors.Is(err, errs.ErrDenied) {
			t.Errorf("%s: %v %v", what, s, err)
		}
	}
	if os.Geteuid() != 0 {
		refused("of an ordinary user")
		return
	}
	for _, path := range []string{file, dir} {
		for _, mode := range []os.FileMode{0o775, 0o757} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
			refused(path + " " + mode.String())
		}
		if err := errors.Join(os.Chmod(path, 0o755), os.Chown(path, 1, 0)); err != nil {
			t.Fatal(err)
		}
		refused(path + " of another user")
		if err := os.Chown(path, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := policy.ReadSite(); err != nil || s.Sandbox.Limits.PIDs != 5 {
		t.Errorf("of root: %+v %v", s, err)
	}
	write(t, file, "[[stage]]\nname = \"a\"\n")
	if _, err := policy.ReadSite(); err == nil || !strings.Contains(err.Error(), "the site's policy has no stages") {
		t.Errorf("stages: %v", err)
	}
}

// TestTheSiteBoundsWhatIsRead: no profile makes readable what the site's list lacks, by readable or by writable, and a
// site's writable widens no list of a profile.
func TestTheSiteBoundsWhatIsRead(t *testing.T) {
	treetest.NeedRoot(t) // owns the site's policy
	for _, c := range []struct {
		site       string
		mine, want catalog.Data
	}{
		{"readable = [\"/a\"]", catalog.Data{}, catalog.Data{Readable: []string{"/a"}, Writable: []string{"/a"}}},
		{"readable = [\"/a\"]", catalog.Data{Readable: []string{"/a/b", "/c", "/a/**/*.md"}}, catalog.Data{Readable: []string{"/a/b", "/a/**/*.md"}, Writable: []string{"/a/b", "/a/**/*.md"}}},
		{"readable = [\"/a\"]", catalog.Data{Writable: []string{"/a/b", "/c"}}, catalog.Data{Readable: []string{"/a"}, Writable: []string{"/a/b"}}},
		{"readable = [\"/a\"]\nwritable = [\"/w\"]", catalog.Data{Readable: []string{"/w/x"}, Writable: []string{"/a"}}, catalog.Data{Readable: []string{"/w/x"}, Writable: []string{}}},
		{"writable = [\"/w\"]", catalog.Data{Readable: []string{"/a", "/w/x"}}, catalog.Data{Readable: []string{"/a", "/w/x"}, Writable: []string{"/w/x"}}},
		{"recorded = [\"/r\"]", catalog.Data{Recorded: []string{"/m"}}, catalog.Data{Recorded: []string{"/m", "/r"}}},
	} {
		site(t, map[string]string{"policy.toml": "[data]\n" + c.site + "\n"})
		mine := c.mine
		p := catalog.Policy{Data: &mine}
		if err := policy.BoundBySite(&p); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(&c.want, p.Data); d != "" {
			t.Errorf("%q, %+v: %s", c.site, c.mine, d)
		}
	}
}

// The servers of registries come from the user's own program, besides those of net.
func TestRegistriesOfProgramsAreAdded(t *testing.T) {
	treetest.NeedProgram(t, "go")
	t.Setenv("GOPROXY", "https://modules.example/go")
	t.Setenv("GOSUMDB", "off")
	dir := t.TempDir()
	for _, c := range []struct{ text, want string }{
		{"[sandbox]\nregistries = [\"go\"]\n", "allow:modules.example:443"},
		{"[sandbox]\nnet = [\"a.example:80\"]\nregistries = [\"go\"]\n", "allow:a.example:80,modules.example:443"},
		{"[sandbox]\nnet = \"host\"\nregistries = [\"go\"]\n", "host"},
		{"extends = \"go-build\"\n", "allow:modules.example:443"},
		{"extends = \"go-build\"\n[sandbox]\nnet = \"none\"\n", "none"}, // replaces the network that is extended
		{"extends = \"go-build\"\n[sandbox]\nhide = [\"/srv\"]\n", "allow:modules.example:443"},
	} {
		path := filepath.Join(dir, "profile.toml")
		write(t, path, c.text)
		p, err := policy.Read(path, policy.Named)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.Sandbox.Network(t.Context(), ""); err != nil || got != c.want {
			t.Errorf("%q: %q, %v; want %q", c.text, got, err, c.want)
		}
	}
	t.Setenv("GOPROXY", "off")
	path := filepath.Join(dir, "profile.toml")
	write(t, path, "[sandbox]\nregistries = [\"go\"]\n")
	p, err := policy.Read(path, policy.Named)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := p.Sandbox.Network(t.Context(), ""); err != nil || got != "none" {
		t.Errorf("without a proxy: %q, %v", got, err)
	}
	write(t, path, "[sandbox]\nregistries = [\"gems\"]\n")
	if _, err := policy.Read(path, policy.Named); err == nil || !strings.Contains(err.Error(), `no package manager "gems"`) {
		t.Errorf("an unknown program: %v", err)
	}
}
