package isolate

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/snapfs/snapfs/isolate/landlock"
	"golang.org/x/sys/unix"
)

// TestEscapesFail runs a hostile program in the container. The program prints a line for each attempt:
// "refused" or "DONE".
func TestEscapesFail(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) { imprison(t, spec) })
}

// With the host's network, the host's abstract sockets are an additional danger.
func TestEscapesFailWithTheHostsNetwork(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		spec.Network = NetworkHost
		imprison(t, spec)
	})
}

func imprison(t *testing.T, spec Spec) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := scratch(t)
	secret := filepath.Join(dir, "secret")
	write(t, secret, "the secret")
	mkdir(t, filepath.Join(dir, "secrets"))
	write(t, filepath.Join(dir, "secrets", "key"), "the secret")
	program, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "prisoner"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("secret", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	name := "@snapfs-test-" + strconv.Itoa(os.Getpid())
	listener, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()

	spec.Mounts = append(spec.Mounts, Mount{Target: "/mnt", Source: dir})
	spec.Hide = []string{"/mnt/link", "/mnt/secrets", "/mnt/no/such", "/etc/hostname/x"}
	spec.ReadOnly = []string{"/usr"}
	container := open(t, spec)
	c := Command{
		Args: []string{"/mnt/prisoner"}, Dir: "/",
		Env: []string{"PATH=/usr/bin:/bin", "SNAPFS_TEST_AS=prisoner", "ABSTRACT=" + name, "SUPERVISOR=" + strconv.Itoa(os.Getpid())},
	}
	out, st := output(t, container, c)
	if st != (Status{}) {
		t.Errorf("%+v", st)
	}
	want := len(attempts)
	if spec.Network == NetworkHost && landlock.ABI() < scopeABI { // the level reports the open attempt
		want--
		if said := container.Level().String(); !strings.Contains(out, "DONE     use the host's abstract socket\n") || !strings.Contains(said, "abstract unix sockets") {
			t.Errorf("%s\n%s", said, out)
		}
	}
	if n := strings.Count("\n"+out, "\nrefused  "); n != want {
		t.Errorf("%d of %d attempts were refused:\n%s", n, want, out)
	}
	if got, err := os.ReadFile(secret); err != nil || string(got) != "the secret" {
		t.Errorf("the secret was changed to %q: %v", got, err)
	}
}

// prisoner makes all attempts and prints the kernel's answers.
func prisoner() {
	for _, a := range attempts {
		if err := a.try(); err != nil {
			fmt.Fprintf(os.Stdout, "refused  %s: %v\n", a.name, err)
		} else {
			fmt.Fprintf(os.Stdout, "DONE     %s\n", a.name)
		}
	}
}

// attempts are calls whose success is an escape.
var attempts = []struct {
	name string
	try  func() error
}{
	{"read a hidden file", func() error { return reads("/mnt/secret") }},
	{"read a hidden file by its link", func() error { return reads("/mnt/link") }},
	{"read in a hidden directory", func() error { return reads("/mnt/secrets/key") }},
	{"make a hidden file visible by unlinking", func() error { return os.Remove("/mnt/secret") }},
	{"rename a hidden directory", func() error { return os.Rename("/mnt/secrets", "/mnt/x") }},
	{"write into a hidden directory", func() error { return os.WriteFile("/mnt/secrets/x", nil, 0o600) }},
	{"write a read-only path", func() error { return os.WriteFile("/usr/x", nil, 0o600) }},
	{"see a process of the host", func() error { return seesHost() }},
	{"signal the supervisor", func() error { return syscall.Kill(supervisorPID(), 0) }},
	{"signal pid 1", func() error { return survives(1) }},
	{"trace pid 1", func() error { return syscall.PtraceAttach(1) }},
	{"read pid 1's memory", func() error { return opens("/proc/1/mem") }},
	{"read pid 1's environment", func() error { return reads("/proc/1/environ") }},
	{"open pid 1's descriptors", func() error { _, err := os.ReadDir("/proc/1/fd"); return err }},
	{"reach pid 1's root", func() error { _, err := os.ReadDir("/proc/1/root/"); return err }},
	{"take a descriptor from pid 1", func() error { return takesDescriptor() }},
	{"read pid 1's memory by a call", func() error {
		b := make([]byte, 8)
		_, err := unix.ProcessVMReadv(1, []unix.Iovec{{Base: &b[0], Len: 8}}, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
		return err
	}},
	{"mount", func() error { return unix.Mount("x", "/tmp", "tmpfs", 0, "") }},
	{"unmount", func() error { return unix.Unmount("/mnt/secret", unix.MNT_DETACH) }},
	{"open a mount tree", func() error { _, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE); return err }},
	{"make a filesystem", func() error { _, err := unix.Fsopen("tmpfs", 0); return err }},
	{"make a mount writable", func() error {
		return unix.MountSetattr(unix.AT_FDCWD, "/usr", 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
	}},
	{"change the root", func() error { return unix.PivotRoot("/tmp", "/tmp") }},
	{"leave a chroot", func() error { return leavesChroot() }},
	{"make a user namespace", func() error { return unix.Unshare(unix.CLONE_NEWUSER) }},
	{"make a mount namespace", func() error { return unix.Unshare(unix.CLONE_NEWNS) }},
	{"fork into a user namespace", func() error { return call(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0) }},
	{"fork with clone3", func() error { return call(unix.SYS_CLONE3, 0, 0, 0, 0, 0, 0) }},
	{"join a namespace", func() error { return joins() }},
	{"make a device", func() error { return makesDevice("/tmp/disk", unix.S_IFBLK, 254, 0) }},
	{"make and read kernel memory", func() error { return makesDevice("/tmp/mem", unix.S_IFCHR, 1, 1) }},
	{"write a kernel setting", func() error { return os.WriteFile("/proc/sys/kernel/hostname", []byte("x"), 0) }},
	{"write a core pattern", func() error { return os.WriteFile("/proc/sys/kernel/core_pattern", []byte("|/x"), 0) }},
	{"press a magic key", func() error { return os.WriteFile("/proc/sysrq-trigger", []byte("h"), 0) }},
	{"read kernel memory", func() error { return reads("/proc/kcore") }},
	{"write /sys", func() error { return os.WriteFile("/sys/kernel/mm/transparent_hugepage/enabled", []byte("never"), 0) }},
	{"gain by a set-id program", func() error { return gains() }},
	{"inherit a descriptor", func() error { return inherits() }},
	{"type into the terminal", func() error { return ioctl(unix.TIOCSTI) }},
	{"type with a disguised number", func() error { return ioctl(unix.TIOCSTI | 1<<32) }},
	{"lock the terminal", func() error { return ioctl(unix.TIOCEXCL) }},
	{"change the terminal's line discipline", func() error { return ioctl(unix.TIOCSETD) }},
	{"hang up the terminal", func() error { return ioctl(unix.TIOCVHANGUP) }},
	{"use the console's ioctl", func() error { return ioctl(unix.TIOCLINUX) }},
	{"make a subvolume that no quota counts", func() error { return ioctl(0x50009418) }},
	{"make a snapshot that no quota counts", func() error { return ioctl(0x50009417) }},
	{"use the host's abstract socket", func() error { c, err := net.Dial("unix", os.Getenv("ABSTRACT")); _ = c; return err }},
	{"use a key ring", func() error { _, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, true); return err }},
	{"add a key", func() error { return call(unix.SYS_ADD_KEY, 0, 0, 0, 0, 0, 0) }},
	{"ask for a key", func() error { return call(unix.SYS_REQUEST_KEY, 0, 0, 0, 0, 0, 0) }},
	{"move a mount", func() error { return call(unix.SYS_MOVE_MOUNT, 0, 0, 0, 0, 0, 0) }},
	{"pick a filesystem", func() error { return call(unix.SYS_FSPICK, 0, 0, 0, 0, 0, 0) }},
	{"configure a filesystem", func() error { return call(unix.SYS_FSCONFIG, 0, 0, 0, 0, 0, 0) }},
	{"copy a mount with attributes", func() error { return call(unix.SYS_OPEN_TREE_ATTR, 0, 0, 0, 0, 0, 0) }},
	{"watch all files", func() error { return call(unix.SYS_FANOTIFY_INIT, 0, 0, 0, 0, 0, 0) }},
	{"compare with pid 1", func() error { return call(unix.SYS_KCMP, 1, uintptr(os.Getpid()), 0, 0, 0, 0) }},
	{"advise pid 1's memory", func() error { return call(unix.SYS_PROCESS_MADVISE, 0, 0, 0, 0, 0, 0) }},
	{"move pid 1's pages", func() error { return call(unix.SYS_MOVE_PAGES, 1, 0, 0, 0, 0, 0) }},
	{"spare pid 1 from the out-of-memory killer", func() error { return os.WriteFile("/proc/1/oom_score_adj", []byte("-900"), 0) }},
	{"spare itself from the out-of-memory killer", func() error { return os.WriteFile("/proc/self/oom_score_adj", []byte("-900"), 0) }},
	{"read pid 1's program", func() error { return opens("/proc/1/exe") }},
	{"make an overlay's mark", func() error { return unix.Setxattr("/tmp", "trusted.overlay.opaque", []byte("y"), 0) }},
	{"load a program into the kernel", func() error { return call(unix.SYS_BPF, 0, 0, 0, 0, 0, 0) }},
	{"measure the host", func() error { return call(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0, 0, 0, 0) }},
	{"handle page faults", func() error { return call(unix.SYS_USERFAULTFD, 0, 0, 0, 0, 0, 0) }},
	{"use io_uring", func() error { return call(unix.SYS_IO_URING_SETUP, 1, 0, 0, 0, 0, 0) }},
	{"open by handle", func() error { return byHandle() }},
	{"find a writable mount of the host", func() error { return hostMount() }},
	{"load a module", func() error { return call(unix.SYS_FINIT_MODULE, 0, 0, 0, 0, 0, 0) }},
	{"set the clock", func() error { return unix.Settimeofday(&unix.Timeval{}) }},
	{"reboot", func() error { return unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF) }},
	{"read the kernel's log", func() error { _, err := unix.Klogctl(3, make([]byte, 100)); return err }},
	{"talk to the hypervisor", func() error { _, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0); return err }},
}

var errNothing = errors.New("nothing there")

// reads succeeds if the file has content.
func reads(path string) error {
	b, err := os.ReadFile(path)
	if err == nil && len(b) == 0 {
		return errNothing
	}
	return err
}

func opens(path string) error {
	f, err := os.Open(path)
	if err == nil {
		f.Close()
	}
	return err
}

func call(nr uintptr, args ...uintptr) error {
	_, _, errno := unix.Syscall6(nr, args[0], args[1], args[2], args[3], args[4], args[5])
	switch errno {
	case 0:
		return nil
	case unix.EPERM, unix.ENOSYS, unix.EACCES:
		return errno
	}
	return nil // the filter let the call through, only its arguments were wrong
}

func supervisorPID() int {
	n, _ := strconv.Atoi(os.Getenv("SUPERVISOR"))
	return n
}

func seesHost() error {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n != 1 && n != os.Getpid() {
			return nil
		}
	}
	return errNothing
}

func survives(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	return errors.New("the signal did nothing") // if the signal had worked, no process would report it
}

func takesDescriptor() error {
	fd, err := unix.PidfdOpen(1, 0)
	if err != nil {
		return err
	}
	_, err = unix.PidfdGetfd(fd, 0, 0)
	return err
}

func leavesChroot() error {
	if err := os.MkdirAll("/tmp/jail", 0o755); err != nil {
		return err
	}
	top, err := os.Open("/")
	if err != nil {
		return err
	}
	before, err := os.Stat("/")
	if err != nil {
		return err
	}
	if err := unix.Chroot("/tmp/jail"); err != nil {
		return err
	}
	if err := unix.Fchdir(int(top.Fd())); err != nil {
		return err
	}
	for range 64 {
		if err := unix.Chdir(".."); err != nil {
			return err
		}
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	after, err := os.Stat("/")
	if err == nil && os.SameFile(before, after) {
		return errors.New("that is the container's own root")
	}
	return nil
}

func joins() error {
	f, err := os.Open("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	return unix.Setns(int(f.Fd()), 0)
}

func makesDevice(path string, kind uint32, major, minor uint32) error {
	if err := unix.Mknod(path, kind|0o600, int(unix.Mkdev(major, minor))); err != nil {
		return err
	}
	return opens(path)
}

// gains runs a set-id program and reports whether it gained root.
func gains() error {
	out, err := exec.Command("/usr/bin/su", "-c", "id -u", "root").Output()
	if os.Getuid() == 0 {
		status, _ := os.ReadFile("/proc/self/status")
		if strings.Contains(string(status), "NoNewPrivs:\t1") {
			return errors.New("no_new_privs")
		}
		return nil
	}
	if strings.TrimSpace(string(out)) == "0" {
		return nil
	}
	return fmt.Errorf("su: %w", errors.Join(err, errNothing))
}

func inherits() error {
	for fd := 3; fd < 2000; fd++ {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 { // descriptors that this program opened have FD_CLOEXEC
			return nil
		}
	}
	return errNothing
}

func ioctl(number uintptr) error {
	b := byte('x')
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, 0, number, uintptr(unsafe.Pointer(&b)))
	if errno == unix.EPERM {
		return errno
	}
	return nil // the filter let the call through, only the descriptor is no terminal
}

func byHandle() error {
	h := unix.NewFileHandle(1, make([]byte, 8))
	_, err := unix.OpenByHandleAt(unix.AT_FDCWD, h, unix.O_RDONLY)
	if errors.Is(err, unix.EPERM) {
		return err
	}
	return nil
}

// hostMount looks for a writable mount that is neither the container's own nor in its Spec.
func hostMount() error {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		target, options := f[4], f[5]
		fs := f[len(f)-3]
		own := fs == "tmpfs" || fs == "proc" || fs == "devpts" || fs == "mqueue" || fs == "overlay" || fs == "sysfs" && strings.HasPrefix(options, "ro")
		if !own && !strings.HasPrefix(options, "ro") && target != "/mnt" && target != "/media" && !strings.HasPrefix(target, "/dev/") {
			fmt.Fprint(os.Stdout, line)
			return nil
		}
	}
	return errNothing
}
