package evidence

import (
	"testing"

	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/internal/treetest"
)

// BenchmarkCommand measures what recording one command, with its start and its end, costs in a process that records
// many, in time on processors.
func BenchmarkCommand(b *testing.B) {
	s := greatLog(b, 3)
	status := 0
	started := events.Data{Run: "one", Command: []string{"ls", "-l", "/work"}, Env: []string{"PATH=/usr/bin:/bin", "HOME=/root", "LANG=C"}}
	from := treetest.ProcessorTime(b)
	for b.Loop() {
		if err := s.Before(events.Event{Type: events.CommandStarted, SandboxID: "s1", Data: started}); err != nil {
			b.Fatal(err)
		}
		if err := s.After(events.Event{Type: events.CommandEnded, SandboxID: "s1", Data: events.Data{Run: "one", Status: &status, Seconds: 0.01}}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((treetest.ProcessorTime(b)-from).Microseconds())/float64(b.N), "cpu-us/op")
}
