//go:build linux

package bench

import (
	"context"
	"strings"
	"testing"
)

func TestAnOpenPromiseIsSaidToBeMissedAndMayNotGetWorse(t *testing.T) {
	for _, x := range []struct {
		value  float64
		begins string
		broken int
	}{{0.9, "holds", 0}, {1.5, "missed", 0}, {2.5, "broken", 1}} {
		p := judge(context.Background(), check{
			name: "it", limit: 1, held: 2, unit: "×",
			measure: func(context.Context) (float64, string, error) { return x.value, "", nil },
		})
		report := Report{Promises: []Promise{p}}
		if got := p.String(); !strings.HasPrefix(got, x.begins) || len(report.Broken()) != x.broken {
			t.Errorf("%v: %q, %d broken; want %s, %d", x.value, got, len(report.Broken()), x.begins, x.broken)
		}
	}
}
