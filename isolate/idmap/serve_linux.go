package idmap

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log" //nolint:depguard // the library takes one of its loggers, to be silent
	"os"
	"strconv"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/spare"
)

// MaxRead is the largest read or write, in bytes, in one FUSE request. The filesystem must be mounted with
// this value as max_read.
const MaxRead = 1 << 20

// The descriptor numbers under which a process that serves a directory with mapped ids gets its files.
const (
	Device = 3 // /dev/fuse
	Tree   = 4 // the directory
)

// Serve shows the directory tree, with ids higher by base, through the FUSE device dev. It
// returns after the last mount is gone and all data is written to the directory. It requires
// root. Cost: one request of 20 to 60 µs per operation, and some hundred bytes per file that
// the kernel knows, plus a descriptor where the filesystem has no file handles.
func Serve(dev int, tree *os.File, base uint32) error {
	t, err := newTable(tree)
	if err != nil {
		return fmt.Errorf("opening the tree: %w", err)
	}
	m, err := newCreators()
	if err != nil {
		return fmt.Errorf("starting threads: %w", err)
	}
	defer close(m)
	s := &server{RawFileSystem: fuse.NewDefaultRawFileSystem(), t: t, ids: higherBy(base), creators: m, cache: cacheTime}
	options := mountOptions()
	options.EnableSymlinkCaching, options.ExplicitDataCacheControl = true, true
	var f *fuse.Server
	spare.Loop(func() { f, err = fuse.NewServer(s, "/dev/fd/"+strconv.Itoa(dev), options) })
	if err != nil {
		return fmt.Errorf("serving: %w", err)
	}
	f.Serve()
	return nil
}

// mountOptions returns the FUSE options that all servers of this package share, those of [Serve] and of a
// [View].
func mountOptions() *fuse.MountOptions {
	const extra = fuse.CAP_HANDLE_KILLPRIV_V2 | fuse.CAP_DONT_MASK | fuse.CAP_READDIRPLUS_AUTO | fuse.CAP_SETXATTR_EXT
	return &fuse.MountOptions{
		MaxWrite: MaxRead, EnableAcl: true, DisableSplice: true, ExtraCapabilities: extra, Logger: log.New(io.Discard, "", 0),
	}
}

// A server answers the kernel's FUSE requests for one directory, which it shows with mapped ids.
type server struct {
	fuse.RawFileSystem
	t        *table
	ids      idMap
	creators creators
	lists    listings
	// cache is how long the kernel may cache names and attributes.
	cache time.Duration
	// handles are the open files of a [View], and at its mount point; nil for a directory that only this server writes.
	handles *handles
	at      string
	checker Checker // of a [View], or nil
}

// cacheTime is the time for which the kernel may cache names and attributes: only this server
// writes to the directory while it is mounted.
const cacheTime = 24 * time.Hour

// status converts an error of the directory on disk to the error number with which a FUSE request of the
// kernel is answered.
func status(err error) fuse.Status {
	var no unix.Errno
	switch {
	case err == nil:
		return fuse.OK
	case errors.As(err, &no):
		return fuse.Status(no)
	case errors.Is(err, fs.ErrNotExist):
		return fuse.ENOENT
	}
	return fuse.EIO
}
