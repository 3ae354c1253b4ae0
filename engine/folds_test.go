package engine_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/backends/btrfs"
	"github.com/snapfs/snapfs/backends/fusecow"
	"github.com/snapfs/snapfs/backends/fusecow/servetest"
	"github.com/snapfs/snapfs/backends/overlay"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate"
)

// A foldBench is a backend that knows of renamed directories, with the snapshot "base" and the fork "work".
type foldBench struct {
	testing.TB
	b     snapshot.Backend
	place snapshot.Place
}

// What a renamed directory leaves unlisted is exactly what did not change in it: unfolded again, the
// list is the one of a comparison that folds nothing. Seeded random renames, in and out of one
// another, in one layer and in several.
func TestRenamedDirectoriesUnfoldToTheFullList(t *testing.T) {
	treetest.NeedRoot(t)
	t.Run("overlay", func(t *testing.T) { unfold(t, treetest.Budget(t, 12, 60), overlay.Driver, snapshottest.OnDisk) })
	t.Run("fusecow", func(t *testing.T) {
		treetest.NeedDevice(t, "/dev/fuse")
		unfold(t, treetest.Budget(t, 3, 40), servetest.Driver(fusecow.Driver), snapshottest.OnDisk)
	})
	t.Run("btrfs", func(t *testing.T) {
		treetest.NeedProgram(t, "mkfs.btrfs")
		disk := treetest.Btrfs(t)
		unfold(t, treetest.Budget(t, 6, 60), btrfs.Driver, func(t testing.TB) snapshot.Place {
			return snapshottest.Within(t, ok(os.MkdirTemp(disk, "one"))(t))
		})
	})
}

func unfold(t *testing.T, seeds int, driver snapshot.Driver, place func(t testing.TB) snapshot.Place) {
	unfoldNested(t, driver, place)
	folded := 0
	for seed := range uint64(seeds) {
		s := &foldBench{TB: t, place: place(t)}
		s.b = ok(driver.Open(t.Context(), s.place))(t)
		plant(t, s.place.Tree.Path, 3)
		ok(s.b.Capture(t.Context(), s.place.Tree, "base"))(t)
		ok(s.b.Fork(t.Context(), "base", "work"))(t)
		r := rand.New(rand.NewPCG(seed, 9))
		for round := range 2 {
			root := s.open("")
			for range 6 {
				shuffle(r, vfs.FDPath(root)+"/.")
			}
			root.Close()
			folded += s.unfolds(fmt.Sprintf("seed %d, round %d", seed, round))
			if seed%2 == 0 {
				ok(s.b.Seal(t.Context(), "work", snapshot.ID(fmt.Sprintf("s%d", round)), snapshot.Idle))(t)
			}
		}
		must(t, s.b.RemoveFork(t.Context(), "work"))
	}
	if folded < seeds {
		t.Errorf("only %d directories were folded", folded)
	}
}

// unfoldNested renames a directory inside a renamed directory, of which only the outer one is large enough to be folded.
func unfoldNested(t *testing.T, driver snapshot.Driver, place func(t testing.TB) snapshot.Place) {
	s := &foldBench{TB: t, place: place(t)}
	s.b = ok(driver.Open(t.Context(), s.place))(t)
	for dir, files := range map[string]int{"big": 30, "big/sub": 10} {
		must(t, os.MkdirAll(filepath.Join(s.place.Tree.Path, dir), 0o755))
		for i := range files {
			must(t, os.WriteFile(fmt.Sprintf("%s/%s/f%d", s.place.Tree.Path, dir, i), []byte(dir), 0o644))
		}
	}
	ok(s.b.Capture(t.Context(), s.place.Tree, "base"))(t)
	ok(s.b.Fork(t.Context(), "base", "work"))(t)
	root := s.open("")
	at := vfs.FDPath(root)
	must(t, errors.Join(os.Rename(at+"/big", at+"/large"), os.Rename(at+"/large/sub", at+"/large/sub2")))
	root.Close()
	if n := s.unfolds("nested"); n != 2 {
		t.Errorf("%d directories were folded, want 2", n)
	}
	must(t, s.b.RemoveFork(t.Context(), "work"))
}

// ok returns a function that returns v, and ends the test if there is an error.
func ok[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// open opens the snapshot id, or the fork for writing if that is "".
func (s *foldBench) open(id snapshot.ID) *os.File {
	s.Helper()
	if id != "" {
		return ok(hostfs.OpenViews(s.Context(), isolate.OpenViews, s.place.Tree.Path, hostfs.MountOf("/", ok(s.b.Lookup(s.Context(), id))(s).View)))(s)[0]
	}
	return ok(hostfs.OpenViews(s.Context(), isolate.OpenForks, s.place.Tree.Path, hostfs.MountOf("/", ok(s.b.LookupFork(s.Context(), "work"))(s).View)))(s)[0]
}

// unfolds compares the fork with the snapshot in full and with renamed directories folded. It folds all of
// them, and then those only that have a number of entries between the sizes of the directories. It returns how many
// were folded at first.
func (s *foldBench) unfolds(what string) (folds int) {
	s.Helper()
	pair := compare.Pair{Tree: catalog.Tree{Path: s.place.Tree.Path, Fork: "work"}, Left: "base"}
	candidates, walk, err := compare.ListChanges(s.Context(), s.b, pair)
	must(s, err)
	if walk {
		s.Fatal("the backend lists no changes")
	}
	base, root := s.open("base"), s.open("")
	defer base.Close()
	defer root.Close()
	at := func(fold int) []diff.Change {
		opt := diff.Options{OverlayViews: true, SameInodes: s.b.Facts().KeepsInodes, Fold: fold}
		return ok(diff.At(s.Context(), base, root, candidates, opt))(s)
	}
	full := at(0)
	folds = s.unfoldTo(what, full, at(1))
	for _, fold := range []int{10, 20} {
		s.unfoldTo(fmt.Sprintf("%s, Fold: %d", what, fold), full, at(fold))
	}
	return folds
}

// unfoldTo compares the list short, with renamed directories folded, with the full one. It returns how many are folded.
func (s *foldBench) unfoldTo(what string, full, short []diff.Change) (folds int) {
	s.Helper()
	var ends [2][]string // the renamed directories, innermost last
	entries := 0
	for _, c := range short {
		if c.Moved != nil {
			folds++
			entries += c.Moved.Entries
			ends[0], ends[1] = append(ends[0], c.Moved.From), append(ends[1], c.Path)
		}
	}
	listed, all := map[string]bool{}, map[string]diff.Change{}
	for _, c := range short {
		listed[c.Kind.Letter()+c.Path] = true
	}
	for _, c := range full {
		all[c.Kind.Letter()+c.Path] = c
	}
	for _, c := range short {
		if _, ok := all[c.Kind.Letter()+c.Path]; !ok {
			s.Errorf("%s: %s %s is listed, and is no change", what, c.Kind.Letter(), c.Path)
		}
	}
	missing := 0
	for key, c := range all {
		if listed[key] {
			continue
		}
		missing++
		from, to := partner(c.Path, ends[0], ends[1]), partner(c.Path, ends[1], ends[0])
		var other diff.Change
		same := false
		switch {
		case c.Kind == diff.Deleted && from != "":
			other = all["A"+from]
			same = other.New != nil && !listed["A"+from] && alike(c.Old, other.New)
		case c.Kind == diff.Added && to != "":
			other = all["D"+to]
			same = other.Old != nil && !listed["D"+to] && alike(other.Old, c.New)
		}
		if !same {
			s.Errorf("%s: %s %s is not listed, and no unchanged entry of a renamed directory", what, c.Kind.Letter(), c.Path)
		}
	}
	if missing != 2*entries {
		s.Errorf("%s: %d changes are not listed, and the directories count %d entries", what, missing, entries)
	}
	a, b := diff.Summarise(full), diff.Summarise(short)
	if a.Added != b.Added || a.Deleted != b.Deleted || a.Modified != b.Modified {
		s.Errorf("%s: the sums are %+v, want %+v", what, b, a)
	}
	return folds
}

// partner returns the path that path has after the innermost rename in from to to, or "".
func partner(path string, from, to []string) string {
	best := -1
	for i, dir := range from {
		if diff.Inside(path, dir) && (best < 0 || len(dir) > len(from[best])) {
			best = i
		}
	}
	if best < 0 {
		return ""
	}
	return to[best] + path[len(from[best]):]
}

func alike(a, b *diff.Node) bool {
	return a.Mode == b.Mode && a.UID == b.UID && a.Target == b.Target &&
		(a.Mode.IsDir() || a.Size == b.Size && a.MTime.Equal(b.MTime))
}

// plant makes directories with some entries, down to a depth.
func plant(t *testing.T, dir string, depth int) {
	t.Helper()
	for i := range 2 {
		must(t, os.WriteFile(fmt.Sprintf("%s/f%d", dir, i), []byte(dir), 0o644))
		if sub := fmt.Sprintf("%s/d%d", dir, i); depth > 0 {
			must(t, os.Mkdir(sub, 0o755))
			plant(t, sub, depth-1)
		}
	}
	must(t, errors.Join(os.Symlink("f0", dir+"/l"), os.Link(dir+"/f1", dir+"/h")))
}

// shuffle changes one random entry below root, and mostly renames a directory.
func shuffle(r *rand.Rand, root string) {
	var dirs, all []string
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		if all = append(all, path); err != nil {
			return fs.SkipDir
		}
		return nil
	})
	slices.Sort(dirs)
	dir, at := dirs[r.IntN(len(dirs))], all[r.IntN(len(all))]
	if at == root || dir == root {
		return
	}
	fresh := filepath.Join(dirs[r.IntN(len(dirs))], fmt.Sprintf("n%d", r.IntN(1000)))
	switch r.IntN(9) { // an error means that this step changes nothing
	case 0, 1, 2, 3:
		if !strings.HasPrefix(fresh, dir+"/") {
			_ = os.Rename(dir, fresh)
		}
	case 4:
		_ = os.RemoveAll(at)
	case 5:
		_ = os.WriteFile(at, []byte(fresh), 0o600)
	case 6:
		_ = os.Chmod(at, 0o700)
	case 7:
		if os.Mkdir(fresh, 0o755) == nil {
			_ = os.Rename(at, fresh+"/in")
		}
	case 8:
		_ = errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755), os.WriteFile(dir+"/new", nil, 0o644))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
