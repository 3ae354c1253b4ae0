// Package detached stores the output and the status of commands that run in a sandbox without a client.
package detached

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/exactjson"
)

// maxDetached is how many detached commands of a sandbox have a stored output; the oldest are removed.
// maxOutput is the size in bytes at which the file of one command's output becomes its ".old" file, in place
// of the one before, and a new file begins. So at most twice as much is stored, and the newest is never lost.
// Both bound the disk space.
const (
	maxDetached = 20
	maxOutput   = 8 << 20
)

// Dir is the directory, inside a sandbox's directory in the state directory, for detached commands. Each has
// a file ID.json with its Command, ID.log with its output, and ID.old with the output before that.
const Dir = "logs"

// A Command describes a command that runs, or ran, in a sandbox in the background without a client. The
// supervisor stores it as JSON, and snapfs logs shows it.
type Command struct {
	// ID counts the detached commands of the sandbox, from 1.
	ID    int       `json:"id"`
	Args  []string  `json:"args"`
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended,omitzero"`
	// Status is the exit status, nil before the end, or if the supervisor was killed.
	Status  *int              `json:"status,omitempty"`
	Hit     *catalog.LimitHit `json:"hit,omitempty"`
	Running bool              `json:"running"`
}

// In reads the descriptions of all detached commands from the logs directory of a sandbox, oldest first; none
// if it does not exist.
func In(dir string) ([]Command, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return []Command{}, nil
	}
	all := []Command{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		data, rerr := os.ReadFile(filepath.Join(dir, e.Name()))
		var d Command
		if rerr == nil && exactjson.Decode(data, &d) == nil { // skip one that a crash cut short
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b Command) int { return a.ID - b.ID })
	return all, err
}

// A Log stores the output of one detached command in files, in the process of the sandbox's supervisor.
type Log struct {
	dir string
	Command
	pipe   *os.File      // the command's output
	stored chan struct{} // closed when all output is stored
}

// New makes the files for the detached command args in dir and returns its log, and the end of a pipe that
// the caller makes the command's output and closes. It removes the logs of the oldest commands beyond
// maxDetached.
func New(dir string, args []string) (*Log, *os.File, error) {
	all, err := In(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, nil, err
	}
	l := &Log{dir: dir, Command: Command{ID: 1, Args: args, Began: time.Now()}, stored: make(chan struct{})}
	if n := len(all); n > 0 {
		l.ID = all[n-1].ID + 1
	}
	for _, old := range all[:max(0, len(all)-maxDetached+1)] {
		(&Log{dir: dir, Command: old}).Drop()
	}
	out, err := os.OpenFile(outputPath(dir, l.ID), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, nil, err
	}
	var w *os.File
	if l.pipe, w, err = os.Pipe(); err == nil {
		err = l.save()
	}
	if err != nil {
		l.pipe.Close() // nil without a pipe
		w.Close()
		return nil, nil, errors.Join(err, out.Close())
	}
	go l.store(out)
	return l, w, nil
}

// Drop removes the files with the output of the detached command, one that runs without a client; a file that
// it cannot remove stays.
func (l *Log) Drop() {
	for _, ext := range []string{".json", ".log", ".old"} {
		_ = os.Remove(filepath.Join(l.dir, strconv.Itoa(l.ID)+ext)) // see above
	}
}

// Close ends the storing of the command's output: it closes the reading end of the pipe.
func (l *Log) Close() error { return l.pipe.Close() }

func (l *Log) save() error {
	data, err := exactjson.Encode(l.Command)
	if err != nil {
		return err
	}
	path := filepath.Join(l.dir, strconv.Itoa(l.ID)+".json")
	if err := os.WriteFile(path+".new", append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// store copies the command's output from the pipe to the file out. When that file is full, store renames it
// to ID.old and begins a new one. Output that cannot be written, as on a full disk, is lost; the command goes
// on.
func (l *Log) store(out *os.File) {
	defer close(l.stored)
	defer func() { out.Close() }()
	buf := make([]byte, 32<<10)
	for size := 0; ; {
		n, err := l.pipe.Read(buf)
		_, _ = out.Write(buf[:n])
		if size += n; size > maxOutput {
			path := outputPath(l.dir, l.ID)
			if os.Rename(path, strings.TrimSuffix(path, ".log")+".old") == nil {
				if next, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err == nil {
					out.Close()
					out, size = next, 0
				}
			}
		}
		if err != nil {
			return
		}
	}
}

// End stores the exit status of the command and the limit that it hit, or nil. A background process may hold
// the command's output open, so End waits at most patience for the rest of the output.
func (l *Log) End(patience time.Duration, status int, hit *catalog.LimitHit) {
	select {
	case <-l.stored:
	case <-time.After(patience):
	}
	l.Ended, l.Status, l.Hit = time.Now(), &status, hit
	_ = l.save() // on a full disk it looks killed
}

// Describe returns a clause about the command's state for a message: that it runs, was killed, or with which
// status and limit it ended.
func (d *Command) Describe() string {
	switch {
	case d.Running:
		return "it is running"
	case d.Status == nil:
		return "it was killed with the sandbox's supervisor"
	case d.Hit != nil:
		return fmt.Sprintf("it ended with status %d: %s", *d.Status, d.Hit.Text)
	}
	return fmt.Sprintf("it ended with status %d", *d.Status)
}

// outputPath returns the path of the stored output of the command id. dir is the sandbox's logs directory.
func outputPath(dir string, id int) string { return filepath.Join(dir, strconv.Itoa(id)+".log") }
