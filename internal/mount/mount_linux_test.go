package mount_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/forkcall"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// layers makes n lower layers with one file each, an upper and a work directory.
func layers(t *testing.T, n int, name string) mount.Overlay {
	t.Helper()
	dir := treetest.Ext4(t, 64<<20)
	var o mount.Overlay
	mkdir := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for i := range n {
		layer := mkdir(name + strconv.Itoa(i))
		if err := os.WriteFile(filepath.Join(layer, "f"+strconv.Itoa(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		o.Lower = append(o.Lower, layer)
	}
	o.Upper, o.Work = mkdir("upper"), mkdir("work")
	return o
}

// attachAt mounts o and answers with a path into it.
func attachAt(t *testing.T, o mount.Overlay) string {
	t.Helper()
	m, err := mount.NewOverlay(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return vfs.FDPath(m)
}

func TestAnOverlayShowsEveryLayerWhateverItsName(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedFS(t, "overlay")
	for _, name := range []string{"plain", "co:lon", "com,ma", `back\slash`, `\,`, "new\nline", "bad\xff", strings.Repeat("long", 60)} {
		for _, asStrings := range []bool{false, true} {
			t.Run(strconv.Quote(name)[:min(len(name), 12)]+strconv.FormatBool(asStrings), func(t *testing.T) {
				o := layers(t, 3, name)
				o.Strings, o.RedirectDir, o.Metacopy, o.Volatile, o.NoIndex = asStrings, true, true, true, true
				root := attachAt(t, o)
				for i := range o.Lower {
					if _, err := os.Stat(filepath.Join(root, "f"+strconv.Itoa(i))); err != nil {
						t.Error(err)
					}
				}
				if err := os.WriteFile(filepath.Join(root, "new"), nil, 0o644); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestAViewWithoutAnUpperCannotBeWritten(t *testing.T) {
	treetest.NeedRoot(t)
	for _, n := range []int{1, 2} {
		o := layers(t, n, "lower")
		o.Upper, o.Work = "", ""
		o.Attr = unix.MOUNT_ATTR_NOATIME | unix.MOUNT_ATTR_NOSUID
		root := attachAt(t, o)
		if _, err := os.Stat(filepath.Join(root, "f0")); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(filepath.Join(root, "new"), nil, 0o644); !errors.Is(err, unix.EROFS) {
			t.Errorf("%d layers: writing gave %v", n, err)
		}
	}
}

func TestARefusedMountSaysWhichOptionAndWhy(t *testing.T) {
	treetest.NeedRoot(t)
	o := layers(t, 2, "lower")
	o.UserXattr, o.Metacopy = true, true
	_, err := mount.NewOverlay(o)
	if err == nil || !strings.Contains(err.Error(), "excludes") {
		t.Errorf("err = %v", err)
	}
	o = layers(t, 2, "lower")
	o.Xino = "absurd"
	_, err = mount.NewOverlay(o)
	if !errors.Is(err, unix.EINVAL) || !strings.HasPrefix(err.Error(), "mount overlay: option xino=absurd: ") || !strings.HasSuffix(err.Error(), ")") {
		t.Errorf("err = %v", err)
	}
}

func TestManyLayers(t *testing.T) {
	treetest.NeedRoot(t)
	o := layers(t, 200, "a rather long name of a layer ")
	if _, err := os.Stat(filepath.Join(attachAt(t, o), "f199")); err != nil {
		t.Error(err)
	}
	o.Strings = true
	if _, err := mount.NewOverlay(o); !errors.Is(err, unix.E2BIG) {
		t.Errorf("200 layers in one option: %v", err)
	}
	o.Lower = o.Lower[:13]
	if err := os.RemoveAll(o.Work + "/work"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(attachAt(t, o), "f12")); err != nil {
		t.Error(err)
	}
}

// Upper and work cannot be written as root when root is not mapped there.
func TestAnOverlayThatEndsReadOnlyIsAnError(t *testing.T) {
	treetest.NeedRoot(t)
	userns, err := forkcall.NewUserNamespace("0 100000 65536", "0 100000 65536")
	if err != nil {
		t.Fatal(err)
	}
	defer userns.Close()
	o := layers(t, 2, "lower")
	dir := filepath.Dir(o.Upper)
	m, err := mount.CloneTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := mount.IDMap(m, userns); err != nil {
		t.Fatal(err)
	}
	place := treetest.Dir(t)
	if err := mount.MoveMount(m, place); err != nil {
		t.Fatal(err)
	}
	defer mount.Unmount(place)
	o.Upper, o.Work = filepath.Join(place, "upper"), filepath.Join(place, "work")
	if _, err := mount.NewOverlay(o); !errors.Is(err, mount.ErrEndedReadOnly) {
		t.Errorf("err = %v", err)
	}
}

func TestADetachedMountLivesAsLongAsItsDescriptor(t *testing.T) {
	treetest.NeedRoot(t)
	dir := treetest.Ext4(t, 16<<20)
	m, err := mount.CloneTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	place := treetest.Dir(t)
	if err := mount.MoveMount(m, place); err != nil {
		t.Fatal(err)
	}
	m.Close()
	if _, err := os.Stat(filepath.Join(place, "lost+found")); err != nil {
		t.Error(err)
	}
	if err := mount.Unmount(place); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(place, "lost+found")); err == nil {
		t.Error("still mounted")
	}
}
