package local

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// runs records the command lines that a sweepTimer has run.
type runs struct {
	mu  sync.Mutex
	all []string
}

func (r *runs) run(args []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, args[0])
	return nil
}

func (r *runs) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

func TestCollectionsOfOneIntervalAreOne(t *testing.T) {
	var r runs
	s := &sweepTimer{interval: time.Hour, start: r.run}
	for range 5 {
		if err := s.later([]string{"collect"}); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.list(); len(got) != 1 {
		t.Errorf("%d collections within the interval", len(got))
	}
	s.close()
	if got := r.list(); len(got) != 2 {
		t.Errorf("%d collections after the end of the server, want the one that was put off too", len(got))
	}
	s.close()
	if got := r.list(); len(got) != 2 {
		t.Errorf("%d collections after a second end", len(got))
	}
}

func TestACollectionThatWasPutOffFollows(t *testing.T) {
	var r runs
	s := &sweepTimer{interval: time.Millisecond, start: r.run}
	for range 2 {
		if err := s.later([]string{"collect"}); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(time.Minute); len(r.list()) < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the collection that was put off has not begun within a minute")
		}
	}
	s.close()
	if got := r.list(); len(got) != 2 {
		t.Errorf("%d collections", len(got))
	}
}
