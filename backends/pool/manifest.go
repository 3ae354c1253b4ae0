//go:build linux

package pool

import (
	"encoding/binary"
	"errors"
	"os"
	"sort"

	"github.com/snapfs/snapfs/internal/vfs"
)

// A manifest says, for each directory of a workspace, what was in it when it
// was last copied: enough to tell, without looking at the copy, what has
// changed since. A file that is renamed or written to gets another ctime; one
// below a directory that was renamed does not, which is why directories are
// told apart by their inodes.
//
// On disk it is one block a directory, in any order: the length of the rest,
// the path, and for each entry its name and its node. All numbers are
// little-endian.
type manifest map[string][]byte

const manifestMagic = "snapfs manifest 1\n"

// A node is what is compared of a file.
type node struct {
	ino          uint64
	mode         uint32
	size         int64
	mtime, ctime vfs.Timestamp
}

type named struct {
	name string
	node
}

func nodeOf(st *vfs.Stat) node {
	n := node{ino: st.Ino, mode: st.Mode, size: st.Size, mtime: st.MTime, ctime: st.CTime}
	if st.IsDir() {
		n.size = 0
	}
	return n
}

const nodeSize = 8 + 4 + 8 + 12 + 12

func appendNode(b []byte, n node) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, n.ino)
	b = le.AppendUint32(b, n.mode)
	b = le.AppendUint64(b, uint64(n.size))
	for _, t := range []vfs.Timestamp{n.mtime, n.ctime} {
		b = le.AppendUint64(b, uint64(t.Sec))
		b = le.AppendUint32(b, t.Nsec)
	}
	return b
}

func readNode(b []byte) node {
	le := binary.LittleEndian
	at := func(b []byte) vfs.Timestamp {
		return vfs.Timestamp{Sec: int64(le.Uint64(b)), Nsec: le.Uint32(b[8:])}
	}
	return node{
		ino: le.Uint64(b), mode: le.Uint32(b[8:]), size: int64(le.Uint64(b[12:])),
		mtime: at(b[20:]), ctime: at(b[32:]),
	}
}

func appendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}

// block is a directory as it stands in the file.
func block(path string, entries []named) []byte {
	b := appendString(make([]byte, 4, 64+len(entries)*(nodeSize+24)), path)
	for _, e := range entries {
		b = appendNode(appendString(b, e.name), e.node)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

var errManifest = errors.New("the manifest cannot be read")

func cutString(b []byte) (string, []byte, error) {
	if len(b) < 4 {
		return "", nil, errManifest
	}
	n := int(binary.LittleEndian.Uint32(b))
	if n < 0 || len(b) < 4+n {
		return "", nil, errManifest
	}
	return string(b[4 : 4+n]), b[4+n:], nil
}

// readManifest reads a manifest; one that is missing is empty.
func readManifest(path string) (manifest, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return manifest{}, nil
	}
	if err != nil {
		return nil, err
	}
	return parseManifest(b)
}

func parseManifest(b []byte) (manifest, error) {
	if len(b) < len(manifestMagic) || string(b[:len(manifestMagic)]) != manifestMagic {
		return nil, errManifest
	}
	m := manifest{}
	for b = b[len(manifestMagic):]; len(b) > 0; {
		if len(b) < 4 {
			return nil, errManifest
		}
		n := int(binary.LittleEndian.Uint32(b))
		if n < 4 || len(b) < 4+n {
			return nil, errManifest
		}
		dir, rest, err := cutString(b[4 : 4+n])
		if err != nil {
			return nil, err
		}
		m[dir] = rest
		b = b[4+n:]
	}
	return m, nil
}

// dir lists what was in a directory, sorted by name; false: it is not known.
func (m manifest) dir(path string) ([]named, bool) {
	b, known := m[path]
	var list []named
	for len(b) > 0 {
		name, rest, err := cutString(b)
		if err != nil || len(rest) < nodeSize {
			return nil, false
		}
		list = append(list, named{name, readNode(rest)})
		b = rest[nodeSize:]
	}
	return list, known
}

// find looks a name up in a sorted list.
func find(list []named, name string) (node, bool) {
	i := sort.Search(len(list), func(i int) bool { return list[i].name >= name })
	if i < len(list) && list[i].name == name {
		return list[i].node, true
	}
	return node{}, false
}
