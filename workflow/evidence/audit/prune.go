package audit

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// A Segment is one file of an evidence log, as a retention rule sees it.
type Segment struct {
	// First is the number of the segment's first record, and Records the number of its records.
	First, Records int64
	// Size is the size of its lines in bytes.
	Size int64
	// Last is the time of its last record.
	Last time.Time
}

// A Pruning removes old records of an evidence log: Choose returns, for the segments of the log, oldest first, the
// number of the first record that stays, or 0 for no removal. It must begin a segment. Sign makes the content of the
// record about the removal of the records before next from all lines and records of the log; removed describes
// an earlier removal, or is nil.
type Pruning struct {
	Choose func(segments []Segment, records []Record) (next int64)
	Sign   func(lines [][]byte, records []Record, removed *Removed, next int64) (map[string]any, error)
}

// Prune removes old segments of the evidence log, but for the first [Opening] records. The signed statement about it is
// on stable storage before the first file is removed, and a process that was killed in between leaves a log that can be
// read and continued: the next call finishes the removal. It returns the number of the first record that stays after
// the first ones, 0 if nothing was removed. Errors: errs.ErrCorrupt, errs.ErrNoSpace; the log is as it was then, or the
// removal is stated and not finished.
func (l *Log) Prune(p Pruning) (next int64, err error) {
	f, err := l.open()
	if err != nil {
		return 0, err
	}
	defer vfs.Unlock(f)
	if _, err := l.verifyToEnd(f); err != nil {
		return 0, err
	}
	all, records, torn, err := l.checkedSegments()
	if err == nil && torn > 0 {
		if err = l.append(f, Torn, map[string]any{"bytes": int64(torn)}, positionEvery); err == nil {
			all, records, _, err = l.checkedSegments()
		}
	}
	if err != nil {
		return 0, err
	}
	if r, _, err := RemovedIn(records); err == nil && r != nil && gapOf(all) == nil {
		// A killed process has stated the removal, and removed nothing.
		return r.Next(), l.removeBefore(all[0], r.Next())
	} else if r != nil {
		if err := l.removeBefore(all[0], r.Next()); err != nil {
			return 0, err
		}
	}
	next = p.Choose(segmentsOf(all, records), records)
	begins := false
	for _, s := range all[1:] {
		begins = begins || s.first == next && s.gap == nil
	}
	if !begins || next <= Opening || len(all[0].lines) < Opening {
		return 0, nil
	}
	data, err := p.Sign(linesOf(all), records, gapOf(all), next)
	if err != nil {
		return 0, err
	}
	if err := l.append(f, RecordsRemoved, data, 0); err != nil {
		return 0, err
	}
	l.passed("stated")
	return next, l.removeBefore(all[0], next)
}

// Segments returns the files of the evidence log, oldest first, and its records, which it verifies as [Log.Verified]
// does. The first file has only the first [Opening] records if others were removed. Errors: errs.ErrCorrupt.
func (l *Log) Segments() ([]Segment, []Record, error) {
	f, err := l.open()
	if err != nil {
		return nil, nil, err
	}
	defer vfs.Unlock(f)
	if _, err := l.verifyToEnd(f); err != nil {
		return nil, nil, err
	}
	all, records, _, err := l.checkedSegments()
	if err != nil {
		return nil, nil, err
	}
	return segmentsOf(all, records), records, nil
}

func segmentsOf(all []segment, records []Record) (out []Segment) {
	for _, s := range all {
		one := Segment{First: s.first, Records: int64(len(s.lines))}
		for _, line := range s.lines {
			one.Size += int64(len(line)) + 1
		}
		if len(s.lines) > 0 {
			one.Last, _ = time.Parse(time.RFC3339Nano, records[len(s.lines)-1].Time)
			records = records[len(s.lines):]
		}
		out = append(out, one)
	}
	return out
}

// removeBefore removes the closed segments of the evidence log with records before number next, and all lines but the
// first [Opening] from the first one. It may be called again after it was interrupted at any place.
func (l *Log) removeBefore(first segment, next int64) error {
	closed, err := l.closed(math.MaxInt64)
	if err != nil {
		return err
	}
	for _, s := range closed {
		if s.first == 0 || s.first >= next {
			continue
		}
		for _, path := range []string{s.path, s.path + zipped} { // a compression that was interrupted leaves both
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return errs.With("removing records of "+l.sandbox, path, err)
			}
		}
		l.passed("removed")
	}
	path := filepath.Join(l.dir, segmentName(0))
	text := append(bytes.Join(first.lines[:Opening], []byte("\n")), '\n')
	old, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(old, text) {
		if err := l.replace(path, func(w io.Writer) error { _, err := w.Write(text); return err }); err != nil {
			return errs.With("removing records of "+l.sandbox, path, err)
		}
	}
	l.passed("cut")
	if err := os.Remove(path + zipped); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errs.With("removing records of "+l.sandbox, path, err)
	}
	l.mu.Lock()
	l.newest = nil // count the size again
	l.mu.Unlock()
	return errs.With("removing records of "+l.sandbox, l.dir, vfs.SyncDir(l.dir))
}
