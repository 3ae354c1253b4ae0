package isolate

import (
	"context"
	"os"
)

// A Box is a set of namespaces with processes in it. All methods may be called
// from many goroutines at once.
type Box struct{}

// Start builds the box that spec describes and, when command is not nil, runs
// it there as the first process. Either everything asked for is in force (but
// see [Spec.BestEffort]) or nothing is left behind and the error says what is
// missing. ctx bounds the call, not the life of the box.
// Cost: about three times a fork and exec.
// Errors: [*Error]; [*CommandError] when the command cannot be run.
func Start(ctx context.Context, spec Spec, command *Command) (*Box, *Process, error) {
	return nil, nil, &Error{Op: "starting", Kind: ErrNotSupported}
}

// Exec runs one more command in the box, confined exactly as all others are.
// Cost: that of a fork and exec. Errors: as [Start], and [ErrClosed].
func (b *Box) Exec(ctx context.Context, command Command) (*Process, error) {
	return nil, &Error{Op: "starting", Kind: ErrClosed}
}

// Level says what is really in force.
func (b *Box) Level() Level { return Level{} }

// Freeze stops every process in the box, and answers when all of them stand
// still. By the freezer of one of [Spec.Cgroups] where there is one; otherwise by
// SIGSTOP to each, in which case those that were already stopped stay so on
// Thaw, and parents can see it. An error leaves the box running.
// Cost: 1 to 5 ms. Errors: [ErrClosed], [ErrInterrupted], [ErrNotSupported].
func (b *Box) Freeze(ctx context.Context) error { return nil }

// Thaw lets the processes go on. Thawing what is not frozen does nothing.
func (b *Box) Thaw(ctx context.Context) error { return nil }

// Root opens the box's "/" with everything mounted beneath it, as it is seen
// from outside, as an O_PATH directory. The caller closes it, and does so before
// the layers beneath are moved. Errors: [ErrClosed].
func (b *Box) Root() (*os.File, error) { return nil, nil }

// Idle is closed when no process is left in the box and no Exec is under way,
// once there has been a process. Daemons count as processes. After that, Exec
// still works, but Idle stays closed.
func (b *Box) Idle() <-chan struct{} { return nil }

// Done is closed when the box is gone, whatever ended it.
func (b *Box) Done() <-chan struct{} { return nil }

// Close kills everything in the box and answers when every process and mount of
// it is gone. Safe to repeat. When ctx ends first the killing goes on.
// Cost: 1 ms, and more with many processes. Errors: [ErrInterrupted].
func (b *Box) Close(ctx context.Context) error { return nil }

// OpenViews mounts each of mounts read-only where nothing else sees it, and
// answers with a directory descriptor for each, in order. The mount is gone when
// the descriptor is closed. For an ordinary user it is done in a user namespace
// that is gone before OpenViews returns. Target and ReadOnly are not used.
// Either all are opened or none. Errors: [*Error].
func OpenViews(ctx context.Context, mounts []Mount) ([]*os.File, error) {
	return nil, &Error{Op: "opening", Kind: ErrNotSupported}
}
