// Package viewserver is the process that serves a view of package hostview, a container's directory on the
// host. Only snapfs-fuse links it.
package viewserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/isolate/hostview"
	"github.com/snapfs/snapfs/isolate/hostview/gitguard"
	"github.com/snapfs/snapfs/isolate/idmap"
	"golang.org/x/sys/unix"
)

// A server serves one view, a container's directory that is shown on the host, from this process. [Serve]
// makes it.
type server struct {
	view *idmap.View
	end  func()

	mu   sync.Mutex
	hold *os.File // nil while the view has no directory
}

// Serve mounts a view, a container's directory, at the host directory at and serves it, with the descriptors
// that package hostview names. base is the first of the container's ids. It returns when the view is
// unmounted, which it does itself when the container, the owner or ctx ends. The socket control and the
// directory are removed then. Package gitguard checks what the host reads of git's files against those of the
// real directory workspace. readOnly makes the view refuse writes.
func Serve(ctx context.Context, at, control, workspace string, base uint32, readOnly bool) error {
	ready := os.NewFile(hostview.ReadyFD, "ready")
	refuse := func(err error) error {
		ready.WriteString(err.Error()) //nolint:errcheck // the starter may be gone
		return errors.Join(err, ready.Close())
	}
	tree := os.NewFile(hostview.TreeFD, "tree")
	if err := os.Remove(control); err != nil && !errors.Is(err, os.ErrNotExist) {
		return refuse(err)
	}
	l, err := fdsock.Listen(control)
	if err != nil {
		return refuse(err)
	}
	ctx, end := context.WithCancel(ctx)
	s := &server{end: end, hold: os.NewFile(hostview.HoldFD, "hold")}
	s.view, err = idmap.MountView(at, tree, base, readOnly, &gitguard.Guard{Workspace: workspace, View: at})
	tree.Close()
	if err != nil {
		return refuse(errors.Join(err, os.Remove(control)))
	}
	go s.awaitEnd(os.NewFile(hostview.EndedFD, "ended"), s.hold)
	go awaitOwner(hostview.OwnerFD, end)
	go s.accept(l)
	unmounted := make(chan struct{})
	go func() { s.view.Wait(); close(unmounted) }()
	if _, err := ready.WriteString(hostview.Ready); err != nil {
		end() // the starter was killed
	}
	ready.Close()
	select {
	case <-ctx.Done():
	case <-unmounted:
	}
	// The mount goes first, so that nobody finds one without a process.
	err = hostview.Unmount(context.WithoutCancel(ctx), at)
	hostview.RemoveEmpty(at)
	return errors.Join(err, os.Remove(control))
}

// awaitEnd waits until the pipe ended closes, because the container has ended, and then ends the view, unless
// the view has left that container's directory. hold is the pipe that came with the directory; the view still
// shows it if the server holds the same pipe.
func (s *server) awaitEnd(ended, hold *os.File) {
	_, _ = io.Copy(io.Discard, ended) // its end is all that matters
	ended.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hold == hold {
		s.end()
	}
}

// awaitOwner calls end when the process of the pidfd fd ends. For another kind of descriptor, such as
// /dev/null, it never does.
func awaitOwner(fd int, end func()) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || isNull(fd) {
		return
	}
	for {
		n, err := unix.Poll(fds, -1)
		if n > 0 {
			end()
			return
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func isNull(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT == unix.S_IFCHR
}

func (s *server) accept(l *fdsock.Conn) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		if uid, err := client.PeerUID(); err != nil || uid != 0 && int(uid) != os.Geteuid() {
			client.Close() //nolint:errcheck // another user
			continue
		}
		s.answer(client)
		client.Close() //nolint:errcheck // nothing more to send
	}
}

// answer serves the requests of one client of the view, a container's directory on the host, by its control
// socket, until the client closes the connection. Other clients wait. If the client leaves the view without a
// directory, the view ends.
func (s *server) answer(client *fdsock.Conn) {
	for {
		msg, files, err := client.Receive()
		if err != nil {
			break
		}
		var q hostview.Request
		var r hostview.Reply
		if err = json.Unmarshal(msg, &q); err == nil {
			err = s.do(q, files)
		}
		if err != nil {
			fdsock.CloseAll(files)
			r.Error = err.Error()
		}
		msg, err = json.Marshal(r)
		if err != nil || client.Send(msg) != nil {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hold == nil {
		s.end()
	}
}

func (s *server) do(q hostview.Request, files []*os.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case q.End:
		s.end()
		return nil
	case q.Leave && s.hold != nil:
		s.view.Leave()
		hold := s.hold
		s.hold = nil
		return hold.Close()
	case q.Enter != nil && s.hold == nil && len(files) == 3:
		err := s.view.Enter(files[0], q.Enter.Base)
		if err != nil {
			return err
		}
		files[0].Close()
		s.hold = files[2]
		go s.awaitEnd(files[1], files[2])
		return nil
	}
	return errors.New("the view cannot do that now")
}
