package merge_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/merge"
	"github.com/snapfs/snapfs/internal/treetest"
)

// The laws of a three-way merge, on random trees. Seeds count from 0; a failure prints
// its seed.

var someNames = []string{"a", "b", "c", "dir", "e.e", "\xff", "x y"}

// mutate makes a random change to a tree, or none if that change is impossible.
func mutate(r *rand.Rand, root string) {
	pick := func() string {
		path := root
		for range 1 + r.IntN(3) {
			path = filepath.Join(path, someNames[r.IntN(len(someNames))])
		}
		return path
	}
	path, other := pick(), pick()
	switch r.IntN(14) {
	case 0, 1:
		_ = os.MkdirAll(path, 0o755)
	case 2, 3, 4, 5:
		if info, err := os.Lstat(path); err != nil || info.Mode().IsRegular() {
			_ = os.WriteFile(path, text(r, edit(r, slices.Repeat([]string{"1", "2", "3", "4"}, 1+r.IntN(4)), 1+r.IntN(2), 9)), 0o644)
		}
	case 6:
		_ = os.Symlink(someNames[r.IntN(3)], path)
	case 7:
		_ = os.Link(other, path)
	case 8:
		if _, err := os.Lstat(path); err == nil {
			_ = os.RemoveAll(path)
		}
	case 9:
		_ = unix.Chmod(path, uint32(0o700|r.IntN(8)))
	case 10:
		_ = unix.Lsetxattr(path, "user."+someNames[r.IntN(2)], []byte{byte('0' + r.IntN(3))}, 0)
	case 11, 12:
		if !linked(other) {
			_ = os.Rename(other, path)
		}
	case 13:
		_ = unix.Mkfifo(path, 0o600)
	}
}

// linked reports whether a node, or one below it, has further hard links. When one link
// moves, no change mentions the others; see package diff.
func linked(path string) (found bool) {
	_ = filepath.WalkDir(path, func(path string, e fs.DirEntry, err error) error {
		var st unix.Stat_t
		found = found || err == nil && !e.IsDir() && unix.Lstat(path, &st) == nil && st.Nlink > 1
		return nil
	})
	return found
}

// random creates a base and two trees grown from it, which differ in times alone at first.
func random(t testing.TB, seed uint64, edits int) *world {
	t.Helper()
	w := newWorld(t)
	for i, root := range []string{w.base, w.mine, w.real, w.target} {
		r := rand.New(rand.NewPCG(seed, 0))
		for range 60 {
			mutate(r, root)
		}
		stamp(t, root, 0, nil)
		before := stamps(t, root)
		if i == 0 {
			continue
		}
		r = rand.New(rand.NewPCG(seed, uint64(min(i, 2))))
		for range r.IntN(edits + 1) {
			mutate(r, root)
		}
		stamp(t, root, min(i, 2), before)
	}
	return w
}

// stamps returns the change times of all nodes of a tree.
func stamps(t testing.TB, root string) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	must(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		must(t, err, unix.Lstat(path, &st))
		all[fmt.Sprint(st.Ino)] = st.Mtim.Nano()
		return nil
	}))
	return all
}

// stamp sets a distinct time on everything written since before.
func stamp(t testing.TB, root string, later int, before map[string]int64) {
	t.Helper()
	must(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		var st unix.Stat_t
		must(t, err, unix.Lstat(path, &st))
		if when, ok := before[fmt.Sprint(st.Ino)]; ok && when == st.Mtim.Nano() && !e.IsDir() {
			return nil
		}
		if e.IsDir() {
			return setTime(path, began)
		}
		return setTime(path, began.AddDate(0, 0, later))
	}))
}

// manifest describes a tree, except for the times of directories.
func manifest(t testing.TB, root string) string {
	t.Helper()
	return treetest.Manifest(t, root, treetest.Options{NoDirTimes: true})
}

func (w *world) mustBe(want, what string) {
	w.t.Helper()
	if lines := treetest.Lines(manifest(w.t, want), manifest(w.t, w.target)); len(lines) > 0 {
		w.t.Fatalf("%s:\n%s", what, strings.Join(lines, "\n"))
	}
}

// with returns a world with other trees as mine and real.
func (w *world) with(mine, real string) *world {
	w.t.Helper()
	v := *w
	v.mine, v.real = mine, real
	return &v
}

// lawful returns how many random worlds a law is tried on.
func lawful(t *testing.T) int {
	t.Helper()
	treetest.OncePerRun(t)
	return treetest.Budget(t, 6, 40)
}

// merge(base, mine, base) equals mine.
func TestChangesOfOneSideAreTheResult(t *testing.T) {
	for seed := range uint64(lawful(t)) {
		w := random(t, seed, 50)
		must(t, os.RemoveAll(w.target))
		w.target = w.base
		real := copyTree(t, w.base)
		v := w.with(w.mine, real)
		in := v.input()
		r := v.trees(in)
		if len(r.Conflicts) > 0 {
			t.Fatalf("seed %d: conflicts:\n%s", seed, conflictLines(r.Conflicts))
		}
		w.target = copyTree(t, w.base)
		v.target = w.target
		v.apply(in, r)
		v.mustBe(w.mine, fmt.Sprintf("seed %d: merge(B, M, B) is not M", seed))
		must(t, os.RemoveAll(w.top), os.RemoveAll(real), os.RemoveAll(w.target))
	}
}

// Where the real tree is as the base, Trees takes the sandbox's changes without deciding on each file. The result is the
// one of the whole merge, which an entry of Lost demands that covers no change.
func TestUnopposedChangesAreThoseOfTheWholeMerge(t *testing.T) {
	treetest.OncePerRun(t)
	for seed := range uint64(treetest.Budget(t, 20, 100)) {
		c, w := newTreeCase(seed), newWorld(t)
		c.base.write(t, w.base, c.base, 0)
		c.base.write(t, w.real, c.base, 0)
		c.mine.write(t, w.mine, c.base, 1)
		must(t, filepath.WalkDir(w.mine, func(at string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				err = setTime(at, began.AddDate(0, 0, 3)) // a change of its own only where no name changes
			}
			return err
		}))
		in := w.input()
		if len(in.Real) > 0 {
			t.Fatalf("seed %d: real has\n%s", seed, brief(in.Real))
		}
		short := w.trees(in)
		in.Lost = map[string]string{"none/such": "gone"}
		whole := w.trees(in)
		if got, want := brief(short.Changes), brief(whole.Changes); got != want || len(short.Changes) != len(whole.Changes) {
			t.Fatalf("seed %d: got\n%swant\n%s", seed, got, want)
		}
		if len(short.Conflicts)+len(whole.Conflicts)+len(whole.Built)+len(whole.From) > 0 {
			t.Fatalf("seed %d: %+v", seed, whole)
		}
		for i, want := range whole.Changes {
			got := short.Changes[i]
			if (got.New == nil) != (want.New == nil) || got.What != want.What || got.New != nil && !sameResult(got, want) {
				t.Fatalf("seed %d: %q: got %+v, want %+v", seed, want.Path, got.New, want.New)
			}
		}
		must(t, os.RemoveAll(w.top))
	}
}

// sameResult reports whether two changes of one path make the same file.
func sameResult(a, b diff.Change) bool {
	x, y := *a.New, *b.New
	x.CTime, x.Ino, x.Dev = y.CTime, y.Ino, y.Dev // of the sandbox's file, or of the real one
	if x.Mode.IsDir() {
		x.MTime, x.NLink = y.MTime, y.NLink
	}
	return reflect.DeepEqual(x, y)
}

// merge(base, base, real) and merge(base, mine, mine) change nothing.
func TestChangesThatRealHasAreNoChange(t *testing.T) {
	for seed := range uint64(lawful(t)) {
		w := random(t, seed, 50)
		twin := copyTree(t, w.mine)
		for what, v := range map[string]*world{
			"merge(B, B, R)": w.with(copyTree(t, w.base), w.real), "merge(B, M, M)": w.with(w.mine, twin),
		} {
			if r := v.trees(v.input()); len(r.Changes)+len(r.Conflicts) > 0 {
				t.Fatalf("seed %d: %s changes:\n%s%s", seed, what, brief(r.Changes), conflictLines(r.Conflicts))
			}
		}
		must(t, os.RemoveAll(w.top))
	}
}

// Swapping the sides gives the same conflicts and the same clean changes.
func TestBothSidesSeeTheSameConflicts(t *testing.T) {
	conflicts := 0
	for seed := range uint64(3 * lawful(t)) {
		w := random(t, seed, 50)
		one, two := w.with(w.mine, w.real), w.with(w.real, w.mine)
		a, b := one.trees(one.input()), two.trees(two.input())
		if x, y := places(a.Conflicts, false), places(b.Conflicts, true); x != y {
			t.Fatalf("seed %d: conflicts of M and R:\n%s\nof R and M, seen from there:\n%s", seed, x, y)
		}
		conflicts += len(a.Conflicts)
		if len(a.Conflicts) == 0 {
			w.meets(seed, one, two)
		}
		must(t, os.RemoveAll(w.top))
	}
	if conflicts < 5*lawful(t)/2 {
		t.Errorf("%d conflicts in all: the trees hardly meet", conflicts)
	}
}

// meets fails the test if a clean merge depends on which side is mine. Times may differ.
func (w *world) meets(seed uint64, one, two *world) {
	w.t.Helper()
	var made [2]string
	for i, v := range []*world{one, two} {
		v.target = copyTree(w.t, v.real)
		in := v.input()
		v.apply(in, v.trees(in))
		made[i] = treetest.Manifest(w.t, v.target, treetest.Options{NoTimes: true})
		must(w.t, os.RemoveAll(v.target))
	}
	if lines := treetest.Lines(made[0], made[1]); len(lines) > 0 {
		w.t.Fatalf("seed %d: merge(B, M, R) is not merge(B, R, M):\n%s", seed, strings.Join(lines, "\n"))
	}
}

// places returns the kinds and paths of conflicts; swapped exchanges the sides.
func places(conflicts []merge.Conflict, swapped bool) string {
	var lines []string
	for _, c := range conflicts {
		if swapped {
			switch c.Kind {
			case merge.ChangeDelete:
				c.Kind = merge.DeleteChange
			case merge.DeleteChange:
				c.Kind = merge.ChangeDelete
			}
			if c.Kind == merge.RenameRename { // reported at mine's path
				c.Path, c.RealPath = c.RealPath, c.Path
			}
		}
		lines = append(lines, fmt.Sprintf("%s %q", c.Kind, c.Path))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Changes to different directories never conflict: the result has both.
func TestChangesToDifferentDirectoriesAreBothTaken(t *testing.T) {
	for seed := range uint64(lawful(t)) {
		w := newWorld(t)
		want := filepath.Join(w.top, "want")
		must(t, os.Mkdir(want, 0o755))
		for i, root := range []string{w.base, w.mine, w.real, w.target, want} {
			for side, dir := range []string{"left", "right"} {
				at := filepath.Join(root, dir)
				must(t, os.Mkdir(at, 0o755))
				r := rand.New(rand.NewPCG(seed, uint64(side)))
				for range 40 {
					mutate(r, at)
				}
				stamp(t, root, 0, nil)
				if i == 4 || i == 1 && side == 0 || (i == 2 || i == 3) && side == 1 {
					before := stamps(t, root)
					for range 15 {
						mutate(r, at)
					}
					stamp(t, root, 1, before)
				}
			}
		}
		in := w.input()
		r := w.trees(in)
		if len(r.Conflicts) > 0 {
			t.Fatalf("seed %d: conflicts:\n%s", seed, conflictLines(r.Conflicts))
		}
		w.apply(in, r)
		w.mustBe(want, fmt.Sprintf("seed %d: not both", seed))
		must(t, os.RemoveAll(w.top))
	}
}

// If every conflict has an answer, no conflict is left, and the content of the tree is
// that of one side or a merge of texts.
func TestEveryConflictCanBeAnswered(t *testing.T) {
	answered := 0
	for seed := range uint64(3 * lawful(t)) {
		w := random(t, seed, 50)
		r := rand.New(rand.NewPCG(seed, 9))
		in := w.input()
		in.Choose = func(merge.Conflict) merge.Choice {
			answered++
			return []merge.Choice{merge.Mine, merge.Theirs}[r.IntN(2)]
		}
		result := w.trees(in)
		if len(result.Conflicts) > 0 {
			t.Errorf("seed %d: left although they were answered:\n%s", seed, conflictLines(result.Conflicts))
		}
		w.loose = true
		w.apply(in, result)
		must(t, os.RemoveAll(w.top))
	}
	if answered < 5*lawful(t)/2 {
		t.Errorf("%d answers in all: the trees hardly meet", answered)
	}
}

// The merged tree has every line of real. It has every line of mine, too, except at the
// paths of conflicts.
func TestNoLineOfEitherSideIsLost(t *testing.T) {
	also := 0
	for seed := range uint64(6 * lawful(t)) {
		w := shuffled(t, seed)
		ofMine, ofReal := sign(t, w.mine, "mine", 1+int(seed%4)), sign(t, w.real, "real", 4-int(seed%4))
		must(t, os.RemoveAll(w.target))
		cp(t, w.real, w.target)
		in := w.input()
		r := w.trees(in)
		w.loose = true
		w.apply(in, r)
		for _, line := range missing(t, ofReal, w.target) {
			t.Errorf("seed %d: %q is lost, and the conflicts are\n%s", seed, line, conflictLines(r.Conflicts))
		}
		trees := []string{w.target}
		for _, c := range r.Conflicts {
			also += len(c.Also)
			for _, path := range c.Paths() {
				trees = append(trees, filepath.Join(w.mine, path))
			}
		}
		for _, line := range missing(t, ofMine, trees...) {
			t.Errorf("seed %d: %q is lost, and the conflicts are\n%s", seed, line, conflictLines(r.Conflicts))
		}
		must(t, os.RemoveAll(w.top))
	}
	if also == 0 {
		t.Error("no conflict is about several places")
	}
}

// Otherwise the answer to one conflict would undo the answer to the other.
func TestConflictsDoNotOverlap(t *testing.T) {
	w := trees(t, "b\nfile\n;d/a\none\n;d/s/x\ntwo\n", "t from=b;b from=d;b/a\nmine\n;d from=t", "b\nreal\n;d/s/c\nnew\n;d/a\nreal\n")
	conflicts := w.trees(w.input()).Conflicts
	for i, c := range conflicts {
		for j, other := range conflicts {
			for _, place := range c.Paths() {
				if i != j && slices.ContainsFunc(other.Paths(), func(p string) bool { return place == p || strings.HasPrefix(place, p+"/") }) {
					t.Errorf("%s of %s %s lies in the place of %s %s", place, c.Kind, c.Path, other.Kind, other.Path)
				}
			}
		}
	}
	if len(conflicts) == 0 {
		t.Error("there is no conflict")
	}
}

// Writing the sandbox's version to the paths of a conflict needs the parent directories of
// these paths.
func TestConflictIncludesObstacles(t *testing.T) {
	long := strings.Repeat("a line that tells where it is from\n", 9)
	w := trees(t, "a\nfile\n;d/a\n"+long+"1\n;d/b\n"+long+"2\n", "a\nmine\n;d/a\n"+long+"mine\n;d/b\n"+long+"mine\n", "t from=a;a from=d;d from=t;d\nreal\n")
	conflicts := w.trees(w.input()).Conflicts
	if len(conflicts) != 1 || !slices.Contains(conflicts[0].Paths(), "d") {
		t.Errorf("conflicts:\n%s", conflictLines(conflicts))
	}
}

// shuffled returns a world in which both sides rename to the same few paths.
func shuffled(t testing.TB, seed uint64) *world {
	t.Helper()
	w := newWorld(t)
	places := []string{"a", "dir", "dir/a", "dir/b", "new", "dir/new", "new", "dir/new"}
	for i, root := range []string{w.base, w.mine, w.real} {
		for n, file := range []string{"a", "dir/a", "dir/b"} {
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755))
			must(t, os.WriteFile(filepath.Join(root, file), []byte(strings.Repeat(fmt.Sprintf("text %d\n", n), 9)), 0o644))
		}
		stamp(t, root, 0, nil)
		before, r := stamps(t, root), rand.New(rand.NewPCG(seed, uint64(i)))
		for range i * 2 {
			from, to := filepath.Join(root, places[r.IntN(len(places))]), filepath.Join(root, places[r.IntN(len(places))])
			switch r.IntN(8) {
			case 0:
				_ = os.RemoveAll(to)
			case 1, 2, 3:
				_ = os.WriteFile(to, []byte(strings.Repeat(fmt.Sprintf("made by %d\n", i), 9)), 0o644)
			default:
				_ = os.Rename(from, to)
			}
		}
		stamp(t, root, i, before)
	}
	return w
}

// sign adds a distinct line to one of n files of a tree, and returns the line.
func sign(t testing.TB, root, name string, many int) (lines []string) {
	t.Helper()
	files := 0
	must(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		if files++; files%many != 0 {
			return nil
		}
		line := fmt.Sprintf("%s %d\n", name, files)
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err == nil {
			_, err = f.WriteString(line)
			must(t, f.Close())
		}
		lines = append(lines, line)
		return err
	}))
	return lines
}

// missing returns the lines that no file in any of these trees has.
func missing(t testing.TB, lines []string, trees ...string) []string {
	t.Helper()
	var all strings.Builder
	for _, root := range trees {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			all.Write(data)
			return err
		})
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			must(t, err)
		}
	}
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return strings.Contains(all.String(), line) })
}

// copyTree copies a tree with all metadata.
func copyTree(t testing.TB, root string) string {
	t.Helper()
	dir := filepath.Join(treetest.Dir(t), "copy")
	cp(t, root, dir)
	return dir
}
