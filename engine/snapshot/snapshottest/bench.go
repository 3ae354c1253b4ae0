//go:build linux

package snapshottest

import (
	"fmt"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/snapshot"
)

// Bench measures each verb on trees of two sizes, and reports the median and the 99th percentile in
// milliseconds. Preparation and clean-up are not measured.
func Bench(b *testing.B, s Subject) {
	for _, files := range []int{1_000, 10_000} {
		for _, v := range timed() {
			b.Run(fmt.Sprintf("%s/files=%d", v.name, files), func(b *testing.B) { v.run(b, s, files) })
		}
	}
}

// A timing is a verb with its preparation and its clean-up.
type timing struct {
	name          string
	offered       func(snapshot.Backend) bool
	before, after func(x *workbench, id string)
	do            func(x *workbench, id string)
}

func (v timing) run(b *testing.B, s Subject, files int) {
	x := newWorkbench(b, s, s.Place)
	if v.offered != nil && !v.offered(x.b) {
		b.ReportMetric(0, "ns/op")
		return
	}
	for i := range files {
		x.write(fmt.Sprintf("%d/%d", i/100, i), "some text")
	}
	x.capture("base")
	x.fork("base", "work")
	x.in(x.view("work"), func(dir string) {
		for i := range 100 {
			x.put(dir, fmt.Sprintf("%d/%d", i%(files/100), i), "other text")
		}
	})
	var took []time.Duration
	for n := 0; b.Loop(); n++ {
		id := fmt.Sprintf("n%d", n)
		b.StopTimer()
		if v.before != nil {
			v.before(x, id)
		}
		b.StartTimer()
		began := time.Now()
		v.do(x, id)
		took = append(took, time.Since(began))
		b.StopTimer()
		if v.after != nil {
			v.after(x, id)
		}
		b.StartTimer()
	}
	b.ReportMetric(milliseconds(quantile(took, 50)), "p50-ms")
	b.ReportMetric(milliseconds(quantile(took, 99)), "p99-ms")
	x.clean()
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func timed() []timing {
	drop := func(x *workbench, id string) {
		x.must(x.b.Remove(x.Context(), snapshot.ID(id)))
		x.must(x.b.RemoveFork(x.Context(), snapshot.ForkID(id)))
	}
	fork := func(x *workbench, id string) { x.fork("base", snapshot.ForkID(id)) }
	return []timing{
		{name: "capture", before: (*workbench).stamp, after: drop, do: func(x *workbench, id string) { x.capture(snapshot.ID(id)) }},
		{name: "fork", do: fork, after: drop},
		{name: "clone", offered: is[snapshot.Cloner], before: (*workbench).stamp, after: drop, do: func(x *workbench, id string) {
			_, _, err := as[snapshot.Cloner](x.b).Clone(x.Context(), x.place.Tree, snapshot.ID(id), snapshot.ForkID(id))
			x.must(err)
		}},
		{name: "seal", after: drop, do: func(x *workbench, id string) { x.seal("work", snapshot.ID(id), snapshot.Idle) }},
		{name: "rollback", before: fork, after: drop, do: func(x *workbench, id string) {
			x.must(x.b.RemoveFork(x.Context(), snapshot.ForkID(id)))
			x.fork("base", snapshot.ForkID(id))
		}},
		{name: "remove", before: fork, do: func(x *workbench, id string) {
			x.must(x.b.RemoveFork(x.Context(), snapshot.ForkID(id)))
		}},
		{name: "touched", offered: is[snapshot.ChangeLister], do: func(x *workbench, _ string) {
			for _, err := range as[snapshot.ChangeLister](x.b).ListChanges(x.Context(), "base", "work") {
				x.must(err)
			}
		}},
	}
}
