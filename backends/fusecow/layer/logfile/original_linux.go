package logfile

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// An Original is the state of a lower file just before the fork first wrote to, truncated or
// replaced it. The lower may change later; the original is then the merge base.
type Original struct {
	// Path is relative to the lower's root.
	Path string
	// Stat lacks the access and birth times. It has only inode number and change time if the fork had read that
	// version of the file, and found another one when it wrote. Both are 0 if the version is not known.
	Stat   vfs.Stat
	Xattrs map[string]string
	// File is the path of a copy of the content, or "" if there is none.
	File string

	ID uint64
	// Copy is the number of the saved copy among those of files with this inode number, from
	// 1; 0 means no copy.
	Copy uint64
}

// MaxOriginal is the size in bytes of the largest lower file whose content is saved as an [Original] before
// the fork changes it. The original bytes of a larger file are not available later.
const MaxOriginal = 1 << 20

// RemoveOriginal deletes from the layer the saved copy o of a lower file. It is for a copy that no log will
// record, because an error followed.
func (d *Layer) RemoveOriginal(o *Original) {
	if o != nil && o.Copy > 0 {
		_ = unix.Unlinkat(d.FD, o.contentPath(), 0) // a leftover is removed with the layer
	}
}

// contentPath returns the path, in the layer directory, of the saved copy of a lower file. Inode numbers of
// the lower may be reused, hence the copy number.
func (o *Original) contentPath() string {
	name := "base/" + strconv.FormatUint(o.ID>>9&0xff, 16) + "/" + strconv.FormatUint(o.ID, 16)
	if o.Copy > 1 {
		name += "." + strconv.FormatUint(o.Copy, 10)
	}
	return name
}

// maxCopies bounds how many originals a layer saves of lower files with one inode number. An original is the
// content of a lower file before the fork changed it, which later merges need. A number has several if its
// file was deleted and the filesystem gave it to another one. [Layer.SaveOriginal] fails beyond the bound.
const maxCopies = 100

// SaveOriginal copies the content of the lower file src, with inode number id, into the layer, to be a merge
// base later. It returns the number of the copy, or 0 if it failed.
func (d *Layer) SaveOriginal(id uint64, src *os.File) uint64 {
	for o := (&Original{ID: id, Copy: 1}); o.Copy < maxCopies; o.Copy++ {
		path := filepath.Join(d.Path, o.contentPath())
		const flags = os.O_RDWR | os.O_CREATE | os.O_EXCL | unix.O_NOFOLLOW
		dst, err := os.OpenFile(path, flags, 0o600)
		if errors.Is(err, os.ErrNotExist) {
			if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
				dst, err = os.OpenFile(path, flags, 0o600)
			}
		}
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err == nil {
			_, err = vfs.CopyFile(dst, src)
			if err = errors.Join(err, dst.Close()); err != nil {
				d.RemoveOriginal(o)
			}
		}
		if err != nil {
			return 0
		}
		return o.Copy
	}
	return 0
}

// Original appends to w a log record of o, the saved state that a lower file had before the fork changed it.
func (w *Writer) Original(o *Original) {
	*w = append(*w, KindOriginal)
	w.text(o.Path)
	w.num(o.ID)
	for _, v := range []uint32{o.Stat.Mode, o.Stat.UID, o.Stat.GID, o.Stat.Nlink} {
		w.num(uint64(v))
	}
	w.num(o.Stat.Ino)
	w.num(o.Stat.Dev)
	w.int(o.Stat.Size)
	for _, t := range []vfs.Timestamp{o.Stat.MTime, o.Stat.CTime} {
		w.times(At(t.Sec, t.Nsec))
	}
	w.xattrs(o.Xattrs)
	w.num(o.Copy)
}

// Original decodes a log record of the saved state that a lower file had before the fork changed it.
func (r *Reader) Original() (o Original) {
	o.Path, o.ID = r.text(), r.num()
	for _, p := range []*uint32{&o.Stat.Mode, &o.Stat.UID, &o.Stat.GID, &o.Stat.Nlink} {
		*p = uint32(r.num())
	}
	o.Stat.Ino, o.Stat.Dev, o.Stat.Size = r.num(), r.num(), r.int()
	for _, p := range []*vfs.Timestamp{&o.Stat.MTime, &o.Stat.CTime} {
		t := r.time()
		*p = vfs.Timestamp{Sec: t.Sec(), Nsec: t.Nsec}
	}
	o.Xattrs = r.xattrs()
	o.Copy = r.num()
	return o
}

// Originals returns the saved states of lower files that the logs of these layers record; of several for one
// path, the earliest, which is the merge base. Cost: reading the logs. Errors are those of files, and
// [ErrDamaged].
func Originals(layers []string) ([]Original, error) {
	var all []Original
	known := map[string]bool{}
	for _, path := range layers {
		d, err := Open(path, false)
		if err != nil {
			return nil, err
		}
		err = d.Records(func(kind byte, r *Reader) {
			if kind != KindOriginal {
				r.Skip(kind)
				return
			}
			o := r.Original()
			if o.Copy > 0 {
				o.File = filepath.Join(path, o.contentPath())
				for i := range all {
					if all[i].File == o.File { // a later original took the file's place
						all[i].File = ""
					}
				}
			}
			if !known[o.Path] {
				known[o.Path] = true
				all = append(all, o)
			}
		})
		d.Close()
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
