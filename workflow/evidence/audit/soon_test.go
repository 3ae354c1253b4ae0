package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/snapfs/snapfs/errs"
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

// TestALineChangedBetweenTwoRecordsIsFound changes the last record of a log, in a file that stays open to add the next.
func TestALineChangedBetweenTwoRecordsIsFound(t *testing.T) {
	l := newLog(t, treetest.Dir(t))
	l.sync.pause, l.sync.early, l.sync.last = time.Hour, syncBurst, time.Now()
	add := func() error { return l.AppendSoon("t", map[string]any{"name": "one"}, func(error) {}) }
	if err := errors.Join(add(), add()); err != nil {
		t.Fatal(err)
	}
	if err := reopened(l.Dir()).Append("other", nil, false); err != nil { // as another process does
		t.Fatal(err)
	}
	if err := errors.Join(add(), add()); err != nil {
		t.Fatal(err)
	}
	chained(t, l)
	path := filepath.Join(l.Dir(), LogName)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[bytes.LastIndex(text, []byte("one"))] = 'x'
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := add(); !errors.Is(err, errs.ErrCorrupt) {
		t.Errorf("a record after a changed one: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, text) {
		t.Errorf("the log was added to: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := add(); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("a record of a deleted log: %v", err)
	}
}

// TestAJobRedactsWithFewSecrets redacts the arguments of many commands, each of which is found by its text later.
func TestAJobRedactsWithFewSecrets(t *testing.T) {
	l := newLog(t, treetest.Dir(t))
	seen := map[string]bool{}
	for i := range 2 * saltsAtOnce / 3 {
		all, err := l.Redact([]string{"same", "same", fmt.Sprint("text ", i)})
		if err != nil {
			t.Fatal(err)
		}
		for _, digest := range all {
			if seen[digest] {
				t.Fatalf("two texts have the digest %s", digest)
			}
			seen[digest] = true
		}
		if i%100 == 0 {
			found, err := l.Matches(fmt.Sprint("text ", i))
			if err != nil || !slices.ContainsFunc(found, func(m Match) bool { return m.Digest == all[2] }) {
				t.Errorf("text %d is not found: %v", i, err)
			}
		}
	}
	stored, err := os.ReadFile(filepath.Join(l.Dir(), saltsName))
	if n := bytes.Count(stored, []byte("secret")); err != nil || n > 5 {
		t.Errorf("%d secrets are stored, %v", n, err)
	}
}
