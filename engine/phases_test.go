package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/snapfs/snapfs/isolate"
)

// BenchmarkRun times a whole run of true and each of its phases.
func BenchmarkRun(b *testing.B) {
	t := newBench(b)
	var start, wait, changes, discard time.Duration
	for b.Loop() {
		t0 := time.Now()
		s, err := t.Run(context.Background(), t.request(), isolate.Command{Args: []string{"/bin/true"}, Dir: t.workspace})
		if err != nil {
			b.Fatal(err)
		}
		t1 := time.Now()
		if _, err := s.Wait(context.Background()); err != nil {
			b.Fatal(err)
		}
		t2 := time.Now()
		c, err := s.Engine.Compare.Changes(context.Background(), s.Record)
		if err != nil {
			b.Fatal(err)
		}
		c.Close()
		t3 := time.Now()
		if err := s.Discard(context.Background()); err != nil {
			b.Fatal(err)
		}
		start, wait, changes, discard = start+t1.Sub(t0), wait+t2.Sub(t1), changes+t3.Sub(t2), discard+time.Since(t3)
	}
	for _, p := range []struct {
		d    time.Duration
		name string
	}{{start, "start"}, {wait, "wait"}, {changes, "changes"}, {discard, "discard"}} {
		b.ReportMetric(float64(p.d.Microseconds())/float64(b.N), "µs-"+p.name)
	}
}
