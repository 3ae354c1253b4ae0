//go:build linux

package bench

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// fake is a subject that notes each of its turns in log.
func fake(name string, log *[]string, fails func(turn int) bool) subject {
	turn := 0
	return subject{name: name, do: func(context.Context) (time.Duration, error) {
		turn++
		*log = append(*log, name)
		if fails != nil && fails(turn) {
			return 0, errors.New("broken")
		}
		return time.Duration(turn), nil
	}}
}

func TestSubjectsTakeTurnsAndWarmUpIsThrownAway(t *testing.T) {
	var log []string
	samples, err := interleave(t.Context(), plan{rounds: 2, warm: 1}, fake("a", &log, nil), fake("b", &log, nil))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b", "b", "a", "a", "b"}; !slices.Equal(log, want) {
		t.Errorf("turns %q, want %q", log, want)
	}
	for _, s := range samples {
		if want := []time.Duration{2, 3}; !slices.Equal(s.took, want) || s.err != nil {
			t.Errorf("%s: %v, %v, want %v", s.name, s.took, s.err, want)
		}
	}
}

func TestASubjectThatFailsLeavesTheOthersAlone(t *testing.T) {
	var log []string
	samples, err := interleave(t.Context(), plan{rounds: 5}, fake("good", &log, nil),
		fake("bad", &log, func(turn int) bool { return turn == 2 }))
	if err != nil {
		t.Fatal(err)
	}
	if good, bad := samples[0], samples[1]; len(good.took) != 5 || good.err != nil || len(bad.took) != 1 || bad.err == nil {
		t.Errorf("good %+v, bad %+v", good, bad)
	}
}

func TestABudgetEndsTheRoundsButNotBeforeThree(t *testing.T) {
	var log []string
	samples, err := interleave(t.Context(), plan{rounds: 1000, warm: 1, budget: time.Nanosecond}, fake("a", &log, nil))
	if err != nil || len(samples[0].took) != 3 {
		t.Errorf("%d rounds, %v", len(samples[0].took), err)
	}
}

func TestAnInterruptEndsTheMeasuring(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := subject{do: func(context.Context) (time.Duration, error) { cancel(); return 1, nil }}
	if _, err := interleave(ctx, plan{rounds: 5}, s); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
