package hostfs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A lookupCache looks up each path of the host once for one start of a sandbox, since several rules ask for the same
// paths. It does not see later changes of the host, and is not safe for concurrent use.
type lookupCache struct {
	stats map[string]lookup
	dirs  map[string]string // each directory that was resolved, with its path without links; "" if it does not exist
	seen  map[string]bool   // directories that the search for secrets has found
}

// A lookup is the result of lstat(2) for one path of the host.
type lookup struct {
	vfs.Stat
	err error
}

// newLookupCache returns an empty lookupCache. It does not look up dirs, which are known to be directories.
func newLookupCache(dirs ...string) *lookupCache {
	l := &lookupCache{stats: map[string]lookup{}, dirs: map[string]string{}, seen: make(map[string]bool, len(dirs))}
	for _, dir := range dirs {
		l.seen[dir] = true
	}
	return l
}

// lstat returns the attributes of the file at path, and does not follow a symbolic link there. Of a directory in
// seen it returns the file type only.
func (l *lookupCache) lstat(path string) (vfs.Stat, error) {
	if l.seen[path] {
		return vfs.Stat{Mode: unix.S_IFDIR}, nil
	}
	found, known := l.stats[path]
	if !known {
		found.Stat, found.err = vfs.Lstat(unix.AT_FDCWD, path)
		l.stats[path] = found
	}
	return found.Stat, found.err
}

// resolve returns the path of dir without symbolic links, or "" if dir does not exist or cannot be looked up.
// Cost: one system call for each directory that l has not seen.
func (l *lookupCache) resolve(dir string) string {
	if dir == "/" || dir == "." {
		return dir
	}
	to, known := l.dirs[dir]
	if known {
		return to
	}
	if above := l.resolve(filepath.Dir(dir)); above != "" {
		to = filepath.Join(above, filepath.Base(dir))
		st, err := l.lstat(to)
		switch {
		case err != nil:
			to = ""
		case st.IsSymlink():
			to, _ = filepath.EvalSymlinks(to) // "" after an error
		}
	}
	l.dirs[dir] = to
	return to
}

// followed returns paths, which a sandbox must not see, and for each that is a symbolic link or lies under
// one, also its target. Each path occurs once.
func (l *lookupCache) followed(paths []string) []string {
	slices.Sort(paths)
	paths = slices.Compact(paths)
	for _, p := range paths[:len(paths):len(paths)] {
		dir, name := filepath.Split(filepath.Clean(p))
		dir = filepath.Clean(dir)
		to := l.resolve(dir)
		if to == "" {
			to = dir
		}
		path := filepath.Join(to, name)
		if st, err := l.lstat(path); err == nil && st.IsSymlink() {
			if path, err = filepath.EvalSymlinks(path); err != nil {
				continue
			}
		}
		if path != p && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// firstMissing follows path with all symbolic links in it, also those that lead nowhere. It returns the path,
// without links, of the first element that does not exist; "" if all exist or cannot be looked up, or if there are more
// than [vfs.MaxLinks] links.
func (l *lookupCache) firstMissing(path string) string {
	at, links := "/", 0
	for rest := strings.Split(path, "/"); len(rest) > 0; {
		var name string
		name, rest = rest[0], rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		st, err := l.lstat(next)
		switch {
		case absent(err) && len(rest) > 0 && !isDir(at), err != nil && !absent(err):
			return "" // a file is where a directory would be
		case err != nil:
			return next
		case !st.IsSymlink():
			at = next
			continue
		}
		to, err := os.Readlink(next)
		if links++; err != nil || links > vfs.MaxLinks {
			return ""
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return ""
}

// dangling returns those of paths, secrets to hide, that are symbolic links to a path that does not exist.
func (l *lookupCache) dangling(paths []string) (list []string) {
	for _, p := range paths {
		st, err := l.lstat(p)
		if err == nil && st.IsSymlink() {
			if _, err := os.Stat(p); absent(err) {
				list = append(list, p)
			}
		}
	}
	return list
}

// aliases finds the other paths under which files of the host are visible because their filesystem, or a part of it, is
// mounted more than once.
type aliases struct {
	s     surveyor
	count map[uint64]int // the mounts of each device
}

// aliasesOf returns the aliases among mounts, those of the host.
func aliasesOf(mounts []mount.Point) aliases {
	a := aliases{s: surveyor{mounts: mounts}, count: make(map[uint64]int, len(mounts))}
	for _, m := range mounts {
		a.count[m.Dev]++
	}
	return a
}

// of returns the other paths of the files at paths, which a sandbox must not see.
func (a aliases) of(paths ...string) (others []string) {
	for _, p := range paths {
		on := a.s.holding(p)
		if on == nil || a.count[on.Dev] < 2 {
			continue
		}
		place := filepath.Join(on.Root, strings.TrimPrefix(p, on.Path))
		for i := range a.s.mounts {
			m := &a.s.mounts[i]
			if m != on && m.Dev == on.Dev && Within(place, m.Root) {
				others = append(others, filepath.Join(m.Path, strings.TrimPrefix(place, m.Root)))
			}
		}
	}
	return others
}
