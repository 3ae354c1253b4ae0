package events

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/poll"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/internal/watch"
)

// Read calls yield for each stored event of the state directory state whose number is greater than after, in
// order. If yield returns an error, Read ends and returns it. An event of type [EventsLost] stands for those
// that were removed or cannot be read. Cost: it reads the files from the one with the first wanted event on.
func Read(state string, after uint64, yield func(Event) error) error {
	r := newReader(state, after)
	defer r.close()
	return r.drain(yield)
}

// Follow calls yield for the stored events after the number after as [Read] does, then for the new ones as they come,
// until ctx ends: then it returns nil.
func Follow(ctx context.Context, state string, after uint64, yield func(Event) error) error {
	return follow(ctx, state, after, yield, func() {})
}

// FollowEvery follows the events as [Follow] does, but waits at least the time pause between two reads of the stream,
// so that many events wake the reader no more often than few.
func FollowEvery(ctx context.Context, state string, after uint64, pause time.Duration, yield func(Event) error) error {
	return follow(ctx, state, after, yield, func() { poll.Sleep(ctx, pause) })
}

// follow is Follow. It calls drained each time when it has passed all stored events to yield.
func follow(ctx context.Context, state string, after uint64, yield func(Event) error, drained func()) error {
	dir := filepath.Join(state, dirName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return errs.With("making", dir, err)
	}
	var changed <-chan struct{} // nil, as with too many watches or not on Linux: poll
	if w, err := watch.Dir(dir); err == nil {
		stop := make(chan struct{})
		defer close(stop)
		defer w.Close()
		changed = coalesce(w.Next, stop)
	}
	r := newReader(state, after)
	defer r.close()
	for {
		if err := r.drain(yield); err != nil {
			return err
		}
		drained()
		if err := r.wait(ctx, changed); err != nil {
			return nil
		}
	}
}

// coalesce calls next, which waits for a change, until it returns an error, and sends each change to the returned
// channel, until stop is closed. It calls next only after the receiver has taken the change before. Until then the
// kernel merges the changes of a file into one event (inotify(7)), so that a burst of appended events wakes this
// process once and not for each of them.
func coalesce(next func() error, stop <-chan struct{}) <-chan struct{} {
	changed := make(chan struct{})
	go func() {
		for next() == nil {
			select {
			case changed <- struct{}{}:
			case <-stop:
				return
			}
		}
	}()
	return changed
}

// Newest returns the number of the newest event in the stream of a state directory; 0 if there is none.
func Newest(state string) (uint64, error) {
	l := New(state, func(string) {}, nil)
	all, err := files(filepath.Join(state, dirName))
	if err != nil || len(all) == 0 {
		return 0, err
	}
	size, err := l.lock()
	if err != nil {
		return 0, err
	}
	defer vfs.Unlock(l.file)
	_, err = l.catchUp(size)
	return l.next - 1, err
}

// A reader reads the event stream of a state directory from one event on, file after file, for [Read] and
// [Follow].
type reader struct {
	state, dir string
	next       uint64 // the number of the event to yield next, at least

	file   *os.File // the file being read, or nil
	lines  *bufio.Reader
	offset int64 // the end of the last complete line that was read
}

func newReader(state string, after uint64) *reader {
	return &reader{state: state, dir: filepath.Join(state, dirName), next: after + 1}
}

func (r *reader) close() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}

// wait returns when new events may have been appended to the event log, or an error when ctx has ended.
// changed receives a value after a change of the log's directory; if it is nil, wait polls the file sizes.
func (r *reader) wait(ctx context.Context, changed <-chan struct{}) error {
	if changed == nil {
		size := r.size()
		return poll.Until(ctx, 10*time.Millisecond, 200*time.Millisecond, func() (bool, error) { return r.size() != size, nil })
	}
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// size returns the size in bytes of all files of the event log together. Each append changes it.
func (r *reader) size() (size int64) {
	entries, _ := os.ReadDir(r.dir) // an empty list counts as an empty stream
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			size += info.Size()
		}
	}
	return size
}

// drain calls yield for each stored event from number r.next on, file after file, until it has read the
// newest file to its end.
func (r *reader) drain(yield func(Event) error) error {
	for {
		// Looked up before the file is read: a file with a successor does not grow any more.
		all, err := files(r.dir)
		if err != nil || len(all) == 0 {
			return err
		}
		if r.file == nil {
			if err := r.open(all, yield); err != nil {
				return err
			}
			continue
		}
		if err := r.read(yield); err != nil {
			return err
		}
		if newest, _ := firstOf(filepath.Base(r.file.Name())); newest >= all[len(all)-1] {
			return nil
		}
		r.close()
	}
}

// open opens the file that contains the event with the number r.next. all lists the first numbers of the
// stream's files. If that event was removed, open yields an event of type [EventsLost] and opens the oldest
// file.
func (r *reader) open(all []uint64, yield func(Event) error) error {
	at := 0
	for at+1 < len(all) && all[at+1] <= r.next {
		at++
	}
	f, err := os.Open(fileOf(r.dir, all[at]))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed meanwhile; drain looks again
	}
	if err != nil {
		return errs.With("reading", r.dir, err)
	}
	r.file, r.lines, r.offset = f, bufio.NewReader(f), 0
	if first := all[at]; first > r.next {
		return r.lose(first-1, yield)
	}
	return nil
}

// lose yields an event of type [EventsLost], which stands for the unreadable events from number r.next to
// last.
func (r *reader) lose(last uint64, yield func(Event) error) error {
	lost := Event{
		ID: strconv.FormatUint(last, 10), SpecVersion: "1.0", ContentType: "application/json", Source: r.state, Type: EventsLost, Time: time.Now().UTC(),
		Data: Data{First: r.next, Last: last},
	}
	r.next = last + 1
	return yield(lost)
}

// read yields the events in the complete lines of the event log's open file that the reader has not read
// before.
func (r *reader) read(yield func(Event) error) error {
	for {
		line, err := r.lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // an incomplete line is read again: another writer may replace it
			_, err = r.file.Seek(r.offset, io.SeekStart)
			r.lines.Reset(r.file)
			return errs.With("reading", r.file.Name(), err)
		}
		if err != nil {
			return errs.With("reading", r.file.Name(), err)
		}
		r.offset += int64(len(line))
		var e Event
		if json.Unmarshal(line, &e) != nil || e.Number() == 0 {
			if err := r.lose(r.next, yield); err != nil {
				return err
			}
			continue
		}
		if e.Number() < r.next {
			continue
		}
		r.next = e.Number() + 1
		if err := yield(e); err != nil {
			return err
		}
	}
}
