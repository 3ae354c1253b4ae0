package listen

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// A stdio is standard input and output as one network connection, for a server with a single client.
type stdio struct {
	ended chan struct{}
	close sync.Once
}

func (*stdio) Read(p []byte) (int, error)  { return os.Stdin.Read(p) }
func (*stdio) Write(p []byte) (int, error) { return os.Stdout.Write(p) }

// Close closes standard input and output, which ends the only client's connection. A second call does
// nothing.
func (s *stdio) Close() (err error) {
	s.close.Do(func() {
		err = errors.Join(os.Stdin.Close(), os.Stdout.Close())
		close(s.ended)
	})
	return err
}

func (*stdio) LocalAddr() net.Addr  { return &net.UnixAddr{Name: "stdio", Net: "unix"} }
func (*stdio) RemoteAddr() net.Addr { return &net.UnixAddr{Name: "stdio", Net: "unix"} }

// SetDeadline sets the deadlines of reading and writing if the streams are pipes or sockets that support
// them, and otherwise does nothing.
func (*stdio) SetDeadline(t time.Time) error {
	return errors.Join(ignored(os.Stdin.SetReadDeadline(t)), ignored(os.Stdout.SetWriteDeadline(t)))
}
func (*stdio) SetReadDeadline(t time.Time) error  { return ignored(os.Stdin.SetReadDeadline(t)) }
func (*stdio) SetWriteDeadline(t time.Time) error { return ignored(os.Stdout.SetWriteDeadline(t)) }

func ignored(err error) error {
	if errors.Is(err, os.ErrNoDeadline) {
		return nil
	}
	return err
}
