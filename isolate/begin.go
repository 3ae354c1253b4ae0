//go:build linux

package isolate

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Start creates the container that spec describes and, unless command is nil, runs command as its first
// process. Either every part of spec is in force (see [Spec.BestEffort] for the exception), or nothing is left
// behind and the error names the missing part. ctx bounds the call, not the life of the container.
//
// Cost: about three times a fork and exec. Errors: [*Error]; [*CommandError] when the command cannot be
// executed.
func Start(ctx context.Context, spec Spec, command *Command) (*Box, *Process, error) {
	if err := spec.Check(); err != nil {
		return nil, nil, err
	}
	b, err := Begin(ctx, spec, command)
	if err != nil {
		return nil, nil, err
	}
	return b.Start(ctx, spec)
}

// Prepared is a container whose pid 1 already creates the parts that every container has, while the supervisor
// finds out which trees it needs. Exactly one of Start and Close must be called.
type Beginning struct {
	box     *Box
	command *Command
	streams []int
}

// Prepare starts pid 1 of a container. The fields IDs, Network, Edge, BestEffort and Cgroups of spec must have
// their final values; Prepare ignores the others.
//
// Prepare is the first half of [Start], with its cost and errors.
func Begin(ctx context.Context, spec Spec, command *Command) (*Beginning, error) {
	if err := check(ctx, spec, command); err != nil {
		return nil, err
	}
	im, err := newImage()
	if err != nil {
		return nil, &Error{Op: "starting", Kind: ErrNoSpace, Err: err}
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		im.free()
		return nil, &Error{Op: "starting", Kind: ErrNoSpace, Err: err}
	}
	b := &Beginning{command: command}
	if command != nil {
		b.streams, err = command.duplicate()
	}
	build := &builder{image: im, spec: spec, host: lookAtCaller(&spec)}
	build.p1.ctl = ends[1]
	var pid, pidfd int
	if err == nil {
		pid, pidfd, err = build.fork(ends[0])
	}
	closeAll(append(b.streams, ends[1]))
	if err != nil {
		unix.Close(ends[0])
		im.free()
		return nil, err
	}
	b.box = &Box{
		b: build, ctl: ends[0], pid: pid, pidfd: pidfd, root: -1, tun: -1, cgroups: spec.Cgroups,
		answer: make(chan report, 1), procs: map[int]*Process{}, idle: make(chan struct{}), done: make(chan struct{}),
	}
	if command != nil {
		b.box.pending = newProcess()
	}
	if err := build.equip(pid, ends[0]); err != nil {
		return nil, b.fail(err)
	}
	return b, nil
}

// Start completes the container with the rest of spec and runs the command. Results and errors are those of
// [Start].
func (b *Beginning) Start(ctx context.Context, spec Spec) (*Box, *Process, error) {
	if err := spec.Check(); err != nil {
		return nil, nil, errors.Join(err, b.Close())
	}
	box := b.box
	stop := func() bool { return true }
	if ctx.Done() != nil {
		stop = context.AfterFunc(ctx, box.kill)
	}
	l, err := box.b.complete(spec, b.command, b.streams)
	if err == nil {
		err = box.b.give(ctx, box.ctl)
	}
	if err == nil {
		err = box.stand()
	}
	if !stop() {
		err = &Error{Op: "starting", Kind: ErrInterrupted, Err: ctx.Err()}
	}
	if err != nil {
		return nil, nil, b.fail(err)
	}
	box.level = spec.level(box.b.host.landlock, box.b.missing())
	box.level.Shifted = box.b.shiftedTrees()
	box.shown = box.b.shownRoots()
	box.rooms = box.b.rooms()
	box.ask.Lock()
	go box.keep()
	var p *Process
	if b.command != nil {
		p, err = box.launched(l)
	}
	box.ask.Unlock()
	if err != nil {
		return nil, nil, errors.Join(err, box.Close(context.WithoutCancel(ctx)))
	}
	return box, p, nil
}

// Close ends pid 1 of a container that is not started. It does nothing when b is nil.
func (b *Beginning) Close() error {
	if b == nil {
		return nil
	}
	b.fail(nil) //nolint:errcheck // none is passed
	return nil
}

// fail ends pid 1 and returns the error that pid 1 recorded in the image, or err if it recorded none.
func (b *Beginning) fail(err error) error {
	b.box.kill()
	b.box.end()
	if _, errno := b.box.b.failure(); errno != 0 && !errors.Is(err, ErrInterrupted) {
		err = b.box.startError()
	}
	later(b.box.b.trash...)
	closeFiles(b.box.b.shownRoots())
	b.box.b.free()
	return err
}

func check(ctx context.Context, spec Spec, command *Command) error {
	if command != nil {
		if err := command.check(spec); err != nil {
			return err
		}
	}
	if err := spec.checkNetwork(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return &Error{Op: "starting", Kind: ErrInterrupted, Err: err}
	}
	if spec.IDs != Same && os.Geteuid() != 0 {
		return &Error{Op: "starting", Kind: ErrDenied, Err: errors.New("only root gives a sandbox users of its own")}
	}
	return nil
}
