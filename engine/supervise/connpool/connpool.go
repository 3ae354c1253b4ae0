// Package connpool holds idle connections of a server to the supervisors of sandboxes, for later commands. Each reuse
// saves the server and the supervisor a third of a millisecond.
//
// Read [Pool].
package connpool

import (
	"os"
	"slices"
	"sync"

	"github.com/snapfs/snapfs/internal/fdsock"
)

// maxConnections is how many connections a [Pool] holds. maxEach is how many of them may be to one supervisor, in
// which each occupies a thread.
const (
	maxConnections = 32
	maxEach        = 2
)

// A Pool holds connections to supervisors on which a command has ended, for this process's next command in the same
// sandbox. A server has one Pool for all its requests. The zero value is empty. A Pool is safe for concurrent use.
type Pool struct {
	mu     sync.Mutex
	idle   []connection // in the order of their last use
	closed bool
}

// A Socket identifies the socket at a path at one moment: later, another supervisor may serve the path by another
// socket.
type Socket struct {
	path string
	info os.FileInfo
}

// At returns the socket that is at path now. Errors: those of [os.Lstat].
func At(path string) (Socket, error) {
	info, err := os.Lstat(path)
	return Socket{path, info}, err
}

// A connection is an idle connection, and the socket to which it was made.
type connection struct {
	to   Socket
	conn *fdsock.Conn
}

// Take removes a connection to the supervisor that serves socket, and returns it, or nil if there is none. It closes
// connections to the same path whose supervisor no longer serves it.
func (c *Pool) Take(socket Socket) *fdsock.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.idle) - 1; i >= 0; i-- {
		k := c.idle[i]
		if k.to.path != socket.path {
			continue
		}
		c.idle = slices.Delete(c.idle, i, i+1)
		// The socket's inode lives as long as its supervisor, so that no other socket can have its number.
		// A late message, or the end, would be read as the reply to the next command.
		if ready, err := k.conn.Await(0); err == nil && !ready && os.SameFile(k.to.info, socket.info) {
			return k.conn
		}
		_ = k.conn.Close() // nothing is sent or received on it
	}
	return nil
}

// Put adds conn, on which nothing is sent or received any more, and closes a connection if there are too many. The
// caller got socket from [At] before it made the connection.
func (c *Pool) Put(socket Socket, conn *fdsock.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	each := 0
	for _, other := range c.idle {
		if other.to.path == socket.path {
			each++
		}
	}
	if c.closed || each >= maxEach {
		_ = conn.Close() // nothing is sent or received on it
		return
	}
	if c.idle = append(c.idle, connection{socket, conn}); len(c.idle) > maxConnections {
		_ = c.idle[0].conn.Close() // as above
		c.idle = slices.Delete(c.idle, 0, 1)
	}
}

// Close closes the idle connections. From now on Put closes each connection that it gets.
func (c *Pool) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.idle {
		_ = k.conn.Close() // nothing is sent or received on it
	}
	c.idle, c.closed = nil, true
}
