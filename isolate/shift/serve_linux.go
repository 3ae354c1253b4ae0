package shift

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

// MaxRead is the most that one request reads or writes; the filesystem has to be
// mounted with it.
const MaxRead = 1 << 20

// The descriptors that the program which serves is started with.
const (
	Device = 3 // /dev/fuse
	Tree   = 4 // the directory
)

// Serve shows the directory tree by the FUSE filesystem whose device dev is, with
// ids that are higher by base, until its last mount has gone and all that was
// written is in the directory. It takes root. Cost: that of a request for each
// operation, some 20 to 60 µs, and some hundred bytes for each file that the kernel
// knows; where the filesystem has no file handles, a descriptor too.
func Serve(dev int, tree *os.File, base uint32) error {
	t, err := newTable(tree)
	if err != nil {
		return fmt.Errorf("looking at the tree: %w", err)
	}
	m, err := newCreators()
	if err != nil {
		return fmt.Errorf("preparing threads: %w", err)
	}
	defer close(m)
	const extra = fuse.CAP_HANDLE_KILLPRIV_V2 | fuse.CAP_DONT_MASK | fuse.CAP_READDIRPLUS_AUTO | fuse.CAP_SETXATTR_EXT
	s := &server{RawFileSystem: fuse.NewDefaultRawFileSystem(), t: t, ids: idMap(base), creators: m}
	options := &fuse.MountOptions{
		MaxWrite: MaxRead, EnableAcl: true, EnableSymlinkCaching: true, ExplicitDataCacheControl: true,
		DisableSplice: true, ExtraCapabilities: extra, Logger: log.New(io.Discard, "", 0),
	}
	var f *fuse.Server
	spare.Loop(func() { f, err = fuse.NewServer(s, "/dev/fd/"+strconv.Itoa(dev), options) })
	if err != nil {
		return fmt.Errorf("serving: %w", err)
	}
	f.Serve()
	return nil
}

// server answers the kernel.
type server struct {
	fuse.RawFileSystem
	t        *table
	ids      idMap
	creators creators
	lists    listings
}

// long is how long the kernel may keep what it was told: nobody else writes to the
// directory while it is served.
const cacheTime = 24 * time.Hour

// status is the number that the kernel is told for an error.
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
