package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// numbersIn returns the numbers of the events in lines of JSON.
func numbersIn(t *testing.T, data []byte) (all []uint64) {
	t.Helper()
	for text := range bytes.Lines(data) {
		all = append(all, numberOf(text))
	}
	return all
}

// TestAFeedPassesEachEventToEachReader: readers that begin before, among and after the events of four writers get
// every event once and in order, and all of them share one reading.
func TestAFeedPassesEachEventToEachReader(t *testing.T) {
	state := t.TempDir()
	const before, events, readers = 300, 2000, 30
	first := newLog(t, state, maxFile)
	for range before {
		first.Append(Event{Type: CommandStarted})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f := NewFeed(state)
	var wg sync.WaitGroup
	for i := range readers {
		wg.Go(func() {
			next := uint64(1 + i*10)
			err := f.Follow(ctx, next-1, time.Hour, func(b Batch) error {
				for _, n := range numbersIn(t, b.Encode(false)) {
					if n != next {
						return fmt.Errorf("event %d in place of %d", n, next)
					}
					next++
				}
				if next > before+events {
					return errDone
				}
				return nil
			})
			if !errors.Is(err, errDone) {
				t.Errorf("reader %d stands at %d: %v", i, next, err)
			}
		})
	}
	for range 4 { // as four processes
		wg.Go(func() {
			l := newLog(t, state, maxFile)
			for range events / 4 {
				l.Append(Event{Type: CommandEnded, Subject: "a"})
			}
		})
	}
	wg.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readers != 0 || f.stop != nil || f.chunks != nil {
		t.Errorf("%d readers and %d chunks are left", f.readers, len(f.chunks))
	}
}

var errDone = errors.New("the test has seen enough")

// TestASlowReaderOfAFeedLosesNothing: a reader that stands still while memory drops what it needs goes on with the
// files, and the other one is not held up.
func TestASlowReaderOfAFeedLosesNothing(t *testing.T) {
	state := t.TempDir()
	l := newLog(t, state, maxFile)
	l.Append(Event{Type: CommandStarted})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f := NewFeed(state)
	const events = 2500 // of 4 KiB: more than feedBytes, less than the files hold
	stands, goes := make(chan struct{}), make(chan struct{})
	follow := func(each func(n uint64)) error {
		next := uint64(1)
		return f.Follow(ctx, 0, time.Hour, func(b Batch) error {
			for _, n := range numbersIn(t, b.Encode(false)) {
				if n != next {
					return fmt.Errorf("event %d in place of %d", n, next)
				}
				next++
				each(n)
			}
			if next > 1+events {
				return errDone
			}
			return nil
		})
	}
	ends := make(chan error, 2)
	go func() {
		ends <- follow(func(n uint64) {
			if n == 1 {
				close(stands)
				<-goes
			}
		})
	}()
	<-stands
	go func() { ends <- follow(func(uint64) {}) }()
	for range events {
		l.Append(Event{Type: CommandEnded, Data: Data{Reason: strings.Repeat("x", 4000)}})
	}
	if err := <-ends; !errors.Is(err, errDone) {
		t.Fatal(err)
	}
	f.mu.Lock()
	dropped, held := f.first, f.bytes
	f.mu.Unlock()
	if dropped < 2 || held > feedBytes+2*chunkBytes {
		t.Errorf("memory holds %d bytes from event %d on", held, dropped)
	}
	close(goes)
	if err := <-ends; !errors.Is(err, errDone) {
		t.Error(err)
	}
}

// TestABatchHasTheFormOfEachReader: lines of JSON are those of the files; a server-sent event has the number, the type
// and the same text; a selection keeps what stands for lost events.
func TestABatchHasTheFormOfEachReader(t *testing.T) {
	c := newChunk()
	for i, e := range []Event{
		{Type: CommandStarted, Subject: "a"}, {Type: EventsLost, Data: Data{First: 2, Last: 4}}, {Type: CommandEnded, Subject: "b"},
	} {
		e.ID = strconv.Itoa([]int{1, 4, 5}[i])
		c.add(&e)
	}
	all := Batch{c, c.lines}
	var lines []string
	for text := range strings.Lines(string(all.Encode(false))) {
		var e Event
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n", e.ID, e.Type, text))
	}
	if want := strings.Join(lines, ""); len(lines) != 3 || string(all.Encode(true)) != want {
		t.Errorf("%s\nwant\n%s", all.Encode(true), want)
	}
	if some := all.Only("b", ""); string(some.Encode(true)) != lines[1]+lines[2] || len(numbersIn(t, some.Encode(false))) != 2 {
		t.Errorf("of b: %s%s", some.Encode(true), some.Encode(false))
	}
	if none := all.Only("a", CommandEnded); string(none.Encode(true)) != lines[1] {
		t.Errorf("ends of a: %s", none.Encode(true))
	}
	if data := (Batch{}).Encode(true); data != nil {
		t.Errorf("no events: %q", data)
	}
}

// TestAFeedReportsThatNothingComes: an empty batch, and the end of its reader with ctx.
func TestAFeedReportsThatNothingComes(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := NewFeed(t.TempDir())
	n := 0
	err := f.Follow(ctx, 0, time.Millisecond, func(b Batch) error {
		if data := b.Encode(false); data != nil {
			t.Errorf("%q", data)
		}
		if n++; n == 2 {
			cancel()
		}
		return nil
	})
	if err != nil || n != 2 {
		t.Errorf("%d times, %v", n, err)
	}
}

// TestAFeedOutlivesItsFiles: readers of removed files wait for new ones without a busy loop.
func TestAFeedOutlivesItsFiles(t *testing.T) {
	state := t.TempDir()
	l := newLog(t, state, maxFile)
	for range 3 {
		l.Append(Event{Type: CommandStarted})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f := NewFeed(state)
	if err := f.join(); err != nil { // so that the reading begins after event 3
		t.Fatal(err)
	}
	defer f.leave()
	files, err := filepath.Glob(filepath.Join(state, dirName, "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	calls := 0
	if err := f.Follow(ctx, 0, time.Millisecond, func(b Batch) error {
		if calls++; calls == 3 || b.c != nil {
			return errDone
		}
		return nil
	}); !errors.Is(err, errDone) || calls != 3 {
		t.Errorf("%d calls, %v", calls, err)
	}
}
