//go:build linux

package isolate

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The steps for mounts. All of them use the mount API of Linux 5.2: a mount is a descriptor, detached until attach attaches it.

const (
	fsSetFlag   = 0 // FSCONFIG_* of linux/mount.h
	fsSetString = 1
	fsCreate    = 6
)

// filesystem adds the steps that mount a new filesystem, detached. An option is "key=value" or "key".
func (b *builder) filesystem(kind string, attr int, options ...string) cell {
	fs := b.do(unix.SYS_FSOPEN, b.str(kind), num(unix.FSOPEN_CLOEXEC)).result()
	for _, o := range options {
		if key, value, ok := strings.Cut(o, "="); ok { // "lowerdir+" is a key
			b.do(unix.SYS_FSCONFIG, b.of(fs), num(fsSetString), b.str(key), b.str(value), num(0)).path(o)
		} else {
			b.do(unix.SYS_FSCONFIG, b.of(fs), num(fsSetFlag), b.str(o), num(0), num(0)).path(o)
		}
	}
	b.do(unix.SYS_FSCONFIG, b.of(fs), num(fsCreate), num(0), num(0), num(0))
	m := b.do(unix.SYS_FSMOUNT, b.of(fs), num(unix.FSMOUNT_CLOEXEC), num(attr)).result()
	b.do(unix.SYS_CLOSE, b.of(fs))
	return m
}

// clone adds the step that clones the mount at path, relative to dir, detached.
func (b *builder) clone(dir arg, path string, flags int) step {
	return b.do(unix.SYS_OPEN_TREE, dir, b.str(path),
		num(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_NO_AUTOMOUNT|flags)).path(path)
}

// restrict adds the step that sets MOUNT_ATTR_* flags on a detached mount.
func (b *builder) restrict(mount cell, attr uint64, flags int) step {
	return b.do(unix.SYS_MOUNT_SETATTR, b.of(mount), b.str(""), num(unix.AT_EMPTY_PATH|flags),
		b.words(attr, 0, 0, 0), num(unix.MOUNT_ATTR_SIZE_VER0))
}

// attach adds the step that attaches a detached mount at an absolute path. With follow, the step follows a
// symbolic link at the end of the path.
func (b *builder) attach(mount arg, to string, follow bool) step {
	flags := unix.MOVE_MOUNT_F_EMPTY_PATH
	if follow {
		flags |= unix.MOVE_MOUNT_T_SYMLINKS
	}
	return b.do(unix.SYS_MOVE_MOUNT, mount, b.str(""), num(unix.AT_FDCWD), b.str(to), num(flags)).path(to)
}

// makeTrees adds the steps that make the detached mounts of spec.Mounts, except premounts.
func (b *builder) makeTrees() {
	for i, m := range b.spec.Mounts {
		if b.trees[i] == 0 {
			b.stage = "mounting " + m.Target
			b.trees[i] = b.makeTree(m, b.bases[i])
		}
	}
}

// makeTree adds the steps for one mount; base are the mounts of its overlay's Base.
func (b *builder) makeTree(m Mount, base []cell) cell {
	attr := uint64(unix.MOUNT_ATTR_NODEV)
	if m.ReadOnly {
		attr |= unix.MOUNT_ATTR_RDONLY
	}
	switch {
	case m.Skeleton != "":
		return b.skeleton(m.Skeleton, m.Target)
	case m.MayVanish && len(base) == 0:
		return b.makeIfThere(m, attr)
	case m.Source != "":
		return b.bind(m.Source, attr)
	case m.Overlay.alone() != "":
		return b.bind(m.Overlay.alone(), attr|unix.MOUNT_ATTR_RDONLY)
	}
	return b.filesystem("overlay", int(attr), b.overlayOptions(m.Overlay, base)...)
}

// makeIfThere makes a tree of a directory that may vanish: the tree exists once the directory has been opened.
// If it has vanished, the cell holds no descriptor.
func (b *builder) makeIfThere(m Mount, attr uint64) (tree cell) {
	path := m.Source
	if m.Overlay != nil {
		path = m.Overlay.Lower[len(m.Overlay.Lower)-1]
	}
	found := b.do(unix.SYS_OPENAT, num(unix.AT_FDCWD), b.str(path), num(unix.O_PATH|unix.O_CLOEXEC)).path(path)
	at := found.result()
	if m.Overlay == nil || m.Overlay.alone() != "" {
		if m.Overlay != nil {
			attr |= unix.MOUNT_ATTR_RDONLY
		}
		tree = b.clone(b.of(at), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE).path(path).result()
		b.restrict(tree, attr, unix.AT_RECURSIVE).path(path)
	} else {
		o := *m.Overlay
		o.Lower = slices.Clone(o.Lower)
		o.Lower[len(o.Lower)-1] = b.numbered(at)
		tree = b.filesystem("overlay", int(attr), b.overlayOptions(&o, nil)...)
	}
	found.expect(b.jump())
	return tree
}

// attachTree adds the step that attaches spec.Mounts[i], if its tree exists.
func (b *builder) attachTree(i int) {
	m := b.spec.Mounts[i]
	s := b.attach(b.of(b.trees[i]), m.Target, false)
	if m.MayVanish {
		s.anyhow() // no tree, or a target that is not in a MayVanish tree: the container is then emptier, not more open
	}
}

func (b *builder) bind(source string, attr uint64) cell {
	m := b.clone(num(unix.AT_FDCWD), source, unix.AT_RECURSIVE).result()
	b.restrict(m, attr, unix.AT_RECURSIVE).path(source)
	return m
}

// overlayOptions returns the options that a user namespace may set. Layers whose names a mount option cannot
// hold are opened first and named by descriptor, and so are the mounts in base.
func (b *builder) overlayOptions(o *Overlay, base []cell) []string {
	names := make([]string, len(o.Lower))
	for i, p := range o.Lower {
		names[i] = b.layer(p)
	}
	for _, m := range base {
		// The mount was made in another user namespace, and can only be a layer in this namespace if it is
		// attached here (clone_private_mount in fs/namespace.c, Linux 6.16).
		b.attach(b.of(m), placeDir, false)
		names = append(names, b.numbered(m))
	}
	var opts []string
	if o.UserXattr {
		opts = append(opts, "userxattr")
	}
	if o.Nested {
		// As kernel.WrapLower: a layer that contains other layers is allowed if it is a filesystem of its own,
		// and overlayfs demands two layers where there is no upper.
		last := len(names) - 1
		empty := b.filesystem("tmpfs", plainMount, "mode=755")
		b.place(empty)
		wrapped := b.filesystem("overlay", unix.MOUNT_ATTR_NODEV, append(opts, b.lowers([]string{names[last], b.numbered(empty)})...)...)
		b.place(wrapped)
		names[last] = b.numbered(wrapped)
	}
	opts = append(opts, b.lowers(names)...)
	if o.Upper != "" {
		opts = append(opts, "upperdir="+b.layer(o.Upper), "workdir="+b.layer(o.Work), "volatile")
	}
	return opts
}

// place attaches a mount that is to be a layer, on kernels that want layers attached: those before Linux 6.15,
// which also cannot clone detached mounts (clone_private_mount and may_copy_tree in fs/namespace.c). The mount
// goes with the host's tree.
func (b *builder) place(m cell) {
	there := b.clone(b.of(m), "", unix.AT_EMPTY_PATH)
	b.do(unix.SYS_CLOSE, b.of(there.result()))
	done := b.jump()
	b.last = 0
	there.expect(b.attach(b.of(m), placeDir, false))
	done.next(b.jump())
}

// placeDir exists on every host, and no path is looked up in it.
const placeDir = "/proc/fs"

// lowers returns the options for lower layers: lowerdir, which every kernel knows, if they fit into it, by
// their descriptors if necessary; otherwise lowerdir+ for each (Linux 6.5).
func (b *builder) lowers(names []string) []string {
	const most, number = 250, "/proc/self/fd/"
	all := strings.Join(names, ":")
	if len(all) >= most && len(names)*len(number+"1000:") < most {
		for i, n := range names {
			if !strings.HasPrefix(n, number) {
				names[i] = b.opened(n)
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

// layer returns a name of a directory that fits into a mount option: values end at 255 bytes, and kernels
// differ in their special characters.
func (b *builder) layer(path string) string {
	if len(path) < 100 && !strings.ContainsAny(path, ":,\\") {
		return path
	}
	return b.opened(path)
}

// opened adds the step that opens a directory and returns its descriptor's path.
func (b *builder) opened(path string) string {
	return b.numbered(b.do(unix.SYS_OPENAT, num(unix.AT_FDCWD), b.str(path),
		num(unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)).path(path).result())
}

// numbered duplicates a descriptor to a number that is known now, and returns the path of that.
func (b *builder) numbered(fd cell) string {
	number := b.host.freeFD
	b.host.freeFD++
	b.do(unix.SYS_DUP3, b.of(fd), num(number), num(unix.O_CLOEXEC))
	return "/proc/self/fd/" + strconv.Itoa(number)
}

// pivot adds the steps that make the root tree the root of the mount namespace and detach the host's. In
// between it is attached to a directory that every host has.
func (b *builder) pivot() {
	b.stage = "changing the root"
	b.attach(b.of(b.trees[0]), b.host.anchor, false)
	b.do(unix.SYS_FCHDIR, b.of(b.trees[0]))
	b.do(unix.SYS_PIVOT_ROOT, b.str("."), b.str("."))
	b.do(unix.SYS_UMOUNT2, b.str("."), num(unix.MNT_DETACH))
	b.do(unix.SYS_CHDIR, b.str("/"))
}
