package isolate

import "golang.org/x/sys/unix"

// The steps that take things out of sight or make them read-only.

// What of /proc and /sys speaks of the host, or to it: the default of the OCI
// runtimes. All of it may be missing on one kernel or another.
var (
	kernelHidden = [...]struct {
		path string
		dir  bool
	}{
		{"/proc/acpi", true}, {"/proc/asound", true}, {"/proc/scsi", true},
		{"/proc/kcore", false}, {"/proc/keys", false}, {"/proc/latency_stats", false},
		{"/proc/timer_list", false}, {"/proc/timer_stats", false}, {"/proc/sched_debug", false},
		{"/proc/interrupts", false}, {"/proc/kallsyms", false}, {"/proc/kmsg", false},
		{"/sys/firmware", true}, {"/sys/devices/virtual/powercap", true},
	}
	kernelReadOnly = [...]string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// hide adds the steps that mask. What is masked is decided when they run, by
// looking the path up in the finished tree, links and all.
func (b *builder) hide() {
	b.stage = "hiding"
	fs := b.filesystem("tmpfs", quietMount, "mode=755")
	b.do(unix.SYS_MKDIRAT, b.of(fs), b.str("d"), num(0o555))
	b.do(unix.SYS_MKNODAT, b.of(fs), b.str("f"), num(unix.S_IFREG|0o444), num(0))
	b.restrict(fs, unix.MOUNT_ATTR_RDONLY, 0)
	for _, h := range kernelHidden {
		b.maskAs(fs, h.path, h.dir).quiet(unix.ENOENT)
	}
	for _, p := range b.spec.Hide {
		b.mask(fs, p)
	}
	b.do(unix.SYS_CLOSE, b.of(fs))
}

// mask tries both kinds: the kernel refuses to put a directory on a file.
// What this user cannot reach is hidden already.
func (b *builder) mask(fs cell, path string) {
	dir := b.maskAs(fs, path, true)
	b.last = 0
	file := b.clone(b.of(fs), "f", 0)
	m := file.result()
	b.attach(b.of(m), path, true).quiet(unix.ENOENT, unix.EACCES)
	after := b.jump()
	dir.next(after).zero(after).expect(file)
}

func (b *builder) maskAs(fs cell, path string, dir bool) step {
	name := "f"
	if dir {
		name = "d"
	}
	m := b.clone(b.of(fs), name, 0).result()
	return b.attach(b.of(m), path, true)
}

// readOnly adds the steps that make paths read-only with all beneath them.
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
