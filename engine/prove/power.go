//go:build linux

package prove

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// powerProbes returns the probes that make privileged system calls. Their arguments have no effect: a kernel
// that allows the call reports the invalid argument, otherwise it reports the missing permission first.
func powerProbes() []Probe {
	list := []Probe{
		{Name: "device", plan: plan("make a device and open it", device)},
		{Name: "block-device", plan: plan("open a disk of the host", blockDevice)},
		{Name: "kernel-settings", plan: plan("open settings of the kernel for writing", kernelSettings)},
		{Name: "set-uid", plan: plan("become root of the host", setUID)},
		{Name: "clock", plan: plan("set the clock", clock)},
		{Name: "namespace", plan: plan("enter a namespace", enterNamespace)},
	}
	for _, c := range calls() {
		list = append(list, Probe{Name: c.name, plan: plan(c.tried, func() outcome { return judge(c.call()) })})
	}
	return list
}

func plan(tried string, try func() outcome) func([]string) (attempt, error) {
	return func([]string) (attempt, error) { return attempt{tried, try}, nil }
}

type powerCall struct {
	name, tried string
	call        func() error
}

func calls() []powerCall {
	return []powerCall{
		{"user-namespace", "make a user namespace", func() error { return unix.Unshare(unix.CLONE_NEWUSER) }},
		{"mount", "mount a filesystem", func() error { return unix.Mount("none", "/", "snapfs-no-such", 0, "") }},
		{"mount-object", "make a mount", func() error { return raw(unix.SYS_FSOPEN) }},
		{"change-root", "change the root", func() error { return raw(unix.SYS_PIVOT_ROOT) }},
		{"module", "load a module into the kernel", func() error { return raw(unix.SYS_FINIT_MODULE, minusOne) }},
		{"kexec", "load another kernel", func() error { return raw(unix.SYS_KEXEC_LOAD, 0, 0, 0, 1<<15) }}, // no such flag
		{"reboot", "reboot", func() error { return raw(unix.SYS_REBOOT) }},                                 // without its magic numbers
		{"swap", "give the kernel swap", func() error { return raw(unix.SYS_SWAPON) }},
		{"bpf", "load a program into the kernel", func() error { return raw(unix.SYS_BPF) }},
		{"perf", "measure the machine", func() error { return raw(unix.SYS_PERF_EVENT_OPEN) }},
		{"io-uring", "open an io_uring", func() error { return raw(unix.SYS_IO_URING_SETUP, 1) }},
		{"userfaultfd", "handle page faults", func() error { return raw(unix.SYS_USERFAULTFD, 1|1<<20) }}, // for the process itself; no such flag
		{"keyring", "use the session's key ring", func() error {
			_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false)
			return err
		}},
		{"file-handle", "open a file by its handle", func() error { return raw(unix.SYS_OPEN_BY_HANDLE_AT, minusOne) }},
		{"watch", "watch all files", func() error { return raw(unix.SYS_FANOTIFY_INIT, unix.FAN_REPORT_FID|1<<30) }}, // in the mode for every user; no such flag
		{"kernel-log", "read the kernel's log", func() error {
			_, err := unix.Klogctl(unix.SYSLOG_ACTION_SIZE_BUFFER, nil)
			return err
		}},
		{"hypervisor", "talk to the hypervisor", reachHypervisor},
		{"packets", "open a socket of whole packets", func() error { return socket(unix.AF_PACKET, unix.SOCK_DGRAM) }},
		{"terminal", "type into a terminal, or take it from others", takeTerminal},
	}
}

// socket opens a socket of this address family and type and closes it. It returns the kernel's error.
func socket(family, kind int) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// reachHypervisor is a probe of whether a sandbox may open a socket to the hypervisor, also by the system call
// of 32-bit programs. It returns nil or the error of the first way that the kernel allows, and otherwise the
// error of the last.
func reachHypervisor() error {
	if err := socket(unix.AF_VSOCK, unix.SOCK_STREAM); err == nil || letIn(err) {
		return err
	}
	return socket32(unix.AF_VSOCK, unix.SOCK_STREAM)
}

// takeTerminal is a probe of whether a sandbox may insert input into a terminal, lock it, or change its line
// discipline. It makes these ioctls without a terminal, so they have no effect. It returns nil or the error
// of the first that the kernel allows, and otherwise the error of the last.
func takeTerminal() (err error) {
	for _, call := range []uintptr{unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCEXCL, unix.TIOCSETD, unix.TIOCVHANGUP, unix.TIOCCONS} {
		if err = raw(unix.SYS_IOCTL, minusOne, call); err == nil || letIn(err) {
			return err
		}
	}
	return err
}

const minusOne = ^uintptr(0)

// raw makes the system call with this number, for a probe of calls that the kernel should refuse in a
// sandbox; omitted arguments are zero. It returns the kernel's errno.
func raw(number uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	if _, _, errno := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return errno
	}
	return nil
}

// letIn reports whether err, the error of a system call by a probe, came after all permission checks. Then
// the sandbox would have been allowed the call.
func letIn(err error) bool {
	return !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EAFNOSUPPORT)
}

func judge(err error) outcome {
	switch {
	case err == nil:
		return crossed("it was done")
	case letIn(err):
		return crossed("it is allowed, and only its arguments were wrong: %v", err)
	}
	return held("%v", err)
}

// device is a probe that creates and opens the most harmless device node, a copy of /dev/null. If that cannot
// be opened, no device can.
func device() outcome {
	dir, err := os.MkdirTemp("", "prove-")
	if err != nil {
		return untried("%v", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a leftover is in the sandbox
	if err := openNode(dir, unix.S_IFCHR, unix.Mkdev(1, 3)); err != nil {
		return held("%v", err)
	}
	return crossed("it opens")
}

func openNode(dir string, kind uint32, number uint64) error {
	path := dir + "/node"
	defer os.Remove(path) //nolint:errcheck // the node may not exist
	if err := unix.Mknod(path, kind|0o600, int(number)); err != nil {
		return err
	}
	return opens(path, unix.O_RDONLY)
}

func opens(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// blockDevice is a probe that tries to open each disk of the host that sysfs lists, for reading: in /dev, and
// through a device node that it creates.
func blockDevice() outcome {
	dir, err := os.MkdirTemp("", "prove-")
	if err != nil {
		return untried("%v", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a leftover is in the sandbox
	disks, err := filepath.Glob("/sys/class/block/*/dev")
	if err != nil || len(disks) == 0 {
		return untried("the kernel lists no disk")
	}
	var last error
	for _, d := range disks {
		text, err := os.ReadFile(d)
		major, minor, ok := strings.Cut(strings.TrimSpace(string(text)), ":")
		a, err2 := strconv.ParseUint(major, 10, 32)
		b, err3 := strconv.ParseUint(minor, 10, 32)
		if !ok || errors.Join(err, err2, err3) != nil {
			continue
		}
		name := filepath.Base(filepath.Dir(d))
		if opens("/dev/"+name, unix.O_RDONLY) == nil {
			return crossed("/dev/%s opens", name)
		}
		if last = openNode(dir, unix.S_IFBLK, unix.Mkdev(uint32(a), uint32(b))); last == nil || errors.Is(last, unix.ENXIO) {
			return crossed("a node of %s opens", name)
		}
	}
	if last == nil {
		return untried("no disk has a number")
	}
	return held("none of %d opens: %v", len(disks), last)
}

func kernelSettings() outcome {
	var open []string
	var last error = unix.ENOENT
	for _, name := range []string{
		"sys/kernel/core_pattern", "sys/kernel/modprobe", "sys/kernel/hostname", "sys/kernel/sysrq", "sys/fs/file-max",
		"sys/vm/overcommit_memory", "sys/net/ipv4/ip_forward", "sysrq-trigger",
	} {
		if err := opens("/proc/"+name, unix.O_WRONLY); err == nil {
			open = append(open, "/proc/"+name)
		} else if !errors.Is(err, unix.ENOENT) {
			last = err
		}
	}
	switch {
	case len(open) > 0:
		return crossed("%s can be written", strings.Join(open, ", "))
	case errors.Is(last, unix.ENOENT):
		return untried("no setting is there")
	}
	return held("%v", last)
}

// setUID is a probe that tries to become another user by the system call, and checks that set-uid programs
// have no effect, which only no_new_privs ensures.
func setUID() outcome {
	ids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return untried("%v", err)
	}
	fields := strings.Fields(string(ids))
	if len(fields) < 3 {
		return untried("/proc/self/uid_map is empty")
	}
	locked, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return untried("%v", err)
	}
	if locked != 1 {
		return crossed("set-id programs have effect")
	}
	err = unix.Setresuid(0, 0, 0)
	switch {
	case err != nil:
		return held("set-id programs have no effect, and the call failed: %v", err)
	case fields[0] == "0" && fields[1] == "0":
		return crossed("this process is root of the host")
	}
	return held("set-id programs have no effect, and root is user %s outside", fields[1])
}

// clock is a probe that tries to set the host's clock: it calls adjtimex(2) with a tick of zero, which every
// kernel rejects as invalid only after its permission check.
func clock() outcome {
	_, err := unix.Adjtimex(&unix.Timex{Modes: unix.ADJ_TICK})
	return judge(err)
}

// enterNamespace is a probe that tries to enter a namespace, its present one, which needs the same privilege
// as another, and to create one.
func enterNamespace() outcome {
	runtime.LockOSThread() // never unlocked: the process ends with the probe
	f, err := os.Open("/proc/self/ns/uts")
	if err != nil {
		return untried("%v", err)
	}
	defer f.Close()
	if o := judge(unix.Setns(int(f.Fd()), unix.CLONE_NEWUTS)); !o.held {
		return o
	}
	return judge(unix.Unshare(unix.CLONE_NEWUTS))
}
