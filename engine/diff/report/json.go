package report

import (
	"encoding/base64"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/snapfs/snapfs/engine/diff"
)

// The fields of the JSON form are part of snapfs's interface: none is renamed
// or dropped. Bytes that are not UTF-8 appear twice: readable, with U+FFFD for
// each run of them, and whole, in the field named with _base64. Times are RFC
// 3339 with nanoseconds, in UTC; modes are strings of octal digits.

// A Document is the JSON form of a list of changes, as snapfs diff --json prints it.
type Document struct {
	Changes []Change `json:"changes"`
	// Renames pairs added and deleted Changes, if renames were detected.
	Renames []Rename `json:"renames,omitempty"`
	Summary Summary  `json:"summary"`
}

// A Rename is the JSON form of [diff.Rename], a file or directory that moved.
type Rename struct {
	From       string `json:"from"`
	FromBase64 string `json:"from_base64,omitempty"`
	To         string `json:"to"`
	ToBase64   string `json:"to_base64,omitempty"`
	Exact      bool   `json:"exact"`
	Similarity int    `json:"similarity"`
	Directory  bool   `json:"directory"`
	// Entries is the number of entries of a directory that moved along and that neither changes
	// nor renames list.
	Entries int `json:"entries,omitempty"`
}

// A Change is the JSON form of [diff.Change], the difference at one path.
type Change struct {
	Path       string   `json:"path"`
	PathBase64 string   `json:"path_base64,omitempty"`
	Kind       string   `json:"kind"`
	What       []string `json:"what,omitempty"`
	Old        *Node    `json:"old,omitempty"`
	New        *Node    `json:"new,omitempty"`
}

// A Node is the JSON form of [diff.Node]. Type is file, directory, symlink,
// fifo, socket, "character device" or "block device".
type Node struct {
	Type         string            `json:"type"`
	Mode         string            `json:"mode"`
	UID          uint32            `json:"uid"`
	GID          uint32            `json:"gid"`
	Size         int64             `json:"size"`
	MTime        string            `json:"mtime"`
	CTime        string            `json:"ctime"`
	Target       string            `json:"target,omitempty"`
	TargetBase64 string            `json:"target_base64,omitempty"`
	Rdev         uint64            `json:"rdev,omitempty"`
	XattrsBase64 map[string]string `json:"xattrs_base64,omitempty"`
	LinkOf       string            `json:"link_of,omitempty"`
	LinkOfBase64 string            `json:"link_of_base64,omitempty"`
	NLink        uint32            `json:"nlink"`
	Ino          uint64            `json:"ino"`
}

// A Summary is the JSON form of [diff.Summary]; sizes in bytes. A renamed path also counts as
// added and as deleted; a directory of which only the time changed is not counted. The entries of a
// renamed directory that are not listed are counted, except in bytes.
type Summary struct {
	Added    int   `json:"added"`
	Modified int   `json:"modified"`
	Deleted  int   `json:"deleted"`
	Renamed  int   `json:"renamed"`
	Grown    int64 `json:"bytes_added"`
	Shrunk   int64 `json:"bytes_removed"`
}

// Of returns the JSON form of changes and renames, for a command that adds further fields.
func Of(changes []diff.Change, renames ...diff.Rename) Document {
	s := diff.Summarise(slices.DeleteFunc(slices.Clone(changes), diff.Change.TimeOnly))
	d := Document{
		Changes: make([]Change, 0, len(changes)),
		Summary: Summary{s.Added, s.Modified, s.Deleted, diff.Paths(renames), int64(s.Grown), int64(s.Shrunk)},
	}
	for _, r := range renames {
		j := Rename{Exact: r.Exact, Similarity: r.Similarity, Directory: r.Dir, Entries: r.Entries}
		j.From, j.FromBase64 = text(r.From)
		j.To, j.ToBase64 = text(r.To)
		d.Renames = append(d.Renames, j)
	}
	for _, c := range changes {
		j := Change{Kind: c.Kind.String(), Old: node(c.Old), New: node(c.New)}
		j.Path, j.PathBase64 = text(c.Path)
		if c.What != 0 {
			j.What = c.What.Names()
		}
		d.Changes = append(d.Changes, j)
	}
	return d
}

func node(n *diff.Node) *Node {
	if n == nil {
		return nil
	}
	j := &Node{
		Type: diff.TypeName(n.Mode), Mode: diff.Octal(n.Mode), UID: n.UID, GID: n.GID, Size: n.Size,
		MTime: stamp(n.MTime), CTime: stamp(n.CTime), Rdev: n.Rdev, NLink: n.NLink, Ino: n.Ino,
	}
	j.Target, j.TargetBase64 = text(n.Target)
	j.LinkOf, j.LinkOfBase64 = text(n.LinkOf)
	for name, value := range n.Xattrs {
		if j.XattrsBase64 == nil {
			j.XattrsBase64 = make(map[string]string, len(n.Xattrs))
		}
		j.XattrsBase64[name] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	return j
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000000Z07:00") }

// text returns a string as JSON can hold it. If that loses bytes, because they are not UTF-8, whole is the
// base 64 form of the whole string, else "".
func text(s string) (readable, whole string) {
	if utf8.ValidString(s) {
		return s, ""
	}
	return strings.ToValidUTF8(s, "\ufffd"), base64.StdEncoding.EncodeToString([]byte(s))
}
