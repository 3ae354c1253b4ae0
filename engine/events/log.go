package events

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

const (
	// dirName is the name of the directory in the state directory that contains the files of the event
	// stream. Each file is named for the number of its first event.
	dirName = "events"
	suffix  = ".jsonl"
	// maxFile is the size in bytes at which a file of the event log is full and gets a successor. Only the
	// newest maxFiles files remain.
	maxFile  = 4 << 20
	maxFiles = 8
	// maxLine is the maximum length in bytes of one event as a line of JSON in the event log. A longer one is
	// not written.
	maxLine = 256 << 10
)

// A Log appends to the event stream of one state directory. It is safe for concurrent use, by any number of
// processes. A nil Log appends nothing.
type Log struct {
	state   string
	notice  func(string)
	witness func() Witness // nil: there is none
	bytes   int64          // maxFile, but in tests

	mu       sync.Mutex
	file     *os.File // the newest file, open and locked during an append
	size     int64    // its size when it was locked
	newest   uint64   // the number of its first event, 0 before the first append
	end      int64    // its size after the last append
	next     uint64   // the number of the event at end
	complain sync.Once
}

// New returns the log of events of a state directory. No file stays open between two events. An event that
// cannot be written is left out, and notice gets the first such error. witness returns what stores the events of
// sandboxes that have a signed evidence log; it is called for each event that needs it, and may be nil.
func New(state string, notice func(string), witness func() Witness) *Log {
	return &Log{state: state, notice: notice, witness: witness, bytes: maxFile}
}

// Append adds an event to the stream. The caller sets its Type, Subject, SandboxID and Data, and Append the
// other fields. The event survives the death of this process, not always that of the machine: the file is not
// synced. Cost: seven system calls, more for the first event of a process.
func (l *Log) Append(e Event) {
	if err := l.TryAppend(e); err != nil {
		l.complain.Do(func() { l.notice("an event was not written: " + err.Error()) })
	}
}

// TryAppend adds an event to the stream as Append does. It returns an error if the event is not in the stream, or not
// in the signed evidence log of the sandbox that it is about.
func (l *Log) TryAppend(e Event) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.append(&e)
	if l.witness != nil && !e.Unwitnessed {
		err = errors.Join(err, l.witness().After(e))
	}
	return err
}

// append adds an event to the newest file of the stream, which it locks meanwhile, and sets the event's
// number and time.
func (l *Log) append(e *Event) error {
	if err := l.lock(); err != nil {
		return err
	}
	defer vfs.Unlock(l.file)
	size, err := l.catchUp()
	if err != nil {
		return err
	}
	e.SpecVersion, e.ContentType, e.Source = "1.0", "application/json", l.state
	e.ID, e.Time = strconv.FormatUint(l.next, 10), time.Now().UTC()
	line := encode(e)
	if len(line) > maxLine {
		return errs.New("writing an event of", e.Subject, errs.ErrInvalid, "it is too long")
	}
	if _, err := l.file.WriteAt(line, size); err != nil {
		_ = l.file.Truncate(size) // the next append does it as well
		return errs.With("writing", l.file.Name(), err)
	}
	l.end, l.next = size+int64(len(line)), l.next+1
	return nil
}

// lock opens the newest of the files that make up the event log and locks it for appending. If that file is
// full, lock makes the next one.
func (l *Log) lock() error {
	for {
		if err := l.open(); err != nil {
			return err
		}
		// Other processes hold the lock for microseconds.
		if err := vfs.Flock(l.file, unix.LOCK_EX); err != nil {
			l.leave()
			return errs.With("locking", l.file.Name(), err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(l.file.Fd()), &st); err != nil {
			l.leave()
			return errs.With("reading", l.file.Name(), err)
		}
		newest, err := true, error(nil)
		l.size = st.Size
		switch {
		case st.Nlink == 0: // removed by a rotation meanwhile
			newest = false
		case st.Size == 0: // made just now: if late, beside newer files
			newest, err = l.isNewest()
		case st.Size >= l.bytes:
			newest, err = false, l.rotate()
		}
		if newest && err == nil {
			return nil
		}
		l.leave()
		if err != nil {
			return err
		}
	}
}

// leave unlocks and closes a file of the event log that is not the newest any more, and forgets the position
// in it.
func (l *Log) leave() {
	l.newest, l.end, l.next = 0, 0, 0
	vfs.Unlock(l.file)
}

// open opens the newest file of the event log, and creates the first one. It tries the file of the last
// append before it lists the directory, since that is mostly still the newest.
func (l *Log) open() (err error) {
	dir := filepath.Join(l.state, dirName)
	if l.newest > 0 {
		if l.file, err = vfs.OpenAt(unix.AT_FDCWD, fileOf(dir, l.newest), unix.O_RDWR, 0); err == nil {
			return nil
		}
	}
	l.newest, l.end, l.next = 0, 0, 0
	all, err := files(dir)
	if err != nil {
		return err
	}
	l.newest = 1
	if len(all) > 0 {
		l.newest = all[len(all)-1]
	}
	flags := os.O_RDWR
	if len(all) == 0 {
		flags |= os.O_CREATE
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return errs.With("making", dir, err)
		}
	}
	l.file, err = os.OpenFile(fileOf(dir, l.newest), flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) { // removed by a rotation meanwhile
		return l.open()
	}
	return errs.With("opening", dir, err)
}

// isNewest reports whether the file that this process has locked is still the newest of the event log.
func (l *Log) isNewest() (bool, error) {
	all, err := files(filepath.Join(l.state, dirName))
	return len(all) > 0 && all[len(all)-1] == l.newest, err
}

// rotate makes the file that follows the locked, full one, unless another process has, and removes the oldest
// files. It does nothing for a file that is not the newest: the next one may have been removed since, and
// would be made again.
func (l *Log) rotate() error {
	dir := filepath.Join(l.state, dirName)
	all, err := files(dir)
	if err != nil || len(all) == 0 || all[len(all)-1] != l.newest {
		return err
	}
	if _, err := l.catchUp(); err != nil {
		return err
	}
	f, err := os.OpenFile(fileOf(dir, l.next), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return errs.With("making", dir, err)
	}
	err = f.Close()
	for _, first := range all[:max(0, len(all)+1-maxFiles)] {
		if rerr := os.Remove(fileOf(dir, first)); !errors.Is(rerr, fs.ErrNotExist) { // the rotation of a later file may remove it first
			err = errors.Join(err, rerr)
		}
	}
	return err
}

// catchUp reads the number of the last event in the locked file, which another process may have written, and
// sets l.next to the following one. It returns the offset at which the next event belongs. It cuts off a line
// that a killed process left incomplete.
func (l *Log) catchUp() (int64, error) {
	size := l.size
	if size == l.end && l.next > 0 {
		return size, nil
	}
	tail, err := l.tail(size)
	if err != nil {
		return 0, errs.With("reading", l.file.Name(), err)
	}
	whole := bytes.LastIndexByte(tail, '\n') + 1
	if whole < len(tail) {
		size -= int64(len(tail) - whole)
		if err := l.file.Truncate(size); err != nil {
			return 0, errs.With("mending", l.file.Name(), err)
		}
	}
	if whole == 0 {
		first, _ := firstOf(filepath.Base(l.file.Name())) // it is one of files
		l.end, l.next = 0, first
		return 0, nil
	}
	last := numberOf(tail[bytes.LastIndexByte(tail[:whole-1], '\n')+1:])
	if last == 0 {
		return 0, &errs.Error{
			Op: "reading", Path: l.file.Name(), Kind: errs.ErrCorrupt, Err: errors.New("its last line is no event"),
			Hints: []string{"rm -r " + errs.Quoted(filepath.Dir(l.file.Name())) + "   # removes all events"},
		}
	}
	l.end, l.next = size, last+1
	return size, nil
}

// tail returns the end of the event log's newest file, which has this size in bytes. The end contains the
// last complete line; mostly it is the last 4 KiB.
func (l *Log) tail(size int64) ([]byte, error) {
	for length := int64(4 << 10); ; length = 2 * maxLine {
		tail := make([]byte, min(size, length))
		if _, err := l.file.ReadAt(tail, size-int64(len(tail))); err != nil {
			return nil, err
		}
		if bytes.Count(tail, []byte("\n")) > 1 || int64(len(tail)) == size || length > maxLine {
			return tail, nil
		}
	}
}

// files lists the files of the event log in dir by their names, which are the numbers of their first events,
// ascending. It returns none if the directory does not exist.
func files(dir string) ([]uint64, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []uint64
	for _, e := range entries {
		if first, ok := firstOf(e.Name()); ok {
			all = append(all, first)
		}
	}
	slices.Sort(all)
	return all, errs.With("reading", dir, err)
}

// firstOf returns the number of the first event in a file of the event log, which is the file's name; false
// if name is not such a number.
func firstOf(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	first, err := strconv.ParseUint(digits, 10, 64)
	return first, ok && err == nil && first > 0
}

// fileOf returns the path of the event log's file in dir whose first event has the number first.
func fileOf(dir string, first uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", first, suffix))
}
