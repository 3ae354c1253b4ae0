package idmap

import (
	"os"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A Checker may replace the content of files that programs on the host read through a [View], which shows a
// sandbox's files on the host. It is needed because some files, such as git's configuration, make a program
// of the host run a command that the sandbox chose. It decides by the names of the files; package gitguard
// has one for git's files. Its methods must be safe for concurrent use.
type Checker interface {
	// Checks reports whether the Checker checks regular files of this name before the host reads them. A
	// symbolic link of such a name cannot be followed.
	Checks(name string) bool
	// Text returns the content that the host reads of a file that was looked up by name, whose content is
	// text. path is that of the file in the view and begins with a slash, or "" if it is not known. After an
	// error the file cannot be opened. If the content has more than a megabyte, Text may not change its
	// length.
	Text(name, path string, text []byte) ([]byte, error)
}

// maxChecked is the size in bytes of the largest file that a [Checker] checks; a larger one cannot be opened.
// Up to maxFitted, a file is read to find the size of its checked content. Above, its checked content must
// have the size of the file.
const (
	maxChecked = 64 << 20
	maxFitted  = 1 << 20
)

// checkedName returns name if the [Checker], which decides what the host reads of some files, checks files of
// that name; else "".
func (s *server) checkedName(name string) string {
	if s.checker == nil || !s.checker.Checks(name) {
		return ""
	}
	return name
}

// openChecked opens, with the flags of open(2), the file n, open as fd, that a [Checker] checks: for reading,
// a copy of the content that the Checker returns, which no process of the sandbox can change. A file that is
// opened for reading and writing must be emptied first.
func (s *server) openChecked(n *inode, fd, flags int) (int, error) {
	switch {
	case n.kind != unix.S_IFREG:
		return -1, unix.EIO
	case flags&unix.O_ACCMODE == unix.O_WRONLY, flags&unix.O_TRUNC != 0:
		return reopen(fd, flags)
	case flags&unix.O_ACCMODE == unix.O_RDWR:
		return -1, unix.EACCES
	}
	text, err := s.checkedText(n, fd)
	if err != nil {
		return -1, err
	}
	mem, err := unix.MemfdCreate("snapfs-checked", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	for at := 0; at < len(text); {
		done, err := unix.Pwrite(mem, text[at:], int64(at))
		if err != nil {
			unix.Close(mem)
			return -1, err
		}
		at += done
	}
	return mem, nil
}

// checkedText returns the content that the [Checker] lets the host read of a file, open as fd. Error EACCES:
// the Checker refuses the file, or the file is larger than maxChecked.
func (s *server) checkedText(n *inode, fd int) ([]byte, error) {
	f, err := reopen(fd, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	defer unix.Close(f)
	st, err := vfs.Lstat(f, "")
	if err != nil {
		return nil, err
	}
	if st.Size > maxChecked {
		return nil, unix.EACCES
	}
	text, err := readAll(f, st.Size)
	if err != nil {
		return nil, err
	}
	if text, err = s.checker.Text(n.checked, s.pathOf(fd), text); err != nil {
		return nil, unix.EACCES
	}
	return text, nil
}

// readAll reads the first size bytes of the file fd, to be checked by a [Checker], or fewer bytes if the file
// ends before.
func readAll(fd int, size int64) ([]byte, error) {
	buf := make([]byte, size)
	for at := 0; at < len(buf); {
		n, err := unix.Pread(fd, buf[at:], int64(at))
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return buf[:at], nil
		}
		at += n
	}
	return buf, nil
}

// pathOf returns the path, in the view that shows the directory on the host, of the file behind the O_PATH
// descriptor fd, for the [Checker]; "" if the file has no path there.
func (s *server) pathOf(fd int) string {
	root, err := os.Readlink(procPath(int(s.t.root.Fd())))
	if err != nil {
		return ""
	}
	path, err := os.Readlink(procPath(fd))
	if err != nil {
		return ""
	}
	rest, _ := restIn(path, root)
	return rest
}

// fitChecked sets the size in out, the attributes of a checked file, to that of the content that the
// [Checker] lets the host read. A file that cannot be read keeps its own size.
func (s *server) fitChecked(n *inode, fd int, out *fuse.Attr) {
	if n.checked == "" || n.kind != unix.S_IFREG || out.Size == 0 || out.Size > maxFitted {
		return
	}
	if text, err := s.checkedText(n, fd); err == nil {
		out.Size = uint64(len(text))
	}
}
