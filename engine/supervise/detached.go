package supervise

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/snapfs/snapfs/engine/supervise/detached"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/isolate"
)

// A Detached is a command that runs, or ran, in a sandbox in the background, without a client.
type Detached = detached.Command

// Detach starts a command in a sandbox in the background, as [Manager.ExecWith] does but without streams: its input
// is empty, and its output goes to the sandbox's logs. The command outlives this process. Detach returns the ID under
// which [Manager.CopyOutput] finds its output.
func (sv *Manager) Detach(ctx context.Context, name string, command isolate.Command, o ExecOptions) (int, error) {
	o.detach = true
	p, err := sv.ExecWith(ctx, name, command, o)
	if err != nil {
		return 0, err
	}
	id := 0
	if c, ok := p.(*client); ok {
		id = c.detached
	}
	if id == 0 { // a supervisor that does not know Detach has started a command of this client
		err = (&Reply{}).refusal()
	}
	return id, errors.Join(err, p.Close())
}

// DetachedOf lists the commands that [Manager.Detach] started in a sandbox, oldest first. Errors: errs.ErrNotFound.
func (sv *Manager) DetachedOf(name string) ([]Detached, error) {
	rec, err := sv.cat.Get(name)
	if err != nil {
		return nil, err
	}
	all, err := detached.In(filepath.Join(sv.cat.Path(name), detached.Dir))
	up := rec.Supervisor != nil && proc.Alive(*rec.Supervisor)
	for i := range all {
		all[i].Running = up && all[i].Ended.IsZero()
	}
	return all, errs.With("reading the logs of", name, err)
}

// CopyOutput writes the stored output of the detached command id of a sandbox to w. With follow it also writes new
// output, until the command or ctx ends.
func (sv *Manager) CopyOutput(ctx context.Context, w io.Writer, name string, id int, follow bool) error {
	return detached.Copy(ctx, w, name, filepath.Join(sv.cat.Path(name), detached.Dir), id, func() (bool, error) {
		all, err := sv.DetachedOf(name)
		i := slices.IndexFunc(all, func(d Detached) bool { return d.ID == id })
		return follow && i >= 0 && all[i].Running, err
	})
}

// execDetached runs a command in the background: its client gets the command's ID and may end. In place of the
// client, this process stores the command's output and status. It returns when the command has ended.
func (h *Supervisor) execDetached(client *fdsock.Conn, w execRequest) {
	refuse := func(err error) { send(client, Reply{Refused: refusalOf(err)}) }
	l, out, err := detached.New(filepath.Join(filepath.Dir(h.socket), detached.Dir), h.deadlines.manager.events.Redacted(filepath.Base(filepath.Dir(h.socket)), w.Args))
	if err != nil {
		refuse(err)
		return
	}
	defer l.Close() //nolint:errcheck // nobody reads the pipe any more
	mine, theirs, err := fdsock.Pair()
	if err != nil {
		out.Close()
		l.Drop()
		refuse(err)
		return
	}
	defer mine.Close() //nolint:errcheck // both ends are here
	defer theirs.Close()
	w.TTY, w.Streams = nil, []int{1, 2}
	h.served.Go(func() {
		h.exec(fdsock.FromFD(int(theirs.Fd())), w, []*os.File{out, out})
	})
	t, _, err := receive(mine)
	if err != nil {
		refuse(err)
		return
	}
	if !t.Started {
		l.Drop()
		send(client, t)
		return
	}
	t.Detached = l.ID
	send(client, t)
	for err == nil && t.Status == nil && t.Refused == nil {
		t, _, err = receive(mine)
	}
	if t.Status != nil {
		l.End(lastReap, t.Status.ExitCode(), t.Hit)
	}
}
