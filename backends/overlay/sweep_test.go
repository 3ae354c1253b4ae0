//go:build linux

package overlay_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/treetest"
)

func (s *fixture) empty(dir string) {
	s.Helper()
	entries, err := os.ReadDir(filepath.Join(s.place.Dir, dir))
	must(s, err)
	for _, e := range entries {
		s.Errorf("%s still contains %s", dir, e.Name())
	}
}

// hostile fills a layer with files and directories that are hard to delete.
func hostile(t testing.TB, dir, outside string) {
	t.Helper()
	must(t, errors.Join(os.WriteFile(outside+"/precious", nil, 0o644), os.Symlink(outside, dir+"/link"),
		os.MkdirAll(dir+"/closed/in/it", 0o755), os.Chmod(dir+"/closed/in", 0), os.Chmod(dir+"/closed", 0)))
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_RDONLY, 0)
	must(t, err)
	for range 3000 { // longer than any path, and too deep for recursion
		must(t, unix.Mkdirat(fd, "d", 0o700))
		next, err := unix.Openat(fd, "d", unix.O_DIRECTORY|unix.O_RDONLY, 0)
		must(t, errors.Join(err, unix.Close(fd)))
		fd = next
	}
	must(t, unix.Close(fd))
}

func TestSweepDeletesHostileLayers(t *testing.T) {
	treetest.NeedRoot(t)
	deletes(t)
}

func TestSweepOfAnOrdinaryUserDeletesHostileLayers(t *testing.T) {
	if treetest.AsUser(t) {
		deletes(t)
	}
}

func deletes(t *testing.T) {
	s := newFixture(t, snapshottest.OnDisk(t))
	s.capture("base")
	v := s.fork("base", "work")
	outside := treetest.Dir(t)
	hostile(t, v.Overlay.Upper, outside)
	must(t, os.Mkdir(s.place.Dir+"/layers/foreign", 0o700))
	must(t, os.WriteFile(s.place.Dir+"/layers/foreign/file", nil, 0o600))
	work := v.Overlay.Work + "/work" // as overlayfs leaves it
	must(t, errors.Join(os.MkdirAll(work+"/incompat/volatile", 0o700), os.Chmod(work, 0)))
	must(t, s.RemoveFork(t.Context(), "work"))
	var both sync.WaitGroup
	for range 2 {
		both.Go(s.sweep)
	}
	both.Wait()
	s.sweep()
	for _, precious := range []string{outside + "/precious", s.place.Dir + "/layers/foreign/file"} {
		if err := os.Remove(precious); err != nil {
			t.Errorf("a file outside the layer is gone: %v", err)
		}
	}
	must(t, os.Remove(s.place.Dir+"/layers/foreign"))
	s.empty("layers")
	s.empty("trash")
	s.empty("tmp")
}

// A sweep removes no layer that is being sealed, forked or copied.
func TestSweepingNeverTakesALayerInUse(t *testing.T) {
	treetest.NeedRoot(t)
	s := newFixture(t, snapshottest.OnDisk(t))
	s.capture("base")
	stop := time.Now().Add(time.Second)
	var all sync.WaitGroup
	for n := range 3 {
		all.Go(func() {
			work := snapshot.ForkID(fmt.Sprintf("work%d", n))
			s.fork("base", work)
			for i := 0; time.Now().Before(stop); i++ {
				f, err := s.LookupFork(t.Context(), work)
				if err != nil || os.WriteFile(f.View.Overlay.Upper+"/file", []byte(fmt.Sprint(i)), 0o644) != nil {
					t.Errorf("the layer of %s is gone: %v", work, err)
					return
				}
				id := snapshot.ID(fmt.Sprintf("%s-%d", work, i))
				_, err = s.Seal(t.Context(), work, id, snapshot.Use(i%2))
				_, err2 := s.Fork(t.Context(), id, snapshot.ForkID(id))
				if errors.Join(err, err2) != nil {
					t.Error(err, err2)
					return
				}
				if i%3 == 0 {
					must(t, errors.Join(s.Remove(t.Context(), id), s.RemoveFork(t.Context(), snapshot.ForkID(id))))
				}
			}
		})
	}
	for time.Now().Before(stop) {
		s.sweep()
	}
	all.Wait()
	ids, forks, err := s.List(t.Context())
	must(t, err)
	for _, id := range ids {
		s.snap(id)
	}
	for _, id := range forks {
		_, err := s.LookupFork(t.Context(), id)
		must(t, err)
	}
}

// A record that cannot be read may name any layer.
func TestAnUnreadableRecordPreventsASweep(t *testing.T) {
	treetest.NeedRoot(t)
	s := newFixture(t, snapshottest.OnDisk(t))
	s.capture("base")
	v := s.fork("base", "work")
	record := s.place.Dir + "/forks/work"
	text, err := os.ReadFile(record)
	must(t, err)
	for what, bad := range map[string]string{
		"newer": "snapfs overlay 2 fork\nend\n", "broken": string(text[:40]) + "\xff\nend\n", "foreign": "something else\n",
	} {
		must(t, os.WriteFile(record, []byte(bad), 0o600))
		if err := s.Sweep(t.Context()); err == nil {
			t.Errorf("with a %s record, a sweep returns no error", what)
		}
		if _, err := os.Stat(v.Overlay.Upper); err != nil {
			t.Fatalf("with a %s record, a sweep removed the layer: %v", what, err)
		}
		if _, err := s.LookupFork(t.Context(), "work"); err == nil {
			t.Errorf("a %s record is accepted", what)
		}
	}
	must(t, os.WriteFile(record, text, 0o600))
	s.in("work", func(*os.File) {})
}

// An ordinary user's own files are copied although their mode forbids reading them.
func TestAnOrdinaryUserCopiesUnreadableFiles(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	s := newFixture(t, snapshottest.OnDisk(t))
	s.capture("base")
	upper := s.fork("base", "work").Overlay.Upper
	must(t, errors.Join(os.MkdirAll(upper+"/dir/sub", 0o755), os.WriteFile(upper+"/dir/sub/file", []byte("text"), 0o644),
		unix.Setxattr(upper+"/dir/sub/file", "user.note", []byte("kept"), 0), os.Chmod(upper+"/dir/sub/file", 0),
		os.Chmod(upper+"/dir/sub", 0), os.Chmod(upper+"/dir", 0o300)))
	s.seal("work", "s1", snapshot.InUse)
	for _, root := range []string{upper, s.snap("s1").Overlay.Lower[0]} {
		for i, path := range []string{"/dir", "/dir/sub", "/dir/sub/file"} {
			info, err := os.Lstat(root + path)
			must(t, err)
			if want := []os.FileMode{0o300, 0, 0}[i]; info.Mode().Perm() != want {
				t.Errorf("%s has mode %o, want %o", path, info.Mode().Perm(), want)
			}
			must(t, os.Chmod(root+path, 0o700))
		}
		text, err := os.ReadFile(root + "/dir/sub/file")
		note := make([]byte, 10)
		n, err2 := unix.Getxattr(root+"/dir/sub/file", "user.note", note)
		if must(t, errors.Join(err, err2)); string(text) != "text" || string(note[:n]) != "kept" {
			t.Errorf("%q with note %q", text, note[:n])
		}
	}
}
