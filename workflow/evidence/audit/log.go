package audit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/hostinfo"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

const (
	// LogName is the name of the file with the evidence log in a sandbox's directory of evidence. saltsName
	// is that of the file with the salts of the texts that the log shows only as digests.
	LogName   = "log.jsonl"
	saltsName = "salts.jsonl"
	// maxLine is the greatest length in bytes of a record, one line of an evidence log. A longer one is not
	// written.
	maxLine = 1 << 20
)

// reserve is how many bytes of disk space snapfs allocates beyond the end of an evidence log before it allows
// an operation. The records of the operation's consequences then fit even if the disk becomes full.
const reserve = 64 << 10

// maxLog is the size in bytes from which on snapfs refuses further operations on a sandbox, because its
// evidence log is full. Records of operations that have happened anyway may go beyond it.
const maxLog = 1 << 30

// reservedPart is the part of an evidence log, one in so many of its bytes, that no record of a refusal uses, so that
// refusals do not fill the log and operations on the sandbox stay possible.
const reservedPart = 16

// A Log is the evidence log of one sandbox, a file in the sandbox's directory of evidence. It is safe for
// concurrent use, by any number of processes.
type Log struct {
	dir, sandbox string
	most         int64                             // maxLog, but in tests
	segment      int64                             // segmentSize, but in tests
	mac          func(text []byte) ([]byte, error) // nil: no position is stored beside the log
	signed       func(envelope []byte) error       // nil: no removal of records is accepted
	step         func(string)                      // called after each step of a rotation; nil but in tests

	soon   sync.Mutex // held while AppendSoon adds a record; locked before mu
	mu     sync.Mutex
	seen   position      // up to where this process has verified the log
	tail   []byte        // the last line that this process has added, which ends at seen, or nil
	in     os.FileInfo   // the file of the log that has seen, or nil
	saved  position      // the stored position, without Records if there is none
	parsed int64         // the number of lines that this process has verified, for tests
	newest os.FileInfo   // the newest file of the log when older was computed, or nil
	older  int64         // the size in bytes of the closed segments
	whole  verifiedLines // of Seal, Verified, Segments and Prune, which hold the lock on the log
	salts  salts         // the line of the file of salts that this process has stored last
	salted int           // the number of redacted texts that have a salt of it
	// rotated is set when this process has closed a file of the log, until Rotated is called.
	rotated bool
	sync    syncer
}

// At returns the evidence log, in the directory dir, of the sandbox with this id, whether or not it exists.
// It opens no file.
func At(dir, sandbox string) *Log {
	return &Log{dir: dir, sandbox: sandbox, most: maxLog, segment: segmentSize, sync: syncer{pause: syncPause}}
}

// Room reports whether the evidence log has room for the record of another operation on the sandbox, and
// reserves disk space for records of the operation's consequences. It closes a file of the log that is full, and
// begins the next one. Cost: one system call, three more each 64 KiB, and some milliseconds each 64 MiB. Errors:
// errs.ErrNoSpace.
func (l *Log) Room() error {
	newest, size, err := l.size()
	if err == nil && size < l.most && newest.Size() >= l.segment {
		if err = l.rotate(); err == nil {
			newest, size, err = l.size()
		}
	}
	if err != nil {
		return err
	}
	if size < l.most {
		if stat, ok := newest.Sys().(*syscall.Stat_t); ok && stat.Blocks*512 < newest.Size()+reserve/2 {
			return l.reserve(filepath.Join(l.dir, LogName), newest.Size())
		}
		return nil
	}
	return l.full("recording an act on "+l.sandbox, fmt.Sprintf("the record has reached its bound of %d bytes", l.most))
}

// RoomForRefusal reports whether the evidence log has room for the record of a refusal, which the programs of the
// sandbox can cause in any number. The last part of the log before its bound is reserved for records of other
// operations, such as a promotion. It closes a full file as [Log.Room] does. Cost: one system call. Errors:
// errs.ErrNoSpace.
func (l *Log) RoomForRefusal() error {
	newest, size, err := l.size()
	if err != nil {
		return err
	}
	if reserved := l.most / reservedPart; size >= l.most-reserved {
		return l.full("recording a refusal to "+l.sandbox, fmt.Sprintf("the last %d bytes of the record are reserved for other acts", reserved))
	}
	if newest.Size() >= l.segment {
		return l.rotate()
	}
	return nil
}

// full returns the error for an operation op that is not recorded because the evidence log is full, for the reason
// why.
func (l *Log) full(op, why string) error {
	return errs.New(op, filepath.Join(l.dir, LogName), errs.ErrNoSpace, why,
		"snapfs evidence export "+l.sandbox+" -o "+l.sandbox+".evidence", "snapfs fork NAME   # the fork begins a record of its own")
}

// Dir returns the path of the directory that contains the evidence log's file.
func (l *Log) Dir() string { return l.dir }

// Exists reports whether the log exists, that is, whether the sandbox keeps evidence. Cost: one system call.
func (l *Log) Exists() bool {
	var st unix.Stat_t
	return unix.Stat(filepath.Join(l.dir, LogName), &st) == nil
}

// Create creates an empty evidence log for a sandbox, on stable storage. Errors: errs.ErrExists.
func (l *Log) Create() error {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return errs.With("making", l.dir, err)
	}
	f, err := os.OpenFile(filepath.Join(l.dir, LogName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errs.With("making", l.dir, err)
	}
	if err := f.Close(); err != nil {
		return errs.With("making", l.dir, err)
	}
	err = vfs.SyncDir(l.dir)
	if err == nil {
		err = vfs.SyncDir(filepath.Dir(l.dir))
	}
	return errs.With("syncing", l.dir, err)
}

// Append adds a record of the type kind, with data as its content, to the evidence log. With lasting, this
// record and all before it are on stable storage afterwards. If a killed writer has left an incomplete last
// line, a record of type [Torn] replaces it first. After an error the log is as it was. Append verifies the
// log before it writes: each line from the last known position on, see [Log.StorePosition]. Without lasting it
// waits for stable storage once every 8 KiB, before it stores the next position. Errors: errs.ErrCorrupt;
// errs.ErrNoSpace.
func (l *Log) Append(kind string, data map[string]any, lasting bool) error {
	f, err := l.open()
	if err != nil {
		return err
	}
	defer vfs.Unlock(f)
	if lasting {
		return l.append(f, kind, data, 0)
	}
	return l.append(f, kind, data, positionEvery)
}

// Seal adds a record of the type kind about the whole evidence log, such as its signed statement, on stable
// storage. data makes its content from all lines of the log and the records in them; no other process adds a line
// meanwhile. Seal verifies all these lines first, whatever the stored position. Errors: errs.ErrCorrupt; errs.ErrNoSpace.
func (l *Log) Seal(kind string, data func(lines [][]byte, records []Record) (map[string]any, error)) error {
	f, err := l.open()
	if err != nil {
		return err
	}
	defer vfs.Unlock(f)
	if _, err := l.verifyToEnd(f); err != nil {
		return err
	}
	lines, records, torn, err := l.checked()
	if err == nil && torn > 0 {
		if err = l.append(f, Torn, map[string]any{"bytes": int64(torn)}, positionEvery); err == nil {
			lines, records, _, err = l.checked()
		}
	}
	if err != nil {
		return err
	}
	values, err := data(lines, records)
	if err != nil {
		return err
	}
	return l.append(f, kind, values, 0)
}

// append adds a record of the type kind to the file f of the evidence log, which is open and locked. It waits
// until the record and all before it are on stable storage if the log has grown by at least unsynced bytes
// since the last stored position, so that the next one can be stored: 0 means always.
func (l *Log) append(f *os.File, kind string, data map[string]any, unsynced int64) error {
	end, ours := l.endsWithOurs(f)
	if !ours {
		var err error
		if end, err = l.verifyToEnd(f); err != nil {
			return err
		}
	}
	var lines []byte
	var err error
	at, torn := end.Size, end.torn
	if torn > 0 && kind != Torn {
		if lines, err = l.add(lines, &end, Torn, map[string]any{"bytes": torn}); err != nil {
			return err
		}
	}
	if lines, err = l.add(lines, &end, kind, data); err != nil {
		return err
	}
	if _, err = f.WriteAt(lines, at); err == nil && torn > int64(len(lines)) {
		err = f.Truncate(end.Size)
	}
	lasting := unsynced == 0 || l.grownBy(end.position) >= unsynced
	if err == nil && lasting {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Truncate(at) // the next append cuts off an incomplete line as well
		return errs.With("recording "+kind+" of "+l.sandbox, f.Name(), err)
	}
	l.mu.Lock()
	l.seen, l.tail = end.position, lines[int64(len(lines))-(end.Size-end.Line):]
	if lasting {
		l.storePosition(end.position)
	}
	l.mu.Unlock()
	return nil
}

// endsWithOurs returns the end of the evidence log if the last line in f, its newest file, open and locked, is the one
// that this process has added last, byte for byte. Nothing else is to be verified then. Cost: two system calls.
func (l *Log) endsWithOurs(f *os.File) (end logEnd, ours bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := int64(len(l.tail))
	var st unix.Stat_t
	if size == 0 || size != l.seen.Size-l.seen.Line || l.in == nil || unix.Fstat(int(f.Fd()), &st) != nil || st.Size != l.seen.Size {
		return end, false
	}
	known, ok := l.in.Sys().(*syscall.Stat_t)
	if !ok || known.Ino != st.Ino || known.Dev != st.Dev {
		return end, false
	}
	there := make([]byte, size)
	if _, err := f.ReadAt(there, st.Size-size); err != nil || !bytes.Equal(there, l.tail) {
		return end, false
	}
	return logEnd{position: l.seen}, true
}

// open opens the newest file of the evidence log and locks it. The caller unlocks and closes it.
func (l *Log) open() (*os.File, error) {
	path := filepath.Join(l.dir, LogName)
	for {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return nil, errs.With("opening the record of "+l.sandbox, path, err)
		}
		if err := vfs.Flock(f, unix.LOCK_EX); err != nil {
			vfs.Unlock(f)
			return nil, errs.With("locking", path, err)
		}
		locked, err := f.Stat()
		if err == nil {
			var named os.FileInfo
			if named, err = os.Stat(path); err == nil && os.SameFile(locked, named) {
				return f, nil
			}
		}
		vfs.Unlock(f) // another process has closed it meanwhile, and begun a new one
		if err != nil {
			return nil, errs.With("opening the record of "+l.sandbox, path, err)
		}
	}
}

// A logEnd describes the end of an evidence log, where the next record belongs: its position, the length of
// an incomplete line there, and the last record.
type logEnd struct {
	position
	torn int64
	last Record
}

// Last returns the last record of the evidence log; one without a Type if there is none. It verifies the log
// as [Log.Append] does.
func (l *Log) Last() (r Record, err error) {
	f, err := l.open()
	if err != nil {
		return r, err
	}
	defer vfs.Unlock(f)
	end, err := l.verifyToEnd(f)
	return end.last, err
}

// bootID returns the kernel's identifier of this boot of the host, which each record of an evidence log
// contains; "" if it cannot be read. It reads the identifier once in each process.
var bootID = sync.OnceValue(func() string {
	id, _ := proc.BootID()
	return id
})

// add appends the line of a new record of the type kind of the evidence log to lines, in memory, and moves
// end behind it.
func (l *Log) add(lines []byte, end *logEnd, kind string, data map[string]any) ([]byte, error) {
	if data == nil {
		data = map[string]any{}
	}
	line, err := Canonical(Record{
		Seq: end.Records, Prev: end.Last, Time: time.Now().UTC().Format(time.RFC3339Nano), Boot: bootID(), Up: hostinfo.Uptime().Milliseconds(),
		Type: kind, Sandbox: l.sandbox, Data: data,
	})
	if err == nil && len(line) > maxLine {
		err = errs.ErrInvalid
	}
	if err != nil {
		return nil, errs.With("recording "+kind+" of "+l.sandbox, l.dir, err)
	}
	end.position = end.after(line, Digest(line))
	return append(append(lines, line...), '\n'), nil
}
