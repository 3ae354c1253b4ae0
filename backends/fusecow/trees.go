//go:build linux

package fusecow

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// Trees serves real directory trees read-only over FUSE, as lower layers for package overlayfuse. All mounts
// for one fork are mounts of one filesystem.
type Trees struct {
	b   *backend
	dir string // has a socket for each fork
}

// NewTrees returns a [Trees], which serves real trees over FUSE as lower layers of overlays. Its servers
// listen at sockets in dir, which it creates when needed. program returns the command line of the server
// program, as Place.Server does.
func NewTrees(dir string, program func() ([]string, error)) *Trees {
	return &Trees{b: &backend{program: program}, dir: dir}
}

// Holds returns nil if the real tree at path can be served over FUSE, as the lower layer of an overlay, or
// the reason why not. Cost: some system calls.
func (t *Trees) Holds(path string) error {
	err := checkFUSE()
	if err == nil {
		err = checkTree(path)
	}
	if err == nil {
		_, err = t.b.serverProgram()
	}
	return fail("opening", "", err)
}

// Serve returns the mounts that together show the tree at path, as layers of an overlay, topmost first. One
// server process serves all mounts for a fork, and records the files that had changed since taken, the time
// of the capture, when they were read. If fork is "", a snapshot is read once: its mount has a server of its
// own.
func (t *Trees) Serve(path string, taken time.Time, fork snapshot.ForkID) []snapshot.Served {
	if fork == "" { // each mount has a server of its own
		return []snapshot.Served{lowerView{t, path, taken, fork, layer.Whole}}
	}
	return []snapshot.Served{lowerView{t, path, taken, fork, layer.Cached}, lowerView{t, path, taken, fork, layer.Uncached}}
}

// Noticed returns the paths of files of the real tree that had changed since the capture when the fork read
// them; see [snapshot.ServerMonitor].
func (t *Trees) Noticed(fork snapshot.ForkID) ([]string, error) {
	all, err := lateReadsAt(t.socketPath(fork))
	return all, fail("reading late files of", string(fork), err)
}

// WaitExit waits until the process that serves the fork's lower layers has exited, and reports whether it was
// killed; see [snapshot.ServerMonitor].
func (t *Trees) WaitExit(ctx context.Context, fork snapshot.ForkID) bool {
	path := t.socketPath(fork)
	return waitEnd(ctx, path) && unix.Access(path, unix.F_OK) == nil
}

// Forget removes the socket that a killed server of the fork's lower layers may have left.
func (t *Trees) Forget(fork snapshot.ForkID) {
	if snapshot.ValidID(string(fork)) {
		_ = os.Remove(t.socketPath(fork)) // usually there is none
	}
}

func (t *Trees) socketPath(fork snapshot.ForkID) string { return filepath.Join(t.dir, string(fork)) }

type lowerView struct {
	trees *Trees
	path  string
	taken time.Time
	fork  snapshot.ForkID
	view  layer.View
}

// Mount returns a detached, read-only mount of a view, one of the parts of a real tree that is served for an
// overlay. It implements [snapshot.Served].
func (s lowerView) Mount(ctx context.Context, _ bool) (fd int, err error) {
	var root *os.File
	what := startRequest{Record: record{Tree: s.path, Taken: s.taken}, View: s.view}
	if s.fork == "" {
		root, err = s.trees.b.startServer(&what)
	} else {
		what.Socket = s.trees.socketPath(s.fork)
		if err = os.MkdirAll(s.trees.dir, 0o700); err == nil {
			err = s.trees.b.retryBusy(ctx, what.Socket, func() (again bool, err error) {
				if root, err = s.requestView(what.Socket); errors.Is(err, errNotServed) {
					root, err = s.trees.b.startServer(&what)
				}
				return errors.Is(err, unix.EBUSY), err
			})
		}
	}
	if err == nil {
		fd, err = dupFD(root)
	}
	return fd, fail("mounting", string(s.fork), err)
}

// requestView returns a detached mount of a view, one part of a served tree, from the server that listens at
// path; the caller closes it. ErrNotSupported: the server is of an older snapfs.
func (s lowerView) requestView(path string) (*os.File, error) {
	root, a, err := requestReply(path, request{Mount: true, View: s.view})
	if err == nil && a.View != s.view { // two mounts of one filesystem cannot be two layers
		root.Close()
		err = because(errs.ErrNotSupported, s.path, "a process of an older snapfs serves the tree", "stop the sandbox: snapfs stop")
	}
	return root, err
}

// claimSocket starts to listen at the socket path of a read-only server. EBUSY means that another server
// already does.
func (s *server) claimSocket() error {
	dir, err := os.Open(filepath.Dir(s.socketPath))
	if err != nil {
		return err
	}
	if err := vfs.Flock(dir, unix.LOCK_EX); err != nil {
		dir.Close()
		return err
	}
	defer vfs.Unlock(dir)
	p, err := fdsock.Dial(s.socketPath)
	switch {
	case err == nil:
		_ = p.Close() // nothing is written
		fallthrough
	case !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ECONNREFUSED):
		return &os.PathError{Op: "listen", Path: s.socketPath, Err: unix.EBUSY}
	}
	if s.socket, err = listen(s.socketPath); err == nil {
		go s.acceptRequests(s.socket)
	}
	return err
}
