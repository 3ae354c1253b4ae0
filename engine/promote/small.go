package promote

import (
	"context"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/promote/nodes"
	"github.com/snapfs/snapfs/internal/btrfs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Most changed files are small and have nothing but content, a mode and a time. Ten system
// calls on bare descriptors build each: os.File would also register each with the runtime's
// poller.

// small is the size in bytes up to which a promotion copies a file by reading and writing it as a whole:
// looking for holes or shareable blocks costs more. On btrfs it makes a reflink (clone) instead: a write
// reserves metadata space at the highest estimate until it is on disk, and creating a file waits for that (80
// µs a file instead of 27, without the disk). A reflink needs the source's blocks on disk, so settleSource
// comes first.
const small = 64 << 10

// settleSource syncs the sandbox's filesystem before a promotion builds new files as reflinks (clones) of the
// sandbox's files, because a reflink needs the source's data on disk.
func (w *work) settleSource(context.Context) error {
	if w.from.Tree == nil {
		return nil
	}
	tree := int(w.from.Tree.Fd())
	if ok, err := btrfs.Is(tree); !ok {
		return err
	}
	shared := false
	for _, s := range w.stages {
		var err error
		if s.shares, err = btrfs.Is(int(s.dir.Fd())); err != nil {
			return err
		}
		shared = shared || s.shares
	}
	if !shared {
		return nil
	}
	f, err := vfs.OpenDir(tree, ".") // the root may be open with O_PATH
	if err != nil {
		return err
	}
	defer f.Close()
	return nodes.PathError("syncfs", w.from.Tree.Name(), vfs.SyncFS(int(f.Fd())))
}

// buildSmall builds a small regular file as name in a stage, a private directory of the promotion, with few
// system calls. built is false, with nothing built, for other nodes and for any error: the general code then
// builds the file and reports the cause.
func (w *work) buildSmall(in *stage, name string, c *diff.Change) (built bool, i nodes.Ident) {
	m := nodes.MetaOf(c.New, nodes.Everything)
	if !c.New.Mode.IsRegular() || c.New.Size > small || len(m.Xattrs) > 0 {
		return false, i
	}
	root, path := w.from.At(c.Path)
	src, err := vfs.OpenBeneathFD(int(root.Fd()), path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|vfs.ONoatime, 0)
	if err != nil {
		return false, i
	}
	defer unix.Close(src)
	if st, err := vfs.Lstat(src, ""); err != nil || !st.IsRegular() {
		return false, i
	}
	dst, err := unix.Openat(int(in.dir.Fd()), name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, m.Mode&0o777|0o600)
	if err != nil {
		return false, i
	}
	defer unix.Close(dst)
	if in.shares && vfs.CloneFD(dst, src) == nil || nodes.CopyWhole(dst, src, int(c.New.Size)) {
		now, err := vfs.Lstat(src, "")
		if err == nil && w.from.matchesStat(&now, c) && vfs.SetTimes(dst, nil, m.MTime) == nil {
			st, err := vfs.Lstat(dst, "")
			if err == nil && st.Size == c.New.Size && st.Mode&0o7777 == m.Mode && st.UID == m.UID && st.GID == m.GID {
				return true, nodes.IdentOf(&st)
			}
		}
	}
	_ = unix.Unlinkat(int(in.dir.Fd()), name, 0) // if this fails, the general path fails and reports it
	return false, i
}
