//go:build linux

package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/bench/timing"
)

func TestRowsShowBadNumbersAndErrorsToo(t *testing.T) {
	r := Report{
		Promises: []Promise{
			{Name: "fast", Measured: 2.9, Limit: 1, Unit: "×", Detail: "a | b"},
			{Name: "small", Measured: 0.5, Limit: 1, Unit: "×", Holds: true},
			{Name: "odd", Error: "no such\nthing", Unit: "s", Limit: 2},
		},
		Results: []Result{
			{Kind: "latency", What: "new", Setting: "here", Files: 1000, Dirty: true, Summary: timing.Summarise([]time.Duration{1500 * time.Microsecond})},
			{Kind: "peers", What: "copy", Setting: "crun", Error: "crun: not installed"},
			{Kind: "inside", What: "work", Setting: "here: inside", Ratio: 1.456, Summary: timing.Summarise([]time.Duration{2 * time.Second})},
		},
	}
	var b strings.Builder
	if err := r.Markdown(&b, "snapfs-bench"); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		`| fast | 2.9 × | 1 × | **broken** | a \| b |`,
		"| small | 0.5 × | 1 × | holds |  |",
		"| odd | no such; thing | 2 s | **broken** |  |",
		"| new | here | 1000 files, dirty | 1 | 1.5 ms | 1.5 ms | 1.5 ms | 1.5 ms |",
		"| copy | crun |  | crun: not installed |  |  |  |  |",
		"| work | here: inside | 1.46 × | 1 | 2 s | 2 s | 2 s | 2 s |",
	} {
		if !strings.Contains(b.String(), row+"\n") {
			t.Errorf("no row %s in\n%s", row, b.String())
		}
	}
}
