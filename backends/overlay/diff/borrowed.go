//go:build linux

package diff

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path"

	"github.com/snapfs/snapfs/backends/overlay/store"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// FindRedirects returns the entries with a redirect attribute in the layers trees, topmost first: those that
// an overlay of them reads from another path of its lower tree. how says who wrote the layers.
//
// Cost: a getxattr of each entry of the layers; if one has the attribute, a lookup of each through all layers.
func FindRedirects(ctx context.Context, how Mode, trees []string) ([]snapshot.Borrowed, error) {
	l := redirectFinder{Layers: Layers{Mode: how}, ctx: ctx}
	redirected := false
	for i := 0; i < len(trees) && !redirected; i++ {
		var err error
		if redirected, err = l.hasRedirect(trees[i]); err != nil {
			return nil, err
		}
	}
	if !redirected {
		return nil, nil
	}
	defer l.Close()
	if err := l.Open(trees); err != nil {
		return nil, err
	}
	root := l.root()
	err := l.dir(&root, "")
	return l.list, err
}

// A redirectFinder is the state of one [FindRedirects]: it collects the entries that overlayfs reads from the
// lower tree under another name.
type redirectFinder struct {
	Layers
	ctx  context.Context
	list []snapshot.Borrowed
}

// hasRedirect reports whether a directory or file in the layer at tree has a redirect attribute. If none in any layer
// has one, the overlay reads each entry of the lower tree under its own name.
func (l *redirectFinder) hasRedirect(tree string) (found bool, _ error) {
	err := store.Walk(tree, func(name string, dir *os.File, err error) (dirs []string, _ error) {
		if err = cmp.Or(err, l.ctx.Err()); err != nil || found {
			return nil, err
		}
		err = vfs.EachEntry(int(dir.Fd()), func(entry []byte, _ uint64, typ uint8) error {
			if store.IsDir(int(dir.Fd()), entry, typ) {
				dirs = append(dirs, store.Join(name, entry))
			} else if typ != unix.DT_REG && typ != unix.DT_UNKNOWN {
				return nil // a whiteout, or a node that overlayfs copies up whole
			}
			_, err := vfs.GetXattr(int(dir.Fd()), string(entry), l.Prefix+"redirect")
			found = found || err == nil
			if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) {
				return nil
			}
			return err
		})
		return dirs, err
	})
	return found, err
}

// dir adds the entries with a redirect attribute in the directory name, and in those inside it, to the list.
// s is the lookup of the directory through the layers.
func (l *redirectFinder) dir(s *Stack, name string) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	names := map[string]bool{}
	for j, has := range s.Has {
		if !has || j >= s.end {
			continue
		}
		if err := l.names(j, s.at[j], names); err != nil {
			return err
		}
	}
	for one := range names {
		c, err := l.child(s, one, 0)
		if err == nil {
			err = l.node(s, &c, store.Join(name, []byte(one)), one)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// names adds to the set names the names that the layer with the index layer has in the directory dir. The
// finder looks each of these up for a redirect.
func (l *redirectFinder) names(layer int, dir string, names map[string]bool) error {
	f, err := store.OpenIn(l.roots[layer], dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer f.Close()
	return vfs.EachEntry(int(f.Fd()), func(entry []byte, _ uint64, _ uint8) error {
		names[string(entry)] = true
		return nil
	})
}

func (l *redirectFinder) node(parent, s *Stack, name, last string) error {
	isDir := s.Top >= 0 && !s.Whiteout && s.Stat.IsDir()
	if reads := isDir || s.Top >= 0 && s.Stat.IsRegular() && s.data < 0; reads && s.ReachesLower() {
		if natural := parent.ReachesLower() && path.Join(parent.LowerPath(), last) == s.LowerPath(); !natural {
			l.list = append(l.list, snapshot.Borrowed{Path: name, From: s.LowerPath(), Tree: isDir})
		}
	}
	if !isDir {
		return nil
	}
	return l.dir(s, name)
}
