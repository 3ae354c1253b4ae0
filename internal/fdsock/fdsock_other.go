//go:build !linux

package fdsock

import (
	"os"
	"time"

	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/vfs"
)

// Conn is a connection between two processes of this machine that preserves message boundaries
// and carries descriptors (unix(7), SOCK_SEQPACKET). Its methods block their thread; Shutdown
// wakes them. macOS has no such sockets, so there every function fails.
type Conn struct{}

// Listen makes a listening socket, on Linux. Here it always returns an error, as does every
// function of this file.
func Listen(string) (*Conn, error) { return nil, vfs.ErrNeedsLinux }

// Dial connects to a listening socket without waiting. ECONNREFUSED: the listener is gone;
// ENOENT: there never was one; EAGAIN: its backlog is full.
func Dial(string) (*Conn, error) { return nil, vfs.ErrNeedsLinux }

// Pair returns two connected ends. The second is for a child process, which opens it with
// FromFD.
func Pair() (*Conn, *os.File, error) { return nil, nil, vfs.ErrNeedsLinux }

// FromFD returns a Conn whose calls return that error, too.
func FromFD(int) *Conn { return &Conn{} }

// Accept waits for the next connection.
func (*Conn) Accept() (*Conn, error) { return nil, vfs.ErrNeedsLinux }

// PeerUID returns the user id of the process at the other end.
func (*Conn) PeerUID() (uint32, error) { return 0, vfs.ErrNeedsLinux }

// Peer returns the process at the other end.
func (*Conn) Peer() (proc.Process, error) { return proc.Process{}, vfs.ErrNeedsLinux }

// Await waits for a message.
func (*Conn) Await(time.Duration) (bool, error) { return false, vfs.ErrNeedsLinux }

// HungUp reports whether the other end has closed. Messages that it sent before may still be
// unread.
func (*Conn) HungUp() bool { return true }

// Send sends one message with descriptors.
func (*Conn) Send([]byte, ...*os.File) error { return vfs.ErrNeedsLinux }

// TrySend sends a message if that can be done without waiting.
func (*Conn) TrySend([]byte) error { return vfs.ErrNeedsLinux }

// Receive waits for a message.
func (*Conn) Receive() ([]byte, []*os.File, error) { return nil, nil, vfs.ErrNeedsLinux }

// Shutdown ends both directions of the connection and wakes every waiting call, at both ends.
func (*Conn) Shutdown() error { return vfs.ErrNeedsLinux }

// ShutdownRead wakes every Receive of this end and makes later sends of the other end fail.
// Messages to the other end still arrive.
func (*Conn) ShutdownRead() error { return vfs.ErrNeedsLinux }

// ShutdownWrite ends the sending direction: the other end reads io.EOF.
func (*Conn) ShutdownWrite() error { return vfs.ErrNeedsLinux }

// Close closes the socket.
func (*Conn) Close() error { return nil }
