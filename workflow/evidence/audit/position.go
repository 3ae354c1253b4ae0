package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/hmac"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/snapfs/snapfs/errs"
)

// positionName is the name of the file beside an evidence log that says up to where the log was verified.
const positionName = "verified"

// positionEvery is how many bytes an evidence log grows until snapfs stores again up to where it was verified.
// A process that opens the log reads and verifies at most about as many.
const positionEvery = 8 << 10

// A position is a place in an evidence log, the end of a line, up to which every line was verified.
type position struct {
	// First is the number of the first record in the file of the log, a segment, that has the place.
	First int64 `json:"first,omitempty"`
	// Line is the offset in this file of the last verified line, and Size the offset behind its line break.
	Line int64 `json:"line"`
	Size int64 `json:"size"`
	// Records is the number of verified lines in all files, and Last the digest of the last one.
	Records int64  `json:"records"`
	Last    string `json:"last"`
	// Sandbox is the identifier of the sandbox whose log it is.
	Sandbox string `json:"sandbox"`
}

// after returns the position after another line, which has this digest.
func (p position) after(line []byte, digest string) position {
	return position{First: p.First, Line: p.Size, Size: p.Size + int64(len(line)) + 1, Records: p.Records + 1, Last: digest, Sandbox: p.Sandbox}
}

// StorePosition makes the evidence log store, in a file beside it, up to where it was verified, so that a process
// that opens the log verifies only what follows. mac returns an authentication code for a text which only this
// host can make; a file with another code is not believed. If mac returns an error, the whole log is verified.
// The records before a stored position are on stable storage, so that no power failure takes them: a log that
// does not contain the position was cut or rewritten, and nothing is added to it.
func (l *Log) StorePosition(mac func(text []byte) ([]byte, error)) *Log {
	l.mac = mac
	return l
}

// verifyToEnd verifies the evidence log from the last known position on, and returns where the next record belongs.
// f is the newest file of the log, open and locked. The position is the one that this process has reached, else
// the one that another process has stored. Cost: it reads what was added since, some 8 KiB, or the whole log if
// there is no position. Errors: errs.ErrCorrupt, also if the log does not contain the position.
func (l *Log) verifyToEnd(f *os.File) (end logEnd, err error) {
	st, err := f.Stat()
	if err != nil {
		return end, errs.With("reading", f.Name(), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	first, err := l.firstOf(f, st.Size()) // l.in does not tell: the inode of a removed file is used again
	if err != nil {
		return end, err
	}
	from := l.seen
	if from.Records == 0 {
		from = l.stored()
	}
	resume := from.Records > 0
	switch {
	case from.First > first:
		return end, l.rewritten(f.Name(), from)
	case from.First < first || !resume && first > 0:
		l.newest = nil // the size of the closed segments is another
		if from, err = l.verifyClosed(f, first, from); err != nil {
			return end, err
		}
		resume = false
	}
	end, fits, err := l.verify(f, st.Size(), from, resume)
	if err == nil && !fits && from.Records > 0 {
		err = l.rewritten(f.Name(), from)
	}
	if err == nil {
		l.seen, l.in = end.position, st
	}
	return end, err
}

// verifyClosed verifies the closed segments of the evidence log from the position from on, and returns the
// position at which the newest file f begins, with the record number first. The caller holds l.mu.
func (l *Log) verifyClosed(f *os.File, first int64, from position) (position, error) {
	all, err := l.closed(first)
	if err != nil {
		return from, err
	}
	at, resume := from, from.Records > 0
	for _, s := range all {
		if s.first < from.First {
			continue
		}
		expected := at.Records
		if resume {
			expected = from.First
		}
		if s.first != expected {
			if at, err = l.verifyRemoved(l.missing(s.path, s.first, expected)); err != nil || s.first > at.Records {
				return at, cmp.Or(err, l.missing(s.path, s.first, expected))
			}
			if resume = false; s.first < at.Records {
				continue // a removal that was interrupted
			}
		}
		end, fits, err := l.verifySegment(s.path, at, resume)
		if err == nil && !fits { // of the first segment, most records may have been removed
			rewritten := l.rewritten(s.path, at)
			if end, err = l.verifyRemoved(rewritten); err == nil && end.Records < from.Records {
				err = rewritten
			}
		}
		if err != nil {
			return at, err
		}
		at, resume = end, false
	}
	if !resume && at.Records == first {
		return at, nil
	}
	missing := l.missing(f.Name(), first, max(at.Records, from.First))
	if at, err = l.verifyRemoved(missing); err == nil && at.Records != first {
		err = missing
	}
	return at, err
}

// verifySegment verifies the closed segment of the evidence log at path from the position at on, as [Log.verify]
// does, and returns the position at its end; fits is false if it does not contain the position. The caller holds l.mu.
func (l *Log) verifySegment(path string, at position, resume bool) (_ position, fits bool, err error) {
	text, _, err := l.readFile(path)
	if err != nil {
		return at, false, errs.With("reading the record of "+l.sandbox, path, err)
	}
	end, fits, err := l.verify(unzipped{bytes.NewReader(text), path}, int64(len(text)), at, resume)
	if err == nil && fits && end.torn > 0 {
		err = l.damaged(path, end.Records-end.First+1)
	}
	return end.position, fits, err
}

// rewritten returns the error for the evidence log's file at path, which does not contain the position p, although
// this host has verified the log up to there.
func (l *Log) rewritten(path string, p position) error {
	return errs.New("recording an act on "+l.sandbox, path, errs.ErrCorrupt,
		"records were removed or written again: this host has verified "+strconv.FormatInt(p.Records, 10)+" records of "+strconv.FormatInt(p.Size, 10)+" bytes, and the log does not continue them",
		"cat "+errs.Quoted(filepath.Join(l.dir, positionName))+"   # up to where it was verified", "snapfs fork NAME   # the fork begins a record of its own")
}

// verify reads the first size bytes of f, an open file of the evidence log, and checks that each line is a record
// of this sandbox and follows the line before. With resume, from is a position in f, where it begins to read;
// else from is the end of the file before, and it reads all of f. It returns the end of f; fits is false if f does
// not contain the position. The caller holds l.mu.
func (l *Log) verify(f source, size int64, from position, resume bool) (end logEnd, fits bool, err error) {
	if !resume {
		from = position{First: from.Records, Records: from.Records, Last: from.Last}
		end.position = position{First: from.Records, Records: from.Records, Last: from.Last, Sandbox: l.sandbox}
		if from.Records == 0 {
			end.Last = FirstPrev
		}
	} else {
		end.position = position{First: from.First, Records: from.Records - 1, Size: from.Line, Last: FirstPrev, Sandbox: l.sandbox}
	}
	if resume && from.Size > size {
		return end, false, nil
	}
	lines := bufio.NewScanner(io.NewSectionReader(f, from.Line, size-from.Line))
	lines.Buffer(make([]byte, min(size-from.Line+1, 64<<10)), maxLine+2)
	lines.Split(wholeLine)
	var s scanner
	for fits = !resume; lines.Scan(); fits = true {
		l.parsed++
		line := lines.Bytes()
		digest := Digest(line)
		if !fits && (digest != from.Last || from.Line+int64(len(line))+1 != from.Size) {
			return end, false, nil
		}
		r, err := s.record(line)
		// The record at the position itself was verified with the line before it.
		if err != nil || r.Sandbox != l.sandbox || r.Seq != end.Records || fits && r.Prev != end.Last {
			return end, true, l.damaged(f.Name(), end.Records-end.First+1)
		}
		end.position = end.after(line, digest)
		end.last = r
	}
	switch err := lines.Err(); {
	case err == nil:
		end.torn = size - end.Size
		return end, fits, nil
	case errors.Is(err, bufio.ErrTooLong):
		return end, fits, l.damaged(f.Name(), end.Records-end.First+1)
	default:
		return end, fits, errs.With("reading", f.Name(), err)
	}
}

// damaged returns the error for line number n, from 1, of the evidence log's file at path: it is no record that
// belongs there.
func (l *Log) damaged(path string, n int64) error {
	at := strconv.FormatInt(n, 10)
	return errs.New("reading the record of "+l.sandbox, path, errs.ErrCorrupt, "line "+at+" is no record of this sandbox that follows the line before",
		"sed -n "+at+"p "+errs.Quoted(path)+"   # the damaged line")
}

// wholeLine is the split function of a bufio.Scanner that reads the complete lines of an evidence log. It
// leaves out an incomplete one at the end.
func wholeLine(data []byte, _ bool) (advance int, line []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	return 0, nil, nil
}

// stored returns the position in the file beside the evidence log. It returns the beginning of the log if the
// file is missing, incomplete, not of this log or not made by this host. The caller holds l.mu.
func (l *Log) stored() (p position) {
	l.saved = position{}
	if l.mac == nil {
		return p
	}
	text, err := os.ReadFile(filepath.Join(l.dir, positionName))
	if err != nil {
		return p
	}
	line, rest, _ := bytes.Cut(text, []byte("\n"))
	code, _, whole := bytes.Cut(rest, []byte("\n"))
	given, err := hex.DecodeString(string(code))
	if err != nil || !whole {
		return p
	}
	want, err := l.mac(line)
	if err != nil || !hmac.Equal(given, want) {
		return p
	}
	if json.Unmarshal(line, &p) != nil || p.Sandbox != l.sandbox || p.Records < 1 || p.First < 0 || p.Records <= p.First || p.Line < 0 || p.Size <= p.Line {
		return position{}
	}
	l.saved = p
	return p
}

// grownBy returns by how many bytes an evidence log that ends at p has grown since its position was stored; 0 if
// no position is stored beside this log, and at least the size of its newest file if that was begun since.
func (l *Log) grownBy(p position) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.mac == nil:
		return 0
	case p.First != l.saved.First:
		return max(p.Size, positionEvery)
	}
	return p.Size - l.saved.Size
}

// storePosition stores the position p, up to which the evidence log was verified, in the file beside the log if the
// log has grown enough since. The log is on stable storage up to p, but the file itself needs no sync: one
// that is incomplete or older costs the next process time, and nothing else, and so does an error. The caller holds l.mu.
func (l *Log) storePosition(p position) {
	if l.mac == nil || l.saved.Records > 0 && p.Records <= l.saved.Records || p.First == l.saved.First && p.Size-l.saved.Size < positionEvery {
		return
	}
	l.saved = p // after an error it is stored again when the log has grown by as much
	line, err := Canonical(p)
	if err != nil {
		return
	}
	code, err := l.mac(line)
	if err != nil {
		return
	}
	f, err := os.OpenFile(filepath.Join(l.dir, positionName), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	// If the numbers are shorter than the previous ones, the rest of the file is ignored.
	_, _ = f.WriteAt(append(hex.AppendEncode(append(line, '\n'), code), '\n'), 0)
}
