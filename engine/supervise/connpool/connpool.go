// Package connpool holds idle connections of a server to the supervisors of sandboxes, for later commands. A connection
// that is used again saves each end a third of a millisecond.
//
// Read [Pool].
package connpool

import (
	"os"
	"slices"
	"sync"

	"github.com/snapfs/snapfs/internal/fdsock"
)

// maxConnections is how many connections a [Pool] holds, and maxEach how many of them to the supervisor of one
// sandbox, in which each takes a thread.
const (
	maxConnections = 32
	maxEach        = 2
)

// A Pool holds connections to supervisors on which a command has ended, for the next command of this process in the same
// sandbox. A server has one for all its requests. The zero value is empty. It is safe for concurrent use.
type Pool struct {
	mu     sync.Mutex
	idle   []connection // in the order of their last use
	closed bool
}

// A Socket is the socket at a path as it was before a connection to it was made: another supervisor may serve the path by
// now.
type Socket struct {
	path string
	info os.FileInfo
}

// At returns the socket that is at path now.
func At(path string) (Socket, error) {
	info, err := os.Lstat(path)
	return Socket{path, info}, err
}

type connection struct {
	to   Socket
	conn *fdsock.Conn
}

// Take removes a connection to the supervisor that serves the socket, and returns it, or nil if there is none. It closes
// those whose supervisor no longer serves the path.
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

// Put adds a connection to a socket, which was there before the connection was made, or closes it if there are enough.
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

// Close closes the idle connections, and from now on each connection whose command ends.
func (c *Pool) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.idle {
		_ = k.conn.Close() // nothing is sent or received on it
	}
	c.idle, c.closed = nil, true
}
