//go:build linux

package mounts

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/isolate/launch"
)

// The steps that hide paths or make them read-only.

// kernelHidden and kernelReadOnly are files of /proc and /sys that reveal the host or change
// it: the default list of the OCI runtimes. A kernel may lack any of them.
var (
	kernelHidden = [...]string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kallsyms", "/proc/kcore", "/proc/keys", "/proc/kmsg",
		"/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
		"/sys/devices/virtual/powercap", "/sys/firmware",
	}
	kernelReadOnly = [...]string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// hide adds the system calls by which pid 1 masks the paths of Spec.Hide and those of the kernel. Pid 1
// resolves each path, with its symbolic links, in the finished tree.
func (pl *Planner) hide() {
	pl.Stage = "hiding"
	for _, p := range kernelHidden {
		pl.mask(p, pl.private.maskFile)
	}
	for _, p := range pl.Spec.Hide {
		if !slices.ContainsFunc(pl.Spec.Redacted, func(r Redacted) bool { return r.Path == p }) {
			pl.mask(p, pl.private.maskFile)
		}
	}
	for i, r := range pl.Spec.Redacted { // after the others, one of which a symbolic link may lead to
		pl.mask(r.Path, pl.private.redacted[i])
	}
}

// mask adds the system calls by which pid 1 covers path: a directory with an empty directory, another file with
// fileMask, the mount of a file that is empty or redacted. A path that pid 1 cannot reach needs no mask, because pid 1
// still has every privilege in its container.
func (pl *Planner) mask(path string, fileMask launch.Cell) {
	dir := pl.Do(unix.SYS_OPENAT, launch.Num(unix.AT_FDCWD), pl.Str(path), launch.Num(unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC))
	over := dir.Result()
	pl.cover(over, pl.private.maskDir)
	pl.Do(unix.SYS_CLOSE, pl.Of(over))
	done := pl.Jump()
	pl.Last = 0

	file := pl.Do(unix.SYS_OPENAT, launch.Num(unix.AT_FDCWD), pl.Str(path), launch.Num(unix.O_PATH|unix.O_CLOEXEC)).Tolerate(unix.ENOENT).To(over) // a step can tolerate only two errors
	again := pl.Do(unix.SYS_OPENAT, launch.Num(unix.AT_FDCWD), pl.Str(path), launch.Num(unix.O_PATH|unix.O_CLOEXEC)).Tolerate(unix.ENOTDIR).To(over)
	third := pl.Do(unix.SYS_OPENAT, launch.Num(unix.AT_FDCWD), pl.Str(path), launch.Num(unix.O_PATH|unix.O_CLOEXEC)).Path(path).Tolerate(unix.EACCES, unix.ELOOP).To(over)
	there := pl.Do(launch.Load, pl.Of(over))
	pl.cover(over, fileMask)
	pl.Do(unix.SYS_CLOSE, pl.Of(over))
	after := pl.Jump()
	dir.Expect(file)
	file.Next(there).Expect(again)
	again.Next(there).Expect(third)
	there.Expect(after)
	done.Next(after)
}

// makeMasks adds the system calls by which pid 1 clones the mounts that cover hidden paths, an empty directory, an empty
// file and the redacted files, from the container's /dev, where other mounts then cover the originals. /dev is attached
// by then, because before Linux 6.15 a detached mount cannot be cloned (may_copy_tree in fs/namespace.c).
func (pl *Planner) makeMasks(p *private) {
	p.maskDir = pl.clone(pl.Of(p.dev), underDir, 0).Result()
	pl.restrict(p.maskDir, QuietMount|unix.MOUNT_ATTR_RDONLY, 0)
	pl.attach(pl.Of(p.maskDir), "/dev/"+underDir, false)
	p.maskFile = pl.clone(pl.Of(p.dev), underFile, 0).Result()
	pl.restrict(p.maskFile, QuietMount|unix.MOUNT_ATTR_RDONLY, 0)
	pl.attach(pl.Of(p.maskFile), "/dev/"+underFile, false)
	for i, r := range pl.Spec.Redacted {
		m := pl.fileUnder(underRedacted[i], r.Text, func(file launch.Cell) {
			if pl.Spec.IDs != Same {
				pl.Do(unix.SYS_FCHOWN, pl.Of(file), launch.Num(pl.Spec.IDs.orNobody(r.UID)), launch.Num(pl.Spec.IDs.orNobody(r.GID)))
			}
			pl.Do(unix.SYS_FCHMOD, pl.Of(file), launch.Num(r.Mode))
		})
		pl.attach(pl.Of(m), "/dev/"+underRedacted[i], false)
		p.redacted = append(p.redacted, m)
	}
	pl.makeStub(p)
}

// fileUnder adds the system calls by which pid 1 writes text to the file name in the container's /dev, which a device
// covers later, and makes a read-only mount of it. finish adds calls that change the open file's mode and owner.
func (pl *Planner) fileUnder(name string, text []byte, finish func(file launch.Cell)) launch.Cell {
	file := pl.Do(unix.SYS_OPENAT, pl.Of(pl.private.dev), pl.Str(name), launch.Num(unix.O_WRONLY|unix.O_CLOEXEC)).Result()
	pl.Do(unix.SYS_WRITE, pl.Of(file), pl.Bytes(text...), launch.Num(len(text)))
	finish(file)
	pl.Do(unix.SYS_CLOSE, pl.Of(file))
	m := pl.clone(pl.Of(pl.private.dev), name, 0).Result()
	pl.restrict(m, QuietMount|unix.MOUNT_ATTR_RDONLY, 0)
	return m
}

const (
	underDir     = "mqueue"
	underFile    = "null"
	underServers = "full"
	underStub    = "urandom"
)

func (pl *Planner) cover(over, mask launch.Cell) {
	m := pl.clone(pl.Of(mask), "", unix.AT_EMPTY_PATH).Result()
	pl.Do(unix.SYS_MOVE_MOUNT, pl.Of(m), pl.Str(""), pl.Of(over), pl.Str(""),
		launch.Num(unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
	pl.Do(unix.SYS_CLOSE, pl.Of(m))
}

// readOnly adds the system calls by which pid 1 makes the paths of Spec.ReadOnly, with everything below them,
// read-only.
func (pl *Planner) readOnly() {
	pl.Stage = "making read-only"
	for _, p := range kernelReadOnly {
		pl.lock(p, unix.MOUNT_ATTR_RDONLY)
	}
	for _, p := range pl.Spec.ReadOnly {
		pl.lock(p, unix.MOUNT_ATTR_RDONLY)
	}
}

// noExec adds the system calls by which pid 1 of the container mounts the paths of Spec.NoExec so that no
// program in or below them can be executed.
func (pl *Planner) noExec() {
	pl.Stage = "forbidding programs"
	for _, p := range pl.Spec.NoExec {
		pl.lock(p, unix.MOUNT_ATTR_NOEXEC)
	}
}

// lock adds the system calls by which pid 1 mounts path on itself, if it exists, with further attributes such
// as read-only (MOUNT_ATTR_* flags).
func (pl *Planner) lock(path string, attributes uint64) {
	clone := pl.clone(launch.Num(unix.AT_FDCWD), path, unix.AT_RECURSIVE).Tolerate(unix.ENOENT, unix.EACCES)
	m := clone.Result()
	there := pl.Do(launch.Load, pl.Of(m))
	pl.restrict(m, attributes, unix.AT_RECURSIVE).Path(path)
	pl.attach(pl.Of(m), path, true)
	pl.Do(unix.SYS_CLOSE, pl.Of(m))
	there.Expect(pl.Jump())
}
