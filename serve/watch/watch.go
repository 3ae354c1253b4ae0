// Package watch watches a directory of a sandbox for a client. A process in the sandbox does that, see
// package watchdir. Read [Start] first.
package watch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/files"
	"github.com/snapfs/snapfs/serve/watchdir"
)

// maxEvent is the largest length in bytes of a line that reports a change in a watched directory. The line
// comes from a process in the sandbox and is not trusted: a longer one ends the watch.
const maxEvent = 1 << 16

// A Watch receives the changes in a directory of a sandbox from a process there. A client that receives no
// events holds up only that process, which then ends with the message that it missed some.
type Watch struct {
	// Events are the changes. The channel is closed at the end.
	Events <-chan watchdir.Event

	process supervise.Client
	from    *os.File
	failed  string // what the process said at its end; valid once Events is closed
	once    sync.Once
}

// Options say which directory of a sandbox [Start] watches, and whether also the directories in it.
type Options struct {
	supervise.ExecOptions
	// Dir is an absolute path in the sandbox.
	Dir       string
	Recursive bool
}

// Start begins to watch a directory of the sandbox called name, and returns when the watch has begun. The
// watch ends with the context life, with [Watch.Stop], or with the processes of the sandbox. If ctx ends
// first, Start returns its error. Errors: ErrInvalid for a path that cannot be watched; those of
// [files.Helper.Start].
func Start(ctx, life context.Context, h *files.Helper, e *engine.Engine, name string, o Options) (*Watch, error) {
	from, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	said, stderr, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, from.Close(), out.Close())
	}
	args := []string{"watchdir", "--", o.Dir}
	if o.Recursive {
		args = slices.Insert(args, 1, "--recursive")
	}
	p, err := h.Start(life, e, name, args, out, stderr, o.ExecOptions)
	out.Close()
	stderr.Close()
	if err != nil {
		return nil, errors.Join(err, from.Close(), said.Close())
	}
	events := make(chan watchdir.Event, 256)
	w := &Watch{Events: events, process: p, from: from}
	go w.read(said, events)
	select {
	case first, open := <-events:
		if open && first.Kind == watchdir.Ready {
			return w, nil
		}
		w.Stop()
		return nil, errs.New("watching", o.Dir, errs.ErrInvalid, w.failed)
	case <-ctx.Done():
		w.Stop()
		return nil, ctx.Err()
	}
}

// read passes on the events that the process in the sandbox writes to said, the reports of changes in the
// watched directory, to events, until the process ends.
func (w *Watch) read(said *os.File, events chan<- watchdir.Event) {
	defer close(events)
	lines := bufio.NewScanner(w.from)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		var e watchdir.Event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			break
		}
		events <- e
	}
	text := make([]byte, 500)
	_ = said.SetReadDeadline(time.Now().Add(time.Second)) // a pipe has deadlines
	n, _ := said.Read(text)
	said.Close()
	first, _, _ := strings.Cut(string(text[:n]), "\n")
	w.failed = strings.TrimPrefix(first, "snapfs: ")
	if w.failed == "" {
		w.failed = "the processes of the sandbox were ended"
	}
}

// Failed returns the reason why the watch of the directory has ended, or "". The channel Events must be
// closed before the call.
func (w *Watch) Failed() string { return w.failed }

// Stop ends the watch of the directory and waits for the end of its process in the sandbox. A repeated call
// does no harm.
func (w *Watch) Stop() {
	w.once.Do(func() {
		go func() {
			for range w.Events { // so that read can end
			}
		}()
		_ = w.process.Close() // sends SIGHUP
		w.from.Close()
	})
}
