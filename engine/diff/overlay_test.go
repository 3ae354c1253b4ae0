package diff_test

import (
	"context"
	"errors"
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

// overlaid turns the new tree of w into an overlay over the old one, and returns its upper.
func (w twins) overlaid() (upper string) {
	w.t.Helper()
	upper, work := w.new+"-upper", w.new+"-work"
	w.do(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755))
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,redirect_dir=on,metacopy=on,index=off", w.old, upper, work)
	w.do(unix.Mount("overlay", w.new, "overlay", 0, options))
	w.t.Cleanup(func() { w.do(unix.Unmount(w.new, 0)) })
	return upper
}

// inUpper touches the paths in an upper. It touches a directory whole if it hides or moves the
// lower one.
func inUpper(upper string) (touches []snapshot.Candidate) {
	_ = filepath.WalkDir(upper, func(path string, d fs.DirEntry, _ error) error {
		rel, _ := filepath.Rel(upper, path)
		whole := false
		for _, name := range []string{"trusted.overlay.opaque", "trusted.overlay.redirect"} {
			_, err := unix.Lgetxattr(path, name, nil)
			whole = whole || d.IsDir() && err == nil
		}
		touches = append(touches, snapshot.Candidate{Path: rel, Tree: whole, Named: !whole})
		return nil
	})
	return touches
}

// An overlay breaks a hard link when it copies one name up, and still shows the old link count
// at the other name. The upper is then the only source of touches, and must suffice.
func TestUpperOfAnOverlayListsAllDifferences(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedFS(t, "overlay")
	changed := 0
	seeds := treetest.Budget(t, 10, 30)
	for seed := range uint64(seeds) {
		w := makeTwins(t)
		r := rand.New(rand.NewPCG(seed, 4))
		for range 80 {
			mutate(r, w.old)
		}
		settle(r, w.old, true)
		upper := w.overlaid()
		for range 12 {
			mutate(r, w.new)
		}
		for _, opt := range []diff.Options{{}, {SameInodes: true}} {
			walked := w.trees(opt)
			changed += len(walked)
			touched, err := diff.At(context.Background(), treetest.Open(t, w.old), treetest.Open(t, w.new),
				inUpper(upper), opt)
			w.do(err)
			if brief(touched) != brief(walked) {
				t.Errorf("seed %d, %v: touched:\n%s\nwalked:\n%s", seed, opt, brief(touched), brief(walked))
			}
		}
	}
	if changed < 7*seeds {
		t.Errorf("only %d changes in all", changed)
	}
}

func TestTouchedDirectoryComparesItsNamesOnly(t *testing.T) {
	w := makeTwins(t)
	w.each(func(root string) error { return os.MkdirAll(filepath.Join(root, "d/sub"), 0o755) })
	w.do(write(w.old, "d/gone", "1"), os.MkdirAll(filepath.Join(w.new, "d/came/in"), 0o755), write(w.new, "d/sub/deep", "1"))
	w.still()
	w.want(w.at(diff.Options{}, snapshot.Candidate{Path: "d"}), "A d/came", "A d/came/in", "D d/gone")
	w.want(w.at(diff.Options{}, snapshot.Candidate{Path: "d"}, snapshot.Candidate{Path: "d", Tree: true}),
		"A d/came", "A d/came/in", "D d/gone", "A d/sub/deep")
}

func TestANamedDirectoryIsNotListed(t *testing.T) {
	w := makeTwins(t)
	w.each(func(root string) error { return os.Mkdir(filepath.Join(root, "d"), 0o755) })
	w.do(write(w.old, "d/gone", "1"), write(w.new, "d/came", "1"))
	w.still()
	d := snapshot.Candidate{Path: "d", Named: true}
	w.want(w.at(diff.Options{}, d, snapshot.Candidate{Path: "d/gone"}), "D d/gone")
	w.want(w.at(diff.Options{}, d, snapshot.Candidate{Path: "d"}), "A d/came", "D d/gone")
}

func TestTheTimeOfANamedDirectoryCountsWhereItsNamesAreTheSame(t *testing.T) {
	at := func(w twins, opt diff.Options, paths ...string) []diff.Change {
		touches := []snapshot.Candidate{{Path: ".", Named: true}, {Path: "d", Named: true}, {Path: "other", Named: true}}
		for _, p := range paths {
			touches = append(touches, snapshot.Candidate{Path: p, Tree: true})
		}
		return w.at(opt, touches...)
	}
	w := makeTwins(t)
	w.each(func(root string) error {
		d, other := filepath.Join(root, "d"), filepath.Join(root, "other")
		return errors.Join(os.Mkdir(d, 0o755), os.Mkdir(other, 0o755), write(root, "d/file", "1"), write(root, "other/file", "1"))
	})
	w.still()
	later := []unix.Timespec{{Sec: 2e9}, {Sec: 2e9}}
	for _, dir := range []string{".", "d", "other"} {
		w.do(unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(w.new, dir), later, 0))
	}
	w.want(at(w, diff.Options{}, "d/file"), "M . time", "M d time", "M other time")
	w.do(write(w.new, "d/new", "1"), unix.Chmod(filepath.Join(w.new, "d"), 0o700))
	w.want(at(w, diff.Options{}, "d/file", "d/new"), "M . time", "M d mode", "A d/new", "M other time")

	// A skipped name proves nothing: then the directory is listed.
	skip := diff.Options{Skip: func(path string) bool { return path == "d/new" }}
	w.want(at(w, skip, "d/file", "d/new"), "M . time", "M d mode", "M other time")
	if got, want := brief(at(w, skip, "d/file", "d/new")), brief(w.trees(skip)); got != want {
		t.Errorf("touched:\n%s\nwalked:\n%s", got, want)
	}
}
