package dpkg

import (
	"errors"
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
	program = filepath.Join(root, "bin", "tool")
	for path, text := range map[string]string{program: "#!/bin/sh\n", filepath.Join(root, "info", "tool.list"): program + "\n" + program + "2\n" + program + ".txt\n"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return database(root), Cache(filepath.Join(root, "cache")), program
}

// keep stores that the package's programs are these, whatever they are, as if nothing had changed for a while, and that
// plain are its files that are not executable.
func (c Cache) keep(t *testing.T, db database, every bool, programs, plain []string) {
	t.Helper()
	stamp, _ := db.stamp("tool")
	f := found{programs: programs, plain: plain, dirs: map[string]bool{}}
	for _, path := range slices.Concat(programs, plain) {
		f.dirs[filepath.Dir(path)] = true
	}
	text, stable := f.text(stamp, time.Now().Add(time.Minute), every)
	if !stable {
		t.Fatal("the directories are taken for unstable ones")
	}
	file := filepath.Join(string(c), "tool")
	if every {
		file += "=every"
	}
	if err := c.store(file, text); err != nil {
		t.Fatal(err)
	}
}

// TestStoredProgramsAreThoseOfTheSameLists, and are found again where dpkg has changed a list or a mode, a name in one
// of their directories is another, a file has become executable, or others may write to the cache.
func TestStoredProgramsAreThoseOfTheSameLists(t *testing.T) {
	write := func(path string) error { return os.WriteFile(path, nil, 0o644) }
	for name, c := range map[string]struct {
		change func(db database, c Cache, program string) error
		allow  bool // whether the programs to allow are those that are stored, all the same
		more   bool // whether the file that was not executable is a program now
	}{
		"nothing": {change: func(database, Cache, string) error { return nil }, allow: true},
		"the list is replaced": {change: func(db database, _ Cache, _ string) error {
			list := filepath.Join(string(db), "info", "tool.list")
			text, err := os.ReadFile(list)
			return errors.Join(err, os.WriteFile(list+"-new", text, 0o644), os.Rename(list+"-new", list))
		}},
		"a diversion":       {change: func(db database, _ Cache, _ string) error { return write(filepath.Join(string(db), "diversions")) }},
		"another mode":      {change: func(db database, _ Cache, _ string) error { return write(filepath.Join(string(db), "statoverride")) }},
		"a name":            {change: func(_ database, _ Cache, program string) error { return write(program + "4") }},
		"a link":            {change: func(_ database, _ Cache, program string) error { return replaceByLink(program + "3") }},
		"an executable":     {change: func(_ database, _ Cache, program string) error { return os.Chmod(program+".txt", 0o755) }, allow: true, more: true},
		"the other's cache": {change: func(_ database, c Cache, _ string) error { return os.Chmod(string(c), 0o777) }},
	} {
		t.Run(name, func(t *testing.T) {
			db, cache, program := cachedPackage(t)
			fake, plain := program+"3", program+".txt"
			if err := errors.Join(os.WriteFile(fake, nil, 0o755), write(plain)); err != nil {
				t.Fatal(err)
			}
			for _, every := range []bool{false, true} {
				cache.keep(t, db, every, []string{program, fake}, []string{plain})
			}
			check := func(every, stored, more bool) {
				t.Helper()
				want := []string{program}
				switch {
				case stored:
					want = append(want, fake)
				case more:
					want = append(want, plain)
				}
				got, installed, err := db.cached(cache, "tool", every)
				if !slices.Equal(got, want) || !installed || err != nil {
					t.Errorf("every %v: %q, %v, %v, want %q", every, got, installed, err, want)
				}
			}
			check(false, true, false)
			check(true, true, false)
			if err := c.change(db, cache, program); err != nil {
				t.Fatal(err)
			}
			check(false, c.allow, c.more)
			check(true, name == "nothing", c.more)
		})
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
	if got, _, err := db.cached(c, "tool", false); !slices.Equal(got, []string{program}) || err != nil {
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
