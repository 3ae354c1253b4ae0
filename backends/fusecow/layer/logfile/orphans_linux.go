package logfile

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

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Orphans are files of a layer that its log does not account for. They are set aside, not deleted: content
// without an inode as found/INODE, and a damaged log, whole, as log.damaged. If the name is taken, a number is
// appended. They stay until the layer is removed or somebody takes them away.

// An Orphans decides during recovery for content files without an inode whether to delete them or to set them
// aside in found/.
//
// If the log is whole, the inode was removed, or created after the last frame by a process that was killed
// before any fsync(2): its content can be deleted. If frames were lost, they may have recorded the inode.
// Then only content of inodes that the remaining log records as removed can be deleted, and only with numbers
// that no lower inode has.
type Orphans struct {
	d    *Layer
	gone map[uint64]bool // nil if everything is known
}

// Orphans returns the [Orphans] of the layer d, which decides about content files without an inode during
// recovery. The log must have been read. Cost: one more read of the log if frames were lost. With careful it
// moves all content to found/ that is not known to be removed.
func (d *Layer) Orphans(careful bool) (*Orphans, error) {
	i := &Orphans{d: d}
	if !careful && !d.Torn {
		return i, nil
	}
	i.gone = map[uint64]bool{}
	err := d.Records(func(kind byte, r *Reader) {
		switch kind {
		case KindInode:
			delete(i.gone, r.Inode().ID)
		case KindGone:
			i.gone[r.Gone()] = true
		default:
			r.Skip(kind)
		}
	})
	return i, err
}

// Dispose deletes the content file of id, an inode that the log does not have, or moves it to found/ if
// frames that recorded it may be lost.
func (i *Orphans) Dispose(id uint64) error {
	if i.gone == nil || id >= FirstOwnIno && i.gone[id] {
		return i.d.RemoveContent(id)
	}
	return i.d.SetAside(id)
}

// SetAside moves the content file of the inode id, if it exists, to the layer's directory found/, where no
// recovery deletes it and a person can find it.
func (d *Layer) SetAside(id uint64) error {
	if err := unix.Mkdirat(d.FD, "found", 0o700); err != nil && err != unix.EEXIST {
		return &os.PathError{Op: "mkdir", Path: d.Path + "/found", Err: err}
	}
	_, err := withFreeName(d.Path+"/found/"+strconv.FormatUint(id, 16), func(to string) error {
		return vfs.RenameNew(filepath.Join(d.Path, ContentPath(id)), to)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// withFreeName finds a free name for a file that recovery sets aside: it calls do with name, and then with
// numbered variants of it for as long as do reports that the name is taken. It returns the name that was
// free, or the error of do.
func withFreeName(name string, do func(string) error) (string, error) {
	for at, i := name, 2; ; i++ {
		if err := do(at); !errors.Is(err, fs.ErrExist) {
			return at, err
		}
		at = name + "." + strconv.Itoa(i)
	}
}

// backupLog copies a damaged log to the file log.damaged before the log is truncated, so that nothing is
// lost. After an error a partial copy may remain.
func (d *Layer) backupLog() error {
	var to *os.File
	_, err := withFreeName(d.Path+"/log.damaged", func(name string) (err error) {
		to, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	_, err = vfs.CopyFile(to, d.Log)
	return errors.Join(err, to.Sync(), to.Close(), unix.Fsync(d.FD))
}

// AsideBytes returns the disk space, in bytes, of the files that recovery of the layer at path moved to
// found/, and of saved damaged logs. No quota counts these bytes, because nobody inside a sandbox could
// delete them. Cost: two directory reads if there is nothing. Errors are those of files.
func AsideBytes(path string) (sum int64, err error) {
	logs, err := filepath.Glob(escapeGlob(path) + "/log.damaged*")
	if err != nil {
		return 0, err
	}
	found, err := filepath.Glob(escapeGlob(path) + "/found/*")
	for _, name := range append(logs, found...) {
		st, serr := vfs.Lstat(unix.AT_FDCWD, name)
		if serr != nil && !errors.Is(serr, fs.ErrNotExist) {
			err = errors.Join(err, serr)
		}
		sum += st.Blocks * 512
	}
	return sum, err
}

// escapeGlob returns a pattern for filepath.Glob that matches only path, whatever special characters are in
// it.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// TruncateTorn cuts off the bytes after the last whole frame of the log. If a kill cannot have torn the log
// there, it copies the log to log.damaged first.
func (d *Layer) TruncateTorn() error {
	if !d.Torn {
		return nil
	}
	if d.ReadLimit > 0 || d.corrupt {
		if err := d.backupLog(); err != nil {
			return err
		}
	}
	d.Torn, d.corrupt = false, false
	return d.Log.Truncate(d.Size)
}

// ReadLog returns the bytes of the log that this Layer has open, even after another file has replaced it.
func (d *Layer) ReadLog() ([]byte, error) {
	st, err := d.Log.Stat()
	if err != nil {
		return nil, err
	}
	all := make([]byte, st.Size())
	n, err := io.ReadFull(io.NewSectionReader(d.Log, 0, st.Size()), all)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // it was truncated meanwhile
		err = nil
	}
	return all[:n], err
}

// damagedAt returns the error for a log that is damaged at byte at, before its end. of is the length of the
// log in bytes.
func damagedAt(at, of int) error { return fmt.Errorf("%w at byte %d of %d", ErrDamaged, at, of) }

// frameAt returns the records of the frame, a group of log records with a checksum, at offset at of the log
// all; ok is false if there is no whole frame.
func frameAt(all []byte, at int) (records []byte, ok bool) {
	if len(all)-at < 8 {
		return nil, false
	}
	n := int(binary.LittleEndian.Uint32(all[at:]))
	if n > len(all)-at-8 {
		return nil, false
	}
	records = all[at+8 : at+8+n]
	return records, checksum(records) == binary.LittleEndian.Uint32(all[at+4:])
}

// frameFollows reports whether a frame with records follows the broken one at offset at of the log all. A
// crash is the last thing to happen to a log, so in that case something else broke the frame. A frame of 64
// KiB or more is found only where the length of the broken one leads; a smaller one, like the last of a clean
// log, at any offset. Eight zero bytes are an empty frame and count for nothing, because a crash may leave
// zeros. Cost: a look at each byte.
func frameFollows(all []byte, at int) bool {
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
