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

// Trees serves real trees as they are, only to be read, beneath layers of somebody else's:
// package hybrid's. All who want one beneath the same fork get mounts of one filesystem.
type Trees struct {
	b   *backend
	dir string // a socket for each fork
}

// NewTrees keeps sockets in dir, which it makes when it is needed. Program is as that of [Driver].
func NewTrees(dir string, program func() ([]string, error)) *Trees {
	return &Trees{b: &backend{program: program}, dir: dir}
}

// Holds says why the tree at path cannot be served here, or nil. Cost: some system calls.
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

// Serve is what mounts the tree at path, beneath a fork or, "", on its own: layers of an overlay, the topmost
// first. Of a fork it is noted what had changed there since it was taken when it was read.
func (t *Trees) Serve(path string, taken time.Time, fork snapshot.ForkID) []snapshot.Served {
	if fork == "" { // each is served by itself, to be looked at once
		return []snapshot.Served{lowerView{t, path, taken, fork, layer.Whole}}
	}
	return []snapshot.Served{lowerView{t, path, taken, fork, layer.Cached}, lowerView{t, path, taken, fork, layer.Uncached}}
}

// Noticed does what [snapshot.Noticer] says of what is served beneath a fork.
func (t *Trees) Noticed(fork snapshot.ForkID) ([]string, error) {
	all, err := lateReadsAt(t.socketPath(fork))
	return all, fail("asking", string(fork), err)
}

// Lost does what [snapshot.Loser] says of what is served beneath a fork.
func (t *Trees) Lost(ctx context.Context, fork snapshot.ForkID) bool {
	path := t.socketPath(fork)
	return waitEnd(ctx, path) && unix.Access(path, unix.F_OK) == nil
}

// Forget takes away what a server that was killed beneath a fork has left.
func (t *Trees) Forget(fork snapshot.ForkID) {
	if snapshot.ValidID(string(fork)) {
		_ = os.Remove(t.socketPath(fork)) // mostly it is not there
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

// Mount keeps the contract of [snapshot.Served]; it is always read-only.
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

// ask asks who listens at path for the side.
func (s lowerView) requestView(path string) (*os.File, error) {
	root, a, err := requestReply(path, request{Mount: true, View: s.view})
	if err == nil && a.View != s.view { // two layers of one filesystem are none
		root.Close()
		err = because(errs.ErrNotSupported, s.path, "a process of an older snapfs serves it", "end what runs in the sandbox: snapfs stop")
	}
	return root, err
}

// claim listens where nobody does. EBUSY: somebody does.
func (s *server) claimSocket() error {
	dir, err := os.Open(filepath.Dir(s.socketPath))
	if err != nil {
		return err
	}
	defer dir.Close() // which unlocks it
	if err := vfs.Flock(dir, unix.LOCK_EX); err != nil {
		return err
	}
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
