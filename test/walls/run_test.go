package walls

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

// newNetwork makes a network namespace with public addresses of its own, in which
// a cloud's metadata are served: what a sandbox could reach, whatever this machine
// is connected to.
func newNetwork(t *testing.T) *os.File {
	t.Helper()
	var network *os.File
	var service net.Listener
	var err error
	onOwnThread(func() {
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return
		}
		for _, args := range [][]string{
			{"link", "set", "lo", "up"},
			{"addr", "add", "93.184.216.34/32", "dev", "lo"},
			{"addr", "add", "2606:2800:220:1::34/128", "dev", "lo", "nodad"},
			{"addr", "add", "169.254.169.254/32", "dev", "lo"},
		} {
			if err = exec.Command("ip", args...).Run(); err != nil {
				return
			}
		}
		if service, err = net.Listen("tcp", "169.254.169.254:80"); err == nil {
			network, err = os.Open("/proc/thread-self/ns/net")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(service.Close(), network.Close()); err != nil {
			t.Error(err)
		}
	})
	return network
}

// onOwnThread calls f on a thread that ends with it.
func onOwnThread(f func()) {
	var done sync.WaitGroup
	done.Go(func() {
		runtime.LockOSThread()
		f()
	})
	done.Wait()
}

// own makes the user of the doctor the owner of paths.
func (d *doctor) own(t *testing.T, paths ...string) {
	t.Helper()
	if d.as == nil {
		return
	}
	for _, path := range paths {
		if err := os.Chown(path, int(d.as.Uid), int(d.as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
}

// newHome makes a home directory with a file that sandboxes hide. Each run of the doctor has one of its own, because
// a self-test makes a directory in it which another self-test's sandbox would find at its start.
func (d *doctor) newHome(t *testing.T) string {
	t.Helper()
	home, err := os.MkdirTemp(d.home, "home")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	ssh := filepath.Join(home, ".ssh")
	if err := errors.Join(os.Mkdir(ssh, 0o700), os.WriteFile(ssh+"/file", []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	d.own(t, home, ssh, ssh+"/file")
	return home
}

// furnish makes the workspace of the doctor's sandboxes. For an ordinary user, who may not open the host's devices, it
// also makes those that FUSE and a network which asks first need.
func (d *doctor) furnish(t *testing.T) {
	t.Helper()
	ws := filepath.Join(d.home, "w")
	err := errors.Join(os.Mkdir(ws, 0o700), os.Mkdir(d.held, 0o700))
	err = errors.Join(err, os.Mkdir(filepath.Join(d.home, "held"), 0o700), os.Mkdir(filepath.Join(d.home, "roots"), 0o755)) // not the user's
	service, lerr := net.Listen("unix", filepath.Join(d.home, "roots", "socket"))                                           // of a program of root's
	if err = errors.Join(err, lerr); err == nil {
		t.Cleanup(func() { service.Close() })
		err = os.Chmod(filepath.Join(d.home, "roots", "socket"), 0o777)
	}
	err = errors.Join(err, exec.Command("btrfs", "-q", "subvolume", "create", d.held+"/w").Run())
	dirs := []string{d.home, ws, d.held, d.held + "/w"}
	files := append([]string{ws + "/file", d.held + "/w/file"}, d.shown()...)
	for _, file := range files {
		err = errors.Join(err, os.WriteFile(file, []byte("x"), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	d.own(t, slices.Concat(dirs, files)...)
	if d.as != nil {
		for i, minor := range []uint32{200, 229} {
			d.devices[i] = filepath.Join(treetest.Dir(t), "device")
			if err := errors.Join(unix.Mknod(d.devices[i], unix.S_IFCHR|0o666, int(unix.Mkdev(10, minor))), os.Chmod(d.devices[i], 0o666)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// run runs the broken program in the network, with mounts of its own: what it
// leaves out may be what keeps it from changing the host's.
func (d *doctor) run(t *testing.T, parts string, on kind, args ...string) (out []byte, status int) {
	t.Helper()
	c := exec.CommandContext(context.WithoutCancel(t.Context()), d.program, args...)
	if c.Dir = filepath.Join(d.home, "w"); on == beside {
		c.Dir = filepath.Join(d.home, "held", "w")
	}
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + d.newHome(t), "SNAPFS_HOME=" + d.state(on), partsEnv + "=" + parts}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: d.as}
	var err error
	onOwnThread(func() {
		err = unix.Setns(int(d.network.Fd()), unix.CLONE_NEWNET)
		if err == nil && on != pooled { // which stays mounted
			err = d.ownMounts(on)
		}
		if err == nil {
			out, err = c.Output()
		}
	})
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() != exitUsage && len(out) > 0 {
		return out, ended.ExitCode()
	}
	if err != nil {
		t.Fatalf("%v %v: %v\n%s%s", parts, args, err, out, stderrOf(ended))
	}
	return out, 0
}

// state is the state directory for a kind of sandbox.
func (d *doctor) state(on kind) string {
	switch {
	case on == pooled:
		return filepath.Join(d.home, "pooled")
	case on == beside:
		return filepath.Join(d.home, "beside")
	case on == counting && d.counting != "":
		return d.counting
	}
	return filepath.Join(d.home, "state")
}

// ownMounts gives this thread mounts of its own.
func (d *doctor) ownMounts(on kind) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	for i, path := range []string{"/dev/net/tun", "/dev/fuse"} {
		if err == nil && d.devices[i] != "" && (path != "/dev/fuse" || on == served) { // with FUSE, an ordinary user's sandbox has other backends
			err = unix.Mount(d.devices[i], path, "", unix.MS_BIND, "")
		}
	}
	if file := d.shown()[0]; err == nil && on == shown { // what is mounted by itself is shown so, and what lies beside a mount
		err = unix.Mount(file, file, "", unix.MS_BIND, "")
	}
	if roots := filepath.Join(d.home, "roots"); err == nil && on == shown && d.who == root {
		err = errors.Join(unix.Mount(roots, roots, "", unix.MS_BIND, ""), unix.Mount("", roots, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	}
	if err == nil && on == beside { // of a part of a subvolume no snapshot is made, but of what lies in it
		err = unix.Mount(d.held, filepath.Join(d.home, "held"), "", unix.MS_BIND, "")
	}
	if err == nil && on == counting {
		err = onlyRoot(d.counting)
	}
	return err
}

// shown are the files of [shown]: one that is mounted, and, since an ordinary user gets no
// copy of it, one in a directory of root's beside that.
func (d *doctor) shown() []string {
	files := []string{filepath.Join(d.home, "shown")}
	if d.who == user {
		files = append(files, filepath.Join(d.home, "roots", "file"))
	}
	return files
}

// onlyRoot leaves of the filesystems of this thread / alone, and one other: project
// quotas do not count the trees of several together.
func onlyRoot(other string) error {
	mounts, err := mount.List()
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(mounts) {
		top, _, _ := strings.Cut(m.Path[1:], "/")
		if m.Path == "/" || m.Path == other || slices.Contains([]string{"proc", "sys", "dev", "run", "tmp"}, top) { // it has its own
			continue
		}
		if err := unix.Unmount(m.Path, unix.MNT_DETACH); err != nil && err != unix.EINVAL { // it went with another
			return &os.PathError{Op: "unmount", Path: m.Path, Err: err}
		}
	}
	return nil
}

const exitUsage = 2

func stderrOf(err *exec.ExitError) []byte {
	if err == nil {
		return nil
	}
	return err.Stderr
}
