package budget

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// A tally is what the lines of a ledger's file add up to: the requests, bytes and tokens that are used and reserved.
type tally struct {
	state State          // without limits
	open  map[int64]line // the last reservation of each request that is not over, by its id
	last  int64          // the largest id
}

// read counts the lines of text. It skips what is no line, as after a crash in the middle of one.
func (t *tally) read(text []byte) {
	for one := range bytes.Lines(text) {
		var l line
		if json.Unmarshal(one, &l) == nil {
			t.apply(l)
		}
	}
}

// apply counts one line.
func (t *tally) apply(l line) {
	t.last = max(t.last, l.ID)
	if l.Total != nil {
		t.state, t.open = *l.Total, nil
		t.state.Reserved = Count{}
		return
	}
	if was, ok := t.open[l.ID]; ok {
		t.state.Reserved = t.state.Reserved.minus(*was.Reserve)
		delete(t.open, l.ID)
	}
	switch {
	case l.Reserve != nil:
		t.state.Reserved = t.state.Reserved.plus(*l.Reserve)
		if t.open == nil {
			t.open = map[int64]line{}
		}
		t.open[l.ID] = l
	case l.Settle != nil:
		t.state.settle(l.Model, *l.Settle, l.Estimated)
	}
}

// A logFile is the open file with the lines of a ledger, to which this process and those of other ledgers append.
type logFile struct {
	*os.File
	size   int64 // how much of it was read or written by this process
	cut    bool  // the last line has no end: its process was killed while it wrote
	shared bool  // another sandbox's directory has the file too
}

// openLog opens and locks the file with the lines of the ledger of the sandbox with the directory dir. It creates the
// file if it is missing. [logFile.unlock] or closing the file ends the lock.
func openLog(dir string) (logFile, error) {
	path := filepath.Join(dir, ledgerFile)
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return logFile{}, err
		}
		l := logFile{File: f}
		var mine, there os.FileInfo
		if err = l.lock(); err == nil {
			mine, err = f.Stat()
		}
		if err == nil {
			there, err = os.Stat(path)
		}
		if err == nil && os.SameFile(mine, there) {
			return l, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // otherwise it was replaced meanwhile
			return logFile{}, err
		}
	}
}

// lock waits until no other process has the file locked, and locks it until unlock.
func (f *logFile) lock() error { return flock(f.File, syscall.LOCK_EX) }

func (f *logFile) unlock() error { return flock(f.File, syscall.LOCK_UN) }

func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("flock", err)
		}
	}
}

// readNew returns the bytes that were appended to the file since the last call, and sets cut and shared. The caller has
// locked the file.
func (f *logFile) readNew() ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	f.shared = isShared(info)
	if info.Size() <= f.size {
		return nil, nil
	}
	text := make([]byte, info.Size()-f.size)
	if _, err := f.ReadAt(text, f.size); err != nil {
		return nil, err
	}
	f.size, f.cut = info.Size(), text[len(text)-1] != '\n'
	return text, nil
}

// isShared reports whether more than one sandbox has the ledger's file, which info describes.
func isShared(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink > 1
}

// withFileLock locks the file, counts the lines that other ledgers have appended, and calls f, which may write. The
// caller holds l.mu.
func (l *Ledger) withFileLock(f func() error) error {
	err := l.log.lock()
	if err == nil {
		var text []byte
		if text, err = l.log.readNew(); err == nil {
			l.tally.read(text)
			err = f()
		}
		err = errors.Join(err, l.log.unlock())
	}
	if err != nil {
		return fmt.Errorf("writing the budget: %w", err)
	}
	return nil
}

// write appends one line to the file, which the caller has locked, and counts it.
func (l *Ledger) write(one line) error {
	text, err := json.Marshal(one)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if l.log.cut {
		text = append([]byte{'\n'}, text...)
	}
	n, err := l.log.Write(text)
	if err != nil {
		return err
	}
	l.log.size, l.log.cut = l.log.size+int64(n), false
	l.tally.apply(one)
	return nil
}

// Open opens the budget of the sandbox with the directory dir, for its proxy to count requests. It counts
// reservations of a proxy that was killed in full, as nobody knows the cost of their requests.
func Open(dir string) (_ *Ledger, err error) {
	l := &Ledger{dir: dir}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		l.by = strconv.FormatUint(st.Ino, 36) // as long as the sandbox exists, also under another name
	}
	if l.limits, err = readLimits(dir); err != nil {
		return nil, err
	}
	if l.log, err = openLog(dir); err != nil {
		return nil, err
	}
	text, err := l.log.readNew()
	if err == nil {
		l.tally.read(text)
		if l.log.shared {
			err = l.settleOwn()
		} else {
			err = l.compact()
		}
	}
	if err = errors.Join(err, l.log.unlock()); err != nil {
		return nil, errors.Join(err, l.log.Close())
	}
	return l, nil
}

// settleOwn counts the open reservations of this ledger, whose proxy was killed, in full. The caller has locked the
// file, which other ledgers share.
func (l *Ledger) settleOwn() error {
	for id, r := range l.tally.open {
		if r.By != l.by {
			continue
		}
		if err := l.write(line{ID: id, Settle: r.Reserve, Estimated: true}); err != nil {
			return err
		}
	}
	return nil
}

// compact replaces the file by one with a single line, in which all open reservations count in full. The caller has
// locked the file, which no other ledger shares.
func (l *Ledger) compact() error {
	total, last := l.tally.state, l.tally.last
	for _, r := range l.tally.open {
		total.Used = total.Used.plus(*r.Reserve)
		total.Estimated++
	}
	total.Reserved = Count{}
	path := filepath.Join(l.dir, ledgerFile)
	f, err := os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	old := l.log
	l.log = logFile{File: f}
	if err = errors.Join(l.log.lock(), l.write(line{Total: &total, ID: last})); err == nil {
		err = os.Rename(path+".new", path)
	}
	return errors.Join(err, old.Close())
}

// Close closes the files of the ledger, in which the budget's requests are logged.
func (l *Ledger) Close() error { return l.log.Close() }

// Share gives a fork, the sandbox with the directory to, the ledger of the sandbox with the directory from. The requests
// of either then count for both, also while a proxy has the ledger open. The ledger stays until both sandboxes are
// removed. The fork gets the present limits of from, if they are stored. to must have no ledger.
func Share(from, to string) error {
	log, err := openLog(from)
	if err != nil {
		return err
	}
	defer log.Close()
	if err := os.Link(filepath.Join(from, ledgerFile), filepath.Join(to, ledgerFile)); err != nil {
		return err
	}
	if !HasLimits(from) {
		return nil
	}
	limits, err := readLimits(from)
	if err != nil {
		return err
	}
	return SetLimits(to, limits)
}
