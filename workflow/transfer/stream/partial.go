package stream

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/mount"
)

// A Partial identifies the received part of an interrupted transfer: snapshot, base, and the length and
// SHA-256 of the payload so far. The receiver names it to the sender, to resume.
type Partial struct {
	ID, Base string
	Bytes    int64
	Sum      string
}

// String returns b, which identifies the received part of a broken stream, as the text ID:BASE:BYTES:SUM,
// which [ParsePartial] reads.
func (b Partial) String() string {
	return strings.Join([]string{b.ID, b.Base, strconv.FormatInt(b.Bytes, 10), b.Sum}, ":")
}

// ParsePartial parses the text form of a Partial, by which another machine says which part of a stream it has
// received. ok is false for malformed text.
func ParsePartial(text string) (b Partial, ok bool) {
	f := strings.Split(text, ":")
	if len(f) != 4 || !snapshot.ValidID(f[0]) || f[1] != "" && !snapshot.ValidID(f[1]) || !validSum(f[3]) {
		return b, false
	}
	n, err := strconv.ParseInt(f[2], 10, 64)
	return Partial{f[0], f[1], n, f[3]}, err == nil && n > 0
}

func validSum(text string) bool {
	b, err := hex.DecodeString(text)
	return err == nil && len(b) == sha256.Size
}

// A PartialFile stores the received part of a stream on disk, in the stream format, so that an interrupted
// transfer can resume. Each frame, a piece of the stream, has a checksum, so that the complete frames are
// usable after any crash.
type PartialFile struct {
	f *os.File
	w *Writer
	// earlier identifies the part that the file had when it was opened; more payload is
	// appended.
	earlier Partial
	// size is the written size of the file in bytes. When it reaches next, free space is
	// checked again.
	size, checkAt int64
	// bytes is the size of the stored payload.
	bytes int64
	err   error
	// old reads the file of an earlier attempt, while the received payload equals it; start
	// is the offset of its current frame.
	old   *Reader
	start int64
	// replacing is set if the next write replaces the file from the offset size on, beginning
	// with first.
	replacing bool
	first     []byte
}

// spaceStep is how many bytes of a received stream are stored between two checks of the free disk space, so
// that not every write costs a check.
const spaceStep = 16 << 20

// OpenPartial opens the file, in the directory dir, that stores the received part of the stream with the
// header l, and creates it if needed. If l resumes a transfer, the file must have that part. A stream that
// starts again leaves the old content until it has received more, or a different frame. One process at a time
// can use a file. Errors: errs.ErrNotFound (the part to resume from is missing or different); ErrBusy.
func OpenPartial(dir string, l Header) (*PartialFile, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, failPartial(dir, err)
	}
	flags := os.O_RDWR
	if l.From == 0 {
		flags |= os.O_CREATE
	}
	f, err := locked(filepath.Join(dir, l.ID), flags)
	if errors.Is(err, errs.ErrNotFound) && l.From > 0 {
		return nil, cannotResume(l)
	}
	if err != nil {
		return nil, err
	}
	k := &PartialFile{f: f}
	err = checkMagic(f)
	if err == nil {
		err = k.prepare(l)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return k, nil
}

func failPartial(path string, err error) error {
	return &errs.Error{Op: "storing the partial stream", Path: path, Kind: errs.KindOfFile(err), Err: err}
}

// locked opens the file at path, which stores the received part of a stream, with flags of open(2), and locks
// it until the caller closes it. ErrBusy: another process has the lock, or has just removed the file.
func locked(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, failPartial(path, err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		err = checkLinked(f) // another process may have removed it
	}
	if err != nil {
		f.Close()
		return nil, &errs.Error{Op: "storing the partial stream", Path: path, Kind: errs.ErrBusy, Err: errors.New("another command is receiving it")}
	}
	return f, nil
}

// checkLinked returns an error unless the path of f, a file with the received part of a stream, still leads
// to the same file. Another process may have removed it before it was locked.
func checkLinked(f *os.File) error {
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	now, err := os.Lstat(f.Name())
	if err == nil && !os.SameFile(mine, now) {
		err = os.ErrNotExist
	}
	return err
}

func cannotResume(l Header) error {
	return &errs.Error{
		Op: "resuming", Path: l.Sandbox + "@" + l.State, Kind: errs.ErrNotFound,
		Err:   fmt.Errorf("the first %v are missing here, or differ", snapshot.Bytes(l.From)),
		Hints: []string{"ssh HOST snapfs send " + l.Sandbox + "@" + l.State + " | snapfs receive   # without --have"},
	}
}

// prepare sets up the opened file to store a stream with the header l: after the part that l resumes from, or
// from the beginning. It returns an error if the file does not have that part.
func (k *PartialFile) prepare(l Header) error {
	if l.From == 0 {
		return k.restart(l)
	}
	had, end, err := scan(k.f)
	if err != nil || had.Base != l.Base || had.Bytes != l.From || had.Sum != l.Before {
		return cannotResume(l)
	}
	k.earlier, k.bytes = had, had.Bytes
	k.replaceFrom(end, nil)
	return k.truncate()
}

// noSum returns a cheap hash in place of SHA-256 for writing a received part of a stream to a file. The hash
// stands at the end of a stream, which such a file never has.
func noSum() hash.Hash { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) }

// truncate cuts the file with the received part of a stream at the offset k.size and writes k.first there, if
// k.replacing is set; else it does nothing.
func (k *PartialFile) truncate() error {
	if !k.replacing {
		return nil
	}
	k.replacing = false
	if err := k.f.Truncate(k.size); err != nil {
		return failPartial(k.f.Name(), err)
	}
	if _, err := k.f.Seek(k.size, io.SeekStart); err != nil {
		return failPartial(k.f.Name(), err)
	}
	n, err := k.f.Write(k.first)
	k.size += int64(n)
	return err
}

// A spaceChecked is a writer to the file of a received part. It fails when the disk has less free space than
// the file takes, so that the transfer itself has space.
type spaceChecked struct{ k *PartialFile }

func (c spaceChecked) Write(b []byte) (int, error) {
	k := c.k
	if err := k.truncate(); err != nil {
		return 0, err
	}
	if err := k.checkSpace(k.size); err != nil {
		return 0, err
	}
	n, err := k.f.Write(b)
	k.size += int64(n)
	return n, err
}

// checkSpace returns ENOSPC if the disk has less free space than the file takes, so that the transfer itself
// has space. It checks at intervals; bytes is the number stored so far.
func (k *PartialFile) checkSpace(bytes int64) error {
	if bytes < k.checkAt {
		return nil
	}
	info, err := k.f.Stat()
	if err != nil {
		return err
	}
	fs, err := mount.FilesystemOf(k.f.Name())
	if err != nil {
		return err
	}
	if fs.Avail < info.Size()+spaceStep {
		return &os.PathError{Op: "write", Path: k.f.Name(), Err: syscall.ENOSPC}
	}
	k.checkAt = bytes + spaceStep
	return nil
}

// Received returns a reader of the part of a stream's payload that earlier attempts of the transfer stored;
// it is empty if there is none.
func (k *PartialFile) Received() (io.Reader, error) {
	if k.earlier.Bytes == 0 {
		return strings.NewReader(""), nil
	}
	r, _, err := Open(io.NewSectionReader(k.f, 0, k.size))
	if err != nil {
		return nil, err
	}
	return io.LimitReader(r, k.earlier.Bytes), nil
}

// Write stores the next bytes of the received stream's payload. It never fails: without disk space, the
// transfer continues and the partial file is emptied. See [PartialFile.Close].
func (k *PartialFile) Write(b []byte) (int, error) {
	if k.err == nil {
		k.err = k.store(b)
	}
	return len(b), nil
}

func (k *PartialFile) store(b []byte) error {
	b, err := k.skipEqual(b)
	if err == nil && len(b) > 0 {
		_, err = k.w.Write(b)
	}
	if err != nil {
		return errors.Join(err, k.f.Truncate(0))
	}
	k.bytes += int64(len(b))
	return nil
}

// Close ends an interrupted transfer of a stream and returns the size of the stored payload, of this attempt
// or of an earlier one. It is 0 if there is none, or if storing it failed, with that error. Cost: one sync.
func (k *PartialFile) Close() (bytes int64, err error) {
	defer k.f.Close()
	err = k.err
	if err == nil {
		if bytes, err = k.reuseOld(); bytes > 0 {
			return bytes, err
		}
	}
	if err == nil && k.w != nil {
		err = k.w.flushRest()
	}
	if err == nil {
		err = k.f.Sync()
	}
	if err != nil || k.bytes == 0 {
		return 0, errors.Join(err, os.Remove(k.f.Name()))
	}
	return k.bytes, nil
}

// Drop removes the file with the part of a stream that was received before a transfer broke, after the
// transfer is complete or given up.
func (k *PartialFile) Drop() error {
	defer k.f.Close()
	return os.Remove(k.f.Name())
}

// scan reads the complete frames (pieces with a checksum each) of f, a file with the received part of a
// stream. It returns the identification of the part, and the offset of its end. Errors: ErrCorrupt.
func scan(f *os.File) (b Partial, end int64, err error) {
	r, l, err := Open(io.NewSectionReader(f, 0, 1<<62))
	if err != nil {
		return b, 0, err
	}
	sum := sha256.New()
	n, err := io.Copy(sum, r)
	if err == nil { // a partial file has no end
		return b, 0, corrupt("not a partial stream")
	}
	return Partial{l.ID, l.Base, n, hex.EncodeToString(sum.Sum(nil))}, r.complete, nil
}

// ListPartial lists the received parts of streams in the directory dir, sorted by id, without those that a
// process is writing and files of another form. Cost: it reads all of them.
func ListPartial(dir string) ([]Partial, error) {
	var all []Partial
	err := eachPartial(dir, func(f *os.File) error {
		if b, _, err := scan(f); err == nil && b.Bytes > 0 && b.ID == filepath.Base(f.Name()) {
			all = append(all, b)
		}
		return nil
	})
	return all, err
}

// DropOlder removes the received parts of streams in the directory dir that were last written before than,
// and returns their number. Streams that are being received stay.
func DropOlder(dir string, than time.Time) (n int, err error) {
	err = eachPartial(dir, func(f *os.File) error {
		info, err := f.Stat()
		if err != nil || !info.ModTime().Before(than) {
			return err
		}
		n++
		return os.Remove(f.Name())
	})
	return n, err
}

// eachPartial calls do for each file in dir with the received part of a stream that no other process uses. It
// skips files of other programs, see [Unknown].
func eachPartial(dir string, do func(*os.File) error) error {
	entries, err := entriesIn(dir)
	failures := []error{err}
	for _, e := range entries {
		f, err := lockedPartial(dir, e)
		switch {
		case errors.Is(err, errs.ErrBusy), errors.Is(err, errs.ErrNotFound), errors.Is(err, errUnknown):
			continue
		case err == nil:
			err = do(f)
			f.Close()
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// Unknown lists the entries of dir, the directory for received parts of streams, that snapfs did not create,
// or dir itself if it is no directory. snapfs never changes or removes them.
func Unknown(dir string) ([]string, error) {
	if info, err := os.Lstat(dir); err == nil && !info.IsDir() {
		return []string{dir}, nil
	}
	entries, err := entriesIn(dir)
	failures := []error{err}
	var strange []string
	for _, e := range entries {
		f, err := lockedPartial(dir, e)
		switch {
		case err == nil:
			f.Close()
		case errors.Is(err, errUnknown):
			strange = append(strange, filepath.Join(dir, e.Name()))
		case !errors.Is(err, errs.ErrBusy) && !errors.Is(err, errs.ErrNotFound):
			failures = append(failures, err)
		}
	}
	return strange, errors.Join(failures...)
}

// entriesIn lists dir, the directory for received parts of streams. It returns no entries if dir does not
// exist or is no directory.
func entriesIn(dir string) ([]os.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return nil, failPartial(dir, err)
	}
	return entries, nil
}

// errUnknown means that a file in the directory for received parts of streams is not one that [OpenPartial]
// created.
var errUnknown = errors.New("not a partial stream of snapfs")

// lockedPartial opens and locks the entry e of dir, a file with the received part of a stream, until the
// caller closes it. Errors: those of locked, and errUnknown.
func lockedPartial(dir string, e os.DirEntry) (*os.File, error) {
	path := filepath.Join(dir, e.Name())
	if !e.Type().IsRegular() || !snapshot.ValidID(e.Name()) {
		return nil, failPartial(path, errUnknown)
	}
	f, err := locked(path, os.O_RDWR)
	if errors.Is(err, errs.ErrDenied) { // another user's file
		return nil, failPartial(path, errUnknown)
	}
	if err == nil {
		if err = checkMagic(f); err != nil {
			f.Close()
			f = nil
		}
	}
	return f, err
}

// checkMagic returns errUnknown unless the file f, a received part of a snapshot's stream, starts like a
// stream of snapfs, as far as it was written: after a power loss the start may be missing or zeros.
func checkMagic(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return failPartial(f.Name(), err)
	}
	start := make([]byte, len(magic))
	n := 0
	if info.Mode().IsRegular() {
		n, err = f.ReadAt(start, 0)
	} else {
		err = errUnknown
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return failPartial(f.Name(), err)
	}
	if !strings.HasPrefix(magic, strings.TrimRight(string(start[:n]), "\x00")) {
		return failPartial(f.Name(), errUnknown)
	}
	return nil
}

// A Skipper is a writer for the payload of a resumed stream. It drops the part at the beginning that the
// receiver has, after verifying it, and passes on the rest.
type Skipper struct {
	prefix Partial
	// begin opens the writer for the payload after the prefix.
	begin func() (io.Writer, error)
	to    io.Writer
	sum   hash.Hash
	left  int64
}

// ErrOtherPrefix means that the payload of a resumed stream does not start with the part that the receiver
// has, so that it must be sent from the beginning.
var ErrOtherPrefix = errors.New("the payload starts differently now")

// NewSkipper returns a Skipper for a resumed stream. It drops the part b of the payload, which the receiver
// has, then calls begin and writes the rest of the payload to its result.
func NewSkipper(b Partial, begin func() (io.Writer, error)) *Skipper {
	return &Skipper{prefix: b, begin: begin, sum: sha256.New(), left: b.Bytes}
}

// Write takes the next bytes of a stream's payload. Errors: ErrOtherPrefix, before begin was called; those of
// the writer that begin returned.
func (s *Skipper) Write(b []byte) (int, error) {
	n := int(min(s.left, int64(len(b))))
	s.sum.Write(b[:n])
	s.left -= int64(n)
	if s.left > 0 {
		return n, nil
	}
	if s.to == nil {
		if hex.EncodeToString(s.sum.Sum(nil)) != s.prefix.Sum {
			return 0, ErrOtherPrefix
		}
		var err error
		if s.to, err = s.begin(); err != nil {
			return 0, err
		}
	}
	if n == len(b) {
		return n, nil
	}
	m, err := s.to.Write(b[n:])
	return n + m, err
}
