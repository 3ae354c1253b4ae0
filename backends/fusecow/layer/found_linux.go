package layer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// What a layer holds for which nothing can be told is put aside, not removed: content that
// no node has, as found/INODE, and a log that had to be cut, whole, as log.damaged. A name
// that is taken gets a number. It stays until the layer goes, or somebody takes it.

// finder says which content of the top layer that no node has is put aside, and which
// is removed, because nobody can want it.
//
// Where the log is whole up to its end, all is known: the content is of a node that has
// gone, or of one that was made after the last frame, by a process that was killed before
// any fsync(2) of it returned. Where frames were lost, they may have told of it. Then
// it is known of a node alone of which what is left tells that it has gone, if its
// number is not one of the tree below, which another may have got since.
type finder struct {
	d    *dir
	gone map[uint64]bool // nil: all is known
}

// finder begins with a layer whose log was read. Cost: reading it once more, if frames
// were lost. Careful: what is not known to have gone is put aside anyway.
func (d *dir) finder(careful bool) (*finder, error) {
	i := &finder{d: d}
	if !careful && !d.torn {
		return i, nil
	}
	i.gone = map[uint64]bool{}
	err := d.records(func(kind byte, r *reader) {
		switch kind {
		case recordNode:
			n := new(node)
			r.node(n)
			delete(i.gone, n.id)
		case recordGone:
			i.gone[r.num()] = true
		default:
			r.skip(kind)
		}
	})
	return i, err
}

// clear takes content away that no node has.
func (i *finder) clear(id uint64) error {
	if i.gone == nil || id >= made && i.gone[id] {
		return i.d.remove(id)
	}
	return i.d.aside(id)
}

// aside puts the content of a node aside; that there is none is no error.
func (d *dir) aside(id uint64) error {
	if err := unix.Mkdirat(d.fd, "found", 0o700); err != nil && err != unix.EEXIST {
		return &os.PathError{Op: "mkdir", Path: d.path + "/found", Err: err}
	}
	_, err := numbered(d.path+"/found/"+strconv.FormatUint(id, 16), func(to string) error {
		return kernel.RenameNew(filepath.Join(d.path, sharded(id)), to)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// numbered calls do with a name, and with that and a number for as long as it says that
// there is such a file.
func numbered(name string, do func(string) error) (string, error) {
	for at, i := name, 2; ; i++ {
		if err := do(at); !errors.Is(err, fs.ErrExist) {
			return at, err
		}
		at = name + "." + strconv.Itoa(i)
	}
}

// keepLog copies the log to beside it, before it is cut. After an error a part of the
// copy may be there.
func (d *dir) keepLog() error {
	var to *os.File
	_, err := numbered(d.path+"/log.damaged", func(name string) (err error) {
		to, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	_, err = kernel.CopyFile(to, d.log)
	return errors.Join(err, to.Sync(), to.Close(), unix.Fsync(d.fd))
}

// Aside is how much a layer has put aside, which no quota counts: nobody inside could
// take it away. Cost: a look, where there is none. Errors are those of files.
func Aside(path string) (sum int64, err error) {
	logs, err := filepath.Glob(escaped(path) + "/log.damaged*")
	if err != nil {
		return 0, err
	}
	found, err := filepath.Glob(escaped(path) + "/found/*")
	for _, name := range append(logs, found...) {
		st, serr := kernel.Lstat(unix.AT_FDCWD, name)
		if serr != nil && !errors.Is(serr, fs.ErrNotExist) {
			err = errors.Join(err, serr)
		}
		sum += st.Blocks * 512
	}
	return sum, err
}

// escaped is a path as a pattern that matches it alone.
func escaped(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// end does what is due to a log that was read to its last whole frame: what follows
// that is cut off, and kept beside it if it was not torn by a kill.
func (d *dir) end() error {
	if !d.torn {
		return nil
	}
	if d.cut > 0 || d.spoilt {
		if err := d.keepLog(); err != nil {
			return err
		}
	}
	d.torn, d.spoilt = false, false
	return d.log.Truncate(d.size)
}

// readLog reads all of a log, whatever name it has by now.
func (d *dir) readLog() ([]byte, error) {
	st, err := d.log.Stat()
	if err != nil {
		return nil, err
	}
	all := make([]byte, st.Size())
	n, err := io.ReadFull(io.NewSectionReader(d.log, 0, st.Size()), all)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // it was cut meanwhile
		err = nil
	}
	return all[:n], err
}

// damaged is the error of a log that makes no sense in its middle.
func damaged(at, of int) error { return fmt.Errorf("%w at byte %d of %d", ErrDamaged, at, of) }

// frameAt answers with the records of the frame that begins at a byte, if there is a whole one.
func frameAt(all []byte, at int) (records []byte, ok bool) {
	if len(all)-at < 8 {
		return nil, false
	}
	n := int(binary.LittleEndian.Uint32(all[at:]))
	if n > len(all)-at-8 {
		return nil, false
	}
	records = all[at+8 : at+8+n]
	return records, sum(records) == binary.LittleEndian.Uint32(all[at+4:])
}

// followed reports whether a frame with something in it follows after one that is not
// whole: then that was not torn by a crash, which would have been the last thing to happen
// to the log. A frame of 64 KiB or more is found where the length of the spoilt one says,
// a smaller one, as the last of a layer that was closed is, anywhere. Eight zeros are a
// frame with nothing in it, and a crash may leave zeros. Cost: a look at each byte.
func followed(all []byte, at int) bool {
	const most = 64 << 10
	if len(all)-at < 8 {
		return false
	}
	if next := at + 8 + int(binary.LittleEndian.Uint32(all[at:])); next < len(all) {
		if records, ok := frameAt(all, next); ok && len(records) > 0 {
			return true
		}
	}
	for at++; at < len(all)-8; at++ {
		n := binary.LittleEndian.Uint32(all[at:])
		if n == 0 || n >= most || strings.IndexByte(kinds, all[at+8]) < 0 {
			continue
		}
		if _, ok := frameAt(all, at); ok {
			return true
		}
	}
	return false
}
