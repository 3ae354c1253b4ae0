//go:build linux

package treetest

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/snapfs/snapfs/internal/mount"
	"golang.org/x/sys/unix"
)

const namespaceEnv = "SNAPFS_TEST_IN_NAMESPACE"

// InNamespace runs the calling test again in a process with a new user and mount namespace, as the same user
// with all capabilities there. It returns true in that process. In the calling process it passes on the
// verdict and returns false.
func InNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(namespaceEnv) != "" {
		return true
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	args := []string{"/proc/self/exe", "-test.v", "-test.run=^" + test + "$"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	out, err := inNamespace(args)
	if err != nil || !strings.Contains(out, "--- PASS: "+test+" ") {
		t.Errorf("in a user namespace: %v\n%s", err, out)
	}
	return false
}

func inNamespace(args []string) (out string, err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer read.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		write.Close()
		return "", err
	}
	defer null.Close()
	var caps []uintptr
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		caps = append(caps, c)
	}
	p, err := os.StartProcess(args[0], args, &os.ProcAttr{
		Env: append(os.Environ(), namespaceEnv+"=1"), Files: []*os.File{null, write, write},
		Sys: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
			AmbientCaps: caps,
		},
	})
	write.Close()
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(read)
	if err != nil {
		return string(text), err
	}
	_, err = p.Wait()
	return string(text), err
}

// Tmpfs mounts a tmpfs of this size, such as "64m", for a test, and returns its mount point. An ordinary user
// may call it in a user namespace. The tmpfs is unmounted when the test ends.
func Tmpfs(t testing.TB, size string) string {
	t.Helper()
	dir := filepath.Join(Dir(t), "tmpfs")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(dir, 0o755))
	c, err := mount.Fsopen("tmpfs")
	must(err)
	defer c.Close()
	must(c.Set("size", size))
	mnt, err := c.Mount(0)
	must(err)
	defer mnt.Close()
	must(mount.MoveMount(mnt, dir))
	t.Cleanup(func() { must(mount.Unmount(dir)) })
	return dir
}
