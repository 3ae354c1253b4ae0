package hostfs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A MountStub is a file or directory in a fork's workspace on which the sandbox mounts a filesystem, or a
// parent of one. Without it the mount fails and no command starts, so it is restored when a fork gets new
// contents.
type MountStub struct {
	Path  string // relative to the workspace
	st    vfs.Stat
	attrs map[string]string
}

// error returns an error about restoring p, a mount point in a fork's workspace. kind is its kind, such as
// errs.ErrNotSupported, and err its cause.
func (p MountStub) error(kind, err error) error {
	return &errs.Error{Op: "restoring a mount point", Path: p.Path, Kind: kind, Err: err}
}

// stubPaths returns the paths in a sandbox's workspace that are mount points or their parents,
// parents first.
func (hf *Host) stubPaths(rec *catalog.Record) ([]string, error) {
	env, err := Survey(rec.Workspace, hf.cat.Dir(), Privileged())
	if err != nil {
		return nil, err
	}
	all := slices.Concat(env.Shown, env.Frames, env.Omitted)
	for _, t := range rec.Trees {
		all = append(all, t.Path)
	}
	for _, m := range env.mounts {
		all = append(all, m.Path)
	}
	slices.Sort(all)
	var on, places []string
	for _, p := range slices.Compact(all) {
		if p == rec.Workspace || !Within(p, rec.Workspace) || slices.ContainsFunc(on, func(above string) bool { return Within(p, above) }) {
			continue // outside the workspace, or under another mount point
		}
		on = append(on, p)
		rel, err := filepath.Rel(rec.Workspace, p)
		if err != nil {
			return nil, err
		}
		for ; rel != "."; rel = path.Dir(rel) {
			places = append(places, rel)
		}
	}
	slices.Sort(places)
	return slices.Compact(places), nil
}

// PlacesAt returns the paths of mount points in the workspace that exist only because of mounts on this machine, from
// the list in the named snapshot with which the sandbox's files last started; see
// [catalog.NamedSnapshot.MountPoints].
func PlacesAt(rec *catalog.Record) []string {
	m, _ := rec.Snapshot(rec.At)
	return m.MountPoints
}

// MountStubs reads, with their metadata, the mount points and their parents in the workspace of a fork, which
// is open as dir. It leaves out those that do not exist.
func (hf *Host) MountStubs(rec *catalog.Record, dir *os.File) ([]MountStub, error) {
	paths, err := hf.stubPaths(rec)
	if err != nil {
		return nil, err
	}
	var there []MountStub
	for _, path := range paths {
		p := MountStub{Path: path}
		f, err := vfs.OpenBeneath(int(dir.Fd()), path, vfs.OPath|syscall.O_NOFOLLOW, 0)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err == nil {
			if p.st, err = vfs.Lstat(int(f.Fd()), ""); err == nil {
				p.attrs, err = vfs.Xattrs(int(f.Fd()), "")
			}
			f.Close()
		}
		if err != nil {
			return nil, p.error(errs.KindOfFile(err), err)
		}
		there = append(there, p)
	}
	return there, nil
}

// RestoreStubs creates those mount points and their parents (places) that no longer exist below dir, the
// workspace of a fork, with their metadata, and restores the times of their parents. It returns the paths it
// created. Errors: errs.ErrNotSupported if such a path is now of another type.
func RestoreStubs(ctx context.Context, dir *os.File, places []MountStub) (made []string, err error) {
	for _, p := range places {
		was, err := p.restore(dir)
		if err != nil {
			return nil, err
		}
		if !was {
			made = append(made, p.Path)
		}
	}
	return made, ctx.Err()
}

// restore creates the mount point, or its parent, below dir, the workspace of a fork, and returns false. It
// returns true if that exists already.
func (p MountStub) restore(dir *os.File) (was bool, err error) {
	in, err := vfs.OpenBeneath(int(dir.Fd()), path.Dir(p.Path), vfs.OPath|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false, p.error(errs.KindOfFile(err), err)
	}
	defer in.Close()
	name := path.Base(p.Path)
	st, err := vfs.Lstat(int(in.Fd()), name)
	switch {
	case err == nil && st.Mode&syscall.S_IFMT == p.st.Mode&syscall.S_IFMT:
		return true, nil
	case err == nil:
		return false, p.error(errs.ErrNotSupported, errors.New("the new contents have another type there"))
	case !errors.Is(err, fs.ErrNotExist):
		return false, p.error(errs.KindOfFile(err), err)
	}
	if err := p.make(in, name); err != nil {
		return false, p.error(errs.KindOfFile(err), err)
	}
	return false, nil
}

// make creates the empty directory or file at which a filesystem is mounted, or its parent, under name in the
// directory in, with its metadata. It restores the times of that directory.
func (p MountStub) make(in *os.File, name string) error {
	was, err := vfs.Lstat(int(in.Fd()), "")
	if err != nil {
		return err
	}
	if p.st.IsDir() {
		err = os.Mkdir(filepath.Join(vfs.FDPath(in), name), 0o700)
	} else {
		err = vfs.MakeNode(int(in.Fd()), name, syscall.S_IFREG|0o600, 0)
	}
	if err != nil {
		return err
	}
	f, err := vfs.OpenBeneath(int(in.Fd()), name, vfs.OPath|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	fd := int(f.Fd())
	if Privileged() {
		err = vfs.SetOwner(fd, int(p.st.UID), int(p.st.GID))
	}
	for attr, value := range p.attrs {
		if aerr := vfs.SetXattr(fd, "", attr, []byte(value), 0); aerr != nil && !strings.HasPrefix(attr, "security.") {
			err = errors.Join(err, aerr)
		}
	}
	if err == nil {
		err = syscall.Chmod(vfs.FDPath(f), p.st.Mode&0o7777)
	}
	return errors.Join(err, vfs.SetTimes(fd, &p.st.ATime, p.st.MTime), vfs.SetTimes(int(in.Fd()), &was.ATime, was.MTime))
}

// ClearOut removes everything but the mount points and their parents (places) from the workspace of a fork,
// which is open as dir and which no other process uses. It changes modes that forbid their owner to remove
// something.
func ClearOut(dir *os.File, places []MountStub) error {
	top := vfs.FDPath(dir) + "/."
	root, err := os.OpenRoot(top)
	if errors.Is(err, fs.ErrPermission) {
		if err = os.Chmod(top, 0o700); err == nil { // the new contents bring their own mode
			root, err = os.OpenRoot(top)
		}
	}
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing was written to it
	kept := map[string]MountStub{}
	for _, p := range places {
		kept[p.Path] = p
	}
	if err := clearIn(root, ".", kept); err != nil {
		return err
	}
	attrs, err := vfs.ListXattrs(int(dir.Fd()), "")
	for _, attr := range attrs {
		if rerr := vfs.RemoveXattr(int(dir.Fd()), "", attr); rerr != nil && !strings.HasPrefix(attr, "security.") { // a security module's attribute stays
			err = errors.Join(err, rerr)
		}
	}
	return err
}

// clearIn removes everything in the directory dir of a fork's workspace, which is open as root, except the
// listed mount points and their parents. Their times and modes stay.
func clearIn(root *os.Root, dir string, kept map[string]MountStub) error {
	undo, err := makeWritable(root, dir)
	if err != nil {
		return err
	}
	entries, err := fs.ReadDir(root.FS(), dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := path.Join(dir, entry.Name())
		p, keep := kept[name]
		switch {
		case keep && p.st.IsDir():
			err = clearIn(root, name, kept)
			if err == nil {
				err = root.Chtimes(name, p.st.ATime.Time(), p.st.MTime.Time())
			}
		case !keep:
			err = removeAll(root, name)
		}
		if err != nil {
			return err
		}
	}
	return undo()
}

// removeAll removes a name in the workspace of a fork and everything in it, whatever the modes of its
// directories.
func removeAll(root *os.Root, name string) error {
	err := root.RemoveAll(name)
	if !errors.Is(err, fs.ErrPermission) || Privileged() {
		return err
	}
	err = fs.WalkDir(root.FS(), name, func(at string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_, err = makeWritable(root, at)
		}
		return err
	})
	if err != nil {
		return err
	}
	return root.RemoveAll(name)
}

// makeWritable lets the owner of a directory in a fork's workspace list it and remove its entries, before it
// is cleared. undo restores the directory's mode.
func makeWritable(root *os.Root, dir string) (undo func() error, err error) {
	const all = 0o700
	info, err := root.Lstat(dir)
	if err != nil || Privileged() || info.Mode()&all == all {
		return func() error { return nil }, err
	}
	bits := info.Mode() &^ fs.ModeType
	return func() error { return root.Chmod(dir, bits) }, root.Chmod(dir, bits|all)
}
