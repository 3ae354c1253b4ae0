//go:build linux

package diff

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A Stack is the result of looking up one name as overlayfs does: its path in each layer,
// topmost first, and last in the lower tree. The paths differ between layers where a directory
// was renamed (Documentation/filesystems/overlayfs, "redirect_dir").
type Stack struct {
	at  []string // one path for each layer, and one for the lower tree
	end int      // the index of the first layer that is hidden by those above it
	// Top is the index of the layer that provides the entry, or -1.
	Top  int
	Stat vfs.Stat // of the entry in the top layer
	// data is the index of the layer that has a regular file's content. It differs from Top if
	// only the metadata was copied up, and is -1 for content of the lower tree.
	data     int
	Has      []bool // whether a layer provides a directory, and is not hidden
	Whiteout bool   // the entry in the top layer is a whiteout
}

// ReachesLower reports whether the overlay shows, at the name that was looked up, an entry of the lower tree,
// or a directory in which such entries are merged with those of the layers.
func (s *Stack) ReachesLower() bool { return s.end == len(s.at) }

// LowerPath returns the path in the lower tree of the entry that was looked up. After a rename it differs
// from the entry's path in the overlay.
func (s *Stack) LowerPath() string { return s.at[len(s.at)-1] }

// A Mode describes who wrote the layers: root's overlay or an ordinary user's, which use other attributes.
type Mode struct {
	Prefix string // of overlayfs's own attributes, "trusted.overlay." or "user.overlay."
	// Unprivileged is set for layers of an ordinary user's overlay, which have no redirects
	// and no metacopies. The reader is that user, who may be unable to read some entries.
	Unprivileged bool
}

// Layers are the opened layers of an overlay, in which names are looked up as overlayfs does, without a
// mount. The caller fills in Mode and calls Open.
type Layers struct {
	Mode
	roots []*os.File
}

// Open opens the root directories of the layers, whose paths are in trees, topmost first. The caller must
// call Close, also after an error.
func (l *Layers) Open(trees []string) error {
	for _, tree := range trees {
		f, err := vfs.OpenDir(unix.AT_FDCWD, tree)
		if err != nil {
			return err
		}
		l.roots = append(l.roots, f)
	}
	return nil
}

// Close closes the root directories of the layers that Open opened.
func (l *Layers) Close() {
	for _, f := range l.roots {
		if f != nil {
			f.Close()
		}
	}
}

// root returns the lookup result, a [Stack], for the root directory, which all layers and the lower tree
// have.
func (l *Layers) root() Stack {
	n := len(l.roots)
	s := Stack{at: make([]string, n+1), end: n + 1, Has: make([]bool, n), data: -1}
	for i := range s.Has {
		s.Has[i] = true
	}
	return s
}

// child looks up name in the directory parent through the layers, as overlayfs does. It skips the layers with
// an index below from.
func (l *Layers) child(parent *Stack, name string, from int) (Stack, error) {
	n := len(l.roots)
	s := Stack{at: make([]string, n+1), end: parent.end, Has: make([]bool, n), Top: -1, data: -1}
	for j := range s.at {
		s.at[j] = path.Join(parent.at[j], name)
	}
	for j := from; j < min(s.end, n); j++ {
		if !parent.Has[j] && s.at[j] == path.Join(parent.at[j], name) {
			continue // the layer has no such directory, and no redirect has changed the path
		}
		st, node, err := l.stat(j, s.at[j])
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err != nil {
			return s, err
		}
		err = l.add(&s, j, st, node)
		node.Close()
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// add adds the entry found in layer j, with attributes st and open as node, to the lookup s. It sets s.end if
// the entry hides the layers below j.
func (l *Layers) add(s *Stack, j int, st vfs.Stat, node *os.File) error {
	isDir, first := st.IsDir(), s.Top < 0
	switch {
	case st.IsWhiteout():
		s.Whiteout, s.end = first, j
		if first {
			s.Top, s.Stat = j, st
		}
		return nil
	case !first && isDir != s.Stat.IsDir():
		s.end = j // a directory hides a file, and a file hides a directory
		return nil
	}
	if first {
		s.Top, s.Stat = j, st
	}
	var last bool
	var err error
	if isDir {
		s.Has[j] = true
		last, err = l.isOpaque(node, st)
	} else {
		last, err = l.isComplete(node, st)
		if last {
			s.data = j
		}
	}
	if err != nil || last {
		s.end = j + 1
		return err
	}
	return l.redirect(s, j, node)
}

// redirect sets the paths that the lookup s uses in the layers below j, according to the redirect attribute
// of node, the entry in layer j.
func (l *Layers) redirect(s *Stack, j int, node *os.File) error {
	if l.Unprivileged {
		return nil
	}
	to, err := l.get(node, "redirect")
	if err != nil || to == "" {
		return err
	}
	if to[0] != '/' { // a redirect within the same directory
		for k := j + 1; k < len(s.at); k++ {
			s.at[k] = path.Join(path.Dir(s.at[k]), to)
		}
		return nil
	}
	other, err := l.Locate(to[1:], j+1)
	if err != nil {
		return err
	}
	copy(s.at[j+1:], other.at[j+1:])
	s.end = other.end
	return nil
}

// Locate looks up the path name through the layers, from the root, as overlayfs does. It skips the layers
// with an index below from.
func (l *Layers) Locate(name string, from int) (Stack, error) {
	s := l.root()
	for part := range strings.SplitSeq(name, "/") {
		next, err := l.child(&s, part, from)
		if err != nil {
			return next, err
		}
		s = next
	}
	return s, nil
}

func (l *Layers) isOpaque(dir *os.File, st vfs.Stat) (bool, error) {
	revoke, err := l.grantReadInode(dir, st)
	if err != nil {
		return false, err
	}
	defer revoke()
	value, err := l.get(dir, "opaque")
	return value == "y", err
}

// isComplete reports whether a layer has the content of the file node. Overlayfs may have copied up only its
// metadata (metacopy); the content is then in a layer below.
func (l *Layers) isComplete(node *os.File, st vfs.Stat) (bool, error) {
	if l.Unprivileged || !st.IsRegular() {
		return true, nil
	}
	_, err := vfs.GetXattr(int(node.Fd()), "", l.Prefix+"metacopy") // the value may be empty
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return true, nil
	}
	return false, err
}

func (l *Layers) get(node *os.File, short string) (string, error) {
	value, err := vfs.GetXattr(int(node.Fd()), "", l.Prefix+short)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return "", nil
	}
	return string(value), err
}

// stat returns the attributes of the path name in layer j, and the file opened with O_PATH, which the caller
// closes. It follows no symbolic link.
func (l *Layers) stat(j int, name string) (vfs.Stat, *os.File, error) {
	node, err := store.OpenIn(l.roots[j], name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return vfs.Stat{}, nil, err
	}
	st, err := vfs.Lstat(int(node.Fd()), "")
	if err != nil {
		node.Close()
	}
	return st, node, err
}
