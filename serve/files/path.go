package files

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"

	"github.com/snapfs/snapfs/errs"
)

// maxPath is the longest path in bytes that a client may name: the longest that the kernel accepts in one
// call. A longer one is errs.ErrInvalid.
const maxPath = 4095

// check returns errs.ErrInvalid for a path that no file can have, such as an empty one. op is named in the
// error.
func check(op, path string) error {
	switch {
	case path == "":
		return errs.New(op, "", errs.ErrInvalid, "the path is empty")
	case len(path) > maxPath:
		return errs.New(op, path[:64]+"…", errs.ErrInvalid, "the path is longer than 4095 bytes")
	case strings.ContainsRune(path, 0):
		return errs.New(op, path, errs.ErrInvalid, "the path contains a zero byte")
	}
	return nil
}

// split splits a client's path into its parent directory and its last element. name is "" if the path ends in
// ".", ".." or is the root.
func split(path string) (parent, name string) {
	path = strings.TrimRight(path, "/")
	parent, name = ".", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		parent, name = path[:i+1], path[i+1:]
	}
	if name == "." || name == ".." {
		name = ""
	}
	return parent, name
}

// failure converts an error of the kernel into an [*errs.Error] that names op and path; it returns nil for
// nil.
func failure(op, path string, err error) error {
	var e *errs.Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	var errno syscall.Errno // without the inner path, which may be one of /proc
	if errors.As(err, &errno) {
		err = errno
	}
	kind := errs.KindOf(err)
	for _, m := range []struct{ err, kind error }{
		{syscall.ENOTEMPTY, errs.ErrExists},
		{syscall.ENOTDIR, errs.ErrInvalid},
		{syscall.EISDIR, errs.ErrInvalid},
		{syscall.ELOOP, errs.ErrInvalid},
		{syscall.ENAMETOOLONG, errs.ErrInvalid},
		{syscall.EINVAL, errs.ErrInvalid},
		{syscall.EXDEV, errs.ErrNotSupported},
		{syscall.EMFILE, errs.ErrNotSupported},
		{syscall.EFBIG, errs.ErrNoSpace},
	} {
		if errors.Is(err, m.err) {
			kind = m.kind
		}
	}
	return &errs.Error{Op: op, Path: path, Kind: kind, Err: err}
}

// typeOf returns the type of a file with this mode, as [Info] holds it: "file", "directory" and so on.
func typeOf(mode fs.FileMode) string {
	switch mode.Type() {
	case 0:
		return File
	case fs.ModeDir:
		return Directory
	case fs.ModeSymlink:
		return Symlink
	case fs.ModeNamedPipe:
		return Pipe
	case fs.ModeSocket:
		return Socket
	}
	return Device
}
