//go:build linux

package isolate

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cloneArgs is struct clone_args of linux/sched.h, its first 88 bytes.
type cloneArgs struct {
	flags, pidfd uint64
	_, _         uint64 // where to put thread ids
	exitSignal   uint64
	_, _, _      uint64 // the stack, its size, thread-local storage
	_, _         uint64 // process ids to take
	group        uint64 // the cgroup
}

// fork is in run_*.s.
//
//go:noescape
func fork(args *cloneArgs, size, first, head uintptr) (pid, thread int)

// start forks a process with its own copy of this one's memory, but for the
// heap, and of its descriptors, in the new namespaces that flags name, which
// works through the image from the step first on. It is a child of this process,
// and thread is the number of the thread that made it. group is the descriptor
// of a v2 cgroup for it to begin in, or -1.
//
// The kernel must be 5.5 or later. Cost: 0.15 ms for a small Go program, and
// what the namespaces take.
func (im *image) start(first step, flags uint64, group int) (pid, pidfd, thread int, err error) {
	const clearSighand = 1 << 32 // CLONE_CLEAR_SIGHAND of linux/sched.h
	fd := im.newCell(-1)
	if im.err != nil {
		return 0, -1, 0, im.err
	}
	args := cloneArgs{
		flags:      flags | clearSighand | unix.CLONE_PIDFD,
		pidfd:      im.addr(int(fd)),
		exitSignal: uint64(unix.SIGCHLD),
	}
	if group >= 0 {
		args.flags |= unix.CLONE_INTO_CGROUP
		args.group = uint64(group)
	}
	syscall.ForkLock.Lock() // another process may need the heap
	defer syscall.ForkLock.Unlock()
	heap := arenaOf(im)
	heap.advise(unix.MADV_DONTFORK)
	pid, thread = fork(&args, unsafe.Sizeof(args), uintptr(im.addr(first.at)), uintptr(im.addr(0)))
	heap.advise(unix.MADV_DOFORK)
	if pid < 0 {
		return 0, -1, 0, syscall.Errno(-pid)
	}
	return pid, im.get(fd), thread, nil
}

// An arena is the 64 MB of addresses that Go's heap grows in first, stacks
// included. The forked process uses neither: without a copy of them, the fork is
// quicker, what the keeper writes to afterwards need not be copied page by page,
// and pid 1 holds nothing of what the keeper has in memory.
type arena uintptr

const arenaSize = 64 << 20 // heapArenaBytes of runtime/malloc.go, for 64 bits

// arenaOf is the arena that an object lies in.
func arenaOf(object *image) arena { return arena(uintptr(unsafe.Pointer(object)) &^ (arenaSize - 1)) }

// advise tells the kernel about what is mapped of the arena. Where that does not
// work, the memory is copied.
func (a arena) advise(advice int) {
	syscall.RawSyscall(unix.SYS_MADVISE, uintptr(a), arenaSize, uintptr(advice)) //nolint:errcheck // see above
}
