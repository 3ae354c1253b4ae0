package audit

import (
	"errors"
	"os"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A process puts the records of [Log.AppendSoon] on stable storage at once up to syncBurst times, and afterwards at
// most once each syncPause, all records of that time together. One sync takes a disk a millisecond or more, and holds
// up other writes to the filesystem meanwhile; a job of many short commands would wait for that.
const (
	syncBurst = 4
	syncPause = 100 * time.Millisecond
)

// A syncer puts the records of one evidence log on stable storage in the background. The log's mutex guards it.
type syncer struct {
	pause   time.Duration // syncPause, but in tests
	running bool          // a goroutine syncs, or waits to do so
	early   int           // the number of syncs that did not wait
	last    time.Time     // when the last sync began
	file    *os.File      // the log's newest file with records to sync, or nil
	upTo    position      // the end of these records
	synced  []func(error) // one for each record
}

// AppendSoon adds a record to the log as [Log.Append] does, and puts it on stable storage in the background,
// since that takes long. It then calls synced with the result: some milliseconds later, or 100 in a process that adds
// many records. It waits itself if none of the last 64 KiB got there, as when each process ends too early.
func (l *Log) AppendSoon(kind string, data map[string]any, synced func(error)) error {
	f, err := l.open()
	if err != nil {
		return err
	}
	if err := l.append(f, kind, data, 8*positionEvery); err != nil {
		vfs.Unlock(f)
		return err
	}
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // closing does the same
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.sync
	if s.file != nil {
		s.file.Close() // the same file, or one that was synced when it was closed
	}
	s.file, s.upTo, s.synced = f, l.seen, append(s.synced, synced)
	if !s.running {
		s.running = true
		go l.syncAll()
	}
	return nil
}

// syncAll puts records of [Log.AppendSoon] on stable storage until there are no more.
func (l *Log) syncAll() {
	for {
		l.mu.Lock()
		s := &l.sync
		if s.file == nil {
			s.running = false
			l.mu.Unlock()
			return
		}
		wait := s.pause - time.Since(s.last)
		if s.early < syncBurst {
			s.early, wait = s.early+1, 0
		}
		l.mu.Unlock()
		time.Sleep(wait)
		l.mu.Lock()
		f, upTo, synced := s.file, s.upTo, s.synced
		s.file, s.synced, s.last = nil, nil, time.Now()
		l.mu.Unlock()
		err := f.Sync()
		if err == nil {
			l.mu.Lock()
			l.storePosition(upTo)
			l.mu.Unlock()
		}
		err = errs.With("syncing the record of "+l.sandbox, f.Name(), errors.Join(err, f.Close()))
		for _, call := range synced {
			call(err)
		}
	}
}
