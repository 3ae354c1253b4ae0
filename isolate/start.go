//go:build linux

package isolate

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/isolate/internal/nofile"
)

// fork starts pid 1 with the steps that precede equip. supervisor is the supervisor's end of the control
// socket. The kernel kills pid 1 when this thread ends: see [onOwnThread].
func (b *builder) fork(keeper int) (pid, pidfd int, err error) {
	b.dying()
	b.stage = "starting pid 1"
	first := b.do(unix.SYS_CLOSE, num(keeper))
	b.do(unix.SYS_SETSID)
	if b.spec.IDs == Same {
		b.maps()
	}
	b.seal()
	b.enterCgroups()
	b.unshare()
	if b.spec.Network == NetworkEdge {
		b.makeEdge()
	}
	b.await()
	forkers.mu.Lock()
	defer forkers.mu.Unlock()
	pid, pidfd, b.thread, err = b.start(first, unix.CLONE_NEWUSER|unix.CLONE_NEWNS|unix.CLONE_NEWPID, b.host.birth)
	if err != nil {
		return 0, -1, cloneError(err)
	}
	forkers.count(b.thread, 1)
	return pid, pidfd, nil
}

// equip maps the ids of pid 1 and adds the steps that create the parts that every container has.
func (b *builder) equip(pid, ctl int) error {
	if err := b.probeHost(); err != nil {
		return err
	}
	if b.spec.IDs != Same {
		if err := b.mapIDs(pid); err != nil {
			return err
		}
		b.becomeRoot()
		b.seal()
	}
	b.stage = "setting what processes inherit"
	b.p1.umask = b.newCell(0)
	b.do(unix.SYS_UMASK, num(0)).to(b.p1.umask)
	if b.spec.Network != NetworkHost {
		b.loopback()
	}
	b.private = b.makePrivate()
	b.receivePremounts()
	if b.err != nil {
		return planError(b.err)
	}
	return b.resume(ctl, nil)
}

// complete adds the rest of the image: the trees of spec, the privileges that pid 1 drops, its main loop, and
// the start of the command unless command is nil. streams are the command's descriptors in pid 1.
func (b *builder) complete(spec Spec, command *Command, streams []int) (launch, error) {
	b.spec = spec
	if err := b.setRlimits(spec.Rlimits); err != nil {
		return launch{}, err
	}
	last := b.last
	b.newInbox()
	b.p1.pts = freeNumber(slices.Concat(streams, []int{b.p1.ctl}))
	b.serve()
	b.last = last

	b.planPremounts()
	if spec.Hostname != "" {
		b.stage = "setting the host name"
		b.do(unix.SYS_SETHOSTNAME, b.str(spec.Hostname), num(len(spec.Hostname)))
	}
	b.tree()
	b.sendRoot()
	b.stage = "keeping the terminals"
	b.do(unix.SYS_DUP3, b.of(b.private.pts), num(b.p1.pts), num(unix.O_CLOEXEC)).quiet(unix.EINVAL)
	b.closeAll(slices.Concat(streams, []int{b.p1.ctl, b.p1.pts}))
	b.limit()
	b.forget()
	b.watch()
	b.giveUp()
	ready := b.jump().next(b.p1.loop)
	if command == nil {
		// The loop finds no process and first reports that the container is idle.
		return launch{}, planError(b.err)
	}
	for i, fd := range streams {
		b.put32(int(b.p1.fds[i]), uint32(fd))
	}
	begin, l := b.command(*command)
	ready.next(begin)
	return l, planError(b.err)
}

// await adds the step at which pid 1 waits for resume. The steps after it may be written meanwhile.
func (b *builder) await() {
	data := b.words(b.addr(int(b.newCell(0))), 1)
	b.receive(b.words(0, 0, data.v, 1, 0, 0, 0))
}

func (b *builder) receive(message arg) {
	b.do(unix.SYS_RECVMSG, num(b.p1.ctl), message, num(unix.MSG_CMSG_CLOEXEC)).zero(b.p1.die)
}

// resume continues pid 1 at await and sends it descriptors.
func (b *builder) resume(ctl int, fds []int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if err := unix.Sendmsg(ctl, []byte{0}, rights, nil, unix.MSG_NOSIGNAL); err != nil {
		return hostError("resuming pid 1", err)
	}
	return nil
}

// freeNumber returns the lowest number above 2 that is not in used.
func freeNumber(used []int) int {
	n := 3
	for slices.Contains(used, n) {
		n++
	}
	return n
}

// unshared are the namespaces that pid 1 creates after the fork.
var unshared = [...]struct {
	flag int
	name string
}{
	{unix.CLONE_NEWIPC, "ipc"}, {unix.CLONE_NEWUTS, "uts"}, {unix.CLONE_NEWCGROUP, "cgroup"}, {unix.CLONE_NEWNET, "net"},
}

// unshare adds the steps for these namespaces. The process is in its cgroups by then, so that its cgroup
// namespace begins there. A best effort does without namespaces that the kernel lacks, but never without the
// network namespace.
func (b *builder) unshare() {
	b.stage = "making namespaces"
	all := 0
	for _, ns := range unshared {
		switch {
		case ns.flag == unix.CLONE_NEWNET && b.spec.Network == NetworkHost:
		case ns.flag != unix.CLONE_NEWNET && b.spec.BestEffort:
			b.optional("namespace "+ns.name, b.do(unix.SYS_UNSHARE, num(ns.flag)))
		default:
			all |= ns.flag
		}
	}
	b.do(unix.SYS_UNSHARE, num(all))
}

// limit adds the step that restores the limit of open files that the supervisor was started with. Earlier steps
// of pid 1 may need more.
func (b *builder) limit() {
	b.stage = "setting limits"
	if limit, ok := nofile.Given(); ok {
		b.do(unix.SYS_PRLIMIT64, num(0), num(unix.RLIMIT_NOFILE), b.words(limit.Cur, limit.Max), num(0))
	}
}

// tree adds the steps that assemble the container's file tree.
func (b *builder) tree() {
	b.makeTrees()
	b.makeShared()
	b.pivot()
	b.stage = "attaching the trees"
	pins := b.spec.pins()
	b.pin(pins[0])
	for i, m := range b.spec.Mounts[1:] {
		if !underPrivate(m.Target) {
			b.attachTree(i + 1)
			b.pin(pins[i+1])
		}
	}
	for _, f := range b.files {
		b.attach(b.of(f.mount), f.to, false).quiet(unix.EBUSY, unix.EBADF)
	}
	b.attachPrivate(&b.private)
	b.stage = "attaching the trees"
	for i, m := range b.spec.Mounts[1:] {
		if underPrivate(m.Target) {
			b.makeDirs(m.Target)
			b.attachTree(i + 1)
			b.pin(pins[i+1])
		}
	}
	b.attachServers()
	b.readOnly()
	b.hide()
}

// underPrivate reports whether target is below a directory that every container has of its own. Such a target
// must be attached after that directory, which would cover it otherwise.
func underPrivate(target string) bool {
	for _, dir := range [...]string{"/proc/", "/sys/", "/dev/", "/run/", "/tmp/"} {
		if strings.HasPrefix(target, dir) {
			return true
		}
	}
	return false
}

// makeDirs adds the steps that create target and its parents in a directory of the container's own.
func (b *builder) makeDirs(target string) {
	for i := 1; i < len(target); i++ {
		if target[i] == '/' {
			b.do(unix.SYS_MKDIRAT, num(unix.AT_FDCWD), b.str(target[:i]), num(0o755)).path(target[:i]).quiet(unix.EEXIST)
		}
	}
	b.do(unix.SYS_MKDIRAT, num(unix.AT_FDCWD), b.str(target), num(0o755)).path(target).quiet(unix.EEXIST)
}

// sendRoot adds the step that sends the root of the container's tree and its TUN device to the supervisor.
func (b *builder) sendRoot() {
	b.stage = "handing over the root"
	own := []cell{b.trees[0]}
	if b.spec.Network == NetworkEdge {
		own = append(own, b.edge)
	}
	msg, _, _, _, fds := b.message(reportRoot, len(own))
	for i, c := range own {
		b.do(look, b.of(c)).to(fds[i])
	}
	b.do(unix.SYS_SENDMSG, num(b.p1.ctl), msg, num(unix.MSG_NOSIGNAL))
}
