// Package command runs a command in a sandbox for a client on a network connection. It passes on the
// command's streams or its terminal, its input and signals to it, and ends the command when the client is
// gone. A slow client never holds up the command's output, see [Queue].
//
// Read [Start] first, then [Running].
package command

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/isolate"
	"github.com/snapfs/snapfs/serve"
)

// The names of a command's output streams in replies. Output of a terminal is Stdout.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// lastOutput is how long [Running.Wait] waits, after a command's end, for output of processes that the
// command left in the background.
const lastOutput = 200 * time.Millisecond

// Options say how [Start] runs a command: its input, its terminal, and the function that gets its output.
type Options struct {
	supervise.ExecOptions
	// Input is written to its standard input, which then ends, unless Open is set: then [Running.Write] goes on.
	Input []byte
	Open  bool
	// Terminal is the size of its terminal, which then is all three streams; nil for none.
	Terminal *Size
	// Sink gets what it writes, one call at a time; p is valid during the call only. It must not wait for a caller.
	Sink func(stream string, p []byte)
}

// A Size is the size of a terminal, in columns and rows of characters.
type Size struct {
	Cols uint16 `json:"cols" minimum:"1" maximum:"32767"`
	Rows uint16 `json:"rows" minimum:"1" maximum:"32767"`
}

// A Running is a command in a sandbox that [Start] has started. Its methods are safe for concurrent use.
type Running struct {
	process supervise.Client
	began   time.Time
	outputs []*os.File
	copying sync.WaitGroup

	inputMu sync.Mutex // held while input is written
	input   *os.File   // nil without an input; a pipe's end or the terminal's
}

// An Ended says how a command in a sandbox ended: its exit status, whether its time was over, and which limit
// it reached. [Running.Wait] returns it.
type Ended struct {
	Exit     int     `json:"exit" doc:"the exit status; 128 and the signal's number for a command that a signal ended"`
	TimedOut bool    `json:"timed_out"`
	Limit    string  `json:"limit,omitempty" doc:"the limit of the sandbox that the command reached"`
	Seconds  float64 `json:"seconds"`
}

// Start starts the command c in the sandbox called name. The caller must call [Running.Wait]. Errors: those
// of [supervise.Manager.ExecWith].
func Start(ctx context.Context, e *engine.Engine, name string, c engine.Command, o Options) (_ *Running, err error) {
	x := &Running{began: time.Now()}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
		if err != nil {
			for _, f := range append(x.outputs, x.input) {
				f.Close() // nil is no file
			}
		}
	}()
	if o.Terminal != nil {
		c.TTY = &isolate.Size{Rows: o.Terminal.Rows, Cols: o.Terminal.Cols}
	} else if theirs, err = x.open(&c, o.Open || len(o.Input) > 0); err != nil {
		return nil, err
	}
	if x.process, err = e.Supervise.ExecWith(ctx, name, c, o.ExecOptions); err != nil {
		return nil, err
	}
	if o.Terminal != nil {
		x.input = x.process.PTY()
		x.copying.Go(func() { copyTo(o.Sink, Stdout, x.process.PTY()) })
		return x, nil
	}
	var one sync.Mutex
	sink := func(stream string, p []byte) {
		one.Lock()
		defer one.Unlock()
		o.Sink(stream, p)
	}
	for i, stream := range []string{Stdout, Stderr} {
		x.copying.Go(func() {
			defer x.outputs[i].Close()
			copyTo(sink, stream, x.outputs[i])
		})
	}
	if len(o.Input) > 0 {
		x.inputMu.Lock() // before a later Write
		x.copying.Go(func() {
			defer x.inputMu.Unlock()
			_, _ = x.input.Write(o.Input) // it ends with the input, the command's end of the pipe or its deadline
			if !o.Open {
				x.input.Close()
			}
		})
	}
	return x, nil
}

// open makes the pipes for the output of a command, and with input set also for its input. It returns the
// command's ends of them, also after an error, so that the caller can close them.
func (x *Running) open(c *engine.Command, input bool) (theirs []*os.File, err error) {
	for _, to := range []**os.File{&c.Stdout, &c.Stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			return theirs, err
		}
		x.outputs, theirs, *to = append(x.outputs, r), append(theirs, w), w
	}
	if input {
		r, w, err := os.Pipe()
		if err != nil {
			return theirs, err
		}
		x.input, theirs, c.Stdin = w, append(theirs, r), r
	}
	return theirs, nil
}

// pieces holds memory for pieces of output.
var pieces = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// copyTo reads the output of a command from from until its end, and passes it on to sink, the function that
// gets a command's output, under the name stream.
func copyTo(sink func(stream string, p []byte), stream string, from *os.File) {
	buf, _ := pieces.Get().(*[32 << 10]byte)
	defer pieces.Put(buf)
	for {
		n, err := from.Read(buf[:])
		if n > 0 {
			sink(stream, buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// Wait waits for the end of the command. It ends the command after the duration limit, unless that is 0, or
// when ctx ends. Afterwards nothing calls the sink, the function that gets the output, any more, except for a
// terminal that processes of the command still have. Errors: those of [serve.Await].
func (x *Running) Wait(ctx context.Context, limit time.Duration) (Ended, error) {
	var r Ended
	var err error
	r.Exit, r.TimedOut, err = serve.Await(ctx, x.process, limit)
	if err == nil {
		if hit := x.process.Hit(); hit != nil {
			r.Limit = hit.Limit + " " + hit.Value + ": " + hit.Text
		}
	}
	r.Seconds = time.Since(x.began).Seconds()
	if x.outputs == nil {
		x.lastOfTerminal()
		return r, errors.Join(err, x.process.Close())
	}
	for _, p := range append(x.outputs, x.input) {
		_ = p.SetDeadline(time.Now().Add(lastOutput)) // a pipe has deadlines; nil is no file
	}
	x.copying.Wait()
	x.input.Close() // nil without one
	return r, errors.Join(err, x.process.Close())
}

// lastOfTerminal waits for the last output of a terminal, at most the time lastOutput. A terminal's reading
// end has no deadline, and ends only when no process has the terminal any more.
func (x *Running) lastOfTerminal() {
	copied := make(chan struct{})
	go func() { x.copying.Wait(); close(copied) }()
	select {
	case <-copied:
	case <-time.After(lastOutput):
	}
}
