package approval_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/approval"
	"github.com/snapfs/snapfs/engine/diff"
)

// tree creates files below dir, and returns the changes that add them and how to read them. A text
// that begins with "-> " is a link, an empty one a directory.
func tree(t *testing.T, dir string, files ...[2]string) (changes []diff.Change, at approval.At) {
	t.Helper()
	for _, f := range files {
		path, n := filepath.Join(dir, f[0]), &diff.Node{Mode: 0o644}
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if target, ok := strings.CutPrefix(f[1], "-> "); ok {
			n.Mode, n.Target = fs.ModeSymlink|0o777, target
			err = os.Symlink(target, path)
		} else if f[1] == "" {
			n.Mode = fs.ModeDir | 0o755
			err = os.MkdirAll(path, 0o755)
		} else if err == nil {
			err = os.WriteFile(path, []byte(f[1]), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		changes = append(changes, diff.Change{Path: f[0], Kind: diff.Added, New: n})
	}
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return changes, func(path string) (*os.File, string) { return root, path }
}

// A link needs approval if it leads out of the tree, also by way of another link, or to what needs
// approval; no other does.
func TestLinkNeedsApprovalForItsTarget(t *testing.T) {
	_, at := tree(t, t.TempDir(), [2]string{"deep/down/up", "-> ../.."}, [2]string{"settings", "-> /home/ann/.config"}, [2]string{"src/a", "x"}, [2]string{"loop", "-> loop"})
	for target, want := range map[string]string{
		"a": "", "../src/a": "", "./../src/": "", "nowhere/at/all": "", "/home/ann/p/src/a": "", "../loop/x": "",
		"../node_modules/.bin/x": "", "../deep/down/up/src/a": "", "/home/ann/p": "", "..": "",
		"/etc/hosts": "out of", "../../x": "out of", "/home/ann/p2": "out of", "/home/ann/p/../x": "out of", "/": "out of",
		"../deep/down/up/../x": "out of", "/home/ann/p/deep/down/up/../x": "out of", "//home/./ann/q/../p/deep/down/up/../x": "out of",
		"/home/ann/p/deep/down/up/../p": "out of", "//home/./ann/q/../p/deep/down/up/src/a": "", "/home/ann/p/deep/down/up/.git/x": "repository",
		"../settings/app": "out of", "/home/ann/p/settings/app": "out of",
		"../.git/hooks/pre-commit": "repository", "../.github": "agent", "../.envrc": "editor", "/home/ann/p/CLAUDE.md": "agent",
		"../.vim/pack/vendor/x": "editor", "../node_modules/x/.vim/y": "",
	} {
		c := diff.Change{Path: "src/link", Kind: diff.Added, New: &diff.Node{Mode: fs.ModeSymlink | 0o777, Target: target}}
		for _, c := range []diff.Change{c, {Path: c.Path, Kind: diff.Modified, What: diff.Target, Old: c.New, New: c.New}} {
			needed := approval.Allow{}.Check("/home/ann/p", []diff.Change{c}, at)
			if (needed == nil) != (want == "") || needed != nil && !strings.Contains(needed.String(), want) {
				t.Errorf("%s: %v, want %q", target, needed, want)
			}
		}
		if needed := (approval.Allow{Paths: []string{"src/link"}}).Check("/home/ann/p", []diff.Change{c}, at); needed != nil {
			t.Errorf("%s: approved, and still: %v", target, needed)
		}
	}
	link := diff.Change{Path: "usr/bin/vi", Kind: diff.Added, New: &diff.Node{Mode: fs.ModeSymlink | 0o777, Target: "../../../etc/alternatives/vi"}}
	if needed := (approval.Allow{}).Check("/", []diff.Change{link}, nil); needed != nil {
		t.Errorf("of the whole machine: %v", needed)
	}
}

// Byte code needs approval where Python does not compare it with its source.
func TestByteCodeThatIsNotCheckedNeedsApproval(t *testing.T) {
	magic := "\xa7\r\r\n"
	byTime, byHash, never := magic+"\x00\x00\x00\x00 rest", magic+"\x03\x00\x00\x00 rest", magic+"\x01\x00\x00\x00 rest"
	changes, at := tree(t, t.TempDir(),
		[2]string{"a/__pycache__/m.cpython-311.pyc", byTime}, [2]string{"a/__pycache__/n.cpython-311.pyc", byHash},
		[2]string{"a/__pycache__/o.cpython-311.pyc", never}, [2]string{"a/__pycache__/p.cpython-311.pyc", "short"}, [2]string{"a/q.pyc", byTime},
	)
	needed := approval.Allow{}.Check("/p", changes, at)
	if needed == nil || strings.Join(needed.Allow, " ") != "a/__pycache__/o.cpython-311.pyc a/__pycache__/p.cpython-311.pyc a/q.pyc" {
		t.Errorf("%v", needed)
	}
	if needed := (approval.Allow{}).Check("/p", changes, nil); needed == nil || len(needed.Paths) != 5 {
		t.Errorf("in a tree that cannot be read: %v", needed)
	}
}

// A virtual environment that is new as a whole is the result that was asked for; in one that was
// there, programs and what Python runs at each start need approval.
func TestOnlyAnExistingEnvironmentNeedsApproval(t *testing.T) {
	dir := t.TempDir()
	changes, at := tree(t, dir,
		[2]string{"tools", ""}, [2]string{"tools/bin/activate", "x"}, [2]string{"tools/bin/pip", "x"}, [2]string{"tools/bin/python", "-> /usr/bin/python3"},
		[2]string{"tools/lib/python3/site-packages/x.pth", "x"}, [2]string{"tools/pyvenv.cfg", "x"},
	)
	if needed := (approval.Allow{}).Check("/p", changes, at); needed != nil {
		t.Errorf("a new one: %v", needed)
	}
	if needed := (approval.Allow{}).Check("/p", changes[1:], at); needed == nil || len(needed.Paths) != 5 {
		t.Errorf("one that was there: %v", needed)
	}
	for i := range changes {
		if changes[i].Path == "tools/bin/python" {
			changes[i].New.Target = "/home/ann/.ssh/python3"
		}
	}
	if needed := (approval.Allow{}).Check("/p", changes, at); needed == nil || strings.Join(needed.Allow, " ") != "tools/bin/python" {
		t.Errorf("an interpreter that is none: %v", needed)
	}
	other, at := tree(t, t.TempDir(), [2]string{"bin/tool", "x"}, [2]string{"src/bin/main.rs", "x"})
	if needed := (approval.Allow{}).Check("/p", other, at); needed != nil {
		t.Errorf("no environment: %v", needed)
	}
}

// A pipe, socket or device in place of a file hangs what reads it; a new pipe is nobody's file.
func TestPipeInPlaceOfAFileNeedsApproval(t *testing.T) {
	for mode, why := range map[fs.FileMode]string{fs.ModeNamedPipe: "pipe", fs.ModeSocket: "pipe", fs.ModeDevice: "device"} {
		c := diff.Change{Path: "log", Kind: diff.Modified, What: diff.Type, Old: &diff.Node{Mode: 0o644}, New: &diff.Node{Mode: mode | 0o644}}
		needed := approval.Allow{}.Check("/p", []diff.Change{c}, nil)
		if needed == nil || !strings.Contains(needed.String(), why) {
			t.Errorf("%v: %v", mode, needed)
			continue
		}
		if needed := (approval.Allow{Paths: []string{"log"}}).Check("/p", []diff.Change{c}, nil); needed != nil {
			t.Errorf("%v: approved, and still: %v", mode, needed)
		}
	}
	added := diff.Change{Path: "pipe", Kind: diff.Added, New: &diff.Node{Mode: fs.ModeNamedPipe | 0o644}}
	if needed := (approval.Allow{}).Check("/p", []diff.Change{added}, nil); needed != nil {
		t.Errorf("a new pipe: %v", needed)
	}
}

// The settings and hooks of a git repository need approval whatever the repository's name is, and also
// when the sandbox makes one of a directory that had some of its files; its other files need none.
func TestARepositoryOfAnyNameNeedsApproval(t *testing.T) {
	dir := t.TempDir()
	_, at := tree(t, dir,
		[2]string{"mirror/HEAD", "x"}, [2]string{"mirror/objects", ""}, [2]string{"mirror/refs", ""}, [2]string{"mirror/Config", "x"},
		[2]string{"a/linked/HEAD", "x"}, [2]string{"a/linked/commondir", "../x"}, [2]string{"half/HEAD", "x"}, [2]string{"half/objects", ""},
	)
	for path, needs := range map[string]bool{
		"mirror/config": true, "mirror/Config": true, "mirror/hooks/post-receive": true, "mirror/hooks": true, "mirror/info/attributes": true,
		"a/linked/commondir": true, "a/linked/config.worktree": true, "mirror/worktrees/x/config": true,
		"mirror/objects/12/34": false, "mirror/refs/heads/x": false, "mirror/description": false, "config": false, "half/config": false,
		"a/config": false, "mirror": false, "hooks/x": false,
	} {
		change := diff.Change{Path: path, Kind: diff.Added, New: &diff.Node{Mode: 0o644}}
		chmod := diff.Change{Path: path, Kind: diff.Modified, What: diff.Mode, Old: change.New, New: &diff.Node{Mode: 0o755}}
		for _, c := range []diff.Change{change, chmod} {
			needed := approval.Allow{}.Check("/p", []diff.Change{c}, at)
			if (needed != nil) != needs || needs && !strings.Contains(needed.String(), "git repository") {
				t.Errorf("%s: %v, want approval: %v", path, needed, needs)
			}
		}
		touch := diff.Change{Path: path, Kind: diff.Modified, What: diff.Time, Old: change.New, New: change.New}
		if needed := (approval.Allow{Paths: []string{path}}).Check("/p", []diff.Change{change, touch}, at); needed != nil {
			t.Errorf("%s: approved, and still: %v", path, needed)
		}
	}
}

// opened creates files in a new directory as tree does, and returns the directory, open, and how to read it.
func opened(t *testing.T, files ...[2]string) (*os.File, approval.At) {
	t.Helper()
	_, at := tree(t, t.TempDir(), files...)
	root, _ := at(".")
	return root, at
}

// Links in an environment that was there, and one in place of its directory of programs, are judged as its
// programs are. What the environment was before the sandbox counts, too.
func TestLinksOfAnExistingEnvironmentNeedApproval(t *testing.T) {
	real, _ := opened(t, [2]string{"env/pyvenv.cfg", "x"}, [2]string{"env/bin/pip", "x"})
	_, mine := opened(t, [2]string{"env/b/pip", "x"}, [2]string{"env/p", "x"}, [2]string{"src/x", "x"})
	link := func(p, target string) diff.Change {
		return diff.Change{Path: p, Kind: diff.Added, New: &diff.Node{Mode: fs.ModeSymlink | 0o777, Target: target}}
	}
	for _, c := range []struct {
		diff.Change
		needs bool
	}{
		{link("env/bin/pip", "../p"), true},
		{link("env/bin", "b"), true},
		{link("env/Scripts", "b"), true},
		{link("src/tool", "../env/bin/pip"), true},
		{diff.Change{Path: "env/bin/new", Kind: diff.Added, New: &diff.Node{Mode: 0o755}}, true},
		{link("env/lib64", "lib"), false},
		{link("env/bin/sub/x", "../../p"), false},
		{link("src/bin", "."), false},
		{link("src/p", "../env/p"), false},
	} {
		needed := approval.Allow{}.Checker(mine, "/p").Before(real, nil)
		needed.Add([]diff.Change{c.Change})
		if n := needed.Needed(); (n != nil) != c.needs || n != nil && !strings.Contains(n.String(), "virtual environment") {
			t.Errorf("%s -> %s: %v, want approval: %t", c.Path, c.New.Target, n, c.needs)
		}
		approved := approval.Allow{Paths: []string{c.Path}}.Checker(mine, "/p").Before(real)
		if approved.Add([]diff.Change{c.Change}); approved.Needed() != nil {
			t.Errorf("%s: approved, and still: %v", c.Path, approved.Needed())
		}
	}
}

// A directory that was a repository counts as one, and so does one that the promoted changes make one of; what
// it is recognised by can neither go nor come without approval.
func TestADirectoryThatWasARepositoryNeedsApproval(t *testing.T) {
	real, _ := opened(t, [2]string{"gd/HEAD", "x"}, [2]string{"gd/objects", ""}, [2]string{"gd/refs", ""}, [2]string{"half/HEAD", "x"}, [2]string{"half/refs", ""})
	_, mine := opened(t, [2]string{"gd/o2", ""}, [2]string{"gd/config", "x"}, [2]string{"half/objects", ""})
	dir, file := &diff.Node{Mode: fs.ModeDir | 0o755}, &diff.Node{Mode: 0o644}
	for _, c := range []struct {
		path  string
		kind  diff.Kind
		node  *diff.Node
		needs bool
	}{
		{"gd/objects", diff.Deleted, dir, true},
		{"gd/refs", diff.Deleted, dir, true},
		{"gd/hooks/pre-commit", diff.Added, file, true},
		{"gd/config", diff.Modified, file, true},
		{"gd/hooks", diff.Deleted, dir, true},
		{"half/objects", diff.Added, dir, true},
		{"half/hooks/x", diff.Added, file, true},
		{"gd/objects/12", diff.Deleted, dir, false},
		{"gd/refs/heads/x", diff.Deleted, file, false},
		{"gd/o2", diff.Added, dir, false},
		{"objects", diff.Deleted, dir, false},
	} {
		change := diff.Change{Path: c.path, Kind: c.kind, Old: c.node, New: c.node, What: diff.Content}
		switch c.kind {
		case diff.Added:
			change.Old, change.What = nil, 0
		case diff.Deleted:
			change.New, change.What = nil, 0
		}
		needed := approval.Allow{}.Checker(mine, "/p").Before(real)
		needed.Add([]diff.Change{change})
		if n := needed.Needed(); (n != nil) != c.needs {
			t.Errorf("%v %s: %v, want approval: %t", c.kind, c.path, n, c.needs)
		}
	}
}

// A link whose target goes up after a name leads elsewhere as soon as that name is a link: its own target and
// each later change of another link would need no approval.
func TestLinkThatGoesUpAfterANameNeedsApproval(t *testing.T) {
	_, at := opened(t, [2]string{"p/q/k", "x"}, [2]string{"top/k", "x"})
	for target, needs := range map[string]bool{
		"p/q/../../outside": true, "p/../top": true, "./p/./..": true, "/ws/p/q/../../top": true, "gone/../top": true,
		"p/q": false, "./top": false, "/ws/top/k": false, "/x/../ws/top": false, "..x/y": false,
	} {
		c := diff.Change{Path: "a", Kind: diff.Added, New: &diff.Node{Mode: fs.ModeSymlink | 0o777, Target: target}}
		if needed := (approval.Allow{}).Check("/ws", []diff.Change{c}, at); (needed != nil) != needs {
			t.Errorf("%s: %v, want approval: %t", target, needed, needs)
		}
	}
}

// Byte code that is a link has no head that stays: it needs approval like byte code that Python does not check.
func TestByteCodeThatIsALinkNeedsApproval(t *testing.T) {
	changes, at := tree(t, t.TempDir(), [2]string{"a/data.bin", "x"}, [2]string{"a/__pycache__/m.cpython-311.pyc", "-> ../data.bin"})
	needed := approval.Allow{}.Check("/p", changes, at)
	if needed == nil || strings.Join(needed.Allow, " ") != "a/__pycache__/m.cpython-311.pyc" || !strings.Contains(needed.String(), "Python") {
		t.Errorf("%v", needed)
	}
}

// The paths that approve are patterns: a file's own wildcards stand for themselves.
func TestTheApprovalOfANameWithAWildcardCoversThatNameAlone(t *testing.T) {
	added := func(paths ...string) (all []diff.Change) {
		for _, p := range paths {
			all = append(all, diff.Change{Path: p, Kind: diff.Added, New: &diff.Node{Mode: 0o644}})
		}
		return all
	}
	for shown, others := range map[string][]string{
		"*/.vscode/x": {"a/.vscode/x", `\*/.vscode/x`}, "[ab]/.idea/x": {"a/.idea/x"}, "**/.envrc": {"a/b/.envrc"}, `a\b/.envrc`: {`a\\b/.envrc`, "ab/.envrc"}, "[/.envrc": {"x/.envrc"},
	} {
		needed := approval.Allow{}.Check("/w[s]", added(shown), nil)
		if needed == nil {
			t.Fatalf("%s needs no approval", shown)
		}
		allow := approval.Allow{Paths: needed.Allow}
		if left := allow.Check("/w[s]", added(shown), nil); left != nil {
			t.Errorf("%s: approved by %q, and still: %v", shown, needed.Allow, left)
		}
		for _, other := range others {
			if left := allow.Check("/w[s]", added(other), nil); left == nil {
				t.Errorf("%q, which approves %s, approves %s", needed.Allow, shown, other)
			}
		}
	}
}

// The sandbox may have replaced another link, by a directory for example, and the promotion may leave that out.
func TestLinkIsFollowedAsInTheTreesBeforeToo(t *testing.T) {
	real, _ := opened(t, [2]string{"out", "-> ../elsewhere"}, [2]string{"in", "-> src"}, [2]string{"git", "-> .git"}, [2]string{"src/x", "x"})
	_, mine := opened(t, [2]string{"out/f", "x"}, [2]string{"in/f", "x"}, [2]string{"git/f", "x"}, [2]string{"src/x", "x"})
	for target, want := range map[string]string{
		"out/f": "out of", "src/../out/f": "goes up", "/ws/out": "out of", "git/f": "repository", "in/f": "", "in": "", "src/x": "", "gone": "",
	} {
		change := []diff.Change{{Path: "a", Kind: diff.Added, New: &diff.Node{Mode: fs.ModeSymlink | 0o777, Target: target}}}
		c := approval.Allow{}.Checker(mine, "/ws").Before(real)
		c.Add(change)
		needed := c.Needed()
		if (needed != nil) != (want != "") || needed != nil && !strings.Contains(needed.String(), want) {
			t.Errorf("%s: %v, want %q", target, needed, want)
		}
	}
}
