//go:build linux

package timing

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// fake is a subject that notes each of its turns in log.
func fake(name string, log *[]string, fails func(turn int) bool) Subject {
	turn := 0
	return Subject{Name: name, Do: func(context.Context) (time.Duration, error) {
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
	samples, err := Interleave(t.Context(), Plan{Rounds: 2, Warm: 1}, fake("a", &log, nil), fake("b", &log, nil))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b", "b", "a", "a", "b"}; !slices.Equal(log, want) {
		t.Errorf("turns %q, want %q", log, want)
	}
	for _, s := range samples {
		if want := []time.Duration{2, 3}; !slices.Equal(s.Took, want) || s.Err != nil {
			t.Errorf("%s: %v, %v, want %v", s.Name, s.Took, s.Err, want)
		}
	}
}

func TestASubjectThatFailsLeavesTheOthersAlone(t *testing.T) {
	var log []string
	samples, err := Interleave(t.Context(), Plan{Rounds: 5}, fake("good", &log, nil),
		fake("bad", &log, func(turn int) bool { return turn == 2 }))
	if err != nil {
		t.Fatal(err)
	}
	if good, bad := samples[0], samples[1]; len(good.Took) != 5 || good.Err != nil || len(bad.Took) != 1 || bad.Err == nil {
		t.Errorf("good %+v, bad %+v", good, bad)
	}
}

func TestABudgetEndsTheRoundsButNotBeforeThree(t *testing.T) {
	var log []string
	samples, err := Interleave(t.Context(), Plan{Rounds: 1000, Warm: 1, Budget: time.Nanosecond}, fake("a", &log, nil))
	if err != nil || len(samples[0].Took) != 3 {
		t.Errorf("%d rounds, %v", len(samples[0].Took), err)
	}
}

func TestAnInterruptEndsTheMeasuring(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := Subject{Do: func(context.Context) (time.Duration, error) { cancel(); return 1, nil }}
	if _, err := Interleave(ctx, Plan{Rounds: 5}, s); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
