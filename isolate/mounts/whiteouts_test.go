//go:build linux

package mounts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
)

// An image has exactly the directories and whiteouts that it was made for, at the first use and at the next one.
func TestAnImageHasTheWhiteouts(t *testing.T) {
	treetest.NeedRoot(t)
	images := filepath.Join(t.TempDir(), "images")
	many := []string{"..."}
	for i := range 1000 { // more than fit into one block
		many = append(many, fmt.Sprintf(".name-%d-of-a-secret", i))
	}
	many = append(many, "-before-the-dots", "\xff", "z")
	hidden := []Hidden{
		{Dir: "home/one", Absent: many},
		{Dir: "home/two", Absent: []string{"x"}},
		{Dir: ".", Absent: []string{"y", "home"}}, // home exists, since something is hidden in it
		{Dir: "none"},
	}
	want := map[string][]string{
		".": {"home", "none", "y"}, "home": {"one", "two"}, "home/one": slices.Sorted(slices.Values(many)), "home/two": {"x"}, "none": nil,
	}
	for range 2 {
		m := mountWhiteouts(images, hidden)
		if info, err := os.Stat(filepath.Join(images, imageName(hidden))); m == nil && err == nil && info.Size() == 0 {
			treetest.Skip(t, "EROFS of a file", "Linux mounts such images since 6.12, with CONFIG_EROFS_FS_BACKED_BY_FILE")
		}
		if m == nil {
			t.Fatal("no image was mounted")
		}
		defer m.Close()
		checkWhiteouts(t, vfs.FDPath(m), want)
	}
	list, err := os.ReadDir(images)
	if err != nil || len(list) != 1 {
		t.Errorf("there are %d images, not one: %v", len(list), err)
	}
	if imageName(hidden) == imageName(hidden[:2]) || imageName(hidden[1:2]) == imageName([]Hidden{{Dir: "home", Absent: []string{"two", "x"}}}) {
		t.Error("what is hidden does not determine the name of the image")
	}
}

// checkWhiteouts checks that the directory root has the directories and names of want, and that each name that is no
// directory of want is a whiteout.
func checkWhiteouts(t *testing.T, root string, want map[string][]string) {
	t.Helper()
	for dir, names := range want {
		list, err := os.ReadDir(filepath.Join(root, dir))
		var got []string
		for _, e := range list {
			got = append(got, e.Name())
			if _, isDir := want[filepath.Join(dir, e.Name())]; isDir {
				continue
			}
			var st unix.Stat_t
			if err := unix.Lstat(filepath.Join(root, dir, e.Name()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 {
				t.Errorf("%s/%q is no whiteout: mode %o, device %d, %v", dir, e.Name(), st.Mode, st.Rdev, err)
			}
		}
		if err != nil || !slices.Equal(got, names) {
			t.Errorf("%s has %d names, not %d: %v", dir, len(got), len(names), err)
		}
		if _, err := os.Lstat(filepath.Join(root, dir, "another")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s/another: %v", dir, err)
		}
	}
}

// A damaged image would show names that it was made to hide, or fail each start: it is made anew.
func TestADamagedImageIsMadeAnew(t *testing.T) {
	treetest.NeedRoot(t)
	images := filepath.Join(t.TempDir(), "images")
	hidden := []Hidden{{Dir: "home", Absent: []string{".secret", ".token"}}}
	if m := mountWhiteouts(images, hidden); m != nil {
		m.Close()
	} else {
		treetest.Skip(t, "EROFS of a file", "Linux mounts such images since 6.12, with CONFIG_EROFS_FS_BACKED_BY_FILE")
	}
	file := filepath.Join(images, imageName(hidden))
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	other := bytes.ReplaceAll(good, []byte(".secret"), []byte(".sacred"))
	for _, bad := range [][]byte{other, good[:len(good)/2], []byte("no image"), {0}} {
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		m := mountWhiteouts(images, hidden)
		if m == nil {
			t.Fatal("no image was mounted")
		}
		checkWhiteouts(t, vfs.FDPath(m), map[string][]string{".": {"home"}, "home": {".secret", ".token"}})
		m.Close()
	}
}

// An image that cannot be mounted is no error, and the number of images is bounded.
func TestImagesAreOptionalAndFew(t *testing.T) {
	treetest.NeedRoot(t)
	images := t.TempDir()
	hidden := []Hidden{{Dir: ".", Absent: []string{"x"}}}
	if err := os.WriteFile(filepath.Join(images, imageName(hidden)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if m := mountWhiteouts(images, hidden); m != nil {
		m.Close()
		t.Error("an image was mounted that this kernel cannot use")
	}
	for i := range 2 * maxImages {
		if m := mountWhiteouts(images, []Hidden{{Dir: ".", Absent: []string{fmt.Sprint(i)}}}); m != nil {
			m.Close()
		}
	}
	list, err := os.ReadDir(images)
	if err != nil || len(list) > maxImages {
		t.Errorf("%d images, more than %d: %v", len(list), maxImages, err)
	}
}
