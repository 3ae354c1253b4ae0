package patch

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/internal/kernel"
)

// What git has no place for follows git's part: a line of JSON for each change,
// behind a word that makes git and patch(1) take it for a remark. Content that
// git refuses comes right after its record, in extents.
const (
	mark    = "#snapfs "
	opening = mark + "1: what git has no place for, for snapfs; git and patch skip it"
	extent  = mark + "extent " // offset and length in bytes; then lines of packed, then rest
	packed  = "#|"
	rest    = "#."
	closing = mark + "end " // and the number of records, and the SHA-256 of all lines from the opening on
)

// A record is a change, as the applier needs it.
type record struct {
	Path raw `json:"path"`
	// From is the path that held the content before, where it was another.
	From raw `json:"from,omitempty"`
	// Old and New are the two sides; neither where only Time says something.
	Old *facts `json:"old,omitempty"`
	New *facts `json:"new,omitempty"`
	// Git is the number of the file in git's part that makes the new content of
	// the old, counted from 1; 0 where none does.
	Git int `json:"git,omitempty"`
	// Extents is how many follow, which are written over the old content.
	Extents int `json:"extents,omitempty"`
	// Empty: the new content starts from nothing, not from the old one.
	Empty bool `json:"empty,omitempty"`
	// Time becomes that of a directory of which only that is told.
	Time stamp `json:"time,omitempty"`
}

// facts are a node, or what is expected of one.
type facts struct {
	// Mode is type and permissions as stat(2) has them, in octal.
	Mode   octal  `json:"mode"`
	UID    uint32 `json:"uid"`
	GID    uint32 `json:"gid"`
	MTime  stamp  `json:"mtime"`
	Size   int64  `json:"size,omitempty"`
	Target raw    `json:"target,omitempty"`
	Rdev   uint64 `json:"rdev,omitempty"`
	Xattrs []attr `json:"xattrs,omitempty"`
	// LinkOf is another name of the node, on the same side.
	LinkOf raw `json:"link_of,omitempty"`
	// ID tells the content: git's object id, or "sum:" and what diff.Sum says.
	ID string `json:"id,omitempty"`
}

type attr struct {
	Name  raw    `json:"name"`
	Value []byte `json:"value"`
}

// A raw is any bytes: a string in JSON where they are UTF-8, else an object with
// their base 64.
type raw string

// MarshalJSON writes it.
func (r raw) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(r)) {
		return json.Marshal(string(r))
	}
	return json.Marshal(struct {
		Base64 []byte `json:"base64"`
	}{[]byte(r)})
}

// UnmarshalJSON reads it.
func (r *raw) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '{' {
		var bytes struct {
			Base64 []byte `json:"base64"`
		}
		err := json.Unmarshal(data, &bytes)
		*r = raw(bytes.Base64)
		return err
	}
	return json.Unmarshal(data, (*string)(r))
}

// A stamp is seconds since 1970, a dot and nine digits; "" for none.
type stamp string

func stampOf(sec int64, nsec uint32) stamp { return stamp(fmt.Sprintf("%d.%09d", sec, nsec)) }

func (s stamp) time() (kernel.Timestamp, error) {
	whole, part, _ := strings.Cut(string(s), ".")
	sec, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		return kernel.Timestamp{}, err
	}
	nsec, err := strconv.ParseUint(part, 10, 32)
	if err != nil || nsec > 999_999_999 {
		return kernel.Timestamp{}, fmt.Errorf("%q is no time", string(s))
	}
	return kernel.Timestamp{Sec: sec, Nsec: uint32(nsec)}, nil
}

// An octal is a number that JSON has as a string of octal digits.
type octal uint32

// MarshalText writes it.
func (o octal) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%06o", uint32(o)), nil }

// UnmarshalText reads it.
func (o *octal) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 8, 32)
	*o = octal(n)
	return err
}

// The types of a mode, as stat(2) has them.
const (
	typeMask   octal = 0o170000
	typeFile   octal = 0o100000
	typeDir    octal = 0o040000
	typeLink   octal = 0o120000
	typeFifo   octal = 0o010000
	typeSocket octal = 0o140000
	typeChar   octal = 0o020000
	typeBlock  octal = 0o060000
)

func (f *facts) is(typ octal) bool { return f != nil && f.Mode&typeMask == typ }

func modeOf(m fs.FileMode) octal {
	bits := octal(m.Perm())
	for _, b := range []struct {
		set fs.FileMode
		bit octal
	}{{fs.ModeSetuid, 0o4000}, {fs.ModeSetgid, 0o2000}, {fs.ModeSticky, 0o1000}} {
		if m&b.set != 0 {
			bits |= b.bit
		}
	}
	switch {
	case m.IsRegular():
		return bits | typeFile
	case m.IsDir():
		return bits | typeDir
	case m&fs.ModeSymlink != 0:
		return bits | typeLink
	case m&fs.ModeNamedPipe != 0:
		return bits | typeFifo
	case m&fs.ModeSocket != 0:
		return bits | typeSocket
	case m&fs.ModeCharDevice != 0:
		return bits | typeChar
	}
	return bits | typeBlock
}

func factsOf(n *diff.Node) *facts {
	if n == nil {
		return nil
	}
	f := &facts{
		Mode: modeOf(n.Mode), UID: n.UID, GID: n.GID, Target: raw(n.Target), Rdev: n.Rdev,
		MTime: stampOf(n.MTime.Unix(), uint32(n.MTime.Nanosecond())),
	}
	if n.Mode.IsRegular() {
		f.Size = n.Size
	}
	for name, value := range n.Xattrs {
		f.Xattrs = append(f.Xattrs, attr{raw(name), []byte(value)})
	}
	slices.SortFunc(f.Xattrs, func(a, b attr) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return f
}
