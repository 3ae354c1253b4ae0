//go:build !linux

package kernel

import (
	"os"
	"time"
)

// A Packet socket is a connection between two processes of this machine that keeps
// messages apart and carries descriptors. macOS has no such sockets (SOCK_SEQPACKET
// of unix(7) is Linux's), so that nothing can make one here.
type Packet struct{}

// MaxPacket is the longest message, in bytes.
const MaxPacket = 160 << 10

// ListenPacket makes a listening socket on Linux; here it only refuses, as all of these.
func ListenPacket(string) (*Packet, error) { return nil, errLinux }

// DialPacket connects to a listening socket.
func DialPacket(string) (*Packet, error) { return nil, errLinux }

// PacketPair makes two ends that are connected.
func PacketPair() (*Packet, *os.File, error) { return nil, nil, errLinux }

// PacketOf is a socket that this process has as a descriptor already.
func PacketOf(int) *Packet { return &Packet{} }

// Accept waits for the next connection.
func (*Packet) Accept() (*Packet, error) { return nil, errLinux }

// PeerUID is the user of the process at the other end.
func (*Packet) PeerUID() (uint32, error) { return 0, errLinux }

// Peer is the process at the other end.
func (*Packet) Peer() (Process, error) { return Process{}, errLinux }

// Await waits for a message.
func (*Packet) Await(time.Duration) (bool, error) { return false, errLinux }

// HungUp reports whether the other end has closed.
func (*Packet) HungUp() bool { return true }

// Send sends one message with descriptors.
func (*Packet) Send([]byte, ...*os.File) error { return errLinux }

// TrySend sends a message if that can be done without waiting.
func (*Packet) TrySend([]byte) error { return errLinux }

// Receive waits for a message.
func (*Packet) Receive() ([]byte, []*os.File, error) { return nil, nil, errLinux }

// Shutdown wakes everybody who waits on the socket.
func (*Packet) Shutdown() error { return errLinux }

// ShutdownRead wakes whoever waits for a message of the other end.
func (*Packet) ShutdownRead() error { return errLinux }

// ShutdownWrite tells the other end that nothing more comes.
func (*Packet) ShutdownWrite() error { return errLinux }

// Close closes the socket.
func (*Packet) Close() error { return nil }

// SealedCopy is a copy of a file in memory that nobody can change, on Linux; here it only refuses.
func SealedCopy(string) (*os.File, error) { return nil, errLinux }

// KeepInterface leaves a TUN device to its network namespace, on Linux; here it only refuses.
func KeepInterface(*os.File) error { return errLinux }
