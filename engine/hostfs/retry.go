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

// MountRetry decides whether to repeat an operation that may have failed because filesystems
// were mounted or unmounted meanwhile.
type MountRetry struct {
	watch *mount.Watch
	made  int
}

// MaxAttempts allows for a host that mounts and unmounts all the time, where half of the
// attempts fail.
const MaxAttempts = 20

// Again reports whether an operation that failed with err is worth another attempt: always
// after the first attempt, later only if mounts have changed since.
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

// Close stops watching the mounts.
func (a *MountRetry) Close() {
	if a.watch != nil {
		a.watch.Close()
	}
}

// ErrMounted means that mounts under a tree prevent an overlay of the whole tree.
var ErrMounted = errors.New("mounted under it")

func mountedError(mounts []string) error {
	return fmt.Errorf("%w: %s; the kernel refuses an overlay of such a directory to an ordinary user", ErrMounted, Several(mounts))
}

// Several returns the first of paths as text, and the number of the others.
func Several(paths []string) string {
	text := pathlist.Printable(paths[0])
	if n := len(paths) - 1; n > 0 {
		text += " (and " + strconv.Itoa(n) + " more)"
	}
	return text
}

// MountedSince returns an error that matches ErrMounted, for a directory under which these
// filesystems were mounted.
func MountedSince(op, dir string, mounts []string) error {
	return &errs.Error{
		Op: op, Path: dir, Kind: errs.ErrBusy, Err: mountedError(mounts),
		Hints: []string{"sudo umount " + errs.Quoted(mounts[0]), "findmnt -R " + errs.Quoted(dir) + "   # all that is mounted there"},
	}
}

// MountsBelow returns the mounts under dir.
func (e *Environment) MountsBelow(dir string) (list []string) {
	for _, m := range e.mounts {
		if m.Path != dir && Within(m.Path, dir) {
			list = append(list, m.Path)
		}
	}
	return list
}

// Clear returns the topmost directory on the way from tree to path under which nothing is
// mounted. It returns "" if there is none, if it is a mount point, or if it is no directory of
// the host.
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

// MountsNow returns an environment that holds only the current mounts of this process.
func MountsNow() (*Environment, error) {
	mounts, err := mount.List()
	if err != nil {
		return nil, err
	}
	return &Environment{mounts: visible(mounts)}, nil
}

// A viewOpener opens mounts as directories: isolate.OpenViews or isolate.OpenForks.
type viewOpener func(context.Context, []isolate.Mount) ([]*os.File, error)

// OpenViews calls open for mounts, which are views of the real directory dir, and repeats it
// while mounts come and go; the caller closes the results. If a mount under dir prevents that,
// it returns the error of MountedSince.
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

// ViewSubtree returns a view of the directory dir alone, made from v, a view of the whole
// tree. With write, dir may be written through it. Errors: errs.ErrNotSupported.
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

// OpenDir opens the directory dir of a tree in each of views; the caller closes the results.
// If mounts prevent a view of the whole tree, it opens a view of the largest part around dir
// that has none.
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

// openPart mounts each of views, narrowed to the directory at of the tree, and returns its
// root. The caller closes the results.
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

// inside opens dir in each of roots, which are open at the parent directory at, and closes
// roots; if dir is at, it returns roots.
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

// WithoutBase returns a view of a fork's own layers, without the live lower: it shows only
// files that the fork has changed.
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
