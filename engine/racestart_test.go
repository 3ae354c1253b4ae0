package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine"
)

// TestEightAttemptsStartInLittleMoreThanOne prints what they take; how much more
// than one that is, is judged where nothing else runs.
func TestEightAttemptsStartInLittleMoreThanOne(t *testing.T) {
	asAll(t, func(t *testing.T, b *bench) {
		made, ended := map[int][]time.Duration{}, map[int][]time.Duration{}
		for range 7 {
			for _, n := range []int{1, 8} {
				var first time.Time
				req := b.tries(slices.Repeat([]string{"true"}, n)...)
				req.Progress = func(engine.Attempt) {
					if first.IsZero() {
						first = time.Now()
					}
				}
				began := time.Now()
				r := b.race(req)
				made[n], ended[n] = append(made[n], first.Sub(began)), append(ended[n], time.Since(began))
				if err := r.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		one, eight := median(made[1]), median(made[8])
		t.Logf("made: one in %v, eight in %v, %.1f ×; run and compared: %v, %v", one, eight, float64(eight)/float64(one), median(ended[1]), median(ended[8]))
		if eight > 8*one {
			t.Errorf("eight sandboxes of one base take %v, one takes %v", eight, one)
		}
	})
}
