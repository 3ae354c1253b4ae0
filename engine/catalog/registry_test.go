package catalog_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
)

func asIs(path string) string { return path }

// others returns what the list of state directories in home leads to.
func others(home string) []string {
	return catalog.Others([]string{filepath.Join(home, catalog.Registry)}, asIs)
}

// A list leads to state directories and their data elsewhere, and to nothing else that somebody put into it.
func TestOnlyDirectoriesWithDataOfSandboxesAreListed(t *testing.T) {
	home, state, data := t.TempDir(), t.TempDir(), t.TempDir()
	if err := catalog.Register(home, state); err != nil {
		t.Fatal(err)
	}
	if got := others(home); len(got) != 0 {
		t.Errorf("%q is listed before it is a state directory", got)
	}
	c, err := catalog.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(home, catalog.Registry)
	for name, to := range map[string]string{"a": "/", "b": home, "c": "relative", "d": "/nothing/there", "e": state + "/../" + filepath.Base(state)} {
		if err := os.Symlink(to, filepath.Join(list, name)); err != nil {
			t.Fatal(err)
		}
	}
	if got := others(home); !slices.Equal(got, []string{state}) {
		t.Errorf("listed are %q, want %q", got, state)
	}
	for range 2 {
		if err := c.AddLocation(catalog.Location{Driver: "btrfs", Path: "/w"}, data); err != nil {
			t.Fatal(err)
		}
	}
	if got := others(home); !slices.Equal(got, []string{state, data}) {
		t.Errorf("listed are %q, want %q and %q", got, state, data)
	}
	if got := c.Outside(); !slices.Equal(got, []string{data}) {
		t.Errorf("data outside: %q, want %q", got, data)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(data, 1, 1); err != nil {
			t.Fatal(err)
		}
		if got := c.Outside(); len(got) != 0 {
			t.Errorf("%q of another owner is listed", got)
		}
	}
}

// A usual state directory needs no entry, and entries whose directories are gone make room for the next one.
func TestTheListHasOnlyUnusualStateDirectories(t *testing.T) {
	home := t.TempDir()
	register := func(states ...string) (entries int) {
		t.Helper()
		for _, state := range states {
			if err := catalog.Register(home, state); err != nil {
				t.Fatal(err)
			}
		}
		list, _ := os.ReadDir(filepath.Join(home, catalog.Registry))
		return len(list)
	}
	there := t.TempDir()
	if n := register(filepath.Join(home, ".local/state/snapfs"), "/var/lib/snapfs", there, there, "/nothing/there"); n != 2 {
		t.Errorf("%d entries, want two", n)
	}
	for i := range 40 {
		if n := register("/nothing/" + strconv.Itoa(i)); n < 2 || n > 16 {
			t.Errorf("%d entries, want 2 to 16", n)
		}
	}
	if _, err := os.Stat(there); err != nil || register(there) > 16 {
		t.Error("the entry of a directory that exists is gone")
	}
	for _, none := range []string{"", "/nothing/there"} {
		if err := catalog.Register(none, "/some/state"); err != nil {
			t.Errorf("without a home: %v", err)
		}
	}
}
