package hostfs

import (
	"testing"
	"time"
)

// A sandbox that waited for capacity hides the secrets of its start, and not those of its request.
func TestAnOldSearchIsNotUsed(t *testing.T) {
	recent, old := SearchSecrets(), SearchSecrets()
	old.began = time.Now().Add(-2 * freshTime)
	if r := (Request{Search: recent}); r.FreshSearch() != recent {
		t.Error("a recent search is not used")
	}
	for name, r := range map[string]Request{"an old one": {Search: old}, "none": {}} {
		if got := r.FreshSearch(); got == old || time.Since(got.began) > freshTime {
			t.Errorf("%s: the search is not a new one", name)
		}
	}
}
