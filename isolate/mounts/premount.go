//go:build linux

package mounts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/isolate/launch"
)

// A premount is a mount that the supervisor makes and sends to a container's pid 1: a tree that a FUSE server
// shows or, for a container with ids of its own, a mount that its user namespace could not make, such as an
// id-mapped one.
type premount struct {
	mount Mount
	attr  uint64
	plain bool         // not id-mapped
	to    *launch.Cell // the builder's cell for it
}

// maxPremounts is how many mounts the supervisor can send pid 1: the kernel's limit of descriptors in one
// message (SCM_MAX_FD). A container that needs more does not start.
const maxPremounts = 253

// PremountMessage returns the msghdr for recvmsg(2) with which pid 1 receives the mounts that the supervisor
// makes.
func (pl *Planner) PremountMessage() launch.Arg {
	space := unix.CmsgSpace(4 * maxPremounts)
	pl.premountFDs = pl.Take(space)
	iov := pl.Words(pl.Addr(int(pl.NewCell(0))), 1)
	return pl.Words(0, 0, iov.V, 1, pl.Addr(pl.premountFDs), uint64(space), 0)
}

// PlanPremounts lists the mounts that the supervisor must make, since pid 1 cannot, and the cells, places in
// pid 1's memory, in which pid 1 receives their descriptors.
func (pl *Planner) PlanPremounts() {
	pl.trees, pl.bases = make([]launch.Cell, len(pl.Spec.Mounts)), make([][]launch.Cell, len(pl.Spec.Mounts))
	own := pl.Spec.IDs != Same
	for i, m := range pl.Spec.Mounts {
		switch {
		case m.Served != nil || own && m.Skeleton == "":
			pl.premounts = append(pl.premounts, premount{mount: m, attr: unix.MOUNT_ATTR_NODEV, to: &pl.trees[i]})
		case m.Overlay != nil:
			pl.bases[i] = make([]launch.Cell, len(m.Overlay.Base))
			for j, s := range m.Overlay.Base {
				pl.premounts = append(pl.premounts, premount{mount: Mount{Target: m.Target, Served: s, ReadOnly: true}, to: &pl.bases[i][j]})
			}
		}
	}
	if tmp := pl.Spec.Tmp; own && tmp != "" {
		pl.premounts = append(pl.premounts, premount{mount: Mount{Source: tmp}, attr: plainMount, to: &pl.private.tmp})
	}
	if own && pl.Spec.HostNetwork {
		sys := Mount{Source: "/sys", ReadOnly: true}
		pl.premounts = append(pl.premounts, premount{mount: sys, attr: QuietMount, plain: true, to: &pl.private.sys})
	}
	if own {
		pl.fillHiddenLayers()
	}
	for i, g := range pl.premounts {
		*g.to = launch.Cell(pl.premountFDs + unix.CmsgLen(0) + 4*i)
	}
}

// MapIDs maps the user and group ids of the process pid, a container's pid 1, and opens its user namespace
// for id-mapped mounts.
func (pl *Planner) MapIDs(pid int) error {
	proc := "/proc/" + strconv.Itoa(pid)
	ids := pl.Spec.IDs.lines()
	for _, file := range []string{proc + "/uid_map", proc + "/gid_map"} {
		if err := vfs.WriteFile(file, ids); err != nil {
			return launch.HostError("mapping the users", err)
		}
	}
	userns, err := vfs.OpenAt(unix.AT_FDCWD, proc+"/ns/user", unix.O_RDONLY, 0)
	if err != nil {
		return launch.HostError("mapping the users", err)
	}
	pl.userns = userns
	pl.CloseLater = append(pl.CloseLater, userns)
	return nil
}

// MakePremounts makes the mounts that PlanPremounts listed, for pid 1, and returns their descriptors, in
// order. The planner closes them and all others that it opened, also after an error.
//
// Cost: 0.2 ms for an overlay.
func (pl *Planner) MakePremounts(ctx context.Context) ([]int, error) {
	if len(pl.premounts) > maxPremounts {
		return nil, &errs.Error{Op: "handing over the trees", Kind: errs.ErrInvalid, Err: unix.E2BIG}
	}
	defer pl.closeHiddenLayers()
	var fds []int
	for _, g := range pl.premounts {
		f, err := pl.make(ctx, g, pl.userns)
		if err != nil {
			return nil, launch.HostError("mounting "+g.mount.String(), err)
		}
		pl.CloseLater, fds = append(pl.CloseLater, f), append(fds, int(f.Fd()))
	}
	return fds, nil
}

func (pl *Planner) make(ctx context.Context, g premount, userns *os.File) (*os.File, error) {
	attr := g.attr
	if g.mount.ReadOnly {
		attr |= unix.MOUNT_ATTR_RDONLY
	}
	switch o := g.mount.Overlay; {
	case g.mount.Served != nil:
		return pl.served(ctx, g.mount, attr, userns)
	case g.mount.NoSockets:
		l := &Layers{Userns: userns, root: pl.rootMount(userns), hidden: pl.hiddenLayer(g.mount.Target, userns), mapByFUSE: func(path string, _ error) (*os.File, error) {
			return Mapped(path, unix.MOUNT_ATTR_RDONLY, nil) // its owners appear as nobody
		}}
		return pl.mountLayers(l, Overlay{Lower: []string{g.mount.Source}, Nested: true, UserXattr: true}, attr)
	case o == nil && g.plain:
		return Mapped(g.mount.Source, attr, nil)
	case o == nil:
		m, err := Mapped(g.mount.Source, attr, userns)
		if !errors.Is(err, errUnmappable) {
			return m, err
		}
		if g.mount.ReadOnly { // its owners appear as nobody
			return Mapped(g.mount.Source, attr, nil)
		}
		return pl.mapByFUSE(ctx, g.mount.Target, g.mount.Source, attr, err)
	case o.Alone() != "":
		m, err := Mapped(o.Alone(), attr|unix.MOUNT_ATTR_RDONLY, userns)
		if errors.Is(err, errUnmappable) {
			m, err = pl.mapByFUSE(ctx, g.mount.Target, o.Alone(), attr|unix.MOUNT_ATTR_RDONLY, err)
		}
		return m, err
	default:
		return pl.overlayOf(ctx, g.mount, attr, userns)
	}
}

// Mapped makes a detached copy of the mount at path, with ids mapped as in the user namespace userns unless
// that is nil, and with the MOUNT_ATTR_* flags attr. The caller closes it. The error wraps errUnmappable if
// the filesystem does not support id mapping.
func Mapped(path string, attr uint64, userns *os.File) (*os.File, error) {
	m, err := mount.CloneTree(path)
	if err != nil {
		return nil, err
	}
	if userns != nil {
		err = mount.IDMap(m, userns)
	}
	if userns != nil && errors.Is(err, unix.EINVAL) {
		err = unmappable(path)
	}
	if err == nil && attr != 0 {
		err = mount.SetMountAttr(m, attr)
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// MountServed mounts the Served tree of m, which a FUSE process shows, with the MOUNT_ATTR_* flags attr and
// the ids of userns, detached; the caller closes it. Devices and set-id bits have no effect in it. A mount
// that an ordinary user made cannot get other flags or ids afterwards.
func MountServed(ctx context.Context, m Mount, attr uint64, userns *os.File) (*os.File, error) {
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
			err = unmappable(m.Target)
		}
		return nil, err
	}
	return tree, nil
}

// restricted sets the MOUNT_ATTR_* flags attr on the detached mount tree and, unless userns is nil, its id
// mapping.
func restricted(tree *os.File, attr uint64, userns *os.File) error {
	if userns != nil {
		if err := mount.IDMap(tree, userns); err != nil {
			return err
		}
	}
	return mount.SetMountAttr(tree, attr)
}

// CloseInBackground closes detached mounts in the background, because the kernel waits for all RCU readers when such a
// mount goes (0.5 ms).
func CloseInBackground(mounts ...*os.File) {
	go func() {
		for _, m := range mounts {
			_ = m.Close() // nothing was written; some are nil
		}
	}()
}

// writable mounts the overlay ov, which has an upper layer, with the fsuid and fsgid of the container's root,
// base on the host: overlayfs creates files with the ids of the mounting process, and the layers must map
// these ids. It restores the capabilities that the thread loses by that (capabilities(7), "Effect of user ID
// changes on capabilities").
func writable(ov mount.Overlay, base int) (*os.File, error) {
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
		overlay, err = mount.NewOverlay(ov)
	}
	return overlay, errors.Join(err, unix.Setfsuid(0), unix.Setfsgid(0), unix.Capset(&header, &before[0]))
}

// errUnmappable is in the error for a tree whose filesystem does not support id-mapped mounts
// (mount_setattr(2), "Notes" on ID-mapped mounts): an overlay, which is the root of most containers; 9p; a FUSE
// filesystem that does not announce support. The alternatives are worse: root inside would be root of the host,
// or own nothing.
var errUnmappable = errors.New("does not support id-mapped mounts")

// unmappable returns the error for the tree at path whose filesystem does not support id-mapped mounts. It
// wraps errUnmappable, with the filesystem type and a hint.
func unmappable(path string) error {
	kind := ""
	if fs, err := mount.FilesystemOf(path); err == nil {
		kind = ", " + fs.Type + ","
	}
	return &errs.Error{
		Op: "mapping the sandbox's users", Path: path, Kind: errs.ErrNotSupported,
		Err:   fmt.Errorf("the filesystem there%s %w, so root in the sandbox would own no files", kind, errUnmappable),
		Hints: []string{"su USER -c 'snapfs run -- COMMAND'"},
	}
}
