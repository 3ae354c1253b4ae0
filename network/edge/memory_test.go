//go:build linux

package edge

import (
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/snapfs/snapfs/network"
)

// TestMemoryIsBounded: connections that are read from at neither end hold no more than is documented, and of those
// that come when many are open each a tenth of the others.
func TestMemoryIsBounded(t *testing.T) {
	const most = roomy + 96
	w := newWorld(t, "site.example", func(o *Options) { o.MaxConnections = most })
	w.name("site.example", "203.0.113.10")
	w.serve(t, "203.0.113.10:1", func(conn net.Conn) { _, _ = io.CopyN(conn, zeros{}, 1<<30) })
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	done := make(chan result, 1)
	go func() {
		done <- w.play(t, step{Crowd: most, CrowdSteps: []step{{Dial: "tcp4 site.example:1", Life: 4000}, {Flood: 1 << 30}}})
	}()
	const still = 1 << 20 // as good as nothing moves
	moved := int64(0)
	var c network.Counters
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		c = w.edge.Counters()
		was := moved
		if moved = c.BytesIn + c.BytesOut; c.Opened == most && moved-was < still {
			break
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	held := int64(after.HeapAlloc+after.StackInuse) - int64(before.HeapAlloc+before.StackInuse)
	if bound := int64(roomy*5<<19 + (most-roomy)<<18); held > bound || c.Open <= roomy {
		t.Errorf("%d connections hold %d MiB, more than %d; %d bytes were carried", c.Open, held>>20, bound>>20, moved)
	}
	_ = w.edge.Close()
	<-done
}
