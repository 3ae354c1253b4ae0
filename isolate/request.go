//go:build linux

package isolate

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate/launch"
)

// An execResult says where in pid 1's memory image, which the supervisor shares, the results of starting a
// command are.
type execResult struct {
	name    string
	dir     string        // the command's working directory
	paths   []string      // the candidates
	reached launch.Cell   // 1 once only execve is left
	looks   []launch.Cell // for each candidate, the error of faccessat, 0 for none; the zero cell if not checked
	tries   []launch.Cell // execve's error for each candidate, 0 if not tried or successful
}

// command adds the system calls by which pid 1 starts the command c and reports that. It returns the first of
// them, and where the results will be. The child shares pid 1's memory until it executes the command (vfork),
// so that its errors are found in the image.
func (b *builder) command(c Command) (first launch.Step, l execResult) {
	slave, nfds := b.NewCell(-1), 1 // -1 leaves a stream as /dev/null, as in pid 1
	if c.TTY != nil {
		nfds = 2
	}
	streams := c.streams(slave, b.p1.fds[:])
	if c.Guarded != "" {
		streams = append(streams, b.p1.fds[len(c.passed())-1]) // the working directory
	}
	started, pid, _, seq, fds := b.Message(reportStarted, nfds)
	report := b.report(started, seq, streams, fds)
	refused, _, _, seq, _ := b.Message(reportRefused, 0)
	refuse := b.report(refused, seq, streams, fds)

	b.Stage, b.Last, b.OnErr = "starting the command", 0, refuse.At
	first = b.Jump()
	if c.TTY != nil {
		b.terminal(c, fds[1], slave)
	}
	b.limitForks()
	fork := b.Do(unix.SYS_CLONE, launch.Num(unix.CLONE_VM|unix.CLONE_VFORK|unix.CLONE_PIDFD|int(unix.SIGCHLD)), launch.Num(0),
		b.At(fds[0]), launch.Num(0), launch.Num(0)).To(pid).Next(report)
	l = b.child(c, slave, streams, fork)
	b.Last, b.OnErr = 0, b.p1.die.At
	return first, l
}

// streams returns the cells, places in pid 1's image, with the descriptors of the command's three standard
// streams: those in handed, in the order of files, for the streams that the command sets, and slave, which
// holds the terminal or /dev/null, for the others.
func (c *Command) streams(slave launch.Cell, handed []launch.Cell) []launch.Cell {
	list := []launch.Cell{slave, slave, slave}
	_, places := c.files()
	for i, place := range places {
		list[place] = handed[i]
	}
	return list
}

// report adds the system calls by which pid 1 ends a request: it closes the descriptors streams, sends the
// supervisor message as reply, and closes fds. request is where the number of the request goes. It returns
// the first step.
func (b *builder) report(message launch.Arg, request launch.Cell, streams, fds []launch.Cell) (first launch.Step) {
	b.Stage, b.Last, b.OnErr = "reporting", 0, b.p1.die.At
	first = b.Do(launch.Load, b.Of(b.p1.request)).To(request)
	for _, fd := range streams {
		b.Do(unix.SYS_CLOSE, b.Of(fd)).IgnoreErrors()
	}
	b.Do(unix.SYS_SENDMSG, launch.Num(b.p1.ctl), message, launch.Num(unix.MSG_NOSIGNAL)).IgnoreErrors()
	for _, fd := range fds {
		b.Do(unix.SYS_CLOSE, b.Of(fd)).IgnoreErrors()
	}
	b.Jump().Next(b.p1.loop)
	return first
}

// terminal adds the system calls by which pid 1 opens a terminal for the command c in the container's own
// devpts, whatever the container has done to its /dev. Its two ends go to master and slave.
func (b *builder) terminal(c Command, master, slave launch.Cell) {
	b.Stage = "opening a terminal"
	b.Do(unix.SYS_OPENAT, launch.Num(b.p1.pts), b.Str("ptmx"), launch.Num(unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)).To(master)
	b.Do(unix.SYS_IOCTL, b.Of(master), launch.Num(unix.TIOCSPTLCK), b.Words(0))
	size := uint64(c.TTY.Rows) | uint64(c.TTY.Cols)<<16
	b.Do(unix.SYS_IOCTL, b.Of(master), launch.Num(unix.TIOCSWINSZ), b.Words(size))
	b.Do(unix.SYS_IOCTL, b.Of(master), launch.Num(unix.TIOCGPTPEER), launch.Num(unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)).To(slave)
	if b.spec.IDs != Same && c.UID != 0 {
		b.Do(unix.SYS_FCHOWN, b.Of(slave), launch.Num(c.UID), launch.Num(^uint32(0)))
	}
	b.Stage = "starting the command"
}

// child adds the steps of the process that the step fork of pid 1 forks for the command c. slave and streams
// are the cells with the descriptors of its terminal and its three standard streams, and of its working directory if
// the program is guarded. An error ends that
// process with status 127; the supervisor reads the error from the image.
func (b *builder) child(c Command, slave launch.Cell, streams []launch.Cell, fork launch.Step) execResult {
	b.Last = 0
	exit := b.Do(unix.SYS_EXIT_GROUP, launch.Num(127))
	exit.Fail(exit)
	b.Last, b.OnErr = 0, exit.At
	begin := b.Do(unix.SYS_SETSID)
	fork.Zero(begin)
	if c.TTY != nil {
		b.Do(unix.SYS_IOCTL, b.Of(slave), launch.Num(unix.TIOCSCTTY), launch.Num(0))
	}
	for i := range 3 {
		b.Do(unix.SYS_DUP3, b.Of(streams[i]), launch.Num(i), launch.Num(0)).Tolerate(unix.EBADF)
	}
	b.confine(c, streams[len(streams)-1])
	b.Do(unix.SYS_UMASK, b.Of(b.p1.umask))
	if b.spec.IDs != Same {
		b.become(c)
	}
	b.Stage = "entering the working directory"
	if c.Guarded != "" {
		b.Do(unix.SYS_FCHDIR, launch.Num(dirFD))
	} else {
		b.Do(unix.SYS_CHDIR, b.Str(c.Dir)).Path(c.Dir)
	}
	b.Stage = "resetting signals"
	b.Do(unix.SYS_RT_SIGACTION, launch.Num(unix.SIGPIPE), b.Words(0, 0, 0, 0), launch.Num(0), launch.Num(8))
	b.Do(unix.SYS_RT_SIGPROCMASK, launch.Num(unix.SIG_SETMASK), b.Words(0), launch.Num(0), launch.Num(8))
	b.limitCommand()
	l := b.execute(c)
	b.Jump().Next(exit)
	return l
}

func (b *builder) become(c Command) {
	b.Stage = "becoming the user"
	list := launch.Num(0)
	if len(c.Groups) > 0 {
		at := b.Take(4 * len(c.Groups))
		for i, g := range c.Groups {
			b.Put32(at+4*i, g)
		}
		list = launch.Num(b.Addr(at))
	}
	b.Do(unix.SYS_SETGROUPS, launch.Num(len(c.Groups)), list)
	b.Do(unix.SYS_SETRESGID, launch.Num(c.GID), launch.Num(c.GID), launch.Num(c.GID))
	b.Do(unix.SYS_SETRESUID, launch.Num(c.UID), launch.Num(c.UID), launch.Num(c.UID))
}

// execute adds an execve(2) for each path at which the command's program may be inside the container. The first that
// succeeds ends the tries. For a path of PATH, a cheaper faccessat(2) first checks whether the file exists, unless the
// supervisor gets a notification of each lookup; with IDs Same it always does, because outcome needs the result.
func (b *builder) execute(c Command) execResult {
	b.Stage = "executing the command"
	l := execResult{name: c.Args[0], dir: c.Dir, reached: b.NewCell(0)}
	argv, envp := b.Strs(c.Args), b.Strs(c.Env)
	b.Do(launch.Load, launch.Num(1)).To(l.reached)
	if c.Guarded != "" {
		return b.executeGuarded(c, argv, envp, l)
	}
	var missed launch.Step
	for i, p := range candidates(c.Args[0], c.Env) {
		path, look, try := b.Str(p), launch.Cell(0), b.NewCell(0)
		var first launch.Step
		if p != c.Args[0] && (b.spec.IDs == Same || b.spec.Observe == nil || !b.spec.Observe.Files) {
			look = b.NewCell(0)
			first = b.Do(unix.SYS_FACCESSAT, launch.Num(unix.AT_FDCWD), path, launch.Num(unix.F_OK)).To(look).IgnoreErrors()
		}
		execute := b.Do(unix.SYS_EXECVE, path, argv, envp).To(try).IgnoreErrors()
		if look == 0 {
			first = execute
		}
		if i > 0 && l.looks[i-1] != 0 {
			missed.Next(first)
		}
		missed = first
		l.looks, l.tries, l.paths = append(l.looks, look), append(l.tries, try), append(l.paths, p)
	}
	if end := b.Jump(); missed.At != 0 {
		missed.Next(end)
	}
	return l
}

// outcome returns the path of the command that pid 1 was to start, if it runs, and otherwise the error of its
// start. l says where in pid 1's memory, which the supervisor shares, the results are.
func (b *builder) outcome(l execResult) (path string, err error) {
	if b.Get(l.reached) == 0 {
		where, errno := b.Failure()
		return "", &errs.Error{Op: where.Stage, Path: where.Path, Kind: launch.KindOf(errno), Err: errno}
	}
	missing := &CommandError{Path: l.name, Errno: unix.ENOENT}
	for i, c := range l.tries {
		look, errno := syscall.Errno(0), syscall.Errno(-b.Get(c))
		if l.looks[i] != 0 {
			look = syscall.Errno(-b.Get(l.looks[i]))
		}
		if look != 0 {
			errno = look
		}
		switch {
		case errno == 0:
			return l.paths[i], nil
		case errno == unix.ENOENT || errno == unix.ENOTDIR:
		case look == unix.EACCES && b.spec.IDs == Same: // this user can find nothing in the directory
		default:
			if missing.Errno == unix.ENOENT {
				missing.Errno = errno
			}
		}
	}
	return "", missing
}

// candidates returns the paths that execvp(3) would try for the program name, in its order: those in PATH of
// env.
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
