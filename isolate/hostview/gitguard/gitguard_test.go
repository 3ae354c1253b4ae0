package gitguard_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/isolate/hostview/gitguard"
)

// TestConfigLetsPlainKeysThrough: what is kept stays as it is, byte for byte, and the rest has a comment sign in place
// of its first byte.
func TestConfigLetsPlainKeysThrough(t *testing.T) {
	g := &gitguard.Guard{Workspace: t.TempDir(), View: "/v"}
	for text, want := range map[string]string{
		"[core]\n\tbare = false\n\tfsmonitor = x\n":                                                     "[core]\n\tbare = false\n#fsmonitor = x\n",
		"[core]\r\nbare\r\npager = x\r\n":                                                               "[core]\r\nbare\r\n#ager = x\r\n",
		"[remote \"o\"]\n\turl = a\n\turl = ext::sh\n":                                                  "[remote \"o\"]\n\turl = a\n#url = ext::sh\n",
		"[remote \"--x\"]\nurl = a\n[branch \"b\"]\nremote = \"\"-x\n[remote \"o\"]\ntagopt = --tags\n": "[remote \"--x\"]\n#rl = a\n[branch \"b\"]\n#emote = \"\"-x\n[remote \"o\"]\ntagopt = --tags\n",
		"[remote \"o\"]\n\turl = ext:\"\":sh\n\turl = ext:\\:sh\n\turl = \"ext\":\":sh\"\n":             "[remote \"o\"]\n#url = ext:\"\":sh\n#url = ext:\\:sh\n#url = \"ext\":\":sh\"\n",
		"[remote \"o\\\\\"]\nurl = a\n":                                                                 "#remote \"o\\\\\"]\n#rl = a\n",
		"[core] pager = x\nbare = true\n":                                                               "#core] pager = x\n#are = true\n",
		"[user]\nname = a\\\n[core]\npager = x\nemail = b\n":                                            "[user]\n#ame = a\\\n#core]\n#ager = x\nemail = b\n",
		"[user]\nname = a\\\r\n[core]\r\n# c\\\nemail = b":                                              "[user]\n#ame = a\\\r\n#core]\r\n# c\\\nemail = b",
		"[user]\n[core\n]bare = true\n\vname = x\n\nname = y":                                           "[user]\n#core\n#bare = true\n#name = x\n\n#ame = y",
		"; c\n\n  \n[include]\npath = /x\n":                                                             "; c\n\n  \n[include]\n#ath = /x\n",
		"Host [x]\n  ProxyCommand y\n":                                                                  "Host [x]\n  ProxyCommand y\n",
		"":                                                                                              "",
	} {
		if got, err := g.Text("config", "/.git/config", []byte(text)); err != nil || string(got) != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}

// TestConfigKeepsWhatTheUserWrote: the same key with the same value, unless it names what the sandbox can change.
func TestConfigKeepsWhatTheUserWrote(t *testing.T) {
	g := &gitguard.Guard{Workspace: t.TempDir(), View: "/v"}
	write(t, g.Workspace+"/tool", "")
	write(t, g.Workspace+"/.git/HEAD", "")
	real := "[core]\npager = less -R\neditor = ./e\nsshCommand = run tool\nhooksPath = /h\nworktree = /w\n[include]\npath = ../inc\npath = ~/inc\n"
	write(t, g.Workspace+"/.git/config", real)
	for text, want := range map[string]string{
		real:                                 "[core]\npager = less -R\n#ditor = ./e\n#shCommand = run tool\nhooksPath = /h\n#orktree = /w\n[include]\n#ath = ../inc\npath = ~/inc\n",
		"[core]\npager = less -R x\n":        "[core]\n#ager = less -R x\n",
		"[core \"x\"]\npager = less -R\n":    "[core \"x\"]\n#ager = less -R\n",
		"[core]\nPAGER=less -R\nPath = /h\n": "[core]\nPAGER=less -R\n#ath = /h\n",
	} {
		if got, err := g.Text("config", "/.git/config", []byte(text)); err != nil || string(got) != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	write(t, g.Workspace+"/.aws/config", "[default]\nregion = x\n")
	if got, err := g.Text("config", "/.aws/config", []byte("[default]\nregion = x\n")); err != nil || strings.Contains(string(got), "#") {
		t.Errorf("a file of another program: %q, %v", got, err)
	}
	if got, _ := g.Text("config", "", []byte("[core]\npager = less -R\n")); !strings.Contains(string(got), "#ager") {
		t.Errorf("a file without a path: %q", got)
	}
}

// TestAPointerStaysInTheView: "" is a refusal.
func TestAPointerStaysInTheView(t *testing.T) {
	g := &gitguard.Guard{Workspace: t.TempDir(), View: "/v"}
	write(t, g.Workspace+"/linked/.git", "gitdir: /home/u/main/.git/worktrees/x\n")
	write(t, g.Workspace+"/near/.git", "gitdir: ../../main/x\n")
	for _, c := range []struct{ path, text, want string }{
		{"/sub/.git", "gitdir: ../.git/modules/sub\n", "gitdir: /v/.git/modules/sub\n"},
		{"/sub/.git", "gitdir: " + g.Workspace + "/.git/worktrees/x", "gitdir: /v/.git/worktrees/x\n"},
		{"/sub/.git", "gitdir: /v/x\n", "gitdir: /v/x\n"},
		{"/sub/.git", "gitdir: ../../x\n", ""},
		{"/sub/.git", "gitdir: /v/../x\n", ""},
		{"/sub/.git", "gitdir: /vx\n", ""},
		{"/sub/.git", "gitdir: /home/u/main/.git/worktrees/x\n", ""},
		{"/sub/.git", "gitdir: a\nb\n", ""},
		{"/sub/.git", "x", ""},
		{"", "gitdir: x\n", ""},
		{"/linked/.git", "gitdir: /home/u/main/.git/worktrees/x\n", "gitdir: /home/u/main/.git/worktrees/x\n"},
		{"/near/.git", "gitdir: ../../main/x\n", "gitdir: " + filepath.Dir(g.Workspace) + "/main/x\n"},
	} {
		got, err := g.Text(".git", c.path, []byte(c.text))
		if (err == nil) != (c.want != "") || string(got) != c.want {
			t.Errorf("%s %q: %q, %v; want %q", c.path, c.text, got, err, c.want)
		}
	}
	if got, err := g.Text("commondir", "/.git/worktrees/x/commondir", []byte("../..\n")); err != nil || string(got) != "/v/.git\n" {
		t.Errorf("a common directory: %q, %v", got, err)
	}
}

// TestARebaseRunsNothing: of the instructions that wait, those that run a command are comments.
func TestARebaseRunsNothing(t *testing.T) {
	g := &gitguard.Guard{}
	text := "pick 1 a\n\n# c\nexec x\n\tx y\nbreak\nmerge -C 1 b\nexec\ty\n"
	want := "pick 1 a\n\n# c\n#xec x\n#x y\nbreak\nmerge -C 1 b\n#xec\ty\n"
	if got, err := g.Text("git-rebase-todo", "", []byte(text)); err != nil || string(got) != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

// TestAnOperationThatWaitsNamesNoProgram: of what an interrupted operation of git has left, options that lead to a
// program or to a file outside are not read.
func TestAnOperationThatWaitsNamesNoProgram(t *testing.T) {
	g := &gitguard.Guard{Workspace: t.TempDir(), View: "/v"}
	opts := "[options]\nstrategy = ort\nstrategy = \"x/../env\"\nstrategy = index\nstrategy-option = ours\n" +
		"strategy-option = \"split-string=sh\"\nmainline = 1\nno-commit = true\nauthor = 1\n[Options] strategy = x/y\n[other]\nstrategy = x/y\n"
	want := "[options]\nstrategy = ort\n#trategy = \"x/../env\"\n#trategy = index\nstrategy-option = ours\n" +
		"#trategy-option = \"split-string=sh\"\nmainline = 1\nno-commit = true\n#uthor = 1\n#Options] strategy = x/y\n[other]\nstrategy = x/y\n"
	if got, err := g.Text("opts", "/.git/sequencer/opts", []byte(opts)); err != nil || string(got) != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	hash := strings.Repeat("a", 40)
	for _, c := range []struct {
		name, text string
		ok         bool
	}{
		{"strategy", "ort\n", true},
		{"strategy", "How we will win.\n", true},
		{"strategy", "x/../../usr/bin/env\n", false},
		{"strategy", "index\n", false},
		{"strategy", "index\x00 other\n", false},
		{"strategy_opts", "'--ours' '--subtree=a/b'\n", true},
		{"strategy_opts", " --theirs", true},
		{"strategy_opts", "'--split-string=sh'\n", false},
		{"strategy_opts", "'--subtree=x --index-output=/y'\n", false},
		{"apply-opt", " '--whitespace=fix' '-p1' '-C2'\n", true},
		{"apply-opt", " '--build-fake-ancestor=/x'\n", false},
		{"apply-opt", " '--unsafe-paths'\n", false},
		{"BISECT_NAMES", "'--' 'a b' 'c'\n", true},
		{"BISECT_NAMES", "'a'\\''b'\n", true},
		{"BISECT_NAMES", "'a'; sh\n", false},
		{"BISECT_NAMES", "'a\\' $(sh) '' ''\n", false},
		{"BISECT_NAMES", "'a' $(sh) 'b'\n", false},
		{"MERGE_RR", hash + "\ta/b\x00" + hash + ".1\tc\x00", true},
		{"MERGE_RR", hash + "\ta/../../b\x00", false},
		{"MERGE_RR", hash + ".\t1\t../b\x00", false},
		{"MERGE_RR", hash + "\ta\x00\x00", false},
		{"MERGE_RR", hash + "\tc\x00" + hash + "\t/etc/x\x00", false},
	} {
		got, err := g.Text(c.name, "/.git/x/"+c.name, []byte(c.text))
		if (err == nil) != c.ok || c.ok && string(got) != c.text {
			t.Errorf("%s %q: %q, %v", c.name, c.text, got, err)
		}
	}
	write(t, g.Workspace+"/docs/strategy", "a/b\n")
	if _, err := g.Text("strategy", "/docs/strategy", []byte("a/b\n")); err != nil {
		t.Errorf("the user's own file: %v", err)
	}
}

// anIndex is an index of git's with entries, each with a path, of version 2, or of 4 with what is stripped of the path
// before, and with an extension.
func anIndex(version uint32, extension string, names ...string) string {
	text := binary.BigEndian.AppendUint32([]byte("DIRC"), version)
	text = binary.BigEndian.AppendUint32(text, uint32(len(names)))
	last := ""
	for _, name := range names {
		entry := binary.BigEndian.AppendUint16(make([]byte, 60), uint16(len(name)))
		if version == 4 {
			same := 0
			for same < min(len(name), len(last)) && name[same] == last[same] {
				same++
			}
			entry = append(append(append(entry, byte(len(last)-same)), name[same:]...), 0)
			last = name
		} else {
			entry = append(append(entry, name...), make([]byte, 8-(len(entry)+len(name))%8)...)
		}
		text = append(text, entry...)
	}
	return string(text) + extension + string(make([]byte, 20))
}

// TestAnIndexStaysInTheWorkTree: an index with a path that leads out is not read, in each way to write it.
func TestAnIndexStaysInTheWorkTree(t *testing.T) {
	g := &gitguard.Guard{Workspace: t.TempDir(), View: "/v"}
	table := func(numbers ...uint32) string {
		text := binary.BigEndian.AppendUint32([]byte("IEOT"), uint32(len(numbers)*4))
		for _, n := range numbers {
			text = binary.BigEndian.AppendUint32(text, n)
		}
		return string(text)
	}
	ends := func(at uint32) string {
		return string(binary.BigEndian.AppendUint32([]byte("EOIE\x00\x00\x00\x18"), at)) + string(make([]byte, 20))
	}
	whole := anIndex(2, "", "a/b", "c")
	for text, ok := range map[string]bool{
		"":                             true,
		"<html>../x":                   true,
		anIndex(2, ""):                 true,
		whole:                          true,
		whole[:len(whole)-30]:          false,
		anIndex(3, "", "a", "sparse/"): true,
		anIndex(2, "TREE\x00\x00\x00\x02xx", "a"):     true,
		anIndex(2, "TREE\x00\x00\x00\x03xx", "a"):     false,
		anIndex(4, "", "a/..b", "a/..bc", "b"):        true,
		anIndex(4, "", "..b", "../x"):                 false,
		anIndex(4, "", "a/..b", "a/../../x"):          false,
		anIndex(2, "", "a", "../x"):                   false,
		anIndex(2, "", "/etc/x"):                      false,
		anIndex(2, "", ".."):                          false,
		anIndex(2, "", "a//b"):                        false,
		anIndex(2, "", "a\x00/../../x"):               false,
		anIndex(2, ends(12+64), "a"):                  true,
		anIndex(2, ends(12+8), "a"):                   false,
		anIndex(2, table(1, 12, 1, 76, 1), "a", "b"):  true,
		anIndex(2, table(1, 12, 1, 20, 1), "a", "b"):  false,
		anIndex(2, table(1, 12, 1), "a", "b"):         false,
		anIndex(4, table(1, 12, 1, 77, 1), "a", "b"):  true,
		anIndex(4, table(1, 12, 1, 77, 1), "a", "ab"): false,
		anIndex(5, "", "a"):                           false,
	} {
		for _, name := range []string{"index", "sharedindex.1"} {
			if got, err := g.Text(name, "/.git/"+name, []byte(text)); (err == nil) != ok || ok && string(got) != text {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
	text := "[extensions]\nobjectFormat = sha1\nobjectFormat = sha256\n"
	if got, _ := g.Text("config", "/.git/config", []byte(text)); string(got) != "[extensions]\nobjectFormat = sha1\n#bjectFormat = sha256\n" {
		t.Errorf("another hash: %q", got)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
