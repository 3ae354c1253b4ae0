package promote

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/internal/fault"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Replay writes changes, in the order of package diff, on a tree that nobody else
// uses and that is thrown away after an error: a fork that no sandbox has yet. It
// is neither atomic nor durable, looks at nothing that Change.Old says, and holds
// nothing back. A directory above a change that is not there is made like that of
// the source. No symbolic link is followed, and the tree is not left.
//
// Cost: a copy of each file whose content changes, by shared blocks where the
// filesystem can. Errors: those of [Apply] without ErrDrifted.
func Replay(ctx context.Context, tree *os.File, from Source, changes []diff.Change) error {
	r := replay{w: work{from: from}, to: dirs{root: tree}, done: map[string]bool{}}
	defer r.to.close()
	for i := range changes {
		c := &changes[i]
		if err := ctx.Err(); err != nil {
			return at(c.Path, err)
		}
		if err := fault.Point(ctx, "write a change"); err != nil {
			return at(c.Path, err)
		}
		if err := r.one(c); err != nil {
			return at(c.Path, err)
		}
		r.done[c.Path] = true
	}
	for i := len(changes) - 1; i >= 0; i-- { // what is made in a directory changes its time
		c := &changes[i]
		if !isDir(c.New) || c.Path == "." && c.What == 0 {
			continue
		}
		what := c.What
		if c.Kind != diff.Modified || !isDir(c.Old) {
			what = everything
		}
		if err := r.describe(c.Path, c.New, what); err != nil {
			return at(c.Path, err)
		}
	}
	return nil
}

// A replay is one Replay.
type replay struct {
	w    work // which knows how to copy
	to   dirs
	done map[string]bool
}

func (r *replay) one(c *diff.Change) error {
	if c.Path == "." {
		return nil // its metadata come last
	}
	dir, name, err := r.parent(c)
	if err != nil || dir == nil {
		return err
	}
	st, err := statOrNil(dir, name)
	if err != nil {
		return err
	}
	switch {
	case c.New == nil:
		return discard(dir, name, st)
	case isDir(c.New):
		if st != nil && st.IsDir() {
			return nil
		}
		if err := discard(dir, name, st); err != nil {
			return err
		}
		return pathError("mkdir", c.Path, unix.Mkdirat(int(dir.Fd()), name, 0o700))
	case st != nil && r.stays(c, st):
		return r.describe(c.Path, c.New, c.What)
	}
	if err := discard(dir, name, st); err != nil {
		return err
	}
	return r.make(dir, name, c)
}

// stays: nothing but metadata differs.
func (r *replay) stays(c *diff.Change, st *vfs.Stat) bool {
	const replaced = diff.Type | diff.Content | diff.Target | diff.Device
	if c.Kind != diff.Modified || c.What&replaced != 0 || st.FileMode().Type() != c.New.Mode.Type() {
		return false
	}
	return c.What&diff.Links == 0 || c.New.LinkOf == "" && (st.Nlink == 1 || shared(c.New))
}

// parent opens the directory that holds a path. What is deleted in one that is
// not there is gone.
func (r *replay) parent(c *diff.Change) (*os.File, string, error) {
	dir, name, err := r.to.at(c.Path)
	if !missing(err) {
		return dir, name, err
	}
	if c.New == nil {
		return nil, "", nil
	}
	up, _ := split(c.Path)
	if err := r.above(up); err != nil {
		return nil, "", err
	}
	return r.to.at(c.Path)
}

// above makes a directory that is missing, and those above it.
func (r *replay) above(path string) error {
	if path == "." {
		return nil
	}
	up, _ := split(path)
	if err := r.above(up); err != nil {
		return err
	}
	dir, name, err := r.to.at(path)
	if err != nil {
		return err
	}
	st, err := statOrNil(dir, name)
	if err != nil || st != nil && st.IsDir() {
		return err
	}
	if err := discard(dir, name, st); err != nil {
		return err
	}
	if err := unix.Mkdirat(int(dir.Fd()), name, 0o700); err != nil {
		return pathError("mkdir", path, err)
	}
	like := dirs{root: r.w.from.Tree}
	defer like.close()
	in, base, err := like.at(path)
	if err != nil {
		return nil // the source has it under another name
	}
	n, _, err := lookAt(in, base)
	if err != nil || !isDir(n) {
		return nil // the same
	}
	return r.describe(path, n, everything)
}

// make makes a node where nothing is.
func (r *replay) make(dir *os.File, name string, c *diff.Change) error {
	if first := class(c); first != "" && first != c.Path && r.done[first] {
		in := dirs{root: r.to.root}
		defer in.close()
		from, base, err := in.at(first)
		if err == nil {
			err = unix.Linkat(int(from.Fd()), base, int(dir.Fd()), name, 0)
		}
		if err == nil || !missing(err) && !errors.Is(err, unix.EMLINK) {
			return pathError("link", first, err)
		}
	}
	if c.New.Mode.IsRegular() {
		return r.w.copyFile(dir, name, c)
	}
	var err error
	if c.New.Mode&fs.ModeSocket != 0 {
		err = pathError("mknod", c.Path, vfs.MakeNode(int(dir.Fd()), name, unix.S_IFSOCK|0o600, 0))
	} else {
		err = create(dir, name, c)
	}
	if err != nil {
		return err
	}
	return r.describe(c.Path, c.New, everything)
}

// describe gives a node its metadata.
func (r *replay) describe(path string, n *diff.Node, what diff.Aspect) error {
	if path == "." {
		return metaOf(n, what).set(r.to.root)
	}
	dir, name, err := r.to.at(path)
	if err != nil {
		return err
	}
	node, err := openNode(dir, name)
	if err != nil {
		return err
	}
	defer node.Close()
	r.to.close() // it may become closed to its owner
	return metaOf(n, what).set(node)
}

// discard removes what is there, with all beneath it.
func discard(dir *os.File, name string, st *vfs.Stat) error {
	switch {
	case st == nil:
		return nil
	case st.IsDir():
		return removeDir(dir, name)
	}
	return pathError("unlink", name, unix.Unlinkat(int(dir.Fd()), name, 0))
}
