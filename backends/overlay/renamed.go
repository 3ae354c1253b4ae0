//go:build linux

package overlay

import (
	"errors"
	"io/fs"
	"os"
	"path"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A renamed looks after directories that got another name above a tree. A layer has
// that name and what was changed beneath: all else is read from the tree, by the name
// that the directory has there. Where it has that no more, above all because the
// renaming itself was carried there, overlayfs shows nothing of it, without an error:
// as if somebody had deleted it all.
type renamed struct {
	b     *backend
	chain []string // of layers, the topmost first
	tree  string

	layers layers
	real   *os.File
}

// check refuses a directory of the chain that was renamed, where what it shows has gone:
// ErrDrifted.
func (r *renamed) check(name string) error {
	if err := r.open(); err != nil {
		return err
	}
	s, err := r.layers.locate(name, 0)
	if err != nil || s.top < 0 || !s.stat.IsDir() || !s.reaches() {
		return err // nothing of the tree shows there
	}
	dir, err := beneath(r.real, s.below(), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err == nil {
		return dir.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
		return err
	}
	return because(errs.ErrDrifted, path.Join(r.tree, name),
		"the sandbox has made it of "+quote(path.Join(r.tree, s.below()))+", which has what it held, and is not there any more",
		"snapfs undo   # if it went with an apply or a promotion")
}

func (r *renamed) open() (err error) {
	if r.real != nil {
		return nil
	}
	var trees []string
	for _, layer := range r.chain {
		trees = append(trees, r.b.treePath(layer))
	}
	if err := r.layers.open(r.b, trees); err != nil {
		return err
	}
	r.real, err = vfs.OpenDir(unix.AT_FDCWD, r.tree)
	return err
}

func (r *renamed) close() {
	r.layers.close()
	if r.real != nil {
		r.real.Close()
	}
}
