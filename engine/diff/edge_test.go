package diff_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

func (w twins) at(opt diff.Options, touches ...snapshot.Candidate) []diff.Change {
	w.t.Helper()
	changes, err := diff.At(context.Background(), treetest.Open(w.t, w.old), treetest.Open(w.t, w.new), touches, opt)
	w.do(err)
	return changes
}

func TestMetadataOfEveryTypeIsCompared(t *testing.T) {
	treetest.NeedRoot(t)
	w := makeTwins(t)
	w.each(func(root string) error {
		for name, mode := range map[string]uint32{"fifo": unix.S_IFIFO, "sock": unix.S_IFSOCK, "chr": unix.S_IFCHR, "blk": unix.S_IFBLK} {
			w.do(unix.Mknod(filepath.Join(root, name), mode|0o600, int(unix.Mkdev(1, 3))))
		}
		w.do(os.Symlink("x", filepath.Join(root, "sym")), os.Mkdir(filepath.Join(root, "dir"), 0o755))
		w.do(write(root, "caps", ""), write(root, "acl", ""), write(root, "user", ""))
		return nil
	})
	at := func(name string) string { return filepath.Join(w.new, name) }
	acl := []byte("\x02\x00\x00\x00\x01\x00\x06\x00\xff\xff\xff\xff\x02\x00\x04\x00\x0c\x00\x00\x00" +
		"\x04\x00\x04\x00\xff\xff\xff\xff\x10\x00\x04\x00\xff\xff\xff\xff\x20\x00\x04\x00\xff\xff\xff\xff")
	caps := []byte("\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	w.do(unix.Setxattr(at("acl"), "system.posix_acl_access", acl, 0), unix.Setxattr(at("caps"), "security.capability", caps, 0))
	w.do(unix.Setxattr(at("user"), "user.k", nil, 0), unix.Lsetxattr(at("sym"), "trusted.k", []byte("v"), 0))
	w.do(unix.Setxattr(at("dir"), "trusted.overlay.opaque", []byte("y"), 0), os.Chmod(at("fifo"), 0o640), os.Lchown(at("sock"), 1, 0))
	w.do(os.Remove(at("chr")), unix.Mknod(at("chr"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))))
	w.still()
	when := []unix.Timespec{{Sec: 5}, {Sec: 5, Nsec: 7}}
	w.do(unix.UtimesNanoAt(unix.AT_FDCWD, at("blk"), when, 0))
	w.want(w.trees(diff.Options{OverlayViews: true}),
		"M acl xattrs", "M blk time", "M caps xattrs", "M chr device", "M fifo mode", "M sock owner", "M sym xattrs", "M user xattrs")
	if all := brief(w.trees(diff.Options{})); !strings.Contains(all, "M dir xattrs") {
		t.Errorf("overlay's attribute is hidden without being asked for:\n%s", all)
	}
}

func TestHolesEqualZeros(t *testing.T) {
	w := makeTwins(t)
	const size = 1 << 40 // reading it would take minutes
	w.each(func(root string) error {
		w.do(write(root, "same", "head"), os.Truncate(filepath.Join(root, "same"), size))
		w.do(write(root, "differs", "head"), os.Truncate(filepath.Join(root, "differs"), size))
		return nil
	})
	f, err := os.OpenFile(filepath.Join(w.new, "differs"), os.O_WRONLY, 0)
	w.do(err)
	_, err = f.WriteAt([]byte("x"), size-1)
	w.do(err, f.Close())
	f, err = os.OpenFile(filepath.Join(w.new, "same"), os.O_WRONLY, 0)
	w.do(err)
	_, err = f.WriteAt(make([]byte, 1<<20), size/2) // allocated zeros equal a hole
	w.do(err, f.Close())
	w.still()
	w.want(w.trees(diff.Options{}), "M differs content")
}

func TestPathsMayBeLongerThanTheKernelTakes(t *testing.T) {
	w := makeTwins(t)
	name := strings.Repeat("d", 255)
	w.each(func(root string) error {
		fd, err := unix.Open(root, unix.O_DIRECTORY|unix.O_PATH, 0)
		w.do(err)
		for range 40 { // 10 kB
			w.do(unix.Mkdirat(fd, name, 0o755))
			next, err := unix.Openat(fd, name, unix.O_DIRECTORY|unix.O_PATH, 0)
			w.do(err, unix.Close(fd))
			fd = next
		}
		if root == w.new {
			w.do(unix.Mkdirat(fd, "leaf", 0o755))
		}
		return unix.Close(fd)
	})
	leaf := strings.Repeat(name+"/", 40) + "leaf"
	opt := diff.Options{}
	whole := w.trees(opt)
	last := whole[len(whole)-1]
	if last.Path != leaf || last.Kind != diff.Added {
		t.Errorf("the last of %d changes is not the leaf", len(whole))
	}
	if got := w.at(opt, snapshot.Candidate{Path: leaf}); len(got) != 1 || got[0].Path != leaf {
		t.Errorf("%d changes at the leaf", len(got))
	}
}

func TestPathWhoseParentIsNoDirectoryOnOneSide(t *testing.T) {
	w := makeTwins(t)
	w.do(os.MkdirAll(filepath.Join(w.old, "a/b"), 0o755), write(w.old, "a/b/c", "1"), os.Symlink("/etc", filepath.Join(w.new, "a")))
	w.still()
	want := []string{"M a type", "D a/b", "D a/b/c"}
	w.want(w.trees(diff.Options{}), want...)
	w.want(w.at(diff.Options{}, snapshot.Candidate{Path: "a/b/c"}), want...)
	w.want(w.at(diff.Options{}, snapshot.Candidate{Path: "."}), want...)
	w.want(w.at(diff.Options{}, snapshot.Candidate{Path: "a/passwd"}, snapshot.Candidate{Path: "a", Tree: true}), want...)
}

func TestSkippedPathsAreNeverOpened(t *testing.T) {
	w := makeTwins(t)
	w.do(os.MkdirAll(filepath.Join(w.new, ".snapfs/x"), 0o755), write(w.new, "f", "1"), write(w.new, ".snapfs/x/y", "1"))
	opt := diff.Options{Skip: func(path string) bool { return path == ".snapfs" }}
	w.still()
	w.want(w.trees(opt), "A f")
	w.want(w.at(opt, snapshot.Candidate{Path: ".", Tree: true}, snapshot.Candidate{Path: ".snapfs/x/y"}), "A f")
	w.want(w.at(opt, snapshot.Candidate{Path: ".snapfs/x/y"}))
}

func TestOneFilesystemSkipsMounts(t *testing.T) {
	treetest.NeedRoot(t)
	w := makeTwins(t)
	w.each(func(root string) error { return os.Mkdir(filepath.Join(root, "mnt"), 0o755) })
	mnt := filepath.Join(w.new, "mnt")
	w.still()
	w.do(unix.Mount("none", mnt, "tmpfs", 0, ""))
	defer unix.Unmount(mnt, unix.MNT_DETACH)
	w.do(write(mnt, "inside", "1"))
	opt := diff.Options{OneFilesystem: true}
	w.want(w.trees(opt))
	w.want(w.at(opt, snapshot.Candidate{Path: "mnt/inside"}, snapshot.Candidate{Path: "mnt", Tree: true}))
	if all := brief(w.trees(diff.Options{})); !strings.Contains(all, "A mnt/inside") {
		t.Errorf("nothing beneath the mount without the option: %s", all)
	}
}

func TestUnreadableFilesAreComparedByTheirMetadata(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	w := makeTwins(t)
	secret := func(name, content string, on ...string) {
		for _, root := range on {
			w.do(write(root, name, content))
		}
	}
	secret("same", "1", w.old, w.new)
	secret("longer", "1", w.old)
	secret("longer", "22", w.new)
	secret("newer", "1", w.old, w.new)
	w.each(func(root string) error { return os.MkdirAll(filepath.Join(root, "dir/in"), 0o755) })
	w.still()
	when := []unix.Timespec{{Sec: 5}, {Sec: 5}}
	w.do(unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(w.new, "newer"), when, 0))
	for _, name := range []string{"same", "longer", "newer", "dir"} {
		w.each(func(root string) error { return os.Chmod(filepath.Join(root, name), 0) })
		defer os.Chmod(filepath.Join(w.old, name), 0o700)
		defer os.Chmod(filepath.Join(w.new, name), 0o700)
	}
	w.want(w.trees(diff.Options{}), "M longer content", "M newer content,time")
	w.do(os.Chmod(filepath.Join(w.new, "same"), 0o600))
	_, err := diff.Trees(context.Background(), treetest.Open(t, w.old), treetest.Open(t, w.new), diff.Options{})
	var typed *errs.Error
	if !errors.As(err, &typed) || !errors.Is(err, errs.ErrDenied) || typed.Path != "same" {
		t.Errorf("a file that one side hides: %v", err)
	}
}

func TestCancellingEndsTheWalk(t *testing.T) {
	w := makeTwins(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := diff.Trees(ctx, treetest.Open(t, w.old), treetest.Open(t, w.new), diff.Options{})
	if !errors.Is(err, errs.ErrInterrupted) {
		t.Errorf("got %v", err)
	}
}

func TestATreeThatChangesMeanwhileIsNoError(t *testing.T) {
	w := makeTwins(t)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, name := range []string{"a", "b", "c"} {
				_ = os.MkdirAll(filepath.Join(w.new, name, "x/y"), 0o755)
				_ = write(w.new, name+"/x/f", name)
				_ = os.RemoveAll(filepath.Join(w.new, name))
				_ = write(w.new, name, "file")
				_ = os.Remove(filepath.Join(w.new, name))
			}
		}
	}()
	defer func() { close(stop); <-done }()
	w.do(os.MkdirAll(filepath.Join(w.old, "b/x/y"), 0o755), write(w.old, "c", "file"))
	for range 300 {
		_, err := diff.Trees(context.Background(), treetest.Open(t, w.old), treetest.Open(t, w.new), diff.Options{})
		if err != nil && !errors.Is(err, errs.ErrBusy) {
			t.Fatal(err)
		}
	}
}

// TestAListedDirectoryIsOpenedFromTheOneAboveIt: the comparison does not walk the path from the root for each listed
// directory. In this test such a walk ends early, because the top directory is renamed once the one below is open.
func TestAListedDirectoryIsOpenedFromTheOneAboveIt(t *testing.T) {
	w := makeTwins(t)
	w.each(func(root string) error {
		w.do(os.MkdirAll(filepath.Join(root, "top/a/deep/er"), 0o755), write(root, "top/a/b", "same"))
		return write(root, "top/a/deep/er/file", "old")
	})
	w.do(write(w.new, "top/a/deep/er/file", "changed"))
	w.still()
	renamed := false
	skip := func(path string) bool {
		if path == "top/a/deep/er" && !renamed {
			renamed = true
			w.each(func(root string) error { return os.Rename(filepath.Join(root, "top"), filepath.Join(root, "away")) })
		}
		return false
	}
	w.want(w.at(diff.Options{Skip: skip}, snapshot.Candidate{Path: "top/a/b"}, snapshot.Candidate{Path: "top/a/deep/er/file"}),
		"M top/a/deep/er/file content")
}

func TestTouchOutsideTheTreeIsAnError(t *testing.T) {
	w := makeTwins(t)
	for _, path := range []string{"", "..", "a/../b", "/etc", "a//b"} {
		_, err := diff.At(context.Background(), treetest.Open(t, w.old), treetest.Open(t, w.new), []snapshot.Candidate{{Path: path}}, diff.Options{})
		if !errors.Is(err, errs.ErrCorrupt) {
			t.Errorf("%q: %v", path, err)
		}
	}
}
