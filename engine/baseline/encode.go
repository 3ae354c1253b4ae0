package baseline

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
)

// What is kept of a base is read by every plan, diff and drift: it is a text of
// one line a place, which is read in a twentieth of the time that JSON takes.
//
//	snapfs kept 2
//	PATH FLAGS DATA UNKNOWN NODE
//
// PATH, UNKNOWN and all names are strings of Go. FLAGS are of c for Carried and m
// for Made. A NODE is its mode, owner, group, size, modification and change time
// as seconds.nanoseconds, inode, link count, device, target, and name=value for
// each attribute. What is not there is "-". A line that a tab begins is the Base
// of the one before it, without a path. The last line is "end".
const (
	keptHead = "snapfs kept 2\n"
	keptEnd  = "end\n"
)

// encode is a kept list as it is written, in the order of paths.
func (k *Baseline) encode() []byte {
	b := []byte(keptHead)
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
	return append(b, keptEnd...)
}

func (n *Entry) encode(b []byte) []byte {
	flags, data := "", n.Data
	if n.Carried {
		flags = "c"
	}
	if n.Made {
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

// decode reads what encode wrote.
func (k *Baseline) decode(data []byte) error {
	body, ok := strings.CutPrefix(string(data), keptHead)
	if !ok {
		return errors.New("it is of a version that this snapfs does not know")
	}
	body, ok = strings.CutSuffix(body, keptEnd)
	if !ok {
		return errors.New("its end is missing")
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
			return fmt.Errorf("the line of %q is none", path)
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

// A lineReader is what is left of a line.
type lineReader struct {
	rest string
	bad  bool
}

// word is the next word, "" for a dash.
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

func (l *lineReader) number(bits int) uint64 {
	n, err := strconv.ParseUint(l.word(), 10, bits)
	l.bad = l.bad || err != nil
	return n
}

func (l *lineReader) time() time.Time {
	sec, nsec, _ := strings.Cut(l.word(), ".")
	s, err := strconv.ParseInt(sec, 10, 64)
	n, err2 := strconv.ParseInt(nsec, 10, 64)
	l.bad = l.bad || err != nil || err2 != nil
	return time.Unix(s, n)
}

func (l *lineReader) node() Entry {
	flags := l.word()
	n := Entry{Carried: strings.Contains(flags, "c"), Made: strings.Contains(flags, "m"), Data: l.word(), Unknown: l.quoted()}
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
