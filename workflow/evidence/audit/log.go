package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
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

// A Log is the evidence log of one sandbox, a file in the sandbox's directory of evidence. It is safe for
// concurrent use, by any number of processes.
type Log struct {
	dir, sandbox string
	most         int64                             // maxLog, but in tests
	mac          func(text []byte) ([]byte, error) // nil: no position is stored beside the log

	mu     sync.Mutex
	seen   position // up to where this process has verified the log
	saved  int64    // the size of the log in the stored position, 0 if there is none
	parsed int64    // the number of lines that this process has verified, for tests
}

// At returns the evidence log, in the directory dir, of the sandbox with this id, whether or not it exists.
// It opens no file.
func At(dir, sandbox string) *Log { return &Log{dir: dir, sandbox: sandbox, most: maxLog} }

// Room reports whether the evidence log has room for the record of another operation on the sandbox, and
// reserves disk space for records of the operation's consequences. Cost: one system call, and three more each
// 64 KiB. Errors: errs.ErrNoSpace.
func (l *Log) Room() error {
	path := filepath.Join(l.dir, LogName)
	st, err := os.Stat(path)
	if err != nil {
		return errs.With("opening the record of "+l.sandbox, path, err)
	}
	if st.Size() < l.most {
		if stat, ok := st.Sys().(*syscall.Stat_t); ok && stat.Blocks*512 < st.Size()+reserve/2 {
			return l.reserve(path, st.Size())
		}
		return nil
	}
	return errs.New("recording an act on "+l.sandbox, path, errs.ErrNoSpace, fmt.Sprintf("the record has reached its bound of %d bytes", l.most),
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
// log before it writes: each line from the last known position on, see [Log.StorePosition]. Errors:
// errs.ErrCorrupt; errs.ErrNoSpace.
func (l *Log) Append(kind string, data map[string]any, lasting bool) error {
	f, err := l.open()
	if err != nil {
		return err
	}
	defer vfs.Unlock(f)
	return l.append(f, kind, data, lasting)
}

// AppendSoon adds a record to the log as [Log.Append] does, and puts it on stable storage in the background,
// since that takes long. It then calls synced with the result.
func (l *Log) AppendSoon(kind string, data map[string]any, synced func(error)) error {
	f, err := l.open()
	if err != nil {
		return err
	}
	if err := l.append(f, kind, data, false); err != nil {
		vfs.Unlock(f)
		return err
	}
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // closing does the same
	go func() {
		synced(errs.With("syncing the record of "+l.sandbox, f.Name(), errors.Join(f.Sync(), f.Close())))
	}()
	return nil
}

// Seal adds a record of the type kind about the whole evidence log, such as its signed statement, on stable
// storage. data makes its content from all lines of the log; no other process adds a line meanwhile.
func (l *Log) Seal(kind string, data func(lines [][]byte) (map[string]any, error)) error {
	f, err := l.open()
	if err != nil {
		return err
	}
	defer vfs.Unlock(f)
	lines, torn, err := l.Lines()
	if err == nil && torn > 0 {
		if err = l.append(f, Torn, map[string]any{"bytes": int64(torn)}, false); err == nil {
			lines, _, err = l.Lines()
		}
	}
	if err != nil {
		return err
	}
	values, err := data(lines)
	if err != nil {
		return err
	}
	return l.append(f, kind, values, true)
}

// append adds a record of the type kind to the file f of the evidence log, which is open and locked. With
// lasting it waits until the record is on stable storage.
func (l *Log) append(f *os.File, kind string, data map[string]any, lasting bool) error {
	end, err := l.verifyToEnd(f)
	if err != nil {
		return err
	}
	var lines []byte
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
	if err == nil && lasting {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Truncate(at) // the next append cuts off an incomplete line as well
		return errs.With("recording "+kind+" of "+l.sandbox, f.Name(), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = end.position
	l.storePosition(end.position)
	return nil
}

// open opens the file of the evidence log and locks it. The caller unlocks and closes it.
func (l *Log) open() (*os.File, error) {
	path := filepath.Join(l.dir, LogName)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, errs.With("opening the record of "+l.sandbox, path, err)
	}
	if err := vfs.Flock(f, unix.LOCK_EX); err != nil {
		vfs.Unlock(f)
		return nil, errs.With("locking", path, err)
	}
	return f, nil
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
	end.position = position{Line: end.Size, Size: end.Size + int64(len(line)) + 1, Records: end.Records + 1, Last: Digest(line), Sandbox: l.sandbox}
	return append(append(lines, line...), '\n'), nil
}

// Lines returns the complete lines of the evidence log, without their line breaks, and the length of an
// incomplete one at the end.
func (l *Log) Lines() (lines [][]byte, torn int, err error) {
	text, err := os.ReadFile(filepath.Join(l.dir, LogName))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = errs.New("reading the record", l.sandbox, errs.ErrNotFound, "this sandbox keeps no evidence", "snapfs new --evidence")
		}
		return nil, 0, errs.Wrap("reading the record of "+l.sandbox, l.dir, err)
	}
	lines = bytes.Split(text, []byte("\n"))
	return lines[:len(lines)-1], len(lines[len(lines)-1]), nil
}
