//go:build linux

package timing

import (
	"testing"
	"time"
)

func TestQuantilesAreTimesThatWereMeasured(t *testing.T) {
	var took []time.Duration
	for i := 100; i > 0; i-- {
		took = append(took, time.Duration(i))
	}
	got := Summarise(took)
	want := Summary{N: 100, Min: 1, P50: 50, P95: 95, P99: 99, Max: 100}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if took[0] != 100 {
		t.Error("the times were put into another order")
	}
	for n := 1; n <= 3; n++ {
		if s := Summarise(took[100-n:]); s.P99 != time.Duration(n) || s.P50 != time.Duration((n+1)/2) {
			t.Errorf("of %d times: %+v", n, s)
		}
	}
	if s := Summarise(nil); s != (Summary{}) {
		t.Errorf("of none: %+v", s)
	}
}

func TestPairsForgiveWhatSlowedBoth(t *testing.T) {
	bare := []time.Duration{10, 100, 10, 1000, 10}
	inside := []time.Duration{11, 110, 11, 1100, 50}
	if r := Pairs(inside, bare); r < 1.099 || r > 1.101 {
		t.Errorf("got %v, want 1.1", r)
	}
	if r := Pairs(nil, bare); r != 0 {
		t.Errorf("of none: %v", r)
	}
}
