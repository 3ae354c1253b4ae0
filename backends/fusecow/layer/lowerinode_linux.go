package layer

import (
	"errors"
	"io/fs"

	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/sparse"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// lowerGone reports whether err means that the lower directory of a dirty dir no longer exists, so that dir
// has only the names that layers record. During [FS.Detach], which must report err, it returns false.
func (f *FS) lowerGone(dir *inode, err error) bool {
	return (errors.Is(err, unix.ESTALE) || errors.Is(err, fs.ErrNotExist)) && dir.changed && !f.detaching
}

// loadLower loads the current attributes of a clean inode from the lower, before the layer records them.
func (f *FS) loadLower(n *inode) error {
	if n.changed || n.lower == nil {
		return nil
	}
	return f.lower.With(n.lower, func(dirfd int, name string) (err error) {
		st, err := vfs.Lstat(dirfd, name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && f.lower.IdentityOf(&st) != n.lower.Identity {
			return f.lower.Stale(n.lower)
		}
		if err != nil {
			return err
		}
		if n.xattrs, err = vfs.Xattrs(dirfd, name); err != nil {
			return err
		}
		if st.IsSymlink() {
			n.target, err = f.lower.Readlink(n.lower)
		}
		return err
	})
}

// LateReads returns the paths of lower files that were read after a change later than Options.Since, the time
// of the base: the fork saw newer content.
func (f *FS) LateReads() []string { return f.lower.LateReads() }

// saveOriginal saves the bytes of the lower file of n in the layer d, as merge base. shown is the state that the
// kernel has cached. If the file has changed since it was looked up or read, saveOriginal saves only which version
// was seen: what a program writes now may be made from that. If saving fails it returns nil: the original is
// unknown later. Cost: a clone or a copy.
func (f *FS) saveOriginal(n *inode, d *stackedLayer, shown vfs.Stat) *logfile.Original {
	if f.frozen {
		return nil
	}
	o := &logfile.Original{Path: n.lower.Path(), ID: n.id}
	now := &o.Stat
	src, err := f.openContentIn(n, logfile.InLower, logfile.Identity{}) // mu may be held
	if err == nil {
		defer f.fds.Put(src)
		o.Stat, err = vfs.Lstat(src.Num, "")
	}
	if err != nil {
		now = nil
	}
	if was, other := f.lower.ReadBefore(o.Path, now, shown); other {
		o.Stat = vfs.Stat{Ino: was.Ino, CTime: was.CTime}
		return o
	}
	if err != nil {
		return nil
	}
	if o.Xattrs, err = vfs.Xattrs(src.Num, ""); err != nil {
		return nil
	}
	if o.Stat.Size <= logfile.MaxOriginal {
		if file, err := sparse.Dup(src.Num); err == nil {
			o.Copy = d.SaveOriginal(n.id, file)
			file.Close()
		}
	}
	if again, err := vfs.Lstat(src.Num, ""); err != nil || again.CTime != o.Stat.CTime {
		d.RemoveOriginal(o) // somebody is writing to it
		return nil
	}
	return o
}

// addOriginal queues o, the bytes of a lower file before its change, for the log. The caller holds mu.
func (f *FS) addOriginal(o *logfile.Original) {
	if o != nil {
		f.originals = append(f.originals, o)
	}
}
