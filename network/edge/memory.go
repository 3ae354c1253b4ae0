//go:build linux

package edge

import (
	"errors"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
)

// Bounds of the memory that a sandbox can make its proxy use: the number of connections, the memory of each,
// and the total ([limitMemory]).
const (
	// maxFast is how many connections at once get large buffers, for speed. Further ones get small ones.
	maxFast = 64
	// copySize is the size in bytes of the buffer through which a connection's bytes are copied, more than a
	// packet of the inner network. copySmall and windowSmall are for connections beyond maxFast.
	copySize    = 128 << 10
	copySmall   = 16 << 10
	windowSmall = 32 << 10

	// memoryAim is the memory target of the proxy's garbage collector, in bytes. Beyond memoryMost, which
	// includes reserved memory, the process ends, and the supervisor starts it again.
	memoryAim  = 384 << 20
	memoryMost = 1 << 30

	// garbage is how large the heap grows before it is collected, in percent of what is in use: some 4 MiB.
	garbage = 300

	// threads is the least number of threads that may run at once, also on a machine with fewer processors. A packet
	// then waits less for a thread that another process has interrupted.
	threads = 4
)

// limitMemory limits the memory of this proxy process, since a sandbox's traffic determines how much it uses.
func limitMemory() error {
	runtime.GOMAXPROCS(max(threads, runtime.GOMAXPROCS(0)))
	debug.SetMemoryLimit(memoryAim)
	debug.SetGCPercent(garbage)
	err := unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: memoryMost, Max: memoryMost})
	return os.NewSyscallError("setrlimit", err)
}

// bound makes the buffers of a connection small if it is one beyond the first maxFast of the sandbox: those
// of the TCP/IP stack at inside, and those of the kernel at outside. So the proxy's memory stays bounded.
func (f *flow) bound(inside tcpip.Endpoint, outside net.Conn) {
	if !f.small {
		return
	}
	inside.SocketOptions().SetReceiveBufferSize(windowSmall, true)
	inside.SocketOptions().SetSendBufferSize(windowSmall, true)
	if tcp, ok := outside.(*net.TCPConn); ok { // on failure it has the host's default sizes
		_ = errors.Join(tcp.SetReadBuffer(windowSmall), tcp.SetWriteBuffer(windowSmall))
	}
}

// pool returns the pool from which the connection gets the buffers through which its bytes are copied, and
// the size of one in bytes.
func (f *flow) pool() (*sync.Pool, int) {
	if f.small {
		return &f.edge.small, copySmall
	}
	return &f.edge.buffers, copySize
}

func (f *flow) getBuffer() *[]byte {
	pool, size := f.pool()
	if b, ok := pool.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, size)
	return &b
}

func (f *flow) putBuffer(b *[]byte) {
	pool, _ := f.pool()
	pool.Put(b)
}
