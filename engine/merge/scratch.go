package merge

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A scratch is the directory into which the merge writes content that neither sandbox nor real tree has, such
// as merged texts. It is opened on first use.
type scratch struct {
	dir  string
	root *os.Root
}

func (s *scratch) open() (*os.Root, error) {
	if s.root != nil {
		return s.root, nil
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(s.dir)
	s.root = root
	return root, err
}

func (s *scratch) close() error {
	if s.root == nil {
		return nil
	}
	return s.root.Close()
}

// write creates the file name in the scratch directory with the content of from and the modification time
// when. Only its owner may read the file. It returns the file's attributes.
func (s *scratch) write(name string, from io.Reader, when time.Time) (fs.FileInfo, error) {
	root, err := s.open()
	if err != nil {
		return nil, err
	}
	if dir := path.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if src, ok := from.(*os.File); ok {
		_, err = vfs.CopyFile(f, src)
	} else {
		_, err = io.Copy(f, from)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if err := root.Chtimes(name, when, when); err != nil {
		return nil, err
	}
	return root.Lstat(name)
}

func (s *scratch) remove(name string) error {
	root, err := s.open()
	if err != nil {
		return err
	}
	return root.Remove(name)
}

// build writes the content of from to the directory Scratch as the merged version of the file t, with the
// modification time when.
func (m *merger) build(t *entry, from io.Reader, when time.Time) error {
	info, err := m.scratch.write(t.outcome.path, from, when)
	if err != nil {
		return fail(t.outcome.path, err)
	}
	node := *t.outcome.node
	t.outcome.node, t.outcome.from = &node, built
	asBuilt(&node, info)
	return nil
}

// asBuilt sets the size, times and inode of n to those of the merged version of the file, which the merge
// wrote to the directory Scratch.
func asBuilt(n *diff.Node, info fs.FileInfo) {
	n.Size, n.MTime, n.CTime, n.Ino, n.Dev = info.Size(), info.ModTime(), time.Time{}, 0, 0
}

// unbuild removes the merged version of the file t, if any, from the directory Scratch, to which build wrote
// it.
func (m *merger) unbuild(t *entry) error {
	if t.outcome.from != built {
		return nil
	}
	return fail(t.outcome.path, m.scratch.remove(t.outcome.path))
}

// chosenBuilt describes, as it will be in the merged tree, the file name that an answer to a conflict has put
// into Scratch: a regular file, which gets the metadata of like, or a symbolic link.
func (m *merger) chosenBuilt(name string, like *diff.Node) (outcome, error) {
	root, err := m.scratch.open()
	if err != nil {
		return outcome{}, fail(name, err)
	}
	info, err := root.Lstat(name)
	if err != nil {
		return outcome{}, fail(name, err)
	}
	var n diff.Node
	if like != nil {
		n = *like
		n.LinkOf, n.NLink, n.Target = "", 1, ""
	}
	n.Mode = n.Mode&^fs.ModeType | info.Mode().Type()
	asBuilt(&n, info)
	switch {
	case info.Mode().IsRegular():
		return outcome{name, &n, built}, nil
	case info.Mode().Type() == fs.ModeSymlink:
		n.Mode = info.Mode()
		n.Target, err = root.Readlink(name)
		return outcome{name, &n, built}, fail(name, err)
	}
	return outcome{}, &errs.Error{Op: op, Path: name, Kind: errs.ErrNotSupported, Err: errors.New("the answer's result is neither a regular file nor a symbolic link")}
}
