//go:build linux

package overlay_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/treetest"
)

// What a fork of many layers has renamed at random is there after it was raised, and needs the tree no more.
func TestWhatIsRaisedNeedsTheTreeNoMore(t *testing.T) {
	treetest.NeedRoot(t)
	seen := 0
	for seed := range uint64(10) {
		s := newStage(t, snapshottest.OnDisk(t))
		last := s.tower(treetest.NewWriter(seed, treetest.Powers{Root: true, ShortRenames: true, KeepOldLinks: true}), 6)
		v := s.fork(last, "fork")
		options := treetest.Options{NoLinks: true} // an overlay parts them whenever it copies one up
		manifest := func() string {
			root := reach(t, v)
			defer root.Close()
			return treetest.Manifest(t, "/proc/self/fd/"+strconv.Itoa(int(root.Fd()))+"/.", options)
		}
		want := manifest()
		list, err := s.Borrowed(t.Context(), "fork")
		must(t, err)
		seen += len(list)
		must(t, s.Raise(t.Context(), "fork", list, s.mounted))
		s.same(want, manifest(), fmt.Sprintf("seed %d, raised", seed))
		again, err := s.Borrowed(t.Context(), "fork")
		if must(t, err); len(again) > 0 {
			t.Errorf("seed %d: raised, and borrowed still: %v", seed, again)
		}
		s.leave(list)
		s.same(want, manifest(), fmt.Sprintf("seed %d, without what was borrowed", seed))
		if t.Failed() {
			return
		}
	}
	if seen < 10 {
		t.Errorf("%d places were borrowed: nothing to be tested by", seen)
	}
}

// mounted calls do with the root of the fork.
func (s *stage) mounted(do func(root int) error) (err error) {
	s.in("fork", func(root *os.File) { err = do(int(root.Fd())) })
	return err
}

// leave takes what was borrowed out of the tree, where the fork has not the same by its own name.
func (s *stage) leave(list []snapshot.Borrowed) {
	s.Helper()
	s.in("fork", func(root *os.File) {
		for _, one := range list {
			if _, err := os.Lstat("/proc/self/fd/" + strconv.Itoa(int(root.Fd())) + "/" + one.From); errors.Is(err, fs.ErrNotExist) {
				must(s, os.RemoveAll(filepath.Join(s.place.Tree.Path, one.From)))
			}
		}
	})
}

// Names of a file that are raised together stay those of one file.
func TestRaisedNamesOfAFileStayTogether(t *testing.T) {
	treetest.NeedRoot(t)
	s := newStage(t, snapshottest.OnDisk(t))
	dir := s.place.Tree.Path + "/dir"
	must(t, os.MkdirAll(dir+"/sub", 0o755))
	must(t, os.WriteFile(dir+"/one", []byte("text"), 0o644))
	must(t, os.Link(dir+"/one", dir+"/sub/two"))
	s.capture("base")
	v := s.fork("base", "fork")
	s.in("fork", func(root *os.File) {
		at := "/proc/self/fd/" + strconv.Itoa(int(root.Fd())) + "/"
		must(t, os.Rename(at+"dir", at+"new"))
	})
	want := s.manifest(v)
	list, err := s.Borrowed(t.Context(), "fork")
	must(t, err)
	must(t, s.Raise(t.Context(), "fork", list, s.mounted))
	must(t, os.RemoveAll(dir))
	s.same(want, s.manifest(v), "raised")
}
