package layer

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// An Original is a file of the tree below as it was when it was first written to, cut
// or replaced by a rename here: the tree below may change later, and then nobody could
// tell what both began with.
type Original struct {
	// Path is relative to the tree below.
	Path string
	// Stat is what is told of it, but for the times of access and birth.
	Stat   kernel.Stat
	Xattrs map[string]string
	// File has its content; "": that is not kept.
	File string

	id uint64
	// kept is which of the contents with that number it has, from 1 on; 0: its content is not kept.
	kept uint64
}

// MostKept is how much content is kept of a file: of a larger one only what it was.
const MostKept = 1 << 20

// original keeps a file of the tree below in the layer d. That it could not be kept is no
// error: then nothing is known of it. Cost: a clone of its blocks, or else a copy.
func (f *FS) original(n *node, d *dir) *Original {
	if f.frozen {
		return nil
	}
	src, err := f.sourceAt(n, below, identity{}) // mu may be held
	if err != nil {
		return nil
	}
	defer f.fds.put(src)
	o := &Original{Path: n.from.path(), id: n.id}
	if o.Stat, err = kernel.Lstat(src.n, ""); err != nil {
		return nil
	}
	err = f.at(n.from, func(dirfd int, name string) (err error) {
		o.Xattrs, err = kernel.Xattrs(dirfd, name)
		return err
	})
	if err != nil {
		return nil
	}
	if o.Stat.Size <= MostKept {
		o.kept = d.keep(n.id, src.n)
	}
	if again, err := kernel.Lstat(src.n, ""); err != nil || again.CTime != o.Stat.CTime {
		d.dropOriginal(o) // somebody is writing to it
		return nil
	}
	return o
}

// dropOriginal removes the content of one that no log will tell of.
func (d *dir) dropOriginal(o *Original) {
	if o != nil && o.kept > 0 {
		_ = unix.Unlinkat(d.fd, o.name(), 0) // what stays is nobody's, and goes with the layer
	}
}

// noteOriginal has the log tell of it. Holds mu.
func (f *FS) noteOriginal(o *Original) {
	if o != nil {
		f.originals = append(f.originals, o)
	}
}

// name is where its content is in the layer. A number of the tree below may be another file's later.
func (o *Original) name() string {
	name := "base/" + strconv.FormatUint(o.id>>9&0xff, 16) + "/" + strconv.FormatUint(o.id, 16)
	if o.kept > 1 {
		name += "." + strconv.FormatUint(o.kept, 10)
	}
	return name
}

// mostOfANumber bounds how many files with one number have their content kept.
const mostOfANumber = 100

// keep copies the content of a file of the tree below, and answers with which of its number's that
// is; 0: it cannot be kept.
func (d *dir) keep(id uint64, from int) uint64 {
	src, err := dupFile(from)
	if err != nil {
		return 0
	}
	defer src.Close()
	for o := (&Original{id: id, kept: 1}); o.kept < mostOfANumber; o.kept++ {
		path := filepath.Join(d.path, o.name())
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
			_, err = kernel.CopyFile(dst, src)
			if err = errors.Join(err, dst.Close()); err != nil {
				d.dropOriginal(o)
			}
		}
		if err != nil {
			return 0
		}
		return o.kept
	}
	return 0
}

// original writes what the log tells of a file of the tree below as it was.
func (w *writer) original(o *Original) {
	*w = append(*w, recordOriginal)
	w.text(o.Path)
	w.num(o.id)
	for _, v := range []uint32{o.Stat.Mode, o.Stat.UID, o.Stat.GID, o.Stat.Nlink} {
		w.num(uint64(v))
	}
	w.num(o.Stat.Ino)
	w.num(o.Stat.Dev)
	w.int(o.Stat.Size)
	for _, t := range []kernel.Timestamp{o.Stat.MTime, o.Stat.CTime} {
		w.times(At(t.Sec, t.Nsec))
	}
	w.xattrs(o.Xattrs)
	w.num(o.kept)
}

func (r *reader) original() (o Original) {
	o.Path, o.id = r.text(), r.num()
	for _, p := range []*uint32{&o.Stat.Mode, &o.Stat.UID, &o.Stat.GID, &o.Stat.Nlink} {
		*p = uint32(r.num())
	}
	o.Stat.Ino, o.Stat.Dev, o.Stat.Size = r.num(), r.num(), r.int()
	for _, p := range []*kernel.Timestamp{&o.Stat.MTime, &o.Stat.CTime} {
		t := r.time()
		*p = kernel.Timestamp{Sec: t.Sec(), Nsec: t.Nsec}
	}
	o.Xattrs = r.xattrs()
	o.kept = r.num()
	return o
}

// Originals are the files of the tree below that the logs of layers tell of as they
// were, the earliest of each path. Cost: reading the logs. Errors are those of files, and
// [ErrDamaged].
func Originals(layers []string) ([]Original, error) {
	var all []Original
	known := map[string]bool{}
	for _, path := range layers {
		d, err := openDir(path, false)
		if err != nil {
			return nil, err
		}
		err = d.records(func(kind byte, r *reader) {
			if kind != recordOriginal {
				r.skip(kind)
				return
			}
			o := r.original()
			if o.kept > 0 {
				o.File = filepath.Join(path, o.name())
				for i := range all {
					if all[i].File == o.File { // once, the later one took its place
						all[i].File = ""
					}
				}
			}
			if !known[o.Path] {
				known[o.Path] = true
				all = append(all, o)
			}
		})
		d.close()
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
