package audit

import (
	"bufio"
	"bytes"
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
	// Line is the offset of the last verified line, and Size the offset behind its line break.
	Line int64 `json:"line"`
	Size int64 `json:"size"`
	// Records is the number of verified lines, and Last the digest of the last one.
	Records int64  `json:"records"`
	Last    string `json:"last"`
	// Sandbox is the identifier of the sandbox whose log it is.
	Sandbox string `json:"sandbox"`
}

// StorePosition makes the evidence log store, in a file beside it, up to where it was verified, so that a process
// that opens the log verifies only what follows. mac returns an authentication code for a text which only this
// host can make; a file with another code is not believed. If mac returns an error, the whole log is verified.
func (l *Log) StorePosition(mac func(text []byte) ([]byte, error)) *Log {
	l.mac = mac
	return l
}

// verifyToEnd verifies the open file f of the evidence log from the last known position on, and returns where the
// next record belongs. Cost: it reads what was added since another process has stored its position, some 8
// KiB, or the whole log if there is no position that fits. Errors: errs.ErrCorrupt.
func (l *Log) verifyToEnd(f *os.File) (end logEnd, err error) {
	st, err := f.Stat()
	if err != nil {
		return end, errs.With("reading", f.Name(), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	fits := false
	if l.seen.Records > 0 {
		end, fits, err = l.verify(f, st.Size(), l.seen)
	}
	if !fits {
		end, fits, err = l.verify(f, st.Size(), l.stored())
	}
	if !fits {
		end, _, err = l.verify(f, st.Size(), position{})
	}
	if err == nil {
		l.seen = end.position
	}
	return end, err
}

// verify reads the first size bytes of f, the open file of the evidence log, from the position from on, and
// checks that each line is a record of this sandbox and follows the line before. It returns the end of the
// log; fits is false if the log does not contain the position. The caller holds l.mu.
func (l *Log) verify(f *os.File, size int64, from position) (end logEnd, fits bool, err error) {
	end.position = position{Records: max(from.Records-1, 0), Size: from.Line, Last: FirstPrev, Sandbox: l.sandbox}
	if from.Records > 0 && from.Size > size {
		return end, false, nil
	}
	lines := bufio.NewScanner(io.NewSectionReader(f, from.Line, size-from.Line))
	lines.Buffer(make([]byte, min(size-from.Line+1, 64<<10)), maxLine+2)
	lines.Split(wholeLine)
	var s scanner
	for fits = from.Records == 0; lines.Scan(); fits = true {
		l.parsed++
		line := lines.Bytes()
		digest := Digest(line)
		if !fits && (digest != from.Last || from.Line+int64(len(line))+1 != from.Size) {
			return end, false, nil
		}
		r, err := s.record(line)
		// The record at the position itself was verified with the line before it.
		if err != nil || r.Sandbox != l.sandbox || r.Seq != end.Records || fits && r.Prev != end.Last {
			return end, true, l.damaged(f, end.Records+1)
		}
		end.position = position{Line: end.Size, Size: end.Size + int64(len(line)) + 1, Records: end.Records + 1, Last: digest, Sandbox: l.sandbox}
		end.last = r
	}
	switch err := lines.Err(); {
	case err == nil:
		end.torn = size - end.Size
		return end, fits, nil
	case errors.Is(err, bufio.ErrTooLong):
		return end, fits, l.damaged(f, end.Records+1)
	default:
		return end, fits, errs.With("reading", f.Name(), err)
	}
}

// damaged returns the error for line number n, from 1, of the evidence log's file f: it is no record that
// belongs there.
func (l *Log) damaged(f *os.File, n int64) error {
	at := strconv.FormatInt(n, 10)
	return errs.New("recording an act on "+l.sandbox, f.Name(), errs.ErrCorrupt, "line "+at+" is no record of this sandbox that follows the line before",
		"sed -n "+at+"p "+errs.Quoted(f.Name())+"   # the damaged line")
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
	l.saved = 0
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
	if json.Unmarshal(line, &p) != nil || p.Sandbox != l.sandbox || p.Records < 1 || p.Line < 0 || p.Size <= p.Line {
		return position{}
	}
	l.saved = p.Size
	return p
}

// storePosition stores the position p, up to which the evidence log was verified, in the file beside the log, if
// the log has grown enough since it did so last. That file needs no sync: one that is incomplete or older costs
// the next process time, and nothing else, and so does an error. The caller holds l.mu.
func (l *Log) storePosition(p position) {
	if l.mac == nil || p.Size-l.saved < positionEvery {
		return
	}
	l.saved = p.Size // after an error it is stored again when the log has grown by as much
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
	// The numbers of a log never get shorter. If they do, in another log at this place, the rest is ignored.
	_, _ = f.WriteAt(append(hex.AppendEncode(append(line, '\n'), code), '\n'), 0)
}
