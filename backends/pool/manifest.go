//go:build linux

package pool

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sort"

	"github.com/snapfs/snapfs/internal/vfs"
)

// A manifest records the entries of each directory of a workspace at its last import. With it, the next
// import finds changes without reading the pool's copy. A file that is renamed or written to gets a new
// ctime. A file inside a renamed directory does not, so directories are identified by inode.
//
// On disk a manifest is a sequence of blocks, one for each directory, in any order: the length of the rest,
// the path, and for each entry its name and its inode data. All numbers are little-endian.
type manifest map[string][]byte

const manifestMagic = "snapfs manifest 1\n"

// An inode is the metadata of a file at the last import. The next import compares it with the present
// metadata to find whether the file has changed.
type inode struct {
	ino          uint64
	mode         uint32
	size         int64
	mtime, ctime vfs.Timestamp
}

type named struct {
	name string
	inode
}

func inodeOf(st *vfs.Stat) inode {
	n := inode{ino: st.Ino, mode: st.Mode, size: st.Size, mtime: st.MTime, ctime: st.CTime}
	if st.IsDir() {
		n.size = 0
	}
	return n
}

const inodeSize = 8 + 4 + 8 + 12 + 12

func appendInode(b []byte, n inode) []byte {
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

func readInode(b []byte) inode {
	le := binary.LittleEndian
	at := func(b []byte) vfs.Timestamp {
		return vfs.Timestamp{Sec: int64(le.Uint64(b)), Nsec: le.Uint32(b[8:])}
	}
	return inode{
		ino: le.Uint64(b), mode: le.Uint32(b[8:]), size: int64(le.Uint64(b[12:])),
		mtime: at(b[20:]), ctime: at(b[32:]),
	}
}

func appendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}

// block returns the text, in a manifest file (the state of a workspace at its last import), for the directory
// at path with these entries.
func block(path string, entries []named) []byte {
	b := appendString(make([]byte, 4, 64+len(entries)*(inodeSize+24)), path)
	for _, e := range entries {
		b = appendInode(appendString(b, e.name), e.inode)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

var errManifest = errors.New("the manifest is invalid")

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

// readManifest reads the manifest of an import from the file path; a missing one is empty. When ctx ends it
// returns its error.
func readManifest(ctx context.Context, path string) (manifest, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return manifest{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var b bytes.Buffer
	for err == nil {
		if err = ctx.Err(); err == nil {
			_, err = io.CopyN(&b, f, 1<<20)
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return parseManifest(ctx, b.Bytes())
}

func parseManifest(ctx context.Context, b []byte) (manifest, error) {
	if len(b) < len(manifestMagic) || string(b[:len(manifestMagic)]) != manifestMagic {
		return nil, errManifest
	}
	m := manifest{}
	for b = b[len(manifestMagic):]; len(b) > 0; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
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

// dir returns the entries of the workspace's directory at path as the last import found them, sorted by name.
// It returns false if the manifest, which lists the files of that import, does not have the directory.
func (m manifest) dir(path string) ([]named, bool) {
	b, known := m[path]
	var list []named
	for len(b) > 0 {
		name, rest, err := cutString(b)
		if err != nil || len(rest) < inodeSize {
			return nil, false
		}
		list = append(list, named{name, readInode(rest)})
		b = rest[inodeSize:]
	}
	return list, known
}

// find returns the inode data of name in a list of a directory's entries, sorted by name, and false if it has
// none.
func find(list []named, name string) (inode, bool) {
	i := sort.Search(len(list), func(i int) bool { return list[i].name >= name })
	if i < len(list) && list[i].name == name {
		return list[i].inode, true
	}
	return inode{}, false
}
