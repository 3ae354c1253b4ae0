package diff

import (
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A dirPair is one directory of the two compared trees, open on the sides that have it.
type dirPair struct {
	path string
	has  [2]bool
	dir  [2]int // the descriptors, of the sides that have it
}

func (p dirPair) close() {
	for i, has := range p.has {
		if has {
			unix.Close(p.dir[i])
		}
	}
}

// only returns p as a pair in which only this side, the old or the new tree, has the directory. Both pairs
// share the descriptors.
func (p dirPair) only(side int) dirPair {
	p.has[1-side] = false
	return p
}

func (p dirPair) join(name string) string {
	switch {
	case name == "":
		return p.path
	case p.path == ".":
		return name
	}
	return p.path + "/" + name
}

func first(errs [2]error) error {
	if errs[older] != nil {
		return errs[older]
	}
	return errs[newer]
}

// open opens the directory at path, with these flags of open(2), in those of the two trees that on selects, with an
// error for each; the caller closes p.
func (w *worker) open(path string, on [2]bool, flags int) (p dirPair, errs [2]error) {
	return openFrom(w.root, path, path, on, flags)
}

// openFrom is worker.open for a directory whose path from the directories in from, one for each tree, is rest.
func openFrom(from [2]int, rest, path string, on [2]bool, flags int) (p dirPair, errs [2]error) {
	p.path = path
	for i := range p.dir {
		if on[i] {
			p.dir[i], errs[i] = vfs.OpenBeneathFD(from[i], rest, flags|unix.O_DIRECTORY, 0)
			p.has[i] = errs[i] == nil
		}
	}
	return p, errs
}

// inspect stats the open directories of p. foreign is true if one is on another filesystem than its tree's
// root, which Options.OneFilesystem excludes.
func (w *worker) inspect(p dirPair) (st [2]vfs.Stat, foreign bool, err error) {
	for i, has := range p.has {
		if !has {
			continue
		}
		if st[i], err = vfs.Lstat(p.dir[i], ""); err != nil {
			return st, false, err
		}
		top := &w.top[i]
		foreign = foreign || w.opt.OneFilesystem && (st[i].Dev != top.Dev || st[i].Mount != top.Mount)
	}
	return st, foreign, nil
}

// parent opens the parent directory of a path to compare in both trees; the caller closes it. The error is
// EXDEV if it is on a filesystem that Options.OneFilesystem excludes. It walks the path from above, a directory above
// it that is open in both trees, or from the roots if above is nil.
func (w *worker) parent(dir string, above *dirPair) (dirPair, [2]error) {
	from, rest := w.root, dir
	if above != nil {
		from, rest = above.dir, dir[len(above.path)+1:]
	}
	p, errs := openFrom(from, rest, dir, [2]bool{true, true}, vfs.OPath)
	if first(errs) == nil && w.opt.OneFilesystem {
		_, foreign, err := w.inspect(p)
		if foreign {
			err = unix.EXDEV
		}
		errs[older] = err
	}
	return p, errs
}

// compareAbove compares a listed path whose parent directory is missing in one of the two trees. It compares the
// nearest directory above whose own parent exists in both, with everything in it. deep and try are those of
// worker.compare.
func (w *worker) compareAbove(path string, deep bool, try int) error {
	if try > maxTries {
		return keepsChanging(path)
	}
	for path != "." {
		dir, name := Split(path)
		p, errs := w.parent(dir, nil)
		if first(errs) == nil {
			defer p.close()
			return w.compare(p, name, deep, try)
		}
		p.close()
		switch {
		case errno(errs[older]) == unix.EXDEV:
			return nil
		case denied(errs[older]) && denied(errs[newer]):
			return nil
		case !gone(errs[older]) && !gone(errs[newer]):
			return fail(dir, first(errs))
		}
		path, deep = dir, true
	}
	return fail(path, unix.ENOENT)
}
