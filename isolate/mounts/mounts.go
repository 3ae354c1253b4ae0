//go:build linux

package mounts

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/isolate/launch"
)

// The steps for mounts. All of them use the mount API of Linux 5.2: a mount is a descriptor, detached until
// attach attaches it.

const (
	fsSetFlag   = 0 // FSCONFIG_* of linux/mount.h
	fsSetString = 1
	fsCreate    = 6
)

// Filesystem adds the system calls by which pid 1 mounts a new filesystem of the type kind, detached, with
// MOUNT_ATTR_* flags attr. An option is "key=value" or "key". It returns the cell of the mount's descriptor.
func (pl *Planner) Filesystem(kind string, attr int, options ...string) launch.Cell {
	fs := pl.Do(unix.SYS_FSOPEN, pl.Str(kind), launch.Num(unix.FSOPEN_CLOEXEC)).Result()
	for _, o := range options {
		if key, value, ok := strings.Cut(o, "="); ok { // "lowerdir+" is a key
			pl.Do(unix.SYS_FSCONFIG, pl.Of(fs), launch.Num(fsSetString), pl.Str(key), pl.Str(value), launch.Num(0)).Path(o)
		} else {
			pl.Do(unix.SYS_FSCONFIG, pl.Of(fs), launch.Num(fsSetFlag), pl.Str(o), launch.Num(0), launch.Num(0)).Path(o)
		}
	}
	pl.Do(unix.SYS_FSCONFIG, pl.Of(fs), launch.Num(fsCreate), launch.Num(0), launch.Num(0), launch.Num(0))
	m := pl.Do(unix.SYS_FSMOUNT, pl.Of(fs), launch.Num(unix.FSMOUNT_CLOEXEC), launch.Num(attr)).Result()
	pl.Do(unix.SYS_CLOSE, pl.Of(fs))
	return m
}

// clone adds the system call by which pid 1 clones the mount at path, relative to the directory dir, as a
// detached mount, which it can attach elsewhere. flags are further ones of open_tree(2), such as
// AT_RECURSIVE.
func (pl *Planner) clone(dir launch.Arg, path string, flags int) launch.Step {
	return pl.Do(unix.SYS_OPEN_TREE, dir, pl.Str(path),
		launch.Num(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_NO_AUTOMOUNT|flags)).Path(path)
}

// restrict adds the system call by which pid 1 sets the MOUNT_ATTR_* flags attr, such as read-only, on a
// detached mount; with AT_RECURSIVE in flags also on those below it.
func (pl *Planner) restrict(mount launch.Cell, attr uint64, flags int) launch.Step {
	return pl.Do(unix.SYS_MOUNT_SETATTR, pl.Of(mount), pl.Str(""), launch.Num(unix.AT_EMPTY_PATH|flags),
		pl.Words(attr, 0, 0, 0), launch.Num(unix.MOUNT_ATTR_SIZE_VER0))
}

// attach adds the system call by which pid 1 attaches a detached mount at the absolute path to. With follow,
// it follows a symbolic link at the end of the path.
func (pl *Planner) attach(mount launch.Arg, to string, follow bool) launch.Step {
	flags := unix.MOVE_MOUNT_F_EMPTY_PATH
	if follow {
		flags |= unix.MOVE_MOUNT_T_SYMLINKS
	}
	return pl.Do(unix.SYS_MOVE_MOUNT, mount, pl.Str(""), launch.Num(unix.AT_FDCWD), pl.Str(to), launch.Num(flags)).Path(to)
}

// makeTrees adds the system calls by which pid 1 makes the detached mounts of spec.Mounts, except those that
// the supervisor makes.
func (pl *Planner) makeTrees() {
	if pl.Spec.IDs == Same && slices.ContainsFunc(pl.Spec.Mounts, func(m Mount) bool { return m.NoSockets }) {
		pl.Stage = "mounting an empty layer"
		pl.below = pl.empty()
	}
	for i, m := range pl.Spec.Mounts {
		if pl.trees[i] == 0 {
			pl.Stage = "mounting " + m.Target
			pl.trees[i] = pl.makeTree(m, pl.bases[i])
		}
	}
}

// makeTree adds the system calls by which pid 1 makes the mount m, detached, and returns the cell of its
// descriptor. base has the descriptors of the FUSE mounts that are the lowest layers, if m is an overlay with
// such layers ([Overlay.Base]).
func (pl *Planner) makeTree(m Mount, base []launch.Cell) launch.Cell {
	attr := uint64(unix.MOUNT_ATTR_NODEV)
	if m.ReadOnly {
		attr |= unix.MOUNT_ATTR_RDONLY
	}
	switch {
	case m.Skeleton != "":
		return pl.skeleton(m.Skeleton, m.Target)
	case m.MayVanish && len(base) == 0:
		return pl.makeIfThere(m, attr)
	case m.NoSockets:
		return pl.withoutSockets(pl.layer(m.Source), m, attr)
	case m.Source != "":
		return pl.bind(m.Source, attr)
	case m.Overlay.Alone() != "":
		return pl.bind(m.Overlay.Alone(), attr|unix.MOUNT_ATTR_RDONLY)
	}
	return pl.Filesystem("overlay", int(attr), pl.OverlayOptions(m.Overlay, pl.hiddenByPID1(m), base)...)
}

// makeIfThere adds the system calls by which pid 1 makes the mount m, with the MOUNT_ATTR_* flags attr, of a
// directory that may vanish. If the directory does not exist, the cell holds no descriptor.
func (pl *Planner) makeIfThere(m Mount, attr uint64) (tree launch.Cell) {
	path := m.Source
	if m.Overlay != nil {
		path = m.Overlay.Lower[len(m.Overlay.Lower)-1]
	}
	found := pl.Do(unix.SYS_OPENAT, launch.Num(unix.AT_FDCWD), pl.Str(path), launch.Num(unix.O_PATH|unix.O_CLOEXEC)).Path(path)
	at := found.Result()
	if m.NoSockets {
		tree = pl.withoutSockets(pl.numbered(at), m, attr)
	} else if m.Overlay == nil || m.Overlay.Alone() != "" {
		if m.Overlay != nil {
			attr |= unix.MOUNT_ATTR_RDONLY
		}
		tree = pl.clone(pl.Of(at), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE).Path(path).Result()
		pl.restrict(tree, attr, unix.AT_RECURSIVE).Path(path)
	} else {
		o := *m.Overlay
		o.Lower = slices.Clone(o.Lower)
		o.Lower[len(o.Lower)-1] = pl.numbered(at)
		tree = pl.Filesystem("overlay", int(attr), pl.OverlayOptions(&o, pl.hiddenByPID1(m), nil)...)
	}
	found.Expect(pl.Jump())
	return tree
}

// attachTree adds the system call by which pid 1 attaches the mount of spec.Mounts[i] at its target, if the
// tree exists.
func (pl *Planner) attachTree(i int) {
	m := pl.Spec.Mounts[i]
	s := pl.attach(pl.Of(pl.trees[i]), m.Target, false)
	if m.MayVanish {
		s.IgnoreErrors() // no tree, or a target that is not in a MayVanish tree: the container is then emptier, not more open
	}
}

func (pl *Planner) bind(source string, attr uint64) launch.Cell {
	m := pl.clone(launch.Num(unix.AT_FDCWD), source, unix.AT_RECURSIVE).Result()
	pl.restrict(m, attr, unix.AT_RECURSIVE).Path(source)
	return m
}

// OverlayOptions returns those mount options of the overlay o that a user namespace may set. It adds steps by
// which pid 1 opens layers whose names a mount option cannot hold; these and the mounts in base are named by
// descriptor. hidden are the names of the layers directly above the host's tree.
func (pl *Planner) OverlayOptions(o *Overlay, hidden []string, base []launch.Cell) []string {
	names := make([]string, 0, len(o.Lower)+len(hidden)+len(base))
	for i, p := range o.Lower {
		if len(base) == 0 && i == len(o.Lower)-1 {
			names = append(names, hidden...)
		}
		names = append(names, pl.layer(p))
	}
	if len(base) > 0 {
		names = append(names, hidden...)
	}
	for _, m := range base {
		// The mount was made in another user namespace, and can only be a layer in this namespace if it is
		// attached here (clone_private_mount in fs/namespace.c, Linux 6.16).
		pl.attach(pl.Of(m), placeDir, false)
		names = append(names, pl.numbered(m))
	}
	var opts []string
	if o.UserXattr {
		opts = append(opts, "userxattr")
	}
	if len(hidden) > 0 && o.OneFilesystem {
		opts = append(opts, "xino=on")
	}
	if o.Nested {
		// As kernel.WrapLower: a layer that contains other layers is allowed if it is a filesystem of its own,
		// and overlayfs demands two layers where there is no upper.
		last := len(names) - 1
		wrapped := pl.Filesystem("overlay", unix.MOUNT_ATTR_NODEV, append(opts, pl.lowers([]string{names[last], pl.empty()})...)...)
		pl.place(wrapped)
		names[last] = pl.numbered(wrapped)
	}
	opts = append(opts, pl.lowers(names)...)
	if o.Upper != "" {
		opts = append(opts, "upperdir="+pl.layer(o.Upper), "workdir="+pl.layer(o.Work), "volatile")
	}
	return opts
}

// empty adds the system calls by which pid 1 makes an empty directory for an overlay's lowest layer, and
// returns its name.
func (pl *Planner) empty() string {
	m := pl.Filesystem("tmpfs", plainMount, "mode=755")
	pl.place(m)
	return pl.numbered(m)
}

// withoutSockets adds the system calls by which pid 1 mounts a read-only overlay of m above the layer name,
// with the MOUNT_ATTR_* flags attr, in which sockets cannot be connected to ([Mount.NoSockets]).
func (pl *Planner) withoutSockets(name string, m Mount, attr uint64) launch.Cell {
	names := []string{name, pl.below}
	if hidden := pl.hiddenByPID1(m); len(hidden) > 0 {
		names = append(hidden, name)
	}
	return pl.Filesystem("overlay", int(attr), append([]string{"userxattr"}, pl.lowers(names)...)...)
}

// place adds the system call by which pid 1 attaches the mount m somewhere, because it is to be an overlay
// layer. Kernels before 6.15 require that and cannot clone detached mounts (clone_private_mount and
// may_copy_tree in fs/namespace.c). The mount disappears when pid 1 detaches the host's tree.
func (pl *Planner) place(m launch.Cell) {
	there := pl.clone(pl.Of(m), "", unix.AT_EMPTY_PATH)
	pl.Do(unix.SYS_CLOSE, pl.Of(there.Result()))
	done := pl.Jump()
	pl.Last = 0
	there.Expect(pl.attach(pl.Of(m), placeDir, false))
	done.Next(pl.Jump())
}

// placeDir is the directory at which [Planner.place] attaches overlay layers, for kernels that demand
// attached ones. It exists on every host, and no path is looked up in it.
const placeDir = "/proc/fs"

// lowers returns the mount options for the lower layers names of an overlay: one lowerdir, which every kernel
// knows, if all fit into it, with short descriptor paths if necessary; otherwise lowerdir+ for each (Linux
// 6.5).
func (pl *Planner) lowers(names []string) []string {
	const most, number = 250, "/proc/self/fd/"
	all := strings.Join(names, ":")
	if len(all) >= most && len(names)*len(number+"1000:") < most {
		for i, n := range names {
			if !strings.HasPrefix(n, number) {
				names[i] = pl.opened(n)
			}
		}
		all = strings.Join(names, ":")
	}
	if len(all) < most {
		return []string{"lowerdir=" + all}
	}
	var opts []string
	for _, n := range names {
		opts = append(opts, "lowerdir+="+n)
	}
	return opts
}

// layer returns a name for the directory path, an overlay layer, that fits into a mount option, whose values
// end at 255 bytes and have special characters that differ between kernels.
func (pl *Planner) layer(path string) string {
	if len(path) < 100 && !strings.ContainsAny(path, ":,\\") {
		return path
	}
	return pl.opened(path)
}

// opened adds the system call by which pid 1 opens the directory path with O_PATH. It returns the path of
// that descriptor in /proc, a short name for a mount option.
func (pl *Planner) opened(path string) string {
	return pl.numbered(pl.Do(unix.SYS_OPENAT, launch.Num(unix.AT_FDCWD), pl.Str(path),
		launch.Num(unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)).Path(path).Result())
}

// numbered adds the system call by which pid 1 duplicates the descriptor in fd to a number that is known
// before pid 1 runs, and returns the path of that number in /proc.
func (pl *Planner) numbered(fd launch.Cell) string {
	number := pl.around.freeFD
	pl.around.freeFD++
	pl.Do(unix.SYS_DUP3, pl.Of(fd), launch.Num(number), launch.Num(unix.O_CLOEXEC))
	return "/proc/self/fd/" + strconv.Itoa(number)
}

// pivot adds the system calls by which pid 1 makes the container's tree the root of its mount namespace and
// detaches the host's tree. In between the container's tree is attached to a directory that every host has.
func (pl *Planner) pivot() {
	pl.Stage = "changing the root"
	pl.attach(pl.Of(pl.trees[0]), pl.around.anchor, false)
	pl.Do(unix.SYS_FCHDIR, pl.Of(pl.trees[0]))
	pl.Do(unix.SYS_PIVOT_ROOT, pl.Str("."), pl.Str("."))
	pl.Do(unix.SYS_UMOUNT2, pl.Str("."), launch.Num(unix.MNT_DETACH))
	pl.Do(unix.SYS_CHDIR, pl.Str("/"))
}
