package plain

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// patience is how often the copy of a file that keeps changing is tried, with pauses of half a second in
// total. After that the copy of the tree fails with ErrBusy.
const patience = 9

// A copier is the state of copying one tree, directory by directory, into a snapshot or fork.
type copier struct {
	ctx     context.Context
	from    string           // path of the source's root, for errors
	trail   []*level         // the directories from the root to the present one
	links   int              // a directory with a further hard link to each file that has several
	linked  map[inode]string // the name of each such file in links
	state   inode            // the backend's own directory, which is never copied
	mount   uint64           // the mount of the tree
	noClone bool             // the filesystems share no blocks
	buf     []byte
}

// An inode identifies a file of the source, such as one with several hard links. The birth time distinguishes
// the file from a later one with the same number.
type inode struct {
	dev, ino uint64
	born     vfs.Timestamp
}

func inodeOf(st *vfs.Stat) inode { return inode{st.Dev, st.Ino, st.BTime} }

// errAgain means that a file changed, or was replaced, while the backend copied it, so that it must be copied
// again.
var errAgain = errors.New("the file keeps changing during the copy")

// openTree returns a descriptor of the directory path, which must not be a symbolic link. The caller closes it.
func openTree(path string) (int, error) {
	fd, err := openRead(unix.AT_FDCWD, path, unix.O_DIRECTORY)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// copyTree copies the tree open as src into home/tree, the empty directory of a new snapshot or fork. from is
// the path of src, for the texts of errors.
func (b *backend) copyTree(ctx context.Context, src int, from, home string) error {
	c := &copier{ctx: ctx, from: from, links: -1, linked: map[inode]string{}}
	defer c.close()
	own, err := vfs.Lstat(unix.AT_FDCWD, b.dir)
	if err != nil {
		return err
	}
	root, err := vfs.Lstat(src, "")
	if err != nil {
		return &fs.PathError{Op: "stat", Path: from, Err: err}
	}
	c.state, c.mount = inodeOf(&own), root.Mount
	if inodeOf(&root) == c.state {
		return because(errs.ErrNotSupported, from, "the copies themselves are stored in this directory")
	}
	if c.links, err = unix.Open(filepath.Join(home, "links"), vfs.OPath|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return &fs.PathError{Op: "open", Path: home, Err: err}
	}
	dst, err := unix.Open(filepath.Join(home, "tree"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: home, Err: err}
	}
	in, err := unix.FcntlInt(uintptr(src), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		unix.Close(dst)
		return &fs.PathError{Op: "open", Path: from, Err: err}
	}
	return c.run(in, dst, &root)
}

// run copies the open directory src, with attributes root, into the open, empty directory dst. c.close closes
// both descriptors, also after an error.
func (c *copier) run(src, dst int, root *vfs.Stat) error {
	if err := c.descend("", src, dst, root); err != nil {
		return c.at("", err)
	}
	for len(c.trail) > 0 {
		here := c.trail[len(c.trail)-1]
		if len(here.todo) == 0 {
			if err := c.ascend(); err != nil {
				return c.at("", err)
			}
			continue
		}
		name := here.todo[len(here.todo)-1].Name
		here.todo = here.todo[:len(here.todo)-1]
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if err := c.copyStable(here, name); err != nil {
			return c.at(name, err)
		}
	}
	return nil
}

// copyStable copies the entry name of the directory here, and tries again while it changes. A deleted entry
// is skipped. ErrBusy: it changed during every try.
func (c *copier) copyStable(here *level, name string) error {
	for try := range patience {
		err := c.entry(here, name)
		switch {
		case errors.Is(err, errWritten):
			return err
		case errors.Is(err, unix.ENOENT):
			return nil
		case !errors.Is(err, errAgain):
			return err
		}
		if err := c.ctx.Err(); err != nil {
			return err
		}
		time.Sleep(time.Millisecond << try)
	}
	return &errs.Error{Kind: errs.ErrBusy, Err: errors.New(errAgain.Error())}
}

// entry copies the entry name of the directory here. It returns ENOENT if the entry was deleted, and
// errAgain, leaving no copy, if it was changed or replaced.
func (c *copier) entry(here *level, name string) error {
	st, err := vfs.Lstat(here.src, name)
	if err != nil {
		return err
	}
	if st.IsDir() {
		return c.dir(here, name, &st)
	}
	if st.Nlink > 1 {
		if first, ok := c.linked[inodeOf(&st)]; ok {
			return written(c.step("link", func() error { return unix.Linkat(c.links, first, here.dst, name, 0) }))
		}
	}
	if st.IsRegular() {
		err = c.file(here, name, &st)
	} else {
		err = c.special(here, name, &st)
	}
	if err != nil || st.Nlink <= 1 {
		return err
	}
	first := uniqueName("")
	if err := c.step("link for later names", func() error { return unix.Linkat(here.dst, name, c.links, first, 0) }); err != nil {
		return written(err)
	}
	c.linked[inodeOf(&st)] = first
	return nil
}

// dir creates the copy of the directory name in here, and makes it the one that run copies next. A mount
// point stays empty, because the mounted filesystem is no part of the tree. The backend's own directory is
// left out.
func (c *copier) dir(here *level, name string, st *vfs.Stat) error {
	if inodeOf(st) == c.state {
		return nil
	}
	src, err := openRead(here.src, name, unix.O_DIRECTORY)
	if err != nil {
		return changed(err)
	}
	opened, err := vfs.Lstat(src, "")
	if err != nil || inodeOf(&opened) != inodeOf(st) {
		unix.Close(src)
		return errAgain
	}
	err = c.step("make a directory", func() error { return unix.Mkdirat(here.dst, name, 0o700) })
	if err != nil {
		unix.Close(src)
		return written(err)
	}
	dst, err := unix.Openat(here.dst, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		unix.Close(src)
		return written(err)
	}
	return c.descend(name, src, dst, &opened)
}

// step calls do, which makes a single change on disk. what names the change, so that a test can make it fail.
func (c *copier) step(what string, do func() error) error {
	if err := fault.Point(c.ctx, what); err != nil {
		return err
	}
	return do()
}

// at adds to err, an error of copying, the path of name in the source tree, so that the user finds the file.
func (c *copier) at(name string, err error) error {
	var b strings.Builder
	b.WriteString(strings.TrimSuffix(c.from, "/"))
	for _, l := range c.trail {
		if l.name != "" {
			b.WriteString("/" + l.name)
		}
	}
	if name != "" {
		b.WriteString("/" + name)
	}
	var e *errs.Error
	if errors.As(err, &e) && e.Kind == errWritten { //nolint:errorlint // written sets it itself
		err = e.Err
	}
	var call *fs.PathError
	if errors.As(err, &call) {
		err = call.Err // the full path is added instead
	}
	return &fs.PathError{Op: "copy", Path: b.String(), Err: err}
}

// errWritten marks an error of writing the copy, as opposed to reading the source: ENOENT does not mean then
// that the source was deleted.
var errWritten = errors.New("error of the copy")

// written marks err as an error of writing the copy, not of reading the source, by errWritten. A nil err
// stays nil.
func written(err error) error {
	if err == nil {
		return nil
	}
	return &errs.Error{Kind: errWritten, Err: err}
}

// changed returns errAgain for an error that means that an entry has changed its type while it was copied, so
// that the copy is tried again. It returns other errors as they are.
func changed(err error) error {
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENXIO) {
		return errAgain
	}
	return err
}
