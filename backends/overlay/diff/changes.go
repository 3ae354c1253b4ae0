//go:build linux

package diff

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"strings"

	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// errEnough ends a search for changed paths after the caller of [ListChanges] has stopped the iteration. No
// caller sees it.
var errEnough = errors.New("enough")

// ListChanges yields the changes between two states x and y of tree, each given by the directories of its
// layers, topmost first. If their lowest layers are the same, only entries of the layers above those are
// compared. how says who wrote the layers.
func ListChanges(how Mode, x, y []string, tree string, yield func(snapshot.Candidate, error) bool) error {
	from, to := x, y
	for len(from) > 0 && len(to) > 0 && from[len(from)-1] == to[len(to)-1] {
		from, to = from[:len(from)-1], to[:len(to)-1]
	}
	if len(from)+len(to) > 0 && how.rootCounts(tree) && !how.sameRoot(Topmost(x, tree), Topmost(y, tree)) &&
		!yield(snapshot.Candidate{Path: ".", Named: true}, nil) {
		return nil
	}
	err := how.changesIn(from, x, tree, false, yield)
	if err == nil {
		err = how.changesIn(to, y, tree, len(from) == 0, yield)
	}
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// Topmost returns the directory that an overlay of trees above tree shows as its root: the
// first of trees, or tree if there are none.
func Topmost(trees []string, tree string) string {
	if len(trees) > 0 {
		return trees[0]
	}
	return tree
}

// changesIn yields the paths that some layers of an overlay have changed. chain are all layers of the overlay
// above the lower tree; some is the part of them whose changes are wanted. onBase is set if those below some
// are the layers of the base.
func (m Mode) changesIn(some, chain []string, tree string, onBase bool, yield func(snapshot.Candidate, error) bool) error {
	t := changeLister{Mode: m, yield: yield, redirects: redirectChecker{chain: chain, some: len(some), onBase: onBase, tree: tree, layers: Layers{Mode: m}}}
	defer t.redirects.close()
	for i, layer := range some {
		t.index = i
		if err := t.layer(layer); err != nil {
			return err
		}
	}
	return nil
}

// rootCounts reports whether another owner of the root directory counts as a change. It does not for an
// ordinary user whose layers cannot have the owner of the tree's root.
func (m Mode) rootCounts(tree string) bool {
	if !m.Unprivileged {
		return true
	}
	st, err := vfs.Lstat(unix.AT_FDCWD, tree)
	return err != nil || int(st.UID) == os.Geteuid()
}

// sameRoot reports whether the root directories x and y of two states are equal in all that a layer stores of
// its root. If they are, as usual, the caller need not mount the states to compare the roots.
func (m Mode) sameRoot(x, y string) bool {
	a, err := vfs.Lstat(unix.AT_FDCWD, x)
	if err != nil {
		return false
	}
	c, err := vfs.Lstat(unix.AT_FDCWD, y)
	if err != nil || a.Mode != c.Mode || a.UID != c.UID || a.GID != c.GID || a.MTime != c.MTime {
		return false
	}
	attrs, err := m.xattrs(x)
	if err != nil {
		return false
	}
	others, err := m.xattrs(y)
	return err == nil && maps.Equal(attrs, others)
}

// xattrs returns the extended attributes of the directory dir, by name, without those that overlayfs itself
// sets.
func (m Mode) xattrs(dir string) (map[string]string, error) {
	all, err := vfs.Xattrs(unix.AT_FDCWD, dir)
	maps.DeleteFunc(all, func(attr, _ string) bool { return strings.HasPrefix(attr, m.Prefix) })
	return all, err
}

type changeLister struct {
	Mode
	yield func(snapshot.Candidate, error) bool
	// whole is the last directory that was yielded with Tree set. Entries inside it are not
	// yielded again, but are searched for redirects.
	whole string
	// lost is the last directory that was yielded with LostFrom set.
	lost string
	// moved is the last directory that was yielded with RenamedFrom set and lies in no other
	// such directory. All entries inside it are yielded.
	moved     string
	index     int // of the layer
	redirects redirectChecker
}

func (t *changeLister) layer(tree string) error {
	t.whole, t.lost, t.moved = "", "", ""
	return store.Walk(tree, t.visit)
}

// emit yields the path name to the caller as changed; tree says that everything inside may be changed, too.
// The caller compares the whole of such a directory, so emit omits the paths inside it. It still yields a
// directory that was renamed, and each path inside a renamed directory, since the caller must know the former
// path. from says where a directory with a redirect (overlayfs's note of a rename) was in the base. If the
// host's tree no longer has that former path, from.lost names it, and the content cannot be compared; inside
// another directory of this kind emit clears the mark.
func (t *changeLister) emit(name string, tree bool, from formerPath) error {
	inside := func(dir string) bool { return dir != "" && strings.HasPrefix(name, dir+"/") }
	if from.lost != "" && inside(t.lost) {
		from.lost = ""
	}
	if inside(t.whole) && from == (formerPath{}) && !inside(t.moved) {
		return nil
	}
	if from.lost != "" {
		t.lost = name
	}
	if from.renamed != "" && !inside(t.moved) {
		t.moved = name
	}
	if !t.yield(snapshot.Candidate{Path: name, Tree: tree, Named: !tree, RenamedFrom: from.renamed, LostFrom: from.lost}, nil) {
		return errEnough
	}
	return nil
}

// visit yields the directory name of a layer and its entries that are not directories as changed. It sets
// Tree, which stands for everything inside, if the directory hides the layers below (opaque), has a redirect,
// or is unreadable for this user (err). It returns the subdirectories to visit.
func (t *changeLister) visit(name string, dir *os.File, err error) (dirs []string, _ error) {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return nil, t.emit(name, true, formerPath{}) // a fork in use changes during the walk
	case err != nil:
		return nil, err
	}
	if name != "" {
		if err := t.directory(name, dir); err != nil || t.whole != "" && t.Unprivileged { // an ordinary user's layers have no redirects
			return nil, err
		}
	}
	err = vfs.EachEntry(int(dir.Fd()), func(entry []byte, _ uint64, typ uint8) error {
		if store.IsDir(int(dir.Fd()), entry, typ) {
			dirs = append(dirs, store.Join(name, entry))
			return nil
		}
		// A whiteout, or a file that may have replaced a directory.
		return t.emit(store.Join(name, entry), true, formerPath{})
	})
	return dirs, err
}

// directory yields the directory at the path name, not the root, as changed. It sets Tree if the directory
// replaces the one that the layers below have there.
func (t *changeLister) directory(name string, dir *os.File) error {
	whole, redirected, err := t.isWhole(dir)
	var from formerPath
	if err == nil && redirected {
		from, err = t.redirects.formerPathOf(name, t.index)
	}
	if err == nil {
		err = t.emit(name, whole, from)
	}
	if !strings.HasPrefix(name, t.whole+"/") {
		t.whole = ""
	}
	if whole && t.whole == "" {
		t.whole = name
	}
	return err
}

func (t *changeLister) isWhole(dir *os.File) (whole, redirected bool, _ error) {
	attrs, err := vfs.ListXattrs(int(dir.Fd()), "")
	for _, attr := range attrs {
		if short, own := strings.CutPrefix(attr, t.Prefix); own {
			whole = whole || short == "opaque" || short == "redirect"
			redirected = redirected || short == "redirect"
		}
	}
	return whole, redirected, err
}
