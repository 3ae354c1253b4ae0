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

// TestMemoryIsLimited: connections that neither end reads use no more than documented, and each beyond the
// first ones a tenth of that.
func TestMemoryIsLimited(t *testing.T) {
	const most = maxFast + 96
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
	const still = 1 << 20 // so little counts as no progress
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
	if bound := int64(maxFast*5<<19 + (most-maxFast)<<18); held > bound || c.Open <= maxFast {
		t.Errorf("%d connections hold %d MiB, more than %d; %d bytes were carried", c.Open, held>>20, bound>>20, moved)
	}
	_ = w.edge.Close()
	<-done
}
