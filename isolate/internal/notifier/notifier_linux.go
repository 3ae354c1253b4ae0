package notifier

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Flags are those of seccomp(2) with which a container's pid 1 loads the filter that observes system calls:
// seccomp returns the descriptor for [Serve], and only a fatal signal interrupts a call that Serve has
// received (Linux 5.19).
const Flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV

// A watched is a system call that names a file, which the filter stops until the supervisor has read that
// name. dir and path are the indexes of its arguments: the directory that a relative path starts at, -1 for
// the working directory, and the path. flags is the index of the argument which with AT_EMPTY_PATH means that
// the call has no path, or -1.
type watched struct {
	number           uint32
	dir, path, flags int
	exec             bool
}

// calls returns the system calls that the filter stops for the supervisor to observe: those that open or look
// up a file or execute a program, or with onlyExec only the last.
func calls(onlyExec bool) []watched {
	list := []watched{
		{unix.SYS_OPENAT, 0, 1, -1, false},
		{unix.SYS_OPENAT2, 0, 1, -1, false},
		{unix.SYS_STATX, 0, 1, 2, false},
		{newfstatat, 0, 1, 3, false},
		{unix.SYS_FACCESSAT, 0, 1, -1, false},
		{unix.SYS_FACCESSAT2, 0, 1, -1, false},
		{unix.SYS_READLINKAT, 0, 1, -1, false},
		{unix.SYS_EXECVE, -1, 0, -1, true},
		{unix.SYS_EXECVEAT, 0, 1, -1, true},
	}
	list = append(list, older...)
	if onlyExec {
		list = slices.DeleteFunc(list, func(c watched) bool { return !c.exec })
	}
	return list
}

// Program returns the seccomp filter that stops system calls for the supervisor to observe, as an array of
// struct sock_filter, and its length in instructions. With onlyExec it stops only the execution of programs.
func Program(onlyExec bool) (code []byte, instructions int) {
	const (
		load, equal, anyBit, done = 0x20, 0x15, 0x45, 0x6
		allow, notify             = 0x7fff0000, 0x7fc00000
	)
	add := func(op uint16, yes, no uint8, k uint32) {
		code = binary.NativeEndian.AppendUint16(code, op)
		code = append(code, yes, no)
		code = binary.NativeEndian.AppendUint32(code, k)
	}
	add(load, 0, 0, 4) // the architecture: a 32-bit program is not observed
	add(equal, 1, 0, arch)
	add(done, 0, 0, allow)
	add(load, 0, 0, 0) // the number of the call
	for _, c := range calls(onlyExec) {
		if c.flags < 0 {
			add(equal, 0, 1, c.number)
		} else {
			add(equal, 0, 4, c.number)
			add(load, 0, 0, uint32(16+8*c.flags))
			add(anyBit, 0, 1, unix.AT_EMPTY_PATH)
			add(done, 0, 0, allow)
		}
		add(done, 0, 0, notify)
	}
	add(done, 0, 0, allow)
	return code, len(code) / 8
}

// A notification is the kernel's message that a process of the container made an observed system call, struct
// seccomp_notif; a reply, struct seccomp_notif_resp, lets the call continue (linux/seccomp.h).
type notification struct {
	id         uint64
	pid, flags uint32
	number     int32
	arch       uint32
	_          uint64
	args       [6]uint64
}

type reply struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// Serve calls observed for each system call that the seccomp filter with the descriptor listener stops, and
// lets the system call continue afterwards. pid is the process on the host. path is the absolute path as the
// process names it, with symbolic links not followed. exec is set for the execution of a program. Serve
// closes the descriptor and returns when no process with the filter is left.
func Serve(listener int, observed func(pid int, path string, exec bool)) {
	defer unix.Close(listener)
	byNumber := map[uint32]watched{}
	for _, c := range calls(false) {
		byNumber[c.number] = c
	}
	for waitFor(listener) {
		var n notification
		if ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)) != 0 {
			continue // the process was killed meanwhile
		}
		c, ok := byNumber[uint32(n.number)]
		if path := n.path(c); ok && path != "" && ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&n.id)) == 0 {
			observed(int(n.pid), path, c.exec)
		}
		r := reply{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r)) // an error: the process was killed
		runtime.KeepAlive(&r)
	}
}

// waitFor waits until the kernel has a notification of a system call that the filter has stopped; listener is
// the filter's descriptor. It returns false when no process with the filter is left.
func waitFor(listener int) bool {
	for {
		fds := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		_, err := unix.Poll(fds, -1)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return false
		case fds[0].Revents&unix.POLLIN != 0:
			return true
		case fds[0].Revents != 0:
			return false
		}
	}
}

func ioctl(fd int, request uint, arg unsafe.Pointer) unix.Errno {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(arg))
		if errno != unix.EINTR || request == unix.SECCOMP_IOCTL_NOTIF_RECV {
			return errno
		}
	}
}

// path returns the absolute path of the file that the stopped system call n names, read from the memory of
// the calling process, or "" if it cannot be read. c describes the arguments of the call.
func (n *notification) path(c watched) string {
	text := readText(int(n.pid), uintptr(n.args[c.path]))
	if text != "" && text[0] == '/' {
		return filepath.Clean(text)
	}
	if text == "" && n.number != unix.SYS_EXECVEAT { // that takes an empty path for the file itself (AT_EMPTY_PATH)
		return ""
	}
	dir := fmt.Sprintf("/proc/%d/cwd", n.pid)
	if c.dir >= 0 && int32(n.args[c.dir]) != unix.AT_FDCWD {
		dir = fmt.Sprintf("/proc/%d/fd/%d", n.pid, int32(n.args[c.dir]))
	}
	start, err := os.Readlink(dir)
	if err != nil || start == "" || start[0] != '/' {
		return ""
	}
	return filepath.Clean(start + "/" + text)
}

// readText reads a C string of less than PATH_MAX bytes from the memory of a process, page by page, since
// nothing may follow the last one.
func readText(pid int, at uintptr) string {
	const page = 4096
	var text []byte
	for len(text) < page && at != 0 {
		part := make([]byte, page-at%page)
		local := []unix.Iovec{{Base: &part[0]}}
		local[0].SetLen(len(part))
		n, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: at, Len: len(part)}}, 0)
		if err != nil || n <= 0 {
			return ""
		}
		if end := bytes.IndexByte(part[:n], 0); end >= 0 {
			return string(append(text, part[:end]...))
		}
		text = append(text, part[:n]...)
		at += uintptr(n)
	}
	return ""
}
