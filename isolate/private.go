//go:build linux

package isolate

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// The steps for the parts that every container has of its own: /proc, /sys, /dev, /run, /tmp.

const (
	quietMount = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	plainMount = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
)

// private holds the detached mounts from their creation, while the host's tree is still the root, until they
// are attached.
type private struct {
	proc, sys, cgroup, dev, pts, mqueue, run, tmp, resolv cell
	maskDir, maskFile                                     cell
	servers                                               cell // covers /etc/resolv.conf
	nodes                                                 []cell
}

var deviceNodes = [...]string{"null", "zero", "full", "random", "urandom", "tty"}

func (b *builder) makePrivate() private {
	var p private
	b.stage = "mounting /proc"
	p.proc = b.filesystem("proc", quietMount)
	if b.spec.Network != NetworkHost {
		b.stage = "mounting /sys"
		p.sys = b.filesystem("sysfs", quietMount|unix.MOUNT_ATTR_RDONLY)
	}
	if b.host.cgroup2 {
		b.stage = "mounting /sys/fs/cgroup"
		p.cgroup = b.filesystem("cgroup2", quietMount|unix.MOUNT_ATTR_RDONLY)
	}
	b.makeDev(&p)
	b.stage = "mounting /run"
	p.run = b.filesystem("tmpfs", plainMount, "mode=755")
	b.fill(p.run, b.host.run)
	if b.host.resolv != "" {
		p.resolv = b.makeResolv(p.run)
	}
	return p
}

// makeShared adds the steps that mount the host's /tmp directory and /sys, unless they are premounts. With the
// host's network the kernel only lets the host's /sys be bound.
func (b *builder) makeShared() {
	p := &b.private
	if p.sys == 0 {
		b.stage = "mounting /sys"
		p.sys = b.clone(num(unix.AT_FDCWD), "/sys", unix.AT_RECURSIVE).result()
		b.restrict(p.sys, quietMount|unix.MOUNT_ATTR_RDONLY, unix.AT_RECURSIVE)
	}
	b.stage = "mounting /tmp"
	switch {
	case p.tmp != 0:
	case b.spec.Tmp != "":
		p.tmp = b.bind(b.spec.Tmp, plainMount)
	default:
		p.tmp = b.filesystem("tmpfs", plainMount, "mode=1777")
	}
}

func (b *builder) makeDev(p *private) {
	b.stage = "making /dev"
	p.dev = b.filesystem("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, "mode=755")
	for _, d := range []struct {
		name string
		mode int
	}{{"pts", 0o755}, {"shm", 0o1777}, {"mqueue", 0o555}} {
		b.do(unix.SYS_MKDIRAT, b.of(p.dev), b.str(d.name), num(d.mode))
	}
	for _, l := range []struct{ name, to string }{
		{"fd", "/proc/self/fd"},
		{"stdin", "/proc/self/fd/0"},
		{"stdout", "/proc/self/fd/1"},
		{"stderr", "/proc/self/fd/2"},
		{"ptmx", "pts/ptmx"},
	} {
		b.do(unix.SYS_SYMLINKAT, b.str(l.to), b.of(p.dev), b.str(l.name))
	}
	for _, name := range deviceNodes {
		b.do(unix.SYS_MKNODAT, b.of(p.dev), b.str(name), num(unix.S_IFREG|0o444), num(0))
		p.nodes = append(p.nodes, b.clone(num(unix.AT_FDCWD), "/dev/"+name, 0).result())
	}
	options := []string{"newinstance", "ptmxmode=0666", "mode=0620"}
	if b.spec.IDs != Same {
		options = append(options, "gid=5") // the group tty on every distribution
	}
	p.pts = b.filesystem("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, options...)
	p.mqueue = b.filesystem("mqueue", quietMount)
}

// fill adds the steps that create directories and symbolic links in a fresh tmpfs, with the host's owners as
// far as the container maps them.
func (b *builder) fill(fs cell, entries []entry) {
	for _, e := range entries {
		if e.file {
			continue
		}
		if e.link != "" {
			b.do(unix.SYS_SYMLINKAT, b.str(e.link), b.of(fs), b.str(e.name)).path(e.name)
			continue
		}
		b.do(unix.SYS_MKDIRAT, b.of(fs), b.str(e.name), num(e.mode)).path(e.name).quiet(unix.EEXIST, unix.ENOENT)
		owned := b.spec.IDs != Same && (e.uid != 0 || e.gid != 0) && e.uid < b.spec.IDs.size && e.gid < b.spec.IDs.size
		if owned {
			b.do(unix.SYS_FCHOWNAT, b.of(fs), b.str(e.name), num(e.uid), num(e.gid), num(0)).path(e.name)
		}
		if owned || e.mode&0o6000 != 0 {
			b.do(unix.SYS_FCHMODAT, b.of(fs), b.str(e.name), num(e.mode)).path(e.name)
		}
	}
}

// skeleton adds the steps for a read-only tmpfs with the first level of a host directory, to be attached at
// target. Files are bound into it, read-only.
func (b *builder) skeleton(dir, target string) cell {
	fs := b.filesystem("tmpfs", plainMount, "mode=755")
	entries := firstLevel(dir)
	b.fill(fs, entries)
	for _, e := range entries {
		if !e.file || b.spec.IDs != Same {
			continue
		}
		b.do(unix.SYS_MKNODAT, b.of(fs), b.str(e.name), num(unix.S_IFREG|0o444), num(0)).path(e.name)
		from := path.Join(dir, e.name)
		// In a directory that others can write, the name may be a symbolic link by now.
		file := b.clone(num(unix.AT_FDCWD), from, unix.AT_SYMLINK_NOFOLLOW)
		m := file.result()
		b.restrict(m, plainMount|unix.MOUNT_ATTR_RDONLY, 0).path(from)
		file.expect(b.jump()) // the file may be gone by now
		b.files = append(b.files, bound{m, path.Join(target, e.name)})
	}
	b.restrict(fs, unix.MOUNT_ATTR_RDONLY, 0)
	return fs
}

// bound is a file to attach once its directory is attached.
type bound struct {
	mount cell
	to    string
}

// makeResolv adds the steps that create the target of /etc/resolv.conf in run and clone the host's file,
// read-only.
func (b *builder) makeResolv(run cell) cell {
	b.stage = "handing over resolv.conf"
	rest := strings.TrimPrefix(b.host.resolv, "/run/")
	for i, c := range rest {
		if c == '/' {
			b.do(unix.SYS_MKDIRAT, b.of(run), b.str(rest[:i]), num(0o755)).quiet(unix.EEXIST)
		}
	}
	b.do(unix.SYS_MKNODAT, b.of(run), b.str(rest), num(unix.S_IFREG|0o644), num(0))
	m := b.clone(num(unix.AT_FDCWD), b.host.resolv, 0).result()
	b.restrict(m, plainMount|unix.MOUNT_ATTR_RDONLY, 0)
	return m
}

const resolvPath = "/etc/resolv.conf"

// makeServers adds the steps that write the only name server into a file of the container's /dev, as makeMasks
// does, and clone it read-only.
func (b *builder) makeServers() cell {
	b.stage = "handing over resolv.conf"
	text := "nameserver " + b.spec.Resolver.String() + "\n"
	file := b.do(unix.SYS_OPENAT, b.of(b.private.dev), b.str(underServers), num(unix.O_WRONLY|unix.O_CLOEXEC)).result()
	b.do(unix.SYS_WRITE, b.of(file), b.str(text), num(len(text)))
	b.do(unix.SYS_CLOSE, b.of(file))
	m := b.clone(b.of(b.private.dev), underServers, 0).result()
	b.restrict(m, quietMount|unix.MOUNT_ATTR_RDONLY, 0)
	return m
}

// attachServers adds the step that covers the container's resolv.conf. If that is a symbolic link, the link
// itself is covered: its target may lie in /run, where the container has nothing, and belong to another
// program.
func (b *builder) attachServers() {
	if b.private.servers == 0 {
		return
	}
	b.stage = "handing over resolv.conf"
	b.attach(b.of(b.private.servers), resolvPath, false)
}

func (b *builder) attachPrivate(p *private) {
	const attaching = "attaching /proc, /sys, /dev, /run and /tmp"
	b.stage = attaching
	b.attach(b.of(p.proc), "/proc", false)
	b.attach(b.of(p.sys), "/sys", false)
	if p.cgroup != 0 {
		b.attach(b.of(p.cgroup), "/sys/fs/cgroup", false)
	}
	b.attach(b.of(p.dev), "/dev", false)
	b.makeMasks(p)
	if b.spec.Resolver.IsValid() {
		p.servers = b.makeServers()
	}
	b.stage = attaching
	for i, name := range deviceNodes {
		b.attach(b.of(p.nodes[i]), "/dev/"+name, false)
	}
	b.attach(b.of(p.pts), "/dev/pts", false)
	b.attach(b.of(p.mqueue), "/dev/mqueue", false)
	b.attach(b.of(p.run), "/run", false)
	if p.resolv != 0 {
		b.attach(b.of(p.resolv), path.Clean(b.host.resolv), false)
	}
	b.attach(b.of(p.tmp), "/tmp", false)
}
