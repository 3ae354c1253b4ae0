//go:build linux

package isolate

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// A gift is a mount that the keeper makes for a box: one that it serves; and, being
// root, for a box of its own ids what a user namespace could not: id-mapped, and with
// options of overlay that only the host's root may use.
type gift struct {
	mount Mount
	attr  uint64
	plain bool  // not id-mapped
	to    *cell // where the builder wants it
}

// maxGifts is how many descriptors a message may carry (SCM_MAX_FD).
const maxGifts = 253

// receiveGifts adds the step that takes over what the keeper makes. It waits for
// the keeper, who needs the user namespace of the process for it.
func (b *builder) receiveGifts() {
	b.stage = "taking over the trees"
	space := unix.CmsgSpace(4 * maxGifts)
	b.gifted = b.take(space)
	iov := b.words(b.addr(int(b.newCell(0))), 1)
	b.receive(b.words(0, 0, iov.v, 1, b.addr(b.gifted), uint64(space), 0))
}

// wantGifts lists what the keeper is to make, and where it arrives.
func (b *builder) wantGifts() {
	b.trees, b.bases = make([]cell, len(b.spec.Mounts)), make([][]cell, len(b.spec.Mounts))
	own := b.spec.IDs != Same
	for i, m := range b.spec.Mounts {
		switch {
		case m.Served != nil || own && m.Skeleton == "":
			b.gifts = append(b.gifts, gift{mount: m, attr: unix.MOUNT_ATTR_NODEV, to: &b.trees[i]})
		case m.Overlay != nil:
			b.bases[i] = make([]cell, len(m.Overlay.Base))
			for j, s := range m.Overlay.Base {
				b.gifts = append(b.gifts, gift{mount: Mount{Target: m.Target, Served: s, ReadOnly: true}, to: &b.bases[i][j]})
			}
		}
	}
	if tmp := b.spec.Tmp; own && tmp != "" {
		b.gifts = append(b.gifts, gift{mount: Mount{Source: tmp}, attr: plainMount, to: &b.private.tmp})
	}
	if own && b.spec.Network == NetworkHost {
		sys := Mount{Source: "/sys", ReadOnly: true}
		b.gifts = append(b.gifts, gift{mount: sys, attr: quietMount, plain: true, to: &b.private.sys})
	}
	for i, g := range b.gifts {
		*g.to = cell(b.gifted + unix.CmsgLen(0) + 4*i)
	}
}

// mapIDs maps the ids of the process pid and opens its user namespace.
func (b *builder) mapIDs(pid int) error {
	proc := "/proc/" + strconv.Itoa(pid)
	ids := "0 " + strconv.Itoa(int(b.spec.IDs.base)) + " " + strconv.Itoa(int(b.spec.IDs.size))
	for _, file := range []string{proc + "/uid_map", proc + "/gid_map"} {
		if err := os.WriteFile(file, []byte(ids), 0); err != nil {
			return hostError("mapping the users", err)
		}
	}
	userns, err := os.Open(proc + "/ns/user")
	if err != nil {
		return hostError("mapping the users", err)
	}
	b.userns = userns
	b.trash = append(b.trash, userns)
	return nil
}

// give is the keeper's side of receiveGifts: it makes the mounts and sends them
// by the control socket ctl. What it opened is in trash afterwards.
// Cost: 0.2 ms for an overlay.
func (b *builder) give(ctx context.Context, ctl int) error {
	if len(b.gifts) > maxGifts {
		return &Error{Op: "handing over the trees", Kind: ErrInvalid, Err: unix.E2BIG}
	}
	var fds []int
	for _, g := range b.gifts {
		f, err := b.make(ctx, g, b.userns)
		if err != nil {
			return hostError("mounting "+g.mount.String(), err)
		}
		b.trash, fds = append(b.trash, f), append(fds, int(f.Fd()))
	}
	err := b.goOn(ctl, fds)
	runtime.KeepAlive(b.trash)
	return err
}

func (b *builder) make(ctx context.Context, g gift, userns *os.File) (*os.File, error) {
	attr := g.attr
	if g.mount.ReadOnly {
		attr |= unix.MOUNT_ATTR_RDONLY
	}
	switch o := g.mount.Overlay; {
	case g.mount.Served != nil:
		return b.served(ctx, g.mount, attr, userns)
	case o == nil && g.plain:
		return mapped(g.mount.Source, attr, nil)
	case o == nil:
		m, err := mapped(g.mount.Source, attr, userns)
		if !errors.As(err, new(unmappable)) {
			return m, err
		}
		if g.mount.ReadOnly { // its owners look like nobody
			return mapped(g.mount.Source, attr, nil)
		}
		return b.shifted(ctx, g.mount.Target, g.mount.Source, attr, err)
	case o.alone() != "":
		m, err := mapped(o.alone(), attr|unix.MOUNT_ATTR_RDONLY, userns)
		if errors.As(err, new(unmappable)) {
			m, err = b.shifted(ctx, g.mount.Target, o.alone(), attr|unix.MOUNT_ATTR_RDONLY, err)
		}
		return m, err
	default:
		return b.overlayOf(ctx, g.mount.Target, *o, attr, userns)
	}
}

// mapped clones the mount at path, with ids as userns maps them if not nil. What
// cannot be mapped is an unmappable.
func mapped(path string, attr uint64, userns *os.File) (*os.File, error) {
	m, err := kernel.CloneTree(path, false)
	if err != nil {
		return nil, err
	}
	if userns != nil {
		err = kernel.IDMap(m, userns, false)
	}
	if userns != nil && errors.Is(err, unix.EINVAL) {
		err = unmappable{path, err}
	}
	if err == nil && attr != 0 {
		err = kernel.SetMountAttr(m, attr, 0, false)
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// mountServed mounts a tree that a process answers for. What an ordinary user has
// mounted he cannot change, and devices and set-id bits have no effect in it.
func mountServed(ctx context.Context, m Mount, attr uint64, userns *os.File) (*os.File, error) {
	fd, err := m.Served.Mount(ctx, attr&unix.MOUNT_ATTR_RDONLY != 0)
	if err != nil {
		return nil, err
	}
	tree := os.NewFile(uintptr(fd), m.Target)
	if os.Geteuid() != 0 {
		return tree, nil
	}
	if err := restricted(tree, attr, userns); err != nil {
		tree.Close()
		if userns != nil && errors.Is(err, unix.EINVAL) {
			err = unmappable{m.Target, err}
		}
		return nil, err
	}
	return tree, nil
}

// restricted gives a detached mount flags and, if userns is not nil, its ids.
func restricted(tree *os.File, attr uint64, userns *os.File) error {
	if userns != nil {
		if err := kernel.IDMap(tree, userns, false); err != nil {
			return err
		}
	}
	return kernel.SetMountAttr(tree, attr, 0, false)
}

// later closes mounts that were not attached anywhere, out of the way: the
// kernel waits for all of its readers when such a mount goes (0.5 ms).
func later(mounts ...*os.File) {
	go func() {
		for _, m := range mounts {
			_ = m.Close() // nothing was written; some are nil
		}
	}()
}

// writable mounts an overlay with an upper layer. Overlayfs makes files in it
// with the ids of whoever mounts, which must be ids that the layers map: so the
// thread becomes the box's root, base on the host, for the while, as far as files
// go, and takes the capabilities back that it loses by that (capabilities(7),
// "Effect of user ID changes on capabilities").
func writable(ov kernel.Overlay, base int) (*os.File, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var before, raised [2]unix.CapUserData
	if err := unix.Capget(&header, &before[0]); err != nil {
		return nil, err
	}
	if err := errors.Join(unix.Setfsgid(base), unix.Setfsuid(base)); err != nil {
		return nil, err
	}
	raised = before
	for i := range raised {
		raised[i].Effective = raised[i].Permitted
	}
	err := unix.Capset(&header, &raised[0])
	var overlay *os.File
	if err == nil {
		overlay, err = kernel.MountOverlay(ov)
	}
	return overlay, errors.Join(err, unix.Setfsuid(0), unix.Setfsgid(0), unix.Capset(&header, &before[0]))
}

// An unmappable is a tree of a filesystem that cannot show its files with other
// owners (mount_setattr(2), "Notes" on ID-mapped mounts): that of most containers, an
// overlay; 9p; a FUSE filesystem that does not ask for it. The ways around it are
// worse: root inside would be root of the host, or own nothing.
type unmappable struct {
	path string
	err  error
}

func (u unmappable) Error() string { return u.path + ": " + u.err.Error() }
func (u unmappable) Unwrap() error { return u.err }

func (u unmappable) explained() *Error {
	kind := ""
	if fs, err := kernel.FilesystemOf(u.path); err == nil {
		kind = ", " + fs.Type + ","
	}
	return &Error{
		Op: "giving the sandbox users of its own", Path: u.path, Kind: ErrNotSupported,
		Err:   errors.New("the filesystem there" + kind + " cannot show files with other owners (id-mapped mounts), so that root inside would own nothing"),
		Hints: []string{"su USER -c 'snapfs run -- COMMAND'"},
	}
}

// hostError wraps what went wrong in the keeper.
func hostError(op string, err error) error {
	var known *Error
	var u unmappable
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &u):
		return u.explained()
	}
	kind := ErrNotSupported
	var errno syscall.Errno
	if errors.As(err, &errno) {
		kind = kindOf(errno)
	}
	return &Error{Op: op, Kind: kind, Err: err}
}
