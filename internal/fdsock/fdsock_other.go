//go:build !linux

package fdsock

import (
	"os"
	"time"

	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A Conn socket is a connection between two processes of this machine that keeps
// messages apart and carries descriptors. macOS has no such sockets (SOCK_SEQPACKET
// of unix(7) is Linux's), so that nothing can make one here.
type Conn struct{}

// MaxMessage is the longest message, in bytes.
const MaxMessage = 160 << 10

// Listen makes a listening socket on Linux; here it only refuses, as all of these.
func Listen(string) (*Conn, error) { return nil, vfs.ErrNeedsLinux }

// Dial connects to a listening socket.
func Dial(string) (*Conn, error) { return nil, vfs.ErrNeedsLinux }

// Pair makes two ends that are connected.
func Pair() (*Conn, *os.File, error) { return nil, nil, vfs.ErrNeedsLinux }

// FromFD is a socket that this process has as a descriptor already.
func FromFD(int) *Conn { return &Conn{} }

// Accept waits for the next connection.
func (*Conn) Accept() (*Conn, error) { return nil, vfs.ErrNeedsLinux }

// PeerUID is the user of the process at the other end.
func (*Conn) PeerUID() (uint32, error) { return 0, vfs.ErrNeedsLinux }

// Peer is the process at the other end.
func (*Conn) Peer() (proc.Process, error) { return proc.Process{}, vfs.ErrNeedsLinux }

// Await waits for a message.
func (*Conn) Await(time.Duration) (bool, error) { return false, vfs.ErrNeedsLinux }

// HungUp reports whether the other end has closed.
func (*Conn) HungUp() bool { return true }

// Send sends one message with descriptors.
func (*Conn) Send([]byte, ...*os.File) error { return vfs.ErrNeedsLinux }

// TrySend sends a message if that can be done without waiting.
func (*Conn) TrySend([]byte) error { return vfs.ErrNeedsLinux }

// Receive waits for a message.
func (*Conn) Receive() ([]byte, []*os.File, error) { return nil, nil, vfs.ErrNeedsLinux }

// Shutdown wakes everybody who waits on the socket.
func (*Conn) Shutdown() error { return vfs.ErrNeedsLinux }

// ShutdownRead wakes whoever waits for a message of the other end.
func (*Conn) ShutdownRead() error { return vfs.ErrNeedsLinux }

// ShutdownWrite tells the other end that nothing more comes.
func (*Conn) ShutdownWrite() error { return vfs.ErrNeedsLinux }

// Close closes the socket.
func (*Conn) Close() error { return nil }
