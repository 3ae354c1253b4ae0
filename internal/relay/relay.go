package relay

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/snapfs/snapfs/internal/stdio"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A Relay copies between the caller's standard streams and the pipes that a command in a sandbox gets
// instead, one direction each. [Open] makes it, Start begins to copy, and End or Close ends it.
type Relay struct {
	// In, Out and Err are the command's streams: a pipe of the relay, or the caller's own stream
	// where the sandbox may have that.
	In, Out, Err *os.File

	input   *input
	outputs []*output
	screens []*Screen
	// given are the command's ends of the pipes, which Start closes.
	given []*os.File
	// stop can be read once the command has ended, because stopped is closed then.
	stop, stopped *os.File
	// stuck is closed once EndUnlessStuck gives up. It is nil but in a relay of OpenFiles.
	stuck chan struct{}
}

// Open decides for each standard stream of the caller whether a command in a sandbox gets the stream itself
// or a pipe, from which the [Relay] copies; a stream may be nil. Terminals are always relayed. Pipes and
// stream sockets are relayed if outlives is set, which means that the sandbox outlives the command. If it is
// not set, files that root has as outputs are relayed: a sandbox has other user ids, and could not open them
// again by /dev/stdout. The command gets all else itself. After an error nothing is left open. Cost: two
// system calls a stream, and some more for each that is relayed.
func Open(in, out, err *os.File, outlives bool) (_ *Relay, failed error) {
	r := &Relay{In: in, Out: out, Err: err}
	defer func() {
		if failed != nil {
			r.Close()
		}
	}()
	if kind := kindOf(in); kind.relayed(outlives) {
		if failed = r.relayInput(kind); failed != nil {
			return nil, failed
		}
	}
	for _, stream := range []**os.File{&r.Out, &r.Err} {
		kind := kindOf(*stream)
		if !kind.outputRelayed(outlives) {
			continue
		}
		if stream == &r.Err && r.Out != out && sameFile(out, err) {
			r.Err = r.Out // one pipe keeps the order of what is written to both
			continue
		}
		if failed = r.relayOutput(kind, stream); failed != nil {
			return nil, failed
		}
	}
	if r.input != nil || len(r.outputs) > 0 {
		r.stop, r.stopped, failed = newPipe()
	}
	return r, failed
}

// OpenFiles replaces those of a command's outputs that are regular files by the pipes of a [Relay], which copies
// from them, if this user is root: a sandbox has other user ids, and could not open the files again by
// /dev/stdout. End returns when what the command wrote is in the files, as of any relay, but copying goes on
// for processes that the command leaves behind, until they have ended; see [Relay.Wait]. The caller may
// close the files. Other outputs, and nil, are Out and Err of the relay. After an error the relay is empty, and
// nothing is left open.
func OpenFiles(out, err *os.File) (_ *Relay, failed error) {
	r := &Relay{Out: out, Err: err, stuck: make(chan struct{})}
	outs := []**os.File{&r.Out, &r.Err}
	for i, f := range []*os.File{out, err} {
		if kindOf(f) != regular || !otherIDs() {
			continue
		}
		if i == 1 && r.Out != out && sameFile(out, err) {
			r.Err = r.Out
			continue
		}
		if failed = r.relayOutput(regular, outs[i]); failed != nil {
			break
		}
		o := r.outputs[len(r.outputs)-1]
		o.ended = make(chan struct{})
		if o.to, failed = vfs.Duplicate(f); failed != nil {
			break
		}
	}
	if failed == nil && len(r.outputs) > 0 {
		r.stop, r.stopped, failed = newPipe()
	}
	if failed != nil {
		r.Close()
		r = &Relay{}
	}
	return r, failed
}

func (r *Relay) relayInput(kind kind) error {
	read, write, err := newPipe()
	if err != nil {
		return err
	}
	r.input = newInput(kind, r.In, write)
	r.In, r.given = read, append(r.given, read)
	return nil
}

func (r *Relay) relayOutput(kind kind, stream **os.File) error {
	read, write, err := newPipe()
	if err != nil {
		return err
	}
	unix.SetNonblock(int(read.Fd()), true) //nolint:errcheck // otherwise a read waits where a process has emptied the pipe
	o := &output{from: read, to: *stream, kind: kind, done: make(chan struct{})}
	if kind == terminal {
		o.screen = NewScreen(*stream)
		r.screens = append(r.screens, o.screen)
	}
	r.outputs = append(r.outputs, o)
	*stream, r.given = write, append(r.given, write)
	return nil
}

// Start begins to copy. The caller calls it once, when the command has its streams and has
// started.
func (r *Relay) Start() {
	r.closeGiven()
	if r.input != nil {
		go r.input.copy(r.stop)
	}
	for _, o := range r.outputs {
		go o.copy(r.stop)
	}
}

// settling is how long [Relay.End] waits, after a command has ended, until the copying of its input has
// stopped. After that End returns although the copying may go on.
const settling = time.Second

// End ends the relay after the command has ended. It first copies the output that the command has written,
// even while another process holds the pipe open. Bytes of a pipe or a socket that the command has not read
// stay there. If the output may have changed the state of the caller's terminal, End restores that. End
// returns early when giveUp is closed, because the reader of the output may never continue.
func (r *Relay) End(giveUp <-chan struct{}) {
	if r.stopped != nil {
		r.stopped.Close()
	}
	copying := false // whether a copier may still use r.stop
	for _, o := range r.outputs {
		select {
		case <-o.done:
		case <-giveUp:
			copying = true
		}
	}
	if r.input != nil {
		select {
		case <-r.input.done:
		case <-giveUp:
			copying = true
		case <-time.After(settling):
			copying = true
		}
	}
	if !copying {
		r.stop.Close() // nil without a pipe
	}
	for _, s := range r.screens {
		s.Reset()
	}
}

// EndUnlessStuck ends a relay of [OpenFiles] as End does, but gives up when nothing was written to the caller's files
// for the time most and gone then returns true, because the caller has ended. A write to a file may never return, such
// as on a network file system whose server does not answer. Lost returns an error then.
func (r *Relay) EndUnlessStuck(most time.Duration, gone func() bool) {
	if len(r.outputs) == 0 {
		return
	}
	ended, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for before := int64(-1); ; {
			select {
			case <-ended:
				return
			case <-time.After(most):
			}
			now := r.written()
			if now == before && gone() {
				close(r.stuck)
				return
			}
			before = now
		}
	}()
	r.End(r.stuck)
	close(ended)
	<-watched
}

// written returns how many bytes of the command's output were written to the caller's streams.
func (r *Relay) written() (n int64) {
	for _, o := range r.outputs {
		n += o.written.Load()
	}
	return n
}

// Wait waits until a relay of [OpenFiles] that was started copies nothing more, because no process has the
// pipes any more, or until EndUnlessStuck has given up.
func (r *Relay) Wait() {
	for _, o := range r.outputs {
		if o.ended != nil {
			select {
			case <-o.ended:
			case <-r.stuck:
			}
		}
	}
}

// errStuck means that the end of a command's output is not in the caller's file, because a write there does not return.
var errStuck = errors.New("a write to the file does not return")

// Lost returns the error of writing the command's output to a file of the caller, such as a full disk, or nil.
// The output since then is lost, and the command's next write there fails. The caller has called End or
// EndUnlessStuck.
func (r *Relay) Lost() error {
	for _, o := range r.outputs {
		select {
		case <-o.done:
			if o.kind == regular && o.failed != nil {
				return o.failed
			}
		default: // End has given up
			select {
			case <-r.stuck:
				return errStuck
			default:
			}
		}
	}
	return nil
}

// Tail returns the last bytes that the command wrote to the caller's terminals, at most 4 KiB of each: see
// [Screen.Tail]. It is "" for other streams, from which the bytes do not pass through this process.
func (r *Relay) Tail() string {
	var tail strings.Builder
	for _, s := range r.screens {
		tail.WriteString(s.Tail() + "\n")
	}
	return tail.String()
}

// Close closes the pipes of a relay that was not started, because the command did not start.
func (r *Relay) Close() {
	r.closeGiven()
	if r.input != nil {
		r.input.to.Close()
	}
	for _, o := range r.outputs {
		o.from.Close()
		if o.ended != nil {
			o.to.Close()
		}
	}
	r.stop.Close() // nil without a pipe
	r.stopped.Close()
}

func (r *Relay) closeGiven() {
	for _, f := range r.given {
		f.Close()
	}
	r.given = nil
}

// A kind is the type of a standard stream, as far as a [Relay] treats it differently: terminal, pipe, socket,
// regular file or any other.
type kind int

const (
	other    kind = iota // a device, or nothing
	regular              // a regular file
	terminal             // any, whoever's
	pipe
	socket // of streams
)

func (k kind) relayed(outlives bool) bool {
	return k == terminal || outlives && (k == pipe || k == socket)
}

// outputRelayed reports whether an output of this kind is relayed: also root's regular files, unless the
// sandbox outlives the command.
func (k kind) outputRelayed(outlives bool) bool {
	return k.relayed(outlives) || k == regular && !outlives && otherIDs()
}

// otherIDs reports whether a sandbox of this user has user ids of its own, so that the user's files belong to
// others in it.
func otherIDs() bool { return runtime.GOOS == "linux" && os.Geteuid() == 0 }

func kindOf(f *os.File) kind {
	if f == nil {
		return other
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		return other
	case info.Mode().IsRegular():
		return regular
	case info.Mode()&os.ModeNamedPipe != 0: // or one without a name
		return pipe
	case info.Mode()&os.ModeSocket != 0 && isStream(f):
		return socket
	case info.Mode()&os.ModeCharDevice != 0 && stdio.IsTerminal(f):
		return terminal
	}
	return other
}

func sameFile(a, b *os.File) bool {
	x, err := a.Stat()
	y, berr := b.Stat()
	return errors.Join(err, berr) == nil && os.SameFile(x, y)
}
