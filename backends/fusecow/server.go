//go:build linux

package fusecow

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/exactjson"
	"github.com/snapfs/snapfs/internal/fdsock"
	"golang.org/x/sys/unix"
)

// StarterFD is the number of a descriptor in a server process: the socket by which the process that started
// the server sends it the first request and gets the first mount.
const StarterFD = 3

// A MountedFS is a FUSE filesystem that this process serves. Package mount implements it; it is an interface
// so that this package does not load go-fuse.
type MountedFS interface {
	// MountAgain returns another detached mount (fsmount(2)) of the served filesystem, with the MOUNT_ATTR_*
	// flags attr, for a process that needs the fork's tree too. The caller closes the descriptor.
	MountAgain(attr uint64) (*os.File, error)
	// Flush writes all changes made in the mounts to the fork's layer, the directory on disk. It includes
	// changes of mapped pages.
	Flush() error
	// Switch replaces the served filesystem by next, another state, and closes the old one. It calls then
	// when all that can be undone is done. After an error before that point nothing has changed.
	Switch(next *layer.FS, then func() error) error
	// Wait returns after the last mount of the served filesystem is gone.
	Wait()
	// Close closes the FUSE connection, by which the kernel sends requests. Call it after Wait.
	Close()
}

// A Mounter starts to serve f over FUSE: all of it, or its cached or uncached view ([layer.View]). It returns the
// served filesystem and a detached mount of it with the MOUNT_ATTR_* flags attr, which the caller closes. [Serve]
// gets one, so that this package does not load go-fuse.
type Mounter func(f *layer.FS, view layer.View, attr uint64) (MountedFS, *os.File, error)

// A startRequest is the first message to a new server: serve a fork for writing, or, without
// Fork, the tree of Record read-only. A read-only server listens at Socket unless that is
// empty. Lower is the path of the tree.
type startRequest struct {
	Dir    string          `json:"dir"`
	Fork   snapshot.ForkID `json:"fork,omitempty"`
	Socket string          `json:"ask,omitempty"`
	View   layer.View      `json:"side,omitempty"`
	Lower  string          `json:"lower"`
	Record record          `json:"record"`
	// Hide says that a file with names to hide comes with the message: see writeNames.
	Hide bool `json:"hide,omitempty"`

	names *os.File
}

// Serve is the main function of a server process: it receives a startRequest from the process that started
// it, replies with a mount, and serves the tree until the last mount is gone. If ctx ends before, the mounts
// stop working, but all changes are committed.
func Serve(ctx context.Context, mount Mounter) error {
	p := fdsock.FromFD(StarterFD)
	text, files, err := p.Receive()
	var what startRequest
	if err == nil {
		err = exactjson.Decode(text, &what)
	}
	var hide []string
	if err == nil && what.Hide {
		hide, err = readNames(files)
	}
	for _, f := range files {
		f.Close()
	}
	if err != nil {
		return errors.Join(err, p.Close())
	}
	s := &server{b: &backend{dir: what.Dir}, fork: what.Fork, socketPath: what.Socket, mount: mount, hide: hide}
	root, err := s.start(what.Lower, &what.Record, what.View)
	sendMount(p, root, err)
	if err = errors.Join(err, p.Close()); err != nil {
		return err
	}
	return s.wait(ctx)
}

// A server serves one tree from this process over FUSE: a fork for writing, or a tree read-only if fork is
// "".
type server struct {
	b     *backend
	fork  snapshot.ForkID
	mount Mounter
	fs    *layer.FS
	mu    sync.Mutex
	// views are the views that were mounted; nil for one without mounts. A writable tree has only Whole.
	views      map[layer.View]MountedFS
	gone       chan struct{} // closed when no mount is left
	layer      string        // top layer of a fork
	hide       []string      // names of the lower that the tree does not show
	reserved   []*os.File    // mounts of Uncached for requests that are expected: see reserve
	socketPath string        // of the listening socket
	socket     *fdsock.Conn
}

// start opens the layers of the fork or snapshot with the record r above the directory lower, starts to
// accept requests, and returns a detached mount of the view (the whole tree or a part of it), which the
// caller closes.
func (s *server) start(lower string, r *record, view layer.View) (*os.File, error) {
	s.mu.Lock() // requests wait
	defer s.mu.Unlock()
	o := s.b.optionsOn(lower, r)
	o.ReadOnly = s.fork == ""
	s.views, s.gone = map[layer.View]MountedFS{}, make(chan struct{})
	var err error
	if s.fs, err = layer.Open(o); err != nil {
		return nil, err
	}
	s.fs.Hide(s.hide)
	switch {
	case s.fork != "":
		err = s.claimFork(r)
	case s.socketPath != "":
		err = s.claimSocket()
	}
	var root *os.File
	if err == nil {
		root, err = s.mountView(view, false)
	}
	if err != nil {
		s.stopListening()
		return nil, errors.Join(err, s.fs.Close())
	}
	return root, nil
}

// claimFork starts to listen in the layer of a fork that was opened for writing, so that other processes get
// their mounts from this server. The caller holds mu. EBUSY means that the fork has moved on to another
// layer.
func (s *server) claimFork(r *record) error {
	now, err := s.b.fork(s.fork)
	if err != nil {
		return err
	}
	s.layer = r.upper()
	if now.upper() != s.layer {
		return &os.PathError{Op: "open", Path: s.b.layerPath(s.layer), Err: unix.EBUSY}
	}
	if s.socket, err = listen(s.b.socketPath(s.layer)); err != nil {
		return err
	}
	s.socketPath = s.b.socketPath(s.layer)
	go s.acceptRequests(s.socket)
	if now, err = s.b.fork(s.fork); err == nil { // later changes of the limit arrive as requests
		err = s.b.setQuota(s.fs, &now)
	}
	return err
}

// mountView returns another detached mount of a view, the whole tree or one of the two parts that overlayfs
// stacks, and starts to serve that view if needed. With readOnly writes through the mount fail. The caller
// holds mu. EBUSY or ENOTCONN: the view, or the part that is stacked with it, has lost its last mount. It
// cannot be mounted again before the other view has ended too, because the kernel still has its inodes
// cached.
func (s *server) mountView(view layer.View, readOnly bool) (*os.File, error) {
	if len(s.reserved) > 0 && view == layer.Uncached {
		root := s.reserved[0]
		s.reserved = slices.Delete(s.reserved, 0, 1)
		return root, nil
	}
	attr := uint64(0)
	if readOnly || s.fork == "" {
		attr = unix.MOUNT_ATTR_RDONLY
	}
	if m, was := s.views[view]; m != nil {
		root, err := m.MountAgain(attr)
		if err == nil && view == layer.Cached {
			if err = s.reserve(attr); err != nil {
				root.Close()
				return nil, err
			}
		}
		return root, err
	} else if was {
		return nil, unix.EBUSY
	}
	m, root, err := s.mount(s.fs, view, attr)
	if err != nil {
		return nil, err
	}
	s.views[view] = m
	go func() {
		m.Wait()
		s.viewEnded(view)
	}()
	return root, nil
}

// reserve mounts the view Uncached, with the MOUNT_ATTR_* flags attr, for a process that has just got a mount
// of the view Cached and requests the other next. Without it the process waits in vain if Uncached loses its
// last mount in between: the process itself has the mount of Cached that must go first. A reserved mount that
// is not requested within two seconds goes. The caller holds mu. EBUSY or ENOTCONN: Uncached has lost its last
// mount already.
func (s *server) reserve(attr uint64) error {
	m, was := s.views[layer.Uncached]
	switch {
	case !was:
		return nil // the request for it will mount it
	case m == nil:
		return unix.EBUSY
	}
	root, err := m.MountAgain(attr)
	if err != nil {
		return err
	}
	s.reserved = append(s.reserved, root)
	time.AfterFunc(2*time.Second, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if i := slices.Index(s.reserved, root); i >= 0 {
			s.reserved = slices.Delete(s.reserved, i, i+1)
			root.Close()
		}
	})
	return nil
}

// viewEnded closes the FUSE connection of a view, one of the mounts that show parts of a tree, after its last
// mount is gone. After the last view the server ends.
func (s *server) viewEnded(view layer.View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.views[view].Close()
	s.views[view] = nil
	for _, m := range s.views {
		if m != nil {
			return
		}
	}
	s.stopListening() // no more requests
	close(s.gone)
}

// wait waits until the last mount of the served tree is gone, and closes the filesystem. If ctx ends first,
// wait only writes all changes to disk.
func (s *server) wait(ctx context.Context) error {
	select {
	case <-s.gone:
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.fs.Sync()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// What cannot be written now is recovered as after a crash.
	return s.fs.Close()
}

// listen creates a socket at path, at which other processes request mounts from this server. It first removes
// the socket file that a killed server left there.
func listen(path string) (*fdsock.Conn, error) {
	if err := os.Remove(path); err != nil && !notExist(err) { // of a killed server
		return nil, err
	}
	socket, err := fdsock.Listen(path)
	if err != nil {
		return nil, &os.PathError{Op: "listen", Path: path, Err: err}
	}
	return socket, nil
}

// stopListening shuts down the socket at which the server takes requests for mounts; acceptRequests then
// closes it. The caller holds mu.
func (s *server) stopListening() {
	if s.socket != nil {
		_ = os.Remove(s.socketPath)
		_ = s.socket.Shutdown() // cannot fail: it is listening
		s.socket = nil
	}
}
