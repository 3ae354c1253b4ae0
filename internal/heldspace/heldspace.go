// Package heldspace measures the disk space that only certain files hold, among files that share space: by hard links,
// which share all of a file, and by reflinks, which share blocks.
//
// Read [Meter] first. The package knows files, and not what they are for.
package heldspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Other is the holder of files that stay after the removal of all measured holders. The space of such a file does not
// count, and neither does space that another file shares with it.
const Other = -1

// A Meter sums the disk space of files by their holders, such as snapshots. A holder is a number from 0 in the order of
// removal, or [Other]. All files lie on one filesystem. Add the files of the numbered holders first, and then those of
// Other. The zero value is ready to use.
//
// Blocks that only files of numbered holders share count once. If the filesystem reports blocks as shared, and only one
// of the added files has them, the other file is unknown, and the blocks do not count. On a filesystem that does not
// list the blocks of files, each file counts in full.
type Meter struct {
	sizes  map[int]int64    // the space without shared blocks of files with one link, by holder
	linked map[fileID]*file // the files with several links
	shared []piece
}

// A fileID identifies a file with several links.
type fileID struct{ dev, ino uint64 }

// A file is a file that several holders may have.
type file struct {
	size  int64 // on the disk, without shared blocks
	links int   // that were not added yet
	last  int   // the last holder
	stays bool  // [Other] has the file, so it stays
}

// A piece is a range of the disk with blocks of a file that the filesystem reports as shared.
type piece struct {
	vfs.Extent
	of *file
}

// Add adds the file name in the directory dir, with the attributes st, of a holder, and reports whether it shares
// blocks with another file. A file that another user or a process changes meanwhile may count as it was or as it is.
// Cost: for a regular file an open and a list of its blocks.
func (m *Meter) Add(dir int, name string, st *vfs.Stat, holder int) (shares bool) {
	links := st.Nlink > 1 && !st.IsDir()
	if f := m.linked[fileID{st.Dev, st.Ino}]; links && f != nil {
		f.links, f.last, f.stays = f.links-1, max(f.last, holder), f.stays || holder == Other
		return false
	}
	f := &file{size: st.Blocks * 512, links: int(st.Nlink) - 1, last: holder, stays: holder == Other}
	if st.IsRegular() && st.Blocks > 0 && (!f.stays || m.SharesBlocks()) {
		for _, e := range sharedExtents(dir, name) {
			m.shared = append(m.shared, piece{e, f})
			f.size, shares = max(0, f.size-int64(e.To-e.From)), true
		}
	}
	switch {
	case links:
		if m.linked == nil {
			m.linked = map[fileID]*file{}
		}
		m.linked[fileID{st.Dev, st.Ino}] = f
	case !f.stays:
		if m.sizes == nil {
			m.sizes = map[int]int64{}
		}
		m.sizes[holder] += f.size
	}
	return shares
}

// SharesBlocks reports whether a file added so far shares blocks with another file.
func (m *Meter) SharesBlocks() bool { return len(m.shared) > 0 }

// NeedsOthers reports whether the files added so far share blocks, or have further links. If not, files of [Other]
// make no difference, and need not be added.
func (m *Meter) NeedsOthers() bool {
	for _, f := range m.linked {
		if f.links > 0 {
			return true
		}
	}
	return m.SharesBlocks()
}

// sharedExtents returns the ranges of the disk that a file shares with others, or nothing if it cannot be opened or
// the filesystem does not list them.
func sharedExtents(dir int, name string) []vfs.Extent {
	f, err := vfs.OpenBeneath(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	list, _ := vfs.SharedExtents(int(f.Fd()))
	return list
}

// AddTree adds all files of the directory tree at root, which belongs to a holder. It calls sharing, unless that is
// nil, with the path below root of each file that shares blocks with another one. A tree that does not exist holds
// nothing, and a directory that this user may not read is left out. Errors: that of ctx, and those of files.
func (m *Meter) AddTree(ctx context.Context, root string, holder int, sharing func(path string)) error {
	top, err := vfs.OpenDir(unix.AT_FDCWD, root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer top.Close()
	if st, err := vfs.Lstat(int(top.Fd()), ""); err == nil {
		m.Add(int(top.Fd()), ".", &st, holder)
	}
	for todo := []string{""}; len(todo) > 0; {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if err := ctx.Err(); err != nil {
			return err
		}
		below, err := m.addDir(top, dir, holder, sharing)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		todo = append(todo, below...)
	}
	return nil
}

// addDir adds the entries of the directory at the path dir below top, and returns the paths of its subdirectories.
func (m *Meter) addDir(top *os.File, dir string, holder int, sharing func(path string)) (below []string, err error) {
	open := top
	if dir != "" {
		open, err = vfs.OpenBeneath(int(top.Fd()), dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return nil, err
		}
		defer open.Close()
	}
	fd := int(open.Fd())
	err = vfs.EachEntry(fd, func(entry []byte, _ uint64, _ uint8) error {
		name := string(entry)
		st, err := vfs.Lstat(fd, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if st.IsDir() {
			below = append(below, path.Join(dir, name))
		}
		if m.Add(fd, name, &st, holder) && sharing != nil {
			sharing(path.Join(dir, name))
		}
		return nil
	})
	return below, err
}
