package logfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A Layer is an open layer directory, which holds the changes of one state of a filesystem: the file "log",
// and the content of changed files in "data".
//
// The log is a magic word and then frames. A frame is its length and its CRC-32C, four bytes each, and then
// records. Replay applies either all records of a frame or none, so a crash in the middle of a frame leaves
// the state before it.
type Layer struct {
	Path string
	FD   int
	Log  *os.File
	Size int64 // of the log, up to the end of the last whole frame
	// synced is the length of the log that is known to be on stable storage.
	synced int64
	// UncleanMode is set if the mode bits of the log mark the layer as not clean; see
	// MarkOpen.
	UncleanMode bool
	// Torn is set if bytes follow the last whole frame, or content exists although the log
	// records no inode.
	Torn bool
	// corrupt is set if a broken last frame has its full length, so that a kill cannot have
	// torn it.
	corrupt bool
	// ReadLimit, unless 0, is the offset at which reading a log that is being repaired stops.
	ReadLimit int64
	// renamed is set while the directory entry of the log may not be on stable storage.
	renamed bool
}

// ErrDamaged means that a layer's log is damaged, not only torn at its end by a crash: it does not begin with
// the magic word, its whole frames (groups of records) make no sense, or whole frames follow a broken one.
var ErrDamaged = errors.New("the log is damaged")

// Magic is the word with which the log of every layer begins: it identifies the file and its format version.
const Magic = "fusecow1"

// checksum returns the CRC-32C of the records of a frame, by which a frame that a crash has torn is found.
// The first call builds the table.
func checksum(records []byte) uint32 {
	return crc32.Checksum(records, crc32.MakeTable(crc32.Castagnoli))
}

// Open opens the layer directory at path; the caller must call Close. With top, for the layer that takes
// changes, it locks the layer for writing, or returns unix.EBUSY, and creates it if it does not exist.
func Open(path string, top bool) (_ *Layer, err error) {
	d := &Layer{Path: path, FD: -1}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	if top {
		if err := os.MkdirAll(path+"/data", 0o700); err != nil {
			return nil, err
		}
	}
	if d.FD, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	if err := vfs.FlockFD(d.FD, unix.LOCK_SH); err != nil { // see WithExclusive
		return nil, &os.PathError{Op: "flock", Path: path, Err: err}
	}
	if top {
		d.Log, err = lockLog(path, os.O_RDWR|os.O_CREATE)
	} else {
		d.Log, err = os.Open(path + "/log")
	}
	if err != nil {
		return nil, err
	}
	st, err := d.Log.Stat()
	if err != nil {
		return nil, err
	}
	d.UncleanMode = st.Mode()&uncleanBit != 0
	if top {
		if err := d.initLog(); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// initLog writes the magic word, with which every log begins, to a new log of the layer or to one whose
// creator was killed. A longer log stays as it is, and counts as empty until it is read.
func (d *Layer) initLog() error {
	d.Size = int64(len(Magic))
	st, err := d.Log.Stat()
	if err != nil || st.Size() >= int64(len(Magic)) {
		return err
	}
	_, err = d.Log.WriteAt([]byte(Magic), 0)
	return err
}

// WithExclusive calls do while no process has the layer at path open. unix.EBUSY means that a process has it
// open. A process that opens the layer meanwhile waits, and then finds the state that do left.
func WithExclusive(path string, do func() error) error {
	dir, err := vfs.OpenDir(unix.AT_FDCWD, path)
	if err != nil {
		return err
	}
	defer dir.Close()
	err = vfs.Flock(dir, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = unix.EBUSY
	}
	if err != nil {
		return err
	}
	return do()
}

// Close closes the files of the layer directory. That also releases the lock by which one process writes the
// layer.
func (d *Layer) Close() {
	if d.Log != nil {
		d.Log.Close()
	}
	if d.FD >= 0 {
		unix.Close(d.FD)
	}
}

// Frames calls do with the records of each whole frame of the log, and skips a torn one at the end, which a
// crash leaves. Errors: ErrDamaged, those of files, and those of do.
func (d *Layer) Frames(do func(records []byte) error) error {
	all, err := d.ReadLog()
	if err != nil {
		return err
	}
	if len(all) < len(Magic) || string(all[:len(Magic)]) != Magic {
		return ErrDamaged
	}
	size, at := len(all), len(Magic)
	if d.ReadLimit > 0 {
		all = all[:min(int(d.ReadLimit), size)]
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
	d.Size, d.Torn = int64(at), at < size
	d.corrupt = len(all)-at >= 8 && int64(binary.LittleEndian.Uint32(all[at:])) <= int64(len(all)-at-8)
	if frameFollows(all, at) {
		return damagedAt(at, size)
	}
	return nil
}

// Records calls do with the kind of each record in the layer's log, in order. do must read exactly the rest
// of the record from r.
func (d *Layer) Records(do func(kind byte, r *Reader)) error {
	return d.Frames(func(records []byte) error {
		for r := NewReader(records); r.More(); {
			if do(r.Kind(), r); r.Bad {
				return ErrDamaged
			}
		}
		return nil
	})
}

// Append writes one frame with these records to the end of the layer's log. Either all of them or none take
// effect after a crash. After an error the log is unchanged.
func (d *Layer) Append(records []byte) error {
	frame := encodeFrame(records)
	if _, err := d.Log.WriteAt(frame, d.Size); err != nil {
		return errors.Join(err, d.Log.Truncate(d.Size))
	}
	d.Size += int64(len(frame))
	return nil
}

// Sync writes the whole log of the layer to stable storage, so that its changes survive a power cut.
func (d *Layer) Sync() error {
	if err := d.syncDir(); err != nil {
		return err
	}
	if d.synced == d.Size {
		return nil
	}
	err := unix.Fdatasync(int(d.Log.Fd()))
	if err == nil {
		d.synced = d.Size
	}
	return err
}

// uncleanBit is the mode bit of a log file that marks its layer as open for writing, and thus in need of
// recovery after a crash. Usually one frame does that, and another marks the layer as clean at the end. The
// bit replaces the first frame on a full disk, where appending fails but removing files must still work.
const uncleanBit = 0o100

// MarkOpen marks the layer as open for writing, so that it is recovered if this process is killed.
func (d *Layer) MarkOpen() error {
	err := d.Append(nil)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		d.UncleanMode = true
		return d.Log.Chmod(0o600 | uncleanBit)
	}
	return err
}

// MarkClean marks the layer as clean: everything was written, and the next opening needs no recovery. A log
// to which nothing was appended since the last such mark needs no second one.
func (d *Layer) MarkClean() error {
	err := d.Append([]byte{KindClean})
	if err != nil && d.UncleanMode {
		if same, serr := endsWith(d.Log, encodeFrame([]byte{KindClean})); serr == nil && same {
			err = nil
		}
	}
	if err == nil && d.UncleanMode {
		d.UncleanMode, err = false, d.Log.Chmod(0o600)
	}
	return err
}

func encodeFrame(records []byte) []byte {
	frame := make([]byte, 8, 8+len(records))
	binary.LittleEndian.PutUint32(frame, uint32(len(records)))
	binary.LittleEndian.PutUint32(frame[4:], checksum(records))
	return append(frame, records...)
}

// ContentPath returns the path, in the layer directory, of the content file of inode id. Inodes created one
// after another share a directory, in which filesystems place files close together.
func ContentPath(id uint64) string {
	return "data/" + strconv.FormatUint(id>>9&0xff, 16) + "/" + strconv.FormatUint(id, 16)
}

// OpenContent returns a descriptor of the file with the content of inode id in the layer, which the caller
// closes; flags are those of open(2). With make it creates or empties the file.
func (d *Layer) OpenContent(id uint64, flags int, make bool) (int, error) {
	name := ContentPath(id)
	if make {
		flags |= unix.O_CREAT | unix.O_TRUNC
	}
	n, err := unix.Openat(d.FD, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err == unix.ENOENT && make {
		shard := "data/" + strconv.FormatUint(id>>9&0xff, 16)
		if err := unix.Mkdirat(d.FD, shard, 0o700); err != nil && err != unix.EEXIST {
			return -1, err
		}
		n, err = unix.Openat(d.FD, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	}
	return n, err
}

// Contents calls do with the inode number and the attributes of each content file of the layer, a file with
// the content of an inode that was changed in it.
func (d *Layer) Contents(do func(id uint64, st *vfs.Stat) error) error {
	data, err := vfs.OpenDir(d.FD, "data")
	if err != nil {
		return err
	}
	defer data.Close()
	shards, err := vfs.Entries(int(data.Fd()))
	for _, s := range shards {
		if err == nil {
			err = d.readShard(int(data.Fd()), s.Name, do)
		}
	}
	return err
}

func (d *Layer) readShard(data int, name string, do func(id uint64, st *vfs.Stat) error) error {
	shard, err := vfs.OpenDir(data, name)
	if err != nil {
		return err
	}
	defer shard.Close()
	files, err := vfs.Entries(int(shard.Fd()))
	for _, e := range files {
		id, not := strconv.ParseUint(e.Name, 16, 64)
		if not != nil || err != nil {
			continue
		}
		var st vfs.Stat
		if st, err = vfs.Lstat(int(shard.Fd()), e.Name); err == nil {
			err = do(id, &st)
		}
	}
	return err
}

// HasContent reports whether the layer has any content file, that is, whether the content of any file was
// changed in it.
func (d *Layer) HasContent() (bool, error) {
	some := errors.New("some")
	err := d.Contents(func(uint64, *vfs.Stat) error { return some })
	if errors.Is(err, some) {
		return true, nil
	}
	return false, err
}

// RemoveContent deletes the layer's file with the content of the inode id, if it exists. No log may refer to
// it any more.
func (d *Layer) RemoveContent(id uint64) error {
	if err := unix.Unlinkat(d.FD, ContentPath(id), 0); err != nil && err != unix.ENOENT {
		return err
	}
	return nil
}

// Make creates an empty layer directory at path, whose parent must exist. After an error a part of the
// directory may remain; it counts as a layer only once it has a log.
func Make(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	d, err := Open(path, true)
	if err != nil {
		return err
	}
	d.Close()
	return nil
}

// IsLayer reports whether path is a layer directory, clean or not: whether it has a log.
func IsLayer(path string) bool {
	st, err := vfs.Lstat(unix.AT_FDCWD, path+"/log")
	return err == nil && st.IsRegular()
}

// TryLock keeps other processes from opening the layer at path for writing until release is called, and
// reports whether the layer was closed cleanly. Cost: a few system calls. Errors: unix.EBUSY (it is open for
// writing), and those of files.
func TryLock(path string) (clean bool, release func(), err error) {
	log, err := lockLog(path, os.O_RDONLY)
	if err != nil {
		return false, nil, err
	}
	clean, err = isClean(log)
	if err != nil {
		vfs.Unlock(log)
		return false, nil, err
	}
	return clean, func() { vfs.Unlock(log) }, nil
}

// isClean reports whether the last frame of a layer's log says that the layer was closed cleanly.
func isClean(log *os.File) (bool, error) {
	st, err := log.Stat()
	if err != nil || st.Mode()&uncleanBit != 0 {
		return false, err
	}
	if st.Size() <= int64(len(Magic)) {
		return st.Size() == int64(len(Magic)), nil
	}
	return endsWith(log, encodeFrame([]byte{KindClean}))
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
