//go:build linux

package overlay

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"maps"
	"os"
	"strings"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Touched yields what the fork's own layer and the layers that it has above
// those of base hold. Cost: in proportion to their entries.
func (b *backend) Touched(_ context.Context, base snapshot.ID, fork snapshot.ForkID) iter.Seq2[snapshot.Touch, error] {
	return func(yield func(snapshot.Touch, error) bool) {
		from, err := find(string(base), b.snapshotPath(base))
		if err != nil {
			yield(snapshot.Touch{}, fail("comparing", string(base), err))
			return
		}
		to, err := find(string(fork), b.forkPath(fork))
		if err == nil {
			err = b.touched(&from, &to, yield)
		}
		if err != nil {
			yield(snapshot.Touch{}, fail("comparing", string(fork), err))
		}
	}
}

// TouchedBetween does the same for two snapshots.
func (b *backend) TouchedBetween(_ context.Context, x, y snapshot.ID) iter.Seq2[snapshot.Touch, error] {
	return func(yield func(snapshot.Touch, error) bool) {
		from, err := find(string(x), b.snapshotPath(x))
		if err != nil {
			yield(snapshot.Touch{}, fail("comparing", string(x), err))
			return
		}
		to, err := find(string(y), b.snapshotPath(y))
		if err == nil {
			err = b.touched(&from, &to, yield)
		}
		if err != nil {
			yield(snapshot.Touch{}, fail("comparing", string(y), err))
		}
	}
}

// errEnough: the caller wants no more.
var errEnough = errors.New("enough")

// touched: two states that have their lowest layers in common differ only
// where a layer of either, above those, has something.
func (b *backend) touched(x, y *record, yield func(snapshot.Touch, error) bool) error {
	if x.tree != y.tree {
		return because(errs.ErrNotSupported, y.tree, "it is not the tree "+quote(x.tree))
	}
	from, to := b.shorten(x.layers), b.shorten(y.layers)
	if y.fork {
		to = append([]string{y.upper}, to...)
	}
	chains := [2][]string{from, to}
	roots := [2]string{b.roof(from, x.tree), b.roof(to, y.tree)}
	for len(from) > 0 && len(to) > 0 && from[len(from)-1] == to[len(to)-1] {
		from, to = from[:len(from)-1], to[:len(to)-1]
	}
	var err error
	if len(from)+len(to) > 0 && b.rootCounts(y.tree) && !b.sameRoot(roots[0], roots[1]) && !yield(snapshot.Touch{Path: ".", Named: true}, nil) {
		return nil
	}
	for i, layers := range [2][]string{from, to} {
		if err == nil {
			err = b.touchedIn(layers, chains[i], x.tree, yield)
		}
	}
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// touchedIn tells what layers of a chain on a tree hold.
func (b *backend) touchedIn(layers, chain []string, tree string, yield func(snapshot.Touch, error) bool) error {
	t := toucher{prefix: b.attr(""), yield: yield, renamed: renamed{b: b, chain: chain, tree: tree}}
	defer t.renamed.close()
	for _, layer := range layers {
		if err := t.layer(b.treePath(layer)); err != nil {
			return err
		}
	}
	return nil
}

// rootCounts: an ordinary user's layers cannot give their root to the owner of
// the tree's root, and nobody has changed that.
func (b *backend) rootCounts(tree string) bool {
	if !b.userXattr {
		return true
	}
	st, err := vfs.Lstat(unix.AT_FDCWD, tree)
	return err != nil || int(st.UID) == os.Geteuid()
}

// sameRoot reports whether two directories differ in nothing that a layer keeps
// of its root: mostly they do not, and nobody need mount them to find that out.
func (b *backend) sameRoot(x, y string) bool {
	a, err := vfs.Lstat(unix.AT_FDCWD, x)
	if err != nil {
		return false
	}
	c, err := vfs.Lstat(unix.AT_FDCWD, y)
	if err != nil || a.Mode != c.Mode || a.UID != c.UID || a.GID != c.GID || a.MTime != c.MTime {
		return false
	}
	attrs, err := b.xattrs(x)
	if err != nil {
		return false
	}
	others, err := b.xattrs(y)
	return err == nil && maps.Equal(attrs, others)
}

// xattrs are the attributes of a directory but overlayfs's own.
func (b *backend) xattrs(dir string) (map[string]string, error) {
	all, err := vfs.Xattrs(unix.AT_FDCWD, dir)
	maps.DeleteFunc(all, func(attr, _ string) bool { return strings.HasPrefix(attr, b.attr("")) })
	return all, err
}

type toucher struct {
	prefix string
	yield  func(snapshot.Touch, error) bool
	// whole is the directory that was told whole last: what lies beneath follows, and is only
	// looked at for what was renamed.
	whole   string
	renamed renamed
}

func (t *toucher) layer(tree string) error {
	t.whole = ""
	return descend(tree, t.visit)
}

func (t *toucher) tell(name string, tree bool) error {
	if t.whole != "" && strings.HasPrefix(name, t.whole+"/") {
		return nil
	}
	if !t.yield(snapshot.Touch{Path: name, Tree: tree, Named: !tree}, nil) {
		return errEnough
	}
	return nil
}

// visit tells a directory and what it holds but directories. It tells it whole
// where it hides what lies below, or shows what had another name, or where
// this user may not look into it.
func (t *toucher) visit(name string, dir *os.File, err error) (dirs []string, _ error) {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return nil, t.tell(name, true) // a fork in use changes under our eyes
	case err != nil:
		return nil, err
	}
	if name != "" {
		if err := t.directory(name, dir); err != nil || t.whole != "" && t.renamed.b.userXattr { // who renames no directories
			return nil, err
		}
	}
	err = vfs.EachEntry(int(dir.Fd()), func(entry []byte, _ uint64, typ uint8) error {
		if isDir(int(dir.Fd()), entry, typ) {
			dirs = append(dirs, join(name, entry))
			return nil
		}
		// A whiteout, or a file that may have taken the place of a directory.
		return t.tell(join(name, entry), true)
	})
	return dirs, err
}

// directory tells one that is not the root.
func (t *toucher) directory(name string, dir *os.File) error {
	whole, renamed, err := t.isWhole(dir)
	if err == nil && renamed {
		err = t.renamed.check(name)
	}
	if err == nil {
		err = t.tell(name, whole)
	}
	if !strings.HasPrefix(name, t.whole+"/") {
		t.whole = ""
	}
	if whole && t.whole == "" {
		t.whole = name
	}
	return err
}

func (t *toucher) isWhole(dir *os.File) (whole, renamed bool, _ error) {
	attrs, err := vfs.ListXattrs(int(dir.Fd()), "")
	for _, attr := range attrs {
		if short, own := strings.CutPrefix(attr, t.prefix); own {
			whole = whole || short == "opaque" || short == "redirect"
			renamed = renamed || short == "redirect"
		}
	}
	return whole, renamed, err
}
