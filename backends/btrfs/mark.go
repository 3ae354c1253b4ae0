//go:build linux

package btrfs

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A mark is the text file that describes a snapshot or fork. It is written before the subvolume is made,
// whose commit makes it durable:
//
//	snapfs btrfs 1
//	one of forks
//	tree "/home/ann/work"
//	within "ann/work"
//	base s1
//	taken 2026-11-20T19:09:26.123456789Z
//	from 0b4b7a1c-…
//	line 7f2c…:1234 91aa…:1240
type mark struct {
	kind   string // the parent directory: snapshots or forks
	tree   string // the captured tree that all of line descends from
	within string // the path of the tree in the subvolume
	base   string // of a fork: the snapshot it was forked from or last sealed into
	taken  time.Time
	// from is the UUID of the subvolume that was copied at the transaction that made this one; ""
	// if line includes it.
	from string
	// line lists the older ancestors of the fork or snapshot, each with the number of a btrfs
	// transaction.
	line []ancestor
}

// An ancestor is a subvolume from which a snapshot or fork descends, with the number of the btrfs transaction
// whose state of it was copied. Two subvolumes with a common ancestor can be compared from there on.
type ancestor struct {
	uuid string
	at   uint64
}

const markFormat = "snapfs btrfs 1\n"

func (m mark) text() string {
	var s strings.Builder
	s.WriteString(markFormat)
	s.WriteString("one of " + m.kind + "\ntree " + strconv.Quote(m.tree) + "\nwithin " + strconv.Quote(m.within))
	if m.base != "" {
		s.WriteString("\nbase " + m.base)
	}
	s.WriteString("\ntaken " + m.taken.UTC().Format(time.RFC3339Nano))
	if m.from != "" {
		s.WriteString("\nfrom " + m.from)
	}
	s.WriteString("\nline")
	writeLine(&s, m.line)
	s.WriteString("\n")
	return s.String()
}

func writeLine(s *strings.Builder, line []ancestor) {
	for _, a := range line {
		s.WriteString(" " + a.uuid + ":" + strconv.FormatUint(a.at, 10))
	}
}

func parseMark(text string) (m mark, err error) {
	body, ok := strings.CutPrefix(text, markFormat)
	if !ok || !strings.HasSuffix(body, "\n") {
		return m, corrupt("the mark has a format that this version cannot read")
	}
	for row := range strings.Lines(body) {
		key, value, _ := strings.Cut(strings.TrimSuffix(row, "\n"), " ")
		switch key {
		case "one":
			m.kind = strings.TrimPrefix(value, "of ")
		case "tree":
			m.tree, err = strconv.Unquote(value)
		case "within":
			m.within, err = strconv.Unquote(value)
		case "base":
			m.base = value
		case "taken":
			m.taken, err = time.Parse(time.RFC3339Nano, value)
		case "from":
			m.from = value
		case "line":
			m.line, err = parseLine(value)
		}
		if err != nil {
			return m, corrupt("the mark has an invalid value of " + key)
		}
	}
	if m.kind == "" || m.tree == "" || m.within == "" || m.taken.IsZero() {
		return m, corrupt("the mark is incomplete")
	}
	return m, nil
}

func parseLine(s string) ([]ancestor, error) {
	line := make([]ancestor, 0, strings.Count(s, ":"))
	for f := range strings.FieldsSeq(s) {
		uuid, at, _ := strings.Cut(f, ":")
		n, err := strconv.ParseUint(at, 10, 64)
		if err != nil {
			return nil, err
		}
		line = append(line, ancestor{uuid, n})
	}
	return line, nil
}

func (r dataDir) writeMark(path string, m mark) error { return r.writeNew(path, m.text()) }

// writeNew writes text to a new file at path, which only its owner may read.
func (r dataDir) writeNew(path, text string) error {
	fd, err := unix.Openat(r.fd, path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func (r dataDir) readMark(entry string) (mark, error) {
	text, err := r.readText(entry+"/"+markName, 1<<20)
	if err != nil {
		return mark{}, err
	}
	return parseMark(text)
}

// isMarkOf reports whether the mark of an entry begins as that of a snapshot or fork in the directory kind. If
// so, the entry is of this kind, or its mark is damaged; if not, only the whole mark tells. A mark may be long:
// it lists all ancestors.
func (r dataDir) isMarkOf(kind, entry string) bool {
	fd, err := vfs.OpenBeneathFD(r.fd, entry+"/"+markName, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	want := markFormat + "one of " + kind + "\n"
	start := make([]byte, len(want))
	n, err := unix.Pread(fd, start, 0)
	return err == nil && string(start[:n]) == want
}

// readText returns the first most bytes of the file at path in the data directory, such as a fork's
// description.
func (r dataDir) readText(path string, most int64) (string, error) {
	fd, err := vfs.OpenBeneathFD(r.fd, path, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	text, err := vfs.ReadFD(fd, most)
	if err != nil {
		return "", &os.PathError{Op: "read", Path: path, Err: err}
	}
	return string(text), nil
}

func (b *Backend) path(kind, id, within string) string {
	p := b.home() + "/" + b.key + "/" + kind + "/" + id + "/" + treeName
	if within != "." {
		p += "/" + within
	}
	return p
}

func (b *Backend) snapshotOf(id snapshot.ID, m mark) snapshot.Snapshot {
	return snapshot.Snapshot{
		ID: id, Tree: snapshot.Tree{Path: m.tree}, Taken: m.taken, Frozen: true,
		View: snapshot.View{Path: b.path(snapshots, string(id), m.within)},
	}
}

func (b *Backend) forkOf(id snapshot.ForkID, m mark) snapshot.Fork {
	return snapshot.Fork{
		ID: id, Base: snapshot.ID(m.base),
		View: snapshot.View{Path: b.path(forks, string(id), m.within)},
	}
}
