//go:build linux

package launch

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cloneArgs is the argument of clone3(2): the first 88 bytes of struct clone_args of linux/sched.h.
type cloneArgs struct {
	flags, pidfd uint64
	_, _         uint64 // child_tid, parent_tid
	exitSignal   uint64
	_, _, _      uint64 // stack, stack_size, tls
	_, _         uint64 // set_tid, set_tid_size
	group        uint64 // descriptor of the cgroup
}

// fork calls clone3 with args, size bytes long. In the child it executes the image, whose first byte is at the
// address head, from the step at the address first on. It is implemented in run_*.s.
//
//go:noescape
func fork(args *cloneArgs, size, first, head uintptr) (pid, thread int)

// Start forks a process that executes the image's system calls from step first on, in new namespaces as flags
// (CLONE_NEW*) say. The process has copies of this process's descriptors and memory, except the heap, and is
// its child; thread is the thread that forked it. group is the descriptor of a v2 cgroup to create it in, or
// -1.
//
// Needs Linux 5.5. Cost: 0.15 ms for a small Go program, plus the namespaces.
func (im *Image) Start(first Step, flags uint64, group int) (pid, pidfd, thread int, err error) {
	const clearSighand = 1 << 32 // CLONE_CLEAR_SIGHAND of linux/sched.h
	fd := im.NewCell(-1)
	if im.Err != nil {
		return 0, -1, 0, im.Err
	}
	args := cloneArgs{
		flags:      flags | clearSighand | unix.CLONE_PIDFD,
		pidfd:      im.Addr(int(fd)),
		exitSignal: uint64(unix.SIGCHLD),
	}
	if group >= 0 {
		args.flags |= unix.CLONE_INTO_CGROUP
		args.group = uint64(group)
	}
	syscall.ForkLock.Lock() // another forked process may need this memory
	defer syscall.ForkLock.Unlock()
	unused := unusedMemory(im)
	advise(unused, unix.MADV_DONTFORK)
	pid, thread = fork(&args, unsafe.Sizeof(args), uintptr(im.Addr(first.At)), uintptr(im.Addr(0)))
	advise(unused, unix.MADV_DOFORK)
	if pid < 0 {
		return 0, -1, 0, syscall.Errno(-pid)
	}
	return pid, im.Get(fd), thread, nil
}
