package events

import (
	"errors"
	"testing"
	"testing/synctest"
)

// TestABurstOfEventsWakesAReaderOnce: while a reader is busy, the watch of the directory is not asked for the next
// change, and once the reader has come back, none of the changes is lost.
func TestABurstOfEventsWakesAReaderOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, changes, stop := 0, make(chan error, 10), make(chan struct{})
		changed := coalesce(func() error { asked++; return <-changes }, stop)
		for range 3 {
			changes <- nil
		}
		if synctest.Wait(); asked != 1 {
			t.Errorf("asked %d times while the reader was busy", asked)
		}
		for range 3 {
			<-changed
		}
		if synctest.Wait(); asked != 4 {
			t.Errorf("asked %d times after three changes", asked)
		}
		changes <- errors.New("closed")
	})
	synctest.Test(t, func(*testing.T) { // the goroutine ends with its reader
		stop := make(chan struct{})
		coalesce(func() error { return nil }, stop)
		close(stop)
	})
}
