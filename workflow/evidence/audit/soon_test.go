package audit

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

// TestManyRecordsAreSyncedTogether adds records while the pause between two syncs lasts. All of them get on stable
// storage with one sync.
func TestManyRecordsAreSyncedTogether(t *testing.T) {
	l := newLog(t, treetest.Dir(t))
	l.sync.pause = time.Hour
	const n = 40
	var synced atomic.Int64
	add := func() {
		if err := l.AppendSoon("t", nil, func(err error) {
			if err != nil {
				t.Error(err)
			}
			synced.Add(1)
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range syncBurst { // each is synced at once
		add()
		for began := time.Now(); synced.Load() <= int64(i); time.Sleep(time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatalf("record %d is not synced", i)
			}
		}
	}
	for range n {
		add()
	}
	l.mu.Lock()
	waiting := len(l.sync.synced)
	l.mu.Unlock()
	if waiting != n || synced.Load() != syncBurst {
		t.Errorf("%d records wait for a sync, and %d were synced; want %d and %d", waiting, synced.Load(), n, syncBurst)
	}
}

// TestARecordAddedSoonIsSyncedInTheEnd adds records from several goroutines, with an ordinary pause.
func TestARecordAddedSoonIsSyncedInTheEnd(t *testing.T) {
	l := inSegments(newLog(t, treetest.Dir(t)))
	l.sync.pause = 2 * time.Millisecond
	var all, added sync.WaitGroup
	for range 4 {
		added.Go(func() {
			for range 25 {
				all.Add(1)
				err := errors.Join(l.Room(), l.AppendSoon("t", nil, func(err error) {
					if err != nil {
						t.Error(err)
					}
					all.Done()
				}))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	added.Wait()
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("a record was not synced")
	}
	chained(t, l)
}
