package policy_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/network"
)

// TestARuleIsAddedToAProfile in each form of its net, and nothing else changes.
func TestARuleIsAddedToAProfile(t *testing.T) {
	dir := treetest.Dir(t)
	path := filepath.Join(dir, "own.toml")
	rules, err := network.Parse("new.example:443,GET,POST api.example/v1/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ before, after, refused string }{
		{"[sandbox]\nnet = [\"a.example\"] # mine\nhide = [\"/x\"]\n", "[sandbox]\nnet = [\"a.example\", NEW] # mine\nhide = [\"/x\"]\n", ""},
		{"[sandbox]\nnet = [\n  \"a.example\", # one\n  'b.example', # two\n]\n", "[sandbox]\nnet = [\n  \"a.example\", # one\n  'b.example', NEW, # two\n]\n", ""},
		{"sandbox.net = \"allow:a.example\"", "sandbox.net = \"allow:a.example,RULES\"", ""},
		{"sandbox = { net = [\"a.example\"] }\n", "sandbox = { net = [\"a.example\", NEW] }\n", ""},
		{"[sandbox] # mine\nhide = [\"/x\"]\n", "[sandbox] # mine\nnet = [NEW]\nhide = [\"/x\"]\n", ""},
		{"[limits]\nmemory = \"1G\"\n", "[limits]\nmemory = \"1G\"\n\n[sandbox]\nnet = [NEW]\n", ""},
		{"", "\n[sandbox]\nnet = [NEW]\n", ""},
		{"[sandbox]\nnet = [\"new.example:443\", \"GET,POST api.example/v1/*\"]\n", "", ""},
		{"[sandbox]\nnet = \"none\"\n", "", `its net is "none"`},
		{"[sandbox]\nnet = \"host\"\n", "", `its net is "host"`},
		{"extends = \"npm-install\"\n", "", "a profile that it extends"},
		{"sandbox = { hide = [\"/x\"] }\n", "", "a form that snapfs does not change"},
	} {
		if err := os.WriteFile(path, []byte(c.before), 0o640); err != nil {
			t.Fatal(err)
		}
		want := strings.NewReplacer("NEW", `"new.example:443", "GET,POST api.example/v1/*"`, "RULES", rules.String()).Replace(c.after)
		if want == "" {
			want = c.before
		}
		e, err := policy.AddNet(path, rules)
		if c.refused != "" {
			if !errors.Is(err, errs.ErrNotSupported) || !strings.Contains(err.Error(), c.refused) || !strings.HasPrefix(errs.HintsOf(err)[0], "net = [") {
				t.Errorf("%q: %v", c.before, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.before, err)
			continue
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != c.before {
			t.Errorf("%q: AddNet changes the file: %q, %v", c.before, got, err)
		}
		if err := e.Write(); err != nil {
			t.Error(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Errorf("%q becomes %q, not %q: %v", c.before, got, want, err)
		}
		if e.Line > 0 && (e.New != strings.Split(want, "\n")[e.Line-1] || !strings.Contains(e.New, "new.example:443")) {
			t.Errorf("%q: line %d is %q", c.before, e.Line, e.New)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("the permissions are %v, %v", info.Mode(), err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%d files are left in the directory, %v", len(left), err)
	}
}

// TestAChangedProfileIsNotOverwritten: what another program wrote meanwhile stays.
func TestAChangedProfileIsNotOverwritten(t *testing.T) {
	path := filepath.Join(treetest.Dir(t), "own.toml")
	rules, err := network.Parse("new.example")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := policy.AddNet(path, rules)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("# mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := e.Write(); !errors.Is(err, errs.ErrBusy) {
		t.Error(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "# mine\n" {
		t.Errorf("%q, %v", got, err)
	}
}
