//go:build linux

package btrfs

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// fixture returns a backend on a new filesystem, with a subvolume as its tree.
func fixture(t testing.TB) (*Backend, snapshot.Tree) {
	t.Helper()
	top := treetest.Btrfs(t)
	tree := snapshot.Tree{Path: subvolume(t, top+"/work")}
	write(t, tree.Path+"/file", "old")
	return opened(t, tree), tree
}

func opened(t testing.TB, tree snapshot.Tree) *Backend {
	t.Helper()
	b, err := open("btrfs", snapshot.Place{Tree: tree, Dir: "/state/btrfs"}, tree.Path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func subvolume(t testing.TB, path string) string {
	t.Helper()
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := btrfs.Create(int(dir.Fd()), filepath.Base(path)); err != nil {
		t.Fatal(err)
	}
	return path
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Error(err)
	}
}

func wantFile(t testing.TB, path, content string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != content {
		t.Errorf("%s holds %q (%v), want %q", path, got, err, content)
	}
}

func clone(t testing.TB, b *Backend, tree snapshot.Tree, id string) (snapshot.Snapshot, snapshot.Fork) {
	t.Helper()
	s, f, err := b.Clone(t.Context(), tree, snapshot.ID("s"+id), snapshot.ForkID("f"+id))
	if err != nil {
		t.Fatal(err)
	}
	return s, f
}

func TestRemainsOfAKilledCreationAreRemoved(t *testing.T) {
	b, tree := fixture(t)
	clone(t, b, tree, "1")
	other := *b
	other.key = "another"
	hidden := b.home()
	dead, mine := hidden+"/another.4194305-1-1", hidden+"/another."+unique()
	for _, half := range []string{dead, mine} {
		if err := os.MkdirAll(half+"/"+snapshots, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	clone(t, &other, tree, "1")
	if _, err := os.Lstat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("remains of a killed process are still there: %v", err)
	}
	if _, err := os.Lstat(mine); err != nil {
		t.Errorf("the directory of a living process was removed: %v", err)
	}
}

func TestTheBaseAndForkOfACloneAreEqualUnderAWriter(t *testing.T) {
	b, tree := fixture(t)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				write(t, tree.Path+"/count", strconv.Itoa(i))
				write(t, tree.Path+"/n"+strconv.Itoa(i%50), "")
			}
		}
	}()
	for i := range 20 {
		s, f := clone(t, b, tree, strconv.Itoa(i))
		want, err := os.ReadFile(s.View.Path + "/count")
		if err != nil {
			continue
		}
		wantFile(t, f.View.Path+"/count", string(want))
	}
	close(stop)
	<-done
}

func TestCaptureReusesTheSnapshotOfAnUnchangedTree(t *testing.T) {
	b, tree := fixture(t)
	first, err := b.Capture(t.Context(), tree, "s1")
	if err != nil {
		t.Fatal(err)
	}
	known := false
	for i := 0; i < 20 && !known; i++ { // a sync on a busy disk may take longer than patience
		id := snapshot.ID("t" + strconv.Itoa(i))
		again, err := b.Capture(t.Context(), tree, id)
		if err != nil {
			t.Fatal(err)
		}
		known = again.ID != id
	}
	if !known {
		t.Error("each capture of an unchanged tree made a new snapshot")
	}
	write(t, tree.Path+"/file", "new") // buffered: only a sync makes it visible
	changed, err := b.Capture(t.Context(), tree, "s3")
	if err != nil || changed.ID != "s3" {
		t.Fatalf("capturing a changed tree returns %s, %v", changed.ID, err)
	}
	wantFile(t, changed.View.Path+"/file", "new")
	wantFile(t, first.View.Path+"/file", "old")
}

func TestAReadyMadeForkIsUsedOnce(t *testing.T) {
	b, tree := fixture(t)
	s, _ := clone(t, b, tree, "1")
	if err := b.Prefork(t.Context(), s.ID, 4); err != nil {
		t.Fatal(err)
	}
	r, err := b.enter()
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	if n := len(r.ready(stock + "/s1")); n != 4 {
		t.Fatalf("%d ready-made forks exist", n)
	}
	var wait sync.WaitGroup
	for i := range 6 { // more than were made in advance
		wait.Go(func() {
			f, err := b.Fork(t.Context(), s.ID, snapshot.ForkID("g"+strconv.Itoa(i)))
			if err != nil {
				t.Error(err)
				return
			}
			wantFile(t, f.View.Path+"/file", "old")
			write(t, f.View.Path+"/file", strconv.Itoa(i))
		})
	}
	wait.Wait()
	if left := r.ready(stock + "/s1"); len(left) != 0 {
		t.Errorf("unused ready-made forks: %v", left)
	}
	for i := range 6 {
		f, err := b.LookupFork(t.Context(), snapshot.ForkID("g"+strconv.Itoa(i)))
		if err != nil || f.Base != s.ID {
			t.Fatalf("%+v, %v", f, err)
		}
		wantFile(t, f.View.Path+"/file", strconv.Itoa(i))
	}
}

func TestNestedSubvolumesAreCaptured(t *testing.T) {
	b, tree := fixture(t)
	subvolume(t, tree.Path+"/sub")
	if err := os.Mkdir(tree.Path+"/sub/dir", 0o755); err != nil {
		t.Fatal(err)
	}
	subvolume(t, tree.Path+"/sub/dir/deep")
	write(t, tree.Path+"/sub/dir/deep/file", "deep")
	s, f := clone(t, b, tree, "1")
	wantFile(t, s.View.Path+"/sub/dir/deep/file", "deep")
	for _, dir := range []string{"", "/sub", "/sub/dir", "/sub/dir/deep"} {
		want, err := vfs.Lstat(unix.AT_FDCWD, tree.Path+dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, copied := range []string{s.View.Path, f.View.Path} {
			if got, err := vfs.Lstat(unix.AT_FDCWD, copied+dir); err != nil || got.MTime != want.MTime {
				t.Errorf("%s is of %v, want %v (%v)", copied+dir, got.MTime, want.MTime, err)
			}
		}
	}
	if err := os.WriteFile(s.View.Path+"/sub/dir/deep/new", nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("a nested subvolume of a snapshot is writable: %v", err)
	}
	write(t, f.View.Path+"/sub/dir/deep/file", "changed")
	wantFile(t, tree.Path+"/sub/dir/deep/file", "deep")
	subvolume(t, f.View.Path+"/made-inside")
	sealed, err := b.Seal(t.Context(), "f1", "s2", snapshot.InUse)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(sealed.View.Path + "/made-inside"); err != nil {
		t.Error(err)
	}
	for _, id := range []snapshot.ID{"s1", "s2"} {
		if err := b.Remove(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	if err := b.RemoveFork(t.Context(), "f1"); err != nil {
		t.Error(err)
	}
	wantEmptyTrash(t, b)
}

func wantEmptyTrash(t testing.TB, b *Backend) {
	t.Helper()
	if err := b.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(filepath.Join(b.home(), b.key, trash))
	if err != nil || len(left) != 0 {
		t.Errorf("the trash has %v, %v", left, err)
	}
}

func TestADirectoryInASubvolumeCanBeCaptured(t *testing.T) {
	_, tree := fixture(t)
	inner := snapshot.Tree{Path: tree.Path + "/a/b"}
	if err := os.MkdirAll(inner.Path, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, inner.Path+"/file", "inner")
	b := opened(t, inner)
	_, f := clone(t, b, inner, "1")
	wantFile(t, f.View.Path+"/file", "inner")
}

func TestAViewHidesTheBackendsData(t *testing.T) {
	top := treetest.Btrfs(t)
	write(t, top+"/file", "x")
	tree := snapshot.Tree{Path: top}
	b := opened(t, tree)
	clone(t, b, tree, "1")
	write(t, top+"/file", "y")
	_, f := clone(t, b, tree, "2")
	if hidden := b.Facts().Hidden; hidden != top+"/.snapfs" {
		t.Errorf("hidden: %v", hidden)
	}
	inside, err := os.ReadDir(f.View.Path + "/.snapfs")
	if err != nil || len(inside) != 0 {
		t.Errorf("a fork shows the data of snapfs: %v, %v", inside, err)
	}
}

func TestATreeOnAnotherFilesystemIsRefused(t *testing.T) {
	dir := treetest.Dir(t)
	_, err := Open(t.Context(), snapshot.Place{Tree: snapshot.Tree{Path: dir}, Dir: "/state"})
	var e *errs.Error
	if !errors.As(err, &e) || !errors.Is(err, errs.ErrNotSupported) || len(e.Hints) == 0 {
		t.Fatalf("err = %#v", err)
	}
}

func TestFullQuotaGroupsAreRefused(t *testing.T) {
	b, tree := fixture(t)
	dir := treetest.Open(t, b.top)
	if err := btrfs.SetQuota(int(dir.Fd()), btrfs.QuotaFull); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), snapshot.Place{Tree: tree, Dir: "/state"})
	if !errors.Is(err, errs.ErrNotSupported) {
		t.Errorf("err = %v", err)
	}
}
