//go:build linux

package isolate

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// thawer undoes a freeze.
type thawer func() error

// Freeze stops every process in the container and returns once all of them have stopped. It uses the freezer of
// one of [Spec.Cgroups], or else sends SIGSTOP to each process; then parents can see the stop, and processes
// that were stopped before stay stopped after Thaw. Freezing a frozen container does nothing. After an error
// the container runs.
//
// Cost: 1 to 5 ms. Errors: [ErrClosed], [ErrInterrupted], [ErrDenied].
func (b *Box) Freeze(ctx context.Context) error {
	b.ask.Lock()
	defer b.ask.Unlock()
	if b.frozen != nil {
		return nil
	}
	if b.ended() {
		return &Error{Op: "freezing", Kind: ErrClosed}
	}
	thaw, err := b.stop(ctx)
	if err == nil {
		err = b.settleShown()
	}
	if err == nil {
		b.frozen = thaw
		return nil
	}
	err = errors.Join(err, thaw())
	if ctx.Err() != nil {
		return &Error{Op: "freezing", Kind: ErrInterrupted, Err: ctx.Err()}
	}
	return hostError("freezing", err)
}

// syncShown makes FUSE mounts that map ids write back dirty mapped pages. The caller has stopped all writers.
func (b *Box) settleShown() error {
	for _, root := range b.shown {
		if err := unix.Syncfs(int(root.Fd())); err != nil {
			return &os.PathError{Op: "syncfs", Path: root.Name(), Err: err}
		}
	}
	return nil
}

// Thaw continues the processes. Thawing a container that is not frozen does nothing. Errors: [ErrDenied].
func (b *Box) Thaw(context.Context) error {
	b.ask.Lock()
	defer b.ask.Unlock()
	if b.frozen == nil {
		return nil
	}
	thaw := b.frozen
	b.frozen = nil
	if err := thaw(); err != nil {
		return hostError("thawing", err)
	}
	return nil
}

// Clear kills every process in the container except pid 1, and returns when all of them are gone. Exec works
// afterwards.
//
// Cost: 1 ms, and more with many processes. Errors: [ErrClosed]; [ErrInterrupted]; [ErrBusy] while the
// container is frozen.
func (b *Box) Clear(ctx context.Context) error {
	b.ask.Lock()
	if b.frozen != nil {
		b.ask.Unlock()
		return &Error{Op: "ending its processes", Kind: ErrBusy, Err: errors.New("the sandbox is frozen")}
	}
	if b.ended() {
		b.ask.Unlock()
		return &Error{Op: "ending its processes", Kind: ErrClosed}
	}
	err := b.signalAll(unix.SIGKILL)
	b.mu.Lock()
	idle, ran := b.idle, b.ran
	b.mu.Unlock()
	b.ask.Unlock()
	if err != nil || !ran {
		return err
	}
	select {
	case <-idle:
		return nil
	case <-b.done:
		return &Error{Op: "ending its processes", Kind: ErrClosed}
	case <-ctx.Done():
		return &Error{Op: "ending its processes", Kind: ErrInterrupted, Err: ctx.Err()}
	}
}

// stop freezes by cgroup if possible and otherwise by signals. The thawer is never nil.
func (b *Box) stop(ctx context.Context) (thawer, error) {
	if f, ok := b.freezer(); ok {
		return func() error { return f.write(f.off) }, f.freeze(ctx)
	}
	return b.stopEach(ctx)
}

// freezer returns the freezer of the first cgroup that has one.
func (b *Box) freezer() (freezer, bool) {
	for _, c := range b.cgroups {
		for _, f := range []freezer{
			{c, "cgroup.freeze", "1", "0", "cgroup.events", "frozen 1"},
			{c, "freezer.state", "FROZEN", "THAWED", "freezer.state", "FROZEN"},
		} {
			if f.there() {
				return f, true
			}
		}
	}
	return freezer{}, false
}

// freezer is the file of a cgroup that stops every process in it: cgroup.freeze in version 2
// (Documentation/admin-guide/cgroup-v2.rst), freezer.state in version 1 (cgroup-v1/freezer-subsystem.rst).
type freezer struct {
	dir           *os.File
	file, on, off string
	tells, done   string // the file that reports the state, and its text once all are frozen
}

func (f freezer) there() bool {
	return unix.Faccessat(int(f.dir.Fd()), f.file, unix.W_OK, 0) == nil
}

func (f freezer) write(value string) error {
	fd, err := unix.Openat(int(f.dir.Fd()), f.file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: f.file, Err: err}
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(value)); err != nil {
		return &os.PathError{Op: "write", Path: f.file, Err: err}
	}
	return nil
}

func (f freezer) freeze(ctx context.Context) error {
	if err := f.write(f.on); err != nil {
		return err
	}
	return poll(ctx, func() (bool, error) {
		var buf [256]byte
		fd, err := unix.Openat(int(f.dir.Fd()), f.tells, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return false, &os.PathError{Op: "open", Path: f.tells, Err: err}
		}
		defer unix.Close(fd)
		n, err := unix.Read(fd, buf[:])
		if err != nil {
			return false, err
		}
		return bytes.Contains(buf[:n], []byte(f.done)), nil
	})
}

// killAll sends SIGKILL to every process in a cgroup. A frozen process receives it when it is thawed; the
// kernel does not reuse its pid before.
func killAll(dir *os.File) {
	fd, err := unix.Openat(int(dir.Fd()), "cgroup.procs", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	list := os.NewFile(uintptr(fd), "cgroup.procs")
	defer list.Close()
	for lines := bufio.NewScanner(list); lines.Scan(); {
		if pid, err := strconv.Atoi(lines.Text()); err == nil && pid > 1 {
			_ = unix.Kill(pid, unix.SIGKILL) // the process may have ended
		}
	}
}

// poll calls done until it returns true or an error, first every 50 µs and later every 10 ms.
func poll(ctx context.Context, ask func() (bool, error)) error {
	for wait := 50 * time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
		if done, err := ask(); done || err != nil {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stopEach makes pid 1 send SIGSTOP to all other processes of its namespace, which the kernel does atomically:
// a process that forks meanwhile gets the signal before its child exists, or both get it (kill(2), -1;
// copy_process in kernel/fork.c). It then waits until each of them has stopped.
func (b *Box) stopEach(ctx context.Context) (thawer, error) {
	before := map[int]bool{}
	for _, p := range descendants(b.pid) {
		if p.state == 'T' {
			before[p.pid] = true
		}
	}
	thaw := func() error {
		if b.ended() {
			return nil
		}
		var errs []error
		all := descendants(b.pid)
		for i := len(all) - 1; i >= 0; i-- { // children before parents that wait for them
			if p := all[i]; !before[p.pid] {
				if err := unix.Kill(p.pid, unix.SIGCONT); err != nil && !errors.Is(err, unix.ESRCH) {
					errs = append(errs, err)
				}
			}
		}
		return errors.Join(errs...)
	}
	if err := b.signalAll(unix.SIGSTOP); err != nil {
		return thaw, err
	}
	asleep := map[int]int{}
	return thaw, poll(ctx, func() (bool, error) {
		if b.ended() {
			return false, &Error{Op: "freezing", Kind: ErrClosed}
		}
		still := true
		for _, p := range descendants(b.pid) {
			switch p.state {
			case 'T', 't', 'Z', 'X':
			case 'D':
				// A process in the kernel stops before it returns to user space, unless it waits in vfork for a
				// child, which has stopped.
				asleep[p.pid]++
				still = still && asleep[p.pid] > patience
			default:
				still = false
			}
		}
		return still, nil
	})
}

// maxSleepPolls is how often poll may find a process in uninterruptible sleep: 0.1 s.
const patience = 16

// signalAll makes pid 1 send a signal to every other process in the container. The caller holds reqMu.
func (b *Box) signalAll(sig unix.Signal) error {
	b.b.rewind(b.nextRoom())
	first := b.b.broadcast(int(sig))
	if err := b.submit(first, nil); err != nil {
		return err
	}
	select {
	case <-b.answer:
		return nil
	case <-b.done:
		return &Error{Op: "signalling", Kind: ErrClosed}
	}
}

// broadcast adds the steps of a request to signal every process except pid 1.
func (b *builder) broadcast(sig int) step {
	msg, _, _, seq, _ := b.message(reportStarted, 0)
	b.stage, b.last, b.onErr = "signalling", 0, b.p1.die.at
	first := b.do(look, b.of(b.p1.request)).to(seq)
	b.do(unix.SYS_KILL, num(-1), num(sig)).anyhow()
	b.do(unix.SYS_SENDMSG, num(b.p1.ctl), msg, num(unix.MSG_NOSIGNAL)).anyhow()
	b.jump().next(b.p1.loop)
	return first
}

// threadState is the state of one thread in the container; pid is its process on the host.
type inside struct {
	pid   int
	state byte
}

// descendants lists the threads of all processes below pid 1, parents before children. It needs
// CONFIG_PROC_CHILDREN, which all distributions set.
func descendants(pid int) []inside {
	var all []inside
	queue := []int{pid}
	for len(queue) > 0 {
		parent := queue[0]
		queue = queue[1:]
		tasks := "/proc/" + strconv.Itoa(parent) + "/task/"
		entries, err := os.ReadDir(tasks)
		if err != nil {
			continue // the process has ended
		}
		for _, e := range entries {
			if parent != pid {
				if state, ok := stateOf(tasks + e.Name() + "/stat"); ok {
					all = append(all, inside{parent, state})
				}
			}
			list, err := os.ReadFile(tasks + e.Name() + "/children")
			if err != nil {
				continue
			}
			for field := range bytes.FieldsSeq(list) {
				if child, err := strconv.Atoi(string(field)); err == nil {
					queue = append(queue, child)
				}
			}
		}
	}
	return all
}

func stateOf(file string) (byte, bool) {
	stat, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 || end+2 >= len(stat) {
		return 0, false
	}
	return stat[end+2], true
}

// release kills and thaws a frozen container that Close ends: a frozen cgroup of version 1 delivers no signal
// until it thaws. No process runs an instruction before it dies. Processes that SIGSTOP stopped die as they
// are.
func (b *Box) release() {
	b.ask.Lock()
	defer b.ask.Unlock()
	if f, ok := b.freezer(); ok && b.frozen != nil {
		killAll(f.dir)
		f.write(f.off) //nolint:errcheck // an error means the cgroup is gone
	}
	b.frozen = nil
}
