//go:build linux

package overlay

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A stack is what a name is made of, as overlayfs looks it up: for each layer,
// the topmost first, and at last for what lies below all of them, where the
// name is looked for there. The paths differ from layer to layer where a
// directory was renamed (Documentation/filesystems/overlayfs, "redirect_dir").
type stack struct {
	at  []string // one more than there are layers
	end int      // layers from here on are hidden by what is above them
	// top is the layer that the name itself comes from, or -1: from none.
	top  int
	stat vfs.Stat // of the node in the top layer
	// data is the layer that the content of a regular file comes from:
	// another than top where only metadata was copied up, -1 from below.
	data     int
	has      []bool // the layers that hold it as a directory, and are not hidden
	whiteout bool   // the top layer says that there is nothing
}

// reaches reports whether what lies below the layers takes part.
func (s *stack) reaches() bool { return s.end == len(s.at) }

// below is where that is looked for.
func (s *stack) below() string { return s.at[len(s.at)-1] }

// layers are the trees being merged, as open directories.
type layers struct {
	roots  []*os.File
	prefix string // of overlayfs's attributes
	// poor: the layers were written by an ordinary user's overlay, which has
	// neither redirects nor metacopies, and are read by that user, who may
	// lack the permission.
	poor bool
}

// open opens them. The caller closes them, after an error too.
func (l *layers) open(b *backend, trees []string) error {
	l.prefix, l.poor = b.attr(""), b.userXattr
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

// root is the stack of the root of the overlay.
func (l *layers) root() stack {
	n := len(l.roots)
	s := stack{at: make([]string, n+1), end: n + 1, has: make([]bool, n), data: -1}
	for i := range s.has {
		s.has[i] = true
	}
	return s
}

// child looks name up in the directory that parent is, from the layer from on.
func (l *layers) child(parent *stack, name string, from int) (stack, error) {
	n := len(l.roots)
	s := stack{at: make([]string, n+1), end: parent.end, has: make([]bool, n), top: -1, data: -1}
	for j := range s.at {
		s.at[j] = path.Join(parent.at[j], name)
	}
	for j := from; j < min(s.end, n); j++ {
		if !parent.has[j] && s.at[j] == path.Join(parent.at[j], name) {
			continue // nothing redirected the name to elsewhere in this layer
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

// add lets the node found in the layer j take part. It shortens s.end where
// nothing below j counts.
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
		s.end = j // a directory hides a file, and the other way round
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

// redirect turns s to where the layers below j know the node of that layer.
func (l *layers) redirect(s *stack, j int, node *os.File) error {
	if l.poor {
		return nil
	}
	to, err := l.get(node, "redirect")
	if err != nil || to == "" {
		return err
	}
	if to[0] != '/' { // within the same directory
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

// locate looks a path from the root up, in the layers from on.
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
	unlend, err := l.lendNode(dir, st)
	if err != nil {
		return false, err
	}
	defer unlend()
	value, err := l.get(dir, "opaque")
	return value == "y", err
}

// isComplete: the layer has the file's content too, not only its metadata.
func (l *layers) isComplete(node *os.File, st vfs.Stat) (bool, error) {
	if l.poor || !st.IsRegular() {
		return true, nil
	}
	_, err := vfs.GetXattr(int(node.Fd()), "", l.prefix+"metacopy") // its value may be empty
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

// stat finds the node at a path of the layer j, without following links.
func (l *layers) stat(j int, name string) (vfs.Stat, *os.File, error) {
	node, err := beneath(l.roots[j], name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return vfs.Stat{}, nil, err
	}
	st, err := vfs.Lstat(int(node.Fd()), "")
	if err != nil {
		node.Close()
	}
	return st, node, err
}

// beneath opens a path of a layer, "" for its root.
func beneath(root *os.File, name string, flags int) (*os.File, error) {
	if name == "" {
		name = "."
	}
	return vfs.OpenBeneath(int(root.Fd()), name, flags, 0)
}
