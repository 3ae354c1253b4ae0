package hostfs

import (
	"context"
	"errors"
	"fmt"
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

// Other programs mount and unmount filesystems on a host at any time. In a user namespace all mounts
// of the host are locked in place (mount_namespaces(7)), and the kernel refuses an overlay of a
// directory with a locked mount under it (EINVAL, from clone_private_mount in fs/namespace.c). So
// an ordinary user's trees are planned around the current mounts, and two things can go wrong:
//   - Mounts change between the survey and the overlay. snapfs tries again, see MountRetry.
//   - A new mount stays in a tree of an existing sandbox. snapfs then uses the tree directory by
//     directory, without those that lead to the mount.

// MountRetry decides whether to repeat an operation that may have failed because filesystems were mounted or
// unmounted on the host meanwhile.
type MountRetry struct {
	watch *mount.Watch
	made  int
}

// MaxAttempts is how often an operation is tried when mounts of the host change meanwhile; the last error is
// returned. It is enough on a host that mounts and unmounts all the time, where half of the attempts fail.
const MaxAttempts = 20

// Again reports whether the caller should repeat an operation that failed with err: if err may come from a mount that
// came or went, always after the first attempt, later only if mounts of the host have changed since. It does so
// MaxAttempts times at most.
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

// Close stops watching the host's mounts, of which a change is a reason to repeat a failed operation.
func (a *MountRetry) Close() {
	if a.watch != nil {
		a.watch.Close()
	}
}

// ErrMounted means that filesystems of the host are mounted under a tree, so that the kernel cannot make an
// overlay of the whole tree.
var ErrMounted = errors.New("mounted under it")

func mountedError(mounts []string) error {
	return fmt.Errorf("%w: %s; the kernel refuses an overlay of such a directory to an ordinary user", ErrMounted, Several(mounts))
}

// Several returns a list of paths for a message to the user: the first one, and how many more there are.
func Several(paths []string) string {
	text := pathlist.Printable(paths[0])
	if n := len(paths) - 1; n > 0 {
		text += " (and " + strconv.Itoa(n) + " more)"
	}
	return text
}

// MountedSince returns an error that matches ErrMounted: the filesystems at the paths mounts were mounted
// under dir, so the operation op cannot use dir.
func MountedSince(op, dir string, mounts []string) error {
	return &errs.Error{
		Op: op, Path: dir, Kind: errs.ErrBusy, Err: mountedError(mounts),
		Hints: []string{"sudo umount " + errs.Quoted(mounts[0]), "findmnt -R " + errs.Quoted(dir) + "   # all that is mounted there"},
	}
}

// MountsBelow returns the paths at which filesystems are mounted under dir.
func (e *Environment) MountsBelow(dir string) (list []string) {
	for _, m := range e.mounts {
		if m.Path != dir && Within(m.Path, dir) {
			list = append(list, m.Path)
		}
	}
	return list
}

// Clear returns the largest directory around path, inside tree, under which nothing is mounted, so that an
// overlay of it is possible. It returns "" if there is none, if it is itself a mount point, or if it is no
// directory of the host.
func (e *Environment) Clear(tree, path string) string {
	for dir := tree; ; {
		if !e.HasMountsBelow(dir) {
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

// MountsNow returns an environment without trees. It holds the current mounts of this process, so that a
// caller can ask which directories contain mounts.
func MountsNow() (*Environment, error) {
	mounts, err := mount.List()
	if err != nil {
		return nil, err
	}
	return &Environment{mounts: visible(mounts)}, nil
}

// A viewOpener is a function that mounts views of snapshots or forks on the host and opens their roots as
// directories: isolate.OpenViews or isolate.OpenForks.
type viewOpener func(context.Context, []isolate.Mount) ([]*os.File, error)

// OpenViews mounts snapshots or forks of the real directory dir with open, and returns their open roots,
// which the caller closes. It tries again while mounts of the host come and go. If a mount under dir prevents
// an overlay, it returns the error of MountedSince.
func OpenViews(ctx context.Context, open viewOpener, dir string, mounts ...isolate.Mount) ([]*os.File, error) {
	var tries MountRetry
	defer tries.Close()
	for {
		dirs, err := open(ctx, mounts)
		if err == nil || Privileged() || !errors.Is(err, errs.ErrNotSupported) {
			return dirs, err
		}
		if env, merr := MountsNow(); merr == nil {
			if list := env.MountsBelow(dir); len(list) > 0 {
				return nil, MountedSince("opening", dir, list)
			}
		}
		if !tries.Again(err) {
			return nil, err
		}
	}
}

// ViewSubtree returns a view, a description of how to mount a fork or snapshot, that shows only the directory
// dir of a tree. v is the view of the whole tree. With write, programs may write to dir through the result.
// Errors: errs.ErrNotSupported.
func ViewSubtree(ctx context.Context, b snapshot.Backend, v snapshot.View, tree, dir string, write bool) (snapshot.View, error) {
	prefix, err := filepath.Rel(tree, dir)
	if err != nil || prefix == "." {
		return v, err
	}
	n, ok := b.(snapshot.SubtreeViewer)
	if !ok {
		return v, &errs.Error{Op: "narrowing", Path: tree, Kind: errs.ErrNotSupported, Err: errors.New("the backend cannot show a part of a tree")}
	}
	return n.ViewSubtree(ctx, v, prefix, write)
}

// OpenDir opens the directory dir of a tree in each of views, the forks or snapshots to mount; the caller closes the
// results. With write, they are writable. If filesystems mounted in the tree prevent mounting all of it, OpenDir
// mounts the largest directory around dir without mounts.
func OpenDir(ctx context.Context, open viewOpener, b snapshot.Backend, tree, dir string, write bool, views ...snapshot.View) ([]*os.File, error) {
	at := tree
	for tries := 1; ; tries++ {
		dirs, err := openPart(ctx, open, b, tree, at, write, views)
		if err == nil {
			return inside(dirs, at, dir)
		}
		if !errors.Is(err, ErrMounted) || tries == MaxAttempts {
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

// openPart mounts each of views, forks or snapshots of a tree, restricted to the directory at, and returns the open
// roots, which are writable if write is set. The caller closes them.
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

// inside opens the directory dir in each of roots, open forks or snapshots of the directory at, which is a
// parent of dir. It closes roots. If dir is at, it returns roots.
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
			err = errs.Wrap("reading", dir, derr)
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

// WithoutBase returns a way to mount the layers of a fork without the live lower below them: it shows only
// files that the fork has changed. v is the view of the whole fork.
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
	return snapshot.View{Overlay: &snapshot.Overlay{Lower: lower, UserXattr: v.Overlay.UserXattr, Metacopy: v.Overlay.Metacopy}}
}
