//go:build linux

package isolate

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate/internal/digest"
	"github.com/snapfs/snapfs/isolate/launch"
	"github.com/snapfs/snapfs/isolate/mounts"
)

// A Prepared is a container whose pid 1 already creates the parts that every container has, while the
// supervisor finds out which trees the container needs. [Prepare] makes it, or [Begin] and then Equip. Exactly one of
// Start and Close must be called.
type Prepared struct {
	container *Container
	command   *Command
	streams   []int
}

// Prepare starts the pid 1 of a container, which creates the parts that do not depend on its trees;
// [Prepared.Start] completes it. Both together cost about three times a fork and exec. Errors: [*errs.Error];
// [*CommandError] when the command cannot be executed. The fields IDs, Network, Edge, TmpLimits, BestEffort
// and Cgroups of spec must have their final values; Prepare ignores the others.
func Prepare(ctx context.Context, spec Spec, command *Command) (*Prepared, error) {
	b, err := begin(ctx, spec, command, false)
	if err != nil {
		return nil, err
	}
	if err := b.Equip(); err != nil {
		return nil, err
	}
	return b, nil
}

// Begin starts the pid 1 of a container long before its sandbox is known. pid 1 enters the cgroups of spec and makes
// namespaces, but none of mounts, which would keep filesystems of the host busy. The caller then calls Equip or Close.
// The fields of spec, and the errors, are those of [Prepare]. Cost: a third of a container's start.
func Begin(ctx context.Context, spec Spec) (*Prepared, error) { return begin(ctx, spec, nil, true) }

// begin starts the pid 1 of a container for Prepare and Begin. waits is set for the latter.
func begin(ctx context.Context, spec Spec, command *Command, waits bool) (*Prepared, error) {
	if err := check(ctx, spec, command); err != nil {
		return nil, err
	}
	im, err := launch.NewImage()
	if err != nil {
		return nil, &errs.Error{Op: "starting", Kind: errs.ErrNoSpace, Err: err}
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		im.Free()
		return nil, &errs.Error{Op: "starting", Kind: errs.ErrNoSpace, Err: err}
	}
	b := &Prepared{command: command}
	if command != nil {
		command.letReopen(spec.IDs)
		b.streams, err = command.duplicate()
	}
	build := &builder{Planner: mounts.NewPlanner(im, spec.trees()), spec: spec, host: callerFacts(&spec)}
	build.p1.ctl, build.HidesAgain = ends[1], waits
	var pid, pidfd int
	if err == nil {
		pid, pidfd, err = build.fork(ends[0], waits)
	}
	closeAll(append(b.streams, ends[1]))
	if err != nil {
		unix.Close(ends[0])
		im.Free()
		return nil, err
	}
	b.container = &Container{
		builder: build, ctl: ends[0], pid: pid, pidfd: pidfd, root: -1, tun: -1, cgroups: spec.Cgroups,
		reports: make(chan report, 1), procs: map[int]*Process{}, idle: make(chan struct{}), done: make(chan struct{}),
	}
	if command != nil {
		b.container.pending = newProcess(&b.container.continues)
	}
	return b, nil
}

// Equip makes the pid 1 that [Begin] started create the parts that every container has, from the host's present state.
// After an error, for example because pid 1 was killed meanwhile, the container is closed.
func (p *Prepared) Equip() error {
	if err := p.container.builder.equip(p.container.pid, p.container.ctl); err != nil {
		return p.fail(err)
	}
	return nil
}

// Start completes the container with the rest of spec and runs the command, if there is one, as its first
// process. Either every part of spec is in force (see [Spec.BestEffort] for the exception), or nothing is left
// behind and the error names the missing part. ctx bounds the call, not the life of the container.
func (p *Prepared) Start(ctx context.Context, spec Spec) (*Container, *Process, error) {
	err := spec.check()
	if err == nil && p.command != nil && len(spec.Digests) > 0 { // it would run before they are compared
		err = mounts.Invalid("a container with digests of programs was prepared with a command")
	}
	if err != nil {
		return nil, nil, errors.Join(err, p.Close())
	}
	c := p.container
	stop := func() bool { return true }
	if ctx.Done() != nil {
		stop = context.AfterFunc(ctx, c.kill)
	}
	l, err := c.builder.complete(spec, p.command, p.streams)
	if err == nil {
		err = c.builder.sendPremounts(ctx, c.ctl)
	}
	if err == nil {
		err = c.awaitReady()
	}
	if !stop() {
		err = &errs.Error{Op: "starting", Kind: errs.ErrInterrupted, Err: ctx.Err()}
	}
	if err != nil {
		return nil, nil, p.fail(err)
	}
	c.level = spec.level(c.builder.host.landlock, c.builder.missing())
	c.level.FUSEMapped = c.builder.FUSETrees()
	c.shown = c.builder.ShownRoots()
	c.regions = c.builder.Regions()
	c.reqMu.Lock()
	go c.serve()
	var proc *Process
	if p.command != nil {
		proc, err = c.launched(l)
	}
	c.reqMu.Unlock()
	if err == nil && len(spec.Digests) > 0 {
		err = c.verify(spec.Digests, spec.DigestCache)
	}
	if err != nil {
		return nil, nil, errors.Join(err, c.Close(context.WithoutCancel(ctx)))
	}
	return c, proc, nil
}

// verify compares programs in the container with their digests, of which the directory cache has some.
func (c *Container) verify(programs []Digest, cache string) error {
	root, err := c.Root()
	if err != nil {
		return err
	}
	defer root.Close()
	return digest.Verify(int(root.Fd()), programs, digest.Cache(cache))
}

// Close ends pid 1 of a container that was prepared and then not started. It does nothing if p is nil.
func (p *Prepared) Close() error {
	if p == nil {
		return nil
	}
	p.fail(nil) //nolint:errcheck // none is passed
	return nil
}

// fail ends pid 1 of a container that could not be prepared, and returns the error that pid 1 recorded in its
// image, or err if there is none.
func (p *Prepared) fail(err error) error {
	p.container.kill()
	p.container.end()
	if _, errno := p.container.builder.Failure(); errno != 0 && !errors.Is(err, errs.ErrInterrupted) {
		err = p.container.startError()
	}
	mounts.CloseInBackground(p.container.builder.CloseLater...)
	mounts.CloseFiles(p.container.builder.ShownRoots())
	p.container.builder.Free()
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
		return &errs.Error{Op: "starting", Kind: errs.ErrInterrupted, Err: err}
	}
	if spec.IDs != Same && os.Geteuid() != 0 {
		return &errs.Error{Op: "starting", Kind: errs.ErrDenied, Err: errors.New("only root can give a sandbox its own user ids")}
	}
	return nil
}
