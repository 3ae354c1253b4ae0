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

// overlaid makes the new tree of w an overlay over the old one, and answers
// with its upper layer.
func (w twins) overlaid() (upper string) {
	w.t.Helper()
	upper, work := w.new+"-upper", w.new+"-work"
	w.do(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755))
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,redirect_dir=on,metacopy=on,index=off", w.old, upper, work)
	w.do(unix.Mount("overlay", w.new, "overlay", 0, options))
	w.t.Cleanup(func() { w.do(unix.Unmount(w.new, 0)) })
	return upper
}

// inUpper touches what an upper layer holds; a directory that hides or moves
// what lay below is touched whole.
func inUpper(upper string) (touches []snapshot.Touch) {
	_ = filepath.WalkDir(upper, func(path string, d fs.DirEntry, _ error) error {
		rel, _ := filepath.Rel(upper, path)
		whole := false
		for _, name := range []string{"trusted.overlay.opaque", "trusted.overlay.redirect"} {
			_, err := unix.Lgetxattr(path, name, nil)
			whole = whole || d.IsDir() && err == nil
		}
		touches = append(touches, snapshot.Touch{Path: rel, Tree: whole})
		return nil
	})
	return touches
}

// An overlay breaks a hard link when it copies one name up, and shows the other
// with the link count it had; what the upper layer holds is then all there is
// to see, and has to do.
func TestTheUpperLayerOfAnOverlayNamesAllThatDiffers(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedFS(t, "overlay")
	changed := 0
	for seed := range uint64(30) {
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
				sequence(inUpper(upper)...), opt)
			w.do(err)
			if brief(touched) != brief(walked) {
				t.Errorf("seed %d, %v: touched:\n%s\nwalked:\n%s", seed, opt, brief(touched), brief(walked))
			}
		}
	}
	if changed < 200 {
		t.Errorf("only %d changes in all", changed)
	}
}

func TestATouchedDirectoryComparesItsNamesAndNothingBeneath(t *testing.T) {
	w := makeTwins(t)
	w.each(func(root string) error { return os.MkdirAll(filepath.Join(root, "d/sub"), 0o755) })
	w.do(write(w.old, "d/gone", "1"), os.MkdirAll(filepath.Join(w.new, "d/came/in"), 0o755), write(w.new, "d/sub/deep", "1"))
	w.still()
	w.want(w.at(diff.Options{}, snapshot.Touch{Path: "d"}), "A d/came", "A d/came/in", "D d/gone")
	w.want(w.at(diff.Options{}, snapshot.Touch{Path: "d"}, snapshot.Touch{Path: "d", Tree: true}),
		"A d/came", "A d/came/in", "D d/gone", "A d/sub/deep")
}
