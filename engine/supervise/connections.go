package supervise

import (
	"context"
	"os"
	"slices"
	"sync"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/fdsock"
)

// maxConnections is how many connections a [Connections] holds, and maxEach how many of them to the supervisor of one
// sandbox, in which each takes a thread.
const (
	maxConnections = 32
	maxEach        = 2
)

// A Connections holds connections to supervisors on which a command has ended, for the next command of this process in
// the same sandbox: a connection saves each end a third of a millisecond. A server has one for all its requests. The
// zero value is empty. It is safe for concurrent use.
type Connections struct {
	mu     sync.Mutex
	idle   []connection // in the order of their last use
	closed bool
}

// A connection is an idle connection to the supervisor that serves the socket at path. socket identifies that socket:
// another supervisor may serve the path by now.
type connection struct {
	path   string
	socket os.FileInfo
	conn   *fdsock.Conn
}

// take removes a connection to the supervisor that serves the socket at path now, and returns it, or nil if there is
// none. It closes those whose supervisor no longer serves the path.
func (c *Connections) take(path string, socket os.FileInfo) *fdsock.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.idle) - 1; i >= 0; i-- {
		k := c.idle[i]
		if k.path != path {
			continue
		}
		c.idle = slices.Delete(c.idle, i, i+1)
		// The socket's inode lives as long as its supervisor, so that no other socket can have its number.
		if os.SameFile(k.socket, socket) && !k.conn.HungUp() {
			return k.conn
		}
		_ = k.conn.Close() // nothing is sent or received on it
	}
	return nil
}

// put adds a connection, or closes it if there are enough.
func (c *Connections) put(k connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	each := 0
	for _, other := range c.idle {
		if other.path == k.path {
			each++
		}
	}
	if c.closed || each >= maxEach {
		_ = k.conn.Close() // nothing is sent or received on it
		return
	}
	if c.idle = append(c.idle, k); len(c.idle) > maxConnections {
		_ = c.idle[0].conn.Close() // as above
		c.idle = slices.Delete(c.idle, 0, 1)
	}
}

// Close closes the idle connections, and from now on each connection whose command ends.
func (c *Connections) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.idle {
		_ = k.conn.Close() // nothing is sent or received on it
	}
	c.idle, c.closed = nil, true
}

// dialForCommand connects to a sandbox's supervisor as Dial does, or returns an idle connection to it. When the command
// has ended, the caller passes the connection to release instead of closing it, unless release is nil.
func (sv *Manager) dialForCommand(ctx context.Context, rec *catalog.Record) (conn *fdsock.Conn, release func(*fdsock.Conn), err error) {
	if sv.connections == nil {
		conn, err = sv.Dial(ctx, rec)
		return conn, nil, err
	}
	path := sv.socket(rec.Name)
	socket, err := os.Lstat(path) // before Dial: if the socket is replaced meanwhile, the connection is not reused
	if err != nil {
		conn, err = sv.Dial(ctx, rec)
		return conn, nil, err
	}
	release = func(conn *fdsock.Conn) { sv.connections.put(connection{path, socket, conn}) }
	if conn = sv.connections.take(path, socket); conn != nil {
		return conn, release, nil
	}
	conn, err = sv.Dial(ctx, rec)
	return conn, release, err
}
