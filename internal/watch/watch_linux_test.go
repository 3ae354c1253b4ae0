package watch_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/hostinfo"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/watch"
)

// watched is a tree with a watch on it, and what the watch tells.
type watched struct {
	*testing.T
	dir   string
	watch *watch.Tree
	told  chan error
}

func startWatch(t *testing.T, dir string, most int) *watched {
	t.Helper()
	for _, d := range []string{"tree/a/b", "tree/skipped", "beside"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w := &watched{T: t, dir: dir, told: make(chan error, 1000)}
	var err error
	tree := filepath.Join(dir, "tree")
	w.watch, err = watch.New(tree, func(path string) bool { return path == tree+"/skipped" }, most)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			err := w.watch.Next()
			w.told <- err
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		w.watch.Close()
		<-done
	})
	return w
}

func (w *watched) path(name string) string { return filepath.Join(w.dir, name) }

// does checks that the watch tells of a change, or that it tells nothing.
func (w *watched) does(what string, tells bool, change func() error) {
	w.Helper()
	for quiet := false; !quiet; {
		select {
		case err := <-w.told:
			if err != nil {
				w.Fatal(err)
			}
		case <-time.After(50 * time.Millisecond):
			quiet = true
		}
	}
	if err := change(); err != nil {
		w.Fatal(err)
	}
	wait := 5 * time.Second
	if !tells {
		wait = 100 * time.Millisecond
	}
	select {
	case err := <-w.told:
		if err != nil || !tells {
			w.Errorf("%s: told, %v", what, err)
		}
	case <-time.After(wait):
		if tells {
			w.Errorf("%s: not told", what)
		}
	}
}

func (w *watched) writes(name string) func() error {
	return func() error { return os.WriteFile(w.path(name), []byte("x"), 0o644) }
}

func (w *watched) tells() {
	w.does("a file was made", true, w.writes("tree/a/b/file"))
	w.does("a file was written to", true, w.writes("tree/a/b/file"))
	w.does("attributes were changed", true, func() error { return os.Chmod(w.path("tree/a/b/file"), 0o600) })
	w.does("a file beside was made", false, w.writes("beside/file"))
	w.does("a file that is left out was made", false, w.writes("tree/skipped/file"))
	w.does("directories were made", true, func() error { return os.MkdirAll(w.path("tree/new/newer"), 0o755) })
	w.does("a file in a new directory was made", true, w.writes("tree/new/newer/file"))
	w.does("a directory was moved", true, func() error { return os.Rename(w.path("tree/new"), w.path("tree/a/new")) })
	w.does("a directory was made in a moved one", true, func() error { return os.Mkdir(w.path("tree/a/new/newer/d"), 0o755) })
	w.does("a file in that was made", true, w.writes("tree/a/new/newer/d/file"))
	w.does("a directory was moved in", true, func() error {
		return errors.Join(os.MkdirAll(w.path("beside/in/deep"), 0o755), os.Rename(w.path("beside/in"), w.path("tree/in")))
	})
	w.does("a file in what was moved in was made", true, w.writes("tree/in/deep/file"))
	for _, dir := range []string{"beside/out", "beside/deep/er"} { // the kernel may report no more of files there
		w.does("a file was made in a directory beside", false, func() error {
			return errors.Join(os.MkdirAll(w.path(dir), 0o755), w.writes(dir+"/file")())
		})
	}
	w.does("it was moved in", true, func() error { return os.Rename(w.path("beside/out"), w.path("tree/out")) })
	w.does("a file in it was written to", true, w.writes("tree/out/file"))
	w.does("a directory above it was moved in", true, func() error { return os.Rename(w.path("beside/deep"), w.path("tree/deep")) })
	w.does("a file in it was written to", true, w.writes("tree/deep/er/file"))
	w.does("a file was removed", true, func() error { return os.Remove(w.path("tree/a/b/file")) })
	w.does("a tree was removed", true, func() error { return os.RemoveAll(w.path("tree/in")) })
	w.does("a file was made in another tree", false, func() error {
		return errors.Join(os.MkdirAll(w.path("other/deep"), 0o755), w.writes("other/deep/file")())
	})
	exchange := func(old, next string) func() error {
		return func() error {
			return errors.Join(os.Rename(w.path("tree"), w.path(old)), os.Rename(w.path(next), w.path("tree")))
		}
	}
	all := w.watch.Kind() == "fanotify"
	w.does("that tree took the place of this one", false, exchange("old", "other"))
	w.does("a file in it was written to", all, w.writes("tree/deep/file"))
	w.does("the trees changed their places again", false, exchange("other", "old"))
	w.does("a file in the other one was written to", false, w.writes("other/deep/file"))
	w.does("the tree itself was changed", true, func() error { return os.Chmod(w.path("tree"), 0o700) })
}

func TestAWatchTellsOfEachChangeInItsTree(t *testing.T) {
	t.Run("ext4", func(t *testing.T) {
		w := startWatch(t, treetest.Ext4(t, 32<<20), 1000)
		if w.watch.Kind() != "fanotify" {
			t.Errorf("root watches an ext4 by %s", w.watch.Kind())
		}
		w.tells()
	})
	t.Run("btrfs", func(t *testing.T) {
		startWatch(t, treetest.Btrfs(t), 1000).tells()
	})
	t.Run("user", func(t *testing.T) {
		if treetest.AsUser(t) {
			w := startWatch(t, treetest.Dir(t), 1000)
			if w.watch.Kind() != "inotify" {
				t.Errorf("a user watches by %s", w.watch.Kind())
			}
			w.tells()
		}
	})
}

// TestTheKernelReportsNothingOfABusyFileBeside counts the marks that the kernel has for the watch.
func TestTheKernelReportsNothingOfABusyFileBeside(t *testing.T) {
	if hostinfo.Before(6, 0) {
		treetest.Skip(t, "Linux 6.0", "older kernels cannot ignore the files of a directory")
	}
	w := startWatch(t, treetest.Ext4(t, 32<<20), 1000)
	marks := func() int {
		info, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(w.watch.Group()))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(info), "fanotify ino:")
	}
	w.does("a file beside was made", false, w.writes("beside/file"))
	if n := marks(); n != 0 {
		t.Errorf("%d directories are ignored after one event", n)
	}
	for began := time.Now(); marks() == 0; time.Sleep(time.Millisecond) {
		if err := w.writes("beside/file")(); err != nil {
			t.Fatal(err)
		}
		if time.Since(began) > time.Minute {
			t.Fatal("its directory is not ignored")
		}
	}
	w.does("directories beside came, moved and went", false, func() error {
		return errors.Join(os.MkdirAll(w.path("beside/one/two"), 0o755), os.Mkdir(w.path("beside/three"), 0o755),
			os.Rename(w.path("beside/one/two"), w.path("beside/three/two")), os.RemoveAll(w.path("beside/one")))
	})
	if n := marks(); n == 0 {
		t.Error("no directory is ignored any more although none came into the tree")
	}
	w.does("a directory was moved", true, func() error { return os.Rename(w.path("tree/a/b"), w.path("tree/b")) })
	if n := marks(); n != 0 {
		t.Errorf("%d directories are ignored although one was moved", n)
	}
}

func TestAWatchOfUserIsBounded(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	w := startWatch(t, treetest.Dir(t), 10)
	for i := range 20 {
		if err := os.Mkdir(w.path("tree/a/"+strconv.Itoa(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.After(5 * time.Second)
	for {
		select {
		case err := <-w.told:
			if err == nil {
				continue
			}
			if !errors.Is(err, watch.ErrManyDirectories) {
				t.Error(err)
			}
		case <-deadline:
			t.Error("twenty directories are watched, of ten")
		}
		break
	}
	_, err := watch.New(w.path("tree"), func(string) bool { return false }, 10)
	if !errors.Is(err, watch.ErrManyDirectories) {
		t.Errorf("err = %v", err)
	}
}

func TestClosingAWatchEndsTheWaitForIt(t *testing.T) {
	t.Run("root", func(t *testing.T) {
		treetest.NeedRoot(t)
		closeEnds(t)
	})
	t.Run("user", func(t *testing.T) {
		if treetest.AsUser(t) {
			closeEnds(t)
		}
	})
}

func closeEnds(t *testing.T) {
	w := startWatch(t, treetest.Dir(t), 1000)
	w.watch.Close()
	select {
	case err := <-w.told:
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("err = %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("it still waits")
	}
}
