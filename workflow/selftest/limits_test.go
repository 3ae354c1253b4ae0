package selftest

import (
	"slices"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/prove"
)

// TestEachLimitIsTried, but for those that are about the life of a sandbox: at its own
// value, or at a smaller one, which is said; and no other where only its own are wanted.
func TestEachLimitIsTried(t *testing.T) {
	life := []string{"idle", "ttl", "remove-after", "keep-end"}
	for _, f := range new(catalog.Limits).Fields() {
		h, tried := tryableLimits()[f.Name]
		if tried == slices.Contains(life, f.Name) {
			t.Errorf("%s: tried is %v", f.Name, tried)
		}
		if !tried {
			continue
		}
		large := map[string]string{"size": "9G", "rate": "9G/s", "duration": "9h", "number": "100000"}[f.Value.Type()]
		if f.Name == "cpus" {
			large = "8000"
		}
		for value, note := range map[string]bool{h.small: false, large: true} {
			var l catalog.Limits
			if _, err := l.SetField(f.Name, value); err != nil {
				t.Fatal(err)
			}
			p := prover{own: true}
			trials := p.limitTrials(l)
			if !slices.ContainsFunc(trials, func(tr trial) bool { return tr.probe == h.probe }) || len(trials) > 1 && f.Name != "memory" {
				t.Errorf("%s %s: %+v", f.Name, value, trials)
			}
			for _, tr := range trials {
				if (tr.note != "") != note || tr.args[0] == "0" {
					t.Errorf("%s %s: %+v", f.Name, value, tr)
				}
			}
		}
		if !slices.ContainsFunc(prove.List(), func(p prove.Probe) bool { return p.Name == h.probe }) {
			t.Errorf("%s: there is no probe %s", f.Name, h.probe)
		}
	}
}
