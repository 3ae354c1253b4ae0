//go:build linux

package mounts

import (
	"errors"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate/launch"
)

// The layer of Mount.Hidden: a tmpfs with a whiteout for each hidden name, and with copies of the directories that
// contain them, because overlayfs shows the attributes of the topmost one. It cannot be stored beside the other
// layers, where several containers could share it: overlayfs refuses a lower layer that lies in another one (ELOOP).
// A file there that is mounted, an image, is another filesystem and can have the whiteouts.

// A parent is a directory of the host's tree with hidden entries in or below it. The overlay layer that hides
// these has a copy of the directory, with the same attributes.
type parent struct {
	path    string // relative to the tree
	st      vfs.Stat
	xattrs  map[string]string
	hasMode bool // the copy has the mode of the original already
}

// parentsOf returns the directories of tree with hidden entries, those above them, outermost first, and those that are
// excepted from what is hidden ([Hidden.Except]). here are those of hidden whose directories exist. For one whose directory
// somebody has just removed, it has that directory as an entry to hide, since it may be made again.
func parentsOf(tree string, hidden []Hidden) (parents []parent, here []Hidden) {
	there := make(map[string]bool, len(hidden))
	there["."] = true
	parents, here = make([]parent, 0, len(hidden)), make([]Hidden, 0, len(hidden))
	var exists func(dir string) bool
	exists = func(dir string) bool {
		ok, known := there[dir]
		if known {
			return ok
		}
		if exists(path.Dir(dir)) {
			p := parent{path: dir}
			var err error
			if p.st, err = vfs.Lstat(unix.AT_FDCWD, path.Join(tree, dir)); err == nil && p.st.IsDir() {
				p.xattrs, _ = vfs.Xattrs(unix.AT_FDCWD, path.Join(tree, dir)) // unreadable ones cannot be copied
				parents, ok = append(parents, p), true
			}
		}
		there[dir] = ok
		return ok
	}
	for _, h := range hidden {
		if !exists(h.Dir) {
			dir := h.Dir
			for !exists(path.Dir(dir)) {
				dir = path.Dir(dir)
			}
			if _, err := vfs.Lstat(unix.AT_FDCWD, path.Join(tree, dir)); !errors.Is(err, unix.ENOENT) {
				continue // it is there, and no directory
			}
			h = Hidden{Dir: path.Dir(dir), Absent: []string{path.Base(dir)}}
		}
		h.Except = slices.DeleteFunc(slices.Clone(h.Except), func(name string) bool { return !exists(path.Join(h.Dir, name)) })
		here = append(here, h)
	}
	return parents, here
}

// A hiddenLayer is what hides entries of one mount, such as secrets, from the container: an overlay layer, a tmpfs,
// and directly below it an image with the whiteouts, which the tmpfs has where there is no image. A goroutine makes
// both while the supervisor makes other mounts.
type hiddenLayer struct {
	filled chan struct{} // closed when the fields below are set
	source hiddenSource
	layer  *os.File // detached
	image  *os.File // detached, or nil
	err    error
	mapped bool // whether the ids of layer were mapped for the container
	again  bool // whether an earlier container had the same layers
}

// fillHiddenLayers starts to make the layers that hide entries, for all those mounts with hidden entries that
// the supervisor makes.
func (pl *Planner) fillHiddenLayers() {
	for _, g := range pl.premounts {
		m := g.mount
		if len(m.Hidden) == 0 || m.Overlay == nil && !m.NoSockets {
			continue
		}
		l := &hiddenLayer{filled: make(chan struct{})}
		if pl.hidden == nil {
			pl.hidden = map[string]*hiddenLayer{}
		}
		pl.hidden[m.Target] = l
		l.source = hiddenSource{opaque: m.Overlay != nil && m.Overlay.Upper != "" && !m.Overlay.UserXattr, images: pl.Spec.Images, ids: pl.Spec.IDs}
		go func() {
			defer close(l.filled)
			l.source.parents, l.source.hidden = parentsOf(m.Target, m.Hidden)
			if !pl.HidesAgain || !lastHidden.reuse(m.Target, l) {
				l.err = l.fill()
			}
		}()
	}
}

// closeHiddenLayers adds the overlay layers that hide entries of trees to CloseLast.
func (pl *Planner) closeHiddenLayers() {
	for target, l := range pl.hidden {
		<-l.filled
		if pl.HidesAgain {
			lastHidden.keep(target, l)
		}
		pl.CloseLast = append(pl.CloseLast, l.files()...)
	}
	pl.hidden = nil
}

// hiddenLayer returns a function that returns the overlay layers, topmost first, that hide entries of the tree mounted
// at target, for example the host's secrets. The directories in them have the ids of the user namespace userns, and
// the caller closes the layers. The result is nil if nothing is hidden in that tree.
func (pl *Planner) hiddenLayer(target string, userns *os.File) func() ([]*os.File, error) {
	l := pl.hidden[target]
	if l == nil {
		return nil
	}
	return func() ([]*os.File, error) {
		<-l.filled
		if l.err == nil && !l.mapped {
			l.mapped = true
			l.err = mount.IDMap(l.layer, userns)
			if errors.Is(l.err, unix.EINVAL) { // a tmpfs before Linux 6.3
				l.err = shiftOwners(int(l.layer.Fd()), l.source.parents, pl.Spec.IDs)
			}
		}
		if l.err != nil {
			return nil, l.err
		}
		layer, err := vfs.Duplicate(l.layer)
		if err != nil {
			return nil, err
		}
		if l.image == nil {
			return []*os.File{layer}, nil
		}
		image, err := vfs.Duplicate(l.image)
		if err != nil {
			layer.Close()
			return nil, err
		}
		return []*os.File{layer, image}, nil
	}
}

// fill makes the overlay layers that hide the entries of l.source: a tmpfs with stand-ins, if opaque is set, and
// whiteouts. An image of the directory images has the whiteouts where the kernel can mount one, else the tmpfs has
// them. opaque is for an overlay with an upper layer and trusted.overlay.* marks, which understands opaque directories.
// Cost without an image: 4 µs for each entry, 10 µs for each directory.
func (l *hiddenLayer) fill() error {
	c, err := mount.Fsopen("tmpfs")
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Set("mode", "755"); err != nil {
		return err
	}
	if l.layer, err = c.Mount(plainMount); err != nil {
		return err
	}
	here := slices.Clone(l.source.hidden)
	if l.image = mountWhiteouts(l.source.images, here); l.image != nil {
		for i := range here {
			here[i].Absent = nil
		}
	}
	w := layerWriter{root: int(l.layer.Fd())}
	return w.fill(l.source.parents, here, l.source.opaque)
}

// shiftOwners gives the directories parents, copies in the layer with the directory root that cannot be
// id-mapped, the owners to which ids maps those of the originals. Others become nobody.
func shiftOwners(root int, parents []parent, ids IDs) error {
	const nobody = 65534
	shift := func(id uint32) int {
		if id >= ids.Size {
			id = nobody
		}
		return int(ids.Base + id)
	}
	for _, p := range parents {
		if err := unix.Fchownat(root, p.path, shift(p.st.UID), shift(p.st.GID), 0); err != nil {
			return &os.PathError{Op: "chown", Path: p.path, Err: err}
		}
	}
	return nil
}

// hiddenByPID1 adds the system calls by which pid 1 mounts the layer that hides m.Hidden, in a user namespace
// of Same, which may make whiteouts (vfs_mknod in fs/namei.c, Linux 5.8). It returns the names of the layers, topmost
// first; none if nothing is hidden.
func (pl *Planner) hiddenByPID1(m Mount) []string {
	if len(m.Hidden) == 0 || pl.Spec.IDs != Same {
		return nil
	}
	parents, here := parentsOf(m.Target, m.Hidden)
	stored, held := storedWhiteouts(pl.Spec.Images, m.Overlay, here)
	if stored != "" {
		here, pl.stored = nil, append(pl.stored, held)
	}
	layer := pl.Filesystem("tmpfs", plainMount, "mode=755")
	name := pl.numbered(layer)
	whiteout := pl.Str(whiteoutName)
	pl.Do(unix.SYS_MKNODAT, pl.Of(layer), whiteout, launch.Num(unix.S_IFCHR), launch.Num(0))
	for _, p := range parents {
		pl.Do(unix.SYS_MKDIRAT, pl.Of(layer), pl.Str(p.path), launch.Num(0o700)).Path(p.path)
	}
	for _, h := range here {
		for _, entry := range h.Absent {
			entry = path.Join(h.Dir, entry)
			pl.Do(unix.SYS_LINKAT, pl.Of(layer), whiteout, pl.Of(layer), pl.Str(entry), launch.Num(0)).Path(entry).Tolerate(unix.EEXIST)
		}
	}
	for _, p := range slices.Backward(parents) {
		for _, attr := range slices.Sorted(maps.Keys(p.xattrs)) {
			if !vfs.OverlayXattr(attr) && !strings.HasPrefix(attr, "security.") {
				value := p.xattrs[attr]
				pl.Do(unix.SYS_SETXATTR, pl.Str(name+"/"+p.path), pl.Str(attr), pl.Bytes([]byte(value)...), launch.Num(len(value)), launch.Num(0)).IgnoreErrors()
			}
		}
		pl.Do(unix.SYS_FCHMODAT, pl.Of(layer), pl.Str(p.path), launch.Num(ownMode(m.Target, p))).Path(p.path)
		pl.Do(unix.SYS_UTIMENSAT, pl.Of(layer), pl.Str(p.path),
			pl.Words(uint64(p.st.ATime.Sec), uint64(p.st.ATime.Nsec), uint64(p.st.MTime.Sec), uint64(p.st.MTime.Nsec)), launch.Num(0)).Path(p.path)
	}
	pl.place(layer)
	if stored != "" {
		return []string{name, pl.layer(stored)}
	}
	return []string{name}
}

// ownMode returns the mode for a copy of the directory p of tree, which the caller owns. If p is somebody
// else's, the owner of the copy gets the rights that the caller has to p.
func ownMode(tree string, p parent) uint32 {
	mode := p.st.Mode & 0o7777
	if int(p.st.UID) == os.Geteuid() {
		return mode
	}
	at := path.Join(tree, p.path)
	for access, bit := range map[uint32]uint32{unix.R_OK: 0o400, unix.W_OK: 0o200, unix.X_OK: 0o100} {
		mode &^= bit
		if unix.Faccessat(unix.AT_FDCWD, at, access, unix.AT_EACCESS) == nil {
			mode |= bit
		}
	}
	return mode
}
