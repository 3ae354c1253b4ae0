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

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Narrow answers with an overlay of the directory dir of each layer that takes
// part there. That is the same as dir of the overlay of all, because an ordinary
// user's layers have no redirects: each keeps a directory where it is. Root's have,
// and root needs no Narrow.
func (b *backend) Narrow(ctx context.Context, v snapshot.View, dir string, write bool) (snapshot.View, error) {
	narrow, err := b.narrow(ctx, v, dir, write)
	return narrow, fail("narrowing", "", err)
}

func (b *backend) narrow(ctx context.Context, v snapshot.View, dir string, write bool) (snapshot.View, error) {
	switch {
	case !filepath.IsLocal(dir) || dir != filepath.Clean(dir) || dir == ".":
		return snapshot.View{}, because(errs.ErrNotSupported, dir, "not a path beneath the tree")
	case v.Overlay == nil:
		return snapshot.View{Path: filepath.Join(v.Path, dir)}, nil
	case len(v.Overlay.Base) > 0:
		return snapshot.View{}, because(errs.ErrNotSupported, dir, "what is served is shown only whole")
	case !b.userXattr:
		return snapshot.View{}, because(errs.ErrNotSupported, dir, "a directory of these layers may lie elsewhere in each")
	}
	n := newNarrowing(v.Overlay)
	defer n.close()
	if err := n.open(b, n.trees); err != nil {
		return snapshot.View{}, err
	}
	s, err := n.locate(dir, 0)
	if err != nil {
		return snapshot.View{}, err
	}
	if !n.isDir(&s) {
		return snapshot.View{}, because(errs.ErrNotFound, dir, "there is no such directory in this state")
	}
	write = write && v.Overlay.Upper != ""
	if write && !s.has[0] {
		if err := b.extend(ctx, n, dir); err != nil {
			return snapshot.View{}, err
		}
		s.has[0] = true
	}
	return b.narrowed(n, &s, dir, write)
}

// A narrowing looks at the layers of an overlay.
type narrowing struct {
	layers
	o     *snapshot.Overlay
	trees []string // of the layers, the topmost first
	base  string   // what lies below
}

func newNarrowing(o *snapshot.Overlay) *narrowing {
	last := len(o.Lower) - 1
	n := &narrowing{o: o, base: o.Lower[last]}
	if o.Upper != "" {
		n.trees = append(n.trees, o.Upper)
	}
	n.trees = append(n.trees, o.Lower[:last]...)
	return n
}

// isDir reports whether a name is a directory in the overlay.
func (n *narrowing) isDir(s *stack) bool {
	if s.top >= 0 {
		return !s.whiteout && s.stat.IsDir()
	}
	return s.reaches() && n.inBase(s.below())
}

// inBase reports whether the base has a directory there.
func (n *narrowing) inBase(dir string) bool {
	st, err := vfs.Lstat(unix.AT_FDCWD, path.Join(n.base, dir))
	return err == nil && st.IsDir()
}

// narrowed is the view of what a stack names.
func (b *backend) narrowed(n *narrowing, s *stack, dir string, write bool) (snapshot.View, error) {
	o := snapshot.Overlay{UserXattr: n.o.UserXattr}
	for i, tree := range n.trees {
		switch {
		case !s.has[i]:
		case write && i == 0:
			o.Upper, o.Work = path.Join(tree, dir), n.o.Work
		default:
			o.Lower = append(o.Lower, path.Join(tree, dir))
		}
	}
	if s.reaches() && n.inBase(dir) {
		base := path.Join(n.base, dir)
		o.Nested = len(o.Lower) > 0 && inTree(b.dir, base)
		o.Lower = append(o.Lower, base)
	}
	if base := path.Join(n.base, dir); len(o.Lower) == 1 && !write && o.Lower[0] == base {
		return snapshot.View{Path: base}, nil
	}
	if len(o.Lower) == 0 || len(o.Lower) == 1 && !write { // too few for an overlay, which alone hides the records of one
		none := b.dir + "/none"
		if err := os.Mkdir(none, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return snapshot.View{}, err
		}
		o.Lower = append(o.Lower, none)
	}
	return snapshot.View{Overlay: &o}, nil
}

// extend makes dir in the uppermost layer, with what is missing above it, as the
// kernel does before it writes there: each directory looks like the one that it
// covers, and the one that gets a new name keeps its times. Atomic.
func (b *backend) extend(ctx context.Context, n *narrowing, dir string) error {
	unlock, err := b.lock(ctx, unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer unlock()
	upper := n.trees[0]
	parts := strings.Split(dir, "/")
	there := 0 // of them
	for there < len(parts) && unix.Access(path.Join(upper, path.Join(parts[:there+1]...)), unix.F_OK) == nil {
		there++
	}
	made := b.dir + "/tmp/" + fresh("")
	defer b.discard(made) // nothing, when it has its place
	if err := b.imitate(n, made, parts, there); err != nil {
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
	return setTimes(fd, parent, before)
}

// imitate makes the directory parts[there] with those that lie in it, one in the
// other, at the path made.
func (b *backend) imitate(n *narrowing, made string, parts []string, there int) error {
	at := made
	var dirs []string
	for i := there; i < len(parts); i++ {
		if i > there {
			at = path.Join(at, parts[i])
		}
		err := unix.Mkdir(at, 0o700)
		if errors.Is(err, unix.ENOENT) && i == there {
			if err = b.prepare(); err == nil {
				err = unix.Mkdir(at, 0o700)
			}
		}
		if err != nil {
			return &fs.PathError{Op: "mkdir", Path: at, Err: err}
		}
		dirs = append(dirs, at)
	}
	for i := len(parts) - 1; i >= there; i-- { // making a name changes the times
		name := path.Join(parts[:i+1]...)
		s, err := n.locate(name, 0)
		if err != nil {
			return err
		}
		like := path.Join(n.base, name)
		if s.top >= 0 {
			like = path.Join(n.trees[s.top], name)
		}
		if err := b.dress(dirs[i-there], like); err != nil {
			return err
		}
	}
	return nil
}
