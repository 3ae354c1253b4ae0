package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
)

// Where the output of an agent's commands is stored, in case the reply had to leave out a part: in outputDir
// inside the sandbox's directory in the catalogue. It holds the outputs of the last mostOutputs commands,
// each with at most maxStored bytes.
const (
	outputDir   = "agent-output"
	mostOutputs = 20
	maxStored   = 8 << 20
)

// lastOutput is how long a reply waits, after a command's end, for output of processes that the command left
// in the background.
const lastOutput = 200 * time.Millisecond

// The names of stored outputs of commands begin with a kind, before a hyphen and a number: execKind for a
// command that the agent waited for, and startKind for a background command.
const (
	execKind  = "exec"
	startKind = "start"
)

// An output collects the output of one command of an agent: its beginning and end for the reply, and all of
// it in a file. It also writes the command's standard input.
type output struct {
	stdout, stderr *clip
	number         int
	copying        sync.WaitGroup
	pipes          []*os.File

	mu     sync.Mutex
	file   *os.File
	stored int64
}

// newOutput makes the file for the output of a command. record is the sandbox's directory in the catalogue.
// It removes the oldest outputs beyond mostOutputs.
func newOutput(record string) (*output, error) {
	dir := filepath.Join(record, outputDir)
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, errs.With("storing output", dir, err)
	}
	numbers, err := outputsIn(dir)
	if err != nil {
		return nil, errs.With("storing output", dir, err)
	}
	for _, number := range numbers[:max(0, len(numbers)-mostOutputs+1)] {
		removeUnused(outputPath(dir, number)) // an output that cannot be removed stays
	}
	o := &output{stdout: newClip(), stderr: newClip(), number: 1}
	if n := len(numbers); n > 0 {
		o.number = numbers[n-1] + 1
	}
	for {
		o.file, err = os.OpenFile(outputPath(dir, o.number), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			o.number++ // another call took the number
			continue
		}
		if err == nil {
			if err = vfs.Flock(o.file, unix.LOCK_EX); err != nil {
				o.file.Close()
			}
		}
		return o, errs.With("storing output", dir, err)
	}
}

// removeUnused removes the stored output at path if its command has ended. The output of a command that still
// runs, of any server, is locked and stays.
func removeUnused(path string) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer vfs.Unlock(f)
	if vfs.Flock(f, unix.LOCK_EX|unix.LOCK_NB) == nil {
		_ = os.Remove(path)
	}
}

func outputPath(dir string, number int) string { return filepath.Join(dir, strconv.Itoa(number)) }

// outputsIn lists the numbers of the commands whose outputs are stored in dir, in ascending order, so that
// the oldest can be removed.
func outputsIn(dir string) (numbers []int, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, err
}

func (o *output) name() string { return execKind + "-" + strconv.Itoa(o.number) }

// read reads a stream of the command until its end. It stores the whole stream in the file, and in c its
// beginning and end for the reply.
func (o *output) read(r *os.File, c *clip) {
	o.pipes = append(o.pipes, r)
	o.copying.Go(func() {
		_, _ = io.Copy(io.MultiWriter(c, o), r) // it ends with the stream or its deadline
		r.Close()
	})
}

// feed writes text to the standard input of the command and closes it.
func (o *output) feed(w *os.File, text string) {
	o.pipes = append(o.pipes, w)
	o.copying.Go(func() {
		_, _ = io.WriteString(w, text) // it ends with the text, the command's end of the pipe or its deadline
		w.Close()
	})
}

// Write stores a part of the command's output in the file. It drops what exceeds maxStored, or does not fit
// on a full disk.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, _ := o.file.Write(p[:min(int64(len(p)), maxStored-o.stored)])
	o.stored += int64(n)
	return len(p), nil
}

// wait waits for the ends of the command's streams. It gives processes that the command has left behind only
// the time lastOutput.
func (o *output) wait() {
	for _, p := range o.pipes {
		_ = p.SetDeadline(time.Now().Add(lastOutput)) // a pipe has deadlines
	}
	o.copying.Wait()
}

func (o *output) close() {
	o.wait()
	vfs.Unlock(o.file)
}

// drop removes the stored file of a command's output, which is not needed if the reply to the agent holds the
// whole output.
func (o *output) drop() { _ = os.Remove(o.file.Name()) } // one that stays is removed with the sandbox

// An OutputRequest is a coding agent's request for a part of the stored output of a command.
type OutputRequest struct {
	Sandbox string `json:"sandbox" jsonschema:"the sandbox's name"`
	Output  string `json:"output" jsonschema:"the name from the result of the command, such as exec-3 or start-1"`
	Offset  int64  `json:"offset,omitempty" jsonschema:"the first byte to read"`
	Bytes   int    `json:"bytes,omitempty" jsonschema:"how many bytes to read; by default and at most 16384"`
}

// A Piece is a part of the stored output of a command, as the reply to an [OutputRequest].
type Piece struct {
	Sandbox string `json:"sandbox"`
	Output  string `json:"output"`
	Offset  int64  `json:"offset"`
	Text    string `json:"text"`
	Next    int64  `json:"next" jsonschema:"the offset of the byte after text"`
	Bytes   int64  `json:"bytes" jsonschema:"the length of what is stored"`
	End     bool   `json:"end" jsonschema:"whether text reaches the end of what is stored"`
}

// maxPiece is the largest number of bytes of a command's stored output that one reply to an agent holds, 16
// KiB. The reply has the offset at which the next one can continue.
const maxPiece = 16 << 10

// Output returns a part of the stored output of a command. The output of [Service.Exec] is both streams
// together, in the order in which they came. Errors: ErrNotFound, ErrInvalid.
func (s *Service) Output(ctx context.Context, q OutputRequest) (Piece, error) {
	p := Piece{Sandbox: q.Sandbox, Output: q.Output, Offset: q.Offset}
	e, _, err := s.enter(ctx, q.Sandbox)
	if err != nil {
		return p, err
	}
	if q.Offset < 0 || q.Bytes < 0 || q.Bytes > maxPiece {
		return p, errs.New("reading output", q.Sandbox, errs.ErrInvalid, "offset must not be negative, and bytes must be from 1 to 16384")
	}
	w := &window{from: q.Offset, most: maxPiece}
	if q.Bytes > 0 {
		w.most = q.Bytes
	}
	if err := copyOutput(ctx, e, q.Sandbox, q.Output, w); err != nil {
		return p, err
	}
	part := w.part
	if whole := wholeRunes(part); len(whole) > 0 && q.Offset+int64(len(part)) < w.n {
		part = whole // the next piece begins with the character
	}
	p.Text, p.Next, p.Bytes = tame(string(part)), q.Offset+int64(len(part)), w.n
	p.End = p.Next >= w.n
	return p, nil
}

// copyOutput writes the stored output called name, such as exec-3 or start-1, of a sandbox's command to w.
// Errors: ErrNotFound.
func copyOutput(ctx context.Context, e *engine.Engine, sandbox, name string, w io.Writer) error {
	kind, number, _ := strings.Cut(name, "-")
	id, err := strconv.Atoi(number)
	unknown := errs.New("reading output", sandbox, errs.ErrNotFound, fmt.Sprintf("no output is named %q", name))
	switch {
	case err != nil || id < 1:
		return unknown
	case kind == startKind:
		if _, err := background(e, sandbox, id); err != nil {
			return unknown
		}
		return e.Supervise.CopyOutput(ctx, w, sandbox, id, false)
	case kind != execKind:
		return unknown
	}
	f, err := os.Open(outputPath(filepath.Join(e.Catalog().Path(sandbox), outputDir), id))
	if err != nil {
		return unknown
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// A window is an io.Writer that stores the part of its input, a command's stored output, from the offset from
// on, at most most bytes, and counts all bytes.
type window struct {
	from int64
	most int
	part []byte
	n    int64
}

// Write counts the bytes of p, and stores those that lie in the part that the window selects. It never fails.
func (w *window) Write(p []byte) (int, error) {
	rest := p[min(int64(len(p)), max(0, w.from-w.n)):]
	w.part = append(w.part, rest[:min(len(rest), w.most-len(w.part))]...)
	w.n += int64(len(p))
	return len(p), nil
}
