package profile_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/profile"
	"github.com/snapfs/snapfs/internal/treetest"
)

// TestAProfileThatWasFoundOpensNothing: for each thing that a profile can open, it
// does so when a person names it, and not when it only lies there; each thing
// that tightens holds in both.
func TestAProfileThatWasFoundOpensNothing(t *testing.T) {
	dir := treetest.Dir(t)
	path := filepath.Join(dir, "snapfs.toml")
	type p = catalog.Policy
	none, hour := p{Network: "none"}, catalog.Limits{Time: time.Hour}
	for text, c := range map[string]struct {
		flags, found, named p
	}{
		"[limits]\ntime = \"1m\"": {p{Network: "none", Limits: hour}, p{Network: "none", Limits: catalog.Limits{Time: time.Minute}}, p{Network: "none", Limits: hour}},
		"[limits]\ntime = \"2h\"": {p{Network: "none", Limits: hour}, p{Network: "none", Limits: hour}, p{Network: "none", Limits: hour}},
		"[limits]\ntime = \"1h\"": {none, p{Network: "none", Limits: hour}, p{Network: "none", Limits: hour}},
		"[limits]\nttl = \"1h\"": { // which brings the hard end no nearer
			p{Network: "none", Limits: catalog.Limits{TTL: 2 * time.Hour, RemoveAfter: time.Hour}},
			p{Network: "none", Limits: catalog.Limits{TTL: time.Hour, RemoveAfter: 2 * time.Hour}},
			p{Network: "none", Limits: catalog.Limits{TTL: 2 * time.Hour, RemoveAfter: time.Hour}},
		},
		"[limits]\nkeep-end = true":             {none, none, p{Network: "none", Limits: catalog.Limits{KeepEnd: true}}},
		"[sandbox]\nnet = \"host\"":             {none, none, p{Network: "host"}},
		"[sandbox]\nnet = \"allow:a\"":          {none, none, p{Network: "allow:a"}},
		"[sandbox]\nnet = \"allow:a,b\"":        {p{Network: "host"}, p{Network: "allow:a,b"}, p{Network: "host"}},
		"[sandbox]\nnet = [\"a:1\",\"c\"]":      {p{Network: "allow:a,b"}, p{Network: "allow:a:1"}, p{Network: "allow:a,b"}},
		"[sandbox]\nnet = \"allow:b,c,a\"":      {p{Network: "allow:a,b"}, p{Network: "allow:a,b"}, p{Network: "allow:a,b"}},
		"[sandbox]\nnet = [\"c\"]":              {p{Network: "allow:a,b"}, none, p{Network: "allow:a,b"}},
		"[sandbox]\nnet = \"none\"":             {p{Network: "host"}, none, p{Network: "host"}},
		"[sandbox]\nexpose = [\"/k\"]":          {none, none, p{Network: "none", Expose: []string{"/k"}}},
		"[sandbox]\nenv = [\"K\"]":              {none, none, p{Network: "none", Env: []string{"K"}}},
		"[sandbox]\nhide = [\"/k\"]":            {none, p{Network: "none", Hide: []string{"/k"}}, p{Network: "none", Hide: []string{"/k"}}},
		"[data]\nsecret = [\"/k\"]":             {none, p{Network: "none", Data: &catalog.Data{Secret: []string{"/k"}}}, p{Network: "none", Data: &catalog.Data{Secret: []string{"/k"}}}},
		"[data]\nprivate = [\"/k/*\"]":          {none, p{Network: "none", Data: &catalog.Data{Private: []string{"/k/*"}}}, p{Network: "none", Data: &catalog.Data{Private: []string{"/k/*"}}}},
		"[[stage]]\nname=\"a\"\nbefore=[\"x\"]": {none, none, none},
	} {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		given := func(flag string) bool {
			return flag == "time" && c.flags.Limits.Time != 0 || flag == "ttl" && c.flags.Limits.TTL != 0 || flag == "net" && c.flags.Network != "none"
		}
		for _, try := range []struct {
			path string
			want p
		}{{"", c.found}, {path, c.named}} {
			req := hostfs.Request{Workspace: dir, Policy: c.flags}
			if err := profile.Apply(t.Context(), &req, try.path, given); err != nil {
				t.Fatal(err)
			}
			req.Policy.Profile = nil
			if d := cmp.Diff(try.want, req.Policy); d != "" {
				t.Errorf("%s, %q: %s", text, try.path, d)
			}
		}
	}
}
