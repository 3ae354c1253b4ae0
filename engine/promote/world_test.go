package promote_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/approval"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/internal/treetest"
)

// A world has a real tree, a frozen base of it, and the sandbox.
type world struct {
	top                 string
	real, base, sandbox *os.File
	taken               time.Time
}

// newWorld plays the script before on all three trees, and then after on the sandbox.
func newWorld(t testing.TB, top string, before, after treetest.Script) *world {
	t.Helper()
	w := &world{top: top}
	for name, f := range map[string]**os.File{"real": &w.real, "base": &w.base, "sandbox": &w.sandbox} {
		dir := filepath.Join(top, name)
		must(t, os.Mkdir(dir, 0o755))
		*f = treetest.Open(t, dir)
		must(t, before.Play(*f))
	}
	time.Sleep(diff.Racy)
	w.taken = time.Now()
	time.Sleep(diff.Racy)
	must(t, after.Play(w.sandbox))
	return w
}

func (w *world) target() promote.Target {
	return promote.Target{Root: w.real, Path: w.real.Name(), StateDir: w.state()}
}
func (w *world) source() promote.Source { return promote.Source{Tree: w.sandbox} }
func (w *world) state() string          { return filepath.Join(w.top, "state") }

// frozen and live are the two kinds of base.
func (w *world) frozen() promote.Base {
	return promote.Base{Taken: w.taken, Frozen: true, Root: w.base}
}
func (w *world) live() promote.Base { return promote.Base{Taken: w.taken} }

func (w *world) changes(t testing.TB, b promote.Base) []diff.Change {
	t.Helper()
	old := w.base
	if !b.Frozen {
		old = w.real
	}
	changes, err := diff.Trees(t.Context(), old, w.sandbox, diff.Options{})
	must(t, err)
	return changes
}

// options approve everything: refusals have tests of their own.
func options(b promote.Base) promote.Options {
	return promote.Options{Base: b, Allow: approval.Allow{SetID: true, Devices: true, Capabilities: true, Paths: []string{"."}}}
}

func (w *world) apply(t testing.TB, b promote.Base) (promote.Result, error) {
	t.Helper()
	return promote.Apply(t.Context(), w.target(), w.source(), w.changes(t, b), options(b))
}

// arrived fails the test if the real tree differs from the sandbox. Times of directories in
// which names changed are not part of the changes.
func (w *world) arrived(t testing.TB) {
	t.Helper()
	treetest.Compare(t, w.sandbox, w.real, treetest.Options{NoDirTimes: true})
	w.clean(t)
}

// clean fails the test if a promotion left anything beside the trees.
func (w *world) clean(t testing.TB) {
	t.Helper()
	for _, dir := range []string{w.top, w.real.Name(), w.state()} {
		list, err := os.ReadDir(dir)
		must(t, err)
		for _, e := range list {
			if strings.HasPrefix(e.Name(), ".snapfs-apply-") || strings.HasSuffix(e.Name(), ".journal") || strings.HasSuffix(e.Name(), ".left") {
				t.Errorf("left behind: %s in %s", e.Name(), dir)
			}
		}
	}
}

func manifest(t testing.TB, w *world) string {
	t.Helper()
	return treetest.Manifest(t, w.real.Name(), treetest.Options{})
}

// listed returns the paths that an error about the real tree lists, each with its reason.
func (w *world) listed(err error) (paths []string) {
	_, list, _ := strings.Cut(err.Error(), w.real.Name()+": ")
	for one := range strings.SplitSeq(list, "; ") {
		path, _, _ := strings.Cut(one, ": ")
		paths = append(paths, path)
	}
	return paths
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const second = 1_600_000_000

func file(path string, seed uint64, size int64) treetest.Step {
	return treetest.Step{Op: treetest.Create, Path: path, Mode: 0o644, Seed: seed, Size: size, Time: second}
}

func do(op treetest.Op, path, to string) treetest.Step {
	return treetest.Step{Op: op, Path: path, To: to, Mode: 0o755, Time: second + 1}
}

// scene returns a small tree, and a change of every kind.
func scene() (before, after treetest.Script) {
	before = treetest.Script{
		file("keep", 1, 10), file("mod", 2, 9000), file("mode", 3, 10), file("attr", 4, 10), file("gone", 5, 10),
		do(treetest.Mkdir, "olddir", ""), file("olddir/a", 6, 10), do(treetest.Mkdir, "olddir/sub", ""), file("olddir/sub/b", 7, 10),
		file("becomes-dir", 8, 10), do(treetest.Mkdir, "becomes-file", ""), file("becomes-file/x", 9, 10),
		file("link1", 10, 10), do(treetest.Link, "link1", "link2"), file("kept1", 11, 10), do(treetest.Symlink, "sym", "keep"),
		do(treetest.Mkdir, "dir", ""), file("dir/inner", 12, 10), do(treetest.Mkdir, "quiet", ""), file("quiet/q", 14, 10),
	}
	for i := range before {
		before[i].Time = second
	}
	chmod := do(treetest.Chmod, "mode", "")
	chmod.Mode = 0o600
	chmodDir := do(treetest.Chmod, "dir", "")
	chmodDir.Mode = 0o711
	attr := do(treetest.Setxattr, "attr", "")
	attr.Attr, attr.Value = "user.snapfs", []byte("new")
	write := do(treetest.Write, "mod", "")
	write.Seed, write.Size = 20, 100
	writeLink := write
	writeLink.Path, writeLink.Size = "link2", 5
	after = treetest.Script{
		write, chmod, attr, do(treetest.Unlink, "gone", ""), do(treetest.RemoveRF, "olddir", ""),
		do(treetest.Unlink, "becomes-dir", ""), do(treetest.Mkdir, "becomes-dir", ""), file("becomes-dir/y", 21, 10),
		do(treetest.RemoveRF, "becomes-file", ""), file("becomes-file", 22, 10), writeLink, do(treetest.Link, "kept1", "kept2"),
		do(treetest.Unlink, "sym", ""), do(treetest.Symlink, "sym", "mod"), file("dir/added", 23, 10), chmodDir,
		do(treetest.Mkdir, "new", ""), do(treetest.Mkdir, "new/deep", ""), file("new/deep/z", 24, 10), do(treetest.Link, "new/deep/z", "new/zz"),
		do(treetest.Fifo, "new/pipe", ""), do(treetest.Utimes, "quiet/q", ""), do(treetest.Utimes, "quiet", ""),
	}
	return before, after
}

// selected returns those of the changes that have one of these paths.
func selected(changes []diff.Change, paths ...string) []diff.Change {
	return slices.DeleteFunc(slices.Clone(changes), func(c diff.Change) bool { return !slices.Contains(paths, c.Path) })
}
