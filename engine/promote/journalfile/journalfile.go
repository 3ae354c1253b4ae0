// Package journalfile reads and writes the lines of a promotion's journal, a text file in the state directory, and
// locks that directory. Each line starts with its CRC-32C. What the lines mean is not its matter.
package journalfile

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/promote/nodes"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Lock locks a state directory, so that one promotion runs at a time; with create it makes the directory
// if it is missing. Closing the file releases the lock. ErrBusy: another promotion holds the lock.
func Lock(dir string, create bool) (*os.File, error) {
	if create {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = vfs.Flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &errs.Error{Op: "applying", Path: dir, Kind: errs.ErrBusy, Err: errors.New("another promotion is running")}
		}
		return nil, err
	}
	return f, nil
}

// Append appends lines to the journal of a promotion and syncs it, so that they survive a power loss.
func Append(f *os.File, l Lines) error {
	if _, err := f.Write(l); err != nil {
		return err
	}
	return f.Sync()
}

// Lines is a buffer of lines of a promotion's journal, each with its checksum.
type Lines []byte

// Add appends a line of a promotion's journal: its checksum and its text, which is formatted as by fmt.Sprintf.
func (l *Lines) Add(format string, args ...any) {
	start := len(*l)
	text := fmt.Appendf(append(*l, "xxxxxxxx "...), format, args...)
	copy(text[start:], fmt.Sprintf("%08x", checksum(text[start+9:])))
	*l = append(text, '\n')
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// Text returns the text of a line of a journal without its checksum. ok is false for a line that is damaged.
func Text(line []byte) (string, bool) {
	if len(line) < 9 || line[8] != ' ' {
		return "", false
	}
	sum, err := strconv.ParseUint(string(line[:8]), 16, 32)
	return string(line[9:]), err == nil && uint32(sum) == checksum(line[9:])
}

// A Fields splits a line of a promotion's journal into its fields. The first malformed field sets Bad, which
// stays set.
type Fields struct {
	Rest string
	Bad  bool
}

// Word returns the next field, up to a blank.
func (f *Fields) Word() string {
	var w string
	w, f.Rest, _ = strings.Cut(f.Rest, " ")
	f.Bad = f.Bad || w == ""
	return w
}

// Quoted returns the next field, which is in quotes as by strconv.Quote.
func (f *Fields) Quoted() string {
	q, err := strconv.QuotedPrefix(f.Rest)
	if err != nil {
		f.Bad = true
		return ""
	}
	f.Rest = strings.TrimPrefix(f.Rest[len(q):], " ")
	s, err := strconv.Unquote(q)
	f.Bad = f.Bad || err != nil
	return s
}

// Number returns the next field as a number to base.
func (f *Fields) Number(base int) uint64 { return f.parse(f.Word(), base) }

func (f *Fields) parse(s string, base int) uint64 {
	n, err := strconv.ParseUint(s, base, 64)
	f.Bad = f.Bad || err != nil
	return n
}

// Time returns s, a field, as [Stamp] has written it, as a time.
func (f *Fields) Time(s string) vfs.Timestamp {
	a, b, _ := strings.Cut(s, ".")
	sec, err := strconv.ParseInt(a, 10, 64)
	f.Bad = f.Bad || err != nil
	return vfs.Timestamp{Sec: sec, Nsec: uint32(f.parse(b, 10))}
}

// Ident returns the next field, as [Ident] has written it, as an identity.
func (f *Fields) Ident() nodes.Ident {
	w := f.Word()
	if w == "-" {
		return nodes.Ident{}
	}
	p := strings.Split(w, "/")
	if len(p) != 7 {
		f.Bad = true
		return nodes.Ident{}
	}
	return nodes.Ident{
		Ino: f.parse(p[0], 10), BTime: f.Time(p[1]), MTime: f.Time(p[2]), Mode: uint32(f.parse(p[3], 8)),
		UID: uint32(f.parse(p[4], 10)), GID: uint32(f.parse(p[5], 10)), Size: int64(f.parse(p[6], 10)),
	}
}

// Timestamp returns t as the journal stores times.
func Timestamp(t time.Time) vfs.Timestamp {
	return vfs.Timestamp{Sec: t.Unix(), Nsec: uint32(t.Nanosecond())}
}

// Stamp returns t as text, seconds and nanoseconds.
func Stamp(t vfs.Timestamp) string {
	return strconv.FormatInt(t.Sec, 10) + "." + strconv.FormatUint(uint64(t.Nsec), 10)
}

// Ident returns an identity as text: inode/birth/mtime/mode/uid/gid/size, the mode in octal; "-" for none.
func Ident(i nodes.Ident) string {
	if i == (nodes.Ident{}) {
		return "-"
	}
	return fmt.Sprintf("%d/%s/%s/%o/%d/%d/%d", i.Ino, Stamp(i.BTime), Stamp(i.MTime), i.Mode, i.UID, i.GID, i.Size)
}

// Names lists the names of the files in a state directory that are journals of promotions and end in one
// of the suffixes. Cost: one readdir.
func Names(dir string, suffixes ...string) ([]string, error) {
	f, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	names = slices.DeleteFunc(names, func(n string) bool { return !slices.Contains(suffixes, filepath.Ext(n)) })
	slices.Sort(names)
	return names, err
}
