//go:build linux

package isolate

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/isolate/internal/freezer"
	"github.com/snapfs/snapfs/isolate/internal/stopped"
	"github.com/snapfs/snapfs/isolate/launch"
)

// A thawer is a function that undoes a freeze of a container: it lets the container's processes continue.
type thawer func() error

// Freeze stops every process in the container and returns once all of them have stopped. It uses the freezer of
// one of [Spec.Cgroups], or else sends SIGSTOP to each process; then parents can see the stop, processes that
// were stopped before stay stopped after Thaw, a SIGCONT of [Process.Signal] waits for Thaw, and a process that
// continues itself again and again is killed. Freezing a frozen container does nothing. After an error the
// container runs.
//
// Cost: 1 to 5 ms. Errors: [errs.ErrClosed], [errs.ErrInterrupted], [errs.ErrDenied].
func (c *Container) Freeze(ctx context.Context) error {
	c.reqMu.Lock()
	defer c.reqMu.Unlock()
	if c.frozen != nil {
		return nil
	}
	if c.ended() {
		return closed("freezing")
	}
	thaw, err := c.stop(ctx)
	if err == nil {
		err = c.syncShown()
	}
	if err == nil {
		c.frozen = thaw
		return nil
	}
	err = errors.Join(err, thaw())
	if ctx.Err() != nil {
		return &errs.Error{Op: "freezing", Kind: errs.ErrInterrupted, Err: ctx.Err()}
	}
	return launch.HostError("freezing", err)
}

// syncShown makes the container's FUSE mounts, in which a process maps the user ids, write back the pages
// that processes changed through a mapping, so that the trees are complete on the host. The caller has frozen
// all processes that could write.
func (c *Container) syncShown() error {
	for _, root := range c.shown {
		if err := unix.Syncfs(int(root.Fd())); err != nil {
			return &os.PathError{Op: "syncfs", Path: root.Name(), Err: err}
		}
	}
	return nil
}

// Thaw lets the processes that Freeze stopped continue. Thawing a container that is not frozen does nothing.
// Errors: [errs.ErrDenied].
func (c *Container) Thaw(context.Context) error {
	c.reqMu.Lock()
	defer c.reqMu.Unlock()
	if c.frozen == nil {
		return nil
	}
	thaw := c.frozen
	c.frozen = nil
	if err := thaw(); err != nil {
		return launch.HostError("thawing", err)
	}
	return nil
}

// Clear kills every process in the container except pid 1, and returns when all of them are gone. Exec works
// afterwards.
//
// Cost: 1 ms, and more with many processes. Errors: [errs.ErrClosed]; [errs.ErrInterrupted]; [errs.ErrBusy] while the
// container is frozen.
func (c *Container) Clear(ctx context.Context) error {
	c.reqMu.Lock()
	if c.frozen != nil {
		c.reqMu.Unlock()
		return &errs.Error{Op: "ending the sandbox's processes", Kind: errs.ErrBusy, Err: errors.New("the sandbox is frozen")}
	}
	if c.ended() {
		c.reqMu.Unlock()
		return closed("ending the sandbox's processes")
	}
	err := c.signalAll(unix.SIGKILL)
	c.mu.Lock()
	idle, ran := c.idle, c.ran
	c.mu.Unlock()
	c.reqMu.Unlock()
	if err != nil || !ran {
		return err
	}
	select {
	case <-idle:
		return nil
	case <-c.done:
		return closed("ending the sandbox's processes")
	case <-ctx.Done():
		return &errs.Error{Op: "ending the sandbox's processes", Kind: errs.ErrInterrupted, Err: ctx.Err()}
	}
}

// stop stops all processes of the container, by the cgroup freezer if possible and otherwise by signals. It
// returns a function that lets them continue, which is never nil, also with an error.
func (c *Container) stop(ctx context.Context) (thawer, error) {
	f, ok := freezer.Of(c.cgroups)
	if !ok {
		return c.stopEach(ctx)
	}
	err := f.Freeze()
	if err == nil {
		// Most processes freeze once they get a processor. A longer pause would delay the caller up to twice as long.
		err = poll.Until(ctx, 50*time.Microsecond, 500*time.Microsecond, f.Frozen)
	}
	return f.Thaw, err
}

// stopEach makes pid 1 send SIGSTOP to all other processes of its namespace, which the kernel does atomically:
// a process that forks meanwhile gets the signal before its child exists, or both get it (kill(2), -1;
// copy_process in kernel/fork.c). It then waits until each of them has stopped, and guards them until the thaw.
func (c *Container) stopEach(ctx context.Context) (thawer, error) {
	c.continues.Keep()
	before := map[int]bool{}
	for _, p := range stopped.Threads(c.pid) {
		if p.State == 'T' {
			before[p.PID] = true
		}
	}
	endGuard := func() {}
	thaw := func() error {
		endGuard()
		defer c.continues.Deliver()
		if c.ended() {
			return nil
		}
		var failures []error
		all := stopped.Threads(c.pid)
		for i := len(all) - 1; i >= 0; i-- { // children before parents that wait for them
			if p := all[i]; !before[p.PID] {
				if err := unix.Kill(p.PID, unix.SIGCONT); err != nil && !errors.Is(err, unix.ESRCH) {
					failures = append(failures, err)
				}
			}
		}
		return errors.Join(failures...)
	}
	if err := c.signalAll(unix.SIGSTOP); err != nil {
		return thaw, err
	}
	asleep, sent := map[int]int{}, time.Now()
	err := poll.Until(ctx, 50*time.Microsecond, 10*time.Millisecond, func() (bool, error) {
		if c.ended() {
			return false, closed("freezing")
		}
		still := true
		for _, p := range stopped.Threads(c.pid) {
			switch p.State {
			case 'T', 't', 'Z', 'X':
			case 'D':
				// A process in the kernel stops before it returns to user space, unless it waits in vfork for a
				// child, which has stopped.
				asleep[p.PID]++
				still = still && asleep[p.PID] > maxSleepPolls
			default:
				still = false
			}
		}
		if !still && time.Since(sent) > stopAgain {
			sent = time.Now()
			return false, c.signalAll(unix.SIGSTOP)
		}
		return still, nil
	})
	if err == nil {
		endGuard = c.guardStopped(asleep)
	}
	return thaw, err
}

// maxSleepPolls is how often a freeze of a container by signals may find a process in uninterruptible sleep
// before it counts as stopped, since a signal does not wake it. With the pauses in between that takes 0.1 s.
const maxSleepPolls = 16

// signalAll makes pid 1 send the signal sig to every other process in the container, by kill(-1), which
// misses none that forks meanwhile. The caller holds reqMu.
func (c *Container) signalAll(sig unix.Signal) error {
	c.builder.Rewind(c.nextRegion())
	first := c.builder.broadcast(int(sig))
	if err := c.submit(first, nil); err != nil {
		return err
	}
	select {
	case <-c.reports:
		return nil
	case <-c.done:
		return closed("signalling the sandbox")
	}
}

// broadcast adds the system calls of a request by which pid 1 sends the signal sig to every other process. It
// returns the first of them.
func (b *builder) broadcast(sig int) launch.Step {
	msg, _, _, seq, _ := b.Message(reportStarted, 0)
	b.Stage, b.Last, b.OnErr = "signalling", 0, b.p1.die.At
	first := b.Do(launch.Load, b.Of(b.p1.request)).To(seq)
	b.Do(unix.SYS_KILL, launch.Num(-1), launch.Num(sig)).IgnoreErrors()
	b.Do(unix.SYS_SENDMSG, launch.Num(b.p1.ctl), msg, launch.Num(unix.MSG_NOSIGNAL)).IgnoreErrors()
	b.Jump().Next(b.p1.loop)
	return first
}

// release kills a frozen container that Close ends and lets it continue, because a frozen cgroup of version 1
// delivers no signal before. No process runs an instruction before it dies. Processes that SIGSTOP stopped
// die as they are.
func (c *Container) release() {
	c.reqMu.Lock()
	defer c.reqMu.Unlock()
	if f, ok := freezer.Of(c.cgroups); ok && c.frozen != nil {
		f.KillAll()
		f.Thaw() //nolint:errcheck // an error means the cgroup is gone
	}
	c.frozen = nil
}
