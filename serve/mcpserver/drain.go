package mcpserver

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// drainTime is how long the server waits, after the client has ended its input, for the replies to calls that
// it has read. Then it ends without them. A command that ignores SIGTERM takes two seconds to end.
const drainTime = 5 * time.Second

// A draining is an MCP transport that replies to every call it has read before it reports the end of its
// input. Otherwise a client that sends its calls and closes its end, as in a shell's pipe, might get no
// reply.
type draining struct {
	mcp.Transport
	// calls ends when the program must end, and the input ends with it. end ends it at the end of the input, and so the
	// calls that take long.
	calls context.Context
	end   func()
}

// Connect connects the underlying MCP transport, and returns a connection that counts the client's calls that
// have no reply yet.
func (d *draining) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := d.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &drainingConn{Connection: c, of: d, changed: make(chan struct{}, 1)}, nil
}

type drainingConn struct {
	mcp.Connection
	of      *draining
	changed chan struct{} // gets a value after each reply

	mu      sync.Mutex
	pending int // the calls without a reply
}

// Read returns the client's next message. At the end of the input it first waits for the replies to all
// calls.
func (c *drainingConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(c.of.calls, stop)()
	message, err := c.Connection.Read(ctx)
	if r, ok := message.(*jsonrpc.Request); err == nil && ok && r.IsCall() {
		c.add(1)
	}
	if err == nil {
		return message, nil
	}
	if c.of.calls.Err() != nil {
		err = io.EOF
	}
	c.of.end()
	late := time.After(drainTime)
	for c.add(0) > 0 {
		select {
		case <-c.changed:
		case <-late:
			return nil, err
		}
	}
	return nil, err
}

// Write sends a message to the client. If it is the reply to one of the client's calls, fewer calls are open
// for which the end of the input waits.
func (c *drainingConn) Write(ctx context.Context, message jsonrpc.Message) error {
	err := c.Connection.Write(ctx, message)
	if _, ok := message.(*jsonrpc.Response); ok {
		c.add(-1)
		select {
		case c.changed <- struct{}{}:
		default: // the reader has one to look at
		}
	}
	return err
}

// add adds n to the number of the client's calls that have no reply yet, for which the end of the input
// waits, and returns the new number.
func (c *drainingConn) add(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending += n
	return c.pending
}
