//go:build linux

package overlay

import (
	"context"
	"path"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Borrowed lists directories and files with a redirect. A file has one if it was renamed with
// metacopy, that is if only its metadata was copied up.
func (b *backend) Borrowed(ctx context.Context, fork snapshot.ForkID) ([]snapshot.Borrowed, error) {
	r, err := find(string(fork), b.forkPath(fork))
	var list []snapshot.Borrowed
	if err == nil && !b.userXattr { // an ordinary user's layers have no redirects
		list, err = b.borrowed(ctx, &r)
	}
	return list, fail("looking through", string(fork), err)
}

func (b *backend) borrowed(ctx context.Context, r *record) ([]snapshot.Borrowed, error) {
	l := redirectFinder{ctx: ctx}
	defer l.close()
	if err := l.open(b, b.chainOf(r)); err != nil {
		return nil, err
	}
	root := l.root()
	err := l.dir(&root, "")
	return l.list, err
}

// chainOf returns the trees of a fork's layers, topmost first.
func (b *backend) chainOf(r *record) []string {
	trees := []string{b.treePath(r.upper)}
	for _, layer := range b.shorten(r.layers) {
		trees = append(trees, b.treePath(layer))
	}
	return trees
}

// A redirectFinder finds entries that overlayfs reads from the lower tree under another name.
type redirectFinder struct {
	layers
	ctx  context.Context
	list []snapshot.Borrowed
}

// dir examines the entries that the layers have in a directory.
func (l *redirectFinder) dir(s *stack, name string) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	names := map[string]bool{}
	for j, has := range s.has {
		if !has || j >= s.end {
			continue
		}
		if err := l.names(j, s.at[j], names); err != nil {
			return err
		}
	}
	for one := range names {
		c, err := l.child(s, one, 0)
		if err == nil {
			err = l.node(s, &c, join(name, []byte(one)), one)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// names adds the names that a layer has in a directory.
func (l *redirectFinder) names(layer int, dir string, names map[string]bool) error {
	f, err := openIn(l.roots[layer], dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer f.Close()
	return vfs.EachEntry(int(f.Fd()), func(entry []byte, _ uint64, _ uint8) error {
		names[string(entry)] = true
		return nil
	})
}

func (l *redirectFinder) node(parent, s *stack, name, last string) error {
	isDir := s.top >= 0 && !s.whiteout && s.stat.IsDir()
	if reads := isDir || s.top >= 0 && s.stat.IsRegular() && s.data < 0; reads && s.reachesLower() {
		if natural := parent.reachesLower() && path.Join(parent.lowerPath(), last) == s.lowerPath(); !natural {
			l.list = append(l.list, snapshot.Borrowed{Path: name, From: s.lowerPath(), Tree: isDir})
		}
	}
	if !isDir {
		return nil
	}
	return l.dir(s, name)
}

var _ interface {
	snapshot.Raiser
} = (*backend)(nil)

// Raise makes the kernel copy the entries up, through a mount of the fork. After the unmount it
// removes the redirects of directories itself. In this order, a kill at any point leaves the fork
// with the content it showed.
func (b *backend) Raise(ctx context.Context, fork snapshot.ForkID, what []snapshot.Borrowed, mounted func(do func(root int) error) error) error {
	r, err := find(string(fork), b.forkPath(fork))
	if err == nil {
		err = b.raise(ctx, &r, what, mounted)
	}
	return fail("copying up renamed entries in", string(fork), err)
}

func (b *backend) raise(ctx context.Context, r *record, what []snapshot.Borrowed, mounted func(do func(root int) error) error) error {
	upper, err := vfs.OpenDir(unix.AT_FDCWD, b.treePath(r.upper))
	if err != nil {
		return err
	}
	defer upper.Close()
	up := detacher{ctx: ctx, upper: upper, prefix: b.attr(""), tree: r.tree, first: map[fileID]string{}}
	err = mounted(func(root int) error {
		if err := fault.Point(ctx, "copy it up"); err != nil {
			return err
		}
		return up.copyAll(root, what)
	})
	if err == nil {
		err = fault.Point(ctx, "part it from the tree")
	}
	if err != nil {
		return err
	}
	return up.removeRedirects(what)
}
