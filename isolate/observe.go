//go:build linux

package isolate

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate/internal/notifier"
	"github.com/snapfs/snapfs/isolate/launch"
)

// Observes reports whether system calls can be observed here for [Spec.Observe]: this kernel can, and no program
// outside observes those of this process, since there is only one observer. Cost: at the first call a thread, which
// loads a filter that stops nothing.
var Observes = sync.OnceValue(func() bool {
	loaded := make(chan bool)
	go func() {
		runtime.LockOSThread() // for good: nothing else may run on the thread that has the filter
		code := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}
		program := unix.SockFprog{Len: 1, Filter: &code[0]}
		if os.Geteuid() != 0 {
			unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) //nolint:errcheck // without it there is no filter
		}
		listener, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, notifier.Flags, uintptr(unsafe.Pointer(&program)))
		if errno == 0 {
			unix.Close(int(listener))
		}
		loaded <- errno == 0
		select {} // a thread that ends sends their parent-death signal to the processes that it has started
	}()
	return <-loaded
})

// observeCalls adds the system calls by which pid 1 loads a second seccomp filter, that of package notifier,
// and sends its descriptor to the supervisor, which then observes the calls of processes on files
// ([Spec.Observe]). The container's first filter decides before it, and a call that it refuses is not
// observed.
func (b *builder) observeCalls() {
	if b.spec.Observe == nil {
		return
	}
	b.Stage = "observing system calls"
	code, n := notifier.Program(b.spec.observedActs())
	at := b.Bytes(code...)
	program := b.Take(16)
	b.Put32(program, uint32(n))
	b.Put64(program+8, at.V)
	listener := b.Do(unix.SYS_SECCOMP, launch.Num(unix.SECCOMP_SET_MODE_FILTER), launch.Num(notifier.Flags), launch.Num(b.Addr(program))).Result()
	msg, _, _, _, fds := b.Message(reportObserver, 1)
	b.Do(launch.Load, b.Of(listener)).To(fds[0])
	b.Do(unix.SYS_SENDMSG, launch.Num(b.p1.ctl), msg, launch.Num(unix.MSG_NOSIGNAL))
	b.Do(unix.SYS_CLOSE, b.Of(listener))
}

// observedActs returns the acts of system calls that the kernel reports to the supervisor.
func (s Spec) observedActs() (acts notifier.Act) {
	if s.ObserveFiles {
		acts |= notifier.Look
	}
	if s.ObservePrograms {
		acts |= notifier.Execute
	}
	if s.ObserveWrites {
		acts |= notifier.Write
	}
	return acts
}

// observe starts a goroutine that passes each system call observed in the container to [Spec.Observe], until the
// container has ended. listener is the descriptor of the seccomp filter that reports the calls. The caller holds
// c.mu.
func (c *Container) observe(listener int) {
	root, err := unix.Openat(c.root, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		root = -1 // no program is observed, and no write
	}
	spec := c.builder.spec
	go func() {
		notifier.Serve(listener, spec.observedActs(), func(call notifier.Call) {
			switch call.Act {
			case notifier.Look:
				spec.Observe(Observed{PID: call.PID, Act: Looks, Path: call.Path})
			case notifier.Execute:
				c.observeProgram(root, call.PID, call.Path)
			default:
				c.observeWrite(root, call)
			}
		})
		if root >= 0 {
			unix.Close(root)
		}
	}()
}

// observeProgram reports to [Spec.Observe] that the process pid of the host executes the program at a path in
// the container with this root, and the interpreters that the kernel starts for it.
func (c *Container) observeProgram(root, pid int, path string) {
	for _, program := range programsAt(root, path) {
		c.builder.spec.Observe(Observed{PID: pid, Act: Executes, Path: program})
	}
}

// observeWrite reports to [Spec.Observe] the file in the container with this root that a process is about to write or
// change, if the call can fail only because the file may not be written.
func (c *Container) observeWrite(root int, call notifier.Call) {
	call = call.Followed()
	for _, own := range []string{"/dev/", "/proc/"} { // which processes write to all the time, and always may
		if strings.HasPrefix(call.Path, own) {
			return
		}
	}
	act := Writes
	if call.Act == notifier.Change {
		act = Changes
	}
	if path := call.Written(root); path != "" {
		c.builder.spec.Observe(Observed{PID: call.PID, Act: act, Path: path})
	}
}

// observeStart reports to [Spec.Observe] the program at path, relative to dir, of a command that pid 1 has
// just started. The seccomp filter that reports other programs cannot report this one: no other process may
// read the memory of the process that became the command.
func (c *Container) observeStart(p *Process, path, dir string) {
	if c.builder.spec.Observe == nil || !c.builder.spec.ObservePrograms {
		return
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observeProgram(c.root, p.HostPID(), path)
}

// programsAt returns the path, after symbolic links, of a program that a process in a container executes, and
// those of the interpreters that the kernel starts for a script. It returns none if there is no such regular
// file. root is a descriptor of the container's root directory.
func programsAt(root int, path string) (programs []string) {
	const deepest = 5 // as in the kernel (bprm_execve of fs/exec.c)
	for ; path != "" && len(programs) < deepest; path = interpreter(root, path) {
		fd, real := regular(root, path)
		if fd < 0 {
			break
		}
		unix.Close(fd)
		programs = append(programs, real)
	}
	return programs
}

// regular opens a regular file of the container as O_PATH, to report which program is executed, and returns
// its path after symbolic links. root is a descriptor of the container's root directory. fd is -1 if path is
// no regular file.
func regular(root int, path string) (fd int, real string) {
	fd, err := unix.Openat2(root, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return -1, ""
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return -1, ""
	}
	if real, err = os.Readlink(vfs.PathTo(fd)); err != nil {
		real = path
	}
	return fd, real
}

// interpreter returns the path of the program that executes the script at path in the container, from its
// first line "#!"; "" if the file is no script or cannot be read.
func interpreter(root int, path string) string {
	fd, _ := regular(root, path)
	if fd < 0 {
		return ""
	}
	defer unix.Close(fd)
	file, err := unix.Open(vfs.PathTo(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0) // waits for no holder of a lease
	if err != nil {
		return "" // it may be executed and not read
	}
	defer unix.Close(file)
	var head [256]byte
	n, err := unix.Read(file, head[:])
	if err != nil {
		return ""
	}
	line, script := strings.CutPrefix(string(head[:n]), "#!")
	words := strings.Fields(strings.SplitN(line, "\n", 2)[0])
	if !script || len(words) == 0 || words[0][0] != '/' {
		return ""
	}
	return words[0]
}
