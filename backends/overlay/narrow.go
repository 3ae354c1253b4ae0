//go:build linux

package overlay

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/backends/overlay/diff"
	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// ViewSubtree returns a view of only the directory dir of the view v, as an overlay of dir in each layer that
// has a part in it, writable if write is set. That equals dir in the overlay of all layers, because an
// ordinary user's layers have no redirects: a directory is at the same path in each. Root's layers have
// redirects, and root needs no ViewSubtree.
func (b *backend) ViewSubtree(ctx context.Context, v snapshot.View, dir string, write bool) (snapshot.View, error) {
	narrow, err := b.narrow(ctx, v, dir, write)
	return narrow, fail("narrowing", "", err)
}

func (b *backend) narrow(ctx context.Context, v snapshot.View, dir string, write bool) (snapshot.View, error) {
	switch {
	case !filepath.IsLocal(dir) || dir != filepath.Clean(dir) || dir == ".":
		return snapshot.View{}, store.Refuse(errs.ErrNotSupported, dir, "not a path inside the tree")
	case v.Overlay == nil:
		return snapshot.View{Path: filepath.Join(v.Path, dir)}, nil
	case len(v.Overlay.Base) > 0:
		return snapshot.View{}, store.Refuse(errs.ErrNotSupported, dir, "a served tree cannot be shown in part")
	case !b.store.UserXattr:
		return snapshot.View{}, store.Refuse(errs.ErrNotSupported, dir, "with redirects, a directory may have another path in each layer")
	}
	n := newNarrowing(b.mode(), v.Overlay)
	defer n.Close()
	if err := n.Open(n.trees); err != nil {
		return snapshot.View{}, err
	}
	s, err := n.Locate(dir, 0)
	if err != nil {
		return snapshot.View{}, err
	}
	if !n.isDir(&s) {
		return snapshot.View{}, store.Refuse(errs.ErrNotFound, dir, "no such directory in this state")
	}
	write = write && v.Overlay.Upper != ""
	if write && !s.Has[0] {
		if err := b.copyUpDirs(ctx, n, dir); err != nil {
			return snapshot.View{}, err
		}
		s.Has[0] = true
	}
	return b.narrowed(n, &s, dir, write)
}

// A narrowing is the state of one ViewSubtree: the opened layers of an overlay, in which one directory is
// looked up.
type narrowing struct {
	diff.Layers
	o     *snapshot.Overlay
	trees []string // the layers, topmost first
	base  string   // the lowest layer
}

func newNarrowing(how diff.Mode, o *snapshot.Overlay) *narrowing {
	last := len(o.Lower) - 1
	n := &narrowing{Layers: diff.Layers{Mode: how}, o: o, base: o.Lower[last]}
	if o.Upper != "" {
		n.trees = append(n.trees, o.Upper)
	}
	n.trees = append(n.trees, o.Lower[:last]...)
	return n
}

// isDir reports whether an overlay of all layers shows a directory at a path. s is the lookup of the path
// through the layers.
func (n *narrowing) isDir(s *diff.Stack) bool {
	if s.Top >= 0 {
		return !s.Whiteout && s.Stat.IsDir()
	}
	return s.ReachesLower() && n.inBase(s.LowerPath())
}

// inBase reports whether the lowest layer, the real tree, has the directory dir. If so, that directory is the
// lowest layer of the overlay of dir alone.
func (n *narrowing) inBase(dir string) bool {
	st, err := vfs.Lstat(unix.AT_FDCWD, path.Join(n.base, dir))
	return err == nil && st.IsDir()
}

// narrowed returns the view of the directory dir alone: an overlay of dir in each layer that has it, or
// without write a plain directory if only the lowest has it. s is the lookup of dir through the layers.
func (b *backend) narrowed(n *narrowing, s *diff.Stack, dir string, write bool) (snapshot.View, error) {
	o := snapshot.Overlay{UserXattr: n.o.UserXattr, Metacopy: n.o.Metacopy}
	for i, tree := range n.trees {
		switch {
		case !s.Has[i]:
		case write && i == 0:
			o.Upper, o.Work = path.Join(tree, dir), n.o.Work
		default:
			o.Lower = append(o.Lower, path.Join(tree, dir))
		}
	}
	if s.ReachesLower() && n.inBase(dir) {
		base := path.Join(n.base, dir)
		o.Nested = len(o.Lower) > 0 && inTree(b.store.Dir, base)
		o.Lower = append(o.Lower, base)
	}
	if base := path.Join(n.base, dir); len(o.Lower) == 1 && !write && o.Lower[0] == base {
		return snapshot.View{Path: base}, nil
	}
	if len(o.Lower) == 0 || len(o.Lower) == 1 && !write { // an overlay needs two layers, and only an overlay hides overlayfs's own attributes
		none := b.store.Dir + "/none"
		if err := os.Mkdir(none, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return snapshot.View{}, err
		}
		o.Lower = append(o.Lower, none)
	}
	return snapshot.View{Overlay: &o}, nil
}

// copyUpDirs makes dir in the upper layer, with its missing parents, as a copy up by the kernel would: each
// directory gets the attributes of the one that it covers, and the existing parent's times stay. Atomic. An
// overlay of dir alone needs it to be writable.
func (b *backend) copyUpDirs(ctx context.Context, n *narrowing, dir string) error {
	unlock, err := b.store.Lock(ctx, unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer unlock()
	upper := n.trees[0]
	parts := strings.Split(dir, "/")
	there := 0 // how many of parts exist in the upper
	for there < len(parts) && unix.Access(path.Join(upper, path.Join(parts[:there+1]...)), unix.F_OK) == nil {
		there++
	}
	made := b.store.Dir + "/tmp/" + store.UniqueName("")
	defer b.store.ToTrash(made) // after success the path no longer exists
	if err := b.makeDirs(n, made, parts, there); err != nil {
		return err
	}
	parent := path.Join(upper, path.Join(parts[:there]...))
	before, err := vfs.Lstat(unix.AT_FDCWD, parent)
	if err != nil {
		return err
	}
	if err := vfs.RenameNew(made, path.Join(upper, path.Join(parts[:there+1]...))); err != nil {
		return err
	}
	fd, err := unix.Open(parent, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: parent, Err: err}
	}
	defer unix.Close(fd)
	return store.SetTimes(fd, parent, before)
}

// makeDirs creates the directory at the path made, and nested in it the rest of dir, for copyUpDirs. parts
// are the names in the path of dir, of which the upper layer has the first there; made is for parts[there].
// Each directory gets the attributes of the one that it will cover in the overlay.
func (b *backend) makeDirs(n *narrowing, made string, parts []string, there int) error {
	at := made
	var dirs []string
	for i := there; i < len(parts); i++ {
		if i > there {
			at = path.Join(at, parts[i])
		}
		err := unix.Mkdir(at, 0o700)
		if errors.Is(err, unix.ENOENT) && i == there {
			if err = b.store.Prepare(); err == nil {
				err = unix.Mkdir(at, 0o700)
			}
		}
		if err != nil {
			return &fs.PathError{Op: "mkdir", Path: at, Err: err}
		}
		dirs = append(dirs, at)
	}
	for i := len(parts) - 1; i >= there; i-- { // innermost first: creating a name changes the times of its parent
		name := path.Join(parts[:i+1]...)
		s, err := n.Locate(name, 0)
		if err != nil {
			return err
		}
		like := path.Join(n.base, name)
		if s.Top >= 0 {
			like = path.Join(n.trees[s.Top], name)
		}
		if err := b.store.CopyAttrs(dirs[i-there], like); err != nil {
			return err
		}
	}
	return nil
}
