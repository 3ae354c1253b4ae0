package hostfs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/isolate"
)

// Others mount and unmount filesystems on a real machine at any time: a stick, a
// container, a remote directory. In a user namespace all mounts of the machine are
// locked in place (mount_namespaces(7)), and the kernel makes no overlay of a
// directory that has a locked one beneath it (EINVAL, from clone_private_mount in
// fs/namespace.c). So an ordinary user's trees are laid out around the mounts
// there are, and two things happen to them: mounts move between the look at
// them and the making of the overlay, which is tried again; and mounts come to
// stay in a tree of a sandbox that is there already, which is then used directory
// by directory, without those that lead to the mount.

// MountRetry repeats what failed, as long as mounts come and go meanwhile.
type MountRetry struct {
	watch *mount.Watch
	made  int
}

// MostAttempts is for a machine where mounts come and go all the time: half of
// the attempts fail then.
const MaxAttempts = 20

// Again reports whether what failed with err is worth another attempt. After the
// first nobody knows what moved while it was made.
func (a *MountRetry) Again(err error) bool {
	a.made++
	passing := []error{errs.ErrNotSupported, errs.ErrNotFound, errs.ErrBusy, errs.ErrDenied}
	if !slices.Contains(passing, errs.KindOf(err)) || a.made == MaxAttempts {
		return false
	}
	if a.watch != nil {
		return a.watch.Changed()
	}
	w, werr := mount.NewWatch()
	if werr != nil {
		return false
	}
	a.watch = w
	return true
}

func (a *MountRetry) Close() {
	if a.watch != nil {
		a.watch.Close()
	}
}

// MountedError: a tree cannot be had as a whole because of mounts beneath it.
type MountedError struct{ mounts []string }

func (m *MountedError) Error() string {
	return "mounted beneath it is " + Several(m.mounts) + ", and the kernel overlays no such directory for an ordinary user"
}

// Several names one of many paths, and says how many more there are.
func Several(paths []string) string {
	text := pathlist.Printable(paths[0])
	if n := len(paths) - 1; n > 0 {
		text += " (and " + strconv.Itoa(n) + " more)"
	}
	return text
}

// MountedSince is the error of a directory with these mounts beneath it.
func MountedSince(op, dir string, mounts []string) error {
	return &errs.Error{
		Op: op, Path: dir, Kind: errs.ErrBusy, Err: &MountedError{mounts},
		Hints: []string{"sudo umount " + pathlist.Printable(mounts[0]), "findmnt -R " + pathlist.Printable(dir) + "   # all that is mounted there"},
	}
}

// MountsBeneath lists what is mounted in dir.
func (e *Environment) MountsBeneath(dir string) (list []string) {
	for _, m := range e.mounts {
		if m.Path != dir && Within(m.Path, dir) {
			list = append(list, m.Path)
		}
	}
	return list
}

// Clear is the topmost directory from tree down to path that has nothing mounted
// beneath it; "" where there is none, or something is mounted right on it, or it is
// no directory of the real machine.
func (e *Environment) Clear(tree, path string) string {
	for dir := tree; ; {
		if !e.MountedBeneath(dir) {
			info, err := os.Lstat(dir)
			if err != nil || !info.IsDir() || dir != tree && slices.ContainsFunc(e.mounts, func(m mount.Point) bool { return m.Path == dir }) {
				return ""
			}
			return dir
		}
		if dir == path {
			return ""
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(path[len(dir):], "/"), "/")
		dir = filepath.Join(dir, name)
	}
}

// MountsNow reads the mounts that this process sees.
func MountsNow() (*Environment, error) {
	mounts, err := mount.List()
	if err != nil {
		return nil, err
	}
	return &Environment{mounts: visible(mounts)}, nil
}

// A viewOpener is isolate.OpenViews or isolate.OpenForks.
type viewOpener func(context.Context, []isolate.Mount) ([]*os.File, error)

// OpenViews opens views of what lies at dir on the real machine. Where a mount
// beneath dir is in the way, the error is mountedSince's.
func OpenViews(ctx context.Context, open viewOpener, dir string, mounts ...isolate.Mount) ([]*os.File, error) {
	var tries MountRetry
	defer tries.Close()
	for {
		dirs, err := open(ctx, mounts)
		if err == nil || Privileged() || !errors.Is(err, errs.ErrNotSupported) {
			return dirs, err
		}
		if env, merr := MountsNow(); merr == nil {
			if list := env.MountsBeneath(dir); len(list) > 0 {
				return nil, MountedSince("opening", dir, list)
			}
		}
		if !tries.Again(err) {
			return nil, err
		}
	}
}

// ViewSubtree is a view of a directory of a tree alone.
func ViewSubtree(ctx context.Context, b snapshot.Backend, v snapshot.View, tree, dir string, write bool) (snapshot.View, error) {
	prefix, err := filepath.Rel(tree, dir)
	if err != nil || prefix == "." {
		return v, err
	}
	n, ok := b.(snapshot.SubtreeViewer)
	if !ok {
		return v, &errs.Error{Op: "narrowing", Path: tree, Kind: errs.ErrNotSupported, Err: errors.New("its backend shows it only whole")}
	}
	return n.ViewSubtree(ctx, v, prefix, write)
}

// OpenDir opens a directory of a tree in each of views. Where the tree cannot be
// had as a whole, only the part is mounted that holds the directory.
func OpenDir(ctx context.Context, open viewOpener, b snapshot.Backend, tree, dir string, write bool, views ...snapshot.View) ([]*os.File, error) {
	at := tree
	for tries := 1; ; tries++ {
		dirs, err := openPart(ctx, open, b, tree, at, write, views)
		var m *MountedError
		if err == nil {
			return inside(dirs, at, dir)
		}
		if !errors.As(err, &m) || tries == MaxAttempts {
			return nil, err
		}
		env, merr := MountsNow()
		if merr != nil {
			return nil, errors.Join(err, merr)
		}
		if at = env.Clear(tree, dir); at == "" {
			return nil, err
		}
	}
}

// openPart opens the directory at of a tree in each of views.
func openPart(ctx context.Context, open viewOpener, b snapshot.Backend, tree, at string, write bool, views []snapshot.View) ([]*os.File, error) {
	mounts := make([]isolate.Mount, len(views))
	for i, v := range views {
		part, err := ViewSubtree(ctx, b, v, tree, at, write)
		if err != nil {
			return nil, err
		}
		mounts[i] = MountOf("/", part)
	}
	return OpenViews(ctx, open, at, mounts...)
}

// inside goes on from roots, open at a directory, to another beneath it.
func inside(roots []*os.File, at, dir string) ([]*os.File, error) {
	prefix, err := filepath.Rel(at, dir)
	if err == nil && prefix == "." {
		return roots, nil
	}
	var failures []error
	dirs := make([]*os.File, len(roots))
	for i, root := range roots {
		var derr error
		if dirs[i], derr = OpenBeneath(root, prefix); derr != nil {
			err = LookError(dir, derr)
		}
		failures = append(failures, root.Close())
	}
	if err = errors.Join(append(failures, err)...); err != nil {
		for _, d := range dirs {
			if d != nil {
				d.Close()
			}
		}
		return nil, err
	}
	return dirs, nil
}

// WithoutBase is a view of what layers hold alone: right for what they hold, and
// without names that only the tree below them has.
func WithoutBase(v snapshot.View) snapshot.View {
	if v.Overlay == nil {
		return v
	}
	lower := slices.Clone(v.Overlay.Lower)
	if len(v.Overlay.Base) == 0 {
		lower = lower[:len(lower)-1]
	}
	if v.Overlay.Upper != "" {
		lower = slices.Insert(lower, 0, v.Overlay.Upper)
	}
	if len(lower) == 1 {
		return snapshot.View{Path: lower[0]}
	}
	return snapshot.View{Overlay: &snapshot.Overlay{Lower: lower, UserXattr: v.Overlay.UserXattr}}
}
