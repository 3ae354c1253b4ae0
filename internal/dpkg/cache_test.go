package dpkg

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/treetest"
)

// cachedPackage is a database with the package tool, of which nothing has changed for a while, and the path of its
// program.
func cachedPackage(t *testing.T) (db database, c Cache, program string) {
	t.Helper()
	root := treetest.Dir(t)
	program = filepath.Join(root, "tool")
	for path, text := range map[string]string{program: "#!/bin/sh\n", filepath.Join(root, "info", "tool.list"): program + "\n" + program + "2\n"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return database(root), Cache(filepath.Join(root, "cache")), program
}

// keep stores that the package's programs are these, whatever they are, as if nothing had changed for a while.
func (c Cache) keep(t *testing.T, db database, programs ...string) {
	t.Helper()
	stamp, _ := db.stamp("tool")
	if err := c.store(filepath.Join(string(c), "tool"), stamp, programs); err != nil {
		t.Fatal(err)
	}
}

// TestStoredProgramsAreThoseOfTheSameLists, and are found again where dpkg has changed a list, a program is none any more,
// or others may write to the cache.
func TestStoredProgramsAreThoseOfTheSameLists(t *testing.T) {
	for name, change := range map[string]func(db database, c Cache, program string) error{
		"the list is replaced": func(db database, _ Cache, _ string) error {
			list := filepath.Join(string(db), "info", "tool.list")
			text, err := os.ReadFile(list)
			if err == nil {
				err = os.WriteFile(list+"-new", text, 0o644)
			}
			if err == nil {
				err = os.Rename(list+"-new", list)
			}
			return err
		},
		"a diversion": func(db database, _ Cache, _ string) error {
			return os.WriteFile(filepath.Join(string(db), "diversions"), nil, 0o644)
		},
		"no program":        func(_ database, _ Cache, program string) error { return os.Chmod(program+"3", 0o644) },
		"a link":            func(_ database, _ Cache, program string) error { return replaceByLink(program + "3") },
		"the other's cache": func(_ database, c Cache, _ string) error { return os.Chmod(string(c), 0o777) },
	} {
		db, c, program := cachedPackage(t)
		if err := os.WriteFile(program+"3", nil, 0o755); err != nil {
			t.Fatal(err)
		}
		c.keep(t, db, program, program+"3")
		got, installed, err := db.cached(c, "tool")
		if !slices.Equal(got, []string{program, program + "3"}) || !installed || err != nil {
			t.Fatalf("%s: what is stored is not used: %q, %v, %v", name, got, installed, err)
		}
		if err := change(db, c, program); err != nil {
			t.Fatal(err)
		}
		got, installed, err = db.cached(c, "tool")
		if !slices.Equal(got, []string{program}) || !installed || err != nil {
			t.Errorf("%s: %q, %v, %v", name, got, installed, err)
		}
	}
}

func replaceByLink(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.Symlink("/bin/sh", path)
}

// TestProgramsAreStoredOnceDpkgIsDone with a package, and not while it installs one.
func TestProgramsAreStoredOnceDpkgIsDone(t *testing.T) {
	db, c, program := cachedPackage(t)
	if got, _, err := db.cached(c, "tool"); !slices.Equal(got, []string{program}) || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := os.Stat(string(c)); err == nil {
		t.Error("the programs of a package that was installed just now are stored")
	}
	if _, young := db.stamp("tool"); !young {
		t.Error("the list is taken for an old one")
	}
	list := filepath.Join("/var/lib/dpkg/info", "coreutils.list")
	var st unix.Stat_t
	if err := unix.Lstat(list, &st); err != nil || time.Since(time.Unix(st.Ctim.Unix())) < settled {
		treetest.Skip(t, "dpkg", "coreutils was installed just now, or not by dpkg")
	}
	want, _, err := Programs("coreutils")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, installed, err := c.Programs("coreutils"); !slices.Equal(got, want) || !installed || err != nil {
			t.Errorf("%q, want %q: %v", got, want, err)
		}
	}
	if _, err := os.Stat(filepath.Join(string(c), "coreutils")); err != nil {
		if _, young := host.stamp("coreutils"); !young {
			t.Error(err)
		}
	}
	if got, installed, err := c.Programs("../tool"); len(got) > 0 || installed || err != nil {
		t.Errorf("a name that is none: %q, %v, %v", got, installed, err)
	}
}

func BenchmarkCachedPrograms(b *testing.B) {
	c := Cache(filepath.Join(b.TempDir(), "packages"))
	for b.Loop() {
		if _, _, err := c.Programs("git"); err != nil {
			b.Fatal(err)
		}
	}
}
