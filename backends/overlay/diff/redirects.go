//go:build linux

package diff

import (
	"errors"
	"io/fs"
	"os"

	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A redirectChecker checks directories of layers that have a redirect attribute, whose other entries
// overlayfs reads from the lower tree under the old name. If the tree no longer has that name, for example
// because the rename was promoted, overlayfs shows the directory empty without an error.
type redirectChecker struct {
	chain  []string // the trees of the layers, topmost first
	tree   string
	layers Layers
	real   *os.File
}

// lostFrom returns the path in the lower tree from which the directory name, which has a redirect, should
// read its entries, if no directory is there any more. Otherwise it returns "".
func (r *redirectChecker) lostFrom(name string) (string, error) {
	if err := r.open(); err != nil {
		return "", err
	}
	s, err := r.layers.Locate(name, 0)
	if err != nil || s.Top < 0 || !s.Stat.IsDir() || !s.ReachesLower() {
		return "", err // the lower tree has no part in this directory
	}
	dir, err := store.OpenIn(r.real, s.LowerPath(), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err == nil {
		return "", dir.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
		return "", err
	}
	return s.LowerPath(), nil
}

func (r *redirectChecker) open() (err error) {
	if r.real != nil {
		return nil
	}
	if err := r.layers.Open(r.chain); err != nil {
		return err
	}
	r.real, err = vfs.OpenDir(unix.AT_FDCWD, r.tree)
	return err
}

func (r *redirectChecker) close() {
	r.layers.Close()
	if r.real != nil {
		r.real.Close()
	}
}
