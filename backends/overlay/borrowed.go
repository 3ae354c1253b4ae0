//go:build linux

package overlay

import (
	"context"
	"path"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/vfs"
)

// findRedirects lists the entries of an overlay, given by the trees of its layers, that are read from
// another path of the lower tree.
func findRedirects(ctx context.Context, how mode, trees []string) ([]snapshot.Borrowed, error) {
	l := redirectFinder{layers: layers{mode: how}, ctx: ctx}
	defer l.close()
	if err := l.open(trees); err != nil {
		return nil, err
	}
	root := l.root()
	err := l.dir(&root, "")
	return l.list, err
}

// A redirectFinder finds entries that overlayfs reads from the lower tree under another name.
type redirectFinder struct {
	layers
	ctx  context.Context
	list []snapshot.Borrowed
}

// dir examines the entries that the layers have in a directory.
func (l *redirectFinder) dir(s *stack, name string) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	names := map[string]bool{}
	for j, has := range s.has {
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
			err = l.node(s, &c, join(name, []byte(one)), one)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// names adds the names that a layer has in a directory.
func (l *redirectFinder) names(layer int, dir string, names map[string]bool) error {
	f, err := openIn(l.roots[layer], dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer f.Close()
	return vfs.EachEntry(int(f.Fd()), func(entry []byte, _ uint64, _ uint8) error {
		names[string(entry)] = true
		return nil
	})
}

func (l *redirectFinder) node(parent, s *stack, name, last string) error {
	isDir := s.top >= 0 && !s.whiteout && s.stat.IsDir()
	if reads := isDir || s.top >= 0 && s.stat.IsRegular() && s.data < 0; reads && s.reachesLower() {
		if natural := parent.reachesLower() && path.Join(parent.lowerPath(), last) == s.lowerPath(); !natural {
			l.list = append(l.list, snapshot.Borrowed{Path: name, From: s.lowerPath(), Tree: isDir})
		}
	}
	if !isDir {
		return nil
	}
	return l.dir(s, name)
}
