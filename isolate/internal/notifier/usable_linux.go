package notifier

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Usable reports whether the filter of [Program] can be loaded here with [Flags]: the kernel knows the flags, and no
// program outside observes the system calls of this process, since there is only one observer. Cost: two system calls.
// If another filter holds for this process, Usable also starts a thread, which loads a filter that stops nothing, and
// which stays.
func Usable() bool {
	if mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err == nil && mode == 0 { // no filter, so no observer
		return load(nil) == unix.EFAULT // the kernel looks at the flags before it reads the program (seccomp(2))
	}
	loaded := make(chan bool)
	go func() {
		runtime.LockOSThread() // for good: nothing else may run on the thread that has the filter
		code := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}
		if os.Geteuid() != 0 {
			unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) //nolint:errcheck // without it there is no filter
		}
		loaded <- load(&unix.SockFprog{Len: 1, Filter: &code[0]}) == 0
		select {} // a thread that ends sends their parent-death signal to the processes that it has started
	}()
	return <-loaded
}

// load loads a filter program for the calling thread with [Flags], and closes the descriptor that reports its calls.
func load(program *unix.SockFprog) unix.Errno {
	listener, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, Flags, uintptr(unsafe.Pointer(program)))
	if errno == 0 {
		unix.Close(int(listener))
	}
	return errno
}
