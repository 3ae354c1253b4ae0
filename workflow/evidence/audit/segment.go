package audit

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// segmentSize is the size in bytes at which the file of an evidence log is closed, and the log goes on in a new
// file. A file much larger than this would take long to copy or to read in parts.
const segmentSize = 64 << 20

// segmentPrefix begins the name of each closed file of an evidence log; the number of the file's first record
// follows. nextName is the name of a new file of the log until it is complete.
const (
	segmentPrefix = "log-"
	segmentSuffix = ".jsonl"
	nextName      = "log.next"
)

// A segment is one file of an evidence log. All segments together are one chain of records: the first record of
// each has the digest of the last record of the one before.
type segment struct {
	path string
	// first is the number of the segment's first record in the log.
	first int64
	lines [][]byte
	// gap are the records that were removed before this segment, or nil.
	gap *Removed
}

// segmentName returns the name of the closed file of an evidence log whose first record has the number first.
func segmentName(first int64) string {
	return fmt.Sprintf("%s%012d%s", segmentPrefix, first, segmentSuffix)
}

// closed returns the closed segments of the evidence log that begin before the record number before, oldest first and
// without their lines. With the number of the first record in the log's newest file, it leaves out that file under its
// second name, which an interrupted rotation leaves, and files that were closed later. Errors: those of reading the
// directory.
func (l *Log) closed(before int64) (all []segment, err error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, errs.With("reading the record of "+l.sandbox, l.dir, err)
	}
	for _, e := range entries {
		first, ok := isClosed(e.Name())
		if n := len(all); n > 0 && filepath.Base(all[n-1].path)+zipped == e.Name() {
			continue // a compression that was interrupted leaves both
		}
		if ok && first < before {
			all = append(all, segment{path: filepath.Join(l.dir, e.Name()), first: first})
		}
	}
	slices.SortFunc(all, func(a, b segment) int { return cmp.Compare(a.first, b.first) })
	return all, nil
}

// firstOf returns the number of the first record in f, an open file of the evidence log with size bytes. An empty
// file, or one with an incomplete line only, has the number 0, since only the log's first file can be so.
// Errors: errs.ErrCorrupt.
func (l *Log) firstOf(f source, size int64) (int64, error) {
	var line []byte
	for length := min(size, 4<<10); length > 0; length = min(size, maxLine+1) {
		text := make([]byte, length)
		if _, err := f.ReadAt(text, 0); err != nil && !errors.Is(err, io.EOF) {
			return 0, errs.With("reading", f.Name(), err)
		}
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			line = text[:i]
			break
		}
		if length == min(size, maxLine+1) {
			break
		}
	}
	if line == nil {
		older, err := l.closed(1)
		if err == nil && len(older) > 0 {
			err = errs.New("recording an act on "+l.sandbox, f.Name(), errs.ErrCorrupt, "it has no record, and follows "+filepath.Base(older[0].path))
		}
		return 0, err
	}
	r, err := Parse(line)
	if err != nil || r.Seq < 0 {
		return 0, l.damaged(f.Name(), 1)
	}
	return r.Seq, nil
}

// missing returns the error for the evidence log's segment at path: it begins with the record number first, and
// the records before it end at number end.
func (l *Log) missing(path string, first, end int64) error {
	why := fmt.Sprintf("it begins with record %d, and %s, with record %d, is missing", first, segmentName(end), end)
	if first < end {
		why = fmt.Sprintf("it begins with record %d, and the segment before it ends with record %d", first, end-1)
	}
	return errs.New("reading the record of "+l.sandbox, path, errs.ErrCorrupt, why)
}

// read returns all segments of the evidence log with their complete lines, oldest first, and the length of an
// incomplete line at the end. The last one is the newest file of the log. It checks that each begins with the
// record that its name says, and that none is missing. Errors: errs.ErrCorrupt, errs.ErrNotFound.
func (l *Log) read() (all []segment, torn int, err error) {
	text, first, err := l.readFile(filepath.Join(l.dir, LogName))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = errs.New("reading the record", l.sandbox, errs.ErrNotFound, "this sandbox keeps no evidence", "snapfs new --evidence")
		}
		return nil, 0, errs.Wrap("reading the record of "+l.sandbox, l.dir, err)
	}
	if all, err = l.closed(first); err != nil {
		return nil, 0, err
	}
	end, missing := int64(0), -1
	for i := range all {
		s := &all[i]
		older, begins, err := l.readFile(s.path)
		if err != nil {
			return nil, 0, errs.Wrap("reading the record of "+l.sandbox, s.path, err)
		}
		if begins != s.first {
			return nil, 0, l.missing(s.path, begins, end)
		}
		if missing < 0 && begins != end {
			missing = i
		}
		lines := bytes.Split(older, []byte("\n"))
		if len(lines[len(lines)-1]) > 0 {
			return nil, 0, errs.New("reading the record of "+l.sandbox, s.path, errs.ErrCorrupt, "its last line is incomplete")
		}
		s.lines = lines[:len(lines)-1]
		if missing < 0 {
			end += int64(len(s.lines))
		}
	}
	lines := bytes.Split(text, []byte("\n"))
	last := len(lines) - 1
	all = append(all, segment{path: filepath.Join(l.dir, LogName), first: first, lines: lines[:last]})
	if missing < 0 && first != end {
		missing = len(all) - 1
	}
	if missing >= 0 {
		all, err = l.without(all, missing, end)
	}
	return all, len(lines[last]), err
}

// readFile returns the content of a file of the evidence log, and the number of its first record.
func (l *Log) readFile(path string) (text []byte, first int64, err error) {
	if filepath.Ext(path) == zipped {
		if text, err = unzip(path); err != nil {
			return nil, 0, err
		}
		first, err = l.firstOf(unzipped{bytes.NewReader(text), path}, int64(len(text)))
		return text, first, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && filepath.Base(path) != LogName {
		return l.readFile(path + zipped) // it was compressed meanwhile
	}
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	if text, err = io.ReadAll(f); err != nil {
		return nil, 0, err
	}
	first, err = l.firstOf(f, int64(len(text)))
	return text, first, err
}

// Lines returns the complete lines of the evidence log, without their line breaks, and the length of an
// incomplete one at the end. The lines of a log with several segments are together, oldest first. Errors:
// errs.ErrCorrupt, if a segment is missing or is not in its place; errs.ErrNotFound.
func (l *Log) Lines() (lines [][]byte, torn int, err error) {
	all, torn, err := l.read()
	return linesOf(all), torn, err
}

func linesOf(all []segment) (lines [][]byte) {
	if len(all) == 1 {
		return all[0].lines
	}
	for _, s := range all {
		lines = append(lines, s.lines...)
	}
	return lines
}

// Verified returns the complete lines of the evidence log as [Log.Lines] does, and the records in them. It first
// verifies each: that it is a record of this sandbox and follows the record before, and that the log contains the
// position that this host has stored. Cost: 1.5 µs of processor time a record. Errors: errs.ErrCorrupt, with the
// number of the first wrong record and its file.
func (l *Log) Verified() (lines [][]byte, records []Record, err error) {
	f, err := l.open()
	if err != nil {
		return nil, nil, err
	}
	defer vfs.Unlock(f)
	if _, err := l.verifyToEnd(f); err != nil {
		return nil, nil, err
	}
	lines, records, _, err = l.checked()
	return lines, records, err
}

// checked returns the lines and records of the evidence log, each of which it verifies, and the length of an
// incomplete line at the end. The caller has locked the log.
func (l *Log) checked() (lines [][]byte, records []Record, torn int, err error) {
	all, records, torn, err := l.checkedSegments()
	return linesOf(all), records, torn, err
}

// checkedSegments returns what checked returns, with the lines in their segments.
func (l *Log) checkedSegments() (all []segment, records []Record, torn int, err error) {
	all, torn, err = l.read()
	if err != nil {
		return nil, nil, 0, err
	}
	lines, gap := linesOf(all), gapOf(all)
	n := l.whole.sharedBy(lines, gap)
	records, bad := ParseAll(lines[n:])
	if bad >= 0 {
		records, bad = records[:bad], n+bad
	}
	if n > 0 {
		records = append(l.whole.records[:n:n], records...)
	}
	if wrong := chainedFrom(n, l.sandbox, lines, records, gap); wrong >= 0 {
		bad = wrong
	}
	if bad < 0 {
		l.whole = verifiedLines{lines, records, gap}
		return all, records, torn, nil
	}
	at, line := all[0], bad
	for _, s := range all {
		if at = s; line < len(s.lines) {
			break
		}
		line -= len(s.lines)
	}
	return nil, nil, 0, l.unchained(at, line)
}

// ChainedWithout returns the place of the first of records, those in lines, that is not about this sandbox, does not
// have the number that belongs there, or does not have the digest of the line before; -1 if there is none. removed are
// records that were removed from the evidence log, those behind the first [Opening] lines; nil if none were.
func ChainedWithout(sandbox string, lines [][]byte, records []Record, removed *Removed) int {
	return chainedFrom(0, sandbox, lines, records, removed)
}

// chainedFrom does as [ChainedWithout], for the records from place first on.
func chainedFrom(first int, sandbox string, lines [][]byte, records []Record, removed *Removed) int {
	return inParts(len(records)-first, func(from, to int) int {
		var prev []byte
		for i := first + from; i < first+to; i++ {
			seq := int64(i)
			if removed != nil && i >= Opening {
				seq += removed.Next() - Opening
			}
			switch {
			case i == 0:
				prev = append(prev, FirstPrev...)
			case removed != nil && i == Opening:
				prev = append(prev[:0], removed.Digest...)
			default:
				prev = appendDigest(prev[:0], lines[i-1])
			}
			if r := &records[i]; r.Sandbox != sandbox || r.Seq != seq || r.Prev != string(prev) {
				return i
			}
		}
		return -1
	})
}

// verifiedLines are all lines of an evidence log that one [Log] has verified, the records in them, and those that
// were removed before, or nil. An export that has just signed the end of the log verifies only what was added since.
type verifiedLines struct {
	lines   [][]byte
	records []Record
	removed *Removed
}

// sharedBy returns the number of verified lines if lines, those of the log now, begin with all of them, byte for byte,
// and the same records were removed; else 0.
func (v verifiedLines) sharedBy(lines [][]byte, removed *Removed) int {
	if len(lines) < len(v.lines) || !removed.endsAs(v.removed) {
		return 0
	}
	for i, line := range v.lines {
		if !bytes.Equal(line, lines[i]) {
			return 0
		}
	}
	return len(v.lines)
}

// size returns the newest file of the evidence log, and the size in bytes of all its files. Cost: one system call; the
// first call of a process, and the first after a rotation, also lists the directory.
func (l *Log) size() (newest os.FileInfo, all int64, err error) {
	path := filepath.Join(l.dir, LogName)
	newest, err = os.Stat(path)
	if err != nil {
		return nil, 0, errs.With("opening the record of "+l.sandbox, path, err)
	}
	older, err := l.olderSize(newest)
	return newest, newest.Size() + older, err
}

// olderSize returns the size in bytes of all closed segments of the evidence log. newest describes the log's
// newest file: as long as that is the same file, no segment was closed since the last call, whose result it
// returns again.
func (l *Log) olderSize(newest os.FileInfo) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.newest != nil && os.SameFile(l.newest, newest) && newest.Size()+l.older < l.most-l.most/reservedPart {
		return l.older, nil // of a full log, old segments may have been removed
	}
	all, err := l.closed(math.MaxInt64)
	if err != nil {
		return 0, err
	}
	sum := int64(0)
	for _, s := range all {
		st, err := os.Stat(s.path)
		if err != nil {
			return 0, errs.With("reading the record of "+l.sandbox, s.path, err)
		}
		if !os.SameFile(st, newest) { // a rotation that was interrupted leaves two names of it
			size, err := contentSize(s.path, st)
			if err != nil {
				return 0, errs.With("reading the record of "+l.sandbox, s.path, err)
			}
			sum += size
		}
	}
	l.newest, l.older = newest, sum
	return sum, nil
}

// rotate closes the newest file of the evidence log, if it has reached the size of a segment, and begins a new
// one. The closed file ends with a record of type [Closed], and the new one begins with a record of type
// [Continued], which has the number of the records before and the digest of the last one.
//
// Each step leaves a log that can be read and goes on: the closed file gets its second name before the new file
// replaces the first one, and until then another call continues where this one was killed. After an error, as on
// a full disk, the log goes on in the file that it had.
func (l *Log) rotate() error {
	f, err := l.open()
	if err != nil {
		return err
	}
	defer vfs.Unlock(f)
	st, err := f.Stat()
	if err != nil || st.Size() < l.segment { // another process has closed it
		return errs.With("reading", f.Name(), err)
	}
	end, err := l.verifyToEnd(f)
	if err != nil {
		return err
	}
	l.passed("begun")
	if end.last.Type != Closed || end.torn > 0 {
		if err := l.append(f, Closed, map[string]any{"first": end.First}, 0); err != nil {
			return err
		}
		if end, err = l.verifyToEnd(f); err != nil {
			return err
		}
	}
	l.passed("closed")
	if err := l.nameClosed(f, filepath.Join(l.dir, segmentName(end.First))); err != nil {
		return err
	}
	l.passed("named")
	return l.continueIn(f, end)
}

// nameClosed gives f, the newest file of the evidence log, the second name path, under which it stays. It accepts
// that the file has this name already.
func (l *Log) nameClosed(f *os.File, path string) error {
	err := os.Link(f.Name(), path)
	if errors.Is(err, fs.ErrExist) {
		mine, merr := f.Stat()
		there, terr := os.Stat(path)
		if merr == nil && terr == nil && os.SameFile(mine, there) {
			err = nil
		} else {
			err = errs.New("closing a segment of the record of "+l.sandbox, path, errs.ErrCorrupt, "another file has the name of this segment",
				"mv "+errs.Quoted(path)+" "+errs.Quoted(path+".old"))
		}
	}
	if err == nil {
		err = vfs.SyncDir(l.dir) // before the first name is taken away
	}
	return errs.With("closing a segment of the record of "+l.sandbox, path, err)
}

// continueIn replaces f, the newest file of the evidence log, by a new one, whose first record continues the log
// after end. The new file is on stable storage, and locked, before it gets the name of the log.
func (l *Log) continueIn(f *os.File, end logEnd) error {
	path := filepath.Join(l.dir, nextName)
	// Nobody else has it: only the holder of the lock on f makes it.
	next, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return errs.With("beginning a segment of the record of "+l.sandbox, path, err)
	}
	defer vfs.Unlock(next)
	l.passed("created")
	begin := logEnd{position: position{First: end.Records, Records: end.Records, Last: end.Last, Sandbox: l.sandbox}}
	line, err := l.add(nil, &begin, Continued, map[string]any{"records": end.Records, "head": end.Last, "segment": segmentName(end.First)})
	if err != nil {
		return err
	}
	if err = vfs.Flock(next, unix.LOCK_EX); err == nil {
		_, err = next.Write(line)
	}
	if err == nil {
		err = next.Sync()
	}
	if err == nil {
		l.passed("written")
		err = os.Rename(path, f.Name())
	}
	if err != nil {
		return errs.With("beginning a segment of the record of "+l.sandbox, path, errors.Join(err, os.Remove(path)))
	}
	l.passed("replaced")
	err = vfs.SyncDir(l.dir)
	st, serr := next.Stat()
	l.mu.Lock()
	l.rotated = true
	if serr == nil {
		l.seen, l.in = begin.position, st
	}
	if err == nil {
		l.storePosition(begin.position)
	}
	l.mu.Unlock()
	return errs.With("beginning a segment of the record of "+l.sandbox, f.Name(), err)
}

// passed calls the function that a test has set, after the step of a rotation with this name.
func (l *Log) passed(step string) {
	if l.step != nil {
		l.step(step)
	}
}
