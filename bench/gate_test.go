//go:build linux

package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// measured is a check that measures these values, one a try; a negative one is
// an error.
func measured(limit float64, values ...float64) (check, *int) {
	n := 0
	return check{name: "it", limit: limit, unit: "×", measure: func(context.Context) (float64, string, error) {
		n++
		if v := values[n-1]; v >= 0 {
			return v, "", nil
		}
		return 0, "", errors.New("no number")
	}}, &n
}

func TestAPromiseIsJudgedByTheLeastOfThreeTries(t *testing.T) {
	for _, c := range []struct {
		values []float64
		holds  bool
		tries  int
		least  float64
	}{
		{[]float64{0.9}, true, 1, 0.9},
		{[]float64{1.0}, true, 1, 1.0},
		{[]float64{1.5, 1.2, 0.8}, true, 3, 0.8},
		{[]float64{1.2, 1.1, 1.3}, false, 3, 1.1},
		{[]float64{-1, 0.5}, true, 2, 0.5},
		{[]float64{1.1, -1, -1}, false, 3, 1.1},
	} {
		k, n := measured(1, c.values...)
		p := judge(t.Context(), k)
		if p.Holds != c.holds || p.Tries != c.tries || *n != c.tries || p.Measured != c.least {
			t.Errorf("%v: %+v after %d measurements", c.values, p, *n)
		}
	}
}

func TestAnOpenPromiseIsMeasuredAgainWhereItGetsWorse(t *testing.T) {
	for _, c := range []struct {
		values []float64
		tries  int
	}{{[]float64{1.2}, 1}, {[]float64{1.9, 1.4}, 2}} {
		k, _ := measured(1, c.values...)
		k.held = 1.5
		if p := judge(t.Context(), k); p.Holds || p.Tries != c.tries || !strings.HasPrefix(p.String(), "missed") {
			t.Errorf("%v: %+v", c.values, p)
		}
	}
}

func TestWhatCannotBeMeasuredIsBroken(t *testing.T) {
	k, _ := measured(1, -1, -1, -1)
	p := judge(t.Context(), k)
	report := Report{Promises: []Promise{p}}
	if p.Holds || p.Error != "no number" || len(report.Broken()) != 1 || !strings.HasPrefix(p.String(), "broken") {
		t.Errorf("%+v", p)
	}
}

func TestWhatIsOnlyToldIsNeitherJudgedNorRepeated(t *testing.T) {
	k, n := measured(0, 7)
	k.unjudged = true
	p := judge(t.Context(), k)
	report := Report{Promises: []Promise{p}}
	if p.Holds || len(report.Broken()) != 0 || *n != 1 || !strings.HasPrefix(p.String(), "reported") {
		t.Errorf("%+v", p)
	}
}

func TestACountIsNotRepeatedUntilItIsSmall(t *testing.T) {
	k, n := measured(0, 3)
	k.exact = true
	if p := judge(t.Context(), k); p.Holds || *n != 1 {
		t.Errorf("%+v after %d measurements", p, *n)
	}
}

func TestALineSaysVerdictNumbersAndNoise(t *testing.T) {
	k, _ := measured(1.1, 1.5, 1.25, 1.5)
	k.noise = "0.1 of it is for noise"
	want := "broken  it: 1.25 ×, limit 1.1 (0.1 of it is for noise), the least of 3 tries"
	if got := judge(t.Context(), k).String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAKindThatIsNotMeasuredIsAnError(t *testing.T) {
	for _, kind := range []string{kindGrowth, kindDepth} {
		if _, err := Run(t.Context(), Options{Only: []string{"latency", kind}}); err == nil || !strings.Contains(err.Error(), "--gate") {
			t.Errorf("%s without --gate: %v", kind, err)
		}
		o := Options{Only: []string{kind}}
		if err := o.checkOnly(true); err != nil {
			t.Errorf("%s with --gate: %v", kind, err)
		}
	}
	if _, err := Gate(t.Context(), Options{Only: []string{kindDepth, "latency"}}); err == nil || !strings.Contains(err.Error(), "latency") {
		t.Errorf("latency with --gate: %v", err)
	}
}

func TestOnlyWhatGrewIsLeftBehind(t *testing.T) {
	before := census{mounts: 1, loops: 1, subvolumes: 5, files: 50}
	for _, c := range []struct {
		now  census
		more int
	}{
		{before, 0},
		{census{mounts: 1, loops: 1, subvolumes: 3, files: 50 + spares}, 0},
		{census{mounts: 2, loops: 2, subvolumes: 4, files: 51 + spares}, 3},
	} {
		if n := c.now.more(before); n != c.more {
			t.Errorf("%v: %d, want %d", c.now, n, c.more)
		}
	}
}
