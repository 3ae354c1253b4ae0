package diff_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// snapshots are two states of one btrfs filesystem.
func snapshots(t *testing.T, fill func(root string)) twins {
	t.Helper()
	treetest.NeedRoot(t)
	dir := treetest.Btrfs(t)
	w := twins{t, filepath.Join(dir, "old"), filepath.Join(dir, "new")}
	top, err := os.Open(dir)
	w.do(err)
	defer top.Close()
	w.do(btrfs.Create(int(top.Fd()), "old"))
	fill(w.old)
	old, err := os.Open(w.old)
	w.do(err)
	defer old.Close()
	w.do(btrfs.Snapshot(int(old.Fd()), int(top.Fd()), "new", false))
	return w
}

func TestSnapshotsOfOneFilesystemAgreeWithAnOracleOnRandomTrees(t *testing.T) {
	for seed := range uint64(3) {
		w := snapshots(t, func(root string) {
			r := rand.New(rand.NewPCG(seed, 2))
			for range 300 {
				mutate(r, root)
			}
			settle(r, root, true)
			time.Sleep(2 * diff.Racy)
		})
		r := rand.New(rand.NewPCG(seed, 3))
		for round := range 20 {
			for range 4 {
				mutate(r, w.new)
			}
			settle(r, w.new, false)
			w.agree(r, fmt.Sprintf("seed %d, round %d", seed, round), diff.Options{SameInodes: true})
		}
	}
}

// A file may be written twice within one clock tick, with the snapshot in between: then inode
// number, size and change time are equal, and the content is not.
func TestAChangeTimeTooCloseToTheSnapshotProvesNothing(t *testing.T) {
	w := makeTwins(t)
	w.do(write(w.new, "f", "1"))
	st, err := vfs.Lstat(unix.AT_FDCWD, filepath.Join(w.new, "f"))
	w.do(err)
	pair := [2]vfs.Stat{st, st}
	for _, c := range []struct {
		taken time.Time
		want  bool
	}{
		{time.Time{}, true},
		{st.CTime.Time().Add(2 * diff.Racy), true},
		{st.CTime.Time().Add(diff.Racy / 2), false},
		{st.CTime.Time().Add(-time.Hour), false},
	} {
		if got := diff.Settled(diff.Options{SameInodes: true, Taken: c.taken}, &pair); got != c.want {
			t.Errorf("taken %v after the change: settled %v", c.taken.Sub(st.CTime.Time()), got)
		}
	}
}

// benchTree creates files in directories of a hundred, snapshots them, and rewrites a hundred.
func benchTree(b *testing.B, files int) (old, new *os.File, touches []snapshot.Candidate) {
	dir := treetest.Btrfs(b)
	top := treetest.Open(b, dir)
	check := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	check(btrfs.Create(int(top.Fd()), "old"))
	for i := range files {
		sub := filepath.Join(dir, "old", fmt.Sprint("d", i/100))
		if i%100 == 0 {
			check(os.Mkdir(sub, 0o755))
		}
		check(os.WriteFile(filepath.Join(sub, fmt.Sprint(i)), nil, 0o644))
	}
	old = treetest.Open(b, filepath.Join(dir, "old"))
	check(btrfs.Snapshot(int(old.Fd()), int(top.Fd()), "new", false))
	for i := 0; i < files; i += files / 100 {
		path := fmt.Sprintf("d%d/%d", i/100, i)
		check(os.WriteFile(filepath.Join(dir, "new", path), []byte("x"), 0o644))
		touches = append(touches, snapshot.Candidate{Path: path})
	}
	return old, treetest.Open(b, filepath.Join(dir, "new")), touches
}

func BenchmarkHundredChangesAmongHundredThousand(b *testing.B) {
	treetest.NeedRoot(b)
	old, new, touches := benchTree(b, 100_000)
	opt := diff.Options{SameInodes: true}
	b.Run("trees", func(b *testing.B) {
		for b.Loop() {
			if c, err := diff.Trees(b.Context(), old, new, opt); err != nil || len(c) != 100 {
				b.Fatal(len(c), err)
			}
		}
	})
	b.Run("at", func(b *testing.B) {
		for b.Loop() {
			if c, err := diff.At(b.Context(), old, new, touches, opt); err != nil || len(c) != 100 {
				b.Fatal(len(c), err)
			}
		}
	})
	b.Run("stat of one side", func(b *testing.B) {
		for b.Loop() {
			if n := statWalk(b, new.Name()); n != 101_001 {
				b.Fatal(n)
			}
		}
	})
}

// statWalk is the minimal cost of a walk: getdents and statx, on one thread.
func statWalk(b *testing.B, root string) int {
	n := 1
	dir, err := os.Open(root)
	if err != nil {
		b.Fatal(err)
	}
	defer dir.Close()
	entries, err := vfs.Entries(int(dir.Fd()))
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range entries {
		if _, err := vfs.Lstat(int(dir.Fd()), e.Name); err != nil {
			b.Fatal(err)
		}
		if e.Type == unix.DT_DIR {
			n += statWalk(b, filepath.Join(root, e.Name))
		} else {
			n++
		}
	}
	return n
}
