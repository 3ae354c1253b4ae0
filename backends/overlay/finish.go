//go:build linux

package overlay

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

func failed(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// mark writes on a node of the new layer how it stands to what lies below:
// hidden by it, or to be found there under another name.
func (m *merger) mark(name string, parent, s *stack) error {
	marks := map[string]string{}
	switch {
	case s.reaches() && (s.stat.IsDir() || s.data < 0 && s.stat.IsRegular()):
		natural := parent.reaches() && path.Join(parent.below(), path.Base(name)) == s.below()
		if several := !s.stat.IsDir() && s.stat.Nlink > 1; !natural || several { // it is right for all names of a file
			marks["redirect"] = "/" + s.below()
		}
	case s.stat.IsDir() && parent.reaches():
		marks["opaque"] = "y"
	}
	if len(marks) == 0 {
		return nil
	}
	node, err := beneath(m.out, name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer node.Close()
	for short, value := range marks {
		if err := vfs.SetXattr(int(node.Fd()), "", m.prefix+short, []byte(value), 0); err != nil {
			return err
		}
	}
	return nil
}

// kept reports whether an attribute of the source goes to the new layer. Those
// that place a node in its chain are written by mark; those that number links
// and layers mean nothing here. What is left of overlayfs's own: origin and
// impure, by which a file keeps its inode number; protattr, its flags; and
// overlay.overlay.*, which are those of an overlay in the sandbox.
func (m *merger) kept(attr string, s *stack) bool {
	short, own := strings.CutPrefix(attr, m.prefix)
	if !own {
		return true
	}
	switch short {
	case "redirect", "opaque", "nlink", "uuid", "index", "upper":
		return false
	case "metacopy":
		return s.data < 0 // the content is still below
	}
	return true
}

// finish gives a node of the new layer the owner, attributes, mode and times
// of the topmost one it is made of.
func (m *merger) finish(name string, s *stack) error {
	src, err := beneath(m.roots[s.top], s.at[s.top], unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := beneath(m.out, name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer dst.Close()
	fd := int(dst.Fd())
	if err := m.finishOwner(fd, name, s.stat); err != nil {
		return err
	}
	attrs, err := vfs.Xattrs(int(src.Fd()), "")
	if err != nil {
		return err
	}
	for attr, value := range attrs {
		if !m.kept(attr, s) {
			continue
		}
		if err := vfs.SetXattr(fd, "", attr, []byte(value), 0); err != nil && !m.same(fd, attr, value) {
			return err
		}
	}
	if !s.stat.IsSymlink() { // which has no mode
		if err := unix.Chmod(vfs.FDPath(dst), s.stat.Mode&0o7777); err != nil {
			return failed("chmod", name, err)
		}
	}
	return setTimes(fd, name, s.stat)
}

// finishOwner comes before the rest: a change of owner clears set-id bits and
// file capabilities.
func (m *merger) finishOwner(fd int, name string, want vfs.Stat) error {
	have, err := vfs.Lstat(fd, "")
	if err != nil || have.UID == want.UID && have.GID == want.GID {
		return err
	}
	return failed("chown", name, unix.Fchownat(fd, "", int(want.UID), int(want.GID), unix.AT_EMPTY_PATH))
}

// same: a security module had written the attribute already, as it is.
func (m *merger) same(fd int, attr, value string) bool {
	has, err := vfs.GetXattr(fd, "", attr)
	return err == nil && string(has) == value
}

// lend gives an ordinary user, for as long as a node is copied, the permission
// to read what is theirs but closed to them. A process killed meanwhile leaves
// the mode so; root has the permission anyhow.
func (m *merger) lend(s *stack) (unlend func(), err error) {
	var undo []func()
	unlend = func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}
	if !m.poor {
		return unlend, nil
	}
	for j := range m.roots {
		if j != s.top && j != s.data && (!s.has[j] || j >= s.end) {
			continue
		}
		st, node, err := m.stat(j, s.at[j])
		if err != nil {
			unlend()
			return nil, err
		}
		undo = append(undo, func() { node.Close() })
		f, err := m.lendNode(node, st)
		if err != nil {
			unlend()
			return nil, err
		}
		undo = append(undo, f)
	}
	return unlend, nil
}

func (l *layers) lendNode(node *os.File, st vfs.Stat) (unlend func(), err error) {
	need := uint32(0o400)
	if st.IsDir() {
		need = 0o500
	}
	if !l.poor || st.IsSymlink() || st.Mode&need == need {
		return func() {}, nil
	}
	mode := st.Mode & 0o7777
	if err := unix.Chmod(vfs.FDPath(node), mode|need); err != nil && !errors.Is(err, unix.EPERM) {
		return nil, err
	}
	return func() { _ = unix.Chmod(vfs.FDPath(node), mode) }, nil
}
