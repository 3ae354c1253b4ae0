package overlay_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/backends/overlay"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/engine/snapshot/snapshottest"
	"github.com/snapfs/snapfs/internal/kernel"
	"github.com/snapfs/snapfs/internal/treetest"
)

func TestConformance(t *testing.T) {
	treetest.NeedRoot(t)
	snapshottest.Run(t, byRoot())
}

func byRoot() snapshottest.Subject {
	return snapshottest.Subject{
		Name:   "overlay (root)",
		Driver: overlay.Driver(),
		Reach:  reach,
		Place:  snapshottest.OnDisk,
		Small:  func(t testing.TB) snapshot.Place { return snapshottest.Within(t, treetest.Ext4(t, 64<<20)) },
	}
}

func TestConformanceOfAnOrdinaryUser(t *testing.T) {
	if !treetest.AsUser(t) || !inNamespace(t) {
		return
	}
	snapshottest.Run(t, snapshottest.Subject{
		Name:   "overlay (user)",
		Driver: overlay.Driver(),
		Reach:  reach,
		Place:  snapshottest.OnDisk,
		Small:  func(t testing.TB) snapshot.Place { return snapshottest.Within(t, smallTmpfs(t)) },
	})
}

func BenchmarkConformance(b *testing.B) {
	treetest.NeedRoot(b)
	snapshottest.Bench(b, byRoot())
}

// reach opens the root of a view, mounted as the product mounts it but for
// volatile, which needs the engine's help to be mounted again.
func reach(t testing.TB, v snapshot.View) *os.File {
	t.Helper()
	path := v.Path
	if o := v.Overlay; o != nil {
		mount, err := kernel.MountOverlay(options(o))
		if errors.Is(err, kernel.ErrEndedReadOnly) { // no room for the work directory
			full := options(o)
			full.Lower, full.Upper, full.Work = append([]string{o.Upper}, o.Lower...), "", ""
			mount, err = kernel.MountOverlay(full)
		}
		must(t, err)
		defer mount.Close()
		path = kernel.FDPath(mount)
	}
	f, err := os.Open(path)
	must(t, err)
	return f
}

func options(o *snapshot.Overlay) kernel.Overlay {
	return kernel.Overlay{
		Lower: o.Lower, Upper: o.Upper, Work: o.Work, UserXattr: o.UserXattr, Nested: o.Nested,
		RedirectDir: !o.UserXattr, Metacopy: !o.UserXattr, NoIndex: true,
	}
}

const namespaceEnv = "SNAPFS_TEST_IN_NAMESPACE"

// inNamespace runs the calling test once more in a user and a mount namespace,
// as the same user with all capabilities there, and answers true within.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(namespaceEnv) != "" {
		return true
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.v", "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), namespaceEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
		AmbientCaps: allCaps(),
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+test+" ") {
		t.Errorf("in a user namespace: %v\n%s", err, out)
	}
	return false
}

func allCaps() (caps []uintptr) {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		caps = append(caps, c)
	}
	return caps
}

// smallTmpfs is a filesystem that an ordinary user can make and fill up.
func smallTmpfs(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(treetest.Dir(t), "tmpfs")
	must(t, os.Mkdir(dir, 0o755))
	c, err := kernel.Fsopen("tmpfs")
	must(t, err)
	defer c.Close()
	must(t, c.Set("size", "32m"))
	mount, err := c.Mount(0)
	must(t, err)
	defer mount.Close()
	must(t, kernel.MoveMount(mount, unix.AT_FDCWD, dir))
	t.Cleanup(func() { must(t, kernel.Unmount(dir)) })
	return dir
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
