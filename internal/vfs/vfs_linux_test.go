package vfs_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

func TestLstatAgreesWithTheStandardLibrary(t *testing.T) {
	dir := treetest.Dir(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, os.Chmod(file, 0o640|fs.ModeSetuid|fs.ModeSticky))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "link")))
	must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	for _, name := range []string{"file", "link", "fifo", "."} {
		want, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := vfs.Lstat(int(treetest.Open(t, dir).Fd()), name)
		if err != nil {
			t.Fatal(err)
		}
		if got.FileMode() != want.Mode() || got.Size != want.Size() || !got.MTime.Time().Equal(want.ModTime()) || got.BTime.Sec == 0 {
			t.Errorf("%s: %+v, want %v %d %v", name, got, want.Mode(), want.Size(), want.ModTime())
		}
	}
	if _, err := vfs.Lstat(unix.AT_FDCWD, filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestEntriesListsAllNamesAgainAndAgain(t *testing.T) {
	dir := treetest.Dir(t)
	var want []string
	for i := range 2000 { // several buffers full
		name := strings.Repeat("n", 1+i%200) + "\xff\n" + string(rune('a'+i%26)) + strings.Repeat("x", i/200)
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		want = append(want, name)
	}
	slices.Sort(want)
	want = slices.Compact(want)
	f := treetest.Open(t, dir)
	for range 2 {
		list, err := vfs.Entries(int(f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		vfs.SortEntries(list)
		var got []string
		for _, e := range list {
			got = append(got, e.Name)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%d names, want %d", len(got), len(want))
		}
	}
}

func TestOpenBeneathNeverLeavesItsDirectory(t *testing.T) {
	dir := treetest.Dir(t)
	f := treetest.Open(t, dir)
	must(t, os.Symlink("/etc", filepath.Join(dir, "out")))
	for path, want := range map[string]error{
		"../x": unix.EXDEV, "/etc/passwd": unix.EXDEV, "out/passwd": unix.ELOOP, "none": unix.ENOENT,
	} {
		if _, err := vfs.OpenBeneath(int(f.Fd()), path, unix.O_RDONLY, 0); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	at := f
	var path []string
	for range 30 {
		name := strings.Repeat("d", 250)
		if err := unix.Mkdirat(int(at.Fd()), name, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := vfs.OpenDir(int(at.Fd()), name)
		if err != nil {
			t.Fatal(err)
		}
		defer next.Close()
		at, path = next, append(path, name)
	}
	deep, err := vfs.OpenBeneath(int(f.Fd()), strings.Join(path, "/"), unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer deep.Close()
	a, _ := vfs.Lstat(int(deep.Fd()), "")
	b, _ := vfs.Lstat(int(at.Fd()), "")
	if a.Ino != b.Ino || a.Ino == 0 {
		t.Error("a path of 7,500 bytes led elsewhere")
	}
}

func TestXattrsOfANodeAndNotOfWhatItPointsTo(t *testing.T) {
	dir := treetest.Dir(t)
	f := treetest.Open(t, dir)
	at := int(f.Fd())
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	must(t, os.Symlink("file", filepath.Join(dir, "link")))
	big := bytes.Repeat([]byte{0, 1, 0xff}, 1000)
	for attr, value := range map[string][]byte{"user.big": big, "user.empty": nil} {
		if err := vfs.SetXattr(at, "file", attr, value, unix.XATTR_CREATE); err != nil {
			t.Fatal(err)
		}
	}
	got, err := vfs.Xattrs(at, "file")
	if err != nil || len(got) != 2 || got["user.big"] != string(big) || got["user.empty"] != "" {
		t.Errorf("Xattrs = %d, %v", len(got), err)
	}
	if names, err := vfs.ListXattrs(at, "link"); err != nil || len(names) != 0 {
		t.Errorf("of the link: %q, %v", names, err)
	}
	if err := vfs.SetXattr(at, "link", "user.x", nil, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("user.* on a symbolic link: %v", err)
	}
	if err := vfs.RemoveXattr(at, "file", "user.big"); err != nil {
		t.Error(err)
	}
	if _, err := vfs.GetXattr(at, "file", "user.big"); !errors.Is(err, unix.ENODATA) {
		t.Errorf("a removed one: %v", err)
	}
	// What Linux 6.13 has calls for is also to be had without them: they take
	// no O_PATH descriptor, so this goes through /proc.
	path, err := unix.Open(filepath.Join(dir, "file"), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(path)
	if err := vfs.SetXattr(path, "", "user.path", big, 0); err != nil {
		t.Error(err)
	}
	if got, err := vfs.Xattrs(path, ""); err != nil || len(got) != 2 || got["user.path"] != string(big) {
		t.Errorf("through O_PATH: %d, %v", len(got), err)
	}
	if err := vfs.SetXattr(at, "", "user.dir", []byte("1"), 0); err != nil {
		t.Error(err)
	}
	if v, err := vfs.GetXattr(at, "", "user.dir"); err != nil || string(v) != "1" {
		t.Errorf("of the directory itself: %q, %v", v, err)
	}
}

func TestCopyFileKeepsBytesAndHoles(t *testing.T) {
	dirs := map[string]string{"disk": treetest.Dir(t)}
	if os.Geteuid() == 0 {
		dirs["btrfs"], dirs["tmpfs"] = treetest.Btrfs(t), treetest.Small(t, "tmpfs", 64<<20)
	}
	for name, dir := range dirs {
		for what, cut := range map[string]int64{"hole at the end": 9 << 20, "data at the end": 4<<20 + 5, "empty": 0} {
			src, _ := os.Create(filepath.Join(dir, "src"))
			dst, _ := os.Create(filepath.Join(dir, "dst"))
			_, err := src.WriteAt([]byte("begin"), 0)
			must(t, err)
			_, err = src.WriteAt([]byte("middle"), 4<<20)
			must(t, err)
			must(t, src.Truncate(cut))
			cloned, err := vfs.CopyFile(dst, src)
			if err != nil || cloned != (name == "btrfs") {
				t.Errorf("%s, %s: cloned %v, %v", name, what, cloned, err)
			}
			a, _ := os.ReadFile(src.Name())
			b, _ := os.ReadFile(dst.Name())
			if st, _ := vfs.Lstat(unix.AT_FDCWD, dst.Name()); !bytes.Equal(a, b) || st.Blocks*512 > 1<<20 {
				t.Errorf("%s, %s: %d bytes became %d in %d blocks", name, what, len(a), len(b), st.Blocks)
			}
			src.Close()
			dst.Close()
		}
	}
}

func TestFilesystemsAreNamed(t *testing.T) {
	for path, want := range map[string]string{"/proc": "proc", "/dev/pts": "devpts", "/sys": "sysfs"} {
		got, err := mount.FilesystemOf(path)
		if err != nil || got.Type != want || !got.IsVirtual() || got.IsNetwork() {
			t.Errorf("%s: %+v, %v", path, got, err)
		}
	}
	treetest.NeedRoot(t)
	got, err := mount.FilesystemOf(treetest.Ext4(t, 32<<20))
	if err != nil || got.Type != "ext4" || got.Size < 16<<20 || got.Avail <= 0 || got.Avail > got.Free || got.ReadOnly {
		t.Errorf("%+v, %v", got, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestAPrivateDirectoryIsMadeOnce: one that exists stays as it is, and counts only if nobody else can write to it.
func TestAPrivateDirectoryIsMadeOnce(t *testing.T) {
	dir := treetest.Dir(t)
	path := dir + "/a/b"
	for range 2 {
		if err := vfs.MakePrivate(path); err != nil || !vfs.IsPrivate(path) {
			t.Fatalf("making a private directory: %v; it is private: %t", err, vfs.IsPrivate(path))
		}
	}
	for what, change := range map[string]func() error{
		"another user can write to it": func() error { return os.Chmod(path, 0o770) },
		"it is a link":                 func() error { return errors.Join(os.Remove(path), os.Symlink(dir, path)) },
		"it is a file":                 func() error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) },
	} {
		if err := errors.Join(os.RemoveAll(path), os.Mkdir(path, 0o700), change()); err != nil {
			t.Fatal(err)
		}
		was, _ := os.Lstat(path)
		err := vfs.MakePrivate(path)
		if now, _ := os.Lstat(path); err == nil || now.Mode() != was.Mode() {
			t.Errorf("%s: %v, and its mode is %v, before %v", what, err, now.Mode(), was.Mode())
		}
	}
}
