//go:build linux

package btrfs

import (
	"context"
	"errors"
	"math"
	"path/filepath"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/btrfs"
	"golang.org/x/sys/unix"
)

// A scan finds the differences between the trees a and b, which were equal at the btrfs transaction since,
// and calls emit with each path.
type scan struct {
	ctx   context.Context
	since uint64
	a, b  *side
	emit  func(snapshot.Candidate) bool
}

func (s *scan) run() error {
	dirs := map[uint64]bool{}
	var namers [2]*namer
	for i, side := range []*side{s.a, s.b} {
		names := newNamer(side.fd, side.ino)
		namers[i] = names
		old, changed, err := s.changed(side, names)
		if err != nil {
			return searchError(err)
		}
		isDir := make(map[uint64]bool, len(changed))
		for _, ino := range changed {
			isDir[ino] = true
		}
		for _, ino := range old {
			if err := s.ctx.Err(); err != nil {
				return err
			}
			if err := s.emitNames(names, ino, isDir[ino]); err != nil {
				return searchError(err)
			}
		}
		for _, ino := range changed {
			if !dirs[ino] {
				dirs[ino] = true
				if err := s.compareDir(names, ino); err != nil {
					return searchError(err)
				}
			}
		}
	}
	for ino := range dirs {
		if err := s.emitRenamed(namers, ino); err != nil {
			return searchError(err)
		}
	}
	return nil
}

// emitRenamed yields the directory ino, which both trees had at the transaction since, if it has another name
// in them or is in another directory. namers find the paths in the two trees.
func (s *scan) emitRenamed(namers [2]*namer, ino uint64) error {
	var name [2]btrfs.Name
	var path [2]string
	for i, n := range namers {
		names, err := n.names(ino, 1)
		if err != nil || len(names) != 1 {
			return err
		}
		name[i] = names[0]
		paths, err := n.paths(ino)
		if err != nil || len(paths) != 1 {
			return err
		}
		path[i] = paths[0]
	}
	if name[0] != name[1] && path[0] != "." && path[1] != "." && !s.emit(snapshot.Candidate{Path: path[1], Tree: true, RenamedFrom: path[0]}) {
		return errEnough
	}
	return nil
}

func searchError(err error) error {
	if err == unix.EPERM {
		return &errs.Error{
			Kind: errs.ErrNotSupported, Err: errors.New("only root can read the filesystem's record of changes"),
		}
	}
	return err
}

// changed lists the inodes of one tree (side) that existed at the transaction since and have changed after
// it, and which of them are directories. Newer inodes are found by their names in changed directories. While
// it searches the metadata, changed stores in names each file name that it comes across.
func (s *scan) changed(side *side, names *namer) (old, dirs []uint64, err error) {
	if side.info.ReadOnly && side.info.Born <= s.since {
		return nil, nil, nil
	}
	all := btrfs.Range{MinObject: btrfs.RootInode, MaxObject: math.MaxUint64 - 255, NewerThan: s.since}
	var last, links uint64 // the inode whose name items follow, and its number of links
	err = btrfs.Search(side.fd, all, func(it btrfs.Item) bool {
		if it.Type == btrfs.InodeRef || it.Type == btrfs.InodeXref {
			if it.Object == last {
				names.known[last] = append(names.known[last], it.Names()...)
			}
			return true
		}
		if last != 0 && it.Object != last {
			names.dropIfIncomplete(last, links)
			last = 0
		}
		node, ok := it.Inode()
		if ok && node.Changed > s.since && node.Made <= s.since && node.Links > 0 {
			old = append(old, it.Object)
			last, links = it.Object, uint64(node.Links)
			if node.Mode&unix.S_IFMT == unix.S_IFDIR {
				dirs = append(dirs, it.Object)
			}
		}
		return s.ctx.Err() == nil
	})
	names.dropIfIncomplete(last, links)
	if err == nil {
		err = s.ctx.Err()
	}
	return old, dirs, err
}

// emitNames yields all paths of the changed inode ino. isDir is set for a directory: its candidates then have
// Named set, because compareDir yields the names in it that differ.
func (s *scan) emitNames(names *namer, ino uint64, isDir bool) error {
	paths, err := names.paths(ino)
	for _, path := range paths {
		if !s.emit(snapshot.Candidate{Path: path, Named: isDir}) {
			return errEnough
		}
	}
	return err
}

// compareDir yields the names of the directory ino that only one of the two trees has, or that are different
// inodes in them. The whole subtrees at these names may differ.
func (s *scan) compareDir(names *namer, ino uint64) error {
	at, err := names.paths(ino)
	if err != nil || len(at) == 0 {
		return err
	}
	left, err := entries(s.a.fd, ino)
	if err != nil {
		return err
	}
	right, err := entries(s.b.fd, ino)
	if err != nil {
		return err
	}
	for name, x := range left {
		if y, ok := right[name]; ok && x == y {
			delete(right, name)
			continue
		}
		right[name] = x
	}
	for name := range right {
		if !s.emit(snapshot.Candidate{Path: filepath.Join(at[0], name), Tree: true}) {
			return errEnough
		}
	}
	return nil
}

type child struct {
	inode     uint64
	subvolume bool
}

// entries returns the entries, by name, of the directory with inode number ino of the subvolume fd. The map
// is empty if the directory does not exist.
func entries(fd int, ino uint64) (map[string]child, error) {
	all := map[string]child{}
	r := btrfs.Range{MinObject: ino, MaxObject: ino, MinType: btrfs.DirIndex, MaxType: btrfs.DirIndex}
	err := btrfs.Search(fd, r, func(it btrfs.Item) bool {
		if e, ok := it.Entry(); ok {
			c := child{e.Inode, e.Subvolume}
			if e.Subvolume {
				c.inode = 0 // nested subvolumes are compared separately
			}
			all[e.Name] = c
		}
		return true
	})
	return all, err
}

// nested compares the subvolumes nested in the two trees of the scan. If both descend from one subvolume, it
// yields their differences, otherwise the whole subvolume as changed.
func (s *scan) nested() error {
	all := map[string]bool{}
	for _, side := range []*side{s.a, s.b} {
		paths, err := nestedIn(side.fd, side.within)
		if err != nil {
			return err
		}
		for _, p := range paths {
			all[p] = true
		}
	}
	for path := range all {
		if err := s.nestedAt(path); err != nil {
			return err
		}
	}
	return nil
}

func (s *scan) nestedAt(path string) error {
	whole := func() error {
		if !s.emit(snapshot.Candidate{Path: path, Tree: true}) {
			return errEnough
		}
		return nil
	}
	x, err := s.a.nestedSide(path)
	if err != nil {
		return whole() // only one side has it, or it cannot be opened
	}
	defer x.close()
	y, err := s.b.nestedSide(path)
	if err != nil {
		return whole()
	}
	defer y.close()
	within := *s
	within.a, within.b = x, y
	within.emit = func(t snapshot.Candidate) bool {
		if t.RenamedFrom != "" {
			t.RenamedFrom = below(path, t.RenamedFrom)
		}
		return s.emit(snapshot.Candidate{Path: below(path, t.Path), Tree: t.Tree, Named: t.Named, RenamedFrom: t.RenamedFrom})
	}
	var related bool
	if within.since, related = commonTransaction(x.line, y.line); !related {
		return whole()
	}
	if err := within.run(); err != nil {
		return err
	}
	return within.nested()
}

func below(dir, path string) string {
	if path == "." {
		return dir
	}
	return filepath.Join(dir, path)
}
