//go:build linux

package overlay

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/vfs"
)

// A stack is the result of a look-up of one name, as overlayfs does it: the path of the name in
// each layer, topmost first, and last in the lower tree below all layers. The paths differ from
// layer to layer where a directory was renamed (Documentation/filesystems/overlayfs,
// "redirect_dir").
type stack struct {
	at  []string // one path for each layer, and one for the lower tree
	end int      // the index of the first layer that is hidden by those above it
	// top is the index of the layer that provides the entry, or -1.
	top  int
	stat vfs.Stat // of the entry in the top layer
	// data is the index of the layer that provides a regular file's content. It differs from top if
	// only the metadata was copied up, and is -1 if the lower tree provides the content.
	data     int
	has      []bool // whether a layer provides a directory, and is not hidden
	whiteout bool   // the entry in the top layer is a whiteout
}

// reachesLower reports whether the lower tree takes part in the entry.
func (s *stack) reachesLower() bool { return s.end == len(s.at) }

// lowerPath returns the path of the entry in the lower tree.
func (s *stack) lowerPath() string { return s.at[len(s.at)-1] }

// A mode is how the layers were written: by root's overlay or by an ordinary user's.
type mode struct {
	prefix string // of overlayfs's own attributes, "trusted.overlay." or "user.overlay."
	// unprivileged: the layers were written by an ordinary user's overlay, and so have no redirects and
	// no metacopies. The reader is that user, who may lack the permission to read some of them.
	unprivileged bool
}

// layers are the layers of an overlay, as open directories.
type layers struct {
	mode
	roots []*os.File
}

// open opens the layers. The caller closes them, also after an error.
func (l *layers) open(trees []string) error {
	for _, tree := range trees {
		f, err := vfs.OpenDir(unix.AT_FDCWD, tree)
		if err != nil {
			return err
		}
		l.roots = append(l.roots, f)
	}
	return nil
}

func (l *layers) close() {
	for _, f := range l.roots {
		if f != nil {
			f.Close()
		}
	}
}

// root returns the stack of the root directory.
func (l *layers) root() stack {
	n := len(l.roots)
	s := stack{at: make([]string, n+1), end: n + 1, has: make([]bool, n), data: -1}
	for i := range s.has {
		s.has[i] = true
	}
	return s
}

// child looks name up in the directory parent, in the layers with index from and above.
func (l *layers) child(parent *stack, name string, from int) (stack, error) {
	n := len(l.roots)
	s := stack{at: make([]string, n+1), end: parent.end, has: make([]bool, n), top: -1, data: -1}
	for j := range s.at {
		s.at[j] = path.Join(parent.at[j], name)
	}
	for j := from; j < min(s.end, n); j++ {
		if !parent.has[j] && s.at[j] == path.Join(parent.at[j], name) {
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

// add adds the entry found in layer j to the stack. It sets s.end if the entry hides the layers
// lowerPath j.
func (l *layers) add(s *stack, j int, st vfs.Stat, node *os.File) error {
	isDir, first := st.IsDir(), s.top < 0
	switch {
	case st.IsWhiteout():
		s.whiteout, s.end = first, j
		if first {
			s.top, s.stat = j, st
		}
		return nil
	case !first && isDir != s.stat.IsDir():
		s.end = j // a directory hides a file, and a file hides a directory
		return nil
	}
	if first {
		s.top, s.stat = j, st
	}
	var last bool
	var err error
	if isDir {
		s.has[j] = true
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

// redirect sets the paths for the layers below j according to the entry's redirect attribute.
func (l *layers) redirect(s *stack, j int, node *os.File) error {
	if l.unprivileged {
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
	other, err := l.locate(to[1:], j+1)
	if err != nil {
		return err
	}
	copy(s.at[j+1:], other.at[j+1:])
	s.end = other.end
	return nil
}

// locate looks up a path from the root, in the layers with index from and above.
func (l *layers) locate(name string, from int) (stack, error) {
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

func (l *layers) isOpaque(dir *os.File, st vfs.Stat) (bool, error) {
	revoke, err := l.grantReadInode(dir, st)
	if err != nil {
		return false, err
	}
	defer revoke()
	value, err := l.get(dir, "opaque")
	return value == "y", err
}

// isComplete reports whether the layer has the file's content, and not only its metadata.
func (l *layers) isComplete(node *os.File, st vfs.Stat) (bool, error) {
	if l.unprivileged || !st.IsRegular() {
		return true, nil
	}
	_, err := vfs.GetXattr(int(node.Fd()), "", l.prefix+"metacopy") // the value may be empty
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return true, nil
	}
	return false, err
}

func (l *layers) get(node *os.File, short string) (string, error) {
	value, err := vfs.GetXattr(int(node.Fd()), "", l.prefix+short)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return "", nil
	}
	return string(value), err
}

// stat returns the inode at a path of layer j. It follows no symbolic link.
func (l *layers) stat(j int, name string) (vfs.Stat, *os.File, error) {
	node, err := openIn(l.roots[j], name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return vfs.Stat{}, nil, err
	}
	st, err := vfs.Lstat(int(node.Fd()), "")
	if err != nil {
		node.Close()
	}
	return st, node, err
}
