//go:build linux

package btrfs

import (
	"errors"
	"math"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/btrfs"
)

// nestedName is the name of the file, in the directory of a snapshot or fork, that has the ancestors of the
// subvolumes nested in its tree. See [lineage].
const nestedName = "nested"

const nestedFormat = "snapfs btrfs nested 1\n"

// A lineage has, by the UUID of a subvolume, the older ancestors of that subvolume. A snapshot or fork records
// those of each subvolume of which it has a nested copy, because the kernel reports only the parent of a
// subvolume, and the parent's own parent no longer after the parent has been deleted. As a file:
//
//	snapfs btrfs nested 1
//	0b4b7a1c-… 7f2c…:1234 91aa…:1240
//	end
//
// A subvolume that is missing in it has no known ancestor but its parent. Comparing it may then list the whole
// subvolume, and never too little.
type lineage map[string][]ancestor

// of returns the ancestors of the nested subvolume info, a copy that the snapshot or fork with the lineage l
// contains, and info itself as the last. The caller may change the result, which shares nothing with l.
func (l lineage) of(info btrfs.Subvolume) []ancestor {
	var line []ancestor
	if info.Parent != (btrfs.UUID{}) {
		parent := info.Parent.String()
		line = append(slices.Clone(l[parent]), ancestor{parent, info.Born})
	}
	return append(line, ancestor{info.UUID.String(), math.MaxUint64})
}

// add records the ancestors of the nested subvolume info, which is about to be copied and lies in a tree with
// the lineage from.
func (l lineage) add(info btrfs.Subvolume, from lineage) {
	line := from.of(info)
	l[info.UUID.String()] = line[:len(line)-1]
}

func (l lineage) text() string {
	var s strings.Builder
	s.WriteString(nestedFormat)
	for uuid, line := range l {
		s.WriteString(uuid)
		writeLine(&s, line)
		s.WriteString("\n")
	}
	s.WriteString("end\n")
	return s.String()
}

// parseLineage parses text, the content of a file with a [lineage], the ancestors of nested subvolumes. It
// returns nil if the text is cut off or malformed.
func parseLineage(text string) lineage {
	body, whole := strings.CutPrefix(text, nestedFormat)
	body, end := strings.CutSuffix(body, "end\n")
	if !whole || !end {
		return nil
	}
	l := lineage{}
	for row := range strings.Lines(body) {
		uuid, rest, _ := strings.Cut(strings.TrimSuffix(row, "\n"), " ")
		line, err := parseLine(rest)
		if err != nil {
			return nil
		}
		l[uuid] = line
	}
	return l
}

// writeLineage writes the lineage of the snapshot or fork e, which is being made, to a file: the ancestors of
// the subvolumes nested in it.
func (e *entry) writeLineage(l lineage) error {
	return e.data.writeNew(e.path+"/"+nestedName, l.text())
}

// readLineage returns the lineage of the snapshot or fork in the directory path: the ancestors of the
// subvolumes nested in it. It is nil if none was recorded, if a crash has left the record incomplete, or if
// the record is larger than 16 MiB.
func (r dataDir) readLineage(path string) (lineage, error) {
	text, err := r.readText(path+"/"+nestedName, 16<<20)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return parseLineage(text), err
}

// nestedSide opens the subvolume at path in the tree of s, which is being compared, to compare it with the one
// at the same path in the other tree. The caller must close the result.
func (s *side) nestedSide(path string) (*side, error) {
	n := &side{within: ".", ino: btrfs.RootInode, nested: s.nested}
	var err error
	if n.fd, err = openIn(s.top, path); err != nil {
		return nil, err
	}
	if n.top, err = openIn(n.fd, "."); err != nil {
		unix.Close(n.fd)
		return nil, err
	}
	if n.info, err = btrfs.Info(n.fd); err != nil {
		n.close()
		return nil, err
	}
	n.line = s.nested.of(n.info)
	return n, nil
}
