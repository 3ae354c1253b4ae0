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

// A syncer puts the records of one evidence log on stable storage in the background. The log's mutex guards its fields.
type syncer struct {
	pause   time.Duration // syncPause; tests set another one
	running bool          // a goroutine syncs, or waits to do so
	early   int           // the number of syncs that did not wait
	last    time.Time     // when the last sync began
	file    *os.File      // the log's newest file, open as long as running, else nil
	used    bool          // AppendSoon adds a record to file
	syncing *os.File      // the file that is synced now, or nil
	upTo    position      // the end of the records to sync
	synced  []func(error) // one for each of these records
}

// The greatest number of bytes of the log that are not on stable storage for which AppendSoon leaves the sync to the
// goroutine in the background: soonUnsynced if that runs already. Otherwise earlyUnsynced, because many processes may
// have ended before they synced.
const (
	earlyUnsynced = 8 * positionEvery
	soonUnsynced  = 64 * positionEvery
)

// AppendSoon adds a record to the log as [Log.Append] does, and puts it on stable storage in the background,
// since that takes long. It then calls synced with the result: some milliseconds later, or 100 in a process that adds
// many records. If too many bytes of the log are not on stable storage, as when each process ends too early, AppendSoon
// syncs them itself. Cost: seven system calls while an earlier record waits to be synced. Errors: also errs.ErrNotFound.
func (l *Log) AppendSoon(kind string, data map[string]any, synced func(error)) error {
	l.soon.Lock()
	defer l.soon.Unlock()
	f, unsynced, err := l.openSoon()
	if err == nil {
		err = l.append(f, kind, data, unsynced)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if f != nil {
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // closing may come later
	}
	s := &l.sync
	s.used = false
	if err != nil {
		if f != s.file {
			f.Close()
		}
		return err
	}
	if s.file != nil && s.file != f && s.file != s.syncing {
		s.file.Close() // its records were synced when it was closed as a segment
	}
	s.file, s.upTo, s.synced = f, l.seen, append(s.synced, synced)
	if !s.running {
		s.running = true
		go l.syncAll()
	}
	return nil
}

// openSoon returns the newest file of the evidence log, locked, and how many unsynced bytes the log may have. It takes
// the file to which the last record was added, if that is still open and the newest. The caller holds l.soon.
func (l *Log) openSoon() (f *os.File, unsynced int64, err error) {
	l.mu.Lock()
	f = l.sync.file
	l.sync.used = f != nil
	l.mu.Unlock()
	if f == nil {
		f, err = l.open()
		return f, earlyUnsynced, err
	}
	if err := vfs.Flock(f, unix.LOCK_EX); err != nil {
		return nil, 0, errs.With("locking", f.Name(), err)
	}
	var mine, newest unix.Stat_t
	if unix.Fstat(int(f.Fd()), &mine) == nil && unix.Stat(f.Name(), &newest) == nil && mine.Ino == newest.Ino && mine.Dev == newest.Dev {
		return f, soonUnsynced, nil
	}
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // another process has closed it, and begun a new one
	f, err = l.open()
	return f, soonUnsynced, err
}

// syncAll puts records of [Log.AppendSoon] on stable storage until there are no more.
func (l *Log) syncAll() {
	for more := true; more; {
		l.mu.Lock()
		s := &l.sync
		wait := s.pause - time.Since(s.last)
		if s.early < syncBurst {
			s.early, wait = s.early+1, 0
		}
		l.mu.Unlock()
		time.Sleep(wait)
		more = l.syncOnce()
	}
}

// syncOnce puts the records of [Log.AppendSoon] up to now on stable storage. If no other record is added meanwhile, it
// closes the file and returns false.
func (l *Log) syncOnce() (more bool) {
	l.mu.Lock()
	s := &l.sync
	f, upTo, synced := s.file, s.upTo, s.synced
	s.syncing, s.synced, s.last = f, nil, time.Now()
	l.mu.Unlock()
	err := f.Sync()
	l.mu.Lock()
	if err == nil {
		l.storePosition(upTo)
	}
	s.syncing, more = nil, s.used || len(s.synced) > 0
	if !more {
		s.file, s.running = nil, false
	}
	if s.file != f {
		err = errors.Join(err, f.Close())
	}
	l.mu.Unlock()
	err = errs.With("syncing the record of "+l.sandbox, f.Name(), err)
	for _, call := range synced {
		call(err)
	}
	return more
}
