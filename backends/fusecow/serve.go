package fusecow

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/internal/kernel"
)

// still and live are what the views of a snapshot and of a fork serve.
type (
	still struct {
		b  *backend
		id snapshot.ID
	}
	live struct {
		b  *backend
		id snapshot.ForkID
	}
)

// Mount keeps the contract of [snapshot.Served].
func (s still) Mount(_ context.Context, _ bool) (fd int, err error) {
	r, err := s.b.snapshot(s.id)
	var root *os.File
	if err == nil {
		root, err = s.b.look(&r)
	}
	if err == nil {
		fd, err = owned(root)
	}
	return fd, fail("mounting", string(s.id), err)
}

// owned is a descriptor of a file that is closed.
func owned(f *os.File) (int, error) {
	defer f.Close()
	return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
}

// Mount keeps the contract of [snapshot.Served].
func (l live) Mount(ctx context.Context, readOnly bool) (fd int, err error) {
	var root *os.File
	err = l.b.patiently(ctx, l.b.forkPath(l.id), func() (again bool, err error) {
		root, err = l.b.mountFork(l.id, readOnly)
		return errors.Is(err, unix.EBUSY), err
	})
	if err == nil {
		fd, err = owned(root)
	}
	return fd, fail("mounting", string(l.id), err)
}

// patience is how long a process may take to let go of a layer, or to answer.
const patience = 5 * time.Second

// patiently calls try as long as it wants to be called again, for patience at most.
// ErrBusy: it still wants to.
func (b *backend) patiently(ctx context.Context, path string, try func() (again bool, err error)) error {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := patiently(within, try)
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		return because(snapshot.ErrBusy, path, "a process has it mounted")
	}
	return err
}

// mountFork mounts a fork that another process serves, or serves it. EBUSY: there is
// a server, which is just about to come or to go.
func (b *backend) mountFork(id snapshot.ForkID, readOnly bool) (*os.File, error) {
	r, err := b.fork(id)
	if err != nil {
		return nil, err
	}
	root, err := b.ask(r.upper(), request{Mount: true, ReadOnly: readOnly})
	if !errors.Is(err, errNobody) {
		return root, err
	}
	if readOnly {
		return b.look(&r)
	}
	return b.serve(id, &r)
}

// options are what the layers of a record are opened with.
func (b *backend) options(r *record) layer.Options {
	o := layer.Options{Lower: r.Tree}
	for _, l := range r.Layers {
		o.Layers = append(o.Layers, b.layerPath(l))
	}
	return o
}

// look mounts what nobody writes to.
func (b *backend) look(r *record) (*os.File, error) {
	o := b.options(r)
	o.ReadOnly = true
	f, err := layer.Open(o)
	if err != nil {
		return nil, err
	}
	s, root, err := f.Serve(unix.MOUNT_ATTR_RDONLY)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	go func() {
		s.Wait()
		s.Close()
		_ = f.Close() // nothing was written
	}()
	return root, nil
}

// A server has a fork open to be written to.
type server struct {
	b      *backend
	id     snapshot.ForkID
	fs     *layer.FS
	fuse   *layer.Server
	mu     sync.Mutex
	layer  string // its top one
	socket *kernel.Packet
}

// serve mounts a fork to be written to.
func (b *backend) serve(id snapshot.ForkID, r *record) (*os.File, error) {
	f, err := layer.Open(b.options(r))
	if err != nil {
		return nil, err
	}
	s := &server{b: b, id: id, fs: f, layer: r.upper()}
	again, err := b.fork(id)
	if err == nil && again.upper() != r.upper() { // sealed meanwhile
		err = &os.PathError{Op: "open", Path: b.layerPath(r.upper()), Err: unix.EBUSY}
	}
	var root *os.File
	if err == nil {
		s.fuse, root, err = f.Serve(0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if s.socket, err = s.listen(s.layer); err == nil {
		go s.answer(s.socket)
	}
	go s.end()
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// end waits for the last mount to go, and lets go of the layers.
func (s *server) end() {
	s.fuse.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hush() // and nobody asks any more
	s.fuse.Close()
	// What cannot be written now is as after a crash, which the next one mends.
	_ = s.fs.Close()
}

// listen makes the socket of a layer that is ours.
func (s *server) listen(name string) (*kernel.Packet, error) {
	path := s.b.askPath(name)
	if err := os.Remove(path); err != nil && !notThere(err) { // of one that was killed
		return nil, err
	}
	socket, err := kernel.ListenPacket(path)
	if err != nil {
		return nil, &os.PathError{Op: "listen", Path: path, Err: err}
	}
	return socket, nil
}

// hush ends what listens, which answer closes. Holds mu.
func (s *server) hush() {
	if s.socket != nil {
		_ = os.Remove(s.b.askPath(s.layer))
		_ = s.socket.Shutdown() // it was listening
		s.socket = nil
	}
}

// hold keeps a layer from being opened to be written to, and says whether it was
// closed in order. It gives who has it some time to let go.
func (b *backend) hold(ctx context.Context, name string) (clean bool, release func(), err error) {
	err = b.patiently(ctx, b.layerPath(name), func() (bool, error) {
		clean, release, err = layer.Hold(b.layerPath(name))
		return errors.Is(err, unix.EBUSY), err
	})
	return clean, release, err
}

func (b *backend) askPath(layer string) string { return filepath.Join(b.layerPath(layer), "ask") }
