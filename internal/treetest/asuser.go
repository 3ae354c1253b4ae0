//go:build linux

package treetest

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/internal/run"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// AsUser runs the calling test as an ordinary user:
//
//	func TestX(t *testing.T) {
//		if !treetest.AsUser(t) {
//			return
//		}
//		... // no root from here on
//	}
//
// As root it runs the same test again in a process of an ordinary user, passes on the verdict
// and returns false. In a process that is not root it returns true at once, but skips the test
// in the second pass of make test, because root's pass has already run it as a user.
func AsUser(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		OncePerRun(t)
		return true
	}
	RunAs(t, User(t), t.Name())
	return false
}

// An Option changes how [RunAs] runs a test, such as which devices its user may open.
type Option func(*runAs)

// WithFUSE lets the user open /dev/fuse on machines where only root may: [RunAs] makes a mount namespace in
// which everybody may open /dev/fuse.
func WithFUSE() Option { return withDevice("/dev/fuse", 229) }

// WithTUN lets the user open /dev/net/tun on machines where only root may: [RunAs] makes a mount namespace in
// which everybody may open /dev/net/tun.
func WithTUN() Option { return withDevice("/dev/net/tun", 200) }

// withDevice lets the user of [RunAs] open the character device with the major number 10 and this minor
// number at path (Documentation/admin-guide/devices.txt).
func withDevice(path string, minor uint32) Option {
	return func(r *runAs) { r.devices = append(r.devices, device{path, minor}) }
}

// WithEnv adds variables, as "KEY=value", to the environment of the test process that [RunAs] starts.
func WithEnv(env ...string) Option { return func(r *runAs) { r.env = append(r.env, env...) } }

type runAs struct {
	devices []device
	env     []string
}

type device struct {
	path  string
	minor uint32
}

// RunAs runs one test of this test binary, by its full name, in a process of the user a, and
// passes on its output and verdict. A test that does not exist fails; a skipped one is skipped
// (see [Skip]). The process has the same testing.Short; HOME is the user's, and TMPDIR a
// directory in it.
func RunAs(t *testing.T, a Account, test string, options ...Option) {
	t.Helper()
	r := runAs{}
	for _, o := range options {
		o(&r)
	}
	binary, tmp := filepath.Join(a.Home, "..", "the.test"), filepath.Join(a.Home, "tmp")
	copyBinary(t, binary)
	if err := os.Mkdir(tmp, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	if err := os.Chown(tmp, a.UID, a.GID); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"-test.run=" + pattern(test), "-test.v", "-test.count=1", "-test.timeout=" + timeout(t).String(),
		"-test.parallel=" + flag.Lookup("test.parallel").Value.String(),
	}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	var out bytes.Buffer
	env := append(os.Environ(), "HOME="+a.Home, "USER="+a.Name, "LOGNAME="+a.Name, "TMPDIR="+tmp,
		"XDG_STATE_HOME=", "XDG_RUNTIME_DIR=", "XDG_CACHE_HOME=", "GOCACHE="+a.Home+"/gocache")
	p := run.Program{
		Name:   binary,
		Args:   args,
		Env:    append(env, r.env...),
		Dir:    startDir(a),
		Stdout: &out, Stderr: &out,
		As: &run.IDs{UID: a.UID, GID: a.GID},
	}
	start := func() (err error) {
		done := func() (bool, error) { // another test's fork may hold the copy open until its exec
			err = run.Run(t.Context(), p)
			return !errors.Is(err, unix.ETXTBSY), nil
		}
		return errors.Join(poll.Until(t.Context(), time.Millisecond, 10*time.Millisecond, done), err)
	}
	var err error
	if len(r.devices) > 0 {
		err = withDevices(t, r.devices, start)
	} else {
		err = start()
	}
	verdict(t, test, out.String(), err)
}

func verdict(t *testing.T, test, out string, err error) {
	t.Helper()
	switch {
	case err != nil:
		t.Errorf("as an ordinary user: %v\n%s", err, out)
	case strings.Contains(out, "--- SKIP: "+test+" "):
		t.Log(out)
		Skip(t, "what the test as an ordinary user needs", "see above")
	case !strings.Contains(out, "--- PASS: "+test+" "):
		t.Errorf("as an ordinary user: %s did not run\n%s", test, out)
	case testing.Verbose():
		t.Log("as an ordinary user:\n" + out)
	}
}

// copyBinary copies this test binary to path, where any user may run it, because go test builds it in a
// directory that only the user of go test may enter.
func copyBinary(t *testing.T, path string) {
	t.Helper()
	src, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := vfs.CopyFile(dst, src); err != nil {
		t.Fatal(err)
	}
	if err := dst.Close(); err != nil {
		t.Fatal(err)
	}
}

// pattern returns the regular expression for -test.run that matches exactly the test with this full name.
func pattern(test string) string {
	levels := strings.Split(test, "/")
	for i, level := range levels {
		levels[i] = "^" + regexp.QuoteMeta(level) + "$"
	}
	return strings.Join(levels, "/")
}

// timeout returns the time limit for a test process that [RunAs] starts: nine tenths of the time that this
// process has left, so that this process can still report that the child hung; ten minutes without a limit.
func timeout(t *testing.T) time.Duration {
	deadline, ok := t.Deadline()
	if !ok {
		return 10 * time.Minute
	}
	return max(time.Until(deadline)*9/10, time.Second)
}

// startDir returns the working directory for a test that [RunAs] runs: this process's own, which is the
// directory of the package, or the user's home if the user may not enter that.
func startDir(a Account) string {
	wd, err := os.Getwd()
	for dir := wd; err == nil; dir = filepath.Dir(dir) {
		st, err := os.Stat(dir)
		if err != nil || st.Mode()&0o001 == 0 {
			break
		}
		if dir == "/" {
			return wd
		}
	}
	return a.Home
}

// withDevices calls start, which starts a process, in a private mount namespace where every user may open the
// devices. It does so on a thread that ends afterwards, so that the other threads of this process stay in
// their namespace.
func withDevices(t *testing.T, devices []device, start func() error) error {
	dir := Dir(t)
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
				return os.NewSyscallError("unshare", err)
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return os.NewSyscallError("mount", err)
			}
			for _, d := range devices {
				if err := d.place(filepath.Join(dir, filepath.Base(d.path))); err != nil {
					return err
				}
			}
			return start()
		}()
	}()
	return <-done
}

// place makes a device node at the path node that every user of a test may open, and bind-mounts it over the
// device's usual path.
func (d device) place(node string) error {
	if err := unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(10, d.minor))); err != nil {
		return os.NewSyscallError("mknod", err)
	}
	if err := os.Chmod(node, 0o666); err != nil {
		return err
	}
	return os.NewSyscallError("mount", unix.Mount(node, d.path, "", unix.MS_BIND, ""))
}
