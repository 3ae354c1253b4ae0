//go:build linux

package isolate

import (
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/isolate/internal/notifier"
	"github.com/snapfs/snapfs/isolate/launch"
)

// Observes reports whether system calls can be observed here for [Spec.Observe]: this kernel can, and no program
// outside observes those of this process, since there is only one observer. Cost: at the first call two system calls,
// and a thread if a seccomp filter holds for this process.
var Observes = sync.OnceValue(notifier.Usable)

// observeCalls adds the system calls by which pid 1 loads a second seccomp filter, that of package notifier,
// and sends its descriptor to the supervisor, which then observes the calls of processes on files
// ([Spec.Observe]). The container's first filter decides before it, and a call that it refuses is not
// observed.
func (b *builder) observeCalls() {
	if b.spec.Observe == nil {
		return
	}
	b.Stage = "observing system calls"
	code, n := notifier.Program(b.spec.Observe.acts())
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

// acts returns the acts of system calls that the kernel reports to the supervisor.
func (o *Observer) acts() (acts notifier.Act) {
	if o.Files {
		acts |= notifier.Look
	}
	if o.Programs {
		acts |= notifier.Execute
	}
	if o.Writes {
		acts |= notifier.Write
	}
	if o.Reads {
		acts |= notifier.Read
	}
	if o.Moves {
		acts |= notifier.Move
	}
	return acts
}

// observe starts a goroutine that passes each system call observed in the container to [Spec.Observe], until the
// container has ended. The goroutine holds the container's root open, so [Container.end] waits for it: otherwise the
// filesystem of the root would still be in use after the end. listener is the descriptor of the seccomp filter that
// reports the calls. The caller holds c.mu.
func (c *Container) observe(listener int) {
	root, err := unix.Openat(c.root, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		root = -1 // no program is observed, no read and no write
	}
	observer, tree := c.builder.spec.Observe, notifier.NewTree(root)
	c.observing.Go(func() {
		notifier.Serve(listener, observer.acts(), func(call notifier.Call) bool { return c.observeCall(tree, call) })
		tree.Close()
		if root >= 0 {
			unix.Close(root)
		}
	})
}

// observeCall passes one observed system call to [Spec.Observe], with its paths in the container's tree. It returns
// false if the call must fail.
func (c *Container) observeCall(tree *notifier.Tree, call notifier.Call) bool {
	o := Observed{PID: call.PID}
	switch call.Act {
	case notifier.Look:
		o.Act, o.Path = ActLookup, call.Path
	case notifier.Execute:
		return c.observeProgram(tree, call.PID, call.Program(tree))
	case notifier.Read:
		o.Act, o.Path = ActRead, call.Read(tree)
	case notifier.Move:
		o.Act = ActMove
		o.Path, o.To = call.Moved(tree)
	case notifier.SetAttr:
		o.Act, o.Path = ActSetAttr, call.Written(tree)
	default:
		o.Act, o.Path = ActWrite, call.Written(tree)
	}
	return o.Path == "" || c.builder.spec.Observe.Call(o)
}

// observeProgram reports to [Spec.Observe] that the process pid of the host executes the program at a path in the
// container's tree, and the interpreters that the kernel starts for it. It returns false if the execution must fail.
func (c *Container) observeProgram(tree *notifier.Tree, pid int, path string) bool {
	all := true
	for _, program := range tree.Programs(path) {
		all = c.builder.spec.Observe.Call(Observed{PID: pid, Act: ActExec, Path: program}) && all
	}
	return all
}

// observeStart reports to [Spec.Observe] the program at path, relative to dir, of a command that pid 1 has
// just started. The seccomp filter that reports other programs cannot report this one: no other process may
// read the memory of the process that became the command.
func (c *Container) observeStart(p *Process, path, dir string) {
	if o := c.builder.spec.Observe; o == nil || !o.Programs {
		return
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	tree := notifier.NewTree(c.root)
	defer tree.Close()
	c.observeProgram(tree, p.HostPID(), path)
}
