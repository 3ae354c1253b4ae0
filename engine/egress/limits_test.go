package egress

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/network/budget"
)

// siteWith makes a policy of the site with this text.
func siteWith(t *testing.T, text string) {
	t.Helper()
	treetest.NeedRoot(t) // whose file it must be
	was := policy.SiteDir
	t.Cleanup(func() { policy.SiteDir = was })
	policy.SiteDir = treetest.Dir(t)
	path := filepath.Join(policy.SiteDir, "policy.toml")
	if err := errors.Join(os.Chmod(policy.SiteDir, 0o755), os.WriteFile(path, []byte(text), 0o644), os.Chmod(path, 0o644)); err != nil {
		t.Fatal(err)
	}
}

func TestAStartLowersLimitsToTheSites(t *testing.T) {
	siteWith(t, "[budget]\ntokens = 300\nrequests = 10\n")
	cat, err := catalog.Open(filepath.Join(treetest.Dir(t), "state"))
	if err != nil {
		t.Fatal(err)
	}
	dir := cat.Path("fix")
	if err := errors.Join(os.MkdirAll(dir, 0o700), budget.SetLimits(dir, budget.Count{Tokens: 1000, Sent: 50})); err != nil {
		t.Fatal(err)
	}
	rec := &catalog.Record{Name: "fix", Policy: catalog.Policy{Network: "allow:example.com", Budget: &catalog.Budget{Tokens: 200, BytesSent: 50}}}
	if _, err := (&Gateway{Catalog: cat}).newBrokered(rec); err != nil {
		t.Fatal(err)
	}
	s, err := budget.Read(dir)
	if want := (budget.Count{Tokens: 300, Requests: 10, Sent: 50}); err != nil || s.Limits != want { // raised before, and by the site
		t.Errorf("%+v, %v; want %+v", s.Limits, err, want)
	}
}

func TestNewLimitsStayWithinTheSitesPolicy(t *testing.T) {
	siteWith(t, "[budget]\ntokens = 300\nrequests = 10\n")
	dir := t.TempDir()
	err := setLimits("fix", dir, "tokens", budget.Count{Tokens: 301})
	if !errors.Is(err, errs.ErrDenied) || !strings.Contains(err.Error(), policy.SiteDir+"/policy.toml allows no more than tokens 300") || budget.HasLimits(dir) {
		t.Error(err)
	}
	for _, limits := range []budget.Count{{Tokens: 300}, {Tokens: 300, Sent: 1 << 40}} {
		what := "tokens"
		if limits.Sent > 0 {
			what = "bytes-sent" // which the site does not bound
		}
		if err := setLimits("fix", dir, what, limits); err != nil {
			t.Error(err)
		}
		if s, err := budget.Read(dir); err != nil || s.Limits != limits {
			t.Errorf("%+v, %v", s.Limits, err)
		}
	}
}
