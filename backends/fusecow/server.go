//go:build linux

package fusecow

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/fdsock"
	"golang.org/x/sys/unix"
)

// Starter is the descriptor by which a process that serves one tree hears from who
// started it.
const StarterFD = 3

// Mounted is a filesystem that this process answers for; package mount makes it.
type MountedFS interface {
	// More is one more mount, with MOUNT_ATTR_* flags.
	MountAgain(attr uint64) (*os.File, error)
	// Flush tells the log of everything, what is in mapped pages included.
	Flush() error
	// Switch has another filesystem answer, and closes the one that did; then is called when
	// nothing can keep it from happening. After an error before that all is as it was.
	Switch(next *layer.FS, then func() error) error
	// Wait returns when the last mount has gone.
	Wait()
	// Close lets go of the kernel's side, after Wait.
	Close()
}

// A Mounter mounts a filesystem, or a side of it, detached, with MOUNT_ATTR_* flags.
type Mounter func(f *layer.FS, side layer.View, attr uint64) (MountedFS, *os.File, error)

// start says what a process is to serve: a fork to be written to, or, without its
// id, what a record names to be looked at; of that it listens at Ask, unless it is empty.
// Lower is where the tree is read.
type startRequest struct {
	Dir    string          `json:"dir"`
	Fork   snapshot.ForkID `json:"fork,omitempty"`
	Socket string          `json:"ask,omitempty"`
	View   layer.View      `json:"side,omitempty"`
	Lower  string          `json:"lower"`
	Record record          `json:"record"`
}

// Serve is the whole life of a process that serves one tree: it hears which, hands
// out a mount of it, and answers for it until the last one has gone. Where ctx ends
// before, the mounts are dead from then on, and the layers in order.
func Serve(ctx context.Context, mount Mounter) error {
	p := fdsock.FromFD(StarterFD)
	text, _, err := p.Receive()
	var what startRequest
	if err == nil {
		err = json.Unmarshal(text, &what)
	}
	if err != nil {
		return errors.Join(err, p.Close())
	}
	s := &server{b: &backend{dir: what.Dir}, fork: what.Fork, socketPath: what.Socket, mount: mount}
	root, err := s.start(what.Lower, &what.Record, what.View)
	sendMount(p, root, err)
	if err = errors.Join(err, p.Close()); err != nil {
		return err
	}
	return s.wait(ctx)
}

// A server has a tree open, to be written to where it is a fork.
type server struct {
	b     *backend
	fork  snapshot.ForkID
	mount Mounter
	fs    *layer.FS
	mu    sync.Mutex
	// sides are those that were mounted, nil where they have no mount any more; Whole alone, of what is written to.
	views      map[layer.View]MountedFS
	gone       chan struct{} // closed when there are none any more
	layer      string        // the top one of a fork
	socketPath string        // where it listens
	socket     *fdsock.Conn
}

// begin mounts what a record makes of the tree at lower.
func (s *server) start(lower string, r *record, side layer.View) (*os.File, error) {
	s.mu.Lock() // who asks waits
	defer s.mu.Unlock()
	o := s.b.optionsOn(lower, r)
	o.ReadOnly = s.fork == ""
	s.views, s.gone = map[layer.View]MountedFS{}, make(chan struct{})
	var err error
	if s.fs, err = layer.Open(o); err != nil {
		return nil, err
	}
	switch {
	case s.fork != "":
		err = s.claimFork(r)
	case s.socketPath != "":
		err = s.claimSocket()
	}
	var root *os.File
	if err == nil {
		root, err = s.mountView(side, false)
	}
	if err != nil {
		s.stopListening()
		return nil, errors.Join(err, s.fs.Close())
	}
	return root, nil
}

// own listens beside the layer of a fork, which was opened to be written to. Holds mu.
// EBUSY: the fork has gone on with another one.
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
	if now, err = s.b.fork(s.fork); err == nil { // who limits it from here on asks
		err = s.b.setQuota(s.fs, &now)
	}
	return err
}

// mountSide mounts a side, once more if it is mounted. Holds mu. ENOTCONN, EBUSY: it has no mount any more, and the
// other side is about to go too; what the kernel knew of it is not forgotten before.
func (s *server) mountView(side layer.View, readOnly bool) (*os.File, error) {
	attr := uint64(0)
	if readOnly || s.fork == "" {
		attr = unix.MOUNT_ATTR_RDONLY
	}
	if m, was := s.views[side]; m != nil {
		return m.MountAgain(attr)
	} else if was {
		return nil, unix.EBUSY
	}
	m, root, err := s.mount(s.fs, side, attr)
	if err != nil {
		return nil, err
	}
	s.views[side] = m
	go func() {
		m.Wait()
		s.viewEnded(side)
	}()
	return root, nil
}

// ended lets go of a side whose last mount has gone.
func (s *server) viewEnded(side layer.View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.views[side].Close()
	s.views[side] = nil
	for _, m := range s.views {
		if m != nil {
			return
		}
	}
	s.stopListening() // and nobody asks any more
	close(s.gone)
}

// wait waits for the last mount to go, and lets go of the layers.
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
	// What cannot be written now is as after a crash, which the next one mends.
	return s.fs.Close()
}

// listen makes the socket at a path that is ours.
func listen(path string) (*fdsock.Conn, error) {
	if err := os.Remove(path); err != nil && !notExist(err) { // of one that was killed
		return nil, err
	}
	socket, err := fdsock.Listen(path)
	if err != nil {
		return nil, &os.PathError{Op: "listen", Path: path, Err: err}
	}
	return socket, nil
}

// hush ends what listens, which answer closes. Holds mu.
func (s *server) stopListening() {
	if s.socket != nil {
		_ = os.Remove(s.socketPath)
		_ = s.socket.Shutdown() // it was listening
		s.socket = nil
	}
}
