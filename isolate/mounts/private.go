//go:build linux

package mounts

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/isolate/launch"
)

// The steps for the parts that every container has of its own: /proc, /sys, /dev, /run, /tmp.

const (
	// QuietMount holds the attributes of a mount in which no program can be executed, and devices and set-id
	// bits have no effect.
	QuietMount = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	plainMount = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
)

// A private holds the descriptors, as cells of pid 1's image, of the container's own detached mounts (/proc,
// /dev and so on), from their creation until they are attached.
type private struct {
	proc, sys, cgroup, dev, pts, mqueue, run, tmp, resolv launch.Cell
	maskDir, maskFile                                     launch.Cell
	redacted                                              []launch.Cell // by the index in Spec.Redacted
	servers                                               launch.Cell   // covers /etc/resolv.conf
	stub                                                  launch.Cell   // covers guarded programs
	nodes                                                 []launch.Cell
}

var deviceNodes = [...]string{"null", "zero", "full", "random", "urandom", "tty"}

// MakePrivate adds the system calls by which pid 1 creates the container's own filesystems, such as /proc and
// /dev, as detached mounts.
func (pl *Planner) MakePrivate() {
	p := &pl.private
	pl.Stage = "mounting /proc"
	p.proc = pl.Filesystem("proc", QuietMount)
	if !pl.Spec.HostNetwork {
		pl.Stage = "mounting /sys"
		p.sys = pl.Filesystem("sysfs", QuietMount|unix.MOUNT_ATTR_RDONLY)
	}
	if pl.around.cgroup2 {
		pl.Stage = "mounting /sys/fs/cgroup"
		p.cgroup = pl.Filesystem("cgroup2", QuietMount|unix.MOUNT_ATTR_RDONLY)
	}
	pl.makeDev(p)
	pl.Stage = "mounting /run"
	p.run = pl.tmpfs(plainMount, "mode=755", runShare)
	pl.fill(p.run, pl.around.run)
	if pl.around.resolv != "" {
		p.resolv = pl.makeResolv(p.run)
	}
}

// Terminals returns the cell (a value in pid 1's image) with the descriptor of the container's devpts mount,
// in which its terminals are.
func (pl *Planner) Terminals() launch.Cell { return pl.private.pts }

// Proc returns the cell (a value in pid 1's image) with the descriptor of the container's /proc.
func (pl *Planner) Proc() launch.Cell { return pl.private.proc }

// RootTree returns the cell (a value in pid 1's image) with the descriptor of the mount of the container's
// "/".
func (pl *Planner) RootTree() launch.Cell { return pl.trees[0] }

// makeShared adds the system calls by which pid 1 mounts the host's directory for /tmp, and /sys, unless the
// supervisor makes these mounts. With the host's network the kernel only lets the host's /sys be bound.
func (pl *Planner) makeShared() {
	p := &pl.private
	if p.sys == 0 {
		pl.Stage = "mounting /sys"
		p.sys = pl.clone(launch.Num(unix.AT_FDCWD), "/sys", unix.AT_RECURSIVE).Result()
		pl.restrict(p.sys, QuietMount|unix.MOUNT_ATTR_RDONLY, unix.AT_RECURSIVE)
	}
	pl.Stage = "mounting /tmp"
	switch {
	case p.tmp != 0:
	case pl.Spec.Tmp != "":
		p.tmp = pl.bind(pl.Spec.Tmp, plainMount)
	default:
		p.tmp = pl.tmpfs(plainMount, "mode=1777", tmpShare)
	}
}

// The largest shares of the host's memory that /tmp, /dev and /run of a container may hold, in percent: four
// fifths of it all together.
const (
	tmpShare = 50
	devShare = 20
	runShare = 10
)

// tmpfs adds the system calls by which pid 1 makes a tmpfs that commands can write to, detached, within the
// spec's limits and share percent of the host's memory. attr holds MOUNT_ATTR_* flags; mode is a mount option
// such as "mode=755".
func (pl *Planner) tmpfs(attr int, mode string, share int64) launch.Cell {
	size, inodes, limited := pl.around.memory/100*share, int64(0), false
	options := []string{mode}
	for _, o := range pl.Spec.TmpLimits {
		name, text, _ := strings.Cut(o, "=")
		n, err := strconv.ParseInt(text, 10, 64)
		switch {
		case err == nil && name == "size":
			limited = true
			if size == 0 || n < size {
				size = n
			}
		case err == nil && name == "nr_inodes":
			inodes = n
		default:
			options = append(options, o)
		}
	}
	if size > 0 {
		options = append(options, "size="+strconv.FormatInt(size, 10))
	}
	if most := max(size/tmpInode, leastInodes); limited && (inodes == 0 || most < inodes) {
		inodes = most
	}
	if inodes > 0 {
		options = append(options, "nr_inodes="+strconv.FormatInt(inodes, 10))
	}
	return pl.Filesystem("tmpfs", attr, options...)
}

// A tmpfs with a limit of its size holds one inode for so many bytes (tmpInode), and at least leastInodes. Each uses
// about 1 KiB of the kernel's memory, which the size does not count: empty files would use any amount of it.
const (
	tmpInode    = 4 << 10
	leastInodes = 10_000
)

func (pl *Planner) makeDev(p *private) {
	pl.Stage = "making /dev"
	p.dev = pl.tmpfs(unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, "mode=755", devShare)
	for _, d := range []struct {
		name string
		mode int
	}{{"pts", 0o755}, {"shm", 0o1777}, {"mqueue", 0o555}} {
		pl.Do(unix.SYS_MKDIRAT, pl.Of(p.dev), pl.Str(d.name), launch.Num(d.mode))
	}
	for _, l := range []struct{ name, to string }{
		{"fd", "/proc/self/fd"},
		{"stdin", "/proc/self/fd/0"},
		{"stdout", "/proc/self/fd/1"},
		{"stderr", "/proc/self/fd/2"},
		{"ptmx", "pts/ptmx"},
	} {
		pl.Do(unix.SYS_SYMLINKAT, pl.Str(l.to), pl.Of(p.dev), pl.Str(l.name))
	}
	for _, name := range deviceNodes {
		pl.Do(unix.SYS_MKNODAT, pl.Of(p.dev), pl.Str(name), launch.Num(unix.S_IFREG|0o444), launch.Num(0))
		p.nodes = append(p.nodes, pl.clone(launch.Num(unix.AT_FDCWD), "/dev/"+name, 0).Result())
	}
	options := []string{"newinstance", "ptmxmode=0666", "mode=0620"}
	if pl.Spec.IDs != Same {
		options = append(options, "gid=5") // the group tty on every distribution
	}
	p.pts = pl.Filesystem("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, options...)
	p.mqueue = pl.Filesystem("mqueue", QuietMount)
}

// fill adds the system calls by which pid 1 creates entries (directories and symbolic links) in the fresh
// tmpfs fs. They get the owners that they have on the host as far as the container maps these.
func (pl *Planner) fill(fs launch.Cell, entries []entry) {
	for _, e := range entries {
		if e.file {
			continue
		}
		if e.link != "" {
			pl.Do(unix.SYS_SYMLINKAT, pl.Str(e.link), pl.Of(fs), pl.Str(e.name)).Path(e.name)
			continue
		}
		pl.Do(unix.SYS_MKDIRAT, pl.Of(fs), pl.Str(e.name), launch.Num(e.mode)).Path(e.name).Tolerate(unix.EEXIST, unix.ENOENT)
		owned := pl.Spec.IDs != Same && (e.uid != 0 || e.gid != 0) && e.uid < pl.Spec.IDs.Size && e.gid < pl.Spec.IDs.Size
		if owned {
			pl.Do(unix.SYS_FCHOWNAT, pl.Of(fs), pl.Str(e.name), launch.Num(e.uid), launch.Num(e.gid), launch.Num(0)).Path(e.name)
		}
		if owned || e.mode&0o6000 != 0 {
			pl.Do(unix.SYS_FCHMODAT, pl.Of(fs), pl.Str(e.name), launch.Num(e.mode)).Path(e.name)
		}
	}
}

// skeleton adds the system calls by which pid 1 makes a read-only tmpfs with the first level of the host
// directory dir, to be attached at target. Files are bound into it, read-only; one that is to be masked is an
// empty file, because a mask of a bound file is gone when the host removes or replaces that file.
func (pl *Planner) skeleton(dir, target string) launch.Cell {
	fs := pl.Filesystem("tmpfs", plainMount, "mode=755")
	entries := firstLevel(dir)
	pl.fill(fs, entries)
	for _, e := range entries {
		if !e.file || pl.Spec.IDs != Same {
			continue
		}
		pl.Do(unix.SYS_MKNODAT, pl.Of(fs), pl.Str(e.name), launch.Num(unix.S_IFREG|0o444), launch.Num(0)).Path(e.name)
		if slices.Contains(pl.Spec.Hide, path.Join(target, e.name)) {
			continue
		}
		from := path.Join(dir, e.name)
		// In a directory that others can write, the name may be a symbolic link by now.
		file := pl.clone(launch.Num(unix.AT_FDCWD), from, unix.AT_SYMLINK_NOFOLLOW)
		m := file.Result()
		pl.restrict(m, plainMount|unix.MOUNT_ATTR_RDONLY, 0).Path(from)
		file.Expect(pl.Jump()) // the file may be gone by now
		pl.files = append(pl.files, bound{m, path.Join(target, e.name)})
	}
	pl.restrict(fs, unix.MOUNT_ATTR_RDONLY, 0)
	return fs
}

// A bound is the mount of a single host file that pid 1 attaches at the path to, after the directory that
// contains it.
type bound struct {
	mount launch.Cell
	to    string
}

// makeResolv adds the system calls by which pid 1 gives the container the host's list of name servers, if
// /etc/resolv.conf is a symbolic link into /run. Pid 1 creates the link's target in the container's own /run,
// the mount run, and clones the host's file, read-only.
func (pl *Planner) makeResolv(run launch.Cell) launch.Cell {
	pl.Stage = "handing over resolv.conf"
	rest := strings.TrimPrefix(pl.around.resolv, "/run/")
	for i, c := range rest {
		if c == '/' {
			pl.Do(unix.SYS_MKDIRAT, pl.Of(run), pl.Str(rest[:i]), launch.Num(0o755)).Tolerate(unix.EEXIST)
		}
	}
	pl.Do(unix.SYS_MKNODAT, pl.Of(run), pl.Str(rest), launch.Num(unix.S_IFREG|0o644), launch.Num(0))
	m := pl.clone(launch.Num(unix.AT_FDCWD), pl.around.resolv, 0).Result()
	pl.restrict(m, plainMount|unix.MOUNT_ATTR_RDONLY, 0)
	return m
}

// ResolvPath is the file by which programs in a container find the name servers.
const ResolvPath = "/etc/resolv.conf"

// makeServers adds the system calls by which pid 1 makes a file with Spec.Resolver, the container's only name
// server, to be mounted over /etc/resolv.conf. Pid 1 writes it in the container's /dev, as makeMasks does,
// and clones it read-only.
func (pl *Planner) makeServers() launch.Cell {
	pl.Stage = "handing over resolv.conf"
	text := "nameserver " + pl.Spec.Resolver.String() + "\n"
	return pl.fileUnder(underServers, []byte(text), func(launch.Cell) {})
}

// attachServers adds the system call by which pid 1 mounts the file with the container's only name server
// over /etc/resolv.conf. If resolv.conf is a symbolic link, the link itself is covered: its target may lie in
// /run, where the container has nothing, and belong to another program.
func (pl *Planner) attachServers() {
	if pl.private.servers == 0 {
		return
	}
	pl.Stage = "handing over resolv.conf"
	pl.attach(pl.Of(pl.private.servers), ResolvPath, false)
}

func (pl *Planner) attachPrivate(p *private) {
	const attaching = "attaching /proc, /sys, /dev, /run and /tmp"
	pl.Stage = attaching
	pl.attach(pl.Of(p.proc), "/proc", false)
	pl.attach(pl.Of(p.sys), "/sys", false)
	if p.cgroup != 0 {
		pl.attach(pl.Of(p.cgroup), "/sys/fs/cgroup", false)
	}
	pl.attach(pl.Of(p.dev), "/dev", false)
	pl.makeMasks(p)
	if pl.Spec.Resolver.IsValid() {
		p.servers = pl.makeServers()
	}
	pl.Stage = attaching
	for i, name := range deviceNodes {
		pl.attach(pl.Of(p.nodes[i]), "/dev/"+name, false)
	}
	pl.attach(pl.Of(p.pts), "/dev/pts", false)
	pl.attach(pl.Of(p.mqueue), "/dev/mqueue", false)
	pl.attach(pl.Of(p.run), "/run", false)
	if p.resolv != 0 {
		pl.attach(pl.Of(p.resolv), path.Clean(pl.around.resolv), false)
	}
	pl.attach(pl.Of(p.tmp), "/tmp", false)
}
