package e2b

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/serve/e2b/envd"
	"github.com/snapfs/snapfs/serve/files"
)

// A resources holds the parts of this server that belong to one sandbox: its running commands and watches,
// and the helper processes in the sandbox that read files.
type resources struct {
	s *Server

	mu       sync.Mutex
	closed   bool
	commands map[uint32]*command
	last     uint32
	watchers map[string]*watcher

	free  []*lease // the processes that read files and that no request uses
	idle  *time.Timer
	usage usageSample

	slots chan struct{} // one for each request for files
}

// resourcesOf returns the resources of this server that belong to the sandbox b, such as its running
// commands. The first call makes them.
func (s *Server) resourcesOf(b *opened) *resources {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.resources[b.ID]
	if r == nil {
		r = &resources{s: s, commands: map[uint32]*command{}, watchers: map[string]*watcher{}, slots: make(chan struct{}, mostFiles)}
		if s.ctx.Err() == nil {
			s.resources[b.ID] = r
		}
	}
	return r
}

// forget ends the commands, watches and helper processes that this server has for the removed sandbox called
// id.
func (s *Server) forget(id string) {
	s.mu.Lock()
	r := s.resources[id]
	delete(s.resources, id)
	s.mu.Unlock()
	if r != nil {
		r.close()
	}
}

// firstPID is the number that a client gets for the first command of a sandbox. It is larger than the pids
// that processes have by default, so that the two are not confused.
const firstPID = 1 << 22

// add gives the running command x the number by which clients name it, and removes it from the list when it
// has ended. If the resources are closed already, it kills the command.
func (r *resources) add(x *command) {
	r.mu.Lock()
	if r.last < firstPID {
		r.last = firstPID
	}
	r.last++
	x.pid = r.last
	r.commands[x.pid] = x
	closed := r.closed
	r.mu.Unlock()
	if closed {
		_ = x.process.SignalGroup(syscall.SIGKILL) // it may have ended
	}
	go func() {
		<-x.done
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.commands, x.pid)
	}()
}

// all returns the running commands of the sandbox, sorted by the numbers that clients name them by.
func (r *resources) all() []*command {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*command
	for _, x := range r.commands {
		list = append(list, x)
	}
	slices.SortFunc(list, func(a, b *command) int { return cmp.Compare(a.pid, b.pid) })
	return list
}

// find returns the running command of the sandbox that a request names by number or tag. Errors: ErrNotFound.
func (r *resources) find(which *envd.ProcessSelector) (*command, error) {
	const op = "finding a command"
	for _, x := range r.all() {
		switch by := which.GetSelector().(type) {
		case *envd.ProcessSelector_Pid:
			if x.pid == by.Pid {
				return x, nil
			}
		case *envd.ProcessSelector_Tag:
			if x.tag != nil && *x.tag == by.Tag {
				return x, nil
			}
		}
	}
	return nil, errs.New(op, "", errs.ErrNotFound, "no running command has this pid or tag")
}

// close ends the sandbox's commands, watches and processes that read files, and waits for their end.
func (r *resources) close() {
	r.mu.Lock()
	r.closed = true
	watchers := r.watchers
	r.watchers = map[string]*watcher{}
	r.mu.Unlock()
	for _, w := range watchers {
		w.Stop()
	}
	all := r.all()
	for _, x := range all {
		_ = x.process.SignalGroup(syscall.SIGKILL) // it may have ended
	}
	for _, x := range all {
		select {
		case <-x.done:
		case <-time.After(supervise.GracePeriod): // its sandbox is paused, and it gets the signal afterwards
		}
	}
	r.closeFiles()
}

// idleFiles is how long a process that reads files of a sandbox waits for the next request before it ends.
// mostFiles is the largest number of these processes in one sandbox; further requests wait for one.
const (
	idleFiles = 20 * time.Second
	mostFiles = 16
)

// A lease is a helper process in a sandbox, on the server's behalf, that reads and writes files there, while
// one request uses it. Other requests use other processes.
type lease struct {
	*files.Session
	end context.CancelFunc
}

func (l *lease) close() {
	l.end()
	_ = l.Session.Close() // it has nothing left to do
}

// A tree gives access to the files of a sandbox and their extended attributes.
type tree interface {
	files.Tree
	files.Attributer
}

// withFiles calls do with t, which gives access to the files of the sandbox b. When ctx ends, so do the calls
// of t.
func (r *resources) withFiles(ctx context.Context, b *opened, do func(t tree) error) error {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.slots }()
	l, err := r.lease(b)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, l.end)
	err = do(l)
	if !stop() || broken(err) {
		l.close()
		return err
	}
	r.release(l)
	return err
}

// lease returns a process that reads files of the sandbox b and that no other request uses. It starts one if
// all are in use.
func (r *resources) lease(b *opened) (*lease, error) {
	for {
		r.mu.Lock()
		n := len(r.free)
		if n == 0 {
			r.mu.Unlock()
			break
		}
		l := r.free[n-1]
		r.free = r.free[:n-1]
		r.mu.Unlock()
		if _, err := l.Stat("/", true); err == nil {
			return l, nil
		}
		l.close() // it ended since the last request, with the processes of the sandbox
	}
	ctx, end := context.WithCancel(r.s.ctx)
	session, err := r.s.o.Files.Enter(ctx, b.e, b.Name, supervise.ExecOptions{Admission: r.s.admission()})
	if err != nil {
		end()
		return nil, err
	}
	return &lease{session, end}, nil
}

// release makes a process that reads files of the sandbox available to the next request, after the one that
// leased it.
func (r *resources) release(l *lease) {
	r.mu.Lock()
	closed := r.closed
	if !closed {
		r.free = append(r.free, l)
		if r.idle == nil {
			r.idle = time.AfterFunc(idleFiles, r.closeFiles)
		} else {
			r.idle.Reset(idleFiles)
		}
	}
	r.mu.Unlock()
	if closed {
		l.close()
	}
}

// broken reports whether err, of an operation on files, means that the process in the sandbox that reads them
// has ended.
func broken(err error) bool { return errors.Is(err, errs.ErrInterrupted) }

// closeFiles ends the processes that read files of the sandbox and that no request uses.
func (r *resources) closeFiles() {
	r.mu.Lock()
	free := r.free
	r.free = nil
	r.mu.Unlock()
	for _, l := range free {
		l.close()
	}
}

// forgetFiles ends the idle processes that read files of the sandbox called id.
func (s *Server) forgetFiles(id string) {
	s.mu.Lock()
	r := s.resources[id]
	s.mu.Unlock()
	if r != nil {
		r.closeFiles()
	}
}

// sweepEvery is the time between two checks for sandboxes whose time-out has passed.
const sweepEvery = 5 * time.Second

// sweep opens the engine at regular intervals, which removes sandboxes whose time-out has passed even if no
// request comes. It also closes the resources of sandboxes that are gone. It reports an error once, however
// often that occurs.
func (s *Server) sweep() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for last := ""; ; {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		text := ""
		if err := s.closeGone(s.ctx); err != nil && s.ctx.Err() == nil {
			text = err.Error()
		}
		if text != "" && text != last {
			s.o.Notice("looking for sandboxes whose time is over: " + text)
		}
		last = text
	}
}

// closeGone closes this server's resources for sandboxes that no longer exist. After an error it has closed
// none, because a sandbox that cannot be read from the catalogue now may be running.
func (s *Server) closeGone(ctx context.Context) error {
	// Before the records: a sandbox that is made meanwhile is not among them.
	s.mu.Lock()
	ids := slices.Collect(maps.Keys(s.resources))
	s.mu.Unlock()
	e, err := s.o.Open(ctx)
	if err != nil {
		return err
	}
	records, failures := e.Catalog().List()
	if err := errors.Join(failures...); err != nil {
		return err
	}
	known := map[string]bool{}
	for _, rec := range records {
		known[rec.ID] = (&opened{Record: rec}).exists()
	}
	for _, id := range ids {
		if !known[id] {
			s.forget(id)
		}
	}
	return nil
}
