//go:build linux

package lower_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/lower"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newTree returns a tree with a/file and a/link, and a Ref of a.
func newTree(t *testing.T, since vfs.Timestamp) (tree *lower.Tree, path string, dir *lower.Ref) {
	t.Helper()
	path = t.TempDir()
	must(t, os.Mkdir(path+"/a", 0o755))
	must(t, os.WriteFile(path+"/a/file", []byte("text"), 0o644))
	must(t, os.Symlink("target", path+"/a/link"))
	fds := lower.NewFDCache(8)
	tree, st, err := lower.Open(path, fds, since)
	must(t, err)
	t.Cleanup(func() { fds.DropAll(); tree.Close() })
	return tree, path, lower.RefAt(map[string]*lower.Ref{".": {Identity: tree.IdentityOf(&st)}}, "a")
}

// ref returns the Ref of a name in dir.
func ref(t *testing.T, tree *lower.Tree, dir *lower.Ref, name string) *lower.Ref {
	t.Helper()
	st, err := tree.Stat(dir, name)
	must(t, err)
	return &lower.Ref{Dir: dir, Name: name, Identity: tree.IdentityOf(&st)}
}

// TestTreeReadsByRefs: entries, content, links and numbers.
func TestTreeReadsByRefs(t *testing.T) {
	tree, path, dir := newTree(t, vfs.Timestamp{})
	file, link := ref(t, tree, dir, "file"), ref(t, tree, dir, "link")
	if file.Path() != "a/file" || !file.IsEntry(dir, "file") || file.IsEntry(dir, "link") {
		t.Errorf("the file is at %s", file.Path())
	}
	fd, err := tree.Open(file, unix.O_RDONLY)
	must(t, err)
	buf := make([]byte, 8)
	n, err := unix.Read(fd, buf)
	must(t, errors.Join(err, unix.Close(fd)))
	if string(buf[:n]) != "text" {
		t.Errorf("the file has %q", buf[:n])
	}
	if target, err := tree.Readlink(link); target != "target" || err != nil {
		t.Errorf("the link leads to %q, %v", target, err)
	}
	list, err := tree.List(dir)
	must(t, err)
	var names []string
	for _, e := range list {
		names = append(names, e.Name)
	}
	if slices.Sort(names); !slices.Equal(slices.DeleteFunc(names, func(n string) bool { return n[0] == '.' }), []string{"file", "link"}) {
		t.Errorf("the directory has %q", names)
	}
	if has, err := tree.Has(dir, "none"); has || err != nil {
		t.Errorf("it has a name that does not exist, %v", err)
	}
	st, err := vfs.Lstat(unix.AT_FDCWD, path+"/a/file")
	must(t, err)
	if no := tree.InoOf(&file.Identity); no != st.Ino {
		t.Errorf("the file has number %d, want its own, %d", no, st.Ino)
	}
	if no := tree.InoOf(&logfile.Identity{Ino: st.Ino, Dev: 7}); no == st.Ino || no >= logfile.FirstOwnIno {
		t.Errorf("a file of another device has number %d", no)
	}
}

// TestReplacedFileIsStale by its Ref, and is another file by its name.
func TestReplacedFileIsStale(t *testing.T) {
	tree, path, dir := newTree(t, vfs.Timestamp{})
	file := ref(t, tree, dir, "file")
	if !tree.StillLeads(file) {
		t.Error("the path does not lead to the file")
	}
	must(t, os.WriteFile(path+"/a/new", []byte("other"), 0o644))
	must(t, os.Rename(path+"/a/new", path+"/a/file"))
	if _, err := tree.Open(file, unix.O_RDONLY); !errors.Is(err, unix.ESTALE) {
		t.Errorf("opening it gives %v, want ESTALE", err)
	}
	if tree.StillLeads(file) {
		t.Error("the path leads to the file that was replaced")
	}
	must(t, os.RemoveAll(path+"/a"))
	if _, err := tree.Open(file, unix.O_RDONLY); !errors.Is(err, unix.ESTALE) {
		t.Errorf("opening it without its directory gives %v, want ESTALE", err)
	}
}

// TestLateReadsAreFilesChangedSince, at their first open.
func TestLateReadsAreFilesChangedSince(t *testing.T) {
	tree, _, dir := newTree(t, vfs.Timestamp{Sec: 1})
	later, _, _ := newTree(t, vfs.Timestamp{Sec: 1 << 40})
	for range 2 {
		fd, err := tree.Open(ref(t, tree, dir, "file"), unix.O_RDONLY)
		must(t, err)
		unix.Close(fd)
	}
	if got := tree.LateReads(); !slices.Equal(got, []string{"a/file"}) {
		t.Errorf("late reads are %q", got)
	}
	if later.TakeOver(tree); !slices.Equal(later.LateReads(), []string{"a/file"}) {
		t.Errorf("taken late reads are %q", later.LateReads())
	}
}

// TestCacheClosesDescriptorsOfTheLastUser, and keeps no more than its limit.
func TestCacheClosesDescriptorsOfTheLastUser(t *testing.T) {
	fds := lower.NewFDCache(1)
	open := func() (int, error) { return unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0) }
	valid := func(fd int) bool { _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); return err == nil }
	one, err := fds.Get(lower.Key{ID: 1, Layer: logfile.InLower}, open)
	must(t, err)
	again, err := fds.Get(lower.Key{ID: 1, Layer: logfile.InLower}, open)
	must(t, err)
	if one != again {
		t.Error("the same key has two descriptors")
	}
	two, err := fds.Get(lower.Key{ID: 2}, open)
	must(t, err)
	if !valid(one.Num) {
		t.Error("a descriptor in use was closed")
	}
	fds.Put(one)
	fds.Put(again)
	if valid(one.Num) {
		t.Error("a dropped descriptor is open after its last user")
	}
	fds.Put(two)
	if !valid(two.Num) {
		t.Error("a cached descriptor was closed")
	}
	if fds.Drop(lower.Key{ID: 2}); valid(two.Num) {
		t.Error("a dropped descriptor is open")
	}
}

// TestASearchForLinksIsBounded: a search for a name that is not there ends at its bounds, wherever it is, and
// keeps what it has found.
func TestASearchForLinksIsBounded(t *testing.T) {
	tree, top, dir := newTree(t, vfs.Timestamp{})
	for _, sub := range []string{"/b", "/b/c", "/d"} {
		must(t, os.Mkdir(top+sub, 0o755))
		for _, name := range []string{"/x", "/y", "/z"} {
			must(t, os.WriteFile(top+sub+name, nil, 0o644))
		}
	}
	must(t, errors.Join(os.Link(top+"/a/file", top+"/a/near"), os.Link(top+"/a/file", top+"/b/c/far"), os.Link(top+"/a/file", t.TempDir()+"/outside")))
	for _, c := range []struct {
		entries int
		time    time.Duration
		want    string
	}{{1000, time.Hour, "a/near b/c/far"}, {3, time.Hour, "a/near"}, {1000, -1, ""}} {
		var found []string
		s := lower.NewLinkSearch(tree, func(name *lower.Ref) error {
			found = append(found, name.Path())
			return nil
		})
		s.Entries, s.Time = c.entries, c.time
		ok, err := s.Want(ref(t, tree, dir, "file"), 3)
		must(t, err)
		must(t, s.Run())
		if got := strings.Join(found, " "); !ok || got != c.want {
			t.Errorf("with %d entries and %v it finds %q, want %q", c.entries, c.time, got, c.want)
		}
	}
}

// A directory can hide all of its names but some, also names that come later.
func TestHideExceptSomeNames(t *testing.T) {
	tree, path, dir := newTree(t, vfs.Timestamp{})
	tree.Hide([]string{"a/", "/a/file"})
	must(t, os.WriteFile(path+"/a/late", nil, 0o644))
	for name, want := range map[string]bool{"file": true, "link": false, "late": false} {
		if has, err := tree.Has(dir, name); has != want || err != nil {
			t.Errorf("%s is seen: %v (%v), want %v", name, has, err, want)
		}
	}
}

// TestAFixedNameKeepsItsFirstInode: whatever the user of the lower does with the file and the directory above it, and
// also in the tree that takes over. Its attributes are the current ones while the inode is there.
func TestAFixedNameKeepsItsFirstInode(t *testing.T) {
	tree, path, dir := newTree(t, vfs.Timestamp{})
	top := dir.Dir
	tree.Hide([]string{"//a/file", "//a/later/x"})
	file, a := ref(t, tree, dir, "file"), ref(t, tree, top, "a")
	must(t, os.Chmod(path+"/a/file", 0o600))
	if st, err := tree.Stat(dir, "file"); err != nil || st.Mode&0o777 != 0o600 {
		t.Errorf("its mode is %o: %v", st.Mode, err)
	}
	next, _, _ := newTree(t, vfs.Timestamp{})
	for _, change := range []func() error{
		func() error { return os.Rename(path+"/a/link", path+"/a/file") },
		func() error { return os.Remove(path + "/a/file") },
		func() error { return os.Rename(path+"/a", path+"/b") },
		func() error { return os.Mkdir(path+"/a", 0o755) },
	} {
		must(t, change())
		next.TakeOver(tree)
		for _, one := range []*lower.Tree{tree, next} {
			if got := ref(t, one, dir, "file"); got.Identity != file.Identity {
				t.Errorf("the file is %+v, want %+v", got.Identity, file.Identity)
			}
			if got := ref(t, one, top, "a"); got.Identity != a.Identity {
				t.Errorf("the directory is %+v, want %+v", got.Identity, a.Identity)
			}
		}
	}
	if tree.Fixes(dir, "link") || tree.Fixes(top, "b") || !tree.Fixes(dir, "later") {
		t.Error("the fixed names are not those of the list and above")
	}
	if _, err := tree.Stat(dir, "later"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a fixed name that was never there: %v", err)
	}
}
