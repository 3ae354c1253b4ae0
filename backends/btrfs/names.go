//go:build linux

package btrfs

import (
	"path/filepath"

	"github.com/snapfs/snapfs/internal/btrfs"
)

// A namer finds the paths, relative to the tree, of inodes that a search of btrfs's metadata has found
// changed.
type namer struct {
	fd   int
	dirs map[uint64]string // "" for a directory outside the tree
	// known has the complete names of some inodes.
	known map[uint64][]btrfs.Name
}

// newNamer returns a [namer], which finds the paths of changed inodes, for the subvolume fd. Its paths are
// relative to the directory with inode number top.
func newNamer(fd int, top uint64) *namer {
	return &namer{fd: fd, dirs: map[uint64]string{top: "."}, known: map[uint64][]btrfs.Name{}}
}

// paths returns all paths, relative to the tree, of the inode with number ino; none if it is outside of the
// tree. An inode with several hard links has several.
func (n *namer) paths(ino uint64) ([]string, error) {
	if dir, ok := n.dirs[ino]; ok {
		if dir == "" {
			return nil, nil
		}
		return []string{dir}, nil
	}
	names, err := n.names(ino, 0)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, name := range names {
		dir, err := n.dir(name.Inode, 0)
		if err != nil {
			return nil, err
		}
		if dir != "" {
			paths = append(paths, filepath.Join(dir, name.Name))
		}
	}
	return paths, nil
}

// dir returns the path, relative to the tree, of the directory with inode number ino, or "" if the directory
// is outside the tree. It calls itself for the parent with a depth higher by one; a directory 100 000 levels
// deep counts as outside.
func (n *namer) dir(ino uint64, depth int) (string, error) {
	if path, ok := n.dirs[ino]; ok {
		return path, nil
	}
	path := ""
	if ino != btrfs.RootInode && depth < 100_000 {
		names, err := n.names(ino, 1) // a directory has one name
		if err != nil {
			return "", err
		}
		if len(names) > 0 {
			up, err := n.dir(names[0].Inode, depth+1)
			if err != nil {
				return "", err
			}
			if up != "" {
				path = filepath.Join(up, names[0].Name)
			}
		}
	}
	n.dirs[ino] = path
	return path, nil
}

// dropIfIncomplete drops the names that a search of the metadata has found for the changed inode ino, unless
// they are as many as links, its link count. Without names in memory, all names of the inode are looked up.
func (n *namer) dropIfIncomplete(ino, links uint64) {
	if uint64(len(n.known[ino])) != links {
		delete(n.known, ino)
	}
}

// names returns the names of the changed inode ino, each with the directory that has it. It reads at most most
// items of the metadata, 0 for all. One is enough for a directory, which has one name, and takes a third of the
// time: see [btrfs.Range.Most].
func (n *namer) names(ino uint64, most uint32) ([]btrfs.Name, error) {
	if names, ok := n.known[ino]; ok {
		return names, nil
	}
	var names []btrfs.Name
	r := btrfs.Range{MinObject: ino, MaxObject: ino, MinType: btrfs.InodeRef, MaxType: btrfs.InodeXref, Most: most}
	err := btrfs.Search(n.fd, r, func(it btrfs.Item) bool {
		if it.Type == btrfs.InodeRef || it.Type == btrfs.InodeXref {
			names = append(names, it.Names()...)
		}
		return true
	})
	return names, err
}
