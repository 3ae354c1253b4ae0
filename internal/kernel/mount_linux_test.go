package kernel_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
	"github.com/snapfs/snapfs/internal/treetest"
)

// layers makes n lower layers with one file each, an upper and a work directory.
func layers(t *testing.T, n int, name string) kernel.Overlay {
	t.Helper()
	dir := treetest.Ext4(t, 64<<20)
	var o kernel.Overlay
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

// mount mounts o and answers with a path into it.
func mount(t *testing.T, o kernel.Overlay) string {
	t.Helper()
	m, err := kernel.MountOverlay(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return kernel.FDPath(m)
}

func TestAnOverlayShowsEveryLayerWhateverItsName(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedFS(t, "overlay")
	for _, name := range []string{"plain", "co:lon", "com,ma", `back\slash`, `\,`, "new\nline", "bad\xff", strings.Repeat("long", 60)} {
		for _, asStrings := range []bool{false, true} {
			t.Run(strconv.Quote(name)[:min(len(name), 12)]+strconv.FormatBool(asStrings), func(t *testing.T) {
				o := layers(t, 3, name)
				o.Strings, o.RedirectDir, o.Metacopy, o.Volatile, o.NoIndex = asStrings, true, true, true, true
				root := mount(t, o)
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
		root := mount(t, o)
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
	_, err := kernel.MountOverlay(o)
	var e *kernel.MountError
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "excludes") {
		t.Errorf("err = %v", err)
	}
	o = layers(t, 2, "lower")
	o.Xino = "absurd"
	_, err = kernel.MountOverlay(o)
	if !errors.As(err, &e) || e.Option != "xino=absurd" || len(e.Log) == 0 || !errors.Is(err, unix.EINVAL) {
		t.Errorf("err = %v", err)
	}
}

func TestManyLayers(t *testing.T) {
	treetest.NeedRoot(t)
	o := layers(t, 200, "a rather long name of a layer ")
	if _, err := os.Stat(filepath.Join(mount(t, o), "f199")); err != nil {
		t.Error(err)
	}
	o.Strings = true
	if _, err := kernel.MountOverlay(o); !errors.Is(err, unix.E2BIG) {
		t.Errorf("200 layers in one option: %v", err)
	}
	o.Lower = o.Lower[:13]
	if err := os.RemoveAll(o.Work + "/work"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(mount(t, o), "f12")); err != nil {
		t.Error(err)
	}
}

// Upper and work cannot be written as root when root is not mapped there.
func TestAnOverlayThatEndsReadOnlyIsAnError(t *testing.T) {
	treetest.NeedRoot(t)
	userns, err := kernel.NewUserNamespace("0 100000 65536", "0 100000 65536")
	if err != nil {
		t.Fatal(err)
	}
	defer userns.Close()
	o := layers(t, 2, "lower")
	dir := filepath.Dir(o.Upper)
	m, err := kernel.CloneTree(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := kernel.IDMap(m, userns, false); err != nil {
		t.Fatal(err)
	}
	place := treetest.Dir(t)
	if err := kernel.MoveMount(m, unix.AT_FDCWD, place); err != nil {
		t.Fatal(err)
	}
	defer kernel.Unmount(place)
	o.Upper, o.Work = filepath.Join(place, "upper"), filepath.Join(place, "work")
	if _, err := kernel.MountOverlay(o); !errors.Is(err, kernel.ErrEndedReadOnly) {
		t.Errorf("err = %v", err)
	}
}

func TestADetachedMountLivesAsLongAsItsDescriptor(t *testing.T) {
	treetest.NeedRoot(t)
	dir := treetest.Ext4(t, 16<<20)
	m, err := kernel.CloneTree(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	place := treetest.Dir(t)
	if err := kernel.MoveMount(m, unix.AT_FDCWD, place); err != nil {
		t.Fatal(err)
	}
	m.Close()
	if _, err := os.Stat(filepath.Join(place, "lost+found")); err != nil {
		t.Error(err)
	}
	if err := kernel.Unmount(place); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(place, "lost+found")); err == nil {
		t.Error("still mounted")
	}
}
