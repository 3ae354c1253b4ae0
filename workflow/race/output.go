package race

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/errs"
)

// outputs are the files to which the commands of a race write: N.out has the output of attempt N's command,
// N.check that of its check and the errors of its score, and N.score the score.
type outputs struct {
	dir   string
	files []attemptFiles
}

type attemptFiles struct{ command, check, score *os.File }

// races returns the directory, in the state directory, with the attempts' outputs of those races for which
// the user named no directory.
func (rr *Coordinator) races() string { return filepath.Join(rr.cat.Dir(), "races") }

// keptOutputs is for how many races, the newest ones, the state directory stores the outputs of the attempts.
// The next race removes older ones.
const keptOutputs = 10

func (rr *Coordinator) outputsOf(req Request, sessions []*engine.Session) (*outputs, error) {
	o := &outputs{dir: req.Output}
	if o.dir == "" {
		o.dir = filepath.Join(rr.races(), strings.TrimSuffix(sessions[0].Record.Name, "-1"))
	}
	err := os.MkdirAll(o.dir, 0o700)
	for i := range sessions {
		var f attemptFiles
		if err == nil {
			f.command, err = o.create(i, "out")
		}
		if err == nil && (req.Check != nil || req.Score != nil) {
			f.check, err = o.create(i, "check")
		}
		if err == nil && req.Score != nil {
			f.score, err = o.create(i, "score")
		}
		o.files = append(o.files, f)
	}
	if err != nil {
		o.close()
		return nil, errs.With("making the outputs in", o.dir, err)
	}
	if req.Output == "" {
		rr.forgetOutputs()
	}
	return o, nil
}

// create opens the output file of attempt i for kind, such as "out", truncated, for appending and reading.
// The caller closes it. It does not follow a symbolic link.
func (o *outputs) create(i int, kind string) (*os.File, error) {
	name := filepath.Join(o.dir, strconv.Itoa(i+1)+"."+kind)
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
}

func (o *outputs) close() {
	for _, f := range o.files {
		for _, f := range []*os.File{f.command, f.check, f.score} {
			if f != nil {
				f.Close()
			}
		}
	}
}

// A sink is a pipe whose content is copied to an output file of a race. A command that opens /dev/stderr
// again, as scripts do, may open a pipe whatever its user id, and cannot truncate it.
type sink struct {
	w    *os.File
	done chan struct{}
	err  error
}

func newSink(to *os.File) (*sink, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	if err := w.Chmod(0o666); err != nil { // the sandbox has other user ids
		return nil, errors.Join(err, r.Close(), w.Close())
	}
	s := &sink{w: w, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		defer r.Close()
		if _, s.err = io.Copy(to, r); s.err != nil {
			io.Copy(io.Discard, r) //nolint:errcheck // the command is not to notice that the disk is full
		}
	}()
	return s, nil
}

// handed closes this process's write end of the pipe that takes the output of a command of the race. The
// command has got its own end before, so the pipe now ends with the command.
func (s *sink) handed() { s.w.Close() }

// whole waits until all output of an attempt's command has passed through the pipe into its file. No other
// process may have the write end of the pipe open. On a nil sink it does nothing.
func (s *sink) whole() error {
	if s == nil {
		return nil
	}
	s.w.Close()
	<-s.done
	if s.err != nil {
		return fmt.Errorf("its output is not whole: %w", s.err)
	}
	return nil
}

// forgetOutputs removes the stored outputs of the attempts of all but the last keptOutputs races. If that
// fails, the next race retries.
func (rr *Coordinator) forgetOutputs() {
	found, err := os.ReadDir(rr.races())
	if err != nil || len(found) <= keptOutputs {
		return
	}
	ages := map[string]int64{}
	for _, d := range found {
		if info, err := d.Info(); err == nil {
			ages[d.Name()] = info.ModTime().UnixNano()
		}
	}
	slices.SortFunc(found, func(a, b os.DirEntry) int { return int(min(max(ages[a.Name()]-ages[b.Name()], -1), 1)) })
	var failures []error
	for _, d := range found[:len(found)-keptOutputs] {
		failures = append(failures, os.RemoveAll(filepath.Join(rr.races(), d.Name())))
	}
	if err := errors.Join(failures...); err != nil {
		rr.notice("outputs of former races stay: " + err.Error())
	}
}
