//go:build linux

package store

import (
	"os"
	"strings"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Walk calls visit for each directory of the layer at tree, first for "", the root, and then for the
// directories that visit returns. Only one directory is open at a time, so depth is unlimited; symbolic links
// are not followed. visit gets the error for a directory that cannot be opened.
func Walk(tree string, visit func(name string, dir *os.File, err error) (dirs []string, _ error)) error {
	root, err := vfs.OpenDir(unix.AT_FDCWD, tree)
	if err != nil {
		return err
	}
	defer root.Close()
	todo := []string{""}
	for len(todo) > 0 {
		name := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		dir := root
		if name != "" {
			dir, err = OpenIn(root, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
		}
		more, err := visit(name, dir, err)
		if name != "" && dir != nil {
			dir.Close()
		}
		if err != nil {
			return err
		}
		todo = append(todo, more...)
	}
	return nil
}

// IsDir reports whether the entry of the directory dir, which the kernel listed with the type typ, is a
// directory. It calls lstat if the filesystem does not list types.
func IsDir(dir int, entry []byte, typ uint8) bool {
	if typ != unix.DT_UNKNOWN {
		return typ == unix.DT_DIR
	}
	st, err := vfs.Lstat(dir, string(entry))
	return err == nil && st.IsDir()
}

// Join joins dir, a path inside a layer ("" for its root), and the name entry of something in that directory.
func Join(dir string, entry []byte) string {
	if dir == "" {
		return string(entry)
	}
	var b strings.Builder
	b.Grow(len(dir) + 1 + len(entry))
	b.WriteString(dir)
	b.WriteByte('/')
	b.Write(entry)
	return b.String()
}

// OpenIn opens the path name inside a layer, "" for its root directory root, without following symbolic
// links. flags are those of open(2). The caller closes the file.
func OpenIn(root *os.File, name string, flags int) (*os.File, error) {
	if name == "" {
		name = "."
	}
	return vfs.OpenBeneath(int(root.Fd()), name, flags, 0)
}
