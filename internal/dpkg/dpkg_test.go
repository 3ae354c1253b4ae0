package dpkg

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/snapfs/snapfs/internal/treetest"
)

// TestProgramsAreTheExecutableFilesOfAPackage has a database with a package for one architecture and for several, with
// a directory that is a symbolic link, and with diverted files.
func TestProgramsAreTheExecutableFilesOfAPackage(t *testing.T) {
	root := treetest.Dir(t)
	at := func(path string) string { return filepath.Join(root, path) }
	put := func(path, content string, mode os.FileMode) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(at(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(path), []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{"usr/bin/tool", "usr/bin/perf", "usr/bin/perf.wrapper", "usr/lib/tool/part"} {
		put(program, "#!/bin/sh\n", 0o755)
	}
	put("usr/share/tool.txt", "text", 0o644)
	for link, target := range map[string]string{"bin": "usr/bin", "usr/bin/alias": "tool"} {
		if err := os.Symlink(target, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	list := func(paths ...string) (text string) {
		text = "/.\n"
		for _, path := range paths {
			text += at(path) + "\n"
		}
		return text
	}
	put("db/info/tool.list", list("usr", "bin/tool", "usr/bin/tool", "usr/bin/alias", "usr/bin/gone", "usr/share/tool.txt"), 0o644)
	put("db/info/library:"+native()+".list", list("usr/lib/tool/part"), 0o644)
	put("db/info/library:other.list", list("usr/bin/perf"), 0o644)
	put("db/info/perf.list", list("usr/bin/perf"), 0o644)
	put("db/info/wrapper.list", list("usr/bin/perf"), 0o644)
	put("db/info/removed.list", list("usr/share/tool.txt"), 0o644)
	put("db/arch", native()+"\nother\n", 0o644)
	put("db/diversions", at("usr/bin/perf")+"\n"+at("usr/bin/perf.wrapper")+"\nwrapper\n", 0o644)
	db := database(at("db"))
	for _, c := range []struct {
		pkg       string
		want      []string
		installed bool
	}{
		{"tool", []string{at("usr/bin/tool")}, true},
		{"tool:" + native(), []string{at("usr/bin/tool")}, true},
		{"tool:other", nil, false},
		{"library:" + native(), []string{at("usr/lib/tool/part")}, true},
		{"library", []string{at("usr/lib/tool/part"), at("usr/bin/perf.wrapper")}, true},
		{"perf", []string{at("usr/bin/perf.wrapper")}, true},
		{"wrapper", []string{at("usr/bin/perf")}, true},
		{"removed", nil, true},
		{"nobody", nil, false},
	} {
		got, installed, err := db.programs(c.pkg)
		if d := cmp.Diff(c.want, got); d != "" || installed != c.installed || err != nil {
			t.Errorf("%s: installed %v, %v\n%s", c.pkg, installed, err, d)
		}
	}
	if _, installed, err := database(at("absent")).programs("tool"); installed || err != nil {
		t.Errorf("a host without dpkg: %v, %v", installed, err)
	}
	put("db/info/directory.list/x", "", 0o644)
	if _, _, err := db.programs("directory"); err == nil {
		t.Error("a list that cannot be read: no error")
	}
}

// TestProgramsOfACrowdedDirectory has a package with many files of each kind in one directory, which is read at once.
func TestProgramsOfACrowdedDirectory(t *testing.T) {
	root := treetest.Dir(t)
	dir := filepath.Join(root, "bin")
	for _, made := range []string{dir, filepath.Join(root, "info")} {
		if err := os.Mkdir(made, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	list, want := dir+"\n"+dir+"\n", []string{}
	for i := range crowded {
		n := strconv.Itoa(i)
		for _, name := range []string{"program", "text", "link", "gone"} {
			list += filepath.Join(dir, name+n) + "\n"
		}
		program := filepath.Join(dir, "program"+n)
		want = append(want, program)
		err := errors.Join(
			os.WriteFile(program, nil, 0o755), os.WriteFile(filepath.Join(dir, "text"+n), nil, 0o644),
			os.Symlink(program, filepath.Join(dir, "link"+n)), os.WriteFile(filepath.Join(dir, "foreign"+n), nil, 0o755),
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "info", "many.list"), []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	got, installed, err := database(root).programs("many")
	if d := cmp.Diff(want, got); d != "" || !installed || err != nil {
		t.Errorf("installed %v, %v\n%s", installed, err, d)
	}
}

// TestProgramsOfThisHost asks for the programs of a package that every Debian has.
func TestProgramsOfThisHost(t *testing.T) {
	if _, err := os.Stat(string(host) + "/info/coreutils.list"); err != nil {
		treetest.Skip(t, "dpkg", err.Error())
	}
	programs, installed, err := Programs("coreutils")
	if err != nil || !installed || !slices.Contains(programs, "/usr/bin/id") || !Installs("coreutils", "/usr/bin/id") {
		t.Errorf("%q, %v, %v", programs, installed, err)
	}
	if Installs("coreutils", "/usr/bin/dpkg") {
		t.Error("coreutils has dpkg")
	}
}

func BenchmarkPrograms(b *testing.B) {
	for b.Loop() {
		if _, _, err := Programs("git"); err != nil {
			b.Fatal(err)
		}
	}
}

func TestIsName(t *testing.T) {
	for text, want := range map[string]bool{
		"git": true, "g++": true, "libstdc++6:amd64": true, "python3.11-minimal": true,
		"": false, "a": false, "Git": false, "../x": false, "git/x": false, "git:": false, "git push": false, "-x": false,
	} {
		if IsName(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}
