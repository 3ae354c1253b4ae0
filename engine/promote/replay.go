package promote

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/promote/nodes"
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
	r := replay{w: work{from: from}, to: nodes.Dirs{Root: tree}, done: map[string]bool{}}
	defer r.to.Close()
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
		if !c.New.IsDir() || c.Path == "." && c.What == 0 {
			continue
		}
		what := c.What
		if c.Kind != diff.Modified || !c.Old.IsDir() {
			what = nodes.Everything
		}
		if err := r.setMetadata(c.Path, c.New, what); err != nil {
			return at(c.Path, err)
		}
	}
	return nil
}

// A replay is the state of one call of [Replay], which writes changes to a fork that no sandbox uses yet: the
// tree, and which paths are done.
type replay struct {
	w    work // used to copy files
	to   nodes.Dirs
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
	st, err := nodes.StatOrNil(dir, name)
	if err != nil {
		return err
	}
	switch {
	case c.New == nil:
		return nodes.Remove(dir, name, st)
	case c.New.IsDir():
		if st != nil && st.IsDir() {
			return nil
		}
		if err := nodes.Remove(dir, name, st); err != nil {
			return err
		}
		return nodes.PathError("mkdir", c.Path, unix.Mkdirat(int(dir.Fd()), name, 0o700))
	case st != nil && r.metadataOnly(c, st):
		return r.setMetadata(c.Path, c.New, c.What)
	}
	if err := nodes.Remove(dir, name, st); err != nil {
		return err
	}
	return r.make(dir, name, c)
}

// metadataOnly reports whether a change sets only the metadata of an existing node, whose attributes are st,
// so that the node can stay.
func (r *replay) metadataOnly(c *diff.Change, st *vfs.Stat) bool {
	const replaced = diff.Type | diff.Content | diff.Target | diff.Device
	if c.Kind != diff.Modified || c.What&replaced != 0 || st.FileMode().Type() != c.New.Mode.Type() {
		return false
	}
	return c.What&diff.Links == 0 || c.New.LinkOf == "" && (st.Nlink == 1 || c.New.Shared())
}

// parent returns the parent directory of a change's path in the tree to write, and the name in it. It creates
// missing parents. It returns nil for a deleted path whose parent does not exist.
func (r *replay) parent(c *diff.Change) (*os.File, string, error) {
	dir, name, err := r.to.At(c.Path)
	if !nodes.Missing(err) {
		return dir, name, err
	}
	if c.New == nil {
		return nil, "", nil
	}
	up, _ := diff.Split(c.Path)
	if err := r.makeParents(up); err != nil {
		return nil, "", err
	}
	return r.to.At(c.Path)
}

// makeParents creates the directory at path and its parents if they are missing, with the metadata of those
// in the source.
func (r *replay) makeParents(path string) error {
	if path == "." {
		return nil
	}
	up, _ := diff.Split(path)
	if err := r.makeParents(up); err != nil {
		return err
	}
	dir, name, err := r.to.At(path)
	if err != nil {
		return err
	}
	st, err := nodes.StatOrNil(dir, name)
	if err != nil || st != nil && st.IsDir() {
		return err
	}
	if err := nodes.Remove(dir, name, st); err != nil {
		return err
	}
	if err := unix.Mkdirat(int(dir.Fd()), name, 0o700); err != nil {
		return nodes.PathError("mkdir", path, err)
	}
	like := nodes.Dirs{Root: r.w.from.Tree}
	defer like.Close()
	in, base, err := like.At(path)
	if err != nil {
		return nil // the source has it under another path
	}
	n, _, err := nodes.Read(in, base)
	if err != nil || !n.IsDir() {
		return nil // the source has it under another path
	}
	return r.setMetadata(path, n, nodes.Everything)
}

// make creates the new node of a change as name in dir, where nothing is. It makes a hard link if another
// name of the file exists already.
func (r *replay) make(dir *os.File, name string, c *diff.Change) error {
	if first := class(c); first != "" && first != c.Path && r.done[first] {
		in := nodes.Dirs{Root: r.to.Root}
		defer in.Close()
		from, base, err := in.At(first)
		if err == nil {
			err = unix.Linkat(int(from.Fd()), base, int(dir.Fd()), name, 0)
		}
		if err == nil || !nodes.Missing(err) && !errors.Is(err, unix.EMLINK) {
			return nodes.PathError("link", first, err)
		}
	}
	if c.New.Mode.IsRegular() {
		return r.w.copyFile(dir, name, c)
	}
	var err error
	if c.New.Mode&fs.ModeSocket != 0 {
		err = nodes.PathError("mknod", c.Path, vfs.MakeNode(int(dir.Fd()), name, unix.S_IFSOCK|0o600, 0))
	} else {
		err = create(dir, name, c)
	}
	if err != nil {
		return err
	}
	return r.setMetadata(c.Path, c.New, nodes.Everything)
}

// setMetadata copies metadata of n, a file of the sandbox, to the node at path: the aspects, such as mode or
// owner, that what lists.
func (r *replay) setMetadata(path string, n *diff.Node, what diff.Aspect) error {
	if path == "." {
		return nodes.MetaOf(n, what).Set(r.to.Root)
	}
	dir, name, err := r.to.At(path)
	if err != nil {
		return err
	}
	node, err := nodes.Open(dir, name)
	if err != nil {
		return err
	}
	defer node.Close()
	r.to.Close() // its new mode may deny access to its owner
	return nodes.MetaOf(n, what).Set(node)
}
