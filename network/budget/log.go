package budget

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// A tally is what the lines of a ledger's file add up to: the requests, bytes and tokens that are used and reserved.
type tally struct {
	state State          // without limits
	open  map[int64]line // the last reservation of each request that is not over, by its id
	last  int64          // the largest id
	// compacted is how often the file was compacted.
	compacted int64
}

// compactFormat is the [line.Format] of a line that compacts the file, and the newest that this program knows. A program
// that did not know it would count no open requests, since it would skip line.Open.
const compactFormat = 2

// read counts the lines of text. It skips what is no line, as after a crash in the middle of one. The error names a line
// of a newer format; then t has the lines before it.
func (t *tally) read(text []byte) error {
	for one := range bytes.Lines(text) {
		var l line
		ok := json.Unmarshal(one, &l) == nil
		if !ok { // a newer line may have fields of other types
			var version struct{ Format int }
			_ = json.Unmarshal(one, &version)
			l.Format = version.Format
		}
		if l.Format > compactFormat {
			return fmt.Errorf("the budget's ledger was written by a newer snapfs (format %d, this one supports %d)", l.Format, compactFormat)
		}
		if ok {
			t.apply(l)
		}
	}
	return nil
}

// apply counts one line.
func (t *tally) apply(l line) {
	t.last = max(t.last, l.ID)
	if l.Total != nil {
		t.state, t.open, t.compacted = *l.Total, nil, l.Compacted
		t.state.Reserved = Count{}
		for _, r := range l.Open {
			t.apply(r)
		}
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
	if t.state.Ledger == "" {
		t.state.Ledger = l.Ledger
	}
	t.state.countElsewhere(l.Elsewhere)
}

// A logFile is the open file with the lines of a ledger, to which this process and those of other ledgers append.
type logFile struct {
	*os.File
	size   int64  // how much of it was read or written by this process
	head   string // its first bytes, at most headSize, which another process changes when it compacts the file
	cut    bool   // the last line has no end: its process was killed while it wrote
	shared bool   // another sandbox's directory has the file too
	// compacted is the size after this process last compacted the file.
	compacted int64
}

// headSize is the number of bytes at the beginning of a file by which a process sees that another one compacted it.
// They hold the number of the first line's Compacted.
const headSize = 40

// openLog opens and locks the file with the lines of the ledger of the sandbox with the directory dir. It creates the
// file if it is missing. [logFile.unlock] or closing the file ends the lock.
func openLog(dir string) (logFile, error) {
	f, err := os.OpenFile(filepath.Join(dir, ledgerFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return logFile{}, err
	}
	l := logFile{File: f}
	if err := l.lock(); err != nil {
		return logFile{}, errors.Join(err, f.Close())
	}
	return l, nil
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

// readNew returns the bytes that were appended to the file since the last call, or the whole file and true if it may
// have been compacted since. It sets cut and shared. The caller has locked the file.
func (f *logFile) readNew() (text []byte, compacted bool, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	f.shared = isShared(info)
	head := make([]byte, min(headSize, info.Size()))
	if _, err := f.ReadAt(head, 0); err != nil {
		return nil, false, err
	}
	if len(f.head) < headSize || string(head) != f.head || info.Size() < f.size {
		compacted, f.size, f.head = f.size > 0, 0, string(head)
	}
	if info.Size() == f.size {
		return nil, compacted, nil
	}
	text = make([]byte, info.Size()-f.size)
	if _, err := f.ReadAt(text, f.size); err != nil {
		return nil, false, err
	}
	f.size, f.cut = info.Size(), text[len(text)-1] != '\n'
	return text, compacted, nil
}

// readLog returns the content and the description of the ledger's file in the sandbox's directory dir; nil if there is
// none. It locks the file meanwhile, so that nobody compacts it.
func readLog(dir string) (text []byte, info os.FileInfo, err error) {
	f, err := os.Open(filepath.Join(dir, ledgerFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if err = flock(f, syscall.LOCK_SH); err == nil {
		info, err = f.Stat()
	}
	if err == nil {
		text, err = io.ReadAll(f)
	}
	return text, info, err
}

// isShared reports whether more than one sandbox has the ledger's file, which info describes.
func isShared(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink > 1
}

// withFileLock locks the file, counts the lines that other ledgers have appended, and calls f, which may write. Then it
// compacts a large file. The caller holds l.mu.
func (l *Ledger) withFileLock(f func() error) error {
	err := l.log.lock()
	if err == nil {
		if err = l.catchUp(); err == nil {
			err = f()
		}
		if err == nil {
			l.compactLarge()
		}
		err = errors.Join(err, l.log.unlock())
	}
	if err != nil {
		return fmt.Errorf("writing the budget: %w", err)
	}
	return nil
}

// catchUp counts the lines that other ledgers have appended to the file. The caller has locked the file. After a line of
// a newer format it always returns an error, since the ledger cannot count any more.
func (l *Ledger) catchUp() error {
	if l.newer != nil {
		return l.newer
	}
	text, compacted, err := l.log.readNew()
	if err != nil {
		return err
	}
	was := l.tally
	if compacted {
		l.tally = tally{}
	}
	if l.newer = l.tally.read(text); l.newer != nil {
		return l.newer
	}
	if !compacted && l.tally.compacted == was.compacted {
		return nil
	}
	for id, r := range was.open {
		if _, open := l.tally.open[id]; open && r.By == l.by {
			l.tally.apply(r) // it may have been extended before another ledger shared the file
		}
	}
	return nil
}

// write appends one line to the file, which the caller has locked, and counts it. After an error the file is as before,
// or its last line is cut.
func (l *Ledger) write(one line) error {
	text, err := json.Marshal(one)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if l.log.cut {
		text = append([]byte{'\n'}, text...)
	}
	n, err := l.log.WriteAt(text, l.log.size)
	if err != nil {
		l.log.cut = l.log.cut || n > 0
		l.log.size += int64(n)
		return err
	}
	if len(l.log.head) < headSize {
		l.log.head += string(text[:min(len(text), headSize-len(l.log.head))])
	}
	l.log.size, l.log.cut = l.log.size+int64(n), false
	l.tally.apply(one)
	return nil
}

// minCompact is the size in bytes beyond which a file is compacted. It has the lines of a thousand requests, which take
// a new proxy some milliseconds to read.
const minCompact = 128 << 10

// compactLarge compacts the file if it is large. After an error, as of a full disk, the file counts the same, and the
// next request tries again. The caller has locked the file.
func (l *Ledger) compactLarge() {
	// A multiple of the size after the last time makes the cost a small part of that of the requests.
	if l.log.size > max(minCompact, 4*l.log.compacted) {
		_ = l.compact()
	}
}

// compact makes one line of all lines of the file, which keeps its inode, since other sandboxes have links to it. The
// caller has locked the file.
//
// The line first goes to the end of the file. A reader of a line with a total forgets those before it; so the line may
// then be copied to the beginning, over lines that no longer count, and the file ends behind the copy with one system
// call. A process that is killed between any two steps leaves a file that counts the same.
func (l *Ledger) compact() error {
	total := l.tally.state
	total.Reserved = Count{}
	one := line{Compacted: l.tally.compacted + 1, Format: compactFormat, Total: &total, ID: l.tally.last, Open: slices.Collect(maps.Values(l.tally.open))}
	text, err := json.Marshal(one)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	l.log.compacted = int64(len(text))
	if l.log.compacted+1 > l.log.size {
		return nil // open requests are most of it
	}
	if err := l.write(one); err != nil {
		return err
	}
	if err := l.log.Sync(); err != nil { // or a loss of power could leave a part of the copy, and no whole line
		return err
	}
	if _, err := l.log.WriteAt(text, 0); err != nil {
		return err
	}
	if err := l.log.Sync(); err != nil { // or a loss of power could leave the short file with the old bytes
		return err
	}
	if err := l.log.Truncate(l.log.compacted); err != nil {
		return err
	}
	l.log.size, l.log.head = l.log.compacted, string(text[:min(len(text), headSize)])
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
	if err = l.catchUp(); err == nil {
		err = l.settleOwn()
	}
	if err == nil {
		l.compactLarge()
	}
	if err = errors.Join(err, l.log.unlock()); err != nil {
		return nil, errors.Join(err, l.log.Close())
	}
	return l, nil
}

// settleOwn counts the open reservations of this ledger, whose proxy was killed, in full: those of all ledgers if no
// other one shares the file. The caller has locked the file.
func (l *Ledger) settleOwn() error {
	for id, r := range l.tally.open {
		if l.log.shared && r.By != l.by {
			continue
		}
		if err := l.write(line{ID: id, Settle: r.Reserve, Estimated: true}); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the files of the ledger, in which the budget's requests are logged.
func (l *Ledger) Close() error { return l.log.Close() }

// Share gives a fork, the sandbox with the directory to, the ledger of the sandbox with the directory from. The
// requests of either then count for both, also while a proxy has the ledger open. The ledger stays until both sandboxes
// are removed. The fork gets the present limits of from, if they are stored. to must have no ledger.
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
