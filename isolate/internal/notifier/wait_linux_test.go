package notifier

import (
	"os"
	"runtime"
	"testing"
	"time"
)

// waiting starts a waiter, which with keep keeps the right to execute Go code for an hour. It returns the other end of the
// pipe at which the waiter waits, and the channel with what its next returns.
func waiting(t *testing.T, keep bool) (end *os.File, next chan bool) {
	t.Helper()
	r, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w := newWaiter(int(r.Fd()))
	w.dense, w.keep = time.Hour, keep
	next = make(chan bool)
	go func() {
		next <- w.next()
		r.Close()
	}()
	return end, next
}

// TestWaitingHoldsUpNoCollectionOfGarbage: a waiter that does not give up the right to execute Go code does so for a
// collection of garbage, which stops all goroutines.
func TestWaitingHoldsUpNoCollectionOfGarbage(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))) // on one processor a waiter does not keep it
	end, next := waiting(t, true)
	for range 20 {
		began := time.Now()
		runtime.GC()
		if took := time.Since(began); took > time.Minute {
			t.Fatalf("a collection of garbage took %v", took)
		}
	}
	if _, err := end.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if !<-next {
		t.Error("the waiter did not see what came")
	}
	end.Close()
}

// TestWaitingEndsWithTheFilter: both ways to wait end when nothing can come any more.
func TestWaitingEndsWithTheFilter(t *testing.T) {
	for _, keep := range []bool{true, false} {
		end, next := waiting(t, keep)
		end.Close()
		if <-next {
			t.Errorf("keep %v: it waits for more", keep)
		}
	}
}
