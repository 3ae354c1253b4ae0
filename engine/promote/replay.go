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

// Replay applies changes, in the order of package diff, to a private tree that is discarded
// after an error: a fork that no sandbox uses yet. It is neither atomic nor durable, ignores
// Change.Old, and checks no approvals. It creates a missing parent directory like that of the
// source. It follows no symbolic link and does not leave the tree.
//
// Cost: a copy of each file whose content changes, a reflink where the filesystem supports
// it. Errors: those of [Apply] without ErrDrifted.
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
	for i := len(changes) - 1; i >= 0; i-- { // changes in a directory change its time: set it last
		c := &changes[i]
		if !isDir(c.New) || c.Path == "." && c.What == 0 {
			continue
		}
		what := c.What
		if c.Kind != diff.Modified || !isDir(c.Old) {
			what = everything
		}
		if err := r.setMetadata(c.Path, c.New, what); err != nil {
			return at(c.Path, err)
		}
	}
	return nil
}

// A replay is the state of one Replay.
type replay struct {
	w    work // used to copy files
	to   dirs
	done map[string]bool
}

func (r *replay) one(c *diff.Change) error {
	if c.Path == "." {
		return nil // set at the end
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
	case st != nil && r.metadataOnly(c, st):
		return r.setMetadata(c.Path, c.New, c.What)
	}
	if err := discard(dir, name, st); err != nil {
		return err
	}
	return r.make(dir, name, c)
}

// metadataOnly reports whether only the metadata of a node changes.
func (r *replay) metadataOnly(c *diff.Change, st *vfs.Stat) bool {
	const replaced = diff.Type | diff.Content | diff.Target | diff.Device
	if c.Kind != diff.Modified || c.What&replaced != 0 || st.FileMode().Type() != c.New.Mode.Type() {
		return false
	}
	return c.What&diff.Links == 0 || c.New.LinkOf == "" && (st.Nlink == 1 || shared(c.New))
}

// parent returns the parent directory of a path in the replayed tree and the name in it, and
// creates missing parents. It returns nil for a deleted path whose parent does not exist.
func (r *replay) parent(c *diff.Change) (*os.File, string, error) {
	dir, name, err := r.to.at(c.Path)
	if !missing(err) {
		return dir, name, err
	}
	if c.New == nil {
		return nil, "", nil
	}
	up, _ := split(c.Path)
	if err := r.makeParents(up); err != nil {
		return nil, "", err
	}
	return r.to.at(c.Path)
}

// makeParents creates a missing directory and its missing parents.
func (r *replay) makeParents(path string) error {
	if path == "." {
		return nil
	}
	up, _ := split(path)
	if err := r.makeParents(up); err != nil {
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
		return nil // the source has it under another path
	}
	n, _, err := readNode(in, base)
	if err != nil || !isDir(n) {
		return nil // the source has it under another path
	}
	return r.setMetadata(path, n, everything)
}

// make creates the new node of a change as name in dir, where nothing is: a hard link if
// another name is made already.
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
	return r.setMetadata(c.Path, c.New, everything)
}

// setMetadata sets the metadata of a node.
func (r *replay) setMetadata(path string, n *diff.Node, what diff.Aspect) error {
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
	r.to.close() // its new mode may deny access to its owner
	return metaOf(n, what).set(node)
}

// discard removes a node and everything below it.
func discard(dir *os.File, name string, st *vfs.Stat) error {
	switch {
	case st == nil:
		return nil
	case st.IsDir():
		return removeDir(dir, name)
	}
	return pathError("unlink", name, unix.Unlinkat(int(dir.Fd()), name, 0))
}
