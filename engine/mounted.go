package engine

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

// attempts repeats what failed, as long as mounts come and go meanwhile.
type attempts struct {
	watch *mount.Watch
	made  int
}

// mostAttempts is for a machine where mounts come and go all the time: half of
// the attempts fail then.
const mostAttempts = 20

// again reports whether what failed with err is worth another attempt. After the
// first nobody knows what moved while it was made.
func (a *attempts) again(err error) bool {
	a.made++
	passing := []error{errs.ErrNotSupported, errs.ErrNotFound, errs.ErrBusy, errs.ErrDenied}
	if !slices.Contains(passing, errs.KindOf(err)) || a.made == mostAttempts {
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

func (a *attempts) close() {
	if a.watch != nil {
		a.watch.Close()
	}
}

// mountedError: a tree cannot be had as a whole because of mounts beneath it.
type mountedError struct{ mounts []string }

func (m *mountedError) Error() string {
	return "mounted beneath it is " + several(m.mounts) + ", and the kernel overlays no such directory for an ordinary user"
}

// several names one of many paths, and says how many more there are.
func several(paths []string) string {
	text := pathlist.Printable(paths[0])
	if n := len(paths) - 1; n > 0 {
		text += " (and " + strconv.Itoa(n) + " more)"
	}
	return text
}

// mountedSince is the error of a directory with these mounts beneath it.
func mountedSince(op, dir string, mounts []string) error {
	return &errs.Error{
		Op: op, Path: dir, Kind: errs.ErrBusy, Err: &mountedError{mounts},
		Hints: []string{"sudo umount " + pathlist.Printable(mounts[0]), "findmnt -R " + pathlist.Printable(dir) + "   # all that is mounted there"},
	}
}

// mountsBeneath lists what is mounted in dir.
func (e *environment) mountsBeneath(dir string) (list []string) {
	for _, m := range e.mounts {
		if m.Path != dir && within(m.Path, dir) {
			list = append(list, m.Path)
		}
	}
	return list
}

// clear is the topmost directory from tree down to path that has nothing mounted
// beneath it; "" where there is none, or something is mounted right on it, or it is
// no directory of the real machine.
func (e *environment) clear(tree, path string) string {
	for dir := tree; ; {
		if !e.mountedBeneath(dir) {
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

// mountsNow reads the mounts that this process sees.
func mountsNow() (*environment, error) {
	mounts, err := mount.List()
	if err != nil {
		return nil, err
	}
	return &environment{mounts: visible(mounts)}, nil
}

// An opener is isolate.OpenViews or isolate.OpenForks.
type opener func(context.Context, []isolate.Mount) ([]*os.File, error)

// openViews opens views of what lies at dir on the real machine. Where a mount
// beneath dir is in the way, the error is mountedSince's.
func openViews(ctx context.Context, open opener, dir string, mounts ...isolate.Mount) ([]*os.File, error) {
	var tries attempts
	defer tries.close()
	for {
		dirs, err := open(ctx, mounts)
		if err == nil || privileged() || !errors.Is(err, errs.ErrNotSupported) {
			return dirs, err
		}
		if env, merr := mountsNow(); merr == nil {
			if list := env.mountsBeneath(dir); len(list) > 0 {
				return nil, mountedSince("opening", dir, list)
			}
		}
		if !tries.again(err) {
			return nil, err
		}
	}
}

// narrow is a view of a directory of a tree alone.
func narrow(ctx context.Context, b snapshot.Backend, v snapshot.View, tree, dir string, write bool) (snapshot.View, error) {
	prefix, err := filepath.Rel(tree, dir)
	if err != nil || prefix == "." {
		return v, err
	}
	n, ok := b.(snapshot.Narrower)
	if !ok {
		return v, &errs.Error{Op: "narrowing", Path: tree, Kind: errs.ErrNotSupported, Err: errors.New("its backend shows it only whole")}
	}
	return n.Narrow(ctx, v, prefix, write)
}

// openDir opens a directory of a tree in each of views. Where the tree cannot be
// had as a whole, only the part is mounted that holds the directory.
func openDir(ctx context.Context, open opener, b snapshot.Backend, tree, dir string, write bool, views ...snapshot.View) ([]*os.File, error) {
	at := tree
	for tries := 1; ; tries++ {
		dirs, err := openPart(ctx, open, b, tree, at, write, views)
		var m *mountedError
		if err == nil {
			return inside(dirs, at, dir)
		}
		if !errors.As(err, &m) || tries == mostAttempts {
			return nil, err
		}
		env, merr := mountsNow()
		if merr != nil {
			return nil, errors.Join(err, merr)
		}
		if at = env.clear(tree, dir); at == "" {
			return nil, err
		}
	}
}

// openPart opens the directory at of a tree in each of views.
func openPart(ctx context.Context, open opener, b snapshot.Backend, tree, at string, write bool, views []snapshot.View) ([]*os.File, error) {
	mounts := make([]isolate.Mount, len(views))
	for i, v := range views {
		part, err := narrow(ctx, b, v, tree, at, write)
		if err != nil {
			return nil, err
		}
		mounts[i] = mountOf("/", part)
	}
	return openViews(ctx, open, at, mounts...)
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
		if dirs[i], derr = openBeneath(root, prefix); derr != nil {
			err = lookError(dir, derr)
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
