//go:build linux

package mounts

import (
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/isolate/launch"
)

// A guarded program (isolate.Spec.Guarded) is covered by a stub, so that no process in the container can execute or read it.

// makeStub adds the system calls by which pid 1 makes the mount of the stub that covers guarded programs, in the
// container's /dev, where a device covers the file later, as in makeMasks.
func (pl *Planner) makeStub(p *private) {
	if len(pl.Spec.Guarded) == 0 {
		return
	}
	pl.Stage = "making the stub of guarded programs"
	p.stub = pl.fileUnder(underStub, pl.Spec.Stub, func(file launch.Cell) {
		pl.Do(unix.SYS_FCHMOD, pl.Of(file), launch.Num(0o555))
	})
	pl.Do(unix.SYS_MOUNT_SETATTR, pl.Of(p.stub), pl.Str(""), launch.Num(unix.AT_EMPTY_PATH),
		pl.Words(0, unix.MOUNT_ATTR_NOEXEC, 0, 0), launch.Num(unix.MOUNT_ATTR_SIZE_VER0))
	pl.attach(pl.Of(p.stub), "/dev/"+underStub, false)
}

// guard adds the system calls by which pid 1 opens each program of Spec.Guarded, to execute it later, and then covers
// it with the stub. It does nothing for a path that cannot be opened.
func (pl *Planner) guard() {
	pl.Stage = "guarding programs"
	for _, path := range pl.Spec.Guarded {
		number := pl.around.freeFD
		pl.around.freeFD++
		pl.guarded = append(pl.guarded, number)
		how := pl.Words(unix.O_PATH|unix.O_CLOEXEC, 0, unix.RESOLVE_NO_SYMLINKS)
		open := pl.Do(unix.SYS_OPENAT2, launch.Num(unix.AT_FDCWD), pl.Str(path), how, launch.Num(unix.SizeofOpenHow)).Path(path)
		program := open.Result()
		pl.Do(unix.SYS_DUP3, pl.Of(program), launch.Num(number), launch.Num(unix.O_CLOEXEC)).Path(path)
		pl.cover(program, pl.private.stub)
		pl.Do(unix.SYS_CLOSE, pl.Of(program))
		open.Expect(pl.Jump())
	}
}

// GuardedFDs returns the descriptors of pid 1 by which it executes the programs of Spec.Guarded, in the same order. One
// whose path could not be opened is closed.
func (pl *Planner) GuardedFDs() []int { return pl.guarded }
