//go:build linux

package timing

import (
	"math/rand/v2"
	"testing"
	"time"
)

// pairs returns the times of n rounds of two operations. Their quotient is around ratio and varies by spread.
func pairs(random *rand.Rand, n int, ratio, spread float64) []Sample {
	samples := make([]Sample, 2)
	for range n {
		b := time.Duration(float64(time.Millisecond) * (1 + random.Float64()))
		samples[0].Took = append(samples[0].Took, time.Duration(float64(b)*(ratio+spread*random.NormFloat64())))
		samples[1].Took = append(samples[1].Took, b)
	}
	return samples
}

func TestRoundsEndWhereTheyDecideAndNotBefore(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		n             int
		ratio, spread float64
		settled       bool
	}{
		{3, 1, 0, false}, // too few, even of equal ones
		{4, 1, 0.002, true},
		{4, 1.09, 0.05, false},
		{25, 1.02, 0.05, false}, // near the first bound
		{25, 1.2, 0.05, true},   // between the bounds
		{25, 1.39, 0.05, false}, // near the second bound
		{25, 2, 0.05, true},
	} {
		if got := Settled(Quotient, 1.03, 1.4)(pairs(random, c.n, c.ratio, c.spread)); got != c.settled {
			t.Errorf("%d rounds of %v +- %v: settled is %v, want %v", c.n, c.ratio, c.spread, got, c.settled)
		}
	}
}

// A measurement that stops as soon as the rounds decide may decide wrongly by chance, but seldom.
func TestRoundsSeldomDecideWrongly(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	const tries, bound = 2000, 1.1
	wrong := 0
	for range tries {
		all := pairs(random, 60, bound, 0.05)
		for n := leastSettled; n <= 60; n++ {
			if Settled(Quotient, bound)([]Sample{{Took: all[0].Took[:n]}, {Took: all[1].Took[:n]}}) {
				wrong++
				break
			}
		}
	}
	if wrong > tries*3/100 {
		t.Errorf("%d of %d measurements of a value at the bound were decided", wrong, tries)
	}
}

func TestSettledRoundsEndTheMeasuring(t *testing.T) {
	var log []string
	p := Plan{Rounds: 100, Warm: 1, Enough: func(s []Sample) bool { return len(s[0].Took) == 7 && len(s[1].Took) == 7 }}
	samples, err := Interleave(t.Context(), p, fake("a", &log, nil), fake("b", &log, nil))
	if err != nil || len(samples[0].Took) != 7 {
		t.Errorf("%d rounds, %v", len(samples[0].Took), err)
	}
	p.Rounds = 2 // Enough is not asked for a measurement in which an operation fails
	if _, err := Interleave(t.Context(), p, fake("a", &log, nil), fake("b", &log, func(int) bool { return true })); err != nil {
		t.Error(err)
	}
}
