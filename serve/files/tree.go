package files

import (
	"encoding/json"
	"io"
	"time"
	"unicode/utf8"
)

// The types that a file of a sandbox can have, as the field Type of an [Info] says them.
const (
	File      = "file"
	Directory = "directory"
	Symlink   = "symlink"
	Pipe      = "pipe"
	Socket    = "socket"
	Device    = "device"
)

// An Info describes a file of a sandbox, such as its type, size and mode, for clients of the server. The
// methods of a [Tree] return it.
type Info struct {
	// Name is the last element of its path. In JSON, bytes that are not UTF-8 are replaced there, and RawName has them.
	Name    string `json:"name"`
	RawName []byte `json:"raw_name,omitempty" doc:"the name in base64, where it is not UTF-8"`
	Type    string `json:"type" enum:"file,directory,symlink,pipe,socket,device"`
	// Size is in bytes.
	Size int64 `json:"size" doc:"in bytes"`
	// Mode has the twelve bits of chmod(2), in octal.
	Mode string `json:"mode" doc:"the permission bits in octal" example:"0644"`
	// UID and GID are ids inside the sandbox.
	UID      uint32    `json:"uid"`
	GID      uint32    `json:"gid"`
	Modified time.Time `json:"modified"`
	// Target is what a symbolic link contains.
	Target string `json:"target,omitempty" doc:"the target of a symbolic link"`
}

// setName sets the file's name, and RawName if the name is not UTF-8, which JSON cannot hold.
func (i *Info) setName(name string) {
	i.Name, i.RawName = name, nil
	if !utf8.ValidString(name) {
		i.RawName = []byte(name)
	}
}

// UnmarshalJSON decodes an Info, and restores a name that is not UTF-8 from RawName.
func (i *Info) UnmarshalJSON(data []byte) error {
	type plain Info
	if err := json.Unmarshal(data, (*plain)(i)); err != nil {
		return err
	}
	if len(i.RawName) > 0 {
		i.Name = string(i.RawName)
	}
	return nil
}

// maxList is the largest number of entries that one call of [Tree.List] returns. A client gets further ones
// by another call, after the last name.
const maxList = 1000

// ListOptions select the entries of a directory that [Tree.List] returns, for listing it in pages.
type ListOptions struct {
	// After is a name: the list begins with the next one. Names are in the order of their bytes.
	After string
	// Limit is the most entries to return; 0, and what is beyond it, means maxList.
	Limit int
}

// WriteOptions say how [Tree.Write] writes a file: the mode of a new one, and whether to make parents or to
// replace.
type WriteOptions struct {
	// Mode are the permission bits of a new file, 0 for 0644. A file that is replaced keeps its own.
	Mode uint32
	// Parents makes missing parent directories, with mode 0755. They stay if the write fails.
	Parents bool
	// New returns errs.ErrExists where the file exists.
	New bool
}

// A Tree has the operations on the files in one directory, such as the root of a sandbox. A path is relative
// to that directory, with or without a leading slash. Symbolic links in a path are followed; an absolute one
// starts at that directory. Errors, besides those named at each method: errs.ErrNotFound; errs.ErrInvalid (a
// path that is empty, too long, contains NUL, or leads through a file that is no directory); errs.ErrDenied;
// errs.ErrNoSpace; errs.ErrReadOnly.
type Tree interface {
	// Stat describes the file at path. With follow, it describes the target of a symbolic link.
	Stat(path string, follow bool) (Info, error)
	// List describes the entries of the directory at path, sorted by name, and reports whether there are
	// more. Entries that are removed meanwhile are left out. Cost: it reads the names of the whole directory.
	List(path string, o ListOptions) (entries []Info, more bool, err error)
	// Read opens the regular file at path from the offset on, in bytes. The caller must read it to the end or
	// close it before the next call.
	Read(path string, offset int64) (io.ReadCloser, Info, error)
	// Write makes a regular file with the bytes of from, or replaces one atomically: after an error the old
	// file is unchanged. It follows symbolic links. The new file has the mode of the old one, and its owner
	// where that is permitted, but not its extended attributes and hard links.
	Write(path string, from io.Reader, o WriteOptions) (Info, error)
	// MakeDir makes a directory with mode 0755. With parents, it makes missing parents too, and a directory that exists
	// is no error. Errors: errs.ErrExists.
	MakeDir(path string, parents bool) (Info, error)
	// Rename moves the entry from to the path to, and replaces a file or an empty directory there. It does not follow
	// a symbolic link at the end of either. Errors: errs.ErrExists (a directory that is not empty), errs.ErrNotSupported
	// (another filesystem).
	Rename(from, to string) error
	// Remove removes a file or an empty directory; with all, also a directory with everything in it, of which an error
	// leaves a part. It does not follow a symbolic link at the end. Errors: errs.ErrExists (the directory is not empty),
	// errs.ErrBusy (a mount).
	Remove(path string, all bool) error
}
