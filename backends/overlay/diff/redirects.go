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

// A formerPath says where a directory with a redirect attribute was before the sandbox renamed it, and
// whether the directory still shows all that it did. Comparing a sandbox with its base needs both.
type formerPath struct {
	// lost is the path in the lower tree from which the directory should read its entries, if
	// no directory is there any more; else "".
	lost string
	// renamed is the path in the base of which the directory shows the entries, except for
	// those in the layer that has the directory; "" if more than that layer changed it.
	renamed string
}

// A redirectChecker finds where directories of layers that have a redirect attribute were in the base.
// Overlayfs reads their other entries under the old name. If the lower tree no longer has that name, for
// example because the rename was promoted, overlayfs shows the directory empty without an error.
type redirectChecker struct {
	chain  []string // the trees of the layers, topmost first
	some   int      // how many of them are compared
	onBase bool     // the others are the layers of the base
	tree   string
	layers Layers
	real   *os.File
}

// formerPathOf returns the former path of the directory name, which has a redirect in the layer with this index.
func (r *redirectChecker) formerPathOf(name string, layer int) (from formerPath, _ error) {
	if err := r.open(); err != nil {
		return from, err
	}
	s, err := r.layers.Locate(name, 0)
	if err != nil || s.Top < 0 || !s.Stat.IsDir() {
		return from, err
	}
	if r.onBase && s.end > r.some && s.onlyIn(layer, r.some) {
		from.renamed = s.at[r.some]
	}
	if !s.ReachesLower() {
		return from, nil // the lower tree has no part in this directory
	}
	dir, err := store.OpenIn(r.real, s.LowerPath(), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err == nil {
		return from, dir.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
		return from, err
	}
	return formerPath{lost: s.LowerPath()}, nil
}

// onlyIn reports whether, of the first n layers, only the one with the index layer has the directory that was
// looked up: no other of them changed its entries.
func (s *Stack) onlyIn(layer, n int) bool {
	for j, has := range s.Has[:n] {
		if has != (j == layer) {
			return false
		}
	}
	return true
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
