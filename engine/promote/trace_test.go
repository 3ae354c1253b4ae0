package promote_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// This file kills a program at its Nth system call, whichever it is. The program installs a
// seccomp filter on itself that notifies its tracer before each call, with the call's number
// in the message; so its start-up is not counted and runs at full speed.

// runtimes are the calls of Go's runtime: memory, threads, clocks and signals. They change
// nothing on disk, and their number varies.
const runtimes = `futex nanosleep clock_nanosleep madvise mmap munmap mprotect sched_yield sched_getaffinity rt_sigreturn rt_sigprocmask
	rt_sigaction sigaltstack tgkill getpid gettid epoll_pwait epoll_ctl epoll_create1 eventfd2 clone clone3 set_robust_list rseq prctl exit
	exit_group getrandom clock_gettime restart_syscall prlimit64 mincore geteuid getuid getegid getgid getgroups`

// reads change nothing either: a kill before one leaves the same state as a kill before the
// next call that does. (openat creates files here, openat2 never does.)
const reads = `statx fstat newfstatat listxattr listxattrat llistxattr flistxattr getxattr getxattrat lgetxattr fgetxattr fcntl close lseek
	getdents64 read pread64 faccessat faccessat2 readlinkat openat2`

// traceCalls makes the kernel notify the tracer of every call of all threads from now on,
// except the named ones.
func traceCalls(but string) error {
	info, err := arch.GetInfo("")
	if err != nil {
		return err
	}
	var allowed []uint32
	for _, name := range strings.Fields(but) {
		if nr, ok := info.SyscallNames[name]; ok {
			allowed = append(allowed, uint32(nr))
		}
	}
	prog := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}} // the number is the first field of seccomp_data
	for i, nr := range allowed {
		prog = append(prog, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: uint8(len(allowed) - i + 1), K: nr})
	}
	prog = append(prog,
		unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_OR | unix.BPF_K, K: unix.SECCOMP_RET_TRACE},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_A},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	f := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&f))); errno != 0 {
		return errno
	}
	return nil
}

// killAtCall runs a program and kills it right before its nth call after traceCalls. It
// returns the name of the call, or "" if the program ended, and the number of its calls.
func killAtCall(cmd *exec.Cmd, n int) (call string, calls int, err error) {
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Ptrace = true
	if err := cmd.Start(); err != nil {
		return "", 0, err
	}
	pid, started := cmd.Process.Pid, false
	for {
		var status unix.WaitStatus
		// Wait for this thread's children only: other tests wait for theirs.
		tid, err := unix.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return call, calls, fmt.Errorf("waiting: %w", err)
		case tid == pid && !status.Stopped():
			_ = cmd.Wait() // the child is gone and its output is complete
			if call == "" && !(status.Exited() && status.ExitStatus() == 0) {
				err = fmt.Errorf("it ended with %#x: %s", uint32(status), out.String())
			}
			return call, calls, err
		case !status.Stopped():
			continue // another thread has ended
		}
		deliver := 0
		switch event := status.TrapCause(); {
		case !started:
			started = true
			err = unix.PtraceSetOptions(tid, unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACESECCOMP|unix.PTRACE_O_EXITKILL)
		case event == unix.PTRACE_EVENT_SECCOMP:
			if calls++; calls == n {
				nr, err := unix.PtraceGetEventMsg(tid)
				if err != nil {
					return "", calls, err
				}
				call = callName(int(nr))
				if err := unix.Kill(pid, unix.SIGKILL); err != nil {
					return call, calls, err
				}
				continue
			}
		case event > 0, status.StopSignal() == unix.SIGSTOP: // a new thread
		default:
			deliver = int(status.StopSignal())
		}
		if err == nil {
			err = unix.PtraceCont(tid, deliver)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) { // it was killed
			return call, calls, fmt.Errorf("tracing: %w", err)
		}
	}
}

func callName(nr int) string {
	if info, err := arch.GetInfo(""); err == nil {
		if name, ok := info.SyscallNumbers[nr]; ok {
			return name
		}
	}
	return fmt.Sprint("call ", nr)
}

// tally counts calls by name.
type tally map[string]int

func (c tally) String() string {
	var b strings.Builder
	total := 0
	for _, name := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&b, " %s %d", name, c[name])
		total += c[name]
	}
	return fmt.Sprintf("%d calls:%s", total, b.String())
}
