package parcel

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

// A Begun is what came of a parcel whose way broke: so many bytes of its stream, and
// the SHA-256 of those.
type Begun struct {
	ID, Base string
	Bytes    int64
	Sum      string
}

// String is what [ParseBegun] reads.
func (b Begun) String() string {
	return strings.Join([]string{b.ID, b.Base, strconv.FormatInt(b.Bytes, 10), b.Sum}, ":")
}

// ParseBegun reads what another machine says it has; ok is false for anything else.
func ParseBegun(text string) (b Begun, ok bool) {
	f := strings.Split(text, ":")
	if len(f) != 4 || !snapshot.ValidID(f[0]) || f[1] != "" && !snapshot.ValidID(f[1]) || !isSum(f[3]) {
		return b, false
	}
	n, err := strconv.ParseInt(f[2], 10, 64)
	return Begun{f[0], f[1], n, f[3]}, err == nil && n > 0
}

func isSum(text string) bool {
	b, err := hex.DecodeString(text)
	return err == nil && len(b) == sha256.Size
}

// A Kept is a file of what comes of a parcel, as a parcel, so that one that breaks
// off can be gone on with. Each frame of it tells by its sum whether it is whole:
// whatever ends the process, or the machine, what stays is a beginning.
type Kept struct {
	f *os.File
	w *Writer
	// had is what was there before, which the rest is written after.
	had Begun
	// size is the file's, as far as it was written; next is when to look for room again.
	size, next int64
	// bytes are how many of the stream are kept.
	bytes int64
	lost  error
	// old reads what was kept by another attempt, as long as what comes is the same; start is
	// where its frame begins in the file.
	old   *Reader
	start int64
	// instead: the next that is written takes the place of all from size on, with first before it.
	instead bool
	first   []byte
}

// room is after how many bytes it is looked again whether there is room to keep more.
const room = 16 << 20

// Keep begins to keep the parcel with a label in a directory, which it makes, or goes
// on with what was kept of it, where the label says that its stream does. Where it begins anew, what
// was kept stays until more than that has come, or a frame of something else. A process at
// a time keeps a parcel. Errors: errs.ErrNotFound (what it goes on with is not here, or not that any more);
// ErrBusy.
func Keep(dir string, l Label) (*Kept, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, keeping(dir, err)
	}
	flags := os.O_RDWR
	if l.From == 0 {
		flags |= os.O_CREATE
	}
	f, err := locked(filepath.Join(dir, l.ID), flags)
	if errors.Is(err, errs.ErrNotFound) && l.From > 0 {
		return nil, notThere(l)
	}
	if err != nil {
		return nil, err
	}
	k := &Kept{f: f}
	err = ours(f)
	if err == nil {
		err = k.begin(l)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return k, nil
}

func keeping(path string, err error) error {
	return &errs.Error{Op: "keeping what comes", Path: path, Kind: errs.KindOfFile(err), Err: err}
}

// locked opens a file that no other process has. ErrBusy.
func locked(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, keeping(path, err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		err = named(f) // it may just have been removed
	}
	if err != nil {
		f.Close()
		return nil, &errs.Error{Op: "keeping what comes", Path: path, Kind: errs.ErrBusy, Err: errors.New("another command receives it")}
	}
	return f, nil
}

// named: the open file is the one that has its name.
func named(f *os.File) error {
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

func notThere(l Label) error {
	return &errs.Error{
		Op: "going on with what came", Path: l.Sandbox + "@" + l.State, Kind: errs.ErrNotFound,
		Err:   fmt.Errorf("the first %v are not here, or not the same", snapshot.Bytes(l.From)),
		Hints: []string{"ssh HOST snapfs send " + l.Sandbox + "@" + l.State + " | snapfs receive   # without --have"},
	}
}

// begin makes the file hold what the label begins with.
func (k *Kept) begin(l Label) error {
	if l.From == 0 {
		return k.anew(l)
	}
	had, end, err := scan(k.f)
	if err != nil || had.Base != l.Base || had.Bytes != l.From || had.Sum != l.Before {
		return notThere(l)
	}
	k.had, k.bytes = had, had.Bytes
	k.replace(end, nil)
	return k.place()
}

// noSum is for a parcel that has no end, and no sum of all.
func noSum() hash.Hash { return crc32.New(castagnoli) }

// place takes away what is in the file from size on, where that is to be.
func (k *Kept) place() error {
	if !k.instead {
		return nil
	}
	k.instead = false
	if err := k.f.Truncate(k.size); err != nil {
		return keeping(k.f.Name(), err)
	}
	if _, err := k.f.Seek(k.size, io.SeekStart); err != nil {
		return keeping(k.f.Name(), err)
	}
	n, err := k.f.Write(k.first)
	k.size += int64(n)
	return err
}

// counted writes to the file, as long as that leaves as much room as it takes.
type counted struct{ k *Kept }

func (c counted) Write(b []byte) (int, error) {
	k := c.k
	if err := k.place(); err != nil {
		return 0, err
	}
	if err := k.leavesRoom(k.size); err != nil {
		return 0, err
	}
	n, err := k.f.Write(b)
	k.size += int64(n)
	return n, err
}

// leavesRoom looks now and then whether as much is free as so many bytes of the file take.
func (k *Kept) leavesRoom(bytes int64) error {
	if bytes < k.next {
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
	if fs.Avail < info.Size()+room {
		return &os.PathError{Op: "write", Path: k.f.Name(), Err: syscall.ENOSPC}
	}
	k.next = bytes + room
	return nil
}

// Begun reads the part of the stream that was here before.
func (k *Kept) Begun() (io.Reader, error) {
	if k.had.Bytes == 0 {
		return strings.NewReader(""), nil
	}
	r, _, err := Open(io.NewSectionReader(k.f, 0, k.size))
	if err != nil {
		return nil, err
	}
	return io.LimitReader(r, k.had.Bytes), nil
}

// Write keeps more of the stream. It never fails: that there is no room to keep
// what comes is no reason not to receive it, and then all that was kept makes room for that.
// See [Kept.Close].
func (k *Kept) Write(b []byte) (int, error) {
	if k.lost == nil {
		k.lost = k.more(b)
	}
	return len(b), nil
}

func (k *Kept) more(b []byte) error {
	b, err := k.same(b)
	if err == nil && len(b) > 0 {
		_, err = k.w.Write(b)
	}
	if err != nil {
		return errors.Join(err, k.f.Truncate(0))
	}
	k.bytes += int64(len(b))
	return nil
}

// Close ends keeping, after a way that broke: what came stays, or what had come before. It answers with how many bytes
// of the stream that are: none, where nothing came or it could not be kept, as the error says.
// Cost: a wait for the disk.
func (k *Kept) Close() (bytes int64, err error) {
	defer k.f.Close()
	err = k.lost
	if err == nil {
		if bytes, err = k.stays(); bytes > 0 {
			return bytes, err
		}
	}
	if err == nil && k.w != nil {
		err = k.w.rest()
	}
	if err == nil {
		err = k.f.Sync()
	}
	if err != nil || k.bytes == 0 {
		return 0, errors.Join(err, os.Remove(k.f.Name()))
	}
	return k.bytes, nil
}

// Drop removes what was kept.
func (k *Kept) Drop() error {
	defer k.f.Close()
	return os.Remove(k.f.Name())
}

// scan reads what of a kept parcel is whole, and where that ends in the file. ErrCorrupt.
func scan(f *os.File) (b Begun, end int64, err error) {
	r, l, err := Open(io.NewSectionReader(f, 0, 1<<62))
	if err != nil {
		return b, 0, err
	}
	sum := sha256.New()
	n, err := io.Copy(sum, r)
	if err == nil { // what keeps it writes no end
		return b, 0, bad("it is no beginning")
	}
	return Begun{l.ID, l.Base, n, hex.EncodeToString(sum.Sum(nil))}, r.whole, nil
}

// ListBegun lists what a directory keeps that nobody is receiving now, sorted by identity. What
// is no beginning is left out. Cost: reading it all.
func ListBegun(dir string) ([]Begun, error) {
	var all []Begun
	err := eachKept(dir, func(f *os.File) error {
		if b, _, err := scan(f); err == nil && b.Bytes > 0 && b.ID == filepath.Base(f.Name()) {
			all = append(all, b)
		}
		return nil
	})
	return all, err
}

// DropOlder removes what was kept before an instant, and answers with how many that
// were. What is being received stays.
func DropOlder(dir string, than time.Time) (n int, err error) {
	err = eachKept(dir, func(f *os.File) error {
		info, err := f.Stat()
		if err != nil || !info.ModTime().Before(than) {
			return err
		}
		n++
		return os.Remove(f.Name())
	})
	return n, err
}

// eachKept calls do for each file that no other process has, one at a time. What was not
// kept here is passed over, see [Strange].
func eachKept(dir string, do func(*os.File) error) error {
	entries, err := keptIn(dir)
	failures := []error{err}
	for _, e := range entries {
		f, err := lockedOurs(dir, e)
		switch {
		case errors.Is(err, errs.ErrBusy), errors.Is(err, errs.ErrNotFound), errors.Is(err, errStrange):
			continue
		case err == nil:
			err = do(f)
			f.Close()
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// Strange lists what lies in a directory for what is kept, or in its place, and was not
// kept there: nobody reads, writes or removes it.
func Strange(dir string) ([]string, error) {
	if info, err := os.Lstat(dir); err == nil && !info.IsDir() {
		return []string{dir}, nil
	}
	entries, err := keptIn(dir)
	failures := []error{err}
	var strange []string
	for _, e := range entries {
		f, err := lockedOurs(dir, e)
		switch {
		case err == nil:
			f.Close()
		case errors.Is(err, errStrange):
			strange = append(strange, filepath.Join(dir, e.Name()))
		case !errors.Is(err, errs.ErrBusy) && !errors.Is(err, errs.ErrNotFound):
			failures = append(failures, err)
		}
	}
	return strange, errors.Join(failures...)
}

// keptIn lists what a directory holds: nothing, where it is none.
func keptIn(dir string) ([]os.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return nil, keeping(dir, err)
	}
	return entries, nil
}

// errStrange says that something was not kept by [Keep].
var errStrange = errors.New("it is nothing that was kept")

// lockedOurs opens what was kept, as locked does. Errors: also errStrange.
func lockedOurs(dir string, e os.DirEntry) (*os.File, error) {
	path := filepath.Join(dir, e.Name())
	if !e.Type().IsRegular() || !snapshot.ValidID(e.Name()) {
		return nil, keeping(path, errStrange)
	}
	f, err := locked(path, os.O_RDWR)
	if errors.Is(err, errs.ErrDenied) { // somebody else's
		return nil, keeping(path, errStrange)
	}
	if err == nil {
		if err = ours(f); err != nil {
			f.Close()
			f = nil
		}
	}
	return f, err
}

// ours looks how a file begins: as a parcel does, as far as that was written. What was not
// when the machine went is missing, or zeros. Error: errStrange.
func ours(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return keeping(f.Name(), err)
	}
	start := make([]byte, len(magic))
	n := 0
	if info.Mode().IsRegular() {
		n, err = f.ReadAt(start, 0)
	} else {
		err = errStrange
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return keeping(f.Name(), err)
	}
	if !strings.HasPrefix(magic, strings.TrimRight(string(start[:n]), "\x00")) {
		return keeping(f.Name(), errStrange)
	}
	return nil
}

// A Skipper hands on what of a stream comes after its beginning, once that is what the
// other side has.
type Skipper struct {
	begun Begun
	// begin makes what the rest is written to.
	begin func() (io.Writer, error)
	to    io.Writer
	sum   hash.Hash
	left  int64
}

// ErrOther says that the stream does not begin with what the other side has.
var ErrOther = errors.New("it does not begin as before")

// NewSkipper skips what was begun, then calls begin, and writes the rest to that.
func NewSkipper(b Begun, begin func() (io.Writer, error)) *Skipper {
	return &Skipper{begun: b, begin: begin, sum: sha256.New(), left: b.Bytes}
}

// Write takes more of the stream. Errors: ErrOther, before anything was begun; those of what it writes to.
func (s *Skipper) Write(b []byte) (int, error) {
	n := int(min(s.left, int64(len(b))))
	s.sum.Write(b[:n])
	s.left -= int64(n)
	if s.left > 0 {
		return n, nil
	}
	if s.to == nil {
		if hex.EncodeToString(s.sum.Sum(nil)) != s.begun.Sum {
			return 0, ErrOther
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
