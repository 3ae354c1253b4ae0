package layer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/kernel"
)

// A dir is a layer on disk: "log", and "data" with the content of files.
//
// The log is a magic word, then frames. A frame is its length and its CRC-32C,
// four bytes each, and records, which are taken all or not at all: so a crash
// in the middle of one leaves the state before it.
type dir struct {
	path string
	fd   int
	log  *os.File
	size int64 // of the log, up to the last whole frame
	// synced is how much of the log is on stable storage, as far as is known.
	synced int64
	// moded: its mode says that it is not in order; see begun.
	moded bool
	// counted is what the log counts for, by its blocks.
	counted int64
	// torn: more follows the last whole frame, or there is content and nothing that
	// tells of any.
	torn bool
	// spoilt: that is as long as it says to be, which nothing is that was torn by a kill.
	spoilt bool
	// cut is the byte from which on a log that is repaired is read no more, or 0.
	cut int64
	// look is how long the log is to be before it is looked at whether to rewrite it, and
	// renamed says that stable storage may have another one still.
	look    int64
	renamed bool
}

// ErrDamaged is what a log is whose beginning is not one, whose whole frames make no
// sense, or that has whole ones after one that is not.
var ErrDamaged = errors.New("the log is damaged")

const magic = "fusecow1"

// sum is the CRC-32C of records. Its table is made at the first use.
func sum(records []byte) uint32 {
	return crc32.Checksum(records, crc32.MakeTable(crc32.Castagnoli))
}

// openDir opens a layer, and makes it where there is none and it is the top.
func openDir(path string, top bool) (_ *dir, err error) {
	d := &dir{path: path, fd: -1}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if top {
		if err := os.MkdirAll(path+"/data", 0o700); err != nil {
			return nil, err
		}
	}
	if d.fd, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	if err := kernel.FlockFD(d.fd, unix.LOCK_SH); err != nil { // somebody has it open: see Unused
		return nil, &os.PathError{Op: "flock", Path: path, Err: err}
	}
	if top {
		d.log, err = lockLog(path, os.O_RDWR|os.O_CREATE)
	} else {
		d.log, err = os.Open(path + "/log")
	}
	if err != nil {
		return nil, err
	}
	st, err := d.log.Stat()
	if err != nil {
		return nil, err
	}
	d.moded = st.Mode()&notInOrder != 0
	if top {
		if err := d.begin(); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// begin begins a log that was made just now, or by one that was killed then. One
// that has begun it leaves, and takes for empty until it is read.
func (d *dir) begin() error {
	d.size = int64(len(magic))
	st, err := d.log.Stat()
	if err != nil || st.Size() >= int64(len(magic)) {
		return err
	}
	_, err = d.log.WriteAt([]byte(magic), 0)
	return err
}

// Unused calls do while nobody has the layer at path open, nor can open it. unix.EBUSY:
// somebody has. Whoever opens it meanwhile waits, and then finds what do has left.
func Unused(path string, do func() error) error {
	dir, err := kernel.OpenDir(unix.AT_FDCWD, path)
	if err != nil {
		return err
	}
	defer dir.Close()
	err = kernel.Flock(dir, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = unix.EBUSY
	}
	if err != nil {
		return err
	}
	return do()
}

func (d *dir) close() {
	if d.log != nil {
		d.log.Close()
	}
	if d.fd >= 0 {
		unix.Close(d.fd)
	}
}

// frames calls do with the records of each whole frame. What a crash left of one more is
// not read. Errors: ErrDamaged, those of files, and of do.
func (d *dir) frames(do func(records []byte) error) error {
	all, err := d.readLog()
	if err != nil {
		return err
	}
	if len(all) < len(magic) || string(all[:len(magic)]) != magic {
		return ErrDamaged
	}
	size, at := len(all), len(magic)
	if d.cut > 0 {
		all = all[:min(int(d.cut), size)]
	}
	for {
		records, ok := frameAt(all, at)
		if !ok {
			break
		}
		if err := do(records); err != nil {
			return fmt.Errorf("at byte %d of the log: %w", at, err)
		}
		at += 8 + len(records)
	}
	d.size, d.torn = int64(at), at < size
	d.spoilt = len(all)-at >= 8 && int64(binary.LittleEndian.Uint32(all[at:])) <= int64(len(all)-at-8)
	if followed(all, at) {
		return damaged(at, size)
	}
	return nil
}

// records calls do with the kind of each record of a layer that is only read, and with
// what follows it, which do takes.
func (d *dir) records(do func(kind byte, r *reader)) error {
	return d.frames(func(records []byte) error {
		r := &reader{rest: records}
		for len(r.rest) > 0 {
			if do(r.kind(), r); r.bad {
				return ErrDamaged
			}
		}
		return nil
	})
}

// append writes one frame. After an error the log is as it was.
func (d *dir) append(records []byte) error {
	frame := frameOf(records)
	if _, err := d.log.WriteAt(frame, d.size); err != nil {
		return errors.Join(err, d.log.Truncate(d.size))
	}
	d.size += int64(len(frame))
	return nil
}

// sync puts all of the log on stable storage.
func (d *dir) sync() error {
	if err := d.syncName(); err != nil {
		return err
	}
	if d.synced == d.size {
		return nil
	}
	err := unix.Fdatasync(int(d.log.Fd()))
	if err == nil {
		d.synced = d.size
	}
	return err
}

// Whoever may write to a layer notes in its log that it is not in order from then on, and
// at last that it is. A disk that is full has no room for the former, where files are not
// written in place; it must not keep anybody from removing something there. Then the log's
// mode says it.
const notInOrder = 0o100

func (d *dir) begun() error {
	err := d.append(nil)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		d.moded = true
		return d.log.Chmod(0o600 | notInOrder)
	}
	return err
}

// ended notes that a layer is in order, when all has been written. A log that has heard of
// nothing since it was says so already.
func (d *dir) ended() error {
	err := d.append([]byte{recordClean})
	if err != nil && d.moded {
		if same, serr := endsWith(d.log, frameOf([]byte{recordClean})); serr == nil && same {
			err = nil
		}
	}
	if err == nil && d.moded {
		d.moded, err = false, d.log.Chmod(0o600)
	}
	return err
}

func frameOf(records []byte) []byte {
	frame := make([]byte, 8, 8+len(records))
	binary.LittleEndian.PutUint32(frame, uint32(len(records)))
	binary.LittleEndian.PutUint32(frame[4:], sum(records))
	return append(frame, records...)
}

// sharded is the file of a node's content. Nodes made one after another lie in
// one directory, where a filesystem keeps them together.
func sharded(id uint64) string {
	return "data/" + strconv.FormatUint(id>>9&0xff, 16) + "/" + strconv.FormatUint(id, 16)
}

// open opens the content of a node; with make it is made, empty.
func (d *dir) open(id uint64, flags int, make bool) (int, error) {
	name := sharded(id)
	if make {
		flags |= unix.O_CREAT | unix.O_TRUNC
	}
	n, err := unix.Openat(d.fd, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err == unix.ENOENT && make {
		shard := "data/" + strconv.FormatUint(id>>9&0xff, 16)
		if err := unix.Mkdirat(d.fd, shard, 0o700); err != nil && err != unix.EEXIST {
			return -1, err
		}
		n, err = unix.Openat(d.fd, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	}
	return n, err
}

// contents calls do with the content of each node.
func (d *dir) contents(do func(id uint64, st *kernel.Stat) error) error {
	data, err := kernel.OpenDir(d.fd, "data")
	if err != nil {
		return err
	}
	defer data.Close()
	shards, err := kernel.Entries(int(data.Fd()))
	for _, s := range shards {
		if err == nil {
			err = d.shard(int(data.Fd()), s.Name, do)
		}
	}
	return err
}

func (d *dir) shard(data int, name string, do func(id uint64, st *kernel.Stat) error) error {
	shard, err := kernel.OpenDir(data, name)
	if err != nil {
		return err
	}
	defer shard.Close()
	files, err := kernel.Entries(int(shard.Fd()))
	for _, e := range files {
		id, not := strconv.ParseUint(e.Name, 16, 64)
		if not != nil || err != nil {
			continue
		}
		var st kernel.Stat
		if st, err = kernel.Lstat(int(shard.Fd()), e.Name); err == nil {
			err = do(id, &st)
		}
	}
	return err
}

// hasContent reports whether there is content of any node.
func (d *dir) hasContent() (bool, error) {
	some := errors.New("some")
	err := d.contents(func(uint64, *kernel.Stat) error { return some })
	if errors.Is(err, some) {
		return true, nil
	}
	return false, err
}

// remove takes the content of a node away; that there is none is no error.
func (d *dir) remove(id uint64) error {
	if err := unix.Unlinkat(d.fd, sharded(id), 0); err != nil && err != unix.ENOENT {
		return err
	}
	return nil
}

// Make makes an empty layer at path, whose directory must be there, to be the top
// one. After an error a part of it may be there, and what has a log is a layer.
func Make(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	d, err := openDir(path, true)
	if err != nil {
		return err
	}
	d.close()
	return nil
}

// IsLayer reports whether a directory is a layer, in whatever state.
func IsLayer(path string) bool {
	st, err := kernel.Lstat(unix.AT_FDCWD, path+"/log")
	return err == nil && st.IsRegular()
}

// Hold keeps others from opening a layer as the top one until release is called,
// and says whether it was closed in order. Cost: some system calls. Errors:
// unix.EBUSY (it is open as the top one), and those of files.
func Hold(path string) (clean bool, release func(), err error) {
	log, err := lockLog(path, os.O_RDONLY)
	if err != nil {
		return false, nil, err
	}
	clean, err = endsInOrder(log)
	if err != nil {
		kernel.Unlock(log)
		return false, nil, err
	}
	return clean, func() { kernel.Unlock(log) }, nil
}

// endsInOrder looks at the last frame of a log.
func endsInOrder(log *os.File) (bool, error) {
	st, err := log.Stat()
	if err != nil || st.Mode()&notInOrder != 0 {
		return false, err
	}
	if st.Size() <= int64(len(magic)) {
		return st.Size() == int64(len(magic)), nil
	}
	return endsWith(log, frameOf([]byte{recordClean}))
}

func endsWith(log *os.File, want []byte) (bool, error) {
	st, err := log.Stat()
	if err != nil || st.Size() < int64(len(want)) {
		return false, err
	}
	last := make([]byte, len(want))
	_, err = log.ReadAt(last, st.Size()-int64(len(want)))
	return bytes.Equal(last, want), err
}
