package layer

import (
	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/internal/vfs"
)

// saveOriginal saves the original of n in the layer d. It returns nil if it could not: the original is then
// unknown. Cost: a clone of the file's blocks, or a copy.
func (f *FS) saveOriginal(n *inode, d *stackedLayer) *logfile.Original {
	if f.frozen {
		return nil
	}
	src, err := f.openContentIn(n, logfile.InLower, logfile.Identity{}) // mu may be held
	if err != nil {
		return nil
	}
	defer f.fds.Put(src)
	o := &logfile.Original{Path: n.lower.Path(), ID: n.id}
	if o.Stat, err = vfs.Lstat(src.Num, ""); err != nil {
		return nil
	}
	err = f.lower.With(n.lower, func(dirfd int, name string) (err error) {
		o.Xattrs, err = vfs.Xattrs(dirfd, name)
		return err
	})
	if err != nil {
		return nil
	}
	if o.Stat.Size <= logfile.MaxOriginal {
		if file, err := dupFile(src.Num); err == nil {
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

// addOriginal queues o for the next commit. The caller holds mu.
func (f *FS) addOriginal(o *logfile.Original) {
	if o != nil {
		f.originals = append(f.originals, o)
	}
}
