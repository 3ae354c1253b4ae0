package quota

import (
	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"golang.org/x/sys/unix"
)

// OfLayer returns the disk usage of the layer directory at path, whose highest index is at, as its log
// records it. That is exact for a layer that was closed properly. Cost: reading the log. Errors are those of
// files, and [logfile.ErrDamaged].
func OfLayer(path string, at int) (u Usage, err error) {
	d, err := logfile.Open(path, false)
	if err != nil {
		return u, err
	}
	defer d.Close()
	block, err := BlockSize(d.FD)
	if err != nil {
		return u, err
	}
	charged := map[uint64]int64{}
	err = d.Records(func(kind byte, r *logfile.Reader) {
		switch kind {
		case logfile.KindInode:
			n := r.Inode()
			if charged[n.ID] = n.Blocks * 512; n.Layer != logfile.Index(at) {
				charged[n.ID] = 0
			}
		case logfile.KindGone:
			delete(charged, r.Gone())
		default:
			r.Skip(kind)
		}
	})
	for _, bytes := range charged {
		u.Bytes += bytes
	}
	u.Bytes += (d.Size + block - 1) / block * block
	u.Inodes = int64(len(charged))
	return u, err
}

// DefaultBlock is the usual allocation unit of a filesystem, in bytes. It is used where the real one is
// smaller or not known.
const DefaultBlock = 4096

// BlockSize returns the allocation unit, in bytes, of the filesystem of the descriptor fd. A quota charges
// files by whole units.
func BlockSize(fd int) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return 0, err
	}
	if st.Bsize < 512 || st.Bsize > 1<<20 { // the preferred I/O size rather than the block size
		return DefaultBlock, nil
	}
	return st.Bsize, nil
}
