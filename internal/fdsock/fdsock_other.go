//go:build !linux

package fdsock

import (
	"os"
	"time"

	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/vfs"
)

// Conn is, on Linux, a connection between two processes of this machine that preserves message boundaries and
// carries file descriptors. On this system it is a stub, and every function of the package fails.
type Conn struct{}

// Listen makes a listening socket for connections of other processes, on Linux. Here it always returns an
// error, as does every function of this file.
func Listen(string) (*Conn, error) { return nil, vfs.ErrNeedsLinux }

// Dial connects to another process's listening unix socket, on Linux. Here it always returns an error.
func Dial(string) (*Conn, error) { return nil, vfs.ErrNeedsLinux }

// Pair returns two connected ends of a unix socket, one for a child process, on Linux. Here it always returns
// an error.
func Pair() (*Conn, *os.File, error) { return nil, nil, vfs.ErrNeedsLinux }

// FromFD returns the connection for an inherited socket, on Linux. Here every call on the result fails,
// because only Linux has unix sockets of type SOCK_SEQPACKET that this package can use.
func FromFD(int) *Conn { return &Conn{} }

// Accept waits for the next connection to a listening socket, on Linux. Here it always returns an error.
func (*Conn) Accept() (*Conn, error) { return nil, vfs.ErrNeedsLinux }

// PeerUID returns the user id of the process at the other end of the connection, on Linux. Here it always
// returns an error.
func (*Conn) PeerUID() (uint32, error) { return 0, vfs.ErrNeedsLinux }

// Peer returns the process at the other end of the connection, on Linux. Here it always returns an error.
func (*Conn) Peer() (proc.Process, error) { return proc.Process{}, vfs.ErrNeedsLinux }

// Await waits for a message or the end of the connection, on Linux. Here it always returns an error.
func (*Conn) Await(time.Duration) (bool, error) { return false, vfs.ErrNeedsLinux }

// HungUp reports whether the process at the other end has closed the connection, on Linux. Here it always
// returns true, because there are no connections.
func (*Conn) HungUp() bool { return true }

// Send sends one message with file descriptors over the connection, on Linux. Here it always returns an
// error.
func (*Conn) Send([]byte, ...*os.File) error { return vfs.ErrNeedsLinux }

// TrySend sends a message if the socket's buffer has room for it, on Linux. Here it always returns an error.
func (*Conn) TrySend([]byte) error { return vfs.ErrNeedsLinux }

// Receive waits for a message of the other end and returns it, on Linux. Here it always returns an error.
func (*Conn) Receive() ([]byte, []*os.File, error) { return nil, nil, vfs.ErrNeedsLinux }

// Shutdown ends both directions of the connection, on Linux. Here it always returns an error.
func (*Conn) Shutdown() error { return vfs.ErrNeedsLinux }

// ShutdownRead ends the receiving direction of the connection, on Linux. Here it always returns an error.
func (*Conn) ShutdownRead() error { return vfs.ErrNeedsLinux }

// ShutdownWrite ends the sending direction of the connection, on Linux. Here it always returns an error.
func (*Conn) ShutdownWrite() error { return vfs.ErrNeedsLinux }

// Close closes the socket of the connection, on Linux. Here it does nothing.
func (*Conn) Close() error { return nil }
