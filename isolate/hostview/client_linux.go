package hostview

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/mount"
	"github.com/snapfs/snapfs/internal/run"
	"golang.org/x/sys/unix"
)

// A Source is a directory of a container to show on the host, with the pipes that tie the view's life to the
// container's. Its files become the descriptors TreeFD, EndedFD and HoldFD of the view's process. Base is the
// first of the container's ids on the host, which the view shows as 0; or 0 for ids that stay.
type Source struct {
	Tree, Ended, Hold *os.File
	Base              uint32
	// ReadOnly makes a view that Start mounts refuse writes, with EROFS.
	ReadOnly bool
}

// Close closes the descriptors of s in this process. Errors do not matter: the process that serves the view,
// the container's directory on the host, has its own descriptors.
func (s *Source) Close() {
	for _, f := range []*os.File{s.Tree, s.Ended, s.Hold} {
		if f != nil {
			f.Close()
		}
	}
}

// Start mounts a view of the container's directory s, a copy of the real directory workspace, at the existing
// host directory at. It runs program, which serves the view, listens on the socket path control, and ends
// when the container ends, when the process owner ends, if that is not 0, or when the view is unmounted.
// After an error nothing is mounted. The caller closes s. Errors: errs.ErrNotSupported if this user cannot mount
// FUSE filesystems.
func Start(ctx context.Context, program []string, at, control, workspace string, s *Source, owner int) error {
	if err := canMount(); err != nil {
		return err
	}
	pidfd, err := openOwner(owner)
	if err != nil {
		return err
	}
	defer pidfd.Close()
	ready, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	args := append(append([]string{}, program...), "view", at, control, workspace, strconv.FormatUint(uint64(s.Base), 10))
	if s.ReadOnly {
		args = append(args, "read-only")
	}
	err = run.Detached(args, nil, theirs, s.Tree, s.Ended, s.Hold, pidfd)
	theirs.Close()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { ready.SetReadDeadline(aLongTimeAgo) })() //nolint:errcheck // pipes support deadlines
	said, err := io.ReadAll(ready)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ctx.Err()
	}
	if err == nil && string(said) != Ready {
		err = fmt.Errorf("mounting the view: %s", said)
	}
	return err
}

// canMount returns nil if this user can mount a view, or an error that says what is missing.
func canMount() error {
	hints, err := mount.CheckFUSE()
	if err == nil && os.Geteuid() != 0 {
		_, err = run.Look("fusermount3")
		hints = errs.HintsOf(err)
	}
	if err != nil {
		err = &errs.Error{Kind: errs.ErrNotSupported, Err: err, Hints: hints}
	}
	return err
}

// openOwner returns a pidfd of the process for which a view, a container's directory on the host, exists, and
// whose end then ends the view; or /dev/null for pid 0, which means none.
func openOwner(pid int) (*os.File, error) {
	if pid == 0 {
		return os.Open(os.DevNull)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("watching process %d: %w", pid, err)
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// A Conn is a connection to the process that serves a view, a container's directory that is shown on the
// host. By it the process is sent requests to leave or change the directory, or to end.
type Conn struct{ c *fdsock.Conn }

// Dial connects to the process that serves a view, over that process's control socket at the path control.
// Errors: ENOENT and ECONNREFUSED if there is no process.
func Dial(control string) (*Conn, error) {
	c, err := fdsock.Dial(control)
	if err != nil {
		return nil, err
	}
	return &Conn{c}, nil
}

// Close closes the connection to the process that serves the view, a container's directory on the host. If
// the view was made to leave its directory and has not entered another, the process ends.
func (c *Conn) Close() error { return c.c.Close() }

// Leave makes the process that serves a view, a container's directory on the host, close everything of the
// container, so that the container can end. The view stays mounted, and programs that use it wait for Enter.
func (c *Conn) Leave() error { return c.do(Request{Leave: true}) }

// Enter makes the view, a mount on the host, show the container's directory s, after Leave has made it close
// another. The caller closes s.
func (c *Conn) Enter(s *Source) error {
	return c.do(Request{Enter: &Enter{Base: s.Base}}, s.Tree, s.Ended, s.Hold)
}

// endTime is how long [Conn.End] waits for the process of a view to unmount the view and end, before it
// returns an error.
const endTime = 30 * time.Second

// End makes the view's process unmount the view, and returns when the process has ended: until then it can remove the
// directory and the socket, which the next view at the same place needs. A process that ends by itself is no error.
func (c *Conn) End() error {
	if err := c.do(Request{End: true}); err != nil {
		if errors.Is(err, io.EOF) || fdsock.HungUp(err) {
			return nil
		}
		return err
	}
	for end := time.Now().Add(endTime); time.Now().Before(end); {
		ready, err := c.c.Await(time.Until(end))
		if err != nil {
			return err
		}
		if !ready {
			continue
		}
		if _, _, err = c.c.Receive(); err != nil {
			return nil //nolint:nilerr // the end of the connection is that of the process
		}
	}
	return errors.New("its process does not end")
}

// EndAt ends the process that serves the view (a container's directory on the host) with this control socket,
// as [Conn.End] does. It is no error if there is no process.
func EndAt(control string) error {
	c, err := Dial(control)
	if err != nil {
		return nil // it has ended, or was killed
	}
	defer c.Close() //nolint:errcheck // the process has ended
	return c.End()
}

func (c *Conn) do(q Request, files ...*os.File) error {
	msg, err := json.Marshal(q)
	if err == nil {
		err = c.c.Send(msg, files...)
	}
	if err != nil {
		return err
	}
	msg, more, err := c.c.Receive()
	fdsock.CloseAll(more)
	if err != nil {
		return err
	}
	var r Reply
	if err = json.Unmarshal(msg, &r); err == nil && r.Error != "" {
		err = errors.New(r.Error)
	}
	return err
}
