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

// A fork of many layers with random renames is copied up, and then shows the same without the tree.
func TestDetachedEntriesDoNotNeedTheTree(t *testing.T) {
	treetest.NeedRoot(t)
	seen, seeds := 0, treetest.Budget(t, 4, 10)
	for seed := range uint64(seeds) {
		s := newFixture(t, snapshottest.OnDisk(t))
		last := s.sealOften(treetest.NewWriter(seed, treetest.Powers{Root: true, ShortRenames: true, KeepOldLinks: true}), 6)
		v := s.fork(last, "fork")
		options := treetest.Options{NoLinks: true} // a copy up makes each hard link a file of its own
		manifest := func() string {
			root := reach(t, v)
			defer root.Close()
			return treetest.Manifest(t, "/proc/self/fd/"+strconv.Itoa(int(root.Fd()))+"/.", options)
		}
		want := manifest()
		list, err := s.Borrowed(t.Context(), "fork")
		must(t, err)
		seen += len(list)
		must(t, s.Detach(t.Context(), "fork", list, s.mounted))
		s.same(want, manifest(), fmt.Sprintf("seed %d, detached", seed))
		again, err := s.Borrowed(t.Context(), "fork")
		if must(t, err); len(again) > 0 {
			t.Errorf("seed %d: entries are still borrowed after Detach: %v", seed, again)
		}
		s.leave(list)
		s.same(want, manifest(), fmt.Sprintf("seed %d, without what was borrowed", seed))
		if t.Failed() {
			return
		}
	}
	if seen < seeds/2 {
		t.Errorf("only %d entries were borrowed", seen)
	}
}

// mounted calls do with the mounted root of the fork.
func (s *fixture) mounted(do func(root int) error) (err error) {
	s.in("fork", func(root *os.File) { err = do(int(root.Fd())) })
	return err
}

// leave deletes the borrowed entries from the tree, unless the fork has an entry of the same path.
func (s *fixture) leave(list []snapshot.Borrowed) {
	s.Helper()
	s.in("fork", func(root *os.File) {
		for _, one := range list {
			if _, err := os.Lstat("/proc/self/fd/" + strconv.Itoa(int(root.Fd())) + "/" + one.From); errors.Is(err, fs.ErrNotExist) {
				must(s, os.RemoveAll(filepath.Join(s.place.Tree.Path, one.From)))
			}
		}
	})
}

// Hard links that are copied up together stay hard links of one file.
func TestDetachedHardLinksStayLinked(t *testing.T) {
	treetest.NeedRoot(t)
	s := newFixture(t, snapshottest.OnDisk(t))
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
	must(t, s.Detach(t.Context(), "fork", list, s.mounted))
	must(t, os.RemoveAll(dir))
	s.same(want, s.manifest(v), "detached")
}
