//go:build linux

package diff

import (
	"errors"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// setPlacement sets overlayfs's own attributes of the entry name in a merged layer: opaque if it hides the
// layers below, redirect if they have it under another name. parent and s are the lookups of its directory
// and of itself.
func (m *merger) setPlacement(name string, parent, s *Stack) error {
	marks := map[string]string{}
	switch {
	case s.ReachesLower() && (s.Stat.IsDir() || s.data < 0 && s.Stat.IsRegular()):
		natural := parent.ReachesLower() && path.Join(parent.LowerPath(), path.Base(name)) == s.LowerPath()
		if several := !s.Stat.IsDir() && s.Stat.Nlink > 1; !natural || several { // a redirect with the full path is right for every link of a file
			marks["redirect"] = "/" + s.LowerPath()
		}
	case s.Stat.IsDir() && parent.ReachesLower():
		marks["opaque"] = "y"
	}
	if len(marks) == 0 {
		return nil
	}
	node, err := store.OpenIn(m.out, name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer node.Close()
	for short, value := range marks {
		if err := vfs.SetXattr(int(node.Fd()), "", m.Prefix+short, []byte(value), 0); err != nil {
			return err
		}
	}
	return nil
}

// keepsAttr reports whether to copy the extended attribute attr of an entry to the merged layer. It excludes
// redirect and opaque, which setPlacement sets, and attributes that refer to other layers. It includes
// origin, impure and protattr, and overlay.overlay.*, those of an overlay inside the sandbox.
func (m *merger) keepsAttr(attr string, s *Stack) bool {
	short, own := strings.CutPrefix(attr, m.Prefix)
	if !own {
		return true
	}
	switch short {
	case "redirect", "opaque":
		return false
	case "metacopy":
		return s.data < 0 // the content is in the lower tree
	}
	return !refersToLayer(short)
}

// refersToLayer reports whether the attribute of overlayfs with the name short, without its prefix, refers to files of
// one layer, so that it says nothing about a copy of that layer.
func refersToLayer(short string) bool {
	switch short {
	case "nlink", "uuid", "index", "upper":
		return true
	}
	return false
}

// finish gives the entry name of the merged layer the owner, attributes, mode and times that it has in the
// topmost of the layers that provide it.
func (m *merger) finish(name string, s *Stack) error {
	src, err := store.OpenIn(m.roots[s.Top], s.at[s.Top], unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := store.OpenIn(m.out, name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer dst.Close()
	return m.finishOpen(name, src, dst, s)
}

// finishOpen does what finish does, with the entry open as src in the layer and as dst in the merged one.
func (m *merger) finishOpen(name string, src, dst *os.File, s *Stack) error {
	fd := int(dst.Fd())
	if err := m.finishOwner(fd, name, s.Stat); err != nil {
		return err
	}
	attrs, err := vfs.Xattrs(int(src.Fd()), "")
	if err != nil {
		return err
	}
	for attr, value := range attrs {
		if !m.keepsAttr(attr, s) {
			continue
		}
		if err := vfs.SetXattr(fd, "", attr, []byte(value), 0); err != nil && !m.same(fd, attr, value) {
			return err
		}
	}
	if !s.Stat.IsSymlink() { // symbolic links have no mode
		if err := unix.Chmod(vfs.FDPath(dst), s.Stat.Mode&0o7777); err != nil {
			return store.PathError("chmod", name, err)
		}
	}
	return store.SetTimes(fd, name, s.Stat)
}

// finishOwner sets the owner of the entry name, open as fd, in the merged layer. It comes before mode and
// attributes, because chown clears set-id bits and file capabilities.
func (m *merger) finishOwner(fd int, name string, want vfs.Stat) error {
	have, err := vfs.Lstat(fd, "")
	if err != nil || have.UID == want.UID && have.GID == want.GID {
		return err
	}
	return store.PathError("chown", name, unix.Fchownat(fd, "", int(want.UID), int(want.GID), unix.AT_EMPTY_PATH))
}

// same reports whether the extended attribute attr of the open file fd already has this value, as when a
// security module has set it: then the merge need not set it, which may be forbidden.
func (m *merger) same(fd int, attr, value string) bool {
	has, err := vfs.GetXattr(fd, "", attr)
	return err == nil && string(has) == value
}

// grantRead gives an ordinary user the permission to read the user's own file of mode 000, the entry s of a
// layer, while a merge copies it; revoke takes it back. A process killed meanwhile leaves the changed mode;
// root needs no permission.
func (m *merger) grantRead(s *Stack) (revoke func(), err error) {
	var undo []func()
	revoke = func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}
	if !m.Unprivileged {
		return revoke, nil
	}
	for j := range m.roots {
		if j != s.Top && j != s.data && (!s.Has[j] || j >= s.end) {
			continue
		}
		st, node, err := m.stat(j, s.at[j])
		if err != nil {
			revoke()
			return nil, err
		}
		undo = append(undo, func() { node.Close() })
		f, err := m.grantReadInode(node, st)
		if err != nil {
			revoke()
			return nil, err
		}
		undo = append(undo, f)
	}
	return revoke, nil
}

func (l *Layers) grantReadInode(node *os.File, st vfs.Stat) (revoke func(), err error) {
	need := uint32(0o400)
	if st.IsDir() {
		need = 0o500
	}
	if !l.Unprivileged || st.IsSymlink() || st.Mode&need == need {
		return func() {}, nil
	}
	mode := st.Mode & 0o7777
	if err := unix.Chmod(vfs.FDPath(node), mode|need); err != nil && !errors.Is(err, unix.EPERM) {
		return nil, err
	}
	return func() { _ = unix.Chmod(vfs.FDPath(node), mode) }, nil
}
