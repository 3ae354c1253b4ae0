package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/isolate"
)

// Of each sandbox, the output of the last maxDetached detached commands is stored: of each command
// the last maxOutput bytes, and at most as many before them.
const (
	maxDetached = 20
	maxOutput   = 8 << 20
)

// detachedDir is the directory beside the record with a file ID.json for each detached command,
// its output ID.log, and the output before that, ID.old.
const detachedDir = "logs"

// A Detached is a command that runs, or ran, in a sandbox without a client.
type Detached struct {
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

// Detach starts a command in a sandbox as [Manager.ExecWith] does, without streams: its input is
// empty, and its output goes to the sandbox's logs. The command outlives this process. Detach
// returns the command's ID.
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

// DetachedOf lists the detached commands of a sandbox, oldest first. Errors: errs.ErrNotFound.
func (sv *Manager) DetachedOf(name string) ([]Detached, error) {
	rec, err := sv.cat.Get(name)
	if err != nil {
		return nil, err
	}
	all, err := detachedIn(filepath.Join(sv.cat.Path(name), detachedDir))
	up := rec.Supervisor != nil && proc.Alive(*rec.Supervisor)
	for i := range all {
		all[i].Running = up && all[i].Ended.IsZero()
	}
	return all, errs.With("reading the logs of", name, err)
}

// CopyOutput writes the stored output of a detached command to w. With follow it goes on until
// the command or ctx ends.
func (sv *Manager) CopyOutput(ctx context.Context, w io.Writer, name string, id int, follow bool) error {
	path := outputPath(filepath.Join(sv.cat.Path(name), detachedDir), id)
	if err := copyFile(w, strings.TrimSuffix(path, ".log")+".old"); err != nil {
		return err
	}
	var f *os.File
	defer func() { f.Close() }()
	for {
		all, err := sv.DetachedOf(name)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(d Detached) bool { return d.ID == id })
		last := !follow || i < 0 || !all[i].Running || ctx.Err() != nil
		next, err := os.Open(path)
		if err != nil {
			return errs.With("reading the logs of", name, err)
		}
		if f != nil {
			if _, err := io.Copy(w, f); err != nil { // the rest of a file that was full
				return errors.Join(err, next.Close())
			}
		}
		if sameOpenFile(f, next) {
			next.Close()
		} else {
			f.Close()
			f = next
		}
		if _, err := io.Copy(w, f); err != nil || last {
			return err
		}
		pause(ctx, 100*time.Millisecond)
	}
}

func copyFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

func sameOpenFile(a, b *os.File) bool {
	x, err := a.Stat() // an error also for nil
	y, berr := b.Stat()
	return err == nil && berr == nil && os.SameFile(x, y)
}

func outputPath(dir string, id int) string { return filepath.Join(dir, strconv.Itoa(id)+".log") }

// detachedIn reads the commands of a directory of logs, oldest first; none if it does not exist.
func detachedIn(dir string) ([]Detached, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return []Detached{}, nil
	}
	all := []Detached{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		data, rerr := os.ReadFile(filepath.Join(dir, e.Name()))
		var d Detached
		if rerr == nil && json.Unmarshal(data, &d) == nil { // skip one that a crash cut short
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b Detached) int { return a.ID - b.ID })
	return all, err
}

// A detachedLog stores the output of one detached command, in the process of the supervisor.
type detachedLog struct {
	dir string
	Detached
	pipe   *os.File      // the command's output
	stored chan struct{} // closed when all output is stored
}

// newDetachedLog makes the files for a command and returns its log, and the pipe that is to be the
// command's output. It removes the logs of the oldest commands.
func newDetachedLog(dir string, args []string) (*detachedLog, *os.File, error) {
	all, err := detachedIn(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, nil, err
	}
	l := &detachedLog{dir: dir, Detached: Detached{ID: 1, Args: args, Began: time.Now()}, stored: make(chan struct{})}
	if n := len(all); n > 0 {
		l.ID = all[n-1].ID + 1
	}
	for _, old := range all[:max(0, len(all)-maxDetached+1)] {
		(&detachedLog{dir: dir, Detached: old}).drop()
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

// drop removes the files of the command; what it cannot remove stays.
func (l *detachedLog) drop() {
	for _, ext := range []string{".json", ".log", ".old"} {
		_ = os.Remove(filepath.Join(l.dir, strconv.Itoa(l.ID)+ext)) // see above
	}
}

func (l *detachedLog) save() error {
	data, err := json.Marshal(l.Detached)
	if err != nil {
		return err
	}
	path := filepath.Join(l.dir, strconv.Itoa(l.ID)+".json")
	if err := os.WriteFile(path+".new", append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// store copies the output to the file out, which it replaces when it is full. Output that cannot
// be written, as on a full disk, is lost; the command goes on.
func (l *detachedLog) store(out *os.File) {
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

// end records the end of the command. A background process may hold its output open: end waits
// for what is written within lastReap.
func (l *detachedLog) end(status int, hit *catalog.LimitHit) {
	select {
	case <-l.stored:
	case <-time.After(lastReap):
	}
	l.Ended, l.Status, l.Hit = time.Now(), &status, hit
	_ = l.save() // on a full disk it looks killed
}

// Describe says how the command is or ended.
func (d *Detached) Describe() string {
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

// execDetached runs a command for a client that need not stay: this process is the client of exec
// in its place, and stores the output and the status. It returns when the command has ended.
func (h *Supervisor) execDetached(client *fdsock.Conn, w execRequest) {
	refuse := func(err error) { send(client, Reply{Refused: refusalOf(err)}) }
	l, out, err := newDetachedLog(filepath.Join(filepath.Dir(h.socket), detachedDir), w.Args)
	if err != nil {
		refuse(err)
		return
	}
	defer l.pipe.Close()
	mine, theirs, err := fdsock.Pair()
	if err != nil {
		out.Close()
		l.drop()
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
		l.drop()
		send(client, t)
		return
	}
	t.Detached = l.ID
	send(client, t)
	for err == nil && t.Status == nil && t.Refused == nil {
		t, _, err = receive(mine)
	}
	if t.Status != nil {
		l.end(t.Status.ExitCode(), t.Hit)
	}
}
