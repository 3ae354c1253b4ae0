package notifier

import (
	"os"
	"runtime"
	"testing"
	"time"
)

// waiting starts a waiter, which with keep retains its processor for an hour. It returns the other end of the pipe at
// which the waiter waits, and a channel that gets the results of next.
func waiting(t *testing.T, keep bool) (end *os.File, next chan bool) {
	t.Helper()
	r, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w := newWaiter(int(r.Fd()))
	w.dense = time.Hour
	w.setKeep(keep)
	next = make(chan bool)
	go func() {
		came := w.next()
		w.setKeep(false)
		next <- came
		r.Close()
	}()
	return end, next
}

// TestWaitingHoldsUpNoCollectionOfGarbage: a waiter that retains its processor gives it up for a garbage collection,
// which stops all goroutines.
func TestWaitingHoldsUpNoCollectionOfGarbage(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))) // on a single processor a waiter does not retain it
	end, next := waiting(t, true)
	for range 20 {
		began := time.Now()
		runtime.GC()
		if took := time.Since(began); took > time.Minute {
			t.Fatalf("a garbage collection took %v", took)
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

// TestOneWaiterRetainsItsProcessor: if as many waiters as there are processors did, no other goroutine would run.
func TestOneWaiterRetainsItsProcessor(t *testing.T) {
	one, other := newWaiter(-1), newWaiter(-1)
	one.setKeep(true)
	other.setKeep(true)
	if !one.keep || other.keep {
		t.Errorf("the first waiter keeps it: %v, the second: %v", one.keep, other.keep)
	}
	other.setKeep(false)
	one.setKeep(false)
	if other.setKeep(true); !other.keep {
		t.Error("the second waiter does not keep it after the first one")
	}
	other.setKeep(false)
}
