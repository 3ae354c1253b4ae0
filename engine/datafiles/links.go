package datafiles

import (
	"io/fs"
	"os"
	"path/filepath"
)

// AfterLinks returns path after all symbolic links, or only those above its first element that cannot be resolved. dirs
// has the directories that were followed before, and gets the one of this path.
func AfterLinks(path string, dirs map[string]string) string {
	if path == "/" {
		return path
	}
	above, base := filepath.Dir(path), filepath.Base(path)
	dir, ok := dirs[above]
	if !ok {
		dir = AfterLinks(above, dirs)
		dirs[above] = dir
	}
	real := filepath.Join(dir, base)
	if info, err := os.Lstat(real); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		if after, err := filepath.EvalSymlinks(real); err == nil {
			return after
		}
	}
	return real
}
