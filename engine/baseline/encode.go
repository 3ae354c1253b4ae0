package baseline

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/errs"
)

// The file of a baseline has one line per path between the lines formatHead and formatEnd. Every plan, diff
// and drift report reads the file, and this format is read in a twentieth of the time of JSON. A line is:
//
//	PATH FLAGS DATA UNKNOWN NODE
//
// PATH, UNKNOWN and all names are quoted as in Go. FLAGS are c for Promoted and m for Created. DATA is the
// name of the file with the bytes. A NODE is mode, owner, group, size, modification time and change time
// (seconds.nanoseconds), inode, link count, device, link target, and name=value for each extended attribute.
// An absent field is "-". A line that starts with a tab is the Base of the entry before it, without PATH. The
// last line has the checksum of all others: an entry whose path was damaged would be missing at its own path,
// and a promotion could then take the user's newer file for the original. Files of oldHead have no checksum.
const (
	formatHead = "snapfs kept 3\n"
	formatEnd  = "end "
	oldHead    = "snapfs kept 2\n"
	oldEnd     = "end\n"
)

// checksum returns the checksum of the data of a baseline's file, or of another one of this package, as text.
func checksum(data []byte) string {
	return fmt.Sprintf("%08x", crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
}

// encode returns the originals of the baseline as the content of its file, a line for each, sorted by path;
// see formatHead.
func (k *Baseline) encode() []byte {
	b := []byte(formatHead)
	for _, path := range slices.Sorted(maps.Keys(k.Nodes)) {
		b = strconv.AppendQuote(b, path)
		n := k.Nodes[path]
		for e := &n; e != nil; e = e.Base {
			if e != &n {
				b = append(b, '\t')
			}
			b = e.encode(b)
		}
	}
	return fmt.Appendf(b, "%s%s\n", formatEnd, checksum(b))
}

// encode appends the line of one original in the file of a baseline, without its path, to b.
func (n *Entry) encode(b []byte) []byte {
	flags, data := "", n.Data
	if n.Promoted {
		flags = "c"
	}
	if n.Created {
		flags += "m"
	}
	for _, word := range []string{flags, data} {
		if word == "" {
			word = "-"
		}
		b = append(append(b, ' '), word...)
	}
	b = append(b, ' ')
	if n.Unknown == "" {
		b = append(b, '-')
	} else {
		b = strconv.AppendQuote(b, n.Unknown)
	}
	if n.Node == nil {
		return append(b, " -\n"...)
	}
	s := n.Node
	b = fmt.Appendf(b, " %d %d %d %d %d.%d %d.%d %d %d %d ", uint32(s.Mode), s.UID, s.GID, s.Size,
		s.MTime.Unix(), s.MTime.Nanosecond(), s.CTime.Unix(), s.CTime.Nanosecond(), s.Ino, s.NLink, s.Rdev)
	b = strconv.AppendQuote(b, s.Target)
	for _, name := range slices.Sorted(maps.Keys(s.Xattrs)) {
		b = strconv.AppendQuote(append(b, ' '), name)
		b = strconv.AppendQuote(append(b, '='), s.Xattrs[name])
	}
	return append(b, '\n')
}

// decode reads data, the content of a baseline's file that [Baseline.encode] wrote, into k: the original of
// each file that a sandbox changed.
func (k *Baseline) decode(data []byte) error {
	body, err := linesOf(data)
	if err != nil {
		return err
	}
	k.Nodes = make(map[string]Entry, bytes.Count(data, []byte{'\n'}))
	for body != "" {
		l := &lineReader{}
		l.rest, body, _ = strings.Cut(body, "\n")
		path := l.quoted()
		n := l.node()
		for last := &n; strings.HasPrefix(body, "\t"); last = last.Base {
			line, after, _ := strings.Cut(body[1:], "\n")
			l.rest, body = line, after
			base := l.node()
			last.Base = &base
		}
		if l.bad {
			return fmt.Errorf("malformed line for %q", path)
		}
		for e := &n; e != nil; e = e.Base {
			if e.Data != "" && e.Node != nil {
				k.bytes += e.Node.Size
			}
		}
		k.Nodes[path] = n
	}
	return nil
}

// errNewer means that a file of this package has the format of a newer snapfs.
var errNewer = errs.New("", "", errs.ErrNotSupported, "unknown format version (written by a newer snapfs?)")

// isNewer reports whether data, the content of a file of this package, begins as its known formats do, but
// with another number of the format. head is the first line of a known format.
func isNewer(data []byte, head string) bool {
	name := head[:strings.LastIndexByte(head, ' ')+1]
	line, _, whole := bytes.Cut(data, []byte{'\n'})
	version, found := bytes.CutPrefix(line, []byte(name))
	_, err := strconv.ParseUint(string(version), 10, 32)
	return whole && found && err == nil && !bytes.HasPrefix(data, []byte(head))
}

// linesOf returns the lines of data, the content of a baseline's file, without the first and the last one. It
// returns an error if the file is truncated or damaged, and errNewer for the format of a newer snapfs.
func linesOf(data []byte) (body string, err error) {
	if body, ok := strings.CutPrefix(string(data), oldHead); ok {
		if body, ok = strings.CutSuffix(body, oldEnd); !ok {
			return "", errors.New("the file is truncated")
		}
		return body, nil
	}
	body, ok := strings.CutPrefix(string(data), formatHead)
	switch {
	case !ok && isNewer(data, formatHead):
		return "", errNewer
	case !ok:
		return "", errors.New("the file is damaged: its first line does not name a format")
	}
	const last = len(formatEnd) + 8 + 1 // bytes of the last line
	if len(body) < last || !strings.HasSuffix(body, "\n") || !strings.HasPrefix(body[len(body)-last:], formatEnd) {
		return "", errors.New("the file is truncated")
	}
	if body[len(body)-9:len(body)-1] != checksum(data[:len(data)-last]) {
		return "", errors.New("the file is damaged: its checksum does not match")
	}
	return body[:len(body)-last], nil
}

// A lineReader parses the fields of one line, one original, of a baseline's file. The first malformed field
// sets bad; from then on the methods return zero values.
type lineReader struct {
	rest string
	bad  bool
}

// word returns the next field, a word, of a line of a baseline's file; "" if the word is "-".
func (l *lineReader) word() string {
	l.rest = strings.TrimPrefix(l.rest, " ")
	var word string
	if word, l.rest, _ = strings.Cut(l.rest, " "); word == "" {
		l.bad = true
	}
	if word == "-" {
		return ""
	}
	return word
}

// quoted returns the next field, a Go-quoted string, of a line of a baseline's file; "" if it is "-".
func (l *lineReader) quoted() string {
	l.rest = strings.TrimPrefix(l.rest, " ")
	if after, ok := strings.CutPrefix(l.rest, "-"); ok {
		l.rest = after
		return ""
	}
	text, err := strconv.QuotedPrefix(l.rest)
	if err == nil {
		l.rest = l.rest[len(text):]
		text, err = strconv.Unquote(text)
	}
	l.bad = l.bad || err != nil
	return text
}

// number returns the next field, an unsigned decimal number of at most bits bits, of a line of a baseline's
// file.
func (l *lineReader) number(bits int) uint64 {
	n, err := strconv.ParseUint(l.word(), 10, bits)
	l.bad = l.bad || err != nil
	return n
}

// time returns the next field, a time written as seconds.nanoseconds, of a line of a baseline's file.
func (l *lineReader) time() time.Time {
	sec, nsec, _ := strings.Cut(l.word(), ".")
	s, err := strconv.ParseInt(sec, 10, 64)
	n, err2 := strconv.ParseInt(nsec, 10, 64)
	l.bad = l.bad || err != nil || err2 != nil
	return time.Unix(s, n)
}

// node returns the entry, an original of a file, that the rest of a line of a baseline's file describes.
func (l *lineReader) node() Entry {
	flags := l.word()
	n := Entry{Promoted: strings.Contains(flags, "c"), Created: strings.Contains(flags, "m"), Data: l.word(), Unknown: l.quoted()}
	if l.rest = strings.TrimPrefix(l.rest, " "); l.rest == "-" {
		return n
	}
	n.Node = &diff.Node{
		Mode: fs.FileMode(l.number(32)), UID: uint32(l.number(32)), GID: uint32(l.number(32)), Size: int64(l.number(63)),
		MTime: l.time(), CTime: l.time(), Ino: l.number(64), NLink: uint32(l.number(32)), Rdev: l.number(64), Target: l.quoted(),
	}
	for l.rest != "" && !l.bad {
		name := l.quoted()
		after, ok := strings.CutPrefix(l.rest, "=")
		l.rest, l.bad = after, l.bad || !ok
		if n.Node.Xattrs == nil {
			n.Node.Xattrs = map[string]string{}
		}
		n.Node.Xattrs[name] = l.quoted()
	}
	return n
}
