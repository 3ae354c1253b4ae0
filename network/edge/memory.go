//go:build linux

package edge

import (
	"errors"
	"net"
	"os"
	"runtime/debug"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
)

// The memory of an edge is what a sandbox can make it take, so it is bounded: by how many flows
// there may be, by what each may hold, and where that was reckoned wrong by [limitMemory].
const (
	// roomy is how many flows may take as much memory as makes them fast.
	roomy = 64
	// copySize is what a relay reads at once: more than a packet of the inner network. copySmall and
	// windowSmall are for a flow that comes when many are open.
	copySize    = 128 << 10
	copySmall   = 16 << 10
	windowSmall = 32 << 10

	// memoryAim is what the process as a whole is kept beneath, as far as collecting garbage can; beyond
	// memoryMost, which counts what was reserved too, it ends, and is started again by who started it.
	memoryAim  = 384 << 20
	memoryMost = 1 << 30
)

// limitMemory bounds this process.
func limitMemory() error {
	debug.SetMemoryLimit(memoryAim)
	err := unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: memoryMost, Max: memoryMost})
	return os.NewSyscallError("setrlimit", err)
}

// bound keeps a flow small that comes when many are open: in the stack, and in the kernel.
func (f *flow) bound(inside tcpip.Endpoint, outside net.Conn) {
	if !f.small {
		return
	}
	inside.SocketOptions().SetReceiveBufferSize(windowSmall, true)
	inside.SocketOptions().SetSendBufferSize(windowSmall, true)
	if tcp, ok := outside.(*net.TCPConn); ok { // it has the host's own bounds where that does not work
		_ = errors.Join(tcp.SetReadBuffer(windowSmall), tcp.SetWriteBuffer(windowSmall))
	}
}

// pool is where the flow's buffers come from, and how large they are.
func (f *flow) pool() (*sync.Pool, int) {
	if f.small {
		return &f.edge.small, copySmall
	}
	return &f.edge.buffers, copySize
}

func (f *flow) buffer() *[]byte {
	pool, size := f.pool()
	if b, ok := pool.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, size)
	return &b
}

func (f *flow) give(b *[]byte) {
	pool, _ := f.pool()
	pool.Put(b)
}
