//go:build linux

package isolate

import (
	"context"
	"errors"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/isolate/internal/nofile"
	"github.com/snapfs/snapfs/isolate/internal/sysv"
	"github.com/snapfs/snapfs/isolate/landlock"
	"github.com/snapfs/snapfs/isolate/launch"
	"github.com/snapfs/snapfs/isolate/stub"
)

// fork forks pid 1, which executes the system calls that need nothing but the spec, up to a point at which it
// waits for those that equip adds. supervisor is the supervisor's end of the control socket, which pid 1
// closes, and all else that it has of the supervisor if waits is set. The kernel kills pid 1 when this thread ends.
func (b *builder) fork(supervisor int, waits bool) (pid, pidfd int, err error) {
	b.dying()
	b.Stage = "starting pid 1"
	first := b.Do(unix.SYS_CLOSE, launch.Num(supervisor))
	b.Do(unix.SYS_SETSID)
	if b.spec.IDs == Same {
		b.maps()
	}
	b.seal()
	b.enterCgroups()
	b.unshare()
	if b.spec.Network == NetworkEdge {
		b.makeEdge()
	} else if waits {
		b.Do(unix.SYS_CLOSE_RANGE, launch.Num(3), launch.Num(b.p1.ctl-1), launch.Num(0)).IgnoreErrors() // none is fine
		b.Do(unix.SYS_CLOSE_RANGE, launch.Num(b.p1.ctl+1), launch.Num(^uint32(0)), launch.Num(0))
	}
	b.await()
	pid, pidfd, b.thread, err = b.StartPID1(first, unix.CLONE_NEWUSER|unix.CLONE_NEWPID, b.host.birth)
	if err != nil {
		return 0, -1, cloneError(err)
	}
	return pid, pidfd, nil
}

// equip maps the ids of pid 1, whose process id is pid, and adds the system calls that make its mount namespace and
// create the parts that every container has. ctl is the supervisor's end of the control socket.
func (b *builder) equip(pid, ctl int) error {
	b.host.landlock = landlock.ABI() // here, as what LookAround finds: only steps after the fork need it
	if err := b.LookAround(); err != nil {
		return err
	}
	b.Stage = "making namespaces"
	b.Do(unix.SYS_UNSHARE, launch.Num(unix.CLONE_NEWNS))
	if b.spec.IDs != Same {
		if err := b.MapIDs(pid); err != nil {
			return err
		}
		b.becomeRoot()
		b.seal()
	}
	b.Stage = "setting what processes inherit"
	b.p1.umask = b.NewCell(0)
	b.Do(unix.SYS_UMASK, launch.Num(0)).To(b.p1.umask)
	if b.spec.Network != NetworkHost {
		b.loopback()
	}
	b.MakePrivate()
	b.Stage = "receiving the mounts"
	b.receive(b.PremountMessage())
	if b.Err != nil {
		return planError(b.Err)
	}
	return b.resume(ctl, nil)
}

// complete adds the rest of pid 1's system calls to the image: for the trees of spec, the privileges that pid
// 1 drops, its main loop, and the start of the command unless command is nil. streams are the command's
// descriptors in pid 1.
func (b *builder) complete(spec Spec, command *Command, streams []int) (execResult, error) {
	b.spec, b.Planner.Spec = spec, spec.trees()
	var err error
	if len(spec.Guarded) > 0 {
		b.Planner.Spec.Stub, err = stub.Program()
	}
	if err := errors.Join(err, b.setRlimits(spec.Rlimits), b.spec.landlock().Check(b.host.landlock, b.spec.writableTrees())); err != nil {
		return execResult{}, err
	}
	last := b.Last
	b.newInbox()
	b.p1.pts = freeNumber(slices.Concat(streams, []int{b.p1.ctl}))
	b.serve()
	b.Last = last

	b.PlanPremounts()
	if spec.Hostname != "" {
		b.Stage = "setting the host name"
		b.Do(unix.SYS_SETHOSTNAME, b.Str(spec.Hostname), launch.Num(len(spec.Hostname)))
	}
	b.Assemble()
	b.sendRoot()
	b.Stage = "keeping the terminals"
	b.Do(unix.SYS_DUP3, b.Of(b.Terminals()), launch.Num(b.p1.pts), launch.Num(unix.O_CLOEXEC)).Tolerate(unix.EINVAL)
	b.closeAll(slices.Concat(streams, []int{b.p1.ctl, b.p1.pts}, b.GuardedFDs()))
	b.limit()
	b.forget()
	b.watch()
	b.giveUp()
	ready := b.Jump().Next(b.p1.loop)
	if command == nil {
		// The loop finds no process and first reports that the container is idle.
		return execResult{}, planError(b.Err)
	}
	for i, fd := range streams {
		b.Put32(int(b.p1.fds[i]), uint32(fd))
	}
	begin, l := b.command(*command)
	ready.Next(begin)
	return l, planError(b.Err)
}

// await adds a system call at which pid 1 waits until the supervisor calls resume. Meanwhile the supervisor
// may write the system calls that follow.
func (b *builder) await() {
	data := b.Words(b.Addr(int(b.NewCell(0))), 1)
	b.receive(b.Words(0, 0, data.V, 1, 0, 0, 0))
}

func (b *builder) receive(message launch.Arg) {
	b.Do(unix.SYS_RECVMSG, launch.Num(b.p1.ctl), message, launch.Num(unix.MSG_CMSG_CLOEXEC)).Zero(b.p1.die)
}

// resume makes pid 1 continue after the system call that await added. It sends pid 1 the descriptors fds
// through the control socket ctl.
func (b *builder) resume(ctl int, fds []int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if err := unix.Sendmsg(ctl, []byte{0}, rights, nil, unix.MSG_NOSIGNAL); err != nil {
		return launch.HostError("resuming pid 1", err)
	}
	return nil
}

// sendPremounts makes those mounts of the container that pid 1 lacks the privilege to make, such as id-mapped
// ones, and sends their descriptors through the control socket ctl to pid 1, which waits for them.
func (b *builder) sendPremounts(ctx context.Context, ctl int) error {
	fds, err := b.MakePremounts(ctx)
	if err == nil {
		err = b.resume(ctl, fds)
	}
	runtime.KeepAlive(b.CloseLater)
	return err
}

// freeNumber returns the lowest descriptor number above 2 that is not in used, for a file that pid 1 must
// have under a known number.
func freeNumber(used []int) int {
	n := 3
	for slices.Contains(used, n) {
		n++
	}
	return n
}

// unshared lists the namespaces of a container that pid 1 creates itself after its fork, with their names in
// /proc/PID/ns.
var unshared = [...]struct {
	flag int
	name string
}{
	{unix.CLONE_NEWIPC, "ipc"}, {unix.CLONE_NEWUTS, "uts"}, {unix.CLONE_NEWCGROUP, "cgroup"}, {unix.CLONE_NEWNET, "net"},
}

// unshare adds the system calls by which pid 1 creates the namespaces in unshared. It is in its cgroups by
// then, so that its cgroup namespace begins there. A best effort does without namespaces that the kernel
// lacks, but never without the network namespace.
func (b *builder) unshare() {
	b.Stage = "making namespaces"
	all := 0
	for _, ns := range unshared {
		switch {
		case ns.flag == unix.CLONE_NEWNET && b.spec.Network == NetworkHost:
		case ns.flag != unix.CLONE_NEWNET && b.spec.BestEffort:
			b.optional("namespace "+ns.name, b.Do(unix.SYS_UNSHARE, launch.Num(ns.flag)))
		default:
			all |= ns.flag
		}
	}
	b.Do(unix.SYS_UNSHARE, launch.Num(all))
}

// limit adds the system call by which pid 1 restores the limit of open files that the supervisor was started
// with. Earlier steps may need more.
func (b *builder) limit() {
	b.Stage = "setting limits"
	if limit, ok := nofile.Given(); ok {
		b.Do(unix.SYS_PRLIMIT64, launch.Num(0), launch.Num(unix.RLIMIT_NOFILE), b.Words(limit.Cur, limit.Max), launch.Num(0))
	}
}

// sendRoot adds the system calls by which pid 1 sends the supervisor the descriptors of the container's root
// directory, of its TUN device, and of the lists of its System V objects. A best effort, which may share the host's
// IPC namespace, and a kernel without such objects have no lists.
func (b *builder) sendRoot() {
	b.Stage = "handing over the root"
	own := []launch.Cell{b.RootTree()}
	if b.spec.Network == NetworkEdge {
		own = append(own, b.edge)
	}
	if !b.spec.BestEffort && unix.Access("/proc/"+sysv.Files[0], unix.R_OK) == nil {
		for _, name := range sysv.Files {
			own = append(own, b.Do(unix.SYS_OPENAT, b.Of(b.Proc()), b.Str(name), launch.Num(unix.O_RDONLY|unix.O_CLOEXEC)).Path("/proc/"+name).Result())
		}
	}
	msg, _, _, _, fds := b.Message(reportRoot, len(own))
	for i, c := range own {
		b.Do(launch.Load, b.Of(c)).To(fds[i])
	}
	b.Do(unix.SYS_SENDMSG, launch.Num(b.p1.ctl), msg, launch.Num(unix.MSG_NOSIGNAL))
}
