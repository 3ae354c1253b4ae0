package local

import (
	"slices"
	"sync"
	"sync/atomic"
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

// TestTheServerDoesOnlySoMuchInTheBackground: beyond that, the caller does it. Close waits for the rest.
func TestTheServerDoesOnlySoMuchInTheBackground(t *testing.T) {
	s := NewServer(t.TempDir(), "/none")
	hold := make(chan struct{})
	var done, inBackground atomic.Int32
	for range maxBackground {
		s.Do(func() {
			<-hold
			inBackground.Add(1)
			done.Add(1)
		})
	}
	s.Do(func() { done.Add(1) })
	if n := done.Load(); n != 1 {
		t.Errorf("%d functions have ended, want the one that had no room in the background", n)
	}
	close(hold)
	s.Close()
	if n := inBackground.Load(); n != maxBackground {
		t.Errorf("the server closed after %d of %d functions", n, maxBackground)
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
