package notifier

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Flags are those of seccomp(2) with which a container's pid 1 loads the filter that observes system calls:
// seccomp returns the descriptor for [Serve], and only a fatal signal interrupts a call that Serve has
// received (Linux 5.19).
const Flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV

// setFlags is the ioctl SECCOMP_IOCTL_NOTIF_SET_FLAGS, and syncWakeUp the flag of it by which the kernel runs the
// process that made a call and its observer on one processor, one after the other (linux/seccomp.h, Linux 6.6). Without
// it, waking each takes an interrupt of another processor.
const (
	setFlags   = 0x40082104
	syncWakeUp = 1
)

// An Act is what an observed system call does with the file that it names. The acts that a filter observes are
// joined by |.
type Act uint16

// The bits of an [Act]: what an observed system call, such as open(2) or rename(2), does with the file that it
// names. A call that opens a file and may write to it has both [Look] and [Open].
const (
	Look     Act = 1 << iota // looks up a file, or opens it
	Execute                  // executes a program
	Open                     // opens a file for writing, and perhaps creates it
	Create                   // creates a directory, a link or a node, where nothing may be
	Remove                   // removes a file or a directory, or renames it to another name
	Replace                  // renames something to this name, where something may be
	SetAttr                  // changes the mode, the owner or the times of a file
	Truncate                 // truncates a file
	Read                     // opens a file or a directory for reading
	Move                     // gives a file or a directory another name, by renaming or linking it

	// Write are all acts that write.
	Write = Open | Create | Remove | Replace | SetAttr | Truncate
)

// writing are the flags of open(2) that open a file for writing or may create it. Without one of them the call
// does not write.
const writing = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC

// none stands for an argument that a system call does not have.
const none = -1

// reads reports whether open(2) with these flags opens a file for reading.
func reads(flags int) bool { return flags&unix.O_PATH == 0 && flags&unix.O_ACCMODE != unix.O_WRONLY }

// A watched is a system call that names a file, which the filter stops until the supervisor has read that
// name. dir and path are the indexes of its arguments: the directory that a relative path starts at, none for
// the working directory, and the path. flags is the index of the argument with flags: for Open those of open(2),
// none for creat(2); for Look, with empty set, those of which AT_EMPTY_PATH means that the call has no path. For Move,
// the other name is in the arguments toDir and toPath.
type watched struct {
	number    uint32
	dir, path int
	act       Act
	flags     int
	empty     bool

	toDir, toPath int
}

// watchedCalls returns the system calls that the filter stops for the supervisor to observe the acts.
func watchedCalls(acts Act) []watched {
	list := []watched{
		{number: unix.SYS_OPENAT, dir: 0, path: 1, act: Open, flags: 2},
		{number: unix.SYS_OPENAT2, dir: 0, path: 1, act: Open, flags: 2},
		{number: unix.SYS_STATX, dir: 0, path: 1, act: Look, flags: 2, empty: true},
		{number: newfstatat, dir: 0, path: 1, act: Look, flags: 3, empty: true},
		{number: unix.SYS_FACCESSAT, dir: 0, path: 1, act: Look},
		{number: unix.SYS_FACCESSAT2, dir: 0, path: 1, act: Look},
		{number: unix.SYS_READLINKAT, dir: 0, path: 1, act: Look},
		{number: unix.SYS_EXECVE, dir: none, path: 0, act: Execute},
		{number: unix.SYS_EXECVEAT, dir: 0, path: 1, act: Execute},
		{number: unix.SYS_MKDIRAT, dir: 0, path: 1, act: Create},
		{number: unix.SYS_MKNODAT, dir: 0, path: 1, act: Create},
		{number: unix.SYS_SYMLINKAT, dir: 1, path: 2, act: Create},
		{number: unix.SYS_LINKAT, dir: 2, path: 3, act: Create},
		{number: unix.SYS_UNLINKAT, dir: 0, path: 1, act: Remove},
		{number: unix.SYS_RENAMEAT, dir: 0, path: 1, act: Remove},
		{number: unix.SYS_RENAMEAT, dir: 2, path: 3, act: Replace},
		{number: unix.SYS_RENAMEAT2, dir: 0, path: 1, act: Remove},
		{number: unix.SYS_RENAMEAT2, dir: 2, path: 3, act: Replace},
		{number: unix.SYS_FCHMODAT, dir: 0, path: 1, act: SetAttr},
		{number: unix.SYS_FCHMODAT2, dir: 0, path: 1, act: SetAttr},
		{number: unix.SYS_FCHOWNAT, dir: 0, path: 1, act: SetAttr},
		{number: unix.SYS_UTIMENSAT, dir: 0, path: 1, act: SetAttr},
		{number: unix.SYS_TRUNCATE, dir: none, path: 0, act: Truncate},
		{number: unix.SYS_RENAMEAT, dir: 0, path: 1, act: Move, toDir: 2, toPath: 3},
		{number: unix.SYS_RENAMEAT2, dir: 0, path: 1, act: Move, toDir: 2, toPath: 3},
		{number: unix.SYS_RENAMEAT2, dir: 2, path: 3, act: Move, toDir: 0, toPath: 1}, // for RENAME_EXCHANGE
		{number: unix.SYS_LINKAT, dir: 0, path: 1, act: Move, toDir: 2, toPath: 3},
	}
	list = append(list, older...)
	return slices.DeleteFunc(list, func(c watched) bool {
		return c.act&acts == 0 && (c.act != Open || acts&(Look|Read) == 0)
	})
}

// Program returns the seccomp filter that reports the given acts to the supervisor, as an array of struct
// sock_filter, and its length in instructions. Of the calls that open files it stops all for Look and for Read, and
// otherwise only those that write: an opening for reading costs nothing.
//
// With Move, for which no read may be missed, the filter also denies what the supervisor cannot follow: every call of a
// 32-bit program, and chroot(2), after which a path starts elsewhere.
func Program(acts Act) (code []byte, instructions int) {
	const (
		load, equal, anyBit, done = 0x20, 0x15, 0x45, 0x6
		allow, notify, fail       = 0x7fff0000, 0x7fc00000, 0x00050000
	)
	add := func(op uint16, yes, no uint8, k uint32) {
		code = binary.NativeEndian.AppendUint16(code, op)
		code = append(code, yes, no)
		code = binary.NativeEndian.AppendUint32(code, k)
	}
	complete, other := acts&Move != 0, uint32(allow)
	if complete {
		other = fail | uint32(unix.ENOSYS)
	}
	add(load, 0, 0, 4) // the architecture: no call of a 32-bit program is reported
	add(equal, 1, 0, arch)
	add(done, 0, 0, other)
	add(load, 0, 0, 0) // the number of the call
	if complete {
		add(equal, 0, 1, unix.SYS_CHROOT)
		add(done, 0, 0, fail|uint32(unix.EPERM))
	}
	added := map[uint32]bool{}
	for _, c := range watchedCalls(acts) {
		if added[c.number] {
			continue // the second path of the same call
		}
		added[c.number] = true
		flags := uint32(16 + 8*c.flags)
		switch {
		case c.empty:
			add(equal, 0, 4, c.number)
			add(load, 0, 0, flags)
			add(anyBit, 0, 1, unix.AT_EMPTY_PATH)
			add(done, 0, 0, allow)
		case c.act == Open && acts&(Look|Read) == 0 && c.flags != none && c.number != unix.SYS_OPENAT2: // whose flags are in memory
			add(equal, 0, 4, c.number)
			add(load, 0, 0, flags)
			add(anyBit, 1, 0, writing)
			add(done, 0, 0, allow)
		default:
			add(equal, 0, 1, c.number)
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

// A Call is what a system call that the filter has stopped is about to do.
type Call struct {
	// PID is the calling process on the host.
	PID int
	// Act is one act.
	Act Act
	// Path is the absolute path of the file as the process names it, with symbolic links not followed.
	Path string
	// raw is the absolute path before it was cleaned, or "" if Path is the same: in the kernel ".." after a symbolic
	// link leads to the parent of the directory to which the link leads.
	raw string
	// Flags are those of open(2), if the act is [Open] or [Read], and those of linkat(2), if it is [Move].
	Flags int
	// To is the other name, if the act is [Move]: To is like Path, and rawTo like raw.
	To, rawTo string
}

// Serve calls observed for each system call that the seccomp filter with the descriptor listener stops, once for
// each of acts that it does, and lets the system call continue afterwards. If observed returns false, the system call
// fails with EIO. Serve closes the descriptor and returns when no process with the filter is left.
func Serve(listener int, acts Act, observed func(Call) bool) {
	defer unix.Close(listener)
	byNumber := map[uint32][]watched{}
	for _, c := range watchedCalls(acts) {
		byNumber[c.number] = append(byNumber[c.number], c)
	}
	_ = unix.IoctlSetInt(listener, setFlags, syncWakeUp) // an older kernel wakes Serve and the process later
	n, r, wait := new(notification), new(reply), newWaiter(listener)
	defer wait.setKeep(false)
	var all []Call
	for wait.next() {
		*n = notification{} // the kernel requires zeros
		if ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(n)) != 0 {
			continue // the process was killed meanwhile
		}
		all = all[:0]
		for _, c := range byNumber[uint32(n.number)] {
			all = n.acts(all, c, acts)
		}
		*r = reply{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if len(all) > 0 && ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&n.id)) == 0 {
			for _, call := range all {
				if !observed(call) {
					r.flags, r.errno = 0, -int32(unix.EIO)
				}
			}
		}
		ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(r)) // an error: the process was killed
	}
}

// acts appends those acts of the stopped system call n that are among acts to all. c describes the arguments of the
// call.
func (n *notification) acts(all []Call, c watched, acts Act) []Call {
	path, raw := n.path(c)
	if path == "" {
		return all
	}
	call := Call{PID: int(n.pid), Act: c.act, Path: path, raw: raw}
	if c.act == Move {
		if call.To, call.rawTo = n.path(watched{dir: c.toDir, path: c.toPath}); n.number == unix.SYS_LINKAT {
			call.Flags = int(int32(n.args[4]))
		}
	}
	if c.act != Open {
		return append(all, call)
	}
	if acts&Look != 0 && c.flags != none {
		all = append(all, Call{PID: call.PID, Act: Look, Path: path})
	}
	call.Flags = n.openFlags(c)
	if acts&Open != 0 && call.Flags&writing != 0 {
		all = append(all, call)
	}
	if acts&Read != 0 && reads(call.Flags) {
		all = append(all, Call{PID: call.PID, Act: Read, Path: path, raw: raw, Flags: call.Flags})
	}
	return all
}

// openFlags returns the flags of open(2) of the stopped system call n, which c describes. For openat2(2) it reads
// them from the memory of the calling process.
func (n *notification) openFlags(c watched) int {
	switch {
	case c.flags == none:
		return unix.O_CREAT | unix.O_WRONLY | unix.O_TRUNC
	case n.number == unix.SYS_OPENAT2: // the first 8 bytes of struct open_how
		var how [8]byte
		if !readMemory(int(n.pid), uintptr(n.args[c.flags]), how[:]) {
			return 0
		}
		return int(binary.NativeEndian.Uint64(how[:]))
	}
	return int(int32(n.args[c.flags]))
}

func ioctl(fd int, request uint, arg unsafe.Pointer) unix.Errno {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(arg))
		if errno != unix.EINTR || request == unix.SECCOMP_IOCTL_NOTIF_RECV {
			return errno
		}
	}
}

// path returns the absolute path of the file that the stopped system call n names, cleaned, and as it was before that
// (see [Call]). It reads the memory of the calling process, and returns "" if it cannot. c describes the arguments of
// the call.
func (n *notification) path(c watched) (path, raw string) {
	text := readText(int(n.pid), uintptr(n.args[c.path]))
	if text != "" && text[0] == '/' {
		return filepath.Clean(text), text
	}
	if text == "" && n.number != unix.SYS_EXECVEAT && n.number != unix.SYS_LINKAT { // these take an empty path for the file itself (AT_EMPTY_PATH)
		return "", ""
	}
	dir := fmt.Sprintf("/proc/%d/cwd", n.pid)
	if c.dir >= 0 && int32(n.args[c.dir]) != unix.AT_FDCWD {
		dir = fmt.Sprintf("/proc/%d/fd/%d", n.pid, int32(n.args[c.dir]))
	}
	start, err := os.Readlink(dir)
	if err != nil || start == "" || start[0] != '/' {
		return "", ""
	}
	return filepath.Clean(start + "/" + text), start + "/" + text
}

// readText reads a C string of less than PATH_MAX bytes from the memory of a process, page by page, since
// nothing may follow the last one.
func readText(pid int, at uintptr) string {
	const page, most = 4096, 256 // most is the size of the first read, which most paths fit
	var buf [unix.PathMax]byte
	for n := 0; n < len(buf) && at != 0; {
		size := int(page - at%page)
		if n == 0 {
			size = min(size, most)
		}
		part := buf[n:min(n+size, len(buf))]
		if !readMemory(pid, at, part) {
			return ""
		}
		if end := bytes.IndexByte(part, 0); end >= 0 {
			return string(buf[:n+end])
		}
		n += len(part)
		at += uintptr(len(part))
	}
	return ""
}

// readMemory fills part from the memory of a process at the address at. It returns false if it cannot read all.
func readMemory(pid int, at uintptr, part []byte) bool {
	local := unix.Iovec{Base: unsafe.SliceData(part)}
	local.SetLen(len(part))
	remote := unix.RemoteIovec{Base: at, Len: len(part)}
	n, _, errno := unix.Syscall6(unix.SYS_PROCESS_VM_READV, uintptr(pid), uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	return errno == 0 && int(n) == len(part)
}
