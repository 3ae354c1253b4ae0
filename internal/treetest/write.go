//go:build linux

package treetest

import (
	"encoding/binary"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// This file chooses the steps of random scripts.

// choices returns the kinds of changes from which a [Writer] draws the random steps of a script. One that is
// listed twice is twice as likely.
func choices() []Op {
	return []Op{
		Create, Create, Create, Create, Create, Mkdir, Mkdir, Mkdir, Symlink, Link, Link, Fifo, Socket, Device,
		Write, Write, Append, Append, Truncate, Mmap, Punch, Rename, Rename, Rename, Exchange,
		Chmod, Chmod, Chown, Utimes, Setxattr, Setxattr, Setxattr, Delxattr, Unlink, Unlink, Rmdir, RemoveRF,
	}
}

// step draws a random change of a file tree and applies it to the writer's model of the tree. It returns
// false if the drawn operation does not fit the tree, such as a removal in an empty one.
func (w *Writer) step() (Step, bool) {
	all := choices()
	op := all[w.rand.IntN(len(all))]
	switch op {
	case Create, Mkdir, Symlink, Fifo, Socket, Device:
		return w.stepNew(op)
	case Link, Rename, Exchange:
		return w.stepNames(op)
	case Unlink, Rmdir, RemoveRF:
		return w.stepRemove(op)
	case Write, Append, Truncate, Mmap, Punch:
		return w.stepContent(op)
	}
	return w.stepMeta(op)
}

func (w *Writer) stepNew(op Op) (Step, bool) {
	if op == Device && !w.powers.Root || len(w.nodes) > 400 {
		return Step{}, false
	}
	s := Step{Op: op, Path: w.newPath(), Mode: 0o600 | uint32(w.rand.IntN(0o200))}
	switch op {
	case Create:
		s.Size = w.length()
	case Mkdir:
		s.Mode |= 0o700
	case Symlink:
		s.To = []string{"nowhere", "../../..", "/etc/passwd", strings.Repeat("x", 1000), "bad\xff\nname", "."}[w.rand.IntN(6)]
	case Device:
		s.Mode |= []uint32{unix.S_IFCHR, unix.S_IFBLK}[w.rand.IntN(2)]
		s.Dev = unix.Mkdev(uint32(1+w.rand.IntN(300)), uint32(w.rand.IntN(70000)))
	}
	w.add(s.Path, &node{op: op, size: s.Size})
	return s, true
}

// redirectMax is the longest path, in bytes, of a file that a [Writer] with Powers.ShortRenames renames or
// links. overlayfs stores the old path of a renamed directory, and refuses one over 256 bytes with EXDEV
// (redirect_max of fs/overlayfs).
const redirectMax = 200

func (w *Writer) stepNames(op Op) (Step, bool) {
	path, n := w.pick(nil)
	if n == nil || n.kept || n.op == Mkdir && op == Link || op == Exchange && w.powers.NoExchange {
		return Step{Op: op}, false
	}
	s := Step{Op: op, Path: path, To: w.newPath()}
	dirs := n.op == Mkdir
	if op == Exchange || op == Rename && w.rand.IntN(3) == 0 {
		var other *node
		s.To, other = w.pick(nil)
		dirs = dirs || other.op == Mkdir
		if other == n || other.kept || op == Rename && dirs {
			return s, false
		}
	}
	if !w.canRename(s, dirs) {
		return s, false
	}
	w.rename(s, n)
	return s, true
}

// canRename reports whether the random rename or link step s may be part of a script: neither path lies in
// the other, and the filesystem under test supports it. dirs is set if a directory is involved.
func (w *Writer) canRename(s Step, dirs bool) bool {
	switch {
	case within(s.To, s.Path), within(s.Path, s.To):
		return false
	case dirs && w.powers.NoDirRename:
		return false
	}
	return !w.powers.ShortRenames || max(len(s.Path), len(s.To)) <= redirectMax
}

// rename applies a rename of a random script to the writer's model of the tree; n is the inode at the step's
// path.
func (w *Writer) rename(s Step, n *node) {
	switch s.Op {
	case Link:
		w.add(s.To, n)
	case Rename:
		w.drop(s.To)
		w.move(s.Path, s.To)
	case Exchange:
		const aside = "\x00"
		w.move(s.Path, aside)
		w.move(s.To, s.Path)
		w.move(aside, s.To)
	}
}

func (w *Writer) stepRemove(op Op) (Step, bool) {
	path, n := w.pick(nil)
	if n == nil || (op == Unlink) == (n.op == Mkdir) {
		return Step{}, false
	}
	beneath := 0
	for _, p := range w.paths {
		if within(p, path) {
			beneath++
		}
	}
	if op == Rmdir && beneath > 1 || beneath > 20 && w.rand.IntN(4) > 0 {
		return Step{}, false
	}
	w.drop(path)
	return Step{Op: op, Path: path}, true
}

func (w *Writer) stepContent(op Op) (Step, bool) {
	path, n := w.pick(func(n *node) bool { return n.op == Create && !n.kept })
	if n == nil {
		return Step{}, false
	}
	s := Step{Op: op, Path: path, Size: w.length()}
	switch op {
	case Append:
		s.Off = n.size
	case Write:
		s.Off = w.rand.Int64N(n.size + 1)
		if w.rand.IntN(5) == 0 {
			s.Off += 1 << 20 // a hole before it
		}
	case Mmap, Punch:
		if n.size == 0 || op == Punch && n.capable {
			// Only some filesystems drop a capability for a hole in a hole.
			return s, false
		}
		s.Off = w.rand.Int64N(n.size)
		s.Size = min(s.Size+1, n.size-s.Off)
		return s, true
	case Truncate:
		n.size = s.Size
		return s, true
	}
	if s.Size > 0 {
		n.size = max(n.size, s.Off+s.Size)
	}
	return s, true
}

func (w *Writer) stepMeta(op Op) (Step, bool) {
	path, n := w.pick(func(n *node) bool { return !n.kept })
	if n == nil {
		return Step{}, false
	}
	s := Step{Op: op, Path: path}
	switch op {
	case Chmod:
		if n.op == Symlink {
			return s, false
		}
		s.Mode = w.mode(n)
	case Chown:
		s.UID, s.GID = w.rand.IntN(3000), w.rand.IntN(3000)
		return s, w.powers.Root
	case Setxattr:
		return w.attribute(s, n)
	case Delxattr:
		if len(n.attrs) == 0 {
			return s, false
		}
		s.Attr = n.attrs[0]
		n.attrs = n.attrs[1:]
	}
	return s, true
}

// mode draws, for a random script, permission bits for the file n. They leave its owner, who may not be root,
// the permissions that later steps need.
func (w *Writer) mode(n *node) uint32 {
	mode := uint32(w.rand.IntN(0o1000))
	switch {
	case n.op == Mkdir:
		mode |= 0o700 | []uint32{0, unix.S_ISVTX}[w.rand.IntN(2)]
		if w.powers.Root && w.rand.IntN(4) == 0 {
			mode |= unix.S_ISGID
		}
	case !w.powers.Root:
		mode |= 0o600
	case w.rand.IntN(4) == 0:
		mode |= []uint32{unix.S_ISUID, unix.S_ISGID, unix.S_ISUID | unix.S_ISGID}[w.rand.IntN(3)]
	}
	return mode
}

func (w *Writer) attribute(s Step, n *node) (Step, bool) {
	if n.op != Create && n.op != Mkdir {
		return s, false // user.* attributes are for files and directories only
	}
	kind := w.rand.IntN(6)
	switch {
	case kind == 0 && !w.powers.NoACL:
		s.Attr, s.Value = "system.posix_acl_access", acl(uint16(w.rand.IntN(8)))
	case kind == 1 && !w.powers.NoACL && n.op == Mkdir:
		s.Attr, s.Value = "system.posix_acl_default", acl(uint16(w.rand.IntN(8)))
	case kind == 2 && w.powers.Root && !w.powers.NoCapabilities && n.op == Create:
		s.Attr, s.Value = "security.capability", Capability(w.rand.Uint32()&0xffff)
		n.capable = true
	default:
		s.Attr = "user." + []string{"a", "b.c", "bad\xff\n", strings.Repeat("n", 200)}[w.rand.IntN(4)]
		s.Value = random(w.rand.Uint64(), int64(w.rand.IntN(100)))
		if !slices.Contains(n.attrs, s.Attr) {
			n.attrs = append(n.attrs, s.Attr)
		}
	}
	return s, true
}

// acl returns, for a random script, a POSIX access control list with an extra entry of the permissions perm,
// in the kernel's format (linux/posix_acl_xattr.h): a version, then tag, permissions and id of each entry,
// sorted.
func acl(perm uint16) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	entry := func(tag, perm uint16, id uint32) {
		b = binary.LittleEndian.AppendUint16(b, tag)
		b = binary.LittleEndian.AppendUint16(b, perm)
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	const none = ^uint32(0)
	entry(0x01, 7, none)                 // owner
	entry(0x02, perm, uint32(aclUser())) // a named user
	entry(0x04, 5, none)                 // group
	entry(0x10, 7, none)                 // mask
	entry(0x20, 5, none)                 // others
	return b
}

// aclUser returns the user id for entries of access control lists in random scripts: this process's own,
// because that is mapped in every namespace that tests run in.
func aclUser() int { return os.Getuid() }

// Capability returns the value of the attribute security.capability with this permitted set: a struct
// vfs_cap_data of revision 2 (linux/capability.h).
func Capability(permitted uint32) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 0x02000001)
	b = binary.LittleEndian.AppendUint32(b, permitted)
	return append(b, make([]byte, 12)...)
}

// length draws the size in bytes of a file in a random script: mostly small, now and then of many blocks.
func (w *Writer) length() int64 {
	switch w.rand.IntN(8) {
	case 0:
		return 0
	case 1:
		return w.rand.Int64N(300_000)
	case 2:
		return 4096
	}
	return w.rand.Int64N(5000)
}

// newPath draws, for a step of a random script, a path that does not exist yet, in an existing directory of
// the writer's model of the tree.
func (w *Writer) newPath() string {
	dir, _ := w.pick(func(n *node) bool { return n.op == Mkdir })
	if w.rand.IntN(4) == 0 {
		dir = ""
	}
	return join(dir, w.name(0))
}

// name returns a new file name of n bytes for a random script. For n = 0 it is sometimes of the greatest
// length or with bytes that programs mishandle, such as newlines, quotes and invalid UTF-8.
func (w *Writer) name(n int) string {
	w.count++
	name := "n" + strconv.Itoa(w.count)
	if n > 0 {
		return name + strings.Repeat("d", n-len(name))
	}
	switch w.rand.IntN(12) {
	case 0:
		return name + strings.Repeat("x", 255-len(name))
	case 1:
		return name + "\xff\xfe"
	case 2:
		return "-" + name + "\n\t "
	case 3:
		return name + `:,\"'`
	case 4:
		return ".wh." + name // means something to other layered filesystems
	case 5:
		return name + "äß漢"
	}
	return name
}

// pick draws, for a step of a random script, a path of the writer's model of the tree whose inode satisfies
// fits; "" and nil if there is none.
func (w *Writer) pick(fits func(*node) bool) (string, *node) {
	for range 20 {
		if len(w.paths) == 0 {
			break
		}
		path := w.paths[w.rand.IntN(len(w.paths))]
		if n := w.nodes[path]; fits == nil || fits(n) {
			return path, n
		}
	}
	return "", nil
}

func (w *Writer) add(path string, n *node) {
	n.names++
	w.nodes[path] = n
	w.paths = append(w.paths, path)
}

// drop removes path and everything in it from the model of the tree by which the writer of a random script
// knows the tree, after it has drawn a removal.
func (w *Writer) drop(path string) {
	w.paths = slices.DeleteFunc(w.paths, func(p string) bool {
		if !within(p, path) {
			return false
		}
		w.nodes[p].names--
		delete(w.nodes, p)
		return true
	})
}

// move renames path to to, with everything in it, in the model of the tree by which the writer of a random
// script knows the tree, after it has drawn a rename.
func (w *Writer) move(path, to string) {
	moved := map[string]*node{}
	for i, p := range w.paths {
		if within(p, path) {
			q := to + p[len(path):]
			moved[q] = w.nodes[p]
			delete(w.nodes, p)
			w.paths[i] = q
		}
	}
	for p, n := range moved {
		w.nodes[p] = n
	}
}

func within(p, dir string) bool {
	return strings.HasPrefix(p, dir) && (len(p) == len(dir) || p[len(dir)] == '/')
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
