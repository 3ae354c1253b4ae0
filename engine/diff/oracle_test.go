package diff_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/diff"
)

// The oracle fulfils the promises of package diff by other means: paths, whole files in memory,
// no order of its own, and no threads.

type fact struct {
	info   fs.FileInfo
	sys    *syscall.Stat_t
	data   string // content or target
	xattrs map[string]string
	names  string // of a directory
}

func survey(t *testing.T, root string) map[string]fact {
	t.Helper()
	facts := map[string]fact{}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		f := fact{xattrs: map[string]string{}}
		if f.info, err = os.Lstat(path); err != nil {
			return err
		}
		f.sys, _ = f.info.Sys().(*syscall.Stat_t)
		switch {
		case f.info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			f.data = string(b)
		case f.info.Mode()&fs.ModeSymlink != 0:
			f.data, err = os.Readlink(path)
		case f.info.IsDir():
			var list []fs.DirEntry
			list, err = os.ReadDir(path)
			for _, e := range list {
				f.names += e.Name() + "/"
			}
		}
		if err != nil {
			return err
		}
		buf := make([]byte, 4096)
		n, _ := unix.Llistxattr(path, buf)
		for _, name := range splitNUL(buf[:n]) {
			value := make([]byte, 4096)
			n, err := unix.Lgetxattr(path, name, value)
			if err != nil {
				return err
			}
			f.xattrs[name] = string(value[:n])
		}
		rel, err := filepath.Rel(root, path)
		facts[rel] = f
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return facts
}

func splitNUL(b []byte) (names []string) {
	for len(b) > 0 {
		n := slices.Index(b, 0)
		names, b = append(names, string(b[:n])), b[n+1:]
	}
	return names
}

func oracle(t *testing.T, oldRoot, newRoot string, sameInodes bool) string {
	a, b := survey(t, oldRoot), survey(t, newRoot)
	what := map[string]diff.Aspect{}
	for path, x := range a {
		y, ok := b[path]
		if !ok {
			what[path] = 0
			continue
		}
		if w := x.against(y); w != 0 {
			what[path] = w
		} else if !x.info.IsDir() && (x.sys.Nlink != y.sys.Nlink || sameInodes && x.sys.Nlink > 1 && x.sys.Ino != y.sys.Ino) {
			what[path] = 0
		}
	}
	for path := range b {
		if _, ok := a[path]; !ok {
			what[path] = 0
		}
	}
	paths := slices.Collect(maps.Keys(what))
	slices.SortFunc(paths, diff.ComparePaths)
	var changes []diff.Change
	for _, path := range paths {
		c := diff.Change{Path: path, Kind: diff.Modified, What: what[path]}
		before, after := companions(a, paths, path), companions(b, paths, path)
		_, wasThere := a[path]
		_, isThere := b[path]
		switch {
		case !wasThere:
			c.Kind = diff.Added
		case !isThere:
			c.Kind = diff.Deleted
		case c.What != diff.Type && !slices.Equal(before, after):
			c.What |= diff.Links
		}
		c.Old, c.New = linkNode(before, path), linkNode(after, path)
		if c.Kind != diff.Modified || c.What != 0 {
			changes = append(changes, c)
		}
	}
	return brief(changes)
}

// companions returns the changed paths that share an inode with path.
func companions(facts map[string]fact, paths []string, path string) []string {
	all := []string{}
	f, ok := facts[path]
	if !ok || f.info.IsDir() {
		return []string{path}
	}
	for _, p := range paths {
		if g, ok := facts[p]; ok && g.sys.Ino == f.sys.Ino {
			all = append(all, p)
		}
	}
	return all
}

func linkNode(names []string, path string) *diff.Node {
	if names[0] == path {
		return nil
	}
	return &diff.Node{LinkOf: names[0]}
}

func (x fact) against(y fact) diff.Aspect {
	if x.info.Mode().Type() != y.info.Mode().Type() {
		return diff.Type
	}
	var w diff.Aspect
	for aspect, differs := range map[diff.Aspect]bool{
		diff.Content: x.info.Mode().IsRegular() && x.data != y.data,
		diff.Target:  !x.info.Mode().IsRegular() && x.data != y.data,
		diff.Mode:    x.info.Mode() != y.info.Mode(),
		diff.Owner:   x.sys.Uid != y.sys.Uid || x.sys.Gid != y.sys.Gid,
		diff.Time:    x.sys.Mtim != y.sys.Mtim && x.names == y.names,
		diff.Device:  x.sys.Rdev != y.sys.Rdev,
		diff.Xattrs:  !maps.Equal(x.xattrs, y.xattrs),
	} {
		if differs {
			w |= aspect
		}
	}
	return w
}
