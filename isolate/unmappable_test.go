package isolate

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate/mounts"
)

var unmappables = []string{"ramfs", "overlay"}

// mountUnmappable mounts a filesystem that has no id-mapped mounts.
func mountUnmappable(t *testing.T, fs string) (dir string) {
	t.Helper()
	dir = treetest.Dir(t)
	leakless(t)
	options := ""
	if fs == "overlay" {
		options = "lowerdir=/usr:/etc"
	}
	if err := unix.Mount(fs, dir, fs, 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// For root, a tree without id-mapped mounts is an error that says why. Read-only it is allowed, with owners
// that appear as nobody.
func TestUnmappableTreesAreRefusedWithAHint(t *testing.T) {
	treetest.NeedRoot(t)
	for _, fs := range unmappables {
		dir := mountUnmappable(t, fs)
		copied := overlay(t, dir)
		copied.Nested = false
		for _, m := range []Mount{{Target: "/mnt", Source: dir}, {Target: "/mnt", Overlay: copied}} {
			spec := rootSpec(t)
			spec.Mounts = append(spec.Mounts, m)
			_, _, err := Start(t.Context(), spec, nil)
			var e *errs.Error
			if !errors.As(err, &e) || !errors.Is(err, errs.ErrNotSupported) || e.Path != dir || len(e.Hints) == 0 || !strings.Contains(e.Error(), fs+", does not support id-mapped mounts") {
				t.Errorf("%s: %v", m, err)
			}
		}
		spec := rootSpec(t)
		spec.Mounts = append(spec.Mounts, Mount{Target: "/mnt", Source: dir, ReadOnly: true})
		if got := sh(t, open(t, spec), "stat -c %u /mnt; touch /mnt/x 2>/dev/null || echo kept"); got != "65534\nkept" {
			t.Errorf("%s: %q", fs, got)
		}
	}
}

// idMapper returns an IDMapper that starts this program, and a function that waits for all of them.
func idMapper(t *testing.T) (start IDMapper, wait func()) {
	var procs []*exec.Cmd
	start = func(_ context.Context, dev, tree *os.File, base uint32) error {
		c := exec.Command("/proc/self/exe")
		c.Env = []string{"SNAPFS_TEST_AS=idmapper", "BASE=" + strconv.FormatUint(uint64(base), 10)}
		c.ExtraFiles, c.Stderr = []*os.File{dev, tree}, os.Stderr
		procs = append(procs, c)
		return c.Start()
	}
	wait = func() {
		for _, p := range procs {
			if err := p.Wait(); err != nil {
				t.Error(err)
			}
		}
		procs = nil
	}
	return start, wait
}

// servedDir is a Served directory that does not support id-mapped mounts either.
type servedDir string

func (d servedDir) Mount(_ context.Context, readOnly bool) (fd int, err error) {
	attr := uint64(0)
	if readOnly {
		attr = unix.MOUNT_ATTR_RDONLY
	}
	m, err := mounts.Mapped(string(d), attr, nil)
	if err != nil {
		return -1, err
	}
	defer m.Close()
	return unix.FcntlInt(m.Fd(), unix.F_DUPFD_CLOEXEC, 0)
}

// Files of a FUSE-mapped tree belong to the container's users, with the same ids on the disk, and to no other.
func TestFUSEMapsUnmappableTrees(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	t.Run("a directory", func(t *testing.T) {
		dir := mountUnmappable(t, "ramfs")
		shown(t, dir, Mount{Target: "/mnt", Source: dir})
	})
	t.Run("what is served", func(t *testing.T) {
		dir := mountUnmappable(t, "ramfs")
		shown(t, dir, Mount{Target: "/mnt", Served: servedDir(dir)})
	})
}

func shown(t *testing.T, dir string, m Mount) {
	write(t, dir+"/theirs", "x")
	if err := os.Chown(dir+"/theirs", 7, 8); err != nil {
		t.Fatal(err)
	}
	spec := rootSpec(t)
	spec.Mounts = append(spec.Mounts, m)
	var wait func()
	spec.MapIDs, wait = idMapper(t)
	container := open(t, spec)
	if l := container.Level(); !slices.Equal(l.FUSEMapped, []string{"/mnt"}) || !strings.Contains(l.String(), "ids mapped by FUSE /mnt") {
		t.Errorf("%+v", l)
	}
	got := sh(t, container, "stat -c %u:%g /mnt /mnt/theirs; echo new > /mnt/own; chown 9:9 /mnt/theirs; ln -s /etc/passwd /mnt/link; wc -l < /mnt/link > /mnt/lines")
	if got != "0:0\n7:8" {
		t.Errorf("%q", got)
	}
	for name, want := range map[string]uint32{"own": 0, "theirs": 9} {
		var st unix.Stat_t
		if err := unix.Stat(dir+"/"+name, &st); err != nil || st.Uid != want {
			t.Errorf("%s belongs to %d on the disk, %v", name, st.Uid, err)
		}
	}
	if err := container.Freeze(t.Context()); err != nil {
		t.Error(err)
	}
	if err := errors.Join(container.Thaw(t.Context()), container.Close(t.Context())); err != nil {
		t.Error(err)
	}
	wait()
}

// A layer without id-mapped mounts is mapped by FUSE too, also where the kernel needs layers attached.
func TestFUSEMapsUnmappableLayers(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	for _, fs := range unmappables {
		dir := mountUnmappable(t, fs)
		empty := treetest.Dir(t) + "/empty"
		if err := os.Mkdir(empty, 0o755); err != nil {
			t.Fatal(err)
		}
		above := overlay(t, dir)
		above.Lower, above.Base, above.Nested = nil, []mounts.Served{servedDir(empty), servedDir(dir)}, false
		o := overlay(t, dir)
		o.Nested = false
		for _, o := range []*Overlay{o, above} {
			shownLayer(t, fs, o)
		}
	}
}

func shownLayer(t *testing.T, fs string, o *Overlay) {
	spec := rootSpec(t)
	spec.Mounts = append(spec.Mounts, Mount{Target: "/mnt", Overlay: o})
	var wait func()
	spec.MapIDs, wait = idMapper(t)
	container := open(t, spec)
	sh(t, container, "echo new > /mnt/own && chown 7:7 /mnt/own")
	var st unix.Stat_t
	if err := unix.Stat(o.Upper+"/own", &st); err != nil || st.Uid != 7 {
		t.Errorf("%s: it belongs to %d on the disk, %v", fs, st.Uid, err)
	}
	if err := container.Close(t.Context()); err != nil {
		t.Error(err)
	}
	wait()
}

// The FUSE process that maps ids is root, so a container with such a tree is attacked as well.
func TestEscapesFailWithFUSEMappedTrees(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedDevice(t, "/dev/fuse")
	spec := rootSpec(t)
	spec.Mounts = append(spec.Mounts, Mount{Target: "/media", Source: mountUnmappable(t, "ramfs")})
	var wait func()
	spec.MapIDs, wait = idMapper(t)
	t.Cleanup(wait)
	imprison(t, spec)
}
