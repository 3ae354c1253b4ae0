package diff_test

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/treetest"
)

var someNames = []string{"a", "b", "a.b", "a b", "Z", "\xff\xfe", "new\nline", "dir", "é"}

// mutate makes one random change to a tree, or none if that change is impossible.
func mutate(r *rand.Rand, root string) {
	pick := func() string {
		path := root
		for range 1 + r.IntN(3) {
			path = filepath.Join(path, someNames[r.IntN(len(someNames))])
		}
		return path
	}
	path, other := pick(), pick()
	switch r.IntN(16) {
	case 0, 1, 2:
		_ = os.MkdirAll(path, 0o755)
	case 3, 4, 5:
		if info, err := os.Lstat(path); err != nil || info.Mode().IsRegular() {
			_ = os.WriteFile(path, []byte{byte(r.IntN(3))}, 0o644)
		}
	case 6:
		_ = os.Symlink(someNames[r.IntN(2)], path)
	case 7, 8:
		_ = os.Link(other, path)
	case 9:
		if _, err := os.Lstat(path); err == nil { // RemoveAll would wait for a writer of a fifo above it
			_ = os.RemoveAll(path)
		}
	case 10:
		_ = unix.Chmod(path, uint32(0o700|r.IntN(8)))
	case 11:
		_ = os.Lchown(path, r.IntN(2), r.IntN(2))
	case 12:
		_ = unix.Lsetxattr(path, "user.x", []byte{byte(r.IntN(2))}, 0)
	case 13:
		_ = os.Rename(other, path)
	case 14:
		_ = unix.Mknod(path, uint32([]int{unix.S_IFIFO, unix.S_IFSOCK, unix.S_IFCHR, unix.S_IFBLK}[r.IntN(4)]|0o600), 1+r.IntN(2)) // 0 would be a whiteout
	case 15:
		_ = os.Truncate(path, 1<<20+int64(r.IntN(2)))
	}
}

// settle gives most nodes one time.
func settle(r *rand.Rand, root string, always bool) {
	_ = filepath.WalkDir(root, func(path string, _ fs.DirEntry, _ error) error {
		if always || r.IntN(3) > 0 {
			when := []unix.Timespec{{Sec: 1e9}, {Sec: 1e9}}
			_ = unix.UtimesNanoAt(unix.AT_FDCWD, path, when, unix.AT_SYMLINK_NOFOLLOW)
		}
		return nil
	})
}

// someTouches touches all differing paths and more, in random order, so that any directory may
// be Named.
func someTouches(r *rand.Rand, root string, changes []diff.Change) []snapshot.Candidate {
	touches := []snapshot.Candidate{{Path: "a/no/such/place"}, {Path: "b/a", Tree: true}}
	for _, c := range changes {
		touches = append(touches, snapshot.Candidate{Path: c.Path, Tree: r.IntN(8) == 0, Named: r.IntN(2) == 0})
	}
	_ = filepath.WalkDir(root, func(path string, _ fs.DirEntry, _ error) error {
		if rel, _ := filepath.Rel(root, path); r.IntN(6) == 0 {
			touches = append(touches, snapshot.Candidate{Path: rel, Tree: r.IntN(8) == 0, Named: r.IntN(2) == 0})
		}
		return nil
	})
	r.Shuffle(len(touches), func(i, j int) { touches[i], touches[j] = touches[j], touches[i] })
	return touches
}

func TestBothWaysOfComparingAgreeWithAnOracleOnRandomTrees(t *testing.T) {
	treetest.NeedRoot(t)
	changed := 0
	treetest.OncePerRun(t)
	seeds := treetest.Budget(t, 40, 150)
	for seed := range uint64(seeds) {
		w := makeTwins(t)
		w.each(func(root string) error {
			r := rand.New(rand.NewPCG(seed, 0))
			for range 80 {
				mutate(r, root)
			}
			settle(r, root, true)
			return nil
		})
		r := rand.New(rand.NewPCG(seed, 1))
		for range r.IntN(30) {
			mutate(r, w.new)
		}
		settle(r, w.new, false)
		changed += w.agree(r, fmt.Sprintf("seed %d", seed), diff.Options{})
		w.do(os.RemoveAll(w.old), os.RemoveAll(w.new))
	}
	if changed < 3*seeds {
		t.Errorf("only %d changes in all: the trees hardly differ", changed)
	}
}

// agree checks that walk, touches and oracle give the same result, and counts the changes.
func (w twins) agree(r *rand.Rand, name string, opt diff.Options) int {
	w.t.Helper()
	walked := w.trees(opt)
	if want := oracle(w.t, w.old, w.new, opt.SameInodes); brief(walked) != want {
		w.t.Fatalf("%s: walked:\n%s\nwant:\n%s", name, brief(walked), want)
	}
	touched, err := diff.At(context.Background(), treetest.Open(w.t, w.old), treetest.Open(w.t, w.new),
		someTouches(r, w.new, walked), opt)
	w.do(err)
	if brief(touched) != brief(walked) {
		w.t.Fatalf("%s: touched:\n%s\nwalked:\n%s", name, brief(touched), brief(walked))
	}
	return len(walked)
}
