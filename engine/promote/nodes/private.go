package nodes

import (
	"errors"
	"fmt"
	"os"

	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// IgnoreName is a file with the pattern "*" in each stage, a promotion's private directory of old and new versions. A
// stage may lie in a git work tree, and stay there for years for an undo. Because of the file, `git status` does not
// list the stage and `git clean -fd` does not delete it (gitignore(5)).
const IgnoreName = ".gitignore"

// Ignore creates the file [IgnoreName] in a stage, the open directory dir, unless it exists. name stands for dir in
// errors.
func Ignore(dir *os.File, name string) error {
	fd, err := unix.Openat(int(dir.Fd()), IgnoreName, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err == unix.EEXIST {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: name + "/" + IgnoreName, Err: err}
	}
	f := os.NewFile(uintptr(fd), name+"/"+IgnoreName)
	_, err = f.WriteString("*\n")
	return errors.Join(err, f.Close())
}

// OthersAccess returns the path and the mode of a stage, the open directory f. If another user has access to it, mend
// is the beginning of a command for a hint: "ls -ld " if that user may have changed the stage, else "chmod 700 ".
func OthersAccess(f *os.File) (path string, mode uint32, mend string, err error) {
	st, err := vfs.Lstat(int(f.Fd()), "")
	mode = st.Mode & 0o7777
	if err != nil || int(st.UID) == os.Geteuid() && mode&0o077 == 0 {
		return "", mode, "", err
	}
	path, _ = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd())) // a hint needs the absolute path
	if int(st.UID) != os.Geteuid() || mode&0o022 != 0 {
		return path, mode, "ls -ld ", nil
	}
	return path, mode, "chmod 700 ", nil
}
