package policy_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// TestTheSitesPolicyBoundsQuestions: how long a connection waits, and what an answer may allow.
func TestTheSitesPolicyBoundsQuestions(t *testing.T) {
	treetest.NeedRoot(t) // else the site's policy belongs to another user
	for _, c := range []struct {
		site string
		ask  time.Duration
	}{{"", time.Minute}, {"ask = \"30s\"\n", 30 * time.Second}, {"ask = \"none\"\n", 0}, {"ask = \"2m\"\n", time.Minute}} {
		site(t, map[string]string{"policy.toml": "[sandbox]\nnet = [\"*.corp.example\"]\n" + c.site})
		p := catalog.Policy{Network: "allow:a.corp.example", Ask: time.Minute}
		if err := policy.BoundBySite(&p); err != nil {
			t.Fatal(err)
		}
		if p.Ask != c.ask {
			t.Errorf("%q: connections wait %v, not %v", c.site, p.Ask, c.ask)
		}
	}
	p := catalog.Policy{Network: "allow:a.corp.example"}
	if _, err := policy.AllowedNetwork("fix", p, "allow:a.corp.example,b.example"); !errors.Is(err, errs.ErrDenied) {
		t.Errorf("a destination outside of the site's network: %v", err)
	}
	if text, err := policy.AllowedNetwork("fix", p, "allow:a.corp.example,b.corp.example"); err != nil || text != "allow:a.corp.example,b.corp.example" {
		t.Errorf("one within it: %q, %v", text, err)
	}
}

// TestAProfileSetsHowLongAConnectionWaits, also against one that it extends.
func TestAProfileSetsHowLongAConnectionWaits(t *testing.T) {
	dir := site(t, map[string]string{"profiles/asks.toml": "[sandbox]\nask = \"90s\"\n"})
	path := filepath.Join(dir, "own.toml")
	for text, want := range map[string]time.Duration{
		"extends = \"asks\"\n": 90 * time.Second, "extends = \"asks\"\n[sandbox]\nask = \"none\"\n": 0, "[sandbox]\nask = \"1s\"\n": time.Second,
	} {
		write(t, path, text)
		p, err := policy.Read(path, policy.Named)
		if err != nil || p.Sandbox.Ask != want {
			t.Errorf("%q: %v, %v", text, p, err)
		}
	}
	for _, text := range []string{"0s", "500ms", "3m", "1", "soon"} {
		write(t, path, "[sandbox]\nask = \""+text+"\"\n")
		if _, err := policy.Read(path, policy.Named); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
