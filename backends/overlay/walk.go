//go:build linux

package overlay

import (
	"os"
	"strings"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// descend calls visit for every directory of a layer, "" the first, and then
// for those that it answers with. One directory is open at a time, so that no
// depth is too deep; no symbolic link is followed. What cannot be opened is
// visited with the error.
func descend(tree string, visit func(name string, dir *os.File, err error) (dirs []string, _ error)) error {
	root, err := vfs.OpenDir(unix.AT_FDCWD, tree)
	if err != nil {
		return err
	}
	defer root.Close()
	todo := []string{""}
	for len(todo) > 0 {
		name := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		dir, err := beneath(root, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
		more, err := visit(name, dir, err)
		if dir != nil {
			dir.Close()
		}
		if err != nil {
			return err
		}
		todo = append(todo, more...)
	}
	return nil
}

// isDir looks at the node where the filesystem does not tell types in a list.
func isDir(dir int, entry []byte, typ uint8) bool {
	if typ != unix.DT_UNKNOWN {
		return typ == unix.DT_DIR
	}
	st, err := vfs.Lstat(dir, string(entry))
	return err == nil && st.IsDir()
}

func join(dir string, entry []byte) string {
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
