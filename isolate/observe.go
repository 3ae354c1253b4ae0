//go:build linux

package isolate

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate/internal/notifier"
	"github.com/snapfs/snapfs/isolate/launch"
)

// Observes reports whether this kernel lets a supervisor observe which files and programs the processes of a
// container open, as [Spec.Observe] requests. Cost: one system call.
func Observes() bool {
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, notifier.Flags, 0) // without a filter
	return errno == unix.EFAULT
}

// observeCalls adds the system calls by which pid 1 loads a second seccomp filter, that of package notifier,
// and sends its descriptor to the supervisor, which then observes the files and programs that processes open
// ([Spec.Observe]). The container's first filter decides before it, and a call that it refuses is not
// observed.
func (b *builder) observeCalls() {
	if b.spec.Observe == nil {
		return
	}
	b.Stage = "observing system calls"
	code, n := notifier.Program(b.spec.ObserveExec)
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

// observe starts a goroutine that passes each system call observed in the container, the opening of a file or
// the execution of a program, to [Spec.Observe], until the container has ended. listener is the descriptor of
// the seccomp filter that reports the calls. The caller holds c.mu.
func (c *Container) observe(listener int) {
	root, err := unix.Openat(c.root, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		root = -1 // no program is observed
	}
	observed := c.builder.spec.Observe
	go func() {
		notifier.Serve(listener, func(pid int, path string, exec bool) {
			if !exec {
				observed(Observed{PID: pid, Path: path})
				return
			}
			for _, program := range programsAt(root, path) {
				observed(Observed{PID: pid, Path: program, Exec: true})
			}
		})
		if root >= 0 {
			unix.Close(root)
		}
	}()
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
	f, err := os.Open(vfs.PathTo(fd))
	if err != nil {
		return "" // it may be executed and not read
	}
	defer f.Close()
	var head [256]byte
	n, _ := f.Read(head[:]) // 0 for an empty file
	line, script := strings.CutPrefix(string(head[:n]), "#!")
	words := strings.Fields(strings.SplitN(line, "\n", 2)[0])
	if !script || len(words) == 0 || words[0][0] != '/' {
		return ""
	}
	return words[0]
}
