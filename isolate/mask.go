//go:build linux

package isolate

import "golang.org/x/sys/unix"

// The steps that hide paths or make them read-only.

// kernelHidden and kernelReadOnly are files of /proc and /sys that reveal the host or change it: the default of
// the OCI runtimes. A kernel may lack any of them.
var (
	kernelHidden = [...]string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kallsyms", "/proc/kcore", "/proc/keys", "/proc/kmsg",
		"/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
		"/sys/devices/virtual/powercap", "/sys/firmware",
	}
	kernelReadOnly = [...]string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// hide adds the steps that mask paths. The steps resolve each path, with its symbolic links, in the finished
// tree.
func (b *builder) hide() {
	b.stage = "hiding"
	for _, p := range kernelHidden {
		b.mask(p)
	}
	for _, p := range b.spec.Hide {
		b.mask(p)
	}
}

// mask covers a directory with an empty directory and any other file with an empty file. Pid 1 still has every
// privilege in its container, so a path that it cannot reach is unreachable for all.
func (b *builder) mask(path string) {
	dir := b.do(unix.SYS_OPENAT, num(unix.AT_FDCWD), b.str(path), num(unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC))
	over := dir.result()
	b.cover(over, b.private.maskDir)
	b.do(unix.SYS_CLOSE, b.of(over))
	done := b.jump()
	b.last = 0

	file := b.do(unix.SYS_OPENAT, num(unix.AT_FDCWD), b.str(path), num(unix.O_PATH|unix.O_CLOEXEC)).quiet(unix.ENOENT).to(over) // a step can tolerate only two errors
	again := b.do(unix.SYS_OPENAT, num(unix.AT_FDCWD), b.str(path), num(unix.O_PATH|unix.O_CLOEXEC)).quiet(unix.ENOTDIR).to(over)
	third := b.do(unix.SYS_OPENAT, num(unix.AT_FDCWD), b.str(path), num(unix.O_PATH|unix.O_CLOEXEC)).path(path).quiet(unix.EACCES, unix.ELOOP).to(over)
	there := b.do(look, b.of(over))
	b.cover(over, b.private.maskFile)
	b.do(unix.SYS_CLOSE, b.of(over))
	after := b.jump()
	dir.expect(file)
	file.next(there).expect(again)
	again.next(there).expect(third)
	there.expect(after)
	done.next(after)
}

// makeMasks clones the masks from the container's /dev: an empty directory and an empty file, which two other
// mounts then cover for good, so that no filesystem has to be created for them. /dev is attached by then:
// before Linux 6.15 a detached mount cannot be cloned (may_copy_tree in fs/namespace.c).
func (b *builder) makeMasks(p *private) {
	p.maskDir = b.clone(b.of(p.dev), underDir, 0).result()
	b.restrict(p.maskDir, quietMount|unix.MOUNT_ATTR_RDONLY, 0)
	b.attach(b.of(p.maskDir), "/dev/"+underDir, false)
	p.maskFile = b.clone(b.of(p.dev), underFile, 0).result()
	b.restrict(p.maskFile, quietMount|unix.MOUNT_ATTR_RDONLY, 0)
	b.attach(b.of(p.maskFile), "/dev/"+underFile, false)
}

const (
	underDir     = "mqueue"
	underFile    = "null"
	underServers = "full"
)

func (b *builder) cover(over, mask cell) {
	m := b.clone(b.of(mask), "", unix.AT_EMPTY_PATH).result()
	b.do(unix.SYS_MOVE_MOUNT, b.of(m), b.str(""), b.of(over), b.str(""),
		num(unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
	b.do(unix.SYS_CLOSE, b.of(m))
}

// readOnly adds the steps that make paths, with everything below them, read-only.
func (b *builder) readOnly() {
	b.stage = "making read-only"
	for _, p := range kernelReadOnly {
		b.lock(p)
	}
	for _, p := range b.spec.ReadOnly {
		b.lock(p)
	}
}

func (b *builder) lock(path string) {
	clone := b.clone(num(unix.AT_FDCWD), path, unix.AT_RECURSIVE).quiet(unix.ENOENT, unix.EACCES)
	m := clone.result()
	there := b.do(look, b.of(m))
	b.restrict(m, unix.MOUNT_ATTR_RDONLY, unix.AT_RECURSIVE).path(path)
	b.attach(b.of(m), path, true)
	b.do(unix.SYS_CLOSE, b.of(m))
	there.expect(b.jump())
}
