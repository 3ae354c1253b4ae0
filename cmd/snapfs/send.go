package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/transfer"
	"github.com/spf13/cobra"
)

func newSend(a *app) *cobra.Command {
	var base, have string
	cmd := &cobra.Command{
		Use:   "send [flags] sandbox[@state]",
		Short: "send a sandbox's workspace to another machine",
		Long: `Writes a sandbox's workspace to standard output as a stream for snapfs receive: at a
named snapshot, or as it is now, which snapfs then records as a named snapshot. Changes
outside the workspace are not sent. A budget is: the sandbox counts on at the receiver, with
limits no higher than here, and what it used there counts here once it comes back.

--base sends only the difference to another snapshot, which the receiver must have sent
or received before. --have finds the newest such snapshot. From a sandbox on a live
base (see snapfs ls) the whole workspace is sent each time.

An interrupted stream creates nothing at the receiver. With --have snapfs resumes it:
it makes the stream again, compares the part that the receiver has, and sends the rest,
or everything if that part differs. --have - reads from standard input.`,
		Example: `  snapfs send fix | ssh big snapfs receive -C /srv/project
  ssh big snapfs send fix@done --base s1 | snapfs receive
  ssh big snapfs receive --have | snapfs send fix --have - | ssh big snapfs receive`,
		ValidArgsFunction: a.completeStates,
		Args:              exactly("sandbox[@state]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, state := splitState(args[0])
			req := transfer.SendRequest{Sandbox: name, State: state, Base: base}
			if strings.HasSuffix(args[0], "@") {
				return usageError(errEmptyName)
			}
			if isTerminal(a.ui.out) {
				return usageError(fmt.Errorf("standard output is a terminal; use snapfs send %s | ssh HOST snapfs receive", args[0]))
			}
			if base != "" && have != "" {
				return usageError(errors.New("--base and --have exclude one another"))
			}
			var err error
			if req.Have, err = a.readHave(have); err != nil {
				return err
			}
			return a.send(cmd.Context(), req)
		},
	}
	cmd.Flags().StringVar(&base, "base", "", "send only the difference to this `snapshot`, which the receiver must have")
	cmd.Flags().StringVar(&have, "have", "", "read the receiver's snapfs receive --have output from this `file`")
	return cmd
}

// mostHave is the largest size in bytes of the list that --have reads; a longer one is an error. It holds
// some hundred thousand snapshots.
const mostHave = 16 << 20

// readHave reads the list of the receiver's snapshots for --have, from file, or for "-" from standard input.
func (a *app) readHave(file string) ([]string, error) {
	var in io.Reader = a.ui.in
	switch file {
	case "":
		return nil, nil
	case "-":
	default:
		f, err := os.Open(file)
		if err != nil {
			return nil, errs.With("reading", file, err)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, mostHave+1))
	if err != nil {
		return nil, errs.With("reading", file, err)
	}
	if len(text) > mostHave {
		return nil, &errs.Error{
			Op: "reading", Path: file, Kind: errs.ErrCorrupt,
			Err: errors.New("too long for output of snapfs receive --have"),
		}
	}
	return strings.Fields(string(text)), nil
}

func (a *app) send(ctx context.Context, req transfer.SendRequest) error {
	e, err := a.engine(ctx)
	if err != nil {
		return err
	}
	p := newProgress(a.ui)
	out := newOutput(ctx, a.ui.out)
	sent, err := transfer.New(e).Send(ctx, &counting{w: out, progress: p}, req)
	p.end()
	if err = out.end(err); err != nil {
		return err
	}
	if a.ui.json { // standard output holds the stream
		return json.NewEncoder(a.ui.err).Encode(sent)
	}
	said := "sent " + sent.Sandbox + "@" + sent.State
	if sent.Base != "" {
		said += " as a difference to " + sent.Base
	}
	if sent.From > 0 {
		said += ", without the first " + sent.From.String() + ", which the receiver had"
	}
	a.ui.notice(said)
	return nil
}

// A counting is a reader or writer that passes a stream through and shows the number of its bytes so far in a
// progress line.
type counting struct {
	w        io.Writer
	r        io.Reader
	n        snapshot.Bytes
	progress *progress
}

func (c *counting) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.count(n)
	return n, err
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.count(n)
	return n, err
}

func (c *counting) count(n int) {
	c.n += snapshot.Bytes(n)
	c.progress.carried(c.n)
}

// An output is a writer whose writes end when ctx ends, so that a pipe that nobody reads does not block an
// interrupted command.
type output struct {
	*io.PipeWriter
	done chan error
}

func newOutput(ctx context.Context, to io.Writer) *output {
	r, w := io.Pipe()
	o := &output{w, make(chan error, 2)}
	go func() {
		_, err := io.Copy(to, r)
		r.CloseWithError(err)
		o.done <- err
	}()
	context.AfterFunc(ctx, func() {
		err := enough(ctx)
		r.CloseWithError(err)
		o.done <- err
	})
	return o
}

// end waits until all data is written to the output. It returns err if that is not nil, otherwise the error
// of writing.
func (o *output) end(err error) error {
	o.CloseWithError(err)
	if werr := <-o.done; err == nil {
		return werr
	}
	return err
}

// input returns a reader of from whose reads end when ctx ends, so that an interrupted command does not wait
// for input.
func input(ctx context.Context, from io.Reader) io.Reader {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, from)
		w.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { w.CloseWithError(enough(ctx)) })
	return r
}

// enough returns the error of a command whose context has ended, as by Ctrl-C: ErrInterrupted, with the
// cause.
func enough(ctx context.Context) error {
	return &errs.Error{Kind: errs.ErrInterrupted, Err: ctx.Err()}
}
