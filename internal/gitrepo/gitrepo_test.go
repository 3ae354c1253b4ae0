package gitrepo

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// git runs git in a directory of its own; without git the test is skipped.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=a@example.org")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// newRepo makes a repository with two commits.
func newRepo(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	git(t, dir, "init", "-q", "-b", "main")
	text := strings.Repeat("a line of text that makes a delta worthwhile\n", 200)
	for i := range 2 {
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte(text+fmt.Sprint(i)), 0o644); err != nil {
			t.Fatal(err)
		}
		git(t, dir, "add", ".")
		git(t, dir, "commit", "-qm", fmt.Sprint("commit ", i))
	}
	return dir
}

func open(t *testing.T, dir string, o Options) *Repo {
	t.Helper()
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	r, err := Open(Dir{root, ".git"}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func id(t *testing.T, s string) ID {
	t.Helper()
	got, ok := ParseID(s)
	if !ok {
		t.Fatalf("%q is no ID", s)
	}
	return got
}

// Every object reads the same as a file and in a pack with deltas, and passes the checks.
func TestObjectsReadTheSameLooseAndPacked(t *testing.T) {
	t.Parallel()
	dir := newRepo(t)
	all := strings.Fields(git(t, dir, "rev-list", "--objects", "--no-object-names", "--all"))
	for _, packed := range []bool{false, true} {
		if packed {
			git(t, dir, "repack", "-adfq")
			if out := git(t, dir, "count-objects", "-v"); !strings.Contains(out, "in-pack: 6") {
				t.Fatalf("not packed: %s", out)
			}
		}
		r := open(t, dir, Options{})
		for _, name := range all {
			o, err := r.Object(id(t, name), 0)
			if err != nil {
				t.Fatal(err)
			}
			if want := git(t, dir, "cat-file", "-t", name); o.Kind.String() != want {
				t.Errorf("%s is a %s, not a %s", name, want, o.Kind)
			}
			if err := Check(o, ""); err != nil {
				t.Error(err)
			}
		}
	}
}

// What snapfs packs, git reads.
func TestGitReadsTheWrittenPack(t *testing.T) {
	t.Parallel()
	dir := newRepo(t)
	r := open(t, dir, Options{})
	var pack bytes.Buffer
	all := strings.Fields(git(t, dir, "rev-list", "--objects", "--no-object-names", "--all"))
	w, err := NewPackWriter(&pack, len(all))
	for _, name := range all {
		o, rerr := r.Object(id(t, name), 0)
		err = errors.Join(err, rerr, w.Add(o))
	}
	index, name, ferr := w.Finish()
	if err = errors.Join(err, ferr); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	git(t, other, "init", "-q")
	base := filepath.Join(other, ".git/objects/pack", name)
	if err := errors.Join(os.WriteFile(base+".pack", pack.Bytes(), 0o644), os.WriteFile(base+".idx", index, 0o644)); err != nil {
		t.Fatal(err)
	}
	git(t, other, "verify-pack", base+".idx")
	git(t, other, "update-ref", "refs/heads/x", git(t, dir, "rev-parse", "HEAD"))
	git(t, other, "fsck", "--strict")
}

// An index of each version reads the same, and the written one is git's.
func TestIndexesOfEachVersion(t *testing.T) {
	t.Parallel()
	dir := newRepo(t)
	for _, name := range []string{"dir/a", "dir/abc", "dir/b"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "dir"), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	git(t, dir, "add", ".")
	want := git(t, dir, "ls-files", "-s")
	for _, version := range []string{"2", "4"} {
		git(t, dir, "update-index", "--index-version", version)
		data, err := os.ReadFile(filepath.Join(dir, ".git/index"))
		if err != nil {
			t.Fatal(err)
		}
		x, err := ParseIndex(data)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, ".git/index"), x.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := git(t, dir, "ls-files", "-s"); got != want {
			t.Errorf("version %s gives\n%s\nnot\n%s", version, got, want)
		}
		git(t, dir, "diff-files", "--quiet") // with what git knew of the files
		for n := range data {
			_, _ = ParseIndex(data[:n]) // does not panic
		}
	}
}

// putLoose writes a file of an object under a name.
func putLoose(t *testing.T, dir string, name ID, content string) {
	t.Helper()
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	if _, err := z.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, ".git/objects", loosePath(name))
	if err := errors.Join(z.Close(), os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, b.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// Objects that lie about their hash or size, or are too large, are refused.
func TestHostileObjects(t *testing.T) {
	t.Parallel()
	dir := newRepo(t)
	name := ID{1, 2, 3}
	for content, want := range map[string]error{
		"blob 3\x00abc":          ErrDamaged, // another hash
		"blob 4\x00abc":          ErrDamaged,
		"blob 2\x00abc":          ErrDamaged,
		"blob -1\x00":            ErrDamaged,
		"blob 99999999999\x00":   ErrTooLarge,
		"blob 1025\x00" + "a":    ErrTooLarge,
		"thing 3\x00abc":         ErrDamaged,
		strings.Repeat("x", 999): ErrDamaged,
	} {
		putLoose(t, dir, name, content)
		if _, err := open(t, dir, Options{MaxObject: 1024}).Object(name, 0); !errors.Is(err, want) {
			t.Errorf("%.20q gives %v, not %v", content, err, want)
		}
	}
}

// No link leads out of the repository, and a directory of objects that is a link is none.
func TestNoLinkIsFollowed(t *testing.T) {
	t.Parallel()
	dir, other := newRepo(t), newRepo(t)
	r := open(t, dir, Options{})
	for _, name := range []string{"refs/heads/link", "packed-refs", "shallow"} {
		if err := os.Symlink(filepath.Join(other, ".git/refs/heads/main"), filepath.Join(dir, ".git", name)); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Dir.Read(name, 100); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s reads as %v", name, err)
		}
	}
	refs, err := r.Refs()
	if err != nil || len(refs) != 1 {
		t.Errorf("refs are %v, %v", refs, err)
	}
	objects := filepath.Join(dir, ".git/objects")
	if err := errors.Join(os.Rename(objects, objects+".old"), os.Symlink(objects+".old", objects)); err != nil {
		t.Fatal(err)
	}
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := Open(Dir{root, ".git"}, Options{}); !errors.Is(err, ErrFormat) {
		t.Errorf("a link to objects gives %v", err)
	}
}

// Alternates are followed only where the repository is trusted.
func TestAlternatesNeedTrust(t *testing.T) {
	t.Parallel()
	dir := newRepo(t)
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, dir, "clone", "-q", "--shared", ".", clone)
	head := id(t, git(t, dir, "rev-parse", "HEAD"))
	if has, err := open(t, clone, Options{}).Has(head); has || err != nil {
		t.Errorf("untrusted: %v, %v", has, err)
	}
	if has, err := open(t, clone, Options{Trusted: filepath.Join(clone, ".git")}).Has(head); !has || err != nil {
		t.Errorf("trusted: %v, %v", has, err)
	}
}

// A repository of another format is refused.
func TestOtherFormatsAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	git(t, dir, "init", "-q", "--object-format=sha256")
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := Open(Dir{root, ".git"}, Options{}); !errors.Is(err, ErrFormat) {
		t.Errorf("SHA-256 gives %v", err)
	}
}

// Trees with names that a checkout must not make, and people that fsck reports.
func TestCheckRefusesWhatFsckReports(t *testing.T) {
	t.Parallel()
	blob := Object{Blob, []byte("x")}.ID()
	tree := func(entries ...TreeEntry) Object { return Object{Tree, TreeText(entries)} }
	file := func(name string) TreeEntry { return TreeEntry{ModeFile, name, blob} }
	commit := func(author string) Object {
		return Object{Commit, (&CommitData{Tree: blob, Author: author, Committer: "A <a@b> 1 +0000", Message: "x\n"}).Text()}
	}
	bad := map[string]Object{
		"..": tree(file("..")), "slash": tree(file("a/b")), ".git": tree(file(".git")), ".GIT": tree(file(".GIT")),
		"git~1": tree(file("git~1")), ".git ": tree(file(".git ")), "hfs": tree(file(".g\u200cit")), ".git:x": tree(file(".git::$INDEX")),
		"order": tree(file("b"), file("a")), "twice": tree(file("a"), file("a")), "mode": tree(TreeEntry{0o100777, "a", blob}),
		"zero": tree(TreeEntry{ModeFile, "a", ID{}}), "link": tree(TreeEntry{ModeSymlink, ".gitmodules", blob}), "torn": {Tree, []byte("100644 a\x00short")},
		"no email": commit("A 1 +0000"), "no time": commit("A <a@b>"), "padded": commit("A <a@b> 01 +0000"), "zone": commit("A <a@b> 1 UTC"),
		"angle": commit("A <a<b> 1 +0000"), "nul": {Commit, append(commit("A <a@b> 1 +0000").Data, 0)},
		"tag": {Tag, []byte("object " + blob.String() + "\ntype blob\ntag ../x\ntagger A <a@b> 1 +0000\n\n")},
	}
	for name, o := range bad {
		if err := Check(o, ""); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range map[string]string{"command": "[submodule \"a\"]\n\tupdate = !evil", "up": "[submodule \"../a\"]", "option": "url = -uevil"} {
		if err := Check(Object{Blob, []byte(text)}, ".gitmodules"); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := "[submodule \"a..b\"]\n\tpath = lib/a\n\turl = ../a.git\n"
	for name, o := range map[string]Object{
		"tree": tree(file(".github"), file(".gitignore"), file("a"), TreeEntry{ModeDir, "a.d", blob}), "commit": commit("A U. Thor <> 1 -0330"), ".gitmodules": {Blob, []byte(good)},
	} {
		if err := Check(o, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNamesOfRefs(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"refs/heads/main": true, "refs/heads/a/b-c": true, "refs/heads/é": true, "refs/heads/../../x": false, "../../x": false, "refs/heads/.x": false,
		"refs/heads/x.lock": false, "refs/heads/a b": false, "refs/heads/a//b": false, "refs/heads/": false, "refs/heads/a\x00": false, "refs/heads/@{": false, "HEAD": false,
	} {
		if ValidRef(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

// The bases and the new commits of two histories are those of git.
func TestRelateAgreesWithGit(t *testing.T) {
	t.Parallel()
	dir := newRepo(t)
	commit := func(name string) { git(t, dir, "commit", "-q", "--allow-empty", "-m", name) }
	git(t, dir, "branch", "side")
	commit("a")
	git(t, dir, "checkout", "-q", "side")
	commit("b")
	git(t, dir, "merge", "-q", "-m", "m", "main")
	commit("c")
	git(t, dir, "checkout", "-q", "main")
	commit("d")
	r := open(t, dir, Options{})
	for _, pair := range [][2]string{{"main", "side"}, {"side", "main"}, {"main", "main"}, {"main~1", "side"}, {"side~1", "main"}} {
		a, b := id(t, git(t, dir, "rev-parse", pair[0])), id(t, git(t, dir, "rev-parse", pair[1]))
		rel, err := Relate(r.Commit, a, b)
		if err != nil {
			t.Fatal(err)
		}
		if want := git(t, dir, "merge-base", pair[0], pair[1]); len(rel.Bases) != 1 || rel.Bases[0].String() != want {
			t.Errorf("%v: bases %v, not %s", pair, rel.Bases, want)
		}
		if want := git(t, dir, "rev-list", "--count", pair[0]+".."+pair[1]); fmt.Sprint(len(rel.New)) != want {
			t.Errorf("%v: %d new commits, not %s", pair, len(rel.New), want)
		}
	}
}
