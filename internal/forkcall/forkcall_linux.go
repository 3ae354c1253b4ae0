package forkcall

import (
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Program is a list of system calls that a forked child makes, in namespaces of its own. The child runs
// without Go's runtime, so it can neither allocate nor schedule. All arguments are prepared before the fork.
type Program struct {
	ops  []operation
	keep []any // what the operations point to
}

type operation struct {
	name string
	nr   uintptr
	args [6]uintptr
}

// A Slot stands for the result of a system call of a [Program], such as a descriptor. As an argument of a
// later call it is replaced by that result.
type Slot int

const slotMark = uintptr(0x80) << 56 // no pointer, flag or descriptor begins so

// Call adds the system call with the number nr to the program, and returns the slot of its result. Arguments
// are int, string, Slot or unsafe.Pointer, whose target the program keeps alive. name appears in errors.
func (p *Program) Call(name string, nr uintptr, args ...any) Slot {
	op := operation{name: name, nr: nr}
	for i, arg := range args {
		switch v := arg.(type) {
		case int:
			op.args[i] = uintptr(v)
		case string:
			b := append([]byte(v), 0)
			p.keep = append(p.keep, b)
			op.args[i] = uintptr(unsafe.Pointer(&b[0]))
		case unsafe.Pointer:
			p.keep = append(p.keep, v)
			op.args[i] = uintptr(v)
		case Slot:
			op.args[i] = slotMark | uintptr(v)
		}
	}
	p.ops = append(p.ops, op)
	return Slot(len(p.ops) - 1)
}

// Write adds to the program the system calls that open the existing file path, write text to it and close it.
func (p *Program) Write(path, text string) {
	fd := p.Call("open "+path, unix.SYS_OPENAT, unix.AT_FDCWD, path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	p.Call("write "+path, unix.SYS_WRITE, fd, text, len(text))
	p.Call("close", unix.SYS_CLOSE, fd)
}

// An outcome is memory that the parent shares with the forked child, in which the child writes the result of
// each system call and the first error.
type outcome struct {
	done   uintptr // operations that succeeded
	errno  uintptr
	result [64]uintptr
}

// Run forks with the CLONE_* flags, makes the program's system calls in the child, and waits for the child to
// exit. After an error, failed is the name of the system call that failed, or "clone". Cost: half a
// millisecond.
func (p *Program) Run(flags uintptr) (failed string, err error) {
	_, failed, err = p.Results(flags)
	return failed, err
}

// Results runs the program as Run does, and also returns the result of each system call. With CLONE_FILES,
// descriptors that the child opened are open in this process; after an error Results closes them.
func (p *Program) Results(flags uintptr) (result [64]uintptr, failed string, err error) {
	mem, err := unix.Mmap(-1, 0, int(unsafe.Sizeof(outcome{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
	if err != nil {
		return result, "mmap", err
	}
	defer func() { _ = unix.Munmap(mem) }()
	out := (*outcome)(unsafe.Pointer(&mem[0]))
	pid, errno := fork(flags, p.ops, out)
	runtime.KeepAlive(p)
	if errno != 0 {
		return result, "clone", errno
	}
	reap(pid)
	if flags&unix.CLONE_FILES != 0 && int(out.done) < len(p.ops) {
		p.closeOpened(out)
	}
	switch {
	case out.errno != 0:
		return result, p.ops[out.done].name, unix.Errno(out.errno)
	case int(out.done) < len(p.ops):
		return result, p.ops[out.done].name, unix.EINTR // killed
	}
	return out.result, "", nil
}

// closeOpened closes the descriptors that the child's successful system calls have opened, after a later one
// has failed.
func (p *Program) closeOpened(out *outcome) {
	opened := map[uintptr]bool{}
	for i, op := range p.ops[:out.done] {
		switch op.nr {
		case unix.SYS_OPENAT, unix.SYS_FSOPEN, unix.SYS_FSMOUNT:
			opened[slotMark|uintptr(i)] = true
		case unix.SYS_CLOSE:
			delete(opened, op.args[0])
		}
	}
	for s := range opened {
		unix.Close(int(out.result[s&0x3f]))
	}
}

// fork forks like package syscall, without the exec, and returns the child's pid. The child makes the system
// calls ops and writes their results to out. Three hooks of Go's runtime block signals in the child until its
// handlers are reset.
func fork(flags uintptr, ops []operation, out *outcome) (int, unix.Errno) {
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, errno := forkAndRun(flags|uintptr(unix.SIGCHLD), ops, out)
	runtimeAfterFork()
	return int(pid), errno
}

//go:noinline
//go:norace
func forkAndRun(flags uintptr, ops []operation, out *outcome) (uintptr, unix.Errno) {
	runtimeBeforeFork()
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, flags, 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	runtimeAfterForkInChild()
	execute(ops, out)
	for {
		_, _, _ = unix.RawSyscall6(unix.SYS_EXIT_GROUP, 0, 0, 0, 0, 0, 0)
	}
}

//go:nosplit
//go:norace
func execute(ops []operation, out *outcome) {
	for i := range ops {
		op := &ops[i]
		for j := range op.args {
			if op.args[j]&slotMark == slotMark && op.args[j]>>56 == 0x80 {
				op.args[j] = out.result[op.args[j]&0x3f]
			}
		}
		r, _, errno := unix.RawSyscall6(op.nr, op.args[0], op.args[1], op.args[2], op.args[3], op.args[4], op.args[5])
		if errno != 0 {
			out.errno = uintptr(errno)
			return
		}
		out.result[i&0x3f] = r
		out.done++
	}
}

//go:linkname runtimeBeforeFork syscall.runtime_BeforeFork
func runtimeBeforeFork()

//go:linkname runtimeAfterFork syscall.runtime_AfterFork
func runtimeAfterFork()

//go:linkname runtimeAfterForkInChild syscall.runtime_AfterForkInChild
func runtimeAfterForkInChild()

// NewUserNamespace makes a user namespace without a process, for id-mapped mounts. It returns the namespace's
// descriptor, which keeps it alive; the caller closes it. uidMap and gidMap have the format of
// /proc/PID/uid_map (user_namespaces(7)); mapping other ids than the caller's needs root. Cost: half a
// millisecond.
func NewUserNamespace(uidMap, gidMap string) (*os.File, error) {
	var p Program
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe", err)
	}
	defer unix.Close(pipe[0])
	var b [1]byte
	p.Call("close", unix.SYS_CLOSE, pipe[1])
	p.Call("read", unix.SYS_READ, pipe[0], unsafe.Pointer(&b[0]), 1) // until the other end is closed
	var out outcome
	pid, errno := fork(unix.CLONE_NEWUSER, p.ops, &out)
	runtime.KeepAlive(&p)
	if errno != 0 {
		unix.Close(pipe[1])
		return nil, os.NewSyscallError("clone", errno)
	}
	ns, err := mapIDs("/proc/"+strconv.Itoa(pid), uidMap, gidMap)
	unix.Close(pipe[1])
	reap(pid)
	return ns, err
}

func reap(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
			return
		}
	}
}

func mapIDs(proc, uidMap, gidMap string) (*os.File, error) {
	if os.Geteuid() != 0 {
		if err := os.WriteFile(proc+"/setgroups", []byte("deny"), 0); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(proc+"/gid_map", []byte(gidMap), 0); err != nil {
		return nil, err
	}
	if err := os.WriteFile(proc+"/uid_map", []byte(uidMap), 0); err != nil {
		return nil, err
	}
	return os.Open(proc + "/ns/user")
}
