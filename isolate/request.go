//go:build linux

package isolate

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
)

// launch locates the results of a request to start a command.
type launch struct {
	name    string
	reached cell   // 1 once only execve is left
	tries   []cell // execve's error for each candidate, 0 if not tried or successful
}

// command adds the steps by which pid 1 starts a command and reports it, and returns the first of them. The
// child shares pid 1's memory until it executes the command (vfork), so its errors are found in the image.
func (b *builder) command(c Command) (first step, l launch) {
	slave, nfds := b.newCell(-1), 1 // -1 leaves a stream as /dev/null, as in pid 1
	if c.TTY != nil {
		nfds = 2
	}
	streams := c.streams(slave, b.p1.fds[:])
	started, pid, _, seq, fds := b.message(reportStarted, nfds)
	report := b.report(started, seq, streams, fds)
	refused, _, _, seq, _ := b.message(reportRefused, 0)
	refuse := b.report(refused, seq, streams, fds)

	b.stage, b.last, b.onErr = "starting the command", 0, refuse.at
	first = b.jump()
	if c.TTY != nil {
		b.terminal(c, fds[1], slave)
	}
	b.limitForks()
	fork := b.do(unix.SYS_CLONE, num(unix.CLONE_VM|unix.CLONE_VFORK|unix.CLONE_PIDFD|int(unix.SIGCHLD)), num(0),
		b.at(fds[0]), num(0), num(0)).to(pid).next(report)
	l = b.child(c, slave, streams, fork)
	b.last, b.onErr = 0, b.p1.die.at
	return first, l
}

// streams returns the cells of the three streams: cells of handed in the order of files for those that the
// command sets, slave for the others.
func (c *Command) streams(slave cell, handed []cell) []cell {
	list := []cell{slave, slave, slave}
	_, places := c.files()
	for i, place := range places {
		list[place] = handed[i]
	}
	return list
}

// report adds the steps that close the descriptors of a request and reply to it. The descriptors are closed
// first, because the next request, which may come as soon as the reply is sent, arrives in the same cells.
func (b *builder) report(message arg, request cell, streams, fds []cell) (first step) {
	b.stage, b.last, b.onErr = "reporting", 0, b.p1.die.at
	first = b.do(look, b.of(b.p1.request)).to(request)
	for _, fd := range streams {
		b.do(unix.SYS_CLOSE, b.of(fd)).anyhow()
	}
	b.do(unix.SYS_SENDMSG, num(b.p1.ctl), message, num(unix.MSG_NOSIGNAL)).anyhow()
	for _, fd := range fds {
		b.do(unix.SYS_CLOSE, b.of(fd)).anyhow()
	}
	b.jump().next(b.p1.loop)
	return first
}

// terminal adds the steps that open a terminal of the container's own devpts, whatever the container has done
// to its /dev.
func (b *builder) terminal(c Command, master, slave cell) {
	b.stage = "opening a terminal"
	b.do(unix.SYS_OPENAT, num(b.p1.pts), b.str("ptmx"), num(unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)).to(master)
	b.do(unix.SYS_IOCTL, b.of(master), num(unix.TIOCSPTLCK), b.words(0))
	size := uint64(c.TTY.Rows) | uint64(c.TTY.Cols)<<16
	b.do(unix.SYS_IOCTL, b.of(master), num(unix.TIOCSWINSZ), b.words(size))
	b.do(unix.SYS_IOCTL, b.of(master), num(unix.TIOCGPTPEER), num(unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)).to(slave)
	if b.spec.IDs != Same && c.UID != 0 {
		b.do(unix.SYS_FCHOWN, b.of(slave), num(c.UID), num(^uint32(0)))
	}
	b.stage = "starting the command"
}

// child adds the steps of the new process. An error ends it with status 127; the supervisor reads the error
// from the image.
func (b *builder) child(c Command, slave cell, streams []cell, fork step) launch {
	b.last = 0
	exit := b.do(unix.SYS_EXIT_GROUP, num(127))
	exit.fail(exit)
	b.last, b.onErr = 0, exit.at
	begin := b.do(unix.SYS_SETSID)
	fork.zero(begin)
	if c.TTY != nil {
		b.do(unix.SYS_IOCTL, b.of(slave), num(unix.TIOCSCTTY), num(0))
	}
	for i := range 3 {
		b.do(unix.SYS_DUP3, b.of(streams[i]), num(i), num(0)).quiet(unix.EBADF)
	}
	b.do(unix.SYS_CLOSE_RANGE, num(3), num(^uint32(0)), num(0))
	b.do(unix.SYS_UMASK, b.of(b.p1.umask))
	if b.spec.IDs != Same {
		b.become(c)
	}
	b.stage = "entering the working directory"
	b.do(unix.SYS_CHDIR, b.str(c.Dir)).path(c.Dir)
	b.stage = "resetting signals"
	b.do(unix.SYS_RT_SIGACTION, num(unix.SIGPIPE), b.words(0, 0, 0, 0), num(0), num(8))
	b.do(unix.SYS_RT_SIGPROCMASK, num(unix.SIG_SETMASK), b.words(0), num(0), num(8))
	b.limitCommand()
	l := b.execute(c)
	b.jump().next(exit)
	return l
}

func (b *builder) become(c Command) {
	b.stage = "becoming the user"
	list := num(0)
	if len(c.Groups) > 0 {
		at := b.take(4 * len(c.Groups))
		for i, g := range c.Groups {
			b.put32(at+4*i, g)
		}
		list = num(b.addr(at))
	}
	b.do(unix.SYS_SETGROUPS, num(len(c.Groups)), list)
	b.do(unix.SYS_SETRESGID, num(c.GID), num(c.GID), num(c.GID))
	b.do(unix.SYS_SETRESUID, num(c.UID), num(c.UID), num(c.UID))
}

// execute adds a step for each path that the command may have inside the container.
func (b *builder) execute(c Command) launch {
	b.stage = "executing the command"
	l := launch{name: c.Args[0], reached: b.newCell(0)}
	argv, envp := b.strs(c.Args), b.strs(c.Env)
	b.do(look, num(1)).to(l.reached)
	for _, p := range candidates(c.Args[0], c.Env) {
		try := b.newCell(0)
		b.do(unix.SYS_EXECVE, b.str(p), argv, envp).to(try).anyhow()
		l.tries = append(l.tries, try)
	}
	return l
}

// outcome returns nil if the command runs, and otherwise why not.
func (im *image) outcome(l launch) error {
	if im.get(l.reached) == 0 {
		where, errno := im.failure()
		return &errs.Error{Op: where.stage, Path: where.path, Kind: kindOf(errno), Err: errno}
	}
	missing := &CommandError{Path: l.name, Errno: unix.ENOENT}
	for _, c := range l.tries {
		switch errno := syscall.Errno(-im.get(c)); errno {
		case 0:
			return nil
		case unix.ENOENT, unix.ENOTDIR:
		default:
			if missing.Errno == unix.ENOENT {
				missing.Errno = errno
			}
		}
	}
	return missing
}

// candidates returns the paths that execvp(3) would try, in its order.
func candidates(name string, env []string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	path := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
		}
	}
	var list []string
	for dir := range strings.SplitSeq(path, ":") {
		if dir == "" {
			dir = "."
		}
		list = append(list, strings.TrimSuffix(dir, "/")+"/"+name)
	}
	return list
}
