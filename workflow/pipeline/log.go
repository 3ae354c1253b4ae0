package pipeline

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
)

// A commandLog stores the output of a command of a promotion's stage, such as a check, in a file in the
// directory of the promotion, at most logMost bytes.
type commandLog struct {
	file *os.File
	size int64
}

const (
	logMost  = 8 << 20
	tailMost = 10 // lines, of at most 4 KiB
)

func (r *pipelineRun) openLog(i int, when string, n int) (*commandLog, error) {
	path := filepath.Join(r.e.engine.Stages.Dir(r.p.ID), fmt.Sprintf("%s.%s.%d.log", r.p.Stages[i].Name, when, n))
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, errs.With("opening the log", path, err)
	}
	return &commandLog{file: f}, nil
}

func (l *commandLog) close() { l.file.Close() }

// Write appends p to the log and drops bytes beyond logMost, so that a command neither fills the disk nor
// blocks because nobody reads its output. It never fails.
func (l *commandLog) Write(p []byte) (int, error) {
	room := max(logMost-l.size, 0)
	n, err := l.file.Write(p[:min(int64(len(p)), room)])
	l.size += int64(n)
	if err != nil {
		l.size = logMost
	}
	return len(p), nil
}

// failure returns the ErrCheck for the command c of a promotion's stage, such as a check, which failed
// because of why. It notes the last lines of the command's output l for the user.
func (r *pipelineRun) failure(l *commandLog, c policy.Command, why string) error {
	if r.failed.Command == "" {
		r.failed = StageError{Command: c.Name, Tail: l.tail(), Log: l.file.Name()}
	}
	return errs.New("", c.Name, ErrCheck, why)
}

func (l *commandLog) tail() string {
	const most = 4 << 10
	end, err := l.file.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	start := max(end-most, 0)
	data := make([]byte, end-start)
	n, err := l.file.ReadAt(data, start)
	if err != nil && n == 0 {
		return ""
	}
	text := strings.ToValidUTF8(strings.TrimRight(string(data[:n]), "\n"), "?")
	lines := strings.Split(text, "\n")
	if start > 0 && len(lines) > 1 {
		lines = lines[1:] // the first is incomplete
	}
	return strings.Join(lines[max(len(lines)-tailMost, 0):], "\n")
}
