package merge_test

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/merge"
	"github.com/snapfs/snapfs/internal/treetest"
)

// A gitFile is a file as git records it: its mode ("100644", "100755" or "120000") and its content,
// which for a symbolic link is the target.
type gitFile struct{ mode, content string }

// A gitTree is what git records of a tree: files by path.
type gitTree map[string]gitFile

// growTree returns a random tree. The lines of its files are all different, so that there is
// one way to pair them.
func growTree(r *rand.Rand) gitTree {
	t := gitTree{}
	for range 3 + r.IntN(8) {
		t.add(r)
	}
	return t
}

var gitDirs = []string{"", "src/", "src/lib/", "docs/", "old/", "a/b/c/"}

// add adds a file with content of its own at a random path, if nothing is there.
func (t gitTree) add(r *rand.Rand) {
	at := gitDirs[r.IntN(len(gitDirs))] + string(rune('p'+r.IntN(8)))
	if r.IntN(8) == 0 {
		t.put(at, gitFile{"120000", "target" + strconv.Itoa(r.IntN(4))})
		return
	}
	mode := "100644"
	if r.IntN(6) == 0 {
		mode = "100755"
	}
	var b strings.Builder
	for range 1 + r.IntN(30) {
		fmt.Fprintf(&b, "line %x of some text\n", r.Uint32())
	}
	t.put(at, gitFile{mode, b.String()})
}

// put sets a path, unless a file is in its way or a directory has its name.
func (t gitTree) put(at string, f gitFile) {
	for other := range t {
		if strings.HasPrefix(other, at+"/") || strings.HasPrefix(at, other+"/") {
			return
		}
	}
	t[at] = f
}

// change makes one random change.
func (t gitTree) change(r *rand.Rand) {
	paths := slices.Sorted(maps.Keys(t))
	if len(paths) == 0 {
		t.add(r)
		return
	}
	at := paths[r.IntN(len(paths))]
	f := t[at]
	switch r.IntN(12) {
	case 0:
		delete(t, at)
	case 1, 2:
		t.add(r)
	case 3: // a renamed file
		to := gitDirs[r.IntN(len(gitDirs))] + "moved-" + string(rune('a'+r.IntN(20)))
		delete(t, at)
		t.put(to, f)
	case 4: // a renamed directory
		from := path.Dir(at)
		to := gitDirs[r.IntN(len(gitDirs))] + "dir-" + string(rune('a'+r.IntN(3)))
		if from == "." || strings.HasPrefix(to, from+"/") {
			return
		}
		for _, p := range paths {
			if rest, ok := strings.CutPrefix(p, from+"/"); ok {
				f := t[p]
				delete(t, p)
				t.put(to+"/"+rest, f)
			}
		}
	case 5:
		if f.mode != "120000" {
			f.mode = map[string]string{"100644": "100755", "100755": "100644"}[f.mode]
			t[at] = f
		}
	default:
		if f.mode == "120000" {
			f.content = "target" + strconv.Itoa(r.IntN(4))
		} else {
			f.content = changeLine(r, f.content)
		}
		t[at] = f
	}
}

// changeLine inserts, deletes or replaces one line.
func changeLine(r *rand.Rand, content string) string {
	lines := strings.SplitAfter(content, "\n")
	i := r.IntN(len(lines))
	line := fmt.Sprintf("line %x was edited\n", r.Uint32())
	switch r.IntN(3) {
	case 0:
		return strings.Join(slices.Insert(lines, i, line), "")
	case 1:
		lines[i] = ""
	default:
		lines[i] = line
	}
	return strings.Join(lines, "")
}

// write makes the tree on a disk. Files that are as in the base have its times.
func (t gitTree) write(tb testing.TB, root string, base gitTree, later int) {
	tb.Helper()
	for at, f := range t {
		file := filepath.Join(root, at)
		must(tb, os.MkdirAll(filepath.Dir(file), 0o755))
		when := began
		if base[at] != f {
			when = began.AddDate(0, 0, later)
		}
		if f.mode == "120000" {
			must(tb, os.Symlink(f.content, file))
		} else {
			must(tb, os.WriteFile(file, []byte(f.content), 0o644))
			if f.mode == "100755" {
				must(tb, os.Chmod(file, 0o755))
			}
		}
		must(tb, setTime(file, when))
	}
	must(tb, filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = setTime(at, began)
		}
		return err
	}))
}

// readTree reads what git would record of a tree on a disk.
func readTree(tb testing.TB, root string) gitTree {
	tb.Helper()
	t := gitTree{}
	must(tb, filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		must(tb, err)
		name, err := filepath.Rel(root, at)
		must(tb, err)
		if info.Mode()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(at)
			t[name] = gitFile{"120000", target}
			return err
		}
		data, err := os.ReadFile(at)
		mode := "100644"
		if info.Mode()&0o100 != 0 {
			mode = "100755"
		}
		t[name] = gitFile{mode, string(data)}
		return err
	}))
	return t
}

// A treeCase is one merge of three trees, and what git makes of it.
type treeCase struct {
	seed             uint64
	base, mine, real gitTree
	clean            bool
	merged           gitTree // of a clean merge
	said             string  // git's messages
}

func newTreeCase(seed uint64) *treeCase {
	r := rand.New(rand.NewPCG(seed, 11))
	c := &treeCase{seed: seed, base: growTree(r)}
	c.mine, c.real = maps.Clone(c.base), maps.Clone(c.base)
	for _, side := range []gitTree{c.mine, c.real} {
		for range 1 + r.IntN(4) {
			side.change(r)
		}
	}
	return c
}

// mergeByGit merges all cases by one git merge-tree, in a repository of its own.
func mergeByGit(tb testing.TB, cases []*treeCase) {
	tb.Helper()
	dir := tb.TempDir()
	git := func(in string, args ...string) string {
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "merge.directoryRenames=true"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
		cmd.Stdin = strings.NewReader(in)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			tb.Fatalf("git %s: %v: %s", args[0], err, stderr.String())
		}
		return string(out)
	}
	git("", "init", "-q", "--bare")
	var history, pairs strings.Builder
	for i, c := range cases {
		for side, t := range []gitTree{c.base, c.mine, c.real} {
			name := fmt.Sprintf("refs/heads/c%d-%d", i, side)
			fmt.Fprintf(&history, "commit %s\nmark :%d\ncommitter A <a@example.org> 1600000000 +0000\ndata 1\nm\n", name, 3*i+side+1)
			if side > 0 {
				fmt.Fprintf(&history, "from :%d\ndeleteall\n", 3*i+1)
			}
			for at, f := range t {
				fmt.Fprintf(&history, "M %s inline %s\ndata %d\n%s\n", f.mode, at, len(f.content), f.content)
			}
		}
		fmt.Fprintf(&pairs, "c%d-1 c%d-2\n", i, i)
	}
	git(history.String(), "fast-import", "--quiet")
	// Each record: "1" for clean or "0", the tree, without clean the files in conflict, an empty
	// field and the messages, and an empty field. See git-merge-tree(1), "OUTPUT".
	fields := strings.Split(git(pairs.String(), "merge-tree", "--stdin"), "\x00")
	next := func() string {
		f := fields[0]
		fields = fields[1:]
		return f
	}
	var trees strings.Builder
	for _, c := range cases {
		c.clean = next() == "1"
		tree := next()
		if c.clean {
			next()
			c.merged = lsTree(git("", "ls-tree", "-rz", tree))
			for _, f := range c.merged {
				fmt.Fprintln(&trees, f.content)
			}
			continue
		}
		for f := next(); f != ""; f = next() {
			c.said += f + "\n"
		}
		for n := next(); n != ""; n = next() {
			count, err := strconv.Atoi(n)
			must(tb, err)
			for range count {
				next()
			}
			next()
			c.said += next()
		}
	}
	blobs := readBlobs(tb, git(trees.String(), "cat-file", "--batch"))
	for _, c := range cases {
		for at, f := range c.merged {
			c.merged[at] = gitFile{f.mode, blobs[f.content]}
		}
	}
}

// lsTree reads the output of git ls-tree -rz; the content is the name of the object.
func lsTree(out string) gitTree {
	t := gitTree{}
	for _, line := range strings.Split(strings.TrimSuffix(out, "\x00"), "\x00") {
		if about, at, ok := strings.Cut(line, "\t"); ok {
			words := strings.Fields(about)
			t[at] = gitFile{words[0], words[2]}
		}
	}
	return t
}

// readBlobs reads the output of git cat-file --batch.
func readBlobs(tb testing.TB, out string) map[string]string {
	tb.Helper()
	blobs := map[string]string{}
	for out != "" {
		head, rest, _ := strings.Cut(out, "\n")
		words := strings.Fields(head)
		size, err := strconv.Atoi(words[2])
		must(tb, err)
		blobs[words[0]], out = rest[:size], rest[size+1:]
	}
	return blobs
}

// mergeHere merges a case by Trees, and applies a clean result.
func (c *treeCase) mergeHere(t testing.TB) (merged gitTree, conflicts []merge.Conflict) {
	t.Helper()
	w := newWorld(t)
	c.base.write(t, w.base, c.base, 0)
	c.mine.write(t, w.mine, c.base, 1)
	c.real.write(t, w.real, c.base, 2)
	c.real.write(t, w.target, c.base, 2)
	in := w.input()
	r := w.trees(in)
	if len(r.Conflicts) == 0 {
		w.apply(in, r)
		merged = readTree(t, w.target)
	}
	return merged, r.Conflicts
}

// TestTreesAgreeWithGit compares random merges of trees with git merge-tree: either both have
// a conflict, or both have the same result. Where they disagree, one of the reasons that
// docs/design/0005-merge.md lists must hold. Directories without files, owners, attributes and
// hard links are not compared, because git does not record them.
func TestTreesAgreeWithGit(t *testing.T) {
	needGit(t)
	treetest.OncePerRun(t)
	first, count := fuzzRange(t, "SNAPFS_FUZZ_TREES", 36, 2000)
	cases := make([]*treeCase, count)
	for i := range cases {
		cases[i] = newTreeCase(first + uint64(i))
	}
	mergeByGit(t, cases)
	clean, listed := 0, map[string]int{}
	for _, c := range cases {
		t.Run(strconv.FormatUint(c.seed, 10), func(t *testing.T) {
			merged, conflicts := c.mergeHere(t)
			why, listing := c.disagreement(merged, conflicts)
			switch {
			case why == "" && c.clean:
				clean++
			case why != "" && listing == "":
				t.Errorf("%s\n%s", why, c.describe(merged, conflicts))
			case why != "":
				listed[listing]++
			}
		})
	}
	t.Logf("%d merges: %d agree and are clean", len(cases), clean)
	for _, why := range slices.Sorted(maps.Keys(listed)) {
		t.Logf("%d disagree: %s", listed[why], why)
	}
	if clean < len(cases)/10 || clean > len(cases)*9/10 {
		t.Errorf("%d of %d merges were clean: the cases are too much alike", clean, len(cases))
	}
}

// The listed reasons for a disagreement. See docs/design/0005-merge.md, "Where git differs".
const (
	noDirectories = "git does not record directories"
	insideRenamed = "a change inside a directory that the other side renamed"
	movesAlong    = "a new directory moves along with the directory around it"
	sameTarget    = "a directory renamed to a path at which the other side has one, too"
	newType       = "another file type is a change of the file"
	severalPairs  = "several files of equal content, of which each may be the renamed one"
)

// disagreement says how the results differ, or nothing, and which listed reason holds.
func (c *treeCase) disagreement(merged gitTree, conflicts []merge.Conflict) (what, reason string) {
	switch {
	case c.clean && len(conflicts) > 0:
		kind := conflicts[0].Kind
		what = "a conflict only here: " + string(kind)
		switch {
		case (kind == merge.ChangeDelete || kind == merge.DeleteChange) && c.base.hasDir(conflicts[0].Path):
			reason = noDirectories
		case (kind == merge.RenameRename || kind == merge.RenameAdd) && (c.mine.lacksDirOf(c.base) || c.real.lacksDirOf(c.base)):
			reason = sameTarget
		}
	case !c.clean && len(conflicts) == 0:
		_, after, _ := strings.Cut(c.said, "CONFLICT ")
		kind, rest, _ := strings.Cut(after, ":")
		if _, more, ok := strings.Cut(rest, "CONFLICT "); ok && kind == "(directory rename split)" {
			kind, _, _ = strings.Cut(more, ":") // git says first where it moves no files, because both sides moved them
		}
		what = "a conflict only in git: " + kind
		switch {
		case kind == "(modify/delete)" && (c.base.changesType(c.mine) || c.base.changesType(c.real)):
			reason = newType
		case strings.HasPrefix(kind, "(rename/") && (c.mine.lacksDirOf(c.base) || c.real.lacksDirOf(c.base)):
			reason = insideRenamed
		}
	case c.clean && !maps.Equal(c.merged, merged):
		what, reason = "another result", movesAlong
		links := true
		for at, f := range c.merged {
			if merged[at] == f {
				continue
			}
			links = links && f.mode == "120000"
			if !c.mine.lacksDirAbove(c.base, at) && !c.real.lacksDirAbove(c.base, at) {
				reason = ""
			}
		}
		if reason == "" && links {
			reason = severalPairs
		}
	}
	return what, reason
}

// hasDir reports whether the tree has files below a path.
func (t gitTree) hasDir(at string) bool {
	for other := range t {
		if strings.HasPrefix(other, at+"/") {
			return true
		}
	}
	return false
}

// lacksDirAbove reports whether a directory around a path, which base has, is gone from t.
func (t gitTree) lacksDirAbove(base gitTree, at string) bool {
	for dir := path.Dir(at); dir != "."; dir = path.Dir(dir) {
		if base.hasDir(dir) && !t.hasDir(dir) {
			return true
		}
	}
	return false
}

// lacksDirOf reports whether any directory of base is gone from t.
func (t gitTree) lacksDirOf(base gitTree) bool {
	for at := range base {
		if t.lacksDirAbove(base, at) {
			return true
		}
	}
	return false
}

// changesType reports whether a path has a symbolic link in one tree and a file in the other.
func (t gitTree) changesType(other gitTree) bool {
	for at, f := range t {
		if o, ok := other[at]; ok && (o.mode == "120000") != (f.mode == "120000") {
			return true
		}
	}
	return false
}

// describe prints a case: what each side changed, and both results.
func (c *treeCase) describe(merged gitTree, conflicts []merge.Conflict) string {
	var b strings.Builder
	side := func(name string, from, to gitTree) {
		fmt.Fprintf(&b, "%s:\n", name)
		paths := slices.Compact(slices.Sorted(func(yield func(string) bool) {
			for _, t := range []gitTree{from, to} {
				for at := range t {
					if !yield(at) {
						return
					}
				}
			}
		}))
		for _, at := range paths {
			old, new := from[at], to[at]
			if old != new {
				fmt.Fprintf(&b, "\t%s %s -> %s\n", at, old.brief(), new.brief())
			}
		}
	}
	side("base", nil, c.base)
	side("mine", c.base, c.mine)
	side("real", c.base, c.real)
	fmt.Fprintf(&b, "git, clean %v: %s\n", c.clean, c.said)
	b.WriteString(conflictLines(conflicts))
	if c.clean && len(conflicts) == 0 {
		side("git to here", c.merged, merged)
	}
	return b.String()
}

// brief names a file by its mode and first line, and the number of lines.
func (f gitFile) brief() string {
	line, _, _ := strings.Cut(f.content, "\n")
	return fmt.Sprintf("%s %q, %d lines", cmp.Or(f.mode, "none"), line, strings.Count(f.content, "\n"))
}
